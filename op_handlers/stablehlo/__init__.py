"""StableHLO operators for which LiteRT has kernels.

The package also contains older operators that share a kernel with them.
"""
