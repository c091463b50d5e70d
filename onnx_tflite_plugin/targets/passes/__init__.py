"""Rewrites of a finished ONNX model that make a runtime faster; a target lists those that pay on it, in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class Pass:
    """``run`` changes a model in place and returns in how many places.

    ``exact``: the same real numbers, but for the last digits of float32; integers that are made of them stay as they are.
    """

    name: str
    summary: str
    exact: bool
    run: Callable[[ir.Model], int]


def _of(module: str) -> Callable[[ir.Model], int]:
    """The module's ``run``, imported when it is called: targets are read before anything needs the graph layer."""

    def run(model: ir.Model) -> int:
        return int(import_module(f"{__name__}.{module}").run(model))

    return run


TRANSPOSED_AS_CONVOLUTION = Pass(
    "transposed_as_convolution",
    "a quantized transposed convolution becomes a convolution that makes several places at once",
    exact=True,
    run=_of("transposed_as_convolution"),
)
BATCH_NORM_AS_CONVOLUTION = Pass(
    "batch_norm_as_convolution",
    "a quantized scale and offset per channel become one depthwise convolution, which rounds once",
    exact=False,
    run=_of("batch_norm_as_convolution"),
)
PAD_CHANNELS = Pass(
    "pad_channels",
    "numbers of channels that kernels have no fast path for are rounded up, with weights of zero",
    exact=True,
    run=_of("pad_channels"),
)
FOLD_WIDTH = Pass(
    "fold_width",
    "columns of an image with few channels become channels of its first convolution",
    exact=True,
    run=_of("fold_width"),
)
