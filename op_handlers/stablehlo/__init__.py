"""StableHLO operators for which LiteRT has kernels, and older operators that share a kernel with them."""
