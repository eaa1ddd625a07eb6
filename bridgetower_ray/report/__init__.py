"""What is read: records, statistics, verdicts, tables, plots, comparisons. Knows no Ray, torch or MLflow."""
