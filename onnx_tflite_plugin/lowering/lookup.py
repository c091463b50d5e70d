"""Results looked up in tables, an entry for each stored integer, as kernels do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Instance
from onnx_tflite_plugin.guard import Mismatch
from onnx_tflite_plugin.lowering.emitter import own_value
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE
from onnx_tflite_plugin.source.model import Array, Dims

if TYPE_CHECKING:
    from onnx_tflite_plugin.lowering.context import Context


def results_by_table(ctx: Context, table: Callable[[Instance], Array]) -> ir.Value:
    """Output 0, looked up by input 0, both as they are stored. Raises Mismatch for a table of another size."""
    entries, (low, high) = np.asarray(table(ctx)), INTEGER_RANGE[ctx.op[0].dtype]
    if entries.shape != (high - low + 1,):
        raise Mismatch(f"its table has shape {list(entries.shape)}, {ctx.op[0].dtype} has {high - low + 1} integers")
    before, after = ctx.shifts
    if before or after:
        first, last = INTEGER_RANGE[ctx.dtype(0)]
        stored = np.concatenate([np.arange(0, last + 1), np.arange(first, 0)])
        entries = entries[stored - before].astype(np.int32) + after
    return picked(ctx, entries.astype(ctx.dtype(~0)), own_value(ctx.inputs[0]), ctx.shape(0))


def picked(ctx: Context, table: Array, indices: ir.Value, dims: Dims | None) -> ir.Value:
    """Entries by integers, which may be negative; ``dims`` is their shape, ``None`` where it is not known.

    ONNX Runtime's GatherElements takes 45 us for 50,000 numbers where its Gather takes 590 (the kernel 65), but wants a
    flat operand.
    """
    if indices.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        indices = ctx.node("Cast", indices, to="int32")
    if dims is None or dims.count(None) > 1 or 0 in dims:
        return ctx.node("Gather", table, indices)
    if len(dims) == 1:
        return ctx.node("GatherElements", table, indices, axis=0)
    entries = ctx.node("GatherElements", table, ctx.node("Reshape", indices, [-1]), axis=0)
    return ctx.node("Reshape", entries, [-1 if size is None else size for size in dims])
