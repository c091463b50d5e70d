"""What becomes of a handler's results: fused activation and the closing Q, placed so that the target's units fuse; checks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.activations import activation_bounds
from onnx_tflite_plugin.api.declarations import Instance
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.checked import described
from onnx_tflite_plugin.guard import BUILTIN, Mismatch
from onnx_tflite_plugin.lowering.activation import applied
from onnx_tflite_plugin.lowering.context import Context
from onnx_tflite_plugin.lowering.emitter import dtype_of, own_value
from onnx_tflite_plugin.lowering.lookup import picked
from onnx_tflite_plugin.lowering.values import FILE, STORED, Held, Resource, physical_dims
from onnx_tflite_plugin.quantization.activation import Clamp, stored_clamp
from onnx_tflite_plugin.quantization.delivery import uses_file_integers
from onnx_tflite_plugin.quantization.plan import Form, Storage
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE
from onnx_tflite_plugin.source.model import Array, Tensor, agree


class Contradicted(Refused):
    """A built-in handler's result is not what is stored of its tensor: the file's fault. ``field``: which output."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        super().__init__(reason)


def finished(ctx: Context, k: int, value: Held | None) -> ir.Value | None:
    """Activation, quantization, source order for what is indexed by axis, checks; then the tensor has its value."""
    tensor = ctx.op.tensor(~k)
    if tensor is None:
        return None
    if tensor.is_variable and tensor in ctx.scope.used:  # those who use what is known have a constant in its place
        text = f"it computes the variable tensor {tensor.name!r} in every run"
        raise Refused(f"{text}, which is implemented of constants only, for its first value")
    if value is None:
        if tensor in ctx.scope.used:
            raise Mismatch(f"it returned nothing for output {k}, which is used")
        return None
    if isinstance(value, Resource):
        ctx.scope.values.put(tensor, value, (), FILE)
        return None
    if not isinstance(value, ir.Value):
        raise Mismatch(f"it returned {described(value)} for output {k}, not a value; constants: ctx.constant_value")
    if not ctx.scope.emitter.owns(value):
        raise Mismatch(f"it returned {value.name!r} for output {k}, which is no value of this model")
    form = FILE if affine(tensor) is not None and uses_file_integers(ctx.scope.storage, ctx.bound, ~k) else STORED
    reshapes = ~k in ctx.bound.declared.reshapes
    if reshapes and not ctx.target.clips_integers:
        value = ctx.reshaped(value, ~k)
    value = activated(ctx, value, k)
    if reshapes and ctx.target.clips_integers:
        value = ctx.reshaped(value, ~k)
    value = _as_kept(ctx, ~k, _unindexed(ctx, ~k, value))
    _check(ctx, value, tensor, form, k)
    _check_shape(ctx, value, tensor, k)
    ctx.scope.values.put(tensor, value, ctx.order(~k), form)
    return value


def _as_kept(ctx: Context, slot: int, value: ir.Value) -> ir.Value:
    """A result whose integers are kept otherwise than those of the first; the same numbers."""
    delivered, own = ctx.storage(slot), ctx.scope.storage.storage(ctx.op[slot])
    if uses_file_integers(ctx.scope.storage, ctx.bound, slot) or delivered.shift == own.shift:
        return value
    return ctx.scope.values.converted(value, delivered, own, ctx.order(slot))


def _unindexed(ctx: Context, slot: int, value: ir.Value) -> ir.Value:
    of = ctx.bound.declared.indexed_by_axis.get(slot)
    if of is None:
        return value
    perm = ctx.perm(of)
    back = [perm.index(axis) for axis in range(len(perm))]
    if back == sorted(back):
        return value
    if value.const_value is not None:
        return ctx.scope.emitter.constant(value.const_value.numpy()[back])
    return ctx.node("Gather", value, back, axis=0)


def _check(ctx: Context, value: ir.Value, tensor: Tensor, form: Form, k: int) -> None:
    storage = ctx.scope.storage.storage(tensor)
    wanted = dtype_of(storage.dtype if form is STORED else tensor.dtype)
    returned = value.type.dtype if value.type is not None else wanted
    if returned != wanted:
        raise _of_another_dtype(ctx, returned, tensor, wanted, k)


