"""Max pooling with indices, and its inverse.

MediaPipe's indices are relative to the window; ONNX's indices are relative to the tensor.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_mediapipe import kernels
from onnx_tflite_mediapipe.options import read_pool_options
from onnx_tflite_plugin.api import Context, Decline, Implicit, Instance, Refusal, Value, conv_pads, handler

INDEX_OFFSET = np.float32(0.1)
"""Offset that the kernel adds to an index before the cast to integers, so that rounding errors do not lower it."""


@handler(
    "CUSTOM.MaxPoolingWithArgmax2D",
    max_version=1,
    layout=Implicit(onnx={0: "n c h w"}),
    axes="n h w c -> n y x c, n y x c",
    types="float32 -> float32, float32",
    kernel=kernels.max_pooling,
)
def max_pooling(ctx: Context, x: Value) -> tuple[Value, Value]:
    """Emit MaxPool with indices converted from the tensor to the window."""
    options, ops = read_pool_options(ctx.op), ctx.ops
    _, height, width, _ = ctx.op[0].dims
    if height is None or width is None:
        raise Refusal("the indices depend on the image's size, which is dynamic; set it with --input-shape")
    pads = conv_pads(options.padding, (height, width), options.size, options.strides, (1, 1))
    pooled, indices = ops.MaxPool(x, kernel_shape=options.size, strides=options.strides, pads=pads, outputs=2)
    image_index = ops.Mod(indices, height * width)
    row, column = ops.Div(image_index, width), ops.Mod(image_index, width)
    _, rows, columns, _ = ctx.op[~0].shape
    top, left = window_starts(rows, options.strides[0], pads[0]), window_starts(columns, options.strides[1], pads[1])
    window_index = ops.Add(ops.Mul(ops.Sub(row, top[:, None]), options.size[1]), ops.Sub(column, left))
    return clip_to_bounds(ctx, pooled, options.bounds), ops.Add(ops.Cast(window_index, to="float32"), INDEX_OFFSET)


def window_starts(count: int, stride: int, pad: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the start of each window along one axis, relative to the unpadded image."""
    return np.arange(count, dtype=np.int64) * stride - pad


def clip_to_bounds(ctx: Context, value: Value, bounds: tuple[float | None, float | None]) -> Value:
    """Clip to the range of the fused activation."""
    low, high = (None if bound is None else np.float32(bound) for bound in bounds)
    return value if low is high is None else ctx.ops.Clip(value, low, high)


def check_windows(at: Instance) -> Decline | None:
    """Return a Decline for windows that overlap or have gaps.

    For such windows, the kernel writes beyond its output.
    """
    options = read_pool_options(at.op)
    if options.strides != options.size:
        return Decline(
            f"windows {options.size} and strides {options.strides} differ, so elements have no single position"
        )
    return None


@handler(
    "CUSTOM.MaxUnpooling2D",
    max_version=1,
    layout=Implicit(onnx={0: "n c h w", 1: "n c h w"}),
    axes="n h w c, n h w c -> n y x c",
    types="float32, float32 -> float32",
    accepts=check_windows,
    kernel=kernels.max_unpooling,
)
def max_unpooling(ctx: Context, x: Value, indices: Value) -> Value:
    """Emit MaxUnpool with indices converted from the window to the tensor."""
    options, ops = read_pool_options(ctx.op), ctx.ops
    if None in ctx.op[0].dims:
        raise Refusal("the indices depend on all sizes, some of which are dynamic; set them with --input-shape")
    batch, height, width, channels = ctx.op[0].shape
    rows, columns = height * options.size[0], width * options.size[1]
    window_index = ops.Cast(indices, to="int64")
    row = ops.Add(ops.Div(window_index, options.size[1]), window_starts(height, options.strides[0], 0)[:, None])
    column = ops.Add(ops.Mod(window_index, options.size[1]), window_starts(width, options.strides[1], 0))
    planes = np.arange(batch * channels, dtype=np.int64).reshape(batch, channels, 1, 1) * (rows * columns)
    flat_indices = ops.Add(ops.Add(ops.Mul(row, columns), column), planes)
    return ops.MaxUnpool(x, flat_indices, kernel_shape=options.size, strides=options.strides)
