"""Every module that draws; importing it registers them."""

from . import cutting, elementwise, matrices, moving, reductions, sequences, sharing, stablehlo, states, windows

__all__ = [
    "cutting",
    "elementwise",
    "matrices",
    "moving",
    "reductions",
    "sequences",
    "sharing",
    "stablehlo",
    "states",
    "windows",
]
