"""Elementwise operators and reductions.

Among them are arithmetic, functions, activations, comparisons, casts and quantization.
"""
