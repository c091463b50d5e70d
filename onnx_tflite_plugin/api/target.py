"""Traits of a target, the runtime for which a model is converted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onnx_tflite_plugin.api.dtypes import check_dtypes
from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.checked import MEANING, Checked
from onnx_tflite_plugin.renamed import TARGET, TARGET_METHODS, rename_fields

_OPSETS = "the lowest, default and highest opset, such as (13, 17, 21)"
INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"})


class Priced(Protocol):
    """Declaration of the axes along which an operator works.

    ``api.layouts.AxisPrice`` implements it.
    """

    @property
    def price_key(self) -> str: ...
    @property
    def price(self) -> Price | None: ...


@rename_fields(TARGET, TARGET_METHODS)
@dataclass(frozen=True)
class Target(Checked):
    """Traits of one runtime. Handlers depend on traits, never on the target's name.

    A pack registers a target in the entry point group ``onnx_tflite_plugin.targets``, usually
    ``dataclasses.replace(builtin_target("generic"), name="mine", ...)``. Raises TypeError for a trait of the wrong type,
    ValueError for opsets that are not in ascending order.
    """

    name: str
    """Name of the target for ``--target``, equal to the name of its entry point."""
    opsets: tuple[int, int, int] = field(metadata={MEANING: _OPSETS})
    """Lowest, default and highest opset."""
    storage: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """dtype of activations in the file → (dtype in the model, number that is added to the quantized values)."""
    weights: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Like ``storage``, for constant weights."""
    no_integer_kernel: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """ONNX operator → integer dtypes without a kernel in the runtime; the key ``"*"`` applies to every operator."""
    dequantized_operators: frozenset[str] = frozenset()
    """ONNX operators to write between DequantizeLinear and QuantizeLinear, despite an integer kernel, if results are equal."""
    wider_dtypes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """ONNX operator → dtype without a kernel → wider dtype to compute in."""
    clips_integers: bool = False
    """True: a fused activation may be a Clip of quantized values, after QuantizeLinear."""
    fast_operators: frozenset[str] = frozenset()
    """ONNX operators to prefer to a more general operator, because they are faster or the runtime fuses them."""
    channel_blocked_operators: frozenset[str] = frozenset()
    """ONNX operators that have kernels for floats in channel-blocked layout, or that preserve this layout."""
    channels_last: frozenset[str] = frozenset()
    """dtypes whose convolutions the runtime itself transposes to channels last. States of these dtypes keep that layout."""
    keeps_unit_axes: frozenset[str] = frozenset()
    """dtypes for which 2D convolutions and pools of one-row images are faster than 1D ones."""
    quantizes: frozenset[str] = INTEGERS
    """dtypes that QuantizeLinear and DequantizeLinear support."""
    symmetric: bool = False
    """True: QuantizeLinear and DequantizeLinear require zero points of 0."""
    float_biases: bool = False
    """True: DequantizeLinear does not support int32, so biases are stored as floats."""
    cast_mul_dtypes: frozenset[str] = frozenset()
    """dtypes for which Cast and Mul are faster than DequantizeLinear."""
    cast_mul_weights: bool = True
    """True: constant weights of float activations are dequantized by Cast and Mul, which run once, at load time."""
    fused_blocks: tuple[int, int] | None = None
    """Minimum and maximum block size (powers of two) of weights that a product accepts as stored; any size if None."""
    int4_block: int = 0
    """Maximum block size for products with 4-bit and 2-bit weights that have a scale per row.

    The scale is repeated per block, because the runtime fuses products with a scale per block. 0 if it does not.
    """
    packed_int4_lookups: bool = False
    """True: rows of large 4-bit tables are looked up as bytes and then unpacked."""
    stores_tables: bool = False
    """True: the file stores the entries of lookup tables. False: it stores differences, which are added up at load time."""
    fast_dynamic_quantization: bool = False
    """True: dynamic quantization makes products faster."""
    rounds_activations: bool = False
    """True: round activations that are multiplied by integer weights or by other activations, as LiteRT does, if it is cheap."""
    rotates_embeddings: bool = False
    """True: a rotary embedding is one operator of the runtime's domain."""
    fuses_cached_attention: bool = False
    """True: attention over a cache is one operator that reads only the used slots.

    The operator is from ``com.microsoft`` if the runtime has this domain, otherwise Attention of opset 24.
    """
    last_axes_only: frozenset[str] = frozenset()
    """ONNX operators that work on the last axes only."""
    no_int8_moves: frozenset[str] = frozenset()
    """ONNX operators that ONNX Runtime rejects for int8 between QuantizeLinear and DequantizeLinear."""
    no_int8_moves_opset: int = 99
    """Lowest opset in which ONNX Runtime rejects the operators of ``no_int8_moves``."""
    wrapping_int8_operators: frozenset[str] = frozenset()
    """ONNX operators whose int8 kernel overflows by wrapping around, in some versions of the runtime."""
    missing_operators: Mapping[str, str] = field(default_factory=dict)
    """ONNX operator that the runtime lacks → remedy for the user, or ""."""
    accelerated_operators: frozenset[str] = frozenset()
    """ONNX operators that the accelerator has; the conversion warns about others, which run on the CPU. Empty: all."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """Cost of operators that work along an axis; keys as in ``AxisPrice.price_key``."""
    passes: Sequence[str] = ()
    """Rewrite rules and passes of the finished model, in order.

    A rule is given by name. ``module:attribute`` is a pass of the pack: an ``onnx_ir.passes.InPlacePass``, or its class.
    """
    defaults: Mapping[str, str | int] = field(default_factory=dict)
    """Option → value to use instead of the option's general default."""
    may_saturate: bool = False
    """True: on some processors the runtime adds two uint8 x int8 products in 16 bits, which may overflow."""
    quantizes_weights: bool = False
    """True: the runtime quantizes float weights of operators between DequantizeLinear and QuantizeLinear."""
    opens_in_onnxruntime: bool = False
    """True: the runtime is ONNX Runtime; a conversion checks that it opens the model."""
    domains: frozenset[str] = frozenset()
    """Domains of ONNX Runtime's own operators that the runtime has, such as ``com.microsoft``. Nodes of other domains are refused."""
    quantizes_moves: bool = False
    """True: the runtime has no integer operators, so QuantizeLinear and DequantizeLinear surround every operator.

    A QuantizeLinear and a DequantizeLinear also follow each Transpose or Reshape of dequantized values, and precede each
    fused activation.
    """
    needs_static_shapes: bool = False
    """True: the accelerator does not support dynamic dimensions; the conversion warns about inputs that have them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_dtypes()
        lowest, default, highest = self.opsets
        if not 7 <= lowest <= default <= highest:
            raise ValueError(f"Target(opsets={self.opsets}) must be {_OPSETS}, in ascending order from 7 on")

    def _check_dtypes(self) -> None:
        """Raise TypeError for a trait that names something other than a dtype."""
        for name, table in (("storage", self.storage), ("weights", self.weights)):
            check_dtypes(f"Target({name}=...)", (*table, *(dtype for dtype, _ in table.values())))
        for name, dtypes in (("channels_last", self.channels_last), ("keeps_unit_axes", self.keeps_unit_axes)):
            check_dtypes(f"Target({name}=...)", dtypes)
        for name, dtypes in (("quantizes", self.quantizes), ("cast_mul_dtypes", self.cast_mul_dtypes)):
            check_dtypes(f"Target({name}=...)", dtypes)
        for name, dtypes in self.no_integer_kernel.items():
            check_dtypes(f"Target(no_integer_kernel={{{name!r}: ...}})", dtypes)
        for name, wider in self.wider_dtypes.items():
            check_dtypes(f"Target(wider_dtypes={{{name!r}: ...}})", (*wider, *wider.values()))

    def price(self, along: Priced, last: bool, nbytes: int) -> int:
        """Return the extra cost of an operator that works along an axis, in bytes.

        ``along``: the handler's declaration of the axis. ``last``: True if the axis is the last in memory. ``nbytes``: size of
        the operand, by which the price is multiplied.
        """
        price = self.prices.get(along.price_key) or along.price or Price()
        return int((price.last if last else price.inner) * nbytes)

    def fused_block_size(self, size: int) -> int:
        """Return the block size for weights with a scale per ``size`` elements.

        The result is 0 if the weights should be unpacked.
        """
        if self.fused_blocks is None:
            return size
        minimum, maximum = self.fused_blocks
        divisor = min(size & -size, maximum)
        return divisor if divisor >= minimum else 0

    def has_kernel(self, onnx: str, dtype: str) -> bool:
        """True if the runtime runs this operator on quantized values.

        The entry ``"*"`` of ``no_integer_kernel`` applies to every operator.
        """
        unsupported = self.no_integer_kernel.get(onnx, frozenset()) | self.no_integer_kernel.get("*", frozenset())
        return dtype not in unsupported

    def wider_dtype(self, onnx: str, dtype: str) -> str | None:
        """Return the dtype to compute in; None if the operator has a kernel for ``dtype``."""
        return self.wider_dtypes.get(onnx, {}).get(dtype)

    @property
    def moves_integers(self) -> bool:
        """True if the runtime runs operators such as Transpose and Reshape on int8 values."""
        return self.has_kernel("", "int8")

    def unsupported_reason(self, dtype: str, zero_points: Iterable[int]) -> str:
        """Return why the target does not support a QuantizeLinear; empty if it does.

        ``dtype`` and ``zero_points`` are those of the QuantizeLinear.
        """
        if dtype not in self.quantizes:
            dtypes = ", ".join(sorted(self.quantizes))
            return f"target {self.name} quantizes to {dtypes}, not to {dtype}"
        if self.symmetric and any(zero_points):
            return f"target {self.name} supports only zero points of 0"
        return ""
