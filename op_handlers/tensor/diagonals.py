"""Main diagonals of matrices."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, Raw, Refusal, Terminate, Value, ValueLike, handler, spend_budget


@handler("MATRIX_DIAG", max_version=1, layout=Terminate(), quantization=Raw(), types="T -> T")
def matrix_diag(ctx: Context, x: Value) -> Value:
    """Emit square matrices with quantized zeros off the diagonal (matrix_diag.cc).

    A quantized zero is 0, whatever the zero point.
    """
    size = ctx.op[0].dims[-1]
    count = None if size is not None else ctx.ops.Gather(ctx.ops.Shape(x), np.asarray(-1))
    return ctx.ops.Where(diagonal_mask(ctx, (size, size), count, count), ctx.ops.Unsqueeze(x, [-1]), ctx.scalar(0))


@handler("MATRIX_SET_DIAG", max_version=1, layout=Terminate(), quantization=Raw(), types="T, T -> T")
def matrix_set_diag(ctx: Context, x: Value, diagonal: Value) -> Value:
    """Emit Where on the diagonal, which is as long as the shorter side."""
    rows, columns = ctx.op[0].dims[-2:]
    expected_dims = (*ctx.op[0].dims[:-2], None if rows is None or columns is None else min(rows, columns))
    expected_shape = (*ctx.op[0].shape[:-2], min(ctx.op[0].shape[-2:]))
    for actual, expected in ((ctx.op[1].dims, expected_dims), (ctx.op[1].shape, expected_shape)):
        if ctx.op[1].has_rank and actual != expected:  # the kernel does not check, and reads beyond the end
            raise Refusal(f"diagonals of shape {list(actual)} do not fit matrices of shape {list(expected)}")
    if rows is None or columns is None:
        return emit_runtime_set_diag(ctx, x, diagonal)
    mask = diagonal_mask(ctx, (rows, columns))
    return ctx.ops.Where(mask, ctx.ops.Unsqueeze(diagonal, [-1 if rows <= columns else -2]), x)


def emit_runtime_set_diag(ctx: Context, x: Value, diagonal: Value) -> Value:
    """Emit Where with the diagonal element of each row.

    Rows after the end of the diagonal are masked.
    """
    shape = ctx.ops.Shape(x)
    rows, columns = (ctx.ops.Gather(shape, np.asarray(axis)) for axis in (-2, -1))
    last_index = ctx.ops.Sub(ctx.ops.Min(rows, columns), np.int64(1))
    indices = ctx.ops.Min(ctx.ops.Range(0, rows, 1), last_index)
    mask = diagonal_mask(ctx, (None, None), rows, columns)
    return ctx.ops.Where(mask, ctx.ops.Unsqueeze(ctx.ops.Gather(diagonal, indices, axis=-1), [-1]), x)


def diagonal_mask(
    ctx: Context, dims: tuple[int | None, int | None], rows: Value | None = None, columns: Value | None = None
) -> ValueLike:
    """Return the mask of a diagonal, a runtime value for a dynamic shape."""
    if dims[0] is not None and dims[1] is not None:
        spend_budget(dims[0] * dims[1], 1, "a mask of the diagonal")
        return np.eye(dims[0], dims[1], dtype=bool)
    if rows is None or columns is None:
        raise Refusal("the matrices have a dynamic shape; set it with --input-shape")
    return ctx.ops.Equal(ctx.ops.Unsqueeze(ctx.ops.Range(0, rows, 1), [1]), ctx.ops.Range(0, columns, 1))
