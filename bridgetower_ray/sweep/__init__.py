"""What a sweep is, as values: its file, its settings, its cells and trials, its plan. Knows no Ray, torch or MLflow."""
