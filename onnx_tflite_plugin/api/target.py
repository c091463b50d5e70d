"""Traits of a target, the runtime for which a model is converted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.checked import Checked

INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"})


class Priced(Protocol):
    """An operator with the axes it works along, such as ``api.declarations.AxisPrice``."""

    @property
    def onnx(self) -> str: ...
    @property
    def price(self) -> Price | None: ...


@dataclass(frozen=True)
class Target(Checked):
    """Traits of one runtime. Handlers depend on traits, never on the name.

    A pack registers one in the entry point group ``onnx_tflite_plugin.targets``, usually
    ``dataclasses.replace(builtin_target("generic"), name="mine", ...)``. Raises TypeError for a trait of the wrong type,
    ValueError for opsets that are not in ascending order.

    ``opsets``: lowest, default, highest. ``storage``: file dtype → dtype of activations, with the number added to quantized
    values. ``weights``: the same for constant weights. ``no_integer_kernel``: ONNX operator → integer dtypes without a
    kernel in the runtime. ``dequantizes``: ONNX operators that are written between DQ and Q, although the runtime has
    an integer kernel, wherever the result is the same. ``widens``: ONNX operator → dtype without a kernel → the wider dtype to
    compute in.
    ``clips_integers``: a fused activation may be an integer Clip after QuantizeLinear.
    ``prefers``: ONNX operators that are faster, or fuse, compared with a more general one.
    ``blocks_channels``: ONNX operators with kernels for channel-blocked floats, or that preserve that layout.
    ``channels_last``: dtypes whose convolutions the runtime transposes to channels last by itself; states best stay there.
    ``keeps_unit_axes``: dtypes for which 2D convolutions and pools of one-row images are faster than 1D ones.

    ``quantizes``: dtypes of QuantizeLinear and DequantizeLinear. ``symmetric``: only zero points of 0.
    ``float_biases``: DequantizeLinear does not accept int32. ``multiplies``: dtypes for which Cast and Mul are faster than
    DequantizeLinear. ``multiplies_weights``: the same for constants with float activations, where both are computed
    at load time. ``multiplies_dynamically``: dynamic quantization makes products faster.
    ``rounds_activations``: activations of integer weights, and products of two activations, are rounded as in LiteRT's
    kernels if that is cheap. ``rotates_embeddings``: rotary embeddings are one operator of the runtime's domain.
    ``attends_causally``: attention over a cache is one operator that reads only the used slots, from ``com.microsoft``
    if the runtime has this domain, otherwise Attention of opset 24. ``fused_blocks``: minimum and maximum block size
    (powers of two) that a product accepts as stored; any if None. ``int4_block``: weights of 4 and 2 bits with a scale
    per row are multiplied in int4 blocks of at most this size, with repeated scales, because the runtime fuses such
    products; 0 if it does not. ``packs_tables``: rows of large tables of 4 bits are looked up as bytes and unpacked.
    ``last_axes_only``: ONNX operators that work on the last axes only. ``no_int8_from``: the opset from which ONNX
    Runtime rejects int8 for the operators in ``no_int8_moves`` between Q and DQ. ``wraps_int8``: ONNX operators whose
    int8 kernel between Q and DQ overflows by wrapping around, in some versions. ``lacks``: ONNX operators missing in
    the runtime, with a remedy. ``domains``: domains of ONNX Runtime's own operators, such as ``com.microsoft``, that
    the runtime has; nodes of the others are refused. ``quantizes_moves``: Transpose and Reshape of dequantized values
    are followed by a Q and a DQ, and fused activations are preceded by both; for targets without integer operators.
    ``needs_static_shapes``: warn of inputs with dynamic dimensions, because the accelerator does not support them.
    ``passes``: names of rewrite rules of the finished model, in order; ``module:attribute`` names a pass of the pack,
    an ``onnx_ir.passes.InPlacePass`` or a subclass. ``defaults``: values of options that this target needs instead of
    the general defaults, by name. ``saturates``: on some processors the runtime adds two uint8 x int8 products in 16
    bits. ``quantizes_weights``: the runtime quantizes float weights between Q and DQ. ``opens``: the runtime is ONNX
    Runtime, which is used to check that it opens the converted model.
    """

    name: str
    opsets: tuple[int, int, int]
    storage: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    weights: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    no_integer_kernel: Mapping[str, frozenset[str]] = field(default_factory=dict)
    dequantizes: frozenset[str] = frozenset()
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
    int4_block: int = 0
    packs_tables: bool = False
    multiplies_dynamically: bool = False
    rounds_activations: bool = False
    rotates_embeddings: bool = False
    attends_causally: bool = False
    last_axes_only: frozenset[str] = frozenset()
    no_int8_moves: frozenset[str] = frozenset()
    no_int8_from: int = 99
    wraps_int8: frozenset[str] = frozenset()
    lacks: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    passes: Sequence[str] = ()
    defaults: Mapping[str, str | int] = field(default_factory=dict)
    saturates: bool = False
    quantizes_weights: bool = False
    opens: bool = False
    domains: frozenset[str] = frozenset()
    quantizes_moves: bool = False
    needs_static_shapes: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        lowest, default, highest = self.opsets
        if not 7 <= lowest <= default <= highest:
            raise ValueError(f"Target(opsets={self.opsets}) must be the lowest, default and highest opset, 7 at least")

    def price(self, along: Priced, last: bool, nbytes: int) -> int:
        """Return the extra cost of an operator that works along this axis, in byte equivalents."""
        price = self.prices.get(along.onnx) or along.price or Price()
        return int((price.last if last else price.inner) * nbytes)

    def block(self, size: int) -> int:
        """Return the block size for weights with a scale per ``size`` elements; 0 if they should be unpacked."""
        if self.fused_blocks is None:
            return size
        least, most = self.fused_blocks
        divisor = min(size & -size, most)
        return divisor if divisor >= least else 0

    def has_kernel(self, onnx: str, dtype: str) -> bool:
        """True if the runtime runs this operator on quantized values; the entry ``"*"`` applies to every operator."""
        unsupported = self.no_integer_kernel.get(onnx, frozenset()) | self.no_integer_kernel.get("*", frozenset())
        return dtype not in unsupported

    def wider(self, onnx: str, dtype: str) -> str | None:
        """Return the dtype in which an operator of ``dtype`` is computed; ``None`` if the runtime has a kernel for it."""
        return self.widens.get(onnx, {}).get(dtype)

    @property
    def moves_integers(self) -> bool:
        """True if the runtime runs any operator on quantized 8-bit values, such as Transpose or Reshape."""
        return self.has_kernel("", "int8")

    def refusal(self, dtype: str, zero_points: Iterable[int]) -> str:
        """Return the rule that QuantizeLinear with this dtype and zero points violates; empty if none."""
        if dtype not in self.quantizes:
            dtypes = ", ".join(sorted(self.quantizes))
            return f"target {self.name} quantizes to {dtypes}, not to {dtype}"
        if self.symmetric and any(zero_points):
            return f"target {self.name} supports only zero points of 0"
        return ""
