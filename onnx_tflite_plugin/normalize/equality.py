"""Equality of operators as far as the shapes of their results are concerned: layers of a network repeat."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod

from onnx_tflite_plugin.codes import has_custom_name
from onnx_tflite_plugin.source.model import Operator, Tensor

MOST_NUMBERS = 64  # heuristic: elements of a tensor of sizes; larger tensors are data


def reads_no_subgraph(op: Operator) -> bool:
    """True if no option of an operator of the schema names a subgraph."""
    return not has_custom_name(op.code) and not any("subgraph" in name for name in op.options)


def describe_shapes(op: Operator) -> Hashable:
    """Return a key of the properties that determine the result shapes of an operator."""
    operands = [
        t and (t.dims, t.dtype, t.has_rank, t.is_constant, t.is_variable, repr(t.quantization), _content(t))
        for t in (*op.inputs, *op.outputs)
    ]
    slots = [op.inputs.index(t) for t in op.inputs]  # equal operands
    options = repr(sorted(op.options.items(), key=str))
    return op.code, op.version, options, op.custom_options, tuple(slots), tuple(operands)


def _content(tensor: Tensor) -> Hashable:
    """Return the values of a small constant, and the identity of a large one."""
    if not tensor.is_constant:
        return None
    return tensor.array.tobytes() if prod(tensor.shape) <= MOST_NUMBERS and tensor.dtype != "string" else tensor.data
