"""What runs inside the ranks: model, data, Trainer and the meter. Knows no Ray or MLflow."""
