"""Elementwise operators and reductions.

They include arithmetic, functions, activations, comparisons, casts and quantization.
"""
