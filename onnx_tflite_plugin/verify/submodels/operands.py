"""Random operands of submodels: in or beyond the observed range, or special."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isqrt

import numpy as np

from onnx_tflite_plugin.source.model import Array, Operator, Subgraph, Tensor
from onnx_tflite_plugin.verify.inputs.random_inputs import compared_constants, is_arithmetic
from onnx_tflite_plugin.verify.runtimes.dequantized import is_quantized

KINDS = ("uniform", "special", "wide")
"""Kinds of random operands.

"uniform": in the observed range. "special": half are special values, a quarter repeat the previous element. "wide": up
to 8 times the range.
"""

_SPECIAL_VALUES = (-1.5, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0)
_SPECIAL_FRACTION = 0.5  # of special values
_REPEATED_FRACTION = 0.25  # of elements equal to the previous element
_MIN_OBSERVED = 16  # minimum number of elements to conclude that a tensor, such as a RELU's result, is never negative
_PEAK_FRACTION = 0.1  # of elements above the minimum
_RANGE_FACTOR = 8.0  # multiple of the observed range
_QUANTIZED = ("int8", "uint8", "int16")


def random_operands(
    kind: str, graph: Subgraph, tensors: Sequence[Tensor], observed: Mapping[int, Array], loop_bounds: Collection[int]
) -> dict[int, Array]:
    """Return tensor index -> random array of the observed shape.

    Integer tensors that may be indices keep their observed values. ``kind``: one of KINDS. ``observed``: tensor index
    -> array in a run. ``loop_bounds``: indices of loop bounds. They are 0 in special operands, so that loops run zero times.
    """
    generator = np.random.default_rng(KINDS.index(kind))
    readers: dict[int, list[Operator]] = {}
    for operator in graph.operators:
        for operand in operator.inputs:
            if operand is not None:
                readers.setdefault(operand.index, []).append(operator)
    operands = {}
    for tensor in tensors:
        array = observed[tensor.index]
        if kind == "special" and tensor.index in loop_bounds:
            values = np.zeros_like(array)
        elif array.dtype == np.bool_:
            values = ~array
        elif is_quantized(tensor) and tensor.dtype in _QUANTIZED and array.size:
            values = _random_integers(generator, kind, tensor, array)
        elif array.dtype == np.float32 and array.size:
            values = _random_floats(generator, kind, array, compared_constants(readers.get(tensor.index, ()), tensor))
        elif kind == "wide" and array.dtype in (np.int32, np.int64) and is_arithmetic(graph, tensor):
            bound = isqrt(np.iinfo(array.dtype).max)  # so that a product of two does not overflow
            values = generator.integers(-bound, bound, array.shape)
        else:
            values = array
        operands[tensor.index] = np.asarray(values, array.dtype).reshape(array.shape)
    return operands


def _random_integers(generator: np.random.Generator, kind: str, tensor: Tensor, array: Array) -> Array:
    limits = np.iinfo(array.dtype)
    bounds = (limits.min, limits.max)
    low, high = (int(array.min()), int(array.max())) if array.dtype.itemsize > 1 and kind == "uniform" else bounds
    values = np.asarray(generator.integers(low, high, array.shape, array.dtype, endpoint=True))
    if kind == "wide":  # a few large values among small ones, as upstream of a softmax
        return np.where(generator.random(array.shape) < _PEAK_FRACTION, values, limits.min)
    if kind == "uniform":
        return values
    zero_point = tensor.quantization.zero_point[0]  # type: ignore[union-attr]
    special = generator.choice(np.array([*bounds, zero_point], array.dtype), array.shape)
    return np.where(generator.random(array.shape) < _SPECIAL_FRACTION, special, array)


def _random_floats(generator: np.random.Generator, kind: str, array: Array, thresholds: Array) -> Array:
    low, high = float(array.min()), float(array.max())
    finite_values = array
    if not np.isfinite((low, high)).all():
        finite_values = array[np.isfinite(array)]
        low, high = (float(finite_values.min()), float(finite_values.max())) if finite_values.size else (0.0, 1.0)
    if low >= 0 and high > 1 and not np.any(np.mod(finite_values, 1)):  # numbers that may be indices
        return array if kind == "wide" else np.rint(generator.uniform(low, high, array.shape))
    if kind == "special":
        lowest = 0.0 if 0 <= low < high and finite_values.size >= _MIN_OBSERVED else -np.inf
        special_values = np.array([*(value for value in _SPECIAL_VALUES if value >= lowest), low, high], np.float32)
        if thresholds.size:
            repeated_thresholds = np.resize(thresholds, max(thresholds.size, len(special_values)))
            special_values = np.concatenate([special_values, repeated_thresholds])
        return _with_special(generator, array, special_values)
    if kind == "wide":
        bound = _RANGE_FACTOR * min(max(abs(low), abs(high), 2.0**-10), 2.0**60)
        low, high = -bound if low < 0 else 0.0, bound
    elif low >= high:
        high = low + 1
    values = generator.random(array.shape, np.float32)
    values *= np.float32(high - low)
    values += np.float32(low)
    return _with_extremes(generator, values, low, high)


def _with_special(generator: np.random.Generator, array: Array, special_values: Array) -> Array:
    """Return the array with half of the elements replaced by special values.

    Another quarter of the elements repeats the previous element. Every special value occurs if there is room. All
    operands of one shape have special values at the same positions, so that special values are combined.
    """
    selection = np.random.default_rng(0).random(array.size, np.float32)
    previous_elements = np.roll(array.reshape(-1), 1)
    flat_values = np.where(selection < _SPECIAL_FRACTION + _REPEATED_FRACTION, previous_elements, array.reshape(-1))
    positions = np.flatnonzero(selection < _SPECIAL_FRACTION)
    replacements = generator.choice(special_values, positions.size)
    replacements[: len(special_values)] = generator.permutation(special_values)[: positions.size]
    flat_values[positions] = replacements
    return flat_values.reshape(array.shape)


def _with_extremes(generator: np.random.Generator, values: Array, low: float, high: float) -> Array:
    """Return the values with ``low`` and ``high`` at random positions.

    A single element becomes ``high``.
    """
    flat_values = np.asarray(values).reshape(-1)
    positions = generator.choice(flat_values.size, min(2, flat_values.size), replace=False)
    flat_values[positions[-1]] = low
    flat_values[positions[0]] = high
    return flat_values


def rounded_operands(tensors: Sequence[Tensor], operands: Mapping[int, Array]) -> dict[int, Array]:
    """Return the operands with float32 values rounded as by DynamicQuantizeLinear."""
    return {**operands, **{t.index: _round(operands[t.index]) for t in tensors if t.dtype == "float32"}}


def perturbed_operands(tensors: Sequence[Tensor], operands: Mapping[int, Array]) -> dict[int, Array]:
    """Return the operands; each float32 changes by one unit in its last place."""
    generator = np.random.default_rng(0)

    def perturb(array: Array) -> Array:
        units = generator.integers(0, 2, array.shape, np.int8).astype(np.float32) * 2 - 1
        with np.errstate(over="ignore", invalid="ignore"):  # the spacing of the largest float32 is infinite
            steps = np.spacing(np.abs(array))
        return np.asarray(np.where(np.isfinite(steps), array + units * steps, array), np.float32)

    return {**operands, **{t.index: perturb(operands[t.index]) for t in tensors if t.dtype == "float32"}}


def _round(array: Array) -> Array:
    low, high = min(float(array.min(initial=0)), 0.0), max(float(array.max(initial=0)), 0.0)
    if low == high or not np.isfinite((low, high)).all():
        return array
    scale = np.float32((high - low) / 255)
    zero_point = np.clip(np.rint(-low / scale), 0, 255)
    return np.asarray((np.clip(np.rint(array / scale) + zero_point, 0, 255) - zero_point) * scale, np.float32)
