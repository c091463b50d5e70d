"""Every tolerance of a verification, each with the measurement that justifies it.

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
"""Share of the range, for one float32 operator. Maximum errors: ONNX Runtime 1.9e-5, LiteRT's kernel sets among themselves 1e-5."""
GROUP = 1e-4
"""Share of the range, for several float32 operators between cut values. Maximum error: 7.3e-5."""
RECURRENT = 1e-3
"""Share of the range, for loops and recurrent layers, which feed their own rounding back. Maximum error: 9.6e-4."""
KERNELS = {"Sigmoid": 3 * 2.0**-24}
"""Absolute errors of float32 kernels of ONNX Runtime. A sigmoid is computed as 0.5 plus a quotient of polynomials. A result near 0
therefore has the rounding error of 0.5, up to three units in its last place. Below -18 the result is 0 (MlasComputeLogistic,
mlas/lib/logistic.cpp).
"""
ROUNDED = 2
"""Number of activations per result that dynamic quantization may round to a neighboring step.

The last bit of the scale decides how a halfway value is rounded. The number applies once more for each operator of a
submodel that combines two computed tensors. Maximum error, of a rotated row: 1.05 steps.
"""
CANCELLATION = 2.0**-18
"""Absolute error as a share of the largest operand: rounding of float32 sums whose terms cancel out."""
RESIDUE = 2.0**-20
"""Absolute error as a share of the largest result, for a channel whose values are far smaller than those of other channels."""
PERTURBED = 4
"""Error as a multiple of the change in LiteRT's result if the last bit of each operand changes.

The result can consist of rounding errors only, as the spectrum of silence does.
"""
MAX_PERTURBED = 2.0**-12
"""Upper limit of the error that PERTURBED allows, as a share of the largest operand. An error of a discontinuous operator, such as
FLOOR_DIV, exceeds it.
"""
SUMMED = 2
"""Error as a multiple of the rounding error of a float32 sum that is added term by term, as in LiteRT. ONNX Runtime's error is
smaller.
"""
PRODUCT = 2**-23
"""Rounding of two products of an integer and a scale, as a share of the range: half a unit in the last place each."""
STEPS = 1
"""Quantization steps. XNNPACK and builtin kernels differ by 1 step in up to 65 % of elements (MEAN), never by 2."""
NEAREST = 0.5 + 2**-6
"""Error of a float result rounded to the nearest step, in steps, with the rounding of float32."""
GROUP_MEAN = 0.5
"""Mean absolute error after several operators that round, in steps. Measured after three 8-bit convolutions: 0.03."""
GROUP_STEPS_INT16 = 2
"""Steps per operator that rounds to 16 bits, if several do, and limit of the mean absolute error.

LiteRT's kernel interpolates LOGISTIC between samples, so most elements are off by one step; a following MUL can double this.
Measured after both: mean 1.8, maximum 3. Two steps are 3e-5 of the range, less than the tolerance of a float32 operator.
"""
BIAS = 0.75
"""Mean error, in steps, of a tensor whose tolerance is one step. It also applies to a 16-bit channel and to a whole network."""
CHANNEL_BIAS = 0.25
"""Mean error of an 8-bit channel of at least 32 elements, in steps."""
FEW_STEPS = 16
"""Range in steps below which a tensor is a low-information output: a softmax of 1000 classes has only values 0 and 1."""
FEW_STEPS_MEAN = 0.25
"""Mean absolute error of such a tensor, in steps: LiteRT's kernel sets differ by 0 in SOFTMAX, LOGISTIC and TANH."""
ROUNDING_BIAS = 0.3
"""Mean error of quantized results below the zero point, and of those above it, in steps, for conformance cases.

The error is 0.5 if one model rounds down or toward zero instead of to nearest. Maximum over the 2395 quantized outputs of the
built-in cases: 0.16, of an int16 RESIZE_BILINEAR with many halfway values.
"""
DEQUANTIZED_STEPS = 3
"""Steps, if the ONNX model has float32 in place of quantized tensors: LiteRT's kernels rescale in fixed point."""
DEQUANTIZED_RECURRENT = 5e-2
"""Share of the range, float32 in place of loops that round to 8 bits. Error of an LSTM of 67 cells after 7 time steps: 0.022."""
DEQUANTIZED_INT16_STEPS = 200
"""Steps, float32 in place of int16: LiteRT's kernels read some functions from tables."""

