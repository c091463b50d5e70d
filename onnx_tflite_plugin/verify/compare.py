"""How far an output of ONNX Runtime is from LiteRT's, and whether that is near enough.

LiteRT's kernel sets disagree with each other, so the distance is to the nearest of them, and the band it must
stay in is the larger of a tolerance and what they differ by.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ..source.model import Array, Model, Operator, Quantization, Tensor
from .structure import operands

Unit = Literal["range", "step", "value"]

_NIBBLES = {"int4": "int8", "int2": "int8", "uint4": "uint8"}
_STEPPED = {"int8", "uint8", "int16", "uint16"}
_WEIGHTS = {"int8", "uint8", "int4", "uint4", "int2"}
_WIDE = 0.25  # of an output's range


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What is near enough, by the dtype of an output.

    ``of_range``: a share of the range of a float output. ``steps``: quantization steps of int8, uint8, int16 and
    uint16; ``int16_steps``: of 16-bit ones, where those are more. ``integers``: the difference of wider integers,
    booleans and text. ``unbiased``: what floats differ by must be noise: the same offset in every run is none.
    """

    of_range: float = 1e-3
    steps: float = 1
    integers: float = 0
    int16_steps: float = 0
    unbiased: bool = False

    def of_dtype(self, dtype: str) -> float:
        """The steps that quantized integers may differ by."""
        return max(self.steps, self.int16_steps) if dtype in ("int16", "uint16") else self.steps

    @classmethod
    def of(cls, model: Model) -> Tolerance:
        """What a model may differ by: dynamic-range arithmetic is coarse, a single operator is exact."""
        operators = [operator for graph in model.subgraphs for operator in graph.operators]
        coarse = [operator for operator in operators if _dynamic_range(operator)]
        if coarse:
            entries = {model.main.index, *(signature.subgraph for signature in model.signatures)}
            fed_back = any(operator.subgraph not in entries or _remembers(operator) for operator in coarse)
            return cls(of_range=FED_BACK if fed_back else 2e-2, int16_steps=INT16_STEPS, unbiased=True)
        if len(operators) == 1:
            return cls(of_range=HANDED_ON if _remembers(operators[0]) else 1e-5)
        return cls(int16_steps=INT16_STEPS)


INT16_STEPS = 16
"""What a network of int16 activations may differ by: the kernels round a convolution's multiplier to 16 bits, which is a
step off in one result of 20 (MultiplyByQuantizedMultiplier, internal/common.cc); after the layers of a ResNet50 it is 15.
"""


HANDED_ON = 1e-4
"""What a single operator in float32 may make of a range where its state hands the last digits on to the next run.

An LSTM that normalizes is 1.6e-5 off after 50 runs.
"""

FED_BACK = 5e-2
"""What dynamic quantization may make of a range where a loop or a state brings back what was rounded.

LiteRT rounds activations to 8 bits at every time step (BatchQuantizeFloats, kernels/lstm_eval.cc), by default to 127 steps of
a row's largest magnitude. An LSTM of 67 cells is 0.022 from what it would be without, after 7 time steps.
"""


def _remembers(operator: Operator) -> bool:
    return any(slot is not None and slot.is_variable for slot in operator.inputs)


def _dynamic_range(operator: Operator) -> bool:
    """Dynamic quantization: float activations meet int8 or smaller weights, so the kernel quantizes the activations.

    Weights of 4 and 2 bits may have a scale per block, which ``structure`` does not read.
    """
    weights = any(
        slot is not None and slot.dtype in _WEIGHTS and (slot.quantization is not None or slot.dtype in _NIBBLES)
        for slot in operator.inputs
    )
    floats = any(slot.dtype.startswith("float") for slot in operands(operator))
    return weights and floats and any(slot is not None and slot.dtype.startswith("float") for slot in operator.outputs)


