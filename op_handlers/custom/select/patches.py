"""Extraction of image patches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Operator, Terminate, Value, ValueLike, handler, out, spend_budget
from op_handlers.custom.select import windows as reference
from op_handlers.custom.select.image import image_axes, padding_mode, spatial_entries
from op_handlers.custom.select.nodedef import PREFIX, node_of
from op_handlers.custom.select.rewriting import ANY, acceptance_check, rank_check, uniform_types


def extract_patches(op: Operator, x: Array) -> Array:
    node = node_of(op)
    axes = image_axes(node)
    kernel, strides, rates = (spatial_entries(node, name, axes) for name in ("ksizes", "strides", "rates"))
    windows = reference.extract_windows(x, kernel, strides, rates, node.text("padding"), 0)
    return windows.reshape(*windows.shape[:3], -1)


@handler(
    PREFIX + "ExtractImagePatches",
    max_version=1,
    layout=Terminate(),
    types=uniform_types(ANY),
    accepts=acceptance_check(1, accepts=rank_check({0: 4, out(0): 4})),
    kernel=extract_patches,
)
def extract_image_patches(ctx: Context, x: Value) -> Value:
    """Emit a Gather of the rows, and a Gather of the columns, of each window."""
    ops, node, dims = ctx.ops, node_of(ctx.op), ctx.op[0].dims
    axes = image_axes(node)
    kernel, strides, rates = (spatial_entries(node, name, axes) for name in ("ksizes", "strides", "rates"))
    padding = padding_mode(node)
    for axis in (2, 1):  # columns first, so that the axis of rows stays in place
        windows = AxisWindows(axis, kernel[axis - 1], strides[axis - 1], rates[axis - 1])
        dim = dims[axis]
        size = ops.Gather(ops.Shape(x), np.asarray(axis)) if dim is None else dim
        if padding == "SAME":
            x = ops.Pad(x, windows.margins, np.zeros((), ctx.op[0].dtype), mode="constant")
        x = ops.Gather(x, windows.indices(ctx, size, same=padding == "SAME"), axis=axis)
    patches = ops.Transpose(x, perm=[0, 1, 3, 2, 4, 5])
    if dims[3] is None:
        return ops.Reshape(patches, ops.Concat(ops.Slice(ops.Shape(patches), [0], [3]), [-1], axis=0))
    return ops.Reshape(patches, [0, 0, 0, kernel[0] * kernel[1] * dims[3]])


class AxisWindows(NamedTuple):
    """The windows along one axis."""

    axis: int
    kernel: int
    stride: int
    rate: int

    @property
    def extent(self) -> int:
        """Return the number of pixels that a window spans, with dilation."""
        return (self.kernel - 1) * self.rate + 1

    @property
    def margins(self) -> Array:
        """Return the operand ``pads`` of Pad: the largest padding that the axis can need.

        Columns are padded and gathered first, and become two axes. For rows, the tensor therefore has rank 5.
        """
        rank = 4 if self.axis == 2 else 5
        pads = np.zeros((2, rank), np.int64)
        pads[:, self.axis] = self.extent - 1
        return pads.reshape(-1)

    def indices(self, ctx: Context, size: Value | int, *, same: bool) -> ValueLike:
        """Return the positions of each window's pixels along the axis, [windows, kernel].

        ``size``: the size of the image before padding. ``same``: the padding is SAME, and the axis has ``margins``.
        """
        ops, offsets = ctx.ops, np.arange(self.kernel, dtype=np.int64) * self.rate
        if isinstance(size, int):
            count = -(-size // self.stride) if same else (size - self.extent) // self.stride + 1
            padding = max((count - 1) * self.stride + self.extent - size, 0)
            shift = self.extent - 1 - padding // 2 if same else 0
            spend_budget(max(count, 0) * self.kernel, 8, "the indices of patches")
            return np.arange(count, dtype=np.int64)[:, None] * self.stride + offsets + shift
        step = np.int64(self.stride)
        if not same:
            starts = ops.Range(np.int64(0), ops.Sub(size, np.int64(self.extent - 1)), step)
            return ops.Add(ops.Unsqueeze(starts, [1]), offsets)
        last_start = ops.Mul(ops.Div(ops.Sub(size, np.int64(1)), step), step)
        computed_padding = ops.Max(ops.Sub(ops.Add(last_start, np.int64(self.extent)), size), np.int64(0))
        computed_shift = ops.Sub(np.int64(self.extent - 1), ops.Div(computed_padding, np.int64(2)))
        starts = ops.Add(ops.Range(np.int64(0), size, step), computed_shift)
        return ops.Add(ops.Unsqueeze(starts, [1]), offsets)
