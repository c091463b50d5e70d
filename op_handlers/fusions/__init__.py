"""Fusions of several TFLite operators that together compute one ONNX operator."""
