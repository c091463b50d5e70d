"""Reductions over axes, and cumulative sums and products."""

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
    INDICES,
    REAL,
    acceptance_check,
    as_int32,
    element_count_check,
    rewrite_to,
)
from op_handlers.math import product
from op_handlers.math import reduction as builtin


def reduction_handler(name: str, base: Handler, function: Callable[..., Any], dtypes: str) -> Handler:
    """Return the handler of a reduction over the axes in its second operand."""

    def kernel(op: Operator, x: Array, axes: Array) -> Array:
        axis_tuple = tuple(int(axis) for axis in axes.reshape(-1))
        return np.asarray(function(x, axis=axis_tuple, keepdims=node_of(op).flag("keep_dims"))).astype(x.dtype)

    def rewrite(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
        x, axes = rewriter.op[0], as_int32(rewriter, rewriter.op[1])
        return rewriter.finish(base, [x, axes], keep_dims=node.flag("keep_dims"))

    types = tuple(f"{dtype}, {INDICES} -> {dtype}" for dtype in dtypes.split())
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


def arg_handler(name: str, base: Handler, function: Callable[..., Any]) -> Handler:
    """Return the handler of ArgMax or ArgMin."""

    def kernel(op: Operator, x: Array, axis: Array) -> Array:
        return np.asarray(function(x, int(axis.reshape(-1)[0]))).astype(op[out(0)].dtype)

    def rewrite(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
        axis = as_int32(rewriter, rewriter.op[1])
        return rewriter.finish(base, [rewriter.op[0], axis], output_type=node.dtype("output_type", "int64").upper())

    types = tuple(f"{dtype}, {INDICES} -> {INDICES}" for dtype in f"{FLOATS} int32".split())
    return rewrite_to(name, base, kernel, operands=2, rewrite=rewrite, types=types)


arg_max = arg_handler("ArgMax", builtin.arg_max, np.argmax)
arg_min = arg_handler("ArgMin", builtin.arg_min, np.argmin)


# --- cumulative -------------------------------------------------------------------------------

FLAGS = ("exclusive", "reverse")
CUMULATIVE_TYPES = tuple(f"{dtype}, {INDICES} -> {dtype}" for dtype in REAL.split())


def cumulative_kernel(function: Callable[..., Any], identity: float) -> Any:
    """Return a NumPy kernel of a cumulative operator such as a sum or product.

    ``identity``: the value before the first element, such as 0 for a sum.
    """

    def kernel(op: Operator, x: Array, axis: Array) -> Array:
        scan_axis = int(axis.reshape(-1)[0])
        exclusive, reverse = (node_of(op).flag(name) for name in FLAGS)
        elements = np.flip(x, scan_axis) if reverse else x
        if exclusive:
            first_element = np.full_like(np.take(elements, [0], scan_axis), identity)
            elements = np.concatenate([first_element, np.delete(elements, -1, scan_axis)], scan_axis)
        result = function(elements, axis=scan_axis, dtype=x.dtype)
        return np.asarray(np.flip(result, scan_axis) if reverse else result)

    return kernel


cumsum = rewrite_to(
    "Cumsum",
    builtin.cumulative_sum,
    cumulative_kernel(np.cumsum, 0),
    operands=2,
    options=lambda node, op: {name: node.flag(name) for name in FLAGS},
    types=CUMULATIVE_TYPES,
    accepts=element_count_check(slot=1, count=1),
)


@handler(
    PREFIX + "Cumprod",
    max_version=1,
    layout=Terminate(),
    types=CUMULATIVE_TYPES,
    requires_constant={1},
    accepts=acceptance_check(2, accepts=element_count_check(slot=1, count=1)),
    kernel=cumulative_kernel(np.cumprod, 1),
)
def cumprod(ctx: Context, x: Value, _axis: Value) -> Value:
    """Emit a Scan whose body is a Mul."""
    return emit_scan(ctx, x, ctx.ops.Mul, 1)


def log_add_exp(x: Array, axis: int, dtype: Any) -> Array:
    return np.asarray(np.logaddexp.accumulate(x, axis, dtype=dtype))


@handler(
    PREFIX + "CumulativeLogsumexp",
    max_version=1,
    layout=Terminate(),
    types=f"float32, {INDICES} -> float32",
    requires_constant={1},
    accepts=acceptance_check(2, accepts=element_count_check(slot=1, count=1)),
    kernel=cumulative_kernel(log_add_exp, -np.inf),
)
def cumulative_log_sum_exp(ctx: Context, x: Value, _axis: Value) -> Value:
    """Emit a Scan with a numerically stable LogSumExp of two elements."""
    ops, limits = ctx.ops, np.finfo(np.float32)

    def combine_log_sums(state: Value, element: Value) -> Value:
        # clipped to finite values, because inf - inf is NaN
        maximum = ops.Min(ops.Max(state, element, limits.min), limits.max)
        terms = [ops.Exp(ops.Sub(value, maximum)) for value in (state, element)]
        return ops.Add(maximum, ops.Log(ops.Add(*terms)))

    return emit_scan(ctx, x, combine_log_sums, -np.inf)


def emit_scan(ctx: Context, x: Value, combine: Callable[[Value, Value], Value], identity: float) -> Value:
    """Emit a Scan that combines each element along an axis with all earlier elements.

    ``combine``: function of the state and the next element that returns the next state. ``identity``: the initial state.
    """
    ops, dtype, dims = ctx.ops, ctx.op[0].dtype, ctx.op[0].dims
    axis = int(ctx.require_constant(1).reshape(-1)[0]) % len(dims)
    exclusive, reverse = (node_of(ctx.op).flag(name) for name in FLAGS)
    other_axes = [k for k in range(len(dims)) if k != axis]
    state_dims = tuple(dims[k] for k in other_axes)
    sizes = (
        np.asarray(state_dims, np.int64) if None not in state_dims else ops.Gather(ops.Shape(x), np.asarray(other_axes))
    )

    def emit_step(state: Value, element: Value) -> list[Value]:
        next_state = combine(state, element)
        return [next_state, ops.Identity(state if exclusive else next_state)]

    body = ctx.graph(emit_step, [("product", dtype, state_dims), ("factor", dtype, state_dims)])
    _, results = ops.Scan(
        ops.Expand(np.full((), identity, dtype), sizes),
        x,
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[axis],
        scan_input_directions=[int(reverse)],
        scan_output_directions=[int(reverse)],
        outputs=2,
    )
    return results
