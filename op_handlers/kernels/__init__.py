"""Arithmetic of LiteRT's kernels, shared by the handlers of several modules.

The package contains no handlers.
"""
