"""The traits that describe a target: the runtime for which a model is converted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.checked import Checked

INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"})


class Priced(Protocol):
    """An operator that says along which axes it runs; ``api.declarations.Along`` is one."""

    @property
    def onnx(self) -> str: ...
    @property
    def price(self) -> Price | None: ...


@dataclass(frozen=True)
class Target(Checked):
    """One runtime's traits. Handlers ask for a trait, never for the name.

    A pack brings one under the entry point group ``onnx_tflite_plugin.targets``, usually
    ``dataclasses.replace(builtin_target("generic"), name="mine", ...)``. Raises TypeError for a trait of another type,
    ValueError for opsets that are not in ascending order.

    ``opsets``: lowest, default, highest. ``storage``: file dtype → dtype activations are kept in, with the number
    added to stored values. ``weights``: the same for constant weights. ``no_integer_kernel``: ONNX operator → integer
    dtypes the runtime lacks a kernel for. ``widens``: ONNX operator → dtype without a kernel → the wider one that it is
    computed in. ``clips_integers``: a fused activation may follow Q as an integer Clip.
    ``prefers``: ONNX operators that are faster, or fuse, where a more general one would do.
    ``blocks_channels``: ONNX operators that work on floats with the channels in blocks, or keep such an order.
    ``channels_last``: dtypes whose convolutions it transposes to channels last by itself, so that states are best left there.
    ``keeps_unit_axes``: dtypes in which convolutions and pools of images of one row are slower as those of sequences.

    ``quantizes``: the dtypes QuantizeLinear and DequantizeLinear take. ``symmetric``: only with zero points of 0.
    ``float_biases``: DequantizeLinear takes no int32. ``multiplies``: dtypes for which Cast and Mul are faster than
    DequantizeLinear. ``multiplies_weights``: the same for constants under float activations, where both are computed
    as the model is loaded. ``multiplies_dynamically``: dynamic quantization makes products faster.
    ``rounds_activations``: those on integer weights, and products of two, are rounded as LiteRT's kernels do, where that
    costs little. ``rotates_embeddings``: rotary embeddings are one operator of its own domain.
    ``fused_blocks``: the smallest and largest power of two of elements with one scale that a product takes as stored;
    any where there is none. ``last_axes_only``: ONNX operators that work on the last axes, whatever they are told.
    ``no_int8_from``: the opset from which ONNX Runtime does not load int8 that ``no_int8_moves`` move between Q and DQ.
    ``wraps_int8``: ONNX operators whose int8 kernel between Q and DQ wraps around beyond the largest number, in some versions.
    ``lacks``: ONNX operators the runtime does not have, with what to do about it.
    ``passes``: names of rewrite rules of the finished model, in their order; ``module:attribute`` names a pass of the pack's own,
    an ``onnx_ir.passes.InPlacePass`` or a class of it.
    ``saturates``: on some processors the runtime adds two uint8 x int8 products in 16 bits.
    ``quantizes_weights``: the runtime quantizes float weights that it finds between Q and DQ.
    ``opens``: the runtime is ONNX Runtime itself, which is asked whether it opens what was converted.
    """

    name: str
    opsets: tuple[int, int, int]
    storage: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    weights: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    no_integer_kernel: Mapping[str, frozenset[str]] = field(default_factory=dict)
    widens: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    clips_integers: bool = False
    prefers: frozenset[str] = frozenset()
    blocks_channels: frozenset[str] = frozenset()
    channels_last: frozenset[str] = frozenset()
    keeps_unit_axes: frozenset[str] = frozenset()
    quantizes: frozenset[str] = INTEGERS
    symmetric: bool = False
    float_biases: bool = False
    multiplies: frozenset[str] = frozenset()
    multiplies_weights: bool = True
    fused_blocks: tuple[int, int] | None = None
    multiplies_dynamically: bool = False
    rounds_activations: bool = False
    rotates_embeddings: bool = False
    last_axes_only: frozenset[str] = frozenset()
    no_int8_moves: frozenset[str] = frozenset()
    no_int8_from: int = 99
    wraps_int8: frozenset[str] = frozenset()
    lacks: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    passes: Sequence[str] = ()
    saturates: bool = False
    quantizes_weights: bool = False
    opens: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        lowest, default, highest = self.opsets
        if not 7 <= lowest <= default <= highest:
            raise ValueError(f"Target(opsets={self.opsets}) must be the lowest, default and highest opset, 7 at least")

    def price(self, along: Priced, last: bool, nbytes: int) -> int:
        """Byte equivalents that an operator costs more for working along this axis."""
        price = self.prices.get(along.onnx) or along.price or Price()
        return int((price.last if last else price.inner) * nbytes)

    def block(self, size: int) -> int:
        """The size in which weights with a scale per ``size`` elements are kept; 0 where they are better unpacked."""
        if self.fused_blocks is None:
            return size
        least, most = self.fused_blocks
        divisor = min(size & -size, most)
        return divisor if divisor >= least else 0

    def has_kernel(self, onnx: str, dtype: str) -> bool:
        """Whether the runtime runs this operator on stored integers; under ``"*"``, what it runs none on."""
        without = self.no_integer_kernel.get(onnx, frozenset()) | self.no_integer_kernel.get("*", frozenset())
        return dtype not in without

    def wider(self, onnx: str, dtype: str) -> str | None:
        """The dtype in which an operator of ``dtype`` is computed; ``None`` where the runtime has a kernel of it."""
        return self.widens.get(onnx, {}).get(dtype)

    @property
    def moves_integers(self) -> bool:
        """Whether anything at all runs on stored 8 bit integers, a Transpose or a Reshape for one."""
        return self.has_kernel("", "int8")

    def refusal(self, dtype: str, zero_points: Iterable[int]) -> str:
        """The rule that Q and DQ of such integers would break; empty where there is none."""
        if dtype not in self.quantizes:
            dtypes = ", ".join(sorted(self.quantizes))
            return f"target {self.name} quantizes to {dtypes}, not to {dtype}"
        if self.symmetric and any(zero_points):
            return f"target {self.name} takes zero points of 0 only"
        return ""
