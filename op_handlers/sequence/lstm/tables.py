"""Tables of sigmoid and tanh for all int16 values.

If the target has the trait ``stores_tables``, a table is an array. Otherwise, nodes compute it at load time.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Value

ASCENDING = np.arange(-32768, 32768)
"""Inputs of tables, in ascending order."""


def emit_table(ctx: Context, entries: Array, factor: float) -> Value | Array:
    """Return a table of entries times a factor.

    Nodes compute the table as a cumulative sum, because 8-bit differences of entries take less space.
    """
    if ctx.target.stores_tables:
        return entries * factor
    ops, differences = ctx.ops, np.diff(entries, prepend=entries[0]).astype(np.int8)
    if ctx.folds_weights:
        return ctx.constant_value(entries * factor)
    offsets = ops.CumSum(ops.Cast(differences, to="float64"), np.int64(0))
    return ops.Mul(ops.Add(offsets, np.float64(entries[0])), np.float64(factor))


def pad_table(ctx: Context, table: Value | Array, margin: int) -> Value | Array:
    """Return a table extended beyond int16 by repeating its first and last entry."""
    if isinstance(table, np.ndarray):
        return np.pad(table, margin, mode="edge")
    return ctx.ops.Pad(table, [margin, margin], mode="edge") if margin else table


def reorder_table(ctx: Context, table: Value | Array) -> Value | Array:
    """Return a table with the entries of negative numbers at its end.

    Negative indices then select these entries.
    """
    ops, zero, end = ctx.ops, len(ASCENDING) // 2, len(ASCENDING)
    if isinstance(table, np.ndarray):
        return np.roll(table, -zero)
    return ops.Concat(ops.Slice(table, [zero], [end], [0]), ops.Slice(table, [0], [zero], [0]), axis=0)
