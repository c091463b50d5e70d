"""Products by matrices that are repeated, as groups of queries share keys and values."""

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
    fusion,
    operands,
    out,
    spelled,
)

x, w = operands("x w")
apart, repeats, together, matrices, perm, scale = operands("apart repeats together matrices perm scale", constant=True)
Term = Call | Operand


def shared_matrices() -> Iterator[Call]:
    """A product by matrices of which each is repeated for its group; also scaled and transposed behind that."""
    each = Call("RESHAPE", Call("BROADCAST_TO", Call("RESHAPE", w, apart), repeats), together)
    scaled = Call("MUL", each, scale, commutes=True, fused_activation_function="NONE")
    for adjoint in (False, True):
        yield Call("BATCH_MATMUL", x, each, adj_x=False, adj_y=adjoint)
        for turned in (scaled, each):
            transposed = Call("RESHAPE", Call("TRANSPOSE", turned, perm), matrices)
            yield Call("BATCH_MATMUL", x, transposed, adj_x=False, adj_y=adjoint)


def one_for_a_group(match: Match) -> Mapping[str, Any] | Decline:
    """The matrices follow one another as they did before, each as often as its group has rows; ``transposed`` in the end or not."""
    (product, *_) = match.calls.values()
    left, right, before = product[0], product[1], match[w]
    steps = {call.code: op for call, op in match.calls.items()}
    wide = steps["BROADCAST_TO"][out(0)]
    if None in (*left.dims, *right.dims, *before.dims, *wide.dims) or before.rank < 3:
        return Decline("its sizes are not known")
    *batches, height, width = before.dims
    times = wide.dims[len(batches)] if wide.rank == before.rank + 1 else None
    if not times or wide.dims != (*batches, times, height, width):
        return Decline("it repeats something else than matrices")
    if steps["BROADCAST_TO"][0].dims != (*batches, 1, height, width):
        return Decline("it repeats something else than matrices")
    turned = "TRANSPOSE" in steps
    if turned and not _last_two(match):
        return Decline("it transposes something else than matrices")
    given = (width, height) if turned else (height, width)
    if right.dims[-2:] != given or left.dims[:-2] != right.dims[:-2]:
        return Decline("its matrices are made of parts of several")
    if scale in match.tensors and match[scale].array.size != 1:
        return Decline("it scales its matrices by more than one number")
    return {"transposed": turned != bool(product.options.adj_y), "times": times}


def _last_two(match: Match) -> bool:
    """Whether the matrices alone are transposed, lying as they did in front of it."""
    axes, before = [int(axis) for axis in match[perm].array], match[w].dims
    transpose = next(op for op in match.calls.values() if op.code == "TRANSPOSE")
    swapped = [*range(len(axes) - 2), len(axes) - 1, len(axes) - 2]
    return axes == swapped and transpose[0].dims[-2:] == before[-2:]


def sharing(at: Instance) -> str:
    """Rows as the file has them; batches of matrices."""
    op = at.op
    rows, result = ([*(f"a{i}" for i in range(op[k].rank - 2)), "m", last] for k, last in ((0, "k"), (out(0), "n")))
    matrix = ["n", "k"] if op.options.transposed else ["k", "n"]
    present = [None] if op.tensor(2) is not None else []
    return spelled([rows, [*(f"b{i}" for i in range(op[1].rank - 2)), *matrix], *present], result)


def upright(at: Instance) -> Implicit:
    batches = " ".join(f"b{i}" for i in range(at.op[1].rank - 2))
    rows = " ".join(f"a{i}" for i in range(at.op[0].rank - 2))
    return Implicit({0: f"{rows} m k", 1: f"{batches} k n", out(0): f"{rows} m n"})


@fusion(
    "BATCH_MATMUL_SHARED",
    pattern=tuple(shared_matrices()),
    inputs=(x, w, scale),
    where=one_for_a_group,
    layout=upright,
    axes=sharing,
    types="float32, float32, float32",
    quantization=Dequantized(),
)
def batch_matmul_shared(ctx: Context, x: Value, w: Value, scale: Value | None = None) -> Value:
    """MatMul of all rows of a group by their one matrix; what scales the matrices scales the rows, which are fewer."""
    *batches, _, _ = ctx.op[1].dims
    *_, rows, depth = ctx.op[0].dims
    number = None if scale is None else ctx.required(2).reshape(())
    given = x if number is None else ctx.ops.Mul(x, number)
    grouped = ctx.ops.Reshape(given, np.asarray([*batches, ctx.options.times * (rows or 0), depth], np.int64))
    return ctx.reshaped(ctx.ops.MatMul(grouped, w), out(0))
