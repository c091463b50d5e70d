"""Converted models in runtimes other than ONNX Runtime: outcomes by target, and the table in the documentation."""
