"""Converted models in other runtimes than ONNX Runtime: the matrix of targets, and the table in the documentation."""
