"""Random operands of submodels: values in the observed range, special values, and values far beyond the range."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isqrt

import numpy as np

from onnx_tflite_plugin.source.model import Array, Operator, Subgraph, Tensor
from onnx_tflite_plugin.verify.inputs.random_inputs import compared_constants, is_arithmetic
from onnx_tflite_plugin.verify.runtimes.dequantized import is_quantized

KINDS = ("uniform", "special", "wide")
"""Kinds of operands: uniform in the observed range; half special values, a quarter repeated elements; up to 8 times the range."""

_SPECIAL = (-1.5, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0)
_SHARE = 0.5  # fraction of special values
_EQUAL = 0.25  # fraction of elements equal to the previous element
_PEAKS = 0.1  # fraction of elements above the minimum
_BEYOND = 8.0  # times the observed maximum
_QUANTIZED = ("int8", "uint8", "int16")


def random_operands(
    kind: str, graph: Subgraph, tensors: Sequence[Tensor], observed: Mapping[int, Array], counters: Collection[int]
) -> dict[int, Array]:
    """Return an array for each tensor, of the observed shape; integers that may be indices keep their observed values.

    ``counters``: scalars that loops count to; they are 0 among the special values, so that a loop may run zero times.
    """
    generator = np.random.default_rng(KINDS.index(kind))
    readers: dict[int, list[Operator]] = {}
    for operator in graph.operators:
        for slot in operator.inputs:
            if slot is not None:
                readers.setdefault(slot.index, []).append(operator)
    operands = {}
    for tensor in tensors:
        array = observed[tensor.index]
        if kind == "special" and tensor.index in counters:
            values = np.zeros_like(array)
        elif array.dtype == np.bool_:
            values = ~array
        elif is_quantized(tensor) and tensor.dtype in _QUANTIZED and array.size:
            values = _integers(generator, kind, tensor, array)
        elif array.dtype == np.float32 and array.size:
            values = _floats(generator, kind, array, compared_constants(readers.get(tensor.index, ()), tensor))
        elif kind == "wide" and array.dtype in (np.int32, np.int64) and is_arithmetic(graph, tensor):
            most = isqrt(np.iinfo(array.dtype).max)  # so that a product of two does not overflow
            values = generator.integers(-most, most, array.shape)
        else:
            values = array
        operands[tensor.index] = np.asarray(values, array.dtype).reshape(array.shape)
    return operands


def _integers(generator: np.random.Generator, kind: str, tensor: Tensor, array: Array) -> Array:
    limits = np.iinfo(array.dtype)
    ends = (limits.min, limits.max)
    low, high = (int(array.min()), int(array.max())) if array.dtype.itemsize > 1 and kind == "uniform" else ends
    values = np.asarray(generator.integers(low, high, array.shape, array.dtype, endpoint=True))
    if kind == "wide":  # a few large values beside small ones, as upstream of a softmax
        return np.where(generator.random(array.shape) < _PEAKS, values, limits.min)
    if kind == "uniform":
        return values
    point = tensor.quantization.zero_point[0]  # type: ignore[union-attr]
    chosen = generator.choice(np.array([*ends, point], array.dtype), array.shape)
    return np.where(generator.random(array.shape) < _SHARE, chosen, array)


def _floats(generator: np.random.Generator, kind: str, array: Array, compared: Array) -> Array:
    low, high = float(array.min()), float(array.max())
    finite = array
    if not np.isfinite((low, high)).all():
        finite = array[np.isfinite(array)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low >= 0 and high > 1 and not np.any(np.mod(finite, 1)):  # numbers that may be indices
        return array if kind == "wide" else np.rint(generator.uniform(low, high, array.shape))
    if kind == "special":
        special = np.array([*_SPECIAL, low, high], np.float32)
        if compared.size:
            special = np.concatenate([special, np.resize(compared, max(compared.size, len(special)))])
        return _with_special(generator, array, special)
    if kind == "wide":
        most = _BEYOND * min(max(abs(low), abs(high), 2.0**-10), 2.0**60)
        low, high = -most if low < 0 else 0.0, most
    elif low >= high:
        high = low + 1
    values = generator.random(array.shape, np.float32)
    values *= np.float32(high - low)
    values += np.float32(low)
    return _with_ends(generator, values, low, high)


def _with_special(generator: np.random.Generator, array: Array, values: Array) -> Array:
    """Return the array with half of it special values, each once if there is room, and a quarter equal to the element before.

    These are the same elements in all operands of one shape, so that special values meet.
    """
    chosen = np.random.default_rng(0).random(array.size, np.float32)
    flat = np.where(chosen < _SHARE + _EQUAL, np.roll(array.reshape(-1), 1), array.reshape(-1))
    positions = np.flatnonzero(chosen < _SHARE)
    special = generator.choice(values, positions.size)
    special[: len(values)] = generator.permutation(values)[: positions.size]
    flat[positions] = special
    return flat.reshape(array.shape)


def _with_ends(generator: np.random.Generator, values: Array, low: float, high: float) -> Array:
    """Return the values with one element at each end of their range, at random places; a single one at the upper end."""
    flat = np.asarray(values).reshape(-1)
    places = generator.choice(flat.size, min(2, flat.size), replace=False)
    flat[places[-1]] = low
    flat[places[0]] = high
    return flat


def rounded_operands(tensors: Sequence[Tensor], operands: Mapping[int, Array]) -> dict[int, Array]:
    """Return the operands with floats rounded to 8 bits as ONNX's DynamicQuantizeLinear does."""
    return {**operands, **{t.index: _round(operands[t.index]) for t in tensors if t.dtype == "float32"}}


def perturbed_operands(tensors: Sequence[Tensor], operands: Mapping[int, Array]) -> dict[int, Array]:
    """Return the operands with each float32 changed by one unit in its last place, up or down."""
    generator = np.random.default_rng(0)

    def perturb(array: Array) -> Array:
        units = generator.integers(0, 2, array.shape, np.int8).astype(np.float32) * 2 - 1
        return np.asarray(array + units * np.spacing(np.abs(array)), np.float32)

    return {**operands, **{t.index: perturb(operands[t.index]) for t in tensors if t.dtype == "float32"}}


def _round(array: Array) -> Array:
    low, high = min(float(array.min(initial=0)), 0.0), max(float(array.max(initial=0)), 0.0)
    if low == high or not np.isfinite((low, high)).all():
        return array
    scale = np.float32((high - low) / 255)
    point = np.clip(np.rint(-low / scale), 0, 255)
    return np.asarray((np.clip(np.rint(array / scale) + point, 0, 255) - point) * scale, np.float32)