@dataclass(frozen=True, slots=True)
class Distance:
    """Between two arrays: the worst absolute difference (1 for text and booleans), the sum of all, how many differ.

    ``problem`` says why they cannot be compared at all: shape, dtype, other places of NaN or infinity.
    """

    worst: float = 0.0
    differing: int = 0
    elements: int = 0
    problem: str = ""
    total: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.elements if self.elements else 0.0

    def __or__(self, other: Distance) -> Distance:
        return Distance(
            max(self.worst, other.worst),
            self.differing + other.differing,
            self.elements + other.elements,
            self.problem or other.problem,
            self.total + other.total,
        )


def measure(actual: Array, expected: Array) -> Distance:
    """The distance between two arrays of one shape and dtype; complex numbers may be pairs along a last axis."""
    actual, expected = _comparable(actual), _comparable(expected)
    if actual.dtype != expected.dtype:
        return Distance(problem=f"dtype {actual.dtype} for {expected.dtype}")
    if actual.shape != expected.shape:
        return Distance(problem=f"shape {list(actual.shape)} for {list(expected.shape)}")
    if expected.dtype.kind == "f":
        return _measure_floats(actual, expected)
    differs = actual != expected
    count = int(np.count_nonzero(differs))
    if not count or expected.dtype.kind not in "iu":
        return Distance(float(count > 0), count, expected.size, total=count)
    difference = np.abs(actual[differs].astype(np.float64) - expected[differs].astype(np.float64))
    return Distance(max(1.0, float(difference.max())), count, expected.size, total=float(difference.sum()))


def _measure_floats(actual: Array, expected: Array) -> Distance:
    for what, test in (("NaN", np.isnan), ("+inf", np.isposinf), ("-inf", np.isneginf)):
        here, there = test(actual), test(expected)
        if wrong := int(np.count_nonzero(here != there)):
            k = tuple(int(i) for i in np.argwhere(here != there)[0])
            at = f"at {list(k)}: {actual[k]} for {expected[k]}"
            return Distance(math.inf, wrong, expected.size, f"{what} in other places ({wrong} elements, first {at})")
    finite = np.isfinite(expected)
    difference = np.abs(actual[finite].astype(np.float64) - expected[finite].astype(np.float64))
    worst = float(difference.max()) if difference.size else 0.0
    return Distance(worst, int(np.count_nonzero(difference)), expected.size, total=float(difference.sum()))


def _comparable(array: Array) -> Array:
    """The array in a dtype numpy can compare: complex as pairs, int4 and int2 as int8, text as bytes objects."""
    array = np.asarray(array)
    name = array.dtype.name
    if array.dtype.kind == "c":
        return as_pairs(array)
    if array.dtype.kind in "OSU":
        items = [item if isinstance(item, bytes) else str(item).encode(errors="surrogateescape") for item in array.flat]
        texts = np.empty(len(items), object)
        texts[:] = items
        return texts.reshape(array.shape)
    if name in _NIBBLES:
        return array.astype(_NIBBLES[name])
    if "float" in name and array.dtype.kind != "f":  # bfloat16 and the 8-bit floats
        return array.astype(np.float32)
    return array


