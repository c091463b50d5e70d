"""Comparison of every submodel with LiteRT on the same operands, which decides the verdict.

``cut``: the ONNX model, cut at every value that stands for a tensor. ``expand``: the TFLite file, whose operators read those
tensors as graph inputs. ``operands``: values to run both on. ``references``: further answers of LiteRT. ``criteria``: the
allowed errors. ``engine``: all of these together.
"""