def _of_another_dtype(ctx: Context, returned: ir.DataType, tensor: Tensor, wanted: ir.DataType, k: int) -> Exception:
    """What a result that does not fit its tensor is refused as: by the file's fault, or by a pack's."""
    if ctx.bound.pack != BUILTIN:
        return Mismatch(f"output {k} is {returned.name.lower()}, the tensor is {wanted.name.lower()}")
    reason = f"tensor {tensor} is {tensor.dtype}, {ctx.op.code} of these operands gives {returned.name.lower()}"
    return Contradicted(f"outputs[{k}]", reason)


def _check_shape(ctx: Context, value: ir.Value, tensor: Tensor, k: int) -> None:
    """A result that is an operand, or a constant, has a shape already, which must be the tensor's."""
    dims = physical_dims(tensor, ctx.order(~k))
    if ctx.bound.pack != BUILTIN or value.shape is None or dims is None:
        return
    given = [size if isinstance(size, int) else None for size in value.shape]
    if not agree(given, dims):
        raise Contradicted(f"outputs[{k}]", f"tensor {tensor} is of shape {list(dims)}, {given} follows")


def activated(ctx: Context, value: ir.Value, k: int) -> ir.Value:
    """A handler's result with its fused activation applied, in storage form where the tensor is quantized."""
    declared = ctx.bound.declared
    activation = "NONE" if declared.activates_inside else declared.activation
    if affine(ctx.op[~k]) is None:
        return applied(ctx.scope, value, activation)
    storage = ctx.storage(~k)
    assert storage.quantization is not None
    integers = value.type is not None and value.type.dtype == dtype_of(storage.dtype)
    if activation_bounds(activation) is None and not integers:
        return ctx.scope.values.quantize(applied(ctx.scope, value, activation), storage, ctx.order(~k))
    clamp = stored_clamp(activation, storage.dtype, storage.quantization)
    if integers:
        return clamped(ctx, value, clamp, storage)
    if value.type is not None and value.type.dtype == ir.DataType.BOOL:  # which nothing quantizes
        raise _of_another_dtype(ctx, value.type.dtype, ctx.op[~k], dtype_of(storage.dtype), k)
    clips_after = ctx.target.clips_integers and ctx.target.has_kernel("Clip", storage.dtype)
    if not clips_after and not clamp.idle:
        value = applied(ctx.scope, value, activation)
    value = ctx.scope.values.quantize(value, storage, ctx.order(~k))
    return clamped(ctx, value, clamp, storage) if clips_after else value


def clamped(ctx: Context, value: ir.Value, clamp: Clamp, storage: Storage) -> ir.Value:
    """Clip stored integers."""
    if clamp.idle:
        return value
    least, most = INTEGER_RANGE[storage.dtype]
    low, high = least if clamp.low is None else clamp.low, most if clamp.high is None else clamp.high
    if ctx.target.has_kernel("Clip", storage.dtype):
        return ctx.node("Clip", value, np.asarray(low, storage.dtype), np.asarray(high, storage.dtype))
    wide = ctx.node(
        "Clip", own_value(ctx.ops.Cast(value, to="int32")), np.asarray(low, np.int32), np.asarray(high, np.int32)
    )
    return own_value(ctx.ops.Cast(wide, to=storage.dtype))


def results_by_table(ctx: Context, table: Callable[[Instance], Array]) -> ir.Value:
    """Output 0, looked up by input 0, both as they are stored. Raises Mismatch for a table of another size."""
    entries, (low, high) = np.asarray(table(ctx)), INTEGER_RANGE[ctx.op[0].dtype]
    if entries.shape != (high - low + 1,):
        raise Mismatch(f"its table has shape {list(entries.shape)}, {ctx.op[0].dtype} has {high - low + 1} integers")
    before, after = ctx.storage(0).shift, ctx.storage(~0).shift
    if before or after:
        first, last = INTEGER_RANGE[ctx.dtype(0)]
        stored = np.concatenate([np.arange(0, last + 1), np.arange(first, 0)])
        entries = entries[stored - before].astype(np.int32) + after
    return picked(ctx.scope.emitter, entries.astype(ctx.dtype(~0)), own_value(ctx.inputs[0]), ctx.shape(0))