def as_pairs(array: Array) -> Array:
    """A complex array as real and imaginary parts along a last axis of 2, as the ONNX model has it."""
    return np.ascontiguousarray(array).view(array.real.dtype).reshape(*array.shape, 2)


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
        """The larger of the tolerance and the spread; of twice the spread where the mean stays within theirs.

        A maximum over random inputs is itself random: of three implementations equally far apart, two given ones are
        the nearest pair one time in three. A wrong operator moves the mean as well.
        """
        return max(self.tolerance, self.spread * (2 if self.mean <= self.mean_spread else 1))

    @property
    def ok(self) -> bool:
        return not self.problem and self.distance <= self.band

    @property
    def wide(self) -> bool:
        """Whether the kernel sets differ by so much of an output's range that a wrong model may pass."""
        return self.unit == "range" and self.tolerance < self.band and self.spread > _WIDE

    @property
    def text(self) -> str:
        """``max 1 LSB, 0.2 % of elements differ (tolerance 1 LSB)``."""
        if self.problem:
            return self.problem
        if not self.distance:
            return f"equal ({self._allowed(self.in_unit)})"
        amount = f"max {self.in_unit(self.distance)}"
        share = "" if self.unit == "range" else f", {_percent(self.differing)} of elements differ"
        nearest = "" if self.ok else f", nearest {self.nearest}"
        said = (lambda allowed: f"{allowed:.2g}") if self.unit == "range" else self.in_unit
        return f"{amount}{share} ({self._allowed(said)}{nearest})"

    def _allowed(self, said: Callable[[float], str]) -> str:
        if self.tolerance >= self.band:
            return f"tolerance {said(self.tolerance)}"
        return f"tolerance {said(self.band)}, by what LiteRT's own kernels differ"

    def in_unit(self, amount: float) -> str:
        """``2 LSB`` of a quantized output, ``1.2e-06 of the output's range`` of a float one, else the number."""
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
    distances = {kernels: _measured(actual, arrays) for kernels, arrays in expected.items()}
    nearest, distance = min(distances.items(), key=lambda item: (bool(item[1].problem), item[1].worst, item[1].mean))
    pairs = itertools.combinations(expected.values(), 2)
    spreads = [between for between in (_measured(*pair) for pair in pairs) if not between.problem]
    spread = max((between.worst for between in spreads), default=0.0)
    unit, span = _unit(expected[nearest]), 1.0
    if unit == "range":
        span = _span(expected.values())
        inherited = step / span + _PRODUCT if step and span else 0.0
        allowed = max(tolerance.of_range, _rounding(expected[nearest]), inherited) if span else step
        unit, span = ("range", span) if span else ("value", 1.0)  # all zeros have no range to take a share of
    else:
        dtype = _comparable(expected[nearest][0]).dtype.name
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
    if tolerance.unbiased and unit == "range" and comparison.ok:
        comparison = replace(comparison, problem=_offset(actual, expected[nearest]))
    if unit == "step" and max(allowed, spread) <= 1 and comparison.ok:
        comparison = replace(comparison, problem=_moved(actual, expected.values()))
    return replace(comparison, distance=math.inf) if comparison.problem else comparison


_LEAST = 32  # elements from which on a share says something
_MOST_MOVED = 0.75  # of a step, the same way; roundings of a network that are no fault of its conversion stay below


def _moved(actual: Sequence[Array], sets: Iterable[Sequence[Array]]) -> str:
    """Whether practically all integers, or all of a channel, are off the same way, which is no rounding but another zero point
    or bias; else nothing. A channel that does not vary may be a tie throughout.
    """
    whole, channels = [], []
    for arrays in sets:
        if any(array.dtype.kind not in "iu" for array in (*actual, *arrays)):  # a dtype that LiteRT does not have
            return ""
        moves = [one.astype(np.int64) - other for one, other in zip(actual, arrays, strict=True)]
        if sum(move.size for move in moves) < _LEAST:
            return ""
        whole.append(sum(int(move.sum()) for move in moves) / sum(move.size for move in moves))
        channels.append(_channels(moves, arrays))
    least = min(whole, key=abs)
    if abs(least) > _MOST_MOVED:
        return f"off by {least:+.2f} LSB on average, the same way nearly everywhere"
    by_channel = np.min(np.abs(np.stack(channels)), axis=0) if all(move.size for move in channels) else np.zeros(1)
    worst = int(by_channel.argmax())
    if by_channel[worst] <= _MOST_MOVED:
        return ""
    return f"off by {channels[0][worst]:+.2f} LSB on average, the same way nearly everywhere, in channel {worst}"


def _channels(moves: Sequence[Array], values: Sequence[Array]) -> Array:
    """The mean of each channel's moves, 0 for one of few values or of few elements; empty where there are no channels."""
    if moves[0].ndim < 2 or len({move.shape[-1] for move in moves}) > 1 or not all(move.size for move in moves):
        return np.empty(0)
    rows, own = (np.concatenate([a.reshape(-1, a.shape[-1]) for a in arrays]) for arrays in (moves, values))
    varies = own.astype(np.int64).std(0) > 1
    return np.where(varies & (len(rows) >= _LEAST), rows.mean(0), 0.0)


