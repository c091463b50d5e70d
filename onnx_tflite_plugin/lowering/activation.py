"""Fused activations of values that are not quantized, float or integer."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.activations import activation_bounds
from onnx_tflite_plugin.lowering.planned import Planned


def applied(ctx: Planned, value: ir.Value, activation: str) -> ir.Value:
    """Return a value with a fused activation applied."""
    bounds = activation_bounds(activation)
    if bounds is not None:
        return bounded(ctx, value, *bounds)
    if activation == "TANH":
        return ctx.node("Tanh", value)
    assert activation == "SIGN_BIT"
    return ctx.node("Cast", ctx.node("Less", value, 0.0), to="float32")


def bounded(ctx: Planned, value: ir.Value, low: float | None, high: float | None) -> ir.Value:
    """Return a value clipped to bounds."""
    if low is None and high is None:
        return value
    dtype = value.type.dtype.numpy() if value.type is not None else np.dtype(np.float32)
    if low == 0.0 and high is None and dtype.kind not in "iu":
        return ctx.node("Relu", value)
    narrow = dtype.kind in "iu" and not ctx.target.has_kernel("Clip", dtype.name)
    kept = np.dtype(np.int32) if narrow else dtype
    bounds = [None if bound is None else np.asarray(bound, kept) for bound in (low, high)]
    if narrow:
        wide = ctx.node("Clip", ctx.node("Cast", value, to="int32"), *bounds)
        return ctx.node("Cast", wide, to=dtype.name)
    if dtype != np.int64:
        return ctx.node("Clip", value, *bounds)
    for bound, beyond in zip(bounds, ("Less", "Greater"), strict=True):  # ONNX Runtime's Clip looks at 32 bits of int64
        value = value if bound is None else ctx.node("Where", ctx.node(beyond, value, bound), bound, value)
    return value
