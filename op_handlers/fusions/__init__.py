"""Fusions: several TFLite operators that spell out one ONNX operator."""