_PRODUCT = 2**-23
"""Of the range: what two products of an integer and a scale are rounded by, half a unit in the last place each."""

_RUNS = 6  # from which on a mean says something
_ALIKE = 3  # times the least range of a run
_NEGLIGIBLE = 1e-3  # of the range
_MOVES = 0.02  # of the range, from run to run


def _offset(actual: Sequence[Array], expected: Sequence[Array]) -> str:
    """What remains of the difference when it is averaged over all runs, where noise would have left less; else nothing.

    Dynamic quantization rounds activations to steps that are others in every run: what that changes has a mean of zero. The
    mean of R runs has then a variance of 1/R of theirs; over n elements, the quotient of both is 1 give or take 1/n, or more where
    elements differ together: three standard errors are none. Noise grows with what is fed: only the runs with the least range
    count. Where results hardly depend on what is fed, neither do the steps.
    """
    if len({array.shape for array in (*actual, *expected)}) > 1 or not actual[0].size:
        return ""
    spans = [float(np.ptp(array)) for array in expected]
    least = min(spans)
    chosen = [k for k, span in enumerate(spans) if span <= _ALIKE * least]
    if len(chosen) < _RUNS or not math.isfinite(least) or not least:
        return ""
    difference = np.stack([actual[k].astype(np.float64) - expected[k] for k in chosen]) / least
    if not np.isfinite(difference).all():
        return ""
    means, variances = difference.mean(0), difference.var(0, ddof=1)
    offset = math.sqrt(float(np.square(means).mean()))
    noise = float(variances.mean()) / len(chosen)
    moves = math.sqrt(float((np.stack([expected[k] for k in chosen]) / least).var(0, ddof=1).mean()))
    if offset <= _NEGLIGIBLE or moves <= _MOVES or offset**2 <= (9 + 30 / means.size) * noise:
        return ""
    return f"off by the same {offset:.2g} of the output's range in {len(chosen)} runs, which is no noise of dynamic quantization"


def inherited_step(tensor: Tensor, producers: Mapping[int, Operator], tolerance: Tolerance) -> float:
    """What the integers a float tensor was computed from may be off by, dequantized; 0 where there are none.

    A network that dequantizes its result cannot be nearer than they are. The way back goes through operators
    with a single computed operand.
    """
    seen = set()
    while tensor.index not in seen:
        seen.add(tensor.index)
        quantization = tensor.quantization
        if isinstance(quantization, Quantization) and tensor.dtype in _STEPPED:
            return max(quantization.scale) * tolerance.of_dtype(tensor.dtype)
        sources = list(operands(producers[tensor.index])) if tensor.index in producers else []
        if len(sources) != 1 or not tensor.dtype.startswith("float"):
            return 0.0
        tensor = sources[0]
    return 0.0


def _measured(actual: Sequence[Array], expected: Sequence[Array]) -> Distance:
    total = Distance()
    for one, other in zip(actual, expected, strict=True):
        total |= measure(one, other)
    return total


def _unit(arrays: Sequence[Array]) -> Unit:
    dtype = _comparable(arrays[0]).dtype if arrays else np.dtype(np.float32)
    if dtype.kind == "f":
        return "range"
    return "step" if dtype.name in _STEPPED else "value"


def _span(sets: Any) -> float:
    """The range of the finite values of all kernel sets, 0 included: noise around a constant is not a range."""
    low = high = 0.0
    for array in itertools.chain.from_iterable(sets):
        values = _comparable(array)
        finite = values[np.isfinite(values)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return high - low


def _rounding(arrays: Sequence[Array]) -> float:
    """One unit in the last place of the dtype, as a share: 16-bit floats are coarser than any tolerance."""
    name = np.asarray(arrays[0]).dtype.name if arrays else ""
    return {"float16": 2**-10, "bfloat16": 2**-7, "float8_e4m3fn": 2**-3, "float8_e5m2": 2**-2}.get(name, 0.0)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 or not share else "under 0.1 %"
