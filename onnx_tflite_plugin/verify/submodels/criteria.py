"""Allowed errors of a submodel on LiteRT's own operands, each with the measurement that it rests on.

Measured on an AMD EPYC with AVX-512 and VNNI, ONNX Runtime 1.32, LiteRT 2.1. The tests that hold each number are in
``tests/verify/test_criteria.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.compare import Comparison, compare
from onnx_tflite_plugin.verify.comparison.tolerance import Tolerance

OPERATOR = 5e-5
"""Share of the range, one float32 operator: ONNX Runtime at worst 1.9e-5, LiteRT's kernel sets 1e-5 from each other."""
GROUP = 1e-4
"""Share of the range, several float32 operators between cut values: at worst 7.3e-5."""
RECURRENT = 1e-3
"""Share of the range, loops and recurrent layers, which feed their own rounding back: at worst 9.6e-4."""
ROUNDED = 2
"""Activations of an element that dynamic quantization rounds to the next step: ties, by the last bit of the scale."""
CANCELLATION = 2.0**-18
"""Absolute error as a share of the largest operand: the rounding of float32 sums that cancel out."""
RESIDUE = 2.0**-20
"""Absolute error as a share of the largest result, for a channel beside larger ones."""
STEPS = 1
"""Quantization steps: XNNPACK from builtin 1 step in up to 65 % of elements (MEAN), never 2."""
GROUP_MEAN = 0.5
"""Mean absolute error after several operators that round, in steps: three convolutions of 8 bits are 0.03 off."""
CHANNEL_BIAS = 0.25
"""Mean error of a channel of 32 elements or more, in steps, for 8 bits."""
FEW_STEPS = 16
"""Steps below which a tensor says little: the softmax of a thousand classes has all numbers at 0 or 1."""
FEW_STEPS_MEAN = 0.25
"""Mean absolute error of such a tensor, in steps: LiteRT's kernel sets differ by 0 in SOFTMAX, LOGISTIC and TANH."""
DEQUANTIZED_STEPS = 3
"""Steps, float32 in place of quantized tensors: kernels rescale in fixed point."""
DEQUANTIZED_RECURRENT = 5e-2
"""Share of the range, float32 in loops that round to 8 bits: an LSTM of 67 cells is 0.022 off after 7 time steps."""
DEQUANTIZED_INT16_STEPS = 200
"""Steps, float32 in place of int16: kernels read some functions from tables."""

_FEW = 32  # elements below which a mean says nothing
_ROWS = 8  # elements of a channel of floats below which its range says nothing
_TINY = 2.0**-126
_HUGE = 2.0**100  # beyond it float32 overflows in a product


def tolerance_of(
    operators: int, *, roundings: int = 1, recurrent: bool = False, dequantized: bool = False
) -> Tolerance:
    """Return what a submodel of so many operators, so many of which round to quantized numbers, may differ by."""
    share = RECURRENT if recurrent else GROUP if operators > 1 else OPERATOR
    if dequantized:
        share = DEQUANTIZED_RECURRENT if recurrent else RECURRENT
        return Tolerance(of_range=share, steps=DEQUANTIZED_STEPS, int16_steps=DEQUANTIZED_INT16_STEPS)
    return Tolerance(of_range=share, steps=STEPS * max(roundings, 1), by_channel=operators == 1 and not recurrent)


def judge(
    name: str, actual: Array, expected: Array, tolerance: Tolerance, *, largest: float, step: float, kernels: str
) -> Comparison:
    """Compare one tensor with one answer of LiteRT.

    ``largest``: magnitude of the largest float operand. ``step``: quantization step that a float result inherits.
    """
    floor = max(step, CANCELLATION * largest)
    found = compare(name, [actual], {kernels: [expected]}, tolerance, step=floor)
    if not found.ok or not found.distance:
        return found
    if found.unit == "range" and tolerance.by_channel:
        problem = _find_wrong_channel(actual, expected, tolerance.of_range, floor)
    elif found.unit == "step" and tolerance.steps > 1 and not tolerance.int16_steps and found.mean > GROUP_MEAN:
        problem = f"off by {found.mean:.2g} LSB on average"
    elif found.unit == "step" and tolerance.steps <= 1:
        problem = _bias(actual, expected, by_channel=tolerance.by_channel)
    else:
        problem = ""
    return replace(found, problem=problem, distance=float("inf")) if problem else found


def without_overflow(actual: Array, expected: Array) -> tuple[Array, Array]:
    """Return both arrays with equal elements where float32 overflows, or a 64-bit sum of int16 may have wrapped."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return actual, expected
    if expected.dtype == np.int16:  # MultiplyByQuantizedMultiplier, internal/common.cc
        return np.where(np.isin(actual, (-(2**15), 2**15 - 1)), expected, actual), expected
    if expected.dtype.kind != "f":
        return actual, expected
    with np.errstate(invalid="ignore"):
        lost = ~(np.abs(expected) < _HUGE) | ~(np.abs(actual) < _HUGE)
    return np.where(lost, 0, actual).astype(actual.dtype), np.where(lost, 0, expected).astype(expected.dtype)


def _bias(actual: Array, expected: Array, *, by_channel: bool) -> str:
    """Return which part of a quantized tensor is off the same way nearly everywhere; empty for rounding."""
    moves = actual.astype(np.int64) - expected
    if moves.size < _FEW:
        return ""
    if np.ptp(expected.astype(np.int64)) < FEW_STEPS and float(np.abs(moves).mean()) > FEW_STEPS_MEAN:
        return f"off by {np.abs(moves).mean():.2g} LSB on average, in a tensor that spans few"
    if not by_channel or moves.ndim < 2 or expected.dtype.itemsize > 1 or moves.size // moves.shape[-1] < _FEW:
        return ""
    rows, numbers = moves.reshape(-1, moves.shape[-1]), expected.reshape(-1, moves.shape[-1])
    means = np.where(numbers.std(0) > 1, rows.mean(0), 0)  # a channel that does not vary may be a tie throughout
    worst = int(np.abs(means).argmax())
    if abs(means[worst]) <= CHANNEL_BIAS:
        return ""
    return f"off by {means[worst]:+.2f} LSB on average in channel {worst}"


def _find_wrong_channel(actual: Array, expected: Array, share: float, floor: float) -> str:
    """Return the channel of floats that differs by more than the share of its own range; empty if none does."""
    if expected.ndim < 2 or not expected.size or expected.dtype != np.float32:
        return ""
    here, there = (array.reshape(-1, array.shape[-1]) for array in (actual, expected))
    if len(there) < _ROWS or not (np.isfinite(there).all() and np.isfinite(here).all()):
        return ""
    errors, ranges = np.abs(here - there).max(0), np.ptp(there, 0)
    floor = max(floor, RESIDUE * float(np.abs(there).max()))
    wrong = np.flatnonzero(errors > np.maximum(share * ranges, floor))
    if not wrong.size:
        return ""
    worst = int(wrong[0])
    return f"off by {errors[worst] / max(ranges[worst], _TINY):.2g} of the range of channel {worst}"


def largest_of(arrays: Sequence[Array]) -> float:
    """Return the largest finite magnitude of float arrays."""
    floats = [np.abs(array[np.isfinite(array)]) for array in arrays if array.dtype.kind == "f"]
    return max((float(values.max()) for values in floats if values.size), default=0.0)
