"""Arithmetic of LiteRT's kernels, shared by the handlers of several modules.

Holds no handlers.
"""
