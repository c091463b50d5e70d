"""Keys of operators; operators with equal keys have equal result shapes."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod

from onnx_tflite_plugin.codes import has_custom_name
from onnx_tflite_plugin.source.model import Operator, Tensor

MAX_SIZES = 64
"""Heuristic: maximum elements of a constant with sizes or axes; larger constants are data."""


def reads_no_subgraph(op: Operator) -> bool:
    """True for a builtin operator without a subgraph among its options."""
    return not has_custom_name(op.code) and not any("subgraph" in name for name in op.options)


def shape_key(op: Operator) -> Hashable:
    """Return a key of an operator; equal keys imply equal result shapes."""
    operands = [
        t and (t.dims, t.dtype, t.has_rank, t.is_constant, t.is_variable, repr(t.quantization), _value_key(t))
        for t in (*op.inputs, *op.outputs)
    ]
    slots = [op.inputs.index(t) for t in op.inputs]  # first slot of each operand, which identifies repeated operands
    options = repr(sorted(op.options.items(), key=str))
    return op.code, op.version, options, op.custom_options, tuple(slots), tuple(operands)


def _value_key(tensor: Tensor) -> Hashable:
    """Return the values of a small constant, or the identity of a large constant."""
    if not tensor.is_constant:
        return None
    return tensor.array.tobytes() if prod(tensor.shape) <= MAX_SIZES and tensor.dtype != "string" else tensor.data
