"""Matrix products."""

from __future__ import annotations

from math import prod
from typing import Any

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Dequantized,
    Operator,
    Terminate,
    handler,
    out,
    spelled,
)


def dense_axes(op: Operator) -> str | None:
    """``n h w c, o (h w c) -> n o``: the trailing axes that make up one row of the weight are flattened."""
    dims, depth = op[0].dims, op[1].shape[-1]
    if op.options.keep_num_dims:
        return "... k, o k, o -> ... o"
    rows = [i for i in range(len(dims)) if None not in dims[i:] and prod(d or 1 for d in dims[i:]) == depth]
    if not rows:
        return None
    batch, row = [f"n{i}" for i in range(rows[-1])], [f"k{i}" for i in range(rows[-1], len(dims))]
    first = batch[0] if len(batch) == 1 else f"({' '.join(batch)})" if batch else "one"
    group = row[0] if len(row) == 1 else f"({' '.join(row)})"
    return spelled([[*batch, *row], ["o", group], ["o"]], [first, "o"])


def contracted(op: Operator) -> Terminate:
    """The elements of a row may come in any order, if the weight's columns do too."""
    return Terminate(unordered="k " + " ".join(f"k{i}" for i in range(op[0].rank)))


def default_weights(op: Operator) -> Decline | None:
    if op.options.weights_format != "DEFAULT":
        return Decline(f"weights_format {op.options.weights_format} is not known")
    return None


@handler(
    "FULLY_CONNECTED",
    max_version=14,
    layout=contracted,
    axes=dense_axes,
    quantization=Dequantized(bias={2: (0, 1)}),
    activation="fused_activation_function",
    accepts=default_weights,
)
def fully_connected(ctx: Context, x: Any, w: Any, b: Any = None) -> Any:
    """Gemm on the input flattened to rows of the weight's length (fully_connected.cc); reshapes stay on the integers."""
    if ctx.op[0].rank != 2 or ctx.op[0].dims[-1] != ctx.op[1].shape[-1]:
        x = ctx.dequantize(ctx.ops.Reshape(ctx.raw(0), [-1, ctx.op[1].shape[-1]]), like=0)
    y = ctx.ops.Gemm(x, w, b, transB=1)
    return y if ctx.op[out(0)].rank == 2 else ctx.reshaped(ctx.quantize(y, like=out(0)), out(0))
