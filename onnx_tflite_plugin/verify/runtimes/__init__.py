"""Runtimes of a comparison: LiteRT, kernels of packs, and ONNX Runtime.

The package also reads a file as LiteRT does, and cuts submodels out of it.
"""
