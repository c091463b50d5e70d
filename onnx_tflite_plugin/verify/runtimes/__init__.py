"""Runtimes of a comparison: LiteRT, kernels of packs, and ONNX Runtime.

The file as LiteRT reads it, and its parts.
"""
