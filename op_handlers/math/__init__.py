"""Elementwise operators and reductions: arithmetic, functions, activations, comparisons, casts and quantization."""
