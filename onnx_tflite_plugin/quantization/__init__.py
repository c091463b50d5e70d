"""Storage of quantized tensors, and models without quantization."""
