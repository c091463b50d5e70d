"""Matrix products with repeated matrices, as in grouped-query attention.

In grouped-query attention, several query heads share keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Call,
    Context,
    Decline,
    Dequantized,
    Implicit,
    Instance,
    Match,
    Operand,
    Value,
    format_axes,
    fusion,
    operands,
    out,
)

x, w = operands("x w")
split_shape, repeated_shape, merged_shape, matrix_shape, perm, scale = operands(
    "split_shape repeated_shape merged_shape matrix_shape perm scale", constant=True
)
Term = Call | Operand


def repetition_patterns() -> Iterator[Call]:
    """Yield patterns of products with matrices that are repeated for each group.

    The matrices may be scaled and transposed after the repetition.
    """
    repeated = Call("RESHAPE", Call("BROADCAST_TO", Call("RESHAPE", w, split_shape), repeated_shape), merged_shape)
    scaled = Call("MUL", repeated, scale, commutes=True, fused_activation_function="NONE")
    for adjoint in (False, True):
        yield Call("BATCH_MATMUL", x, repeated, adj_x=False, adj_y=adjoint)
        for source in (scaled, repeated):
            transposed = Call("RESHAPE", Call("TRANSPOSE", source, perm), matrix_shape)
            yield Call("BATCH_MATMUL", x, transposed, adj_x=False, adj_y=adjoint)


def match_repetition(match: Match) -> Mapping[str, Any] | Decline:
    """Return how matrices are repeated and transposed, or a Decline.

    ``times``: the number of repetitions. ``transposed``: the product reads the matrices transposed. Declines if the
    order of matrices changes, or elements of several matrices are mixed.
    """
    (product, *_) = match.calls.values()
    left, right, source = product[0], product[1], match[w]
    op_by_code = {call.code: op for call, op in match.calls.items()}
    broadcast = op_by_code["BROADCAST_TO"][out(0)]
    if None in (*left.dims, *right.dims, *source.dims, *broadcast.dims) or source.rank < 3:
        return Decline("a shape is dynamic")
    *batches, height, width = source.dims
    times = broadcast.dims[len(batches)] if broadcast.rank == source.rank + 1 else None
    if not times or broadcast.dims != (*batches, times, height, width):
        return Decline("BROADCAST_TO does not repeat complete matrices")
    if op_by_code["BROADCAST_TO"][0].dims != (*batches, 1, height, width):
        return Decline("BROADCAST_TO does not repeat complete matrices")
    is_transposed = "TRANSPOSE" in op_by_code
    if is_transposed and not _swaps_last_two(match):
        return Decline("TRANSPOSE does not swap the last two axes")
    matrix_sizes = (width, height) if is_transposed else (height, width)
    if right.dims[-2:] != matrix_sizes or left.dims[:-2] != right.dims[:-2]:
        return Decline("RESHAPE mixes elements of several matrices")
    if scale in match.tensors and match[scale].array.size != 1:
        return Decline("the scale of the matrices is not a scalar")
    return {"transposed": is_transposed != bool(product.options.adj_y), "times": times}


def _swaps_last_two(match: Match) -> bool:
    """True if TRANSPOSE swaps the last two axes, and reads the matrices unchanged."""
    axes, source_dims = [int(axis) for axis in match[perm].array], match[w].dims
    transpose = next(op for op in match.calls.values() if op.code == "TRANSPOSE")
    swapped = [*range(len(axes) - 2), len(axes) - 1, len(axes) - 2]
    return axes == swapped and transpose[0].dims[-2:] == source_dims[-2:]


def grouped_axes(instance: Instance) -> str:
    """Return the axes of rows and matrices, whose batch axes have separate letters."""
    op = instance.op
    rows, result = (
        [*(f"a{i}" for i in range(op[slot].rank - 2)), "m", last_letter]
        for slot, last_letter in ((0, "k"), (out(0), "n"))
    )
    matrix = ["n", "k"] if op.options.transposed else ["k", "n"]
    scale_axes = [None] if op.tensor(2) is not None else []
    return format_axes([rows, [*(f"b{i}" for i in range(op[1].rank - 2)), *matrix], *scale_axes], result)


def grouped_layout(instance: Instance) -> Implicit:
    """Return the layout of the operands of MatMul, with batch axes first."""
    batches = " ".join(f"b{i}" for i in range(instance.op[1].rank - 2))
    rows = " ".join(f"a{i}" for i in range(instance.op[0].rank - 2))
    return Implicit({0: f"{rows} m k", 1: f"{batches} k n", out(0): f"{rows} m n"})


@fusion(
    "BATCH_MATMUL_SHARED",
    pattern=tuple(repetition_patterns()),
    inputs=(x, w, scale),
    check=match_repetition,
    layout=grouped_layout,
    axes=grouped_axes,
    types="float32, float32, float32",
    quantization=Dequantized(),
)
def batch_matmul_shared(ctx: Context, x: Value, w: Value, scale: Value | None = None) -> Value:
    """Emit MatMul of all rows of a group and one matrix.

    The scale multiplies the rows, which have fewer elements than the matrices.
    """
    *batches, _, _ = ctx.op[1].dims
    *_, rows, depth = ctx.op[0].dims
    factor = None if scale is None else ctx.require_constant(2).reshape(())
    scaled = x if factor is None else ctx.ops.Mul(x, factor)
    grouped = ctx.ops.Reshape(scaled, np.asarray([*batches, ctx.options.times * (rows or 0), depth], np.int64))
    return ctx.reshape_to_slot(ctx.ops.MatMul(grouped, w), out(0))
