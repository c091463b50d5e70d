"""Element by element or along an axis: arithmetic, functions, activations, comparisons, reductions, casts, quantization."""
