"""What runs inside the ranks: model, data, Trainer and the meter. Knows nothing of Ray or MLflow."""
