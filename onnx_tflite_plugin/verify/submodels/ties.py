"""Operands without equal values, for operators that may reorder equal values.

A heap, for example, takes boxes of equal score in an order that depends on the other scores. If the results agree once equal
values are made distinct, the two runtimes differ only in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.inputs.random_inputs import can_reorder
from onnx_tflite_plugin.verify.runtimes.structure import operands
from onnx_tflite_plugin.verify.submodels.segment import Segment

_SMALLEST_STEP = 2.0**-100  # for values near 0; far above the denormals, which kernels may flush to 0


def sorted_operands(segment: Segment) -> list[int]:
    """Return the indices of float operands of operators that may reorder equal values."""
    tensors = (tensor for op in segment.operators if can_reorder(op) for tensor in operands(op))
    return sorted({tensor.index for tensor in tensors if tensor.dtype == "float32"})


def runner_without_ties(segment: Segment, index: int) -> Callable[[Mapping[int, Array]], Mapping[int, Array]]:
    """Return a function that runs LiteRT with distinct elements in one tensor.

    The first of several equal elements becomes the largest. The function takes operands and returns results by tensor
    index. Raises LiteRTError or InvalidModel.
    """
    is_operand = index in {*segment.inputs, *segment.operands}
    producing_session = None if is_operand else segment.litert(results=[index])
    session = segment.litert(extra_operands=[index])

    def run(arrays: Mapping[int, Array]) -> Mapping[int, Array]:
        values = arrays[index] if producing_session is None else producing_session.run(arrays)[index]
        return session.run({**arrays, index: without_ties(values)})

    return run


def without_ties(array: Array) -> Array:
    """Return the floats with repeated values made distinct.

    The k-th repetition of a value is lowered by k units in its last place.
    """
    values = np.asarray(array).reshape(-1)
    order = np.argsort(values, kind="stable")
    sorted_values = values[order]
    positions = np.arange(len(values))
    starts_group = np.ones(len(values), np.bool_)
    starts_group[1:] = sorted_values[1:] != sorted_values[:-1]
    repetitions = np.empty(len(values), np.float32)
    repetitions[order] = positions - np.maximum.accumulate(np.where(starts_group, positions, 0))
    step = np.maximum(np.spacing(np.abs(values)), np.float32(_SMALLEST_STEP))
    return np.asarray(values - repetitions * step, array.dtype).reshape(array.shape)
