"""Every tolerance of a verification, each with the measurement that it rests on.

Measured on an AMD EPYC with AVX-512 and VNNI, ONNX Runtime 1.32, LiteRT 2.1; ``python -m tests.qa.criteria FILES`` measures again.
The tests that hold each number are in ``tests/verify/test_criteria.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_tflite_plugin.source.model import Array, Model, Operator
from onnx_tflite_plugin.verify.runtimes.structure import is_dynamic_range

# --- a submodel on LiteRT's own operands ------------------------------------------------------

OPERATOR = 5e-5
"""Share of the range, one float32 operator: ONNX Runtime at worst 1.9e-5, LiteRT's kernel sets 1e-5 from each other."""
GROUP = 1e-4
"""Share of the range, several float32 operators between cut values: at worst 7.3e-5."""
RECURRENT = 1e-3
"""Share of the range, loops and recurrent layers, which feed their own rounding back: at worst 9.6e-4."""
KERNELS = {"Sigmoid": 3 * 2.0**-24}
"""Absolute errors of float32 kernels of ONNX Runtime: a sigmoid is one half and a quotient of polynomials, so what comes near 0 has
the rounding of one half, up to three units in its last place, and beyond -18 it is 0 (MlasComputeLogistic, mlas/lib/logistic.cpp).
"""
ROUNDED = 2
"""Activations of an element that dynamic quantization rounds to the next step: ties, by the last bit of the scale."""
CANCELLATION = 2.0**-18
"""Absolute error as a share of the largest operand: the rounding of float32 sums that cancel out."""
RESIDUE = 2.0**-20
"""Absolute error as a share of the largest result, for a channel beside larger ones."""
PERTURBED = 4
"""Times the change of LiteRT's result if each operand changes by its last bit: a spectrum of silence is nothing but rounding."""
MOST_PERTURBED = 2.0**-12
"""Limit of that error as a share of the largest operand: a result that jumps, as of a division's floor, is not excused."""
PRODUCT = 2**-23
"""Rounding of two products of an integer and a scale, as a share of the range: half a unit in the last place each."""
STEPS = 1
"""Quantization steps: XNNPACK from builtin 1 step in up to 65 % of elements (MEAN), never 2."""
GROUP_MEAN = 0.5
"""Mean absolute error after several operators that round, in steps: three convolutions of 8 bits are 0.03 off."""
BIAS = 0.75
"""Mean error of a tensor, in steps, where no more than one is allowed; also of a channel of 16 bits, or of a network."""
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

# --- a whole model, end to end ----------------------------------------------------------------

NETWORK = 1e-3
"""Share of the range of a float output."""
NETWORK_INT16_STEPS = 16
"""Steps of int16 activations: the kernels round a convolution's multiplier to 16 bits, which is a step off in one result of 20
(MultiplyByQuantizedMultiplier, internal/common.cc); after the layers of a ResNet50 it is 15.
"""
DYNAMIC_RANGE = 2e-2
"""Share of the range of a float output, if kernels round activations to 8 bits."""

STEPPED = {"int8", "uint8", "int16", "uint16"}
"""The dtypes of quantized activations, which are compared in quantization steps."""

_HUGE = 2.0**100  # beyond it float32 overflows in a product


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerance by the dtype of an output.

    ``of_range``: a share of the range of a float output. ``steps``: quantization steps of int8, uint8, int16 and
    uint16; ``int16_steps``: of 16-bit ones, where those are more; ``mean_steps``: of the mean absolute error. ``integers``:
    the difference of wider integers, booleans and text. ``by_channel``: the share of a float output is also one of each
    channel's own range, and an 8-bit channel may have less bias than a tensor.
    """

    of_range: float = NETWORK
    steps: float = 1
    integers: float = 0
    int16_steps: float = 0
    mean_steps: float = math.inf
    by_channel: bool = False

    def of_dtype(self, dtype: str) -> float:
        """Return the steps that quantized integers of a dtype may differ by."""
        return max(self.steps, self.int16_steps) if dtype in ("int16", "uint16") else self.steps

    @classmethod
    def of(cls, model: Model) -> Tolerance:
        """Return the tolerance of a whole model, end to end: dynamic-range arithmetic is coarse."""
        coarse = [op for graph in model.subgraphs for op in graph.operators if is_dynamic_range(op)]
        entries = {model.main.index, *(signature.subgraph for signature in model.signatures)}
        if any(op.subgraph not in entries or _remembers(op) for op in coarse):
            return cls(of_range=DEQUANTIZED_RECURRENT, int16_steps=NETWORK_INT16_STEPS)
        return cls(of_range=DYNAMIC_RANGE if coarse else NETWORK, int16_steps=NETWORK_INT16_STEPS)


def _remembers(operator: Operator) -> bool:
    return any(slot is not None and slot.is_variable for slot in operator.inputs)


def tolerance_of(
    operators: int, *, roundings: int = 1, recurrent: bool = False, dequantized: bool = False
) -> Tolerance:
    """Return what a submodel of so many operators, so many of which round to quantized numbers, may differ by."""
    share = RECURRENT if recurrent else GROUP if operators > 1 else OPERATOR
    if dequantized:
        share = DEQUANTIZED_RECURRENT if recurrent else RECURRENT
        return Tolerance(of_range=share, steps=DEQUANTIZED_STEPS, int16_steps=DEQUANTIZED_INT16_STEPS)
    steps = STEPS * max(roundings, 1)
    mean = GROUP_MEAN if steps > STEPS else math.inf
    return Tolerance(of_range=share, steps=steps, mean_steps=mean, by_channel=operators == 1 and not recurrent)


def without_overflow(actual: Array, expected: Array, *, wide: bool) -> tuple[Array, Array]:
    """Return both arrays with equal elements where float32 overflows, or a 64-bit sum of int16 may have wrapped.

    ``wide``: the operands are large, so that one runtime alone may overflow.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return actual, expected
    if expected.dtype == np.int16:  # MultiplyByQuantizedMultiplier, internal/common.cc
        return np.where(np.isin(actual, (-(2**15), 2**15 - 1)), expected, actual), expected
    if expected.dtype.kind != "f" or (_magnitude(actual) < _HUGE and _magnitude(expected) < _HUGE):
        return actual, expected
    with np.errstate(invalid="ignore"):
        lost = ~(np.abs(expected) < _HUGE) | (wide & ~(np.abs(actual) < _HUGE))
    return np.where(lost, 0, actual).astype(actual.dtype), np.where(lost, 0, expected).astype(expected.dtype)


def largest_of(arrays: Sequence[Array]) -> float:
    """Return the largest finite magnitude of float arrays."""
    return max((_finite_magnitude(array) for array in arrays if array.dtype.kind == "f"), default=0.0)


def _finite_magnitude(array: Array) -> float:
    largest = _magnitude(array)
    return largest if math.isfinite(largest) else _magnitude(array[np.isfinite(array)])


def _magnitude(array: Array) -> float:
    """Return the largest magnitude, without a copy of the array; NaN if an element is."""
    return max(float(array.max()), -float(array.min())) if array.size else 0.0
