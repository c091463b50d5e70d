"""What a user is told of a conversion and what a model says of itself: inputs, outputs, metadata, how to run it."""
