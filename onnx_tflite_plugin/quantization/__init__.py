"""Planning the storage of quantized tensors, and what fused activations mean in integers."""
