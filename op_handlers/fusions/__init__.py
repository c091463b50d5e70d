"""Fusions of several TFLite operators that decompose one ONNX operator."""
