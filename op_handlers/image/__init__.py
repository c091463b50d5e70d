"""Convolution, pooling and resizing over spatial axes."""
