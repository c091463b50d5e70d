"""Matrices by their main diagonal."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, Raw, Refused, Terminate, Value, ValueLike, handler, spend


@handler("MATRIX_DIAG", max_version=1, layout=Terminate(), quantization=Raw(), types="T -> T")
def matrix_diag(ctx: Context, x: Value) -> Value:
    """Square matrices; elsewhere stored zeros, whatever the zero point (matrix_diag.cc)."""
    size = ctx.op[0].dims[-1]
    return on_diagonal(ctx, ctx.ops.Unsqueeze(x, [-1]), ctx.scalar(0), size, size)


@handler("MATRIX_SET_DIAG", max_version=1, layout=Terminate(), quantization=Raw(), types="T, T -> T")
def matrix_set_diag(ctx: Context, x: Value, diagonal: Value) -> Value:
    """Where on the diagonal, which is as long as the shorter side."""
    rows, columns = ctx.op[0].dims[-2:]
    if rows is not None and columns is not None and ctx.op[0].static and ctx.op[1].static:
        fitting = (*ctx.op[0].shape[:-2], min(rows, columns))
        if ctx.op[1].shape != fitting:
            raise Refused(f"its diagonals are of shape {list(ctx.op[1].shape)}, its matrices have {list(fitting)}")
    return on_diagonal(ctx, ctx.ops.Unsqueeze(diagonal, [-1 if shorter(rows, columns) else -2]), x, rows, columns)


def shorter(rows: int | None, columns: int | None) -> bool:
    if rows is None or columns is None:
        raise Refused("which side of its matrices is shorter is not known; give input shapes with --input-shape")
    return rows <= columns


def on_diagonal(ctx: Context, diagonal: Value, elsewhere: ValueLike, rows: int | None, columns: int | None) -> Value:
    """Where, at places on the diagonal."""
    if rows is not None and columns is not None:
        spend(rows * columns, 1, "a mask of the diagonal")
        places: ValueLike = np.eye(rows, columns, dtype=bool)
    else:
        size = ctx.ops.Gather(ctx.ops.Shape(diagonal), np.asarray(-2))
        numbers = ctx.ops.Range(0, size, 1)
        places = ctx.ops.Equal(ctx.ops.Unsqueeze(numbers, [1]), numbers)
    return ctx.ops.Where(places, diagonal, elsewhere)
