"""Operators that are not expressible in ONNX, each with the reason."""
