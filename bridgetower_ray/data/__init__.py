"""Images and captions: where they come from and how an image becomes a tensor."""
