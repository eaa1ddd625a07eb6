"""What differs between devices, behind one contract. Knows no Ray or MLflow."""
