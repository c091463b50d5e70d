"""Operators that have no form in ONNX, each with the reason."""
