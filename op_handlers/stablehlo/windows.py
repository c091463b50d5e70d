"""Reductions of windows that slide over a tensor of any rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    Context,
    Decline,
    Instance,
    Operator,
    Raw,
    Refusal,
    Value,
    handler,
    out,
    spend_budget,
)
from op_handlers.kernels.min_max import emit_min_max
from op_handlers.kernels.operands import constant_integers, rank_preserving_axes, reshape_to_scalar, unordered_layout
from op_handlers.stablehlo.padding import emit_dilated_pad, static_size

REDUCTIONS = {
    "ADD": "ADD",
    "STABLEHLO_ADD": "ADD",
    "MUL": "MUL",
    "STABLEHLO_MULTIPLY": "MUL",
    "MAXIMUM": "MAXIMUM",
    "STABLEHLO_MAXIMUM": "MAXIMUM",
    "MINIMUM": "MINIMUM",
    "STABLEHLO_MINIMUM": "MINIMUM",
    "LOGICAL_AND": "ALL",
    "STABLEHLO_AND": "ALL",
    "LOGICAL_OR": "ANY",
    "STABLEHLO_OR": "ANY",
}
REDUCE_OPERATORS = {"ADD": "ReduceSum", "MAXIMUM": "ReduceMax", "MINIMUM": "ReduceMin"}
# Reductions that ONNX Runtime computes wrongly, by dtype: sums and products that wrap around, int64 minima and maxima
# beyond 32 bits. They are computed with one binary operator per element of the window.
ELEMENTWISE_REDUCTIONS: Mapping[str, Sequence[str]] = defaultdict(
    lambda: ("MUL",),
    **dict.fromkeys(("int32", "uint32", "uint64"), ("MUL", "ADD")),
    int64=("MUL", "ADD", "MAXIMUM", "MINIMUM"),
)
MAX_UNROLLED = 4096  # maximum number of elements of a window that is reduced with one node per element
BINARY_OPERATORS = {"ADD": "Add", "MUL": "Mul", "MAXIMUM": "Max", "MINIMUM": "Min"}


@dataclass(frozen=True)
class Windows:
    """Sizes, strides and dilations of the window along each axis, in planned layout.

    Raises Refusal for values below 1.
    """

    sizes: list[int]
    strides: list[int]
    dilations: list[int]

    def __post_init__(self) -> None:
        for name in ("sizes", "strides", "dilations"):
            if min(getattr(self, name), default=1) < 1:
                raise Refusal(f"{name} of the windows are {getattr(self, name)}; each must be at least 1")

    @property
    def axes(self) -> list[int]:
        """Return the axes along which a window has several elements or a stride above 1."""
        return [
            k for k, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)) if (size, stride) != (1, 1)
        ]

    def indices(self, k: int, size: int) -> Array:
        """Return the indices of the elements of each window along axis ``k``.

        The result has shape [window, element]. ``size``: size of the axis.
        """
        extent = (self.sizes[k] - 1) * self.dilations[k] + 1
        count = (size - extent) // self.strides[k] + 1 if size >= extent else 0
        spend_budget((count + 1) * self.sizes[k], 8, "the indices of windows")
        starts = np.arange(count, dtype=np.int64)[:, None] * self.strides[k]
        return starts + np.arange(self.sizes[k], dtype=np.int64) * self.dilations[k]


def reduction_of_body(ctx: Context) -> str:
    """Return the reduction that the subgraph computes (GetBodyFunction)."""
    operators = ctx.subgraph(ctx.options.body_subgraph_index).operators
    if len(operators) != 1 or operators[0].code not in REDUCTIONS:
        raise Refusal(
            f"the region contains {', '.join(op.code for op in operators) or 'nothing'}; the kernel supports only {', '.join(REDUCTIONS)}"
        )
    return REDUCTIONS[operators[0].code]


def window_layout(at: Instance) -> Attribute:
    """Return a layout that leaves axes without windows, dilation or padding unordered."""
    options, rank = at.op.options, at.op[0].rank
    unaffected = [
        axis
        for axis in range(rank)
        if options.window_dimensions[axis] == options.window_strides[axis] == options.base_dilations[axis] == 1
        and not any(options.padding[2 * axis : 2 * axis + 2])
    ]
    return unordered_layout(unaffected)


def check_static_shape(at: Instance) -> Decline | None:
    if not at.op[0].is_static or not 0 < at.op[0].rank <= 6:
        return Decline("the operand has a dynamic shape; set it with --input-shape")
    return Decline("the result has no elements") if 0 in at.op[out(0)].shape else None


def check_entry_counts(at: Instance) -> Decline | None:
    """Return a Decline unless attributes have one entry per axis.

    The kernel assumes this.
    """
    options, rank = at.op.options, at.op[0].rank
    for name in ("window_dimensions", "window_strides", "base_dilations", "window_dilations"):
        if len(options[name]) != rank:
            return Decline(f"{name} is {list(options[name])}, expected {rank} entries")
    return (
        check_static_shape(at)
        if len(options.padding) == 2 * rank
        else Decline(f"padding is {list(options.padding)}, expected two entries for each of {rank} axes")
    )


@handler(
    "STABLEHLO_REDUCE_WINDOW",
    max_version=1,
    layout=window_layout,
    axes=rank_preserving_axes,
    quantization=Raw(),
    accepts=check_entry_counts,
)
def stablehlo_reduce_window(ctx: Context, x: Value, initial: Value) -> Value:
    """Emit padding with the initial value, and the reduction of each window.

    Source: stablehlo_reduce_window.cc.
    """
    options = ctx.options
    low, high = (ctx.permute_entries(options.padding[side::2]) for side in (0, 1))
    windows = Windows(
        *(
            ctx.permute_entries(entries)
            for entries in (options.window_dimensions, options.window_strides, options.window_dilations)
        )
    )
    initial_value, reduction = reshape_to_scalar(ctx, 1, initial), reduction_of_body(ctx)
    interior = [step - 1 for step in ctx.permute_entries(options.base_dilations)]
    sum_axis = cumulative_axis(ctx, windows, low, high, interior)
    if reduction == "ADD" and sum_axis is not None and has_zero_initial_value(ctx):
        return ctx.ops.CumSum(x, np.asarray(sum_axis), reverse=int(high[sum_axis] > 0) or None)
    sizes = [(static_size(ctx, k) - 1) * (interior[k] + 1) + 1 + low[k] + high[k] for k in range(len(low))]
    return reduce_windows(
        ctx, emit_dilated_pad(ctx, x, initial_value, low, high, interior), initial_value, sizes, windows, reduction
    )


def has_zero_initial_value(ctx: Context) -> bool:
    constant = ctx.op.constant(1)
    return constant is not None and not constant.any()


def cumulative_axis(ctx: Context, windows: Windows, low: list[int], high: list[int], interior: list[int]) -> int | None:
    """Return the axis along which the windows compute a cumulative sum, or None.

    The sum may run in either direction.
    """
    if len(windows.axes) != 1 or any(interior) or ctx.op[0].dtype not in ("float32", "float64", "int32", "int64"):
        return None
    (axis,) = windows.axes
    size = static_size(ctx, axis)
    other_paddings = [side[k] for side in (low, high) for k in range(len(low)) if k != axis]
    covers_axis = windows.sizes[axis] == size and windows.strides[axis] == windows.dilations[axis] == 1
    return (
        axis
        if covers_axis and not any(other_paddings) and {low[axis], high[axis]} == {0, size - 1} and size > 1
        else None
    )


def reduce_windows(
    ctx: Context, x: Value, initial_value: Value, sizes: list[int], windows: Windows, reduction: str
) -> Value:
    """Reduce each window, and combine the result with the initial value."""
    ops, dtype = ctx.ops, ctx.op[0].dtype
    if dtype == "bool" and reduction == "ADD":
        raise Refusal("the operator adds booleans modulo 2, but LiteRT adds them as bytes; cast them to int32 first")
    if reduction in ("ALL", "ANY") or dtype == "bool":
        x, initial_value = (ops.Cast(ops.Cast(v, to="bool"), to="int32") for v in (x, initial_value))
        reduction = {"ALL": "MINIMUM", "ANY": "MAXIMUM", "MUL": "MINIMUM"}.get(reduction, reduction)
        wider_dtype = "int32"
    else:
        wider_dtype = ctx.target.wider_dtype("Add", dtype) or ""
        x, initial_value = (ops.Cast(v, to=wider_dtype) if wider_dtype else v for v in (x, initial_value))
    indices_by_axis = {k: windows.indices(k, sizes[k]) for k in windows.axes}
    combine: Callable[[Value, Value], Value] = ops.named(BINARY_OPERATORS[reduction])
    if dtype == "int64" and BINARY_OPERATORS[reduction] in ("Max", "Min"):
        combine = partial(emit_min_max, ctx, BINARY_OPERATORS[reduction])
    y = (
        combine_elements(ctx, x, indices_by_axis, combine)
        if reduction in ELEMENTWISE_REDUCTIONS[dtype]
        else reduce_at_once(ctx, x, indices_by_axis, reduction)
    )
    y = combine(y, initial_value)
    return ops.Cast(y, to=dtype) if wider_dtype else y


def reduce_at_once(ctx: Context, x: Value, indices_by_axis: dict[int, Array], reduction: str) -> Value:
    """Emit one reduction over the elements of all windows.

    In the gathered tensor, each axis of ``indices_by_axis`` becomes two axes: the windows, and the elements of a window.
    """
    element_axes = [k + shift + 1 for shift, k in enumerate(indices_by_axis)]
    if not element_axes:
        return x
    x = gather_windows(ctx, x, indices_by_axis)
    return ctx.ops.named(REDUCE_OPERATORS[reduction])(x, element_axes, keepdims=0)


def gather_windows(ctx: Context, x: Value, indices_by_axis: dict[int, Array]) -> Value:
    """Emit Gather of the elements of each window.

    The result has an additional axis per window axis.
    """
    for shift, (k, indices) in enumerate(indices_by_axis.items()):
        x = ctx.ops.Gather(x, indices, axis=k + shift)
    return x


def combine_elements(
    ctx: Context, x: Value, indices_by_axis: dict[int, Array], combine: Callable[[Value, Value], Value]
) -> Value:
    """Emit a binary operator per element of a window, applied to all windows at once."""
    for k, indices in indices_by_axis.items():
        if indices.shape[1] > MAX_UNROLLED:
            raise Refusal(
                f"the window has {indices.shape[1]} elements; at most {MAX_UNROLLED} are supported for a reduction "
                "that ONNX computes element by element"
            )
        elements = (ctx.ops.Gather(x, indices[:, element], axis=k) for element in range(indices.shape[1]))
        x = reduce(combine, elements)
    return x


# --- REDUCE_WINDOW -----------------------------------------------------------------------------


def check_constant_windows(at: Instance) -> Decline | None:
    return (
        Decline("the window is not constant; LiteRT's kernel requires a constant")
        if None in _window_constants(at.op)
        else check_static_shape(at)
    )


def _window_constants(op: Operator) -> list[list[int] | None]:
    return [constant_integers(op, slot) for slot in (2, 3, 4)]


def reduce_window_layout(at: Instance) -> Attribute:
    sizes, strides, _ = _window_constants(at.op)
    is_unaffected = [size == stride == 1 for size, stride in zip(sizes or (), strides or (), strict=False)]
    return unordered_layout(k for k in range(min(at.op[0].rank, len(is_unaffected))) if is_unaffected[k])


@handler(
    "REDUCE_WINDOW",
    max_version=1,
    layout=reduce_window_layout,
    axes=rank_preserving_axes,
    quantization=Raw(),
    accepts=check_constant_windows,
)
def reduce_window(ctx: Context, x: Value, initial: Value, *_windows: Value) -> Value:
    """Emit the nodes of STABLEHLO_REDUCE_WINDOW, with windows from operands.

    There is no padding. Source: stablehlo_reduce_window.cc.
    """
    constants = [entries or [] for entries in _window_constants(ctx.op)]
    if any(len(entries) != ctx.op[0].rank for entries in constants):
        raise Refusal("the windows do not have one entry per axis")
    windows = Windows(*map(ctx.permute_entries, constants))
    reduction = ctx.options.reduce_function
    if reduction == "UNSUPPORTED":
        raise Refusal("the reduction is UNSUPPORTED, which the kernel refuses")
    sizes = [static_size(ctx, k) for k in range(len(ctx.shape(0)))]
    return reduce_windows(ctx, x, reshape_to_scalar(ctx, 1, initial), sizes, windows, reduction)
