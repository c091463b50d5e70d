"""Post-processing of handler outputs: activation, quantization, and checks.

Quantization comes last, because targets fuse a final QuantizeLinear into the operator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.activations import activation_bounds
from onnx_tflite_plugin.api.declarations import Instance
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.checked import describe
from onnx_tflite_plugin.guard import BUILTIN, WrongResult, attribute_errors
from onnx_tflite_plugin.lowering.activation import apply_activation
from onnx_tflite_plugin.lowering.arrays import physical_dims
from onnx_tflite_plugin.lowering.context import Context
from onnx_tflite_plugin.lowering.ir_values import onnx_dtype, require_value
from onnx_tflite_plugin.lowering.lookup import gather_entries
from onnx_tflite_plugin.lowering.values import FILE, STORED, Resource, ValueOrResource
from onnx_tflite_plugin.quantization.activation import Clamp, quantized_clamp_bounds
from onnx_tflite_plugin.quantization.handler_inputs import uses_file_integers
from onnx_tflite_plugin.quantization.storage import Encoding, Storage, data_slots
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE, QUANTIZED
from onnx_tflite_plugin.source.model import Array, Quantization, Tensor, agree


class ResultContradiction(Refusal):
    """The output of a built-in handler contradicts the tensor in the file.

    The file is then wrong. ``field``: the output in the file, such as ``outputs[0]``.
    """

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        super().__init__(reason)


def finish_output(ctx: Context, k: int, value: ValueOrResource | None) -> ir.Value | None:
    """Post-process, check and assign an output, and return its value.

    Post-processing applies the activation and quantizes. Outputs with one entry per axis, such as a shape, get the axis
    order of the file.
    """
    tensor = ctx.op.tensor(~k)
    if tensor is None:
        return None
    if value is None:
        if tensor in ctx.scope.used_tensors:
            raise WrongResult(f"the lowering returned None for output {k}, which is used; is a `return` missing?")
        return None
    if isinstance(value, Resource):
        ctx.scope.values.put(tensor, value, (), FILE)
        return None
    if not isinstance(value, ir.Value):
        remedy = "make constants with ctx.constant_value"
        if isinstance(value, np.ndarray) and value.dtype == object:
            remedy = "a NumPy function was applied to an ONNX value; use ctx.ops instead"
        raise WrongResult(f"the lowering returned {describe(value)} for output {k}, not a value; {remedy}")
    if not ctx.scope.emitter.is_registered(value):
        raise WrongResult(f"the lowering returned {value.name!r} for output {k}, which is not a value of this model")
    encoding = FILE if affine(tensor) is not None and uses_file_integers(ctx.scope.storage, ctx.bound, ~k) else STORED
    is_reshaped = ~k in ctx.bound.declared.reshapes
    # A target that clips integers reshapes the quantized values, so that the activation follows the operator directly.
    if is_reshaped and not ctx.target.clips_integers:
        value = ctx.reshape_to_slot(value, ~k)
    _check_quantizable(ctx, value, tensor, k)
    value = activate_output(ctx, value, k)
    if is_reshaped and ctx.target.clips_integers:
        value = ctx.reshape_to_slot(value, ~k)
    value = _convert_to_planned_storage(ctx, ~k, _restore_axis_order(ctx, ~k, value))
    _check_dtype(ctx, value, tensor, encoding, k)
    _check_shape(ctx, value, tensor, k)
    if tensor.fake_quantization is not None and not _is_fake_quantized(ctx, tensor.fake_quantization):
        value = ctx.scope.conversions.fake_quantize(value, tensor.fake_quantization, ctx.layout(~k))
    ctx.scope.put(tensor, value, ctx.layout(~k), encoding)
    return value


def _convert_to_planned_storage(ctx: Context, slot: int, value: ir.Value) -> ir.Value:
    """Return an output in the storage that is planned for its tensor.

    A handler returns all outputs in the storage of its first output.
    """
    handler_storage, planned_storage = ctx.storage(slot), ctx.scope.storage.storage(ctx.op[slot])
    if uses_file_integers(ctx.scope.storage, ctx.bound, slot) or handler_storage.shift == planned_storage.shift:
        return value
    return ctx.scope.conversions.requantize(value, handler_storage, planned_storage, ctx.layout(slot))


def _is_fake_quantized(ctx: Context, quantization: Quantization) -> bool:
    """True if the operator moves values that are already rounded to ``quantization``."""
    operands = [ctx.op[slot] for slot in data_slots(ctx.bound) if slot >= 0 and ctx.op[slot].dtype == "float32"]
    return ctx.bound.declared.quantization.moves_values and all(t.fake_quantization == quantization for t in operands)


def _restore_axis_order(ctx: Context, slot: int, value: ir.Value) -> ir.Value:
    """Return an output with one entry per axis, such as a shape, in file order."""
    indexed_slot = ctx.bound.declared.indexed_by_axis.get(slot)
    if indexed_slot is None:
        return value
    perm = ctx.perm(indexed_slot)
    inverse = [perm.index(axis) for axis in range(len(perm))]
    if inverse == sorted(inverse):
        return value
    if value.const_value is not None:
        return ctx.scope.emitter.constant(value.const_value.numpy()[inverse])
    return ctx.node("Gather", value, inverse, axis=0)


def _check_quantizable(ctx: Context, value: ir.Value, tensor: Tensor, k: int) -> None:
    """Raise WrongResult if a pack's output must be quantized but is not.

    The host quantizes float32 outputs, but not if the declaration requires quantized values.
    """
    dtype = None if value.type is None else value.type.dtype
    if ctx.bound.pack == BUILTIN or dtype is None or affine(tensor) is None:
        return
    quantizes = ~k in ctx.bound.declared.output_quantization or not (ctx.uses_integers and ctx.target.moves_integers)
    if dtype is ir.DataType.FLOAT and not quantizes:
        declared = type(ctx.bound.declared.quantization).__name__
        remedy = f"return quantized values, for example by ctx.quantize(value, like=out({k})), or declare Dequantized()"
        raise WrongResult(
            f"output {k} is float32, but with quantization={declared}(...) it must hold the quantized values of "
            f"{tensor.name!r}, {ctx.dtype(~k)}; {remedy}"
        )
    if dtype not in (ir.DataType.FLOAT, onnx_dtype(ctx.dtype(~k))):
        dtype_to_return = "float32" if quantizes else ctx.dtype(~k)
        reason = "the converter quantizes float32; " if quantizes else ""
        raise WrongResult(
            f"output {k} is {_dtype_name(dtype)}, but its tensor {tensor.name!r} is {tensor.dtype}; "
            f"{reason}convert it with ctx.ops.Cast(value, to={dtype_to_return!r})"
        )


def _check_dtype(ctx: Context, value: ir.Value, tensor: Tensor, encoding: Encoding, k: int) -> None:
    """Raise an error if the output's dtype is not the tensor's."""
    storage = ctx.scope.storage.storage(tensor)
    tensor_dtype = onnx_dtype(storage.dtype if encoding is STORED else tensor.dtype)
    value_dtype = value.type.dtype if value.type is not None else tensor_dtype
    if value_dtype != tensor_dtype:
        raise _dtype_error(ctx, value_dtype, tensor, tensor_dtype, k)


def _dtype_error(
    ctx: Context, value_dtype: ir.DataType, tensor: Tensor, tensor_dtype: ir.DataType, k: int
) -> Exception:
    """Return the error for an output whose dtype is not the tensor's.

    A pack's error is attributed to the pack, a built-in handler's to the file.
    """
    if ctx.bound.pack != BUILTIN:
        return WrongResult(_describe_wrong_dtype(_dtype_name(value_dtype), tensor, _dtype_name(tensor_dtype), k))
    reason = (
        f"tensor {tensor} is {tensor.dtype}, but {ctx.op.code} returns {_dtype_name(value_dtype)} for these operands"
    )
    return ResultContradiction(f"outputs[{k}]", reason)


def _describe_wrong_dtype(value_dtype: str, tensor: Tensor, tensor_dtype: str, k: int) -> str:
    """Return a message about a wrong output dtype, for the author of a handler."""
    if tensor.dtype in QUANTIZED and affine(tensor) is None and value_dtype.startswith("float"):
        return (
            f"output {k}, {tensor.name!r}, is {tensor.dtype} without scale and zero point in the file, so the "
            f"{value_dtype} result cannot be quantized; give the tensor a scale, or return {tensor_dtype}"
        )
    remedy = f"convert it with ctx.ops.Cast(value, to={tensor_dtype!r})"
    return f"output {k} is {value_dtype}, but its tensor {tensor.name!r} is {tensor_dtype}; {remedy}"


def _dtype_name(dtype: ir.DataType) -> str:
    name = dtype.name.lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def _check_shape(ctx: Context, value: ir.Value, tensor: Tensor, k: int) -> None:
    """Raise ResultContradiction if an output's known shape is not the tensor's."""
    dims = physical_dims(tensor, ctx.layout(~k))
    if ctx.bound.pack != BUILTIN or value.shape is None or dims is None:
        return
    output_dims = [size if isinstance(size, int) else None for size in value.shape]
    if not agree(output_dims, dims):
        raise ResultContradiction(
            f"outputs[{k}]", f"tensor {tensor} has shape {list(dims)}, but the operator's output has {output_dims}"
        )


def activate_output(ctx: Context, value: ir.Value, k: int) -> ir.Value:
    """Apply the fused activation to an output; quantize it if its tensor is quantized."""
    declared = ctx.bound.declared
    activation = "NONE" if declared.activation_in_lowering else declared.activation
    if affine(ctx.op[~k]) is None:
        return apply_activation(ctx.scope, value, activation)
    storage, conversions = ctx.storage(~k), ctx.scope.conversions
    assert storage.quantization is not None
    is_quantized = value.type is not None and value.type.dtype == onnx_dtype(storage.dtype)
    if activation_bounds(activation) is None and not is_quantized:
        return conversions.quantize(apply_activation(ctx.scope, value, activation), storage, ctx.layout(~k))
    clamp = quantized_clamp_bounds(activation, storage.dtype, storage.quantization)
    if is_quantized:
        return clamp_integers(ctx, value, clamp, storage)
    if value.type is not None and value.type.dtype == ir.DataType.BOOL:  # no target quantizes it
        raise _dtype_error(ctx, value.type.dtype, ctx.op[~k], onnx_dtype(storage.dtype), k)
    clips_quantized = ctx.target.clips_integers and ctx.target.has_kernel("Clip", storage.dtype)
    if not clips_quantized and not clamp.is_idle:
        # Some targets need Q and DQ before the activation too. Rounding and clipping are monotonic, so that the extra
        # rounding changes no result.
        if ctx.target.quantizes_moves:
            value = conversions.dequantize(
                conversions.quantize(value, storage, ctx.layout(~k)), storage, ctx.layout(~k)
            )
        value = apply_activation(ctx.scope, value, activation)
    value = conversions.quantize(value, storage, ctx.layout(~k))
    return clamp_integers(ctx, value, clamp, storage) if clips_quantized else value


def clamp_integers(ctx: Context, value: ir.Value, clamp: Clamp, storage: Storage) -> ir.Value:
    """Return quantized values clipped to the bounds of ``clamp``."""
    if clamp.is_idle:
        return value
    lowest, highest = INTEGER_RANGE[storage.dtype]
    low, high = lowest if clamp.low is None else clamp.low, highest if clamp.high is None else clamp.high
    if ctx.target.has_kernel("Clip", storage.dtype):
        return ctx.node("Clip", value, np.asarray(low, storage.dtype), np.asarray(high, storage.dtype))
    clipped = ctx.node(
        "Clip", require_value(ctx.ops.Cast(value, to="int32")), np.asarray(low, np.int32), np.asarray(high, np.int32)
    )
    return require_value(ctx.ops.Cast(clipped, to=storage.dtype))


def emit_table_lookup(ctx: Context, table: Callable[[Instance], Array]) -> ir.Value:
    """Return output 0: the table entry for each quantized value of input 0.

    Raises Failed if ``table`` fails or returns an invalid table.
    """
    function = f"table of Lookup declared by handler {ctx.bound.handler.name}"
    with attribute_errors(function, ctx.bound.pack, table, ctx.bound.label, expected=(Refusal,)):
        entries = _table_entries(ctx, table)
    return gather_entries(ctx.scope.emitter, entries.astype(ctx.dtype(~0)), require_value(ctx.inputs[0]), ctx.shape(0))


def _table_entries(ctx: Context, table: Callable[[Instance], Array]) -> Array:
    """Return the entries of a lookup table, converted to the planned dtypes.

    Raises WrongResult if the table has a wrong size, or values outside the range of output 0's dtype.
    """
    table_result = table(ctx)
    if not isinstance(table_result, np.ndarray | list | tuple):
        raise WrongResult(f"it returned {describe(table_result)}, not an array")
    entries, (low, high) = np.asarray(table_result), INTEGER_RANGE[ctx.op[0].dtype]
    if entries.shape != (high - low + 1,):
        raise WrongResult(
            f"the lookup table has shape {list(entries.shape)}, but {ctx.op[0].dtype} has {high - low + 1} values"
        )
    dtype = ctx.op[~0].dtype
    lowest, highest = INTEGER_RANGE[dtype]
    if entries.dtype.kind not in "iu" or entries.min() < lowest or entries.max() > highest:
        values = f"{entries.dtype} values from {entries.min()} to {entries.max()}"
        raise WrongResult(f"the lookup table has {values}, but output 0 is {dtype}; return a table of {dtype} values")
    input_shift, output_shift = ctx.storage(0).shift, ctx.storage(~0).shift
    if input_shift or output_shift:
        first, last = INTEGER_RANGE[ctx.dtype(0)]
        # The order is 0, 1, ..., -2, -1, so that a negative input indexes the table from its end.
        stored_inputs = np.concatenate([np.arange(0, last + 1), np.arange(first, 0)])
        entries = entries[stored_inputs - input_shift].astype(np.int32) + output_shift
    return entries
