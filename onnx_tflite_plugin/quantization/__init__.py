"""Storage of quantized tensors, clamps of fused activations, and models without quantization."""
