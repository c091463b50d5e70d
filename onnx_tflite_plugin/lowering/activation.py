"""Fused activations and the closing Q, placed so that the target's units fuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.lowering.emitter import dtype_of
from onnx_tflite_plugin.quantization.activation import Clamp, stored_clamp
from onnx_tflite_plugin.quantization.plan import Arithmetic, Storage, file_storage
from onnx_tflite_plugin.source.activations import BOUNDS
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE
from onnx_tflite_plugin.source.model import Tensor

if TYPE_CHECKING:
    from onnx_tflite_plugin.lowering.context import Context


def activated(ctx: Context, value: ir.Value, tensor: Tensor) -> ir.Value:
    """A handler's result with its fused activation applied, in storage form where the tensor is quantized."""
    activation = ctx.bound.declared.activation
    if affine(tensor) is None:
        return bounded(ctx, value, *BOUNDS.get(activation, (None, None)))
    storage = file_storage(tensor) if ctx.arithmetic is Arithmetic.FILE else ctx.scope.storage.storage(tensor)
    assert storage.quantization is not None
    clamp = stored_clamp(activation, storage.dtype, storage.quantization)
    integers = value.type is not None and value.type.dtype == dtype_of(storage.dtype)
    if integers:
        return clamped(ctx, value, clamp, storage)
    clips_after = ctx.target.clips_integers and ctx.target.has_kernel("Clip", storage.dtype)
    if not clips_after and not clamp.idle:
        value = bounded(ctx, value, *BOUNDS[activation])
    value = ctx.scope.values.quantize(value, storage, ctx.order(~ctx.op.outputs.index(tensor)))
    return clamped(ctx, value, clamp, storage) if clips_after else value


def bounded(ctx: Context, value: ir.Value, low: float | None, high: float | None) -> ir.Value:
    """Clip real (or unquantized integer) numbers."""
    if low is None and high is None:
        return value
    dtype = value.type.dtype.numpy() if value.type is not None else np.dtype(np.float32)
    if low == 0.0 and high is None and dtype.kind not in "iu":
        return ctx.ops.Relu(value)  # type: ignore[no-any-return]
    bounds = [None if bound is None else np.asarray(bound, dtype) for bound in (low, high)]
    return ctx.ops.Clip(value, *bounds)  # type: ignore[no-any-return]


def clamped(ctx: Context, value: ir.Value, clamp: Clamp, storage: Storage) -> ir.Value:
    """Clip stored integers."""
    if clamp.idle:
        return value
    least, most = INTEGER_RANGE[storage.dtype]
    low, high = least if clamp.low is None else clamp.low, most if clamp.high is None else clamp.high
    return ctx.ops.Clip(value, np.asarray(low, storage.dtype), np.asarray(high, storage.dtype))  # type: ignore[no-any-return]
