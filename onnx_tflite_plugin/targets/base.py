"""The traits a target is described by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_tflite_plugin.api.declarations import Along


@dataclass(frozen=True)
class Price:
    """Extra byte equivalents per byte of the operand, where the axis worked along is the last, and where it is not."""

    last: float = 0.0
    inner: float = 0.0


@dataclass(frozen=True)
class Target:
    """One runtime's traits.

    ``opsets``: lowest, default, highest. ``storage``: file dtype → dtype activations are kept in, with the number
    added to stored values. ``weights``: the same for constant weights. ``no_integer_kernel``: ONNX operator → integer
    dtypes the runtime lacks a kernel for. ``clips_integers``: a fused activation may follow Q as an integer Clip.
    ``blocks_channels``: float convolutions work on channels in blocks, an order that they, Relu and Add of their results keep.
    """

    name: str
    opsets: tuple[int, int, int]
    storage: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    weights: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    no_integer_kernel: Mapping[str, frozenset[str]] = field(default_factory=dict)
    clips_integers: bool = False
    fuses_global_average_pool: bool = False
    blocks_channels: bool = False
    prices: Mapping[str, Price] = field(default_factory=dict)

    def price(self, along: Along, last: bool, nbytes: int) -> int:
        """Byte equivalents that an operator costs more for working along this axis."""
        price = self.prices.get(along.onnx, Price())
        return int((price.last if last else price.inner) * nbytes)

    def has_kernel(self, onnx: str, dtype: str) -> bool:
        """Whether the runtime runs this operator on stored integers."""
        return dtype not in self.no_integer_kernel.get(onnx, frozenset())
