"""Compare ONNX Runtime's outputs with LiteRT's, and decide whether the error is within the tolerance.

LiteRT's kernel sets disagree with each other, so the distance is to the nearest of them, and the band it must
stay in is the larger of a tolerance and what they differ by.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.distance import comparable, measure_runs
from onnx_tflite_plugin.verify.comparison.systematic import describe_offset
from onnx_tflite_plugin.verify.comparison.tolerance import STEPPED, Tolerance

Unit = Literal["range", "step", "value"]

_WIDE = 0.25  # of an output's range


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output, or one intermediate tensor, against LiteRT.

    ``distance``, ``tolerance`` and ``spread`` (what the kernel sets differ by) are in ``unit``: shares of the range,
    quantization steps, or plain values, as are the means over all elements. ``differing`` is a share of the elements.
    """

    name: str
    unit: Unit
    distance: float
    differing: float
    tolerance: float
    spread: float = 0.0
    nearest: str = ""
    problem: str = ""
    mean: float = 0.0
    mean_spread: float = 0.0

    @property
    def band(self) -> float:
        """Return the larger of the tolerance and the spread; twice the spread if the mean error stays within theirs.

        A maximum over random inputs is itself random: of three implementations equally far apart, two given ones are
        the nearest pair one time in three. A wrong operator moves the mean as well.
        """
        return max(self.tolerance, self.spread * (2 if self.mean <= self.mean_spread else 1))

    @property
    def ok(self) -> bool:
        return not self.problem and self.distance <= self.band

    @property
    def wide(self) -> bool:
        """True if the kernel sets differ by so much of an output's range that a wrong model may pass."""
        return self.unit == "range" and self.tolerance < self.band and self.spread > _WIDE

    @property
    def text(self) -> str:
        """Return a text such as ``max 1 LSB, 0.2 % of elements differ (tolerance 1 LSB)``."""
        if self.problem:
            return self.problem
        if not self.distance:
            return f"equal ({self._tolerance_text(self.in_unit)})"
        amount = f"max {self.in_unit(self.distance)}"
        share = "" if self.unit == "range" else f", {_percent(self.differing)} of elements differ"
        nearest = "" if self.ok else f", nearest {self.nearest}"
        said = (lambda allowed: f"{allowed:.2g}") if self.unit == "range" else self.in_unit
        return f"{amount}{share} ({self._tolerance_text(said)}{nearest})"

    def _tolerance_text(self, said: Callable[[float], str]) -> str:
        if self.tolerance >= self.band:
            return f"tolerance {said(self.tolerance)}"
        return f"tolerance {said(self.band)}, by what LiteRT's own kernels differ"

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
    step: float = 0.0,
) -> Comparison:
    """Compare one output over all runs with what each kernel set gave; ``step`` is a quantization step that a
    float output inherits from the integers it was computed from.
    """
    distances = {kernels: measure_runs(actual, arrays) for kernels, arrays in expected.items()}
    nearest, distance = min(distances.items(), key=lambda item: (bool(item[1].problem), item[1].worst, item[1].mean))
    pairs = itertools.combinations(expected.values(), 2)
    spreads = [between for between in (measure_runs(*pair) for pair in pairs) if not between.problem]
    spread = max((between.worst for between in spreads), default=0.0)
    unit, span = _unit(expected[nearest]), 1.0
    if unit == "range":
        span = _span(expected.values())
        inherited = step / span + _PRODUCT if step and span else 0.0
        allowed = max(tolerance.of_range, _rounding(expected[nearest]), inherited) if span else step
        unit, span = ("range", span) if span else ("value", 1.0)  # all zeros have no range to take a share of
    else:
        dtype = comparable(expected[nearest][0]).dtype.name
        allowed = tolerance.of_dtype(dtype) if unit == "step" else tolerance.integers
    comparison = Comparison(
        name=name,
        unit=unit,
        distance=distance.worst / span,
        differing=distance.differing / distance.elements if distance.elements else 0.0,
        tolerance=allowed,
        spread=spread / span,
        nearest=nearest,
        problem=distance.problem,
        mean=distance.mean / span,
        mean_spread=max((between.mean for between in spreads), default=0.0) / span,
    )
    if unit == "step" and max(allowed, spread) <= 1 and comparison.ok and comparison.distance:
        comparison = replace(comparison, problem=describe_offset(actual, expected.values()))
    return replace(comparison, distance=math.inf) if comparison.problem else comparison


_PRODUCT = 2**-23
"""Rounding of two products of an integer and a scale, as a share of the range: half a unit in the last place each."""


def _unit(arrays: Sequence[Array]) -> Unit:
    dtype = comparable(arrays[0]).dtype if arrays else np.dtype(np.float32)
    if dtype.kind == "f":
        return "range"
    return "step" if dtype.name in STEPPED else "value"


def _span(sets: Any) -> float:
    """Return the range of the finite values of all kernel sets and 0: noise around a constant is not a range."""
    low = high = 0.0
    for array in itertools.chain.from_iterable(sets):
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
