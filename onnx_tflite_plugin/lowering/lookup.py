"""Lookup of table entries by integer indices."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_tflite_plugin.api.roles import NamedArray, named
from onnx_tflite_plugin.lowering.emitter import Emitter, Operand
from onnx_tflite_plugin.source.model import Array, Dims


def gather_entries(emitter: Emitter, table: Array, indices: ir.Value, dims: Dims | None) -> ir.Value:
    """Return table entries by integer indices, which may be negative.

    ``dims``: the shape of the indices, ``None`` if unknown. GatherElements is preferred: for 50,000 indices it takes 45
    µs in ONNX Runtime, Gather 590 µs, and TFLite's kernel 65 µs. GatherElements requires a table of the indices' rank,
    with size 1 on all axes but one.
    """

    def emit_node(op_type: str, *operands: Operand, **attributes: Any) -> ir.Value:
        return emitter.emit(op_type, operands, attributes)[0]

    if indices.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        indices = emit_node("Cast", indices, to="int32")
    if not dims or dims.count(None) > 1 or 0 in dims:
        return emit_node("Gather", table, indices)
    long_axes = [axis for axis, size in enumerate(dims) if size != 1]
    if len(long_axes) <= 1:
        axis = next(iter(long_axes), 0)
        aligned = table.reshape([-1 if k == axis else 1 for k in range(len(dims))])
        role = table.role if isinstance(table, NamedArray) else ""
        return emit_node("GatherElements", named(aligned, role) if role else aligned, indices, axis=axis)
    entries = emit_node("GatherElements", table, emit_node("Reshape", indices, [-1]), axis=0)
    return emit_node("Reshape", entries, [-1 if size is None else size for size in dims])
