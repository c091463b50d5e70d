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
        return _emit(scope, "Tanh", value)
    assert activation == "SIGN_BIT"
    return _emit(scope, "Cast", _emit(scope, "Less", value, 0.0), to="float32")


def clip_value(scope: Scope, value: ir.Value, low: float | None, high: float | None) -> ir.Value:
    """Return a value clipped to bounds; None is no bound."""
    if low is None and high is None:
        return value
    dtype = value.type.dtype.numpy() if value.type is not None else np.dtype(np.float32)
    if low == 0.0 and high is None and dtype.kind not in "iu":
        return _emit(scope, "Relu", value)
    needs_cast = dtype.kind in "iu" and not scope.target.has_kernel("Clip", dtype.name)
    computed_dtype = np.dtype(np.int32) if needs_cast else dtype
    bounds = [None if bound is None else np.asarray(bound, computed_dtype) for bound in (low, high)]
    if needs_cast:
        clipped = _emit(scope, "Clip", _emit(scope, "Cast", value, to="int32"), *bounds)
        return _emit(scope, "Cast", clipped, to=dtype.name)
    if dtype != np.int64:
        return _emit(scope, "Clip", value, *bounds)
    # ONNX Runtime's Clip reads only 32 bits of int64.
    for bound, comparison in zip(bounds, ("Less", "Greater"), strict=True):
        value = value if bound is None else _emit(scope, "Where", _emit(scope, comparison, value, bound), bound, value)
    return value


def _emit(scope: Scope, op_type: str, *inputs: Operand, **attributes: Any) -> ir.Value:
    return scope.emitter.emit(op_type, inputs, attributes)[0]
