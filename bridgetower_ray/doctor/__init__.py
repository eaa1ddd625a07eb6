"""Looking at hosts: their devices, software and neighbours, and what is wrong with them. Knows no Ray or MLflow."""
