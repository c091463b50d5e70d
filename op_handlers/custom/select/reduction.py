"""Reductions over axes, and running sums and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Handler,
    Operator,
    Replacement,
    Rewriter,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.custom.select.nodedef import PREFIX, NodeDef, node_of
from op_handlers.custom.select.rewriting import (
    FLOATS,
    REAL,
    as_int32,
    check_acceptable,
    check_element_count,
    rewrite_to,
)
from op_handlers.math import product
from op_handlers.math import reduction as builtin

BY_AXES = "int32 int64"


def reduction_handler(name: str, base: Handler, function: Callable[..., Any], dtypes: str) -> Handler:
    """Return the handler of a reduction over the axes in its second operand."""

    def kernel(op: Operator, x: Array, axes: Array) -> Array:
        over = tuple(int(axis) for axis in axes.reshape(-1))
        return np.asarray(function(x, axis=over, keepdims=node_of(op).flag("keep_dims"))).astype(x.dtype)

    def rewrite(steps: Rewriter, node: NodeDef) -> Sequence[Replacement]:
        x, axes = steps.op[0], as_int32(steps, steps.op[1])
        return steps.finish(base, [x, axes], keep_dims=node.flag("keep_dims"))

    types = tuple(f"{dtype}, {BY_AXES} -> {dtype}" for dtype in dtypes.split())
    return rewrite_to(name, base, kernel, operands=2, rewrite=rewrite, types=types)


def mean_array(x: Array, axis: Any, keepdims: bool) -> Array:
    mean = np.asarray(np.mean(x, axis=axis, keepdims=keepdims, dtype=np.float64))
    return np.trunc(mean) if x.dtype.kind == "i" else mean


sum_ = reduction_handler("Sum", builtin.total, np.sum, REAL)
mean = reduction_handler("Mean", builtin.mean, mean_array, REAL)
max_ = reduction_handler("Max", builtin.reduce_max, np.max, REAL)
min_ = reduction_handler("Min", builtin.reduce_min, np.min, REAL)
prod = reduction_handler("Prod", product.reduce_prod, np.prod, "float32 int32 int64")
all_ = reduction_handler("All", builtin.reduce_all, np.all, "bool")
any_ = reduction_handler("Any", builtin.reduce_any, np.any, "bool")


def place(name: str, base: Handler, function: Callable[..., Any]) -> Handler:
    """Return the handler of the position of an extreme."""

    def kernel(op: Operator, x: Array, axis: Array) -> Array:
        return np.asarray(function(x, int(axis.reshape(-1)[0]))).astype(op[out(0)].dtype)

    def rewrite(steps: Rewriter, node: NodeDef) -> Sequence[Replacement]:
        axis = as_int32(steps, steps.op[1])
        return steps.finish(base, [steps.op[0], axis], output_type=node.dtype("output_type", "int64").upper())

    types = tuple(f"{dtype}, {BY_AXES} -> {BY_AXES}" for dtype in f"{FLOATS} int32".split())
    return rewrite_to(name, base, kernel, operands=2, rewrite=rewrite, types=types)


arg_max = place("ArgMax", builtin.arg_max, np.argmax)
arg_min = place("ArgMin", builtin.arg_min, np.argmin)


# --- running ----------------------------------------------------------------------------------

FLAGS = ("exclusive", "reverse")
RUNNING = tuple(f"{dtype}, {BY_AXES} -> {dtype}" for dtype in REAL.split())


def accumulate(function: Callable[..., Any], first: int) -> Any:
    """Return a NumPy kernel of a running sum or product that begins with ``first``."""

    def kernel(op: Operator, x: Array, axis: Array) -> Array:
        along = int(axis.reshape(-1)[0])
        exclusive, reverse = (node_of(op).flag(name) for name in FLAGS)
        ordered = np.flip(x, along) if reverse else x
        if exclusive:
            begin = np.full_like(np.take(ordered, [0], along), first)
            ordered = np.concatenate([begin, np.delete(ordered, -1, along)], along)
        result = function(ordered, axis=along, dtype=x.dtype)
        return np.asarray(np.flip(result, along) if reverse else result)

    return kernel


cumsum = rewrite_to(
    "Cumsum",
    builtin.cumulative_sum,
    accumulate(np.cumsum, 0),
    operands=2,
    options=lambda node, op: {name: node.flag(name) for name in FLAGS},
    types=RUNNING,
    accepts=check_element_count(1, 1),
)


@handler(
    PREFIX + "Cumprod",
    max_version=1,
    layout=Terminate(),
    types=RUNNING,
    requires_constant={1},
    accepts=check_acceptable(2, accepts=check_element_count(1, 1)),
    kernel=accumulate(np.cumprod, 1),
)
def cumprod(ctx: Context, x: Value, _axis: Value) -> Value:
    """Emit Scan of Mul."""
    ops, dtype, dims = ctx.ops, ctx.op[0].dtype, ctx.op[0].dims
    axis = int(ctx.require_constant(1).reshape(-1)[0]) % len(dims)
    exclusive, reverse = (node_of(ctx.op).flag(name) for name in FLAGS)
    others = [k for k in range(len(dims)) if k != axis]
    rest = tuple(dims[k] for k in others)
    sizes = np.asarray(rest, np.int64) if None not in rest else ops.Gather(ops.Shape(x), np.asarray(others))

    def step(product: Value, factor: Value) -> list[Value]:
        after = ops.Mul(product, factor)
        return [after, ops.Identity(product if exclusive else after)]

    body = ctx.graph(step, [("product", dtype, rest), ("factor", dtype, rest)])
    _, products = ops.Scan(
        ops.Expand(np.ones((), dtype), sizes),
        x,
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[axis],
        scan_input_directions=[int(reverse)],
        scan_output_directions=[int(reverse)],
        outputs=2,
    )
    return products
