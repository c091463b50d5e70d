"""Fused activations of values that are not quantized."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.activations import activation_bounds
from onnx_tflite_plugin.lowering.emitter import Operand
from onnx_tflite_plugin.lowering.scope import Scope


def apply_activation(scope: Scope, value: ir.Value, activation: str) -> ir.Value:
    """Return a value with a fused activation applied."""
    bounds = activation_bounds(activation)
    if bounds is not None:
        return clip_value(scope, value, *bounds)
    if activation == "TANH":
        return _node(scope, "Tanh", value)
    assert activation == "SIGN_BIT"
    return _node(scope, "Cast", _node(scope, "Less", value, 0.0), to="float32")


def clip_value(scope: Scope, value: ir.Value, low: float | None, high: float | None) -> ir.Value:
    """Return a value clipped to bounds."""
    if low is None and high is None:
        return value
    dtype = value.type.dtype.numpy() if value.type is not None else np.dtype(np.float32)
    if low == 0.0 and high is None and dtype.kind not in "iu":
        return _node(scope, "Relu", value)
    narrow = dtype.kind in "iu" and not scope.target.has_kernel("Clip", dtype.name)
    kept = np.dtype(np.int32) if narrow else dtype
    bounds = [None if bound is None else np.asarray(bound, kept) for bound in (low, high)]
    if narrow:
        wide = _node(scope, "Clip", _node(scope, "Cast", value, to="int32"), *bounds)
        return _node(scope, "Cast", wide, to=dtype.name)
    if dtype != np.int64:
        return _node(scope, "Clip", value, *bounds)
    for bound, beyond in zip(
        bounds, ("Less", "Greater"), strict=True
    ):  # ONNX Runtime's Clip reads only 32 bits of int64
        value = value if bound is None else _node(scope, "Where", _node(scope, beyond, value, bound), bound, value)
    return value


def _node(scope: Scope, op_type: str, *inputs: Operand, **attributes: Any) -> ir.Value:
    return scope.emitter.emit(op_type, inputs, attributes)[0]
