"""Every tolerance of a verification, each with the measurement that justifies it.

Each docstring begins with the results to which the tolerance applies and its unit. The range is that of the tensor's values.
Measured on an AMD EPYC with AVX-512 and VNNI, ONNX Runtime 1.32, LiteRT 2.1; ``python -m tests.qa.criteria FILES``
repeats the measurements. The tests of each number are in ``tests/verify/test_criteria.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_tflite_plugin.source.model import Array, Model, Operator
from onnx_tflite_plugin.verify.runtimes.structure import is_dynamic_range

# --- a submodel with LiteRT's values as inputs ------------------------------------------------------

OPERATOR = 5e-5
"""One float32 operator: fraction of the range.

Measured maximum: 1.9e-5 between ONNX Runtime and LiteRT, and 1e-5 between LiteRT's own kernel sets.
"""
GROUP = 1e-4
"""Several float32 operators between two cut values: fraction of the range. Measured maximum: 7.3e-5."""
RECURRENT = 1e-3
"""Loops and recurrent layers, whose rounding errors accumulate: fraction of the range. Measured maximum: 9.6e-4."""
KERNELS = {"Sigmoid": 3 * 2.0**-24}
"""Float32 kernels of ONNX Runtime with a fixed absolute error.

A sigmoid is computed as 0.5 plus a quotient of polynomials. A result near 0 therefore has the rounding error of 0.5: up to three
units in the last place of 0.5. Below -18 the result is 0 (MlasComputeLogistic, mlas/lib/logistic.cpp).
"""
ROUNDED = 2
"""Dynamic quantization: number of activations per result that may be rounded to a neighboring step.

A value halfway between two steps is rounded up or down by the last bit of the scale. A submodel allows this number once, and once
more for each of its operators that combines two computed tensors. Measured maximum, for a rotary embedding: 1.05 steps.
"""
CANCELLATION = 2.0**-18
"""Float32 sums whose terms cancel out: absolute error as a fraction of the largest operand."""
RESIDUE = 2.0**-20
"""Channels with far smaller values than other channels: absolute error as a fraction of the largest result."""
PERTURBED = 4
"""Results that consist of rounding errors only, such as the spectrum of silence.

The error is a multiple of the change in LiteRT's result if the last bit of each operand changes.
"""
MAX_PERTURBED = 2.0**-12
"""Upper limit of the error that PERTURBED allows, as a fraction of the largest operand.

A discontinuous operator, such as FLOOR_DIV, changes by more.
"""
SUMMED = 2
"""Sums: error as a multiple of the rounding error of LiteRT, which adds float32 terms one by one.

ONNX Runtime's error is smaller.
"""
PRODUCT = 2**-23
"""Two products of an integer and a scale: fraction of the range. Each product is off by half a unit in the last place."""
STEPS = 1
"""One operator that rounds to quantized values: quantization steps.

Measured: XNNPACK and builtin kernels differ by 1 step in up to 65 % of the elements (MEAN), and never by 2 steps.
"""
NEAREST = 0.5 + 2**-6
"""A float result rounded to the nearest step: steps. Half a step is due to that rounding, the rest to float32."""
GROUP_MEAN = 0.5
"""Several operators that round: mean absolute error in steps. Measured after three 8-bit convolutions: 0.03."""
GROUP_STEPS_INT16 = 2
"""Several operators that round to 16 bits: steps per operator, and the limit of the mean absolute error in steps.

LiteRT's kernel interpolates LOGISTIC between samples, so most elements are off by one step. A following MUL can double this error.
Measured after both: mean 1.8, maximum 3. Two steps are 3e-5 of the range, less than the tolerance of a float32 operator.
"""
BIAS = 0.75
"""Tensors with a tolerance of one step, 16-bit channels, and whole networks: mean signed error in steps."""
CHANNEL_BIAS = 0.25
"""8-bit channels of at least 32 elements: mean signed error in steps."""
FEW_STEPS = 16
"""Low-information outputs: range in steps, below which an output counts as one. A softmax of 1000 classes has only 0 and 1."""
FEW_STEPS_MEAN = 0.25
"""Low-information outputs: mean absolute error in steps. Measured between LiteRT's kernel sets: 0 for SOFTMAX, LOGISTIC and TANH."""
ROUNDING_BIAS = 0.3
"""Conformance cases: mean signed error in steps of the quantized results below the zero point, and of those above it.

The error is 0.5 if one model rounds down or toward zero, and the other to nearest. Measured maximum over the 2395 quantized outputs
of the built-in cases: 0.16, for an int16 RESIZE_BILINEAR with many halfway values.
"""
DEQUANTIZED_STEPS = 3
"""Float32 in place of quantized tensors: steps. The errors are those of LiteRT's kernels, which rescale in fixed point."""
DEQUANTIZED_RECURRENT = 5e-2
"""Float32 in place of loops that round to 8 bits: fraction of the range. Measured for an LSTM of 67 cells after 7 time steps: 0.022."""
DEQUANTIZED_INT16_STEPS = 200
"""Float32 in place of int16: steps. LiteRT's kernels read some functions from tables."""

# --- a whole model, end to end ----------------------------------------------------------------

NETWORK = 1e-3
"""Float outputs: fraction of the range."""
NETWORK_INT16_STEPS = 16
"""Outputs of int16: steps. Measured maximum, for a ResNet50: 15 steps.

LiteRT's kernels round a convolution's multiplier to 16 bits, which changes one result in 20 by one step
(MultiplyByQuantizedMultiplier, internal/common.cc).
"""
DYNAMIC_RANGE = 2e-2
"""Float outputs of models whose kernels round activations to 8 bits: fraction of the range."""

