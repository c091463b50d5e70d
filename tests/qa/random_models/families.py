"""Imports all modules that register random operators."""

from tests.qa.random_models import (
    audio,
    cutting,
    elementwise,
    matrices,
    moving,
    network_blocks,
    network_choices,
    network_moves,
    network_steps,
    reductions,
    sequences,
    sharing,
    stablehlo,
    states,
    windows,
)

__all__ = [
    "audio",
    "cutting",
    "elementwise",
    "matrices",
    "moving",
    "network_blocks",
    "network_choices",
    "network_moves",
    "network_steps",
    "reductions",
    "sequences",
    "sharing",
    "stablehlo",
    "states",
    "windows",
]
