"""StableHLO operators that LiteRT has kernels for, and the older ones that share a kernel with them."""
