"""What is kept: MLflow, and what waits for it on the driver's disk. Only this room imports MLflow."""
