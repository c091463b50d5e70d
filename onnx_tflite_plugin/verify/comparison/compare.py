"""Comparison of ONNX Runtime's results with LiteRT's, within a tolerance.

LiteRT's kernel sets round differently, so a result that matches one of them is right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from onnx_tflite_plugin.renamed import COMPARISON, renamed_attributes
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.bias import describe_bias, describe_channel_error
from onnx_tflite_plugin.verify.comparison.error import comparable, measure_runs
from onnx_tflite_plugin.verify.criteria import PRODUCT, STEPPED, Tolerance
from onnx_tflite_plugin.verify.runtimes.interpreter import KERNEL_SETS, describe_kernels

Unit = Literal["range", "step", "value"]

_SMALL_ERRORS = {"range": 0.02, "step": 5.0}
"""Heuristic: errors of at most 2 % of the range, or 5 quantization steps, rarely change a result."""

_MAX_STEP_FRACTION = 0.01
"""Maximum difference between an error and a whole number of steps, in steps; it is due to rounding to float32."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of one output, or one intermediate tensor, with LiteRT.

    ``max_error``, ``mean_error`` and ``tolerance`` are in ``unit``: fractions of the range, quantization steps, or plain values.
    ``max_error`` is the maximum error, ``mean_error`` the mean absolute error, ``differing`` the fraction of elements that
    differ. ``nearest``: the kernel set with the smallest error; the other fields describe this error. ``problem``: a reason
    why the output is wrong, whatever its error is. ``end_to_end``: the error of an output of the whole network, if this
    comparison concerns only the operator that computes the output. ``step``: one step of the quantized tensor upstream of
    a float output, as a fraction of the range, if the tolerance is a number of these steps; 0 otherwise.
    """

    name: str
    unit: Unit
    max_error: float
    differing: float
    tolerance: float
    nearest: str = ""
    problem: str = ""
    mean_error: float = 0.0
    end_to_end: str = ""
    step: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.problem and self.max_error <= self.tolerance

    @property
    def is_small(self) -> bool:
        """True if the roundings of a network may add up to the error."""
        return not self.problem and self.max_error <= _SMALL_ERRORS.get(self.unit, 0.0)

    @property
    def text(self) -> str:
        """Return the error and the tolerance.

        Example: ``max 2 quantization steps, 0.2 % of elements differ (tolerance 1)``.
        """
        if self.end_to_end:
            operator_text = replace(self, end_to_end="").text
            return f"{operator_text} with LiteRT's values as inputs; end to end {self.end_to_end}"
        if self.problem:
            return self.problem
        if not self.max_error:
            return f"equal (tolerance {self.in_unit(self.tolerance)})"
        differing = "" if self.unit == "range" else f", {self.differing_text}"
        tolerance = f"{self.tolerance:{'.2g' if self.unit == 'range' else 'g'}}"
        if limit := self._step_count(self.tolerance):
            tolerance = f"{limit}" if self._step_count(self.max_error) else self.in_unit(self.tolerance)
        nearest = f", compared with {self._describe_nearest()}" if self.nearest and not self.ok else ""
        return f"max {self.in_unit(self.max_error)}{differing} (tolerance {tolerance}{nearest})"

    def _describe_nearest(self) -> str:
        """Return the name of the nearest results, such as ``LiteRT's XNNPACK kernels``."""
        return f"LiteRT's {describe_kernels([self.nearest])}" if self.nearest in KERNEL_SETS else self.nearest

    @property
    def differing_text(self) -> str:
        """Return the percentage of differing elements: ``0.2 % of elements differ``."""
        return f"{_percent(self.differing)} of elements differ"

    @property
    def error(self) -> str:
        """Return the error without the tolerance, such as ``max 1 quantization step``."""
        return self.problem or f"max {self.in_unit(self.max_error)}"

    def in_unit(self, amount: float, range_name: str = "the output's range") -> str:
        """Return an error with its unit.

        Examples: ``2 quantization steps`` for a quantized output, or a float output that was dequantized;
        ``1.2e-06 of the output's range`` for another float output; or a plain number. ``range_name``: words for the range.
        """
        if self.unit == "step":
            return f"{amount:g} quantization step{'' if amount == 1 else 's'}"
        if count := self._step_count(amount):
            return f"{count} quantization step{'' if count == 1 else 's'}"
        return f"{amount:.2g} of {range_name}" if self.unit == "range" else f"{amount:g}"

    def _step_count(self, amount: float) -> int:
        """Return an error in whole quantization steps; 0 if it is no multiple."""
        if not self.step or not math.isfinite(amount):
            return 0
        count = amount / self.step
        return round(count) if abs(count - round(count)) <= _MAX_STEP_FRACTION else 0

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(COMPARISON)


