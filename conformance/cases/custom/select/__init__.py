"""Select operators: TensorFlow's own, held against what its kernels give."""