# --- a whole model, end to end ----------------------------------------------------------------

NETWORK = 1e-3
"""Share of the range of a float output."""
NETWORK_INT16_STEPS = 16
"""Steps of int16 activations. LiteRT's kernels round a convolution's multiplier to 16 bits, which changes one result of 20 by one
step (MultiplyByQuantizedMultiplier, internal/common.cc). Maximum error of a ResNet50: 15 steps.
"""
DYNAMIC_RANGE = 2e-2
"""Share of the range of a float output, if kernels round activations to 8 bits."""

STEPPED = {"int8", "uint8", "int16", "uint16"}
"""The dtypes of quantized activations, which are compared in quantization steps."""

_SIXTEEN_BITS = {"int16", "uint16"}
_OVERFLOWING = 2.0**100  # magnitude beyond which products of float32 may overflow


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allowed error by the dtype of an output.

    ``of_range``: share of the range of a float output. ``steps``: quantization steps of int8, uint8, int16 and uint16.
    ``int16_steps``: steps of int16 and uint16, if larger than ``steps``. ``mean_steps``: mean absolute error in steps, and
    ``int16_mean_steps`` the same for int16 and uint16, if larger. ``integers``: difference of wider
    integers, booleans and text. ``by_channel``: check each channel too. Then ``of_range`` is also a share of the range of
    the channel, and an 8-bit channel may have less bias than a tensor.
    ``rounding_bias``: mean error of the quantized values on each side of the zero point, in steps, if one step is allowed.
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


def _is_stateful(operator: Operator) -> bool:
    return any(tensor is not None and tensor.is_variable for tensor in operator.inputs)


def submodel_tolerance(
    operators: int, *, roundings: int = 1, recurrent: bool = False, dequantized: bool = False
) -> Tolerance:
    """Return the tolerance of a submodel with this number of operators.

    ``roundings``: how many of them round to quantized values. ``recurrent``: it has loops or recurrent layers.
    ``dequantized``: the ONNX model has float32 in place of quantized tensors.
    """
    share = RECURRENT if recurrent else GROUP if operators > 1 else OPERATOR
    if dequantized:
        share = DEQUANTIZED_RECURRENT if recurrent else RECURRENT
        return Tolerance(of_range=share, steps=DEQUANTIZED_STEPS, int16_steps=DEQUANTIZED_INT16_STEPS)
    steps = STEPS * max(roundings, 1)
    has_several_roundings = steps > STEPS
    return Tolerance(
        of_range=share,
        steps=steps,
        int16_steps=GROUP_STEPS_INT16 * steps if has_several_roundings else STEPS,
        mean_steps=GROUP_MEAN if has_several_roundings else math.inf,
        int16_mean_steps=GROUP_STEPS_INT16,
        by_channel=operators == 1 and not recurrent,
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


def largest_of(arrays: Sequence[Array]) -> float:
    """Return the largest finite magnitude in float arrays; 0 if there is none."""
    return max((_finite_magnitude(array) for array in arrays if array.dtype.kind == "f"), default=0.0)


def _finite_magnitude(array: Array) -> float:
    largest = _magnitude(array)
    return largest if math.isfinite(largest) else _magnitude(array[np.isfinite(array)])


def _magnitude(array: Array) -> float:
    """Return the largest magnitude, without a copy; NaN if an element is NaN."""
    return max(float(array.max()), -float(array.min())) if array.size else 0.0