def compare(
    name: str,
    actual: Sequence[Array],
    expected: Mapping[str, Sequence[Array]],
    tolerance: Tolerance,
    *,
    floor: float = 0.0,
    step: float = 0.0,
    zero_point: int = 0,
) -> Comparison:
    """Compare one output over all runs with the results of each kernel set.

    Return the comparison with the smallest error. ``actual``: one array per run. ``expected``: one array per run, by kernel
    set. ``floor``: absolute error that is allowed for a float output, for example one step of the quantized values from
    which the output is computed. ``step``: this step; 0 if there is none. ``zero_point``: zero point of a quantized output,
    for ``tolerance.rounding_bias``.
    """
    allowed = _Allowed(tolerance, floor, step, zero_point)
    comparisons = [
        replace(_compare_runs(name, actual, arrays, allowed), nearest=kernels) for kernels, arrays in expected.items()
    ]
    return min(comparisons, key=lambda c: (not c.ok, bool(c.problem), c.max_error, c.mean_error))


class _Allowed(NamedTuple):
    """Errors that ``compare`` allows; its parameters of the same names."""

    tolerance: Tolerance
    floor: float
    step: float
    zero_point: int


def _compare_runs(name: str, actual: Sequence[Array], expected: Sequence[Array], allowed: _Allowed) -> Comparison:
    """Compare one output over all runs with the results of one kernel set."""
    error = measure_runs(actual, expected)
    unit, unit_size, max_allowed, step = _choose_unit(expected, allowed)
    comparison = Comparison(
        name=name,
        unit=unit,
        max_error=error.worst / unit_size,
        differing=error.differing / error.elements if error.elements else 0.0,
        tolerance=max_allowed,
        problem=error.problem,
        mean_error=error.mean / unit_size,
        step=step,
    )
    if comparison.ok and comparison.max_error:
        problem = ""
        if unit == "step":
            problem = describe_bias(
                actual, expected, comparison.mean_error, allowed.tolerance, zero_point=allowed.zero_point
            )
        elif unit == "range" and allowed.tolerance.by_channel:
            problem = describe_channel_error(actual, expected, allowed.tolerance.of_range, allowed.floor)
        comparison = replace(comparison, problem=problem)
    return replace(comparison, max_error=math.inf) if comparison.problem else comparison


def _choose_unit(expected: Sequence[Array], allowed: _Allowed) -> tuple[Unit, float, float, float]:
    """Return unit, value of one unit, allowed units, and ``Comparison.step``."""
    tolerance, floor = allowed.tolerance, allowed.floor
    unit = _unit(expected)
    if unit == "step":
        return unit, 1.0, tolerance.of_dtype(comparable(expected[0]).dtype.name), 0.0
    if unit == "value":
        return unit, 1.0, tolerance.integers, 0.0
    span = _span(expected)
    if not span:  # an output of zeros has no range
        return "value", 1.0, floor, 0.0
    floor_of_range = floor / span + PRODUCT if floor else 0.0
    max_allowed = max(tolerance.of_range, _rounding_error(expected), floor_of_range)
    return unit, span, max_allowed, allowed.step / span if max_allowed == floor_of_range else 0.0


def _unit(arrays: Sequence[Array]) -> Unit:
    dtype = comparable(arrays[0]).dtype if arrays else np.dtype(np.float32)
    if dtype.kind == "f":
        return "range"
    return "step" if dtype.name in STEPPED else "value"


def _span(arrays: Sequence[Array]) -> float:
    """Return the range of the finite values, extended to 0.

    Otherwise noise around a constant would have a tiny range.
    """
    low = high = 0.0
    for array in arrays:
        values = comparable(array)
        finite = values[np.isfinite(values)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return high - low


def _rounding_error(arrays: Sequence[Array]) -> float:
    """Return the relative rounding error of 16-bit and 8-bit floats; 0 for others.

    Smaller tolerances are raised to this error.
    """
    name = np.asarray(arrays[0]).dtype.name if arrays else ""
    return {"float16": 2**-10, "bfloat16": 2**-7, "float8_e4m3fn": 2**-3, "float8_e5m2": 2**-2}.get(name, 0.0)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %" if fraction >= 0.0005 else "under 0.1 %"
