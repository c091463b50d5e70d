"""Repetition of elements along axes."""

from __future__ import annotations

from onnx_tflite_plugin.api import Attribute, Context, Decline, Instance, Raw, Transparent, Value, handler, out
from op_handlers.kernels.operands import (
    cast_to_int64,
    constant_integers,
    rank_preserving_axes,
    shape_from_operand,
    unordered_layout,
)


def tile_layout(at: Instance) -> Attribute:
    return unordered_layout(axis for axis, multiple in enumerate(constant_integers(at.op, 1) or []) if multiple == 1)


def check_multiples(at: Instance) -> Decline | None:
    """Return a Decline unless the multiples are a vector.

    The kernel reads one multiple per axis (MultiplyShapeDims, tile.cc).
    """
    multiples = at.op[1]
    if not multiples.has_rank or multiples.rank == 1:
        return None
    return Decline(f"multiples have shape {list(multiples.shape)}, expected a vector")


@handler(
    "TILE",
    max_version=3,
    layout=tile_layout,
    axes=rank_preserving_axes,
    indexed_by_axis={1: 0},
    quantization=Raw(shift_safe=True, onnx="Tile"),
    accepts=check_multiples,
)
def tile(ctx: Context, x: Value, multiples: Value) -> Value:
    """Emit Tile."""
    return ctx.ops.Tile(x, cast_to_int64(ctx, 1, multiples)) if ctx.op[0].rank else x


@handler(
    "BROADCAST_TO",
    max_version=4,
    layout=Transparent(),
    indexed_by_axis={1: out(0)},
    result_shape=shape_from_operand(1),
    quantization=Raw(shift_safe=True, onnx="Expand"),
    dynamic_batch_values={1: 1},
)
def broadcast_to(ctx: Context, x: Value, shape: Value) -> Value:
    """Emit Expand."""
    return ctx.ops.Expand(x, cast_to_int64(ctx, 1, shape))
