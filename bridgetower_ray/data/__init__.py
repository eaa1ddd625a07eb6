"""Images and captions: where they come from, and how an image becomes a tensor. Knows no Ray or MLflow."""
