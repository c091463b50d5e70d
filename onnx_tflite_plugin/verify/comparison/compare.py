"""Compare ONNX Runtime's results with LiteRT's, and decide whether the error is within the tolerance.

LiteRT's kernel sets round differently, so the results of one of them are enough to match.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.bias import describe_bias, describe_channel_error
from onnx_tflite_plugin.verify.comparison.distance import comparable, measure_runs
from onnx_tflite_plugin.verify.criteria import PRODUCT, STEPPED, Tolerance

Unit = Literal["range", "step", "value"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output, or one intermediate tensor, against LiteRT.

    ``distance``, ``mean`` and ``tolerance`` are in ``unit``: shares of the range, quantization steps, or plain values.
    ``differing`` is a share of the elements. ``nearest``: the kernel set that the numbers are of. ``end_to_end``: the error of an
    output after the whole network, if the comparison is one of its operator alone.
    """

    name: str
    unit: Unit
    distance: float
    differing: float
    tolerance: float
    nearest: str = ""
    problem: str = ""
    mean: float = 0.0
    end_to_end: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem and self.distance <= self.tolerance

    @property
    def text(self) -> str:
        """Return a text such as ``max 1 LSB, 0.2 % of elements differ (tolerance 1 LSB)``."""
        if self.end_to_end:
            alone = replace(self, end_to_end="").text
            return f"{alone} on LiteRT's own operands; end to end {self.end_to_end}, although every operator agrees"
        if self.problem:
            return self.problem
        if not self.distance:
            return f"equal (tolerance {self.in_unit(self.tolerance)})"
        share = "" if self.unit == "range" else f", {_percent(self.differing)} of elements differ"
        tolerance = f"{self.tolerance:.2g}" if self.unit == "range" else self.in_unit(self.tolerance)
        nearest = "" if self.ok else f", nearest {self.nearest}"
        return f"max {self.in_unit(self.distance)}{share} (tolerance {tolerance}{nearest})"

    @property
    def error(self) -> str:
        """Return a text such as ``max 1 LSB``."""
        return self.problem or f"max {self.in_unit(self.distance)}"

    def in_unit(self, amount: float) -> str:
        """Return ``2 LSB`` for a quantized output, ``1.2e-06 of the output's range`` for a float one, else the number."""
        if self.unit == "step":
            return f"{amount:g} LSB"
        return f"{amount:.2g} of the output's range" if self.unit == "range" else f"{amount:g}"


def compare(
    name: str,
    actual: Sequence[Array],
    expected: Mapping[str, Sequence[Array]],
    tolerance: Tolerance,
    *,
    floor: float = 0.0,
) -> Comparison:
    """Compare one output over all runs with what each kernel set gave; return the comparison with the nearest.

    ``floor``: absolute error of a float output that is allowed, as the step of the integers it was computed from.
    """
    found = [_compare_with(name, kernels, actual, arrays, tolerance, floor) for kernels, arrays in expected.items()]
    return min(found, key=lambda one: (not one.ok, bool(one.problem), one.distance, one.mean))


def _compare_with(
    name: str, kernels: str, actual: Sequence[Array], expected: Sequence[Array], tolerance: Tolerance, floor: float
) -> Comparison:
    """Compare one output over all runs with one kernel set."""
    distance = measure_runs(actual, expected)
    unit = _unit(expected)
    span = _span(expected) if unit == "range" else 1.0
    if unit == "range":
        inherited = floor / span + PRODUCT if floor and span else 0.0
        allowed = max(tolerance.of_range, _rounding(expected), inherited) if span else floor
        unit, span = ("range", span) if span else ("value", 1.0)  # all zeros have no range to take a share of
    else:
        allowed = tolerance.of_dtype(comparable(expected[0]).dtype.name) if unit == "step" else tolerance.integers
    found = Comparison(
        name=name,
        unit=unit,
        distance=distance.worst / span,
        differing=distance.differing / distance.elements if distance.elements else 0.0,
        tolerance=allowed,
        nearest=kernels,
        problem=distance.problem,
        mean=distance.mean / span,
    )
    if found.ok and found.distance:
        problem = ""
        if unit == "step":
            problem = describe_bias(actual, expected, found.mean, tolerance)
        elif unit == "range" and tolerance.by_channel:
            problem = describe_channel_error(actual, expected, tolerance.of_range, floor)
        found = replace(found, problem=problem)
    return replace(found, distance=math.inf) if found.problem else found


def _unit(arrays: Sequence[Array]) -> Unit:
    dtype = comparable(arrays[0]).dtype if arrays else np.dtype(np.float32)
    if dtype.kind == "f":
        return "range"
    return "step" if dtype.name in STEPPED else "value"


def _span(arrays: Sequence[Array]) -> float:
    """Return the range of the finite values and 0: noise around a constant is not a range."""
    low = high = 0.0
    for array in arrays:
        values = comparable(array)
        finite = values[np.isfinite(values)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return high - low


def _rounding(arrays: Sequence[Array]) -> float:
    """Return one unit in the last place of the dtype, as a share: 16-bit floats are coarser than any tolerance."""
    name = np.asarray(arrays[0]).dtype.name if arrays else ""
    return {"float16": 2**-10, "bfloat16": 2**-7, "float8_e4m3fn": 2**-3, "float8_e5m2": 2**-2}.get(name, 0.0)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "under 0.1 %"
