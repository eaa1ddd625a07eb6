"""From records of runs to tables, findings and plots. Knows nothing of Ray, torch or MLflow."""
