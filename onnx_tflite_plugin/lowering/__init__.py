"""Emitting ONNX: handlers say what, the plans say in which order and form."""
