"""Cases of select operators, compared with results of TensorFlow's kernels."""