STEPPED = {"int8", "uint8", "int16", "uint16"}
"""The dtypes of quantized activations, which are compared in quantization steps."""

_SIXTEEN_BITS = {"int16", "uint16"}
_OVERFLOWING = 2.0**100  # magnitude beyond which products of float32 may overflow


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allowed error by the dtype of an output.

    of_range: fraction of the range of a float output.
    steps: quantization steps of int8, uint8, int16 and uint16.
    int16_steps: steps of int16 and uint16, if larger than ``steps``.
    mean_steps: mean absolute error in steps.
    int16_mean_steps: mean absolute error of int16 and uint16, if larger than ``mean_steps``.
    integers: maximum difference of wider integers, booleans and text.
    by_channel: check each channel too. ``of_range`` is then also a fraction of the channel's range, and an 8-bit channel
        may have less bias than a tensor.
    rounding_bias: mean signed error in steps of the quantized values on each side of the zero point. Checked only if one
        step is allowed.
    """

    of_range: float = NETWORK
    steps: float = 1
    integers: float = 0
    int16_steps: float = 0
    mean_steps: float = math.inf
    int16_mean_steps: float = 0
    by_channel: bool = False
    rounding_bias: float = math.inf

    def of_dtype(self, dtype: str) -> float:
        """Return the allowed error of quantized values of a dtype, in steps."""
        return max(self.steps, self.int16_steps) if dtype in _SIXTEEN_BITS else self.steps

    def mean_of_dtype(self, dtype: str) -> float:
        """Return the allowed mean absolute error of quantized values of a dtype, in steps."""
        return max(self.mean_steps, self.int16_mean_steps) if dtype in _SIXTEEN_BITS else self.mean_steps

    @classmethod
    def of(cls, model: Model) -> Tolerance:
        """Return the end-to-end tolerance of a model, larger for dynamic-range operators."""
        dynamic_range_operators = [op for graph in model.subgraphs for op in graph.operators if is_dynamic_range(op)]
        entries = {model.main.index, *(signature.subgraph for signature in model.signatures)}
        if any(op.subgraph not in entries or _is_stateful(op) for op in dynamic_range_operators):
            return cls(of_range=DEQUANTIZED_RECURRENT, int16_steps=NETWORK_INT16_STEPS)
        return cls(of_range=DYNAMIC_RANGE if dynamic_range_operators else NETWORK, int16_steps=NETWORK_INT16_STEPS)


ONE_STEP = Tolerance(steps=1)
"""A tolerance of one step for each quantized dtype, whose inherited error is the step itself."""


def _is_stateful(operator: Operator) -> bool:
    return any(tensor is not None and tensor.is_variable for tensor in operator.inputs)


def submodel_tolerance(
    operator_count: int, *, roundings: int = 1, recurrent: bool = False, dequantized: bool = False
) -> Tolerance:
    """Return the tolerance of a submodel.

    ``roundings``: number of operators that round to quantized values. ``recurrent``: the submodel has loops or recurrent
    layers. ``dequantized``: the ONNX model has float32 in place of quantized tensors.
    """
    of_range = RECURRENT if recurrent else GROUP if operator_count > 1 else OPERATOR
    if dequantized:
        of_range = DEQUANTIZED_RECURRENT if recurrent else RECURRENT
        return Tolerance(of_range=of_range, steps=DEQUANTIZED_STEPS, int16_steps=DEQUANTIZED_INT16_STEPS)
    steps = STEPS * max(roundings, 1)
    has_several_roundings = steps > STEPS
    return Tolerance(
        of_range=of_range,
        steps=steps,
        int16_steps=GROUP_STEPS_INT16 * steps if has_several_roundings else STEPS,
        mean_steps=GROUP_MEAN if has_several_roundings else math.inf,
        int16_mean_steps=GROUP_STEPS_INT16,
        by_channel=operator_count == 1 and not recurrent,
    )


def without_overflow(actual: Array, expected: Array, *, wide: bool) -> tuple[Array, Array]:
    """Return both arrays, with equal elements where the result is undefined.

    A result is undefined where float32 overflows, or where a sum of int16 products may have wrapped around. ``wide``: the
    operands are so large that only one of the runtimes may overflow.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return actual, expected
    if expected.dtype == np.int16:  # MultiplyByQuantizedMultiplier, internal/common.cc
        return np.where(np.isin(actual, (-(2**15), 2**15 - 1)), expected, actual), expected
    if expected.dtype.kind != "f" or (_magnitude(actual) < _OVERFLOWING and _magnitude(expected) < _OVERFLOWING):
        return actual, expected
    with np.errstate(invalid="ignore"):
        overflowed = ~(np.abs(expected) < _OVERFLOWING) | (wide & ~(np.abs(actual) < _OVERFLOWING))
    return (
        np.where(overflowed, 0, actual).astype(actual.dtype),
        np.where(overflowed, 0, expected).astype(expected.dtype),
    )


def largest_magnitude(arrays: Sequence[Array]) -> float:
    """Return the largest finite magnitude in float arrays; 0 if there is none."""
    return max((_finite_magnitude(array) for array in arrays if array.dtype.kind == "f"), default=0.0)


def _finite_magnitude(array: Array) -> float:
    largest = _magnitude(array)
    return largest if math.isfinite(largest) else _magnitude(array[np.isfinite(array)])


def _magnitude(array: Array) -> float:
    """Return the largest magnitude, without a copy; NaN if an element is NaN."""
    return max(float(array.max()), -float(array.min())) if array.size else 0.0
