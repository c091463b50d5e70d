"""Storage and encodings of quantized values, and quantized tensors of operators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from onnx_tflite_plugin.api.behavior import Arithmetic
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.source.affine import affine, is_quantized
from onnx_tflite_plugin.source.model import BlockwiseQuantization, Quantization, Tensor


class Encoding(Enum):
    """Encoding of a tensor: quantized as planned, quantized as in the file, or float.

    A tensor that is not quantized is always ``STORED``.
    """

    STORED = "stored"  # quantized as in the storage plan
    FILE = "file"  # quantized as in the file
    FLOAT = "float"  # dequantized


_ENCODINGS = {
    Arithmetic.UNQUANTIZED: Encoding.STORED,
    Arithmetic.FLOAT: Encoding.FLOAT,
    Arithmetic.QUANTIZED: Encoding.STORED,
    Arithmetic.QUANTIZED_AS_IN_FILE: Encoding.FILE,
}


def encoding_of(arithmetic: Arithmetic) -> Encoding:
    """Return the encoding of an operator's quantized operands and results."""
    return _ENCODINGS[arithmetic]


class Storage(NamedTuple):
    """Storage of quantized values: dtype and parameters.

    ``shift``: the number added to the file's values. ``quantization``, ``blocks``: the parameters after the shift.
    """

    dtype: str
    shift: int = 0
    quantization: Quantization | None = None
    blocks: BlockwiseQuantization | None = None


class WeightConversion(Enum):
    """Conversion of a quantized constant to float."""

    FOLDED = "folded"  # at conversion
    MULTIPLIED = "multiplied"  # by Cast and Mul, which runtimes fold at load time
    DEQUANTIZED = "dequantized"  # by DequantizeLinear, at runtime or fused into the operator


def file_storage(tensor: Tensor) -> Storage:
    """Return the storage of the tensor in the file."""
    quantization = tensor.quantization if isinstance(tensor.quantization, Quantization) else None
    return Storage(tensor.dtype, 0, quantization, tensor.blocks)


def shift_storage(tensor: Tensor, dtype: str, shift: int) -> Storage:
    """Return the storage with ``shift`` added to values and zero points."""
    quantization = affine(tensor)
    assert quantization is not None
    shifted = replace(quantization, zero_point=tuple(z + shift for z in quantization.zero_point))
    return Storage(dtype, shift, shifted)


def data_slots(bound: Bound) -> list[int]:
    """Return the present slots that hold neither axis numbers nor per-axis entries."""
    excluded = {*bound.declared.axis_number_slots, *bound.declared.indexed_by_axis}
    slots = [*range(len(bound.op.inputs)), *(~k for k in range(len(bound.op.outputs)))]
    return [slot for slot in slots if slot not in excluded and bound.op.tensor(slot) is not None]


def quantized_tensors(bound: Bound, slots: Iterable[int] | None = None) -> list[Tensor]:
    """Return the quantized tensors in the slots; in all data slots by default."""
    data = data_slots(bound) if slots is None else slots
    return [t for slot in data if (t := bound.op.tensor(slot)) is not None and is_quantized(t)]


def behavior_tensors(bound: Bound) -> list[Tensor]:
    """Return the quantized tensors in data slots without an ``output_quantization``."""
    return quantized_tensors(
        bound, [slot for slot in data_slots(bound) if slot not in bound.declared.output_quantization]
    )
