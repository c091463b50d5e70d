"""Describe how results differ: by rounding, a factor, their positions and so on.

Each of these patterns has one likely cause. A wrong layout causes only wrong positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Quantization
from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.source.model import Array

_MIN_DISTINCT = 6
"""Heuristic: with fewer distinct expected values, a pattern may be a coincidence."""
_MIN_FACTOR_ERROR = 1e-3
"""Heuristic: a factor that is nearer to 1 may be due to rounding in float32."""
_FACTOR_STEPS = 1.5
"""Maximum error, in steps, of quantized values that count as a multiple of the expected values.

More than one step is allowed because both sides round, and the factor is estimated.
"""
_MAX_HALFWAY_FRACTION = 0.1
"""Heuristic: if fewer elements differ, the two sides round only halfway values differently."""
_FACTOR_TOLERANCE = 1e-4
"""Maximum error, relative to the range, of float results that count as offset or multiplied."""
_MIN_CLAMPED = 3
"""Heuristic: if fewer elements have the value of a bound, it may be an extreme value and not a clamp."""


class Difference(NamedTuple):
    """Description of a difference. ``is_layout``: True if only positions are wrong."""

    text: str
    is_layout: bool = False


def describe_difference(
    name: str, actual: Sequence[Array], expected: Sequence[Array], reference: str, zero_point: int | None
) -> Difference | None:
    """Return how an output differs in all runs; None if the pattern is unknown.

    ``name``: name of the output. ``reference``: name of what computed ``expected``, for the text. ``zero_point``: zero
    point of the output, or None if it is not quantized.
    """
    if any(
        a.shape != e.shape or a.dtype != e.dtype or a.dtype.kind not in "iuf"
        for a, e in zip(actual, expected, strict=True)
    ):
        return None
    ours, theirs = (np.concatenate([array.reshape(-1) for array in arrays]) for arrays in (actual, expected))
    is_float = ours.dtype.kind == "f"
    mask = np.isfinite(ours) & np.isfinite(theirs) if is_float else _unsaturated_mask(ours) & _unsaturated_mask(theirs)
    ours, theirs = ours[mask].astype(np.float64), theirs[mask].astype(np.float64)
    if len(np.unique(theirs)) < _MIN_DISTINCT or np.array_equal(ours, theirs):
        return None
    if all(_is_permuted(a, e) for a, e in zip(actual, expected, strict=True)):
        return Difference(f"{name} has the right values in the wrong positions", is_layout=True)
    if zero_point is None:
        tolerance = _FACTOR_TOLERANCE * float(np.ptp(theirs))
        arithmetic = _describe_floats(name, ours, theirs, reference)
    else:
        tolerance = 1.0
        arithmetic = _describe_steps(name, ours - zero_point, theirs - zero_point, reference)
    return (
        arithmetic
        or _describe_clamp(name, ours, theirs, reference, zero_point, tolerance)
        or _describe_shift(name, actual, expected, reference, tolerance)
    )


def _describe_floats(name: str, ours: Array, theirs: Array, reference: str) -> Difference | None:
    """Return how results that are not quantized differ."""
    span = float(np.ptp(theirs))
    if (offset := float(np.median(ours - theirs))) and np.abs(ours - theirs - offset).max() <= _FACTOR_TOLERANCE * span:
        side = "higher" if offset > 0 else "lower"
        return Difference(
            f"wrong constant: each element of {name} is {abs(offset):.6g} {side} in the ONNX model than in {reference}"
        )
    factor = _factor(ours, theirs)
    if abs(factor - 1) > _MIN_FACTOR_ERROR and np.abs(ours - factor * theirs).max() <= _FACTOR_TOLERANCE * span:
        return Difference(
            f"wrong factor: each element of {name} in the ONNX model is {factor:.6g} times that in {reference}"
        )
    return None


def _describe_steps(name: str, ours: Array, theirs: Array, reference: str) -> Difference | None:
    """Return how quantized values differ; the zero point is already subtracted."""
    steps = ours - theirs
    if np.all(steps == steps[0]):
        count, side = plural(int(abs(steps[0])), "quantization step"), "higher" if steps[0] > 0 else "lower"
        return Difference(
            f"wrong zero point: each element of {name} is {count} {side} in the ONNX model than in {reference}; read the zero "
            "points from ctx.quantization(slot)"
        )
    if np.abs(steps).max() <= 1:
        return Difference(f"wrong rounding: {_describe_rounding(name, steps, theirs, reference)}")
    factor = _factor(ours, theirs)
    if abs(factor - 1) > _MIN_FACTOR_ERROR and np.abs(ours - factor * theirs).max() <= _FACTOR_STEPS:
        return Difference(
            f"wrong scale or factor: each element of {name} in the ONNX model, minus the zero point, is {factor:.4g} times that in "
            f"{reference}"
        )
    return None


def _describe_clamp(
    name: str, ours: Array, theirs: Array, reference: str, zero_point: int | None, tolerance: float
) -> Difference | None:
    """Return a difference if only one side clamps its results."""
    for clamped, unclamped, clamping_side, other_side in (
        (theirs, ours, reference, "the ONNX model"),
        (ours, theirs, "the ONNX model", reference),
    ):
        low, high = clamped.min(), clamped.max()
        if np.abs(np.clip(unclamped, low, high) - clamped).max() > tolerance:
            continue
        bounds = [
            (word, bound)
            for word, bound, beyond in (("below", low, low - unclamped), ("above", high, unclamped - high))
            if np.any(beyond > tolerance) and np.count_nonzero(clamped == bound) >= _MIN_CLAMPED
        ]
        if bounds:
            texts = [f"{word} {_format_bound(bound, zero_point)}" for word, bound in bounds]
            return Difference(
                f"missing clamp: {clamping_side} has no element of {name} {' or '.join(texts)}, but {other_side} has, and all other "
                f"elements agree; perhaps only {clamping_side} applies an activation, such as RELU"
            )
    return None


def _format_bound(bound: float, zero_point: int | None) -> str:
    if zero_point is None:
        return f"{bound:g}"
    return "the zero point" if bound == zero_point else f"the quantized value {bound:g}"


def _describe_shift(
    name: str, actual: Sequence[Array], expected: Sequence[Array], reference: str, tolerance: float
) -> Difference | None:
    """Return a difference if results are shifted by one element along an axis."""
    for axis in range(min(array.ndim for array in actual)):
        for offset, direction in ((1, "higher"), (-1, "lower")):
            pairs = [
                (_without_end(ours, axis, -offset), _without_end(theirs, axis, offset))
                for ours, theirs in zip(actual, expected, strict=True)
            ]
            distinct = np.unique(np.concatenate([theirs.reshape(-1) for _, theirs in pairs])).size
            if distinct >= _MIN_DISTINCT and all(
                np.allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=0, atol=tolerance, equal_nan=True)
                for ours, theirs in pairs
            ):
                return Difference(
                    f"shifted by one: each element of {name} in {reference} is at an index that is 1 {direction} along axis {axis} than in "
                    "the ONNX model; pads, begins or another offset of this axis may be wrong"
                )
    return None


def _without_end(array: Array, axis: int, end: int) -> Array:
    """Return an array without its first (1) or last (-1) element along an axis."""
    index = slice(1, None) if end > 0 else slice(None, -1)
    return array[(slice(None),) * axis + (index,)]


def describe_wrong_parameters(
    name: str,
    actual: Sequence[Array],
    expected: Sequence[Array],
    parameters: Quantization,
    other_parameters: Mapping[str, Quantization],
) -> Difference | None:
    """Return a difference if results have the scale and zero point of another tensor.

    ``parameters``: scale and zero point of the output. ``other_parameters``: name of another
    tensor in the text -> its scale and zero point.
    """
    ours, theirs = (np.concatenate([array.reshape(-1) for array in arrays]) for arrays in (actual, expected))
    if ours.shape != theirs.shape or ours.dtype.kind not in "iu" or theirs.dtype.kind not in "iu":
        return None
    mask = _unsaturated_mask(ours) & _unsaturated_mask(theirs)
    expected_numbers = _dequantize(theirs[mask], parameters)
    for other_name, other in other_parameters.items():
        error = np.abs(_dequantize(ours[mask], other) - expected_numbers)
        if len(np.unique(expected_numbers)) >= _MIN_DISTINCT and error.max() <= float(
            other.scale[0] + parameters.scale[0]
        ):
            return Difference(
                f"wrong scale or zero point: each element of {name} in the ONNX model is quantized with scale and zero point of "
                f"{other_name} instead of those of the result"
            )
    return None


def _dequantize(values: Array, parameters: Quantization) -> Array:
    return (values.astype(np.float64) - float(parameters.zero_point[0])) * float(parameters.scale[0])


def _describe_rounding(name: str, steps: Array, theirs: Array, reference: str) -> str:
    """Describe errors of one step by their direction.

    ``steps``: error of each element in steps. ``theirs``: expected values minus the zero point.
    """
    outward = steps * np.sign(theirs)
    if np.all(steps <= 0) or np.all(steps >= 0):
        side = "lower" if steps.min() < 0 else "higher"
    elif np.all(outward <= 0) or np.all(outward >= 0):
        side = "nearer to the zero point" if outward.min() < 0 else "farther from the zero point"
    else:
        return f"no element of {name} is off by more than one step"
    fraction = np.count_nonzero(steps) / steps.size
    direction = "toward zero" if side.endswith("zero point") else "down or up"
    reason = (
        f"the ONNX model and {reference} round halfway values differently"
        if fraction < _MAX_HALFWAY_FRACTION
        else f"either the ONNX model or {reference} rounds {direction}, and the other rounds to nearest"
    )
    return f"where {name} differs from {reference}, it is one step {side}, so {reason}"


def _factor(ours: Array, theirs: Array) -> float:
    """Return the factor of ``theirs`` that fits ``ours`` best; 1 if ``theirs`` is 0."""
    squared_norm = float(theirs @ theirs)
    return float(ours @ theirs) / squared_norm if squared_norm else 1.0


def _unsaturated_mask(values: Array) -> Array:
    """Return a mask of the values that are not at a limit of their dtype."""
    limits = np.iinfo(values.dtype)
    return np.asarray((values != limits.min) & (values != limits.max))


def _is_permuted(ours: Array, theirs: Array) -> bool:
    """True if two arrays have the same elements, up to float32's rounding."""
    return np.allclose(np.sort(ours, axis=None), np.sort(theirs, axis=None), rtol=1e-5, atol=0, equal_nan=True)
