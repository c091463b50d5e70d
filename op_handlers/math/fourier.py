"""Fourier transforms."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Instance,
    Operator,
    Terminate,
    Value,
    can_emit_rfft,
    emit_rfft,
    handler,
)
from op_handlers.kernels.operands import cast_to_int64


def check_width(at: Instance) -> Decline | None:
    lengths = at.op.constant(1)
    if lengths is not None and lengths.reshape(-1)[1:].tolist() == [1]:
        return Decline(
            "LiteRT's kernel confuses real and imaginary parts of transforms of length 1 (Rfft2dReorder, rfft2d.cc)"
        )
    return None


def row_transform(op: Operator) -> tuple[int, int] | None:
    """Return (samples, points) if one row remains and a matrix product transforms it.

    Otherwise return None. A row with more samples than points is cropped.
    """
    lengths, dims = op.constant(1), op[0].dims
    if lengths is None or not op[0].has_rank or dims[-1] is None or 0 in dims[-2:]:
        return None
    height, points = (int(length) for length in lengths.reshape(-1))
    width = min(dims[-1], points)
    return (width, points) if height == 1 and can_emit_rfft(points, width) else None


def required_opset(at: Instance) -> int:
    """Return the minimum opset: 17 if DFT is emitted."""
    return 1 if row_transform(at.op) else 17


@handler(
    "RFFT2D",
    max_version=1,
    layout=Terminate(),
    min_opset=required_opset,
    types="float32, int32 -> complex64",
    accepts=check_width,
)
def rfft_2d(ctx: Context, x: Value, lengths: Value) -> Value:
    """Emit the one-sided transform of each row, then DFT of each column (rfft2d.cc).

    Rows and columns are cropped or padded to their lengths, which are powers of two. A single row needs no column
    transform.
    """
    transform = row_transform(ctx.op)
    if transform is None:
        return emit_dft(ctx, x, lengths)
    (width, points), dims = transform, ctx.op[0].dims
    if dims[-1] != width:
        x = ctx.ops.Slice(x, [0], [width], [-1])
    if dims[-2] != 1:
        x = ctx.ops.Slice(x, [0], [1], [-2])
    return emit_rfft(ctx, x, (*dims[:-2], 1, width), points)


def emit_dft(ctx: Context, x: Value, lengths: Value) -> Value:
    """Emit one-sided DFT of each row, then DFT of each column."""
    ops, rank = ctx.ops, ctx.op[0].rank
    sizes = cast_to_int64(ctx, 1, lengths)
    height, width = (
        sizes[k].reshape(()) if isinstance(sizes, np.ndarray) else ops.Gather(sizes, np.asarray(k)) for k in (0, 1)
    )
    if 0 in ctx.op[0].dims[-2:]:  # an empty input gives zeros, but DFT refuses it
        x = ops.Pad(x, np.asarray([0] * (2 * rank - 2) + [1, 1]), np.float32(0), mode="constant")
    value = ops.Unsqueeze(x, [rank] if rank > 2 else [0, 3])  # leading batch axis, trailing axis of pairs
    axis = max(rank, 3) - 1
    for length, transform_axis, onesided in ((width, axis, 1), (height, axis - 1, 0)):
        value = ops.DFT(value, length, np.asarray(transform_axis), onesided=onesided)
    return value if rank > 2 else ops.Squeeze(value, [0])
