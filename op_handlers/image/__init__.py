"""Convolutions, pools and resizes over spatial axes."""
