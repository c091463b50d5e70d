"""An image seen through an affine map."""

from __future__ import annotations

import numpy as np

from onnx_tflite_mediapipe.kernels import transform_tensor as kernel
from onnx_tflite_mediapipe.options import second_version
from onnx_tflite_plugin.api import Context, Decline, Implicit, Instance, Refused, Value, handler


def one_image(at: Instance) -> Decline | None:
    """What the kernel does with further images of a batch: nothing."""
    return second_version(at) or (
        None if at.op[0].dims[0] == 1 else Decline("it transforms the first image of a batch alone")
    )


@handler(
    "CUSTOM.TransformTensorBilinear",
    max_version=2,
    min_opset=16,
    layout=Implicit(onnx={0: "n c h w"}),
    axes="n h w c, _ -> n y x c",
    types="float32, float32 -> float32",
    accepts=one_image,
    kernel=kernel,
)
def transform_tensor(ctx: Context, image: Value, matrix: Value) -> Value:
    """GridSample at the mapped places; zero where a place lies outside the image."""
    ops = ctx.ops
    _, height, width, _ = ctx.op[0].dims
    _, rows, columns, _ = ctx.op[~0].dims
    if height is None or width is None or rows is None or columns is None:
        raise Refused("the places it looks at depend on sizes that are unknown; give them with --input-shape")
    places = mapped(ctx, matrix, rows, columns)
    last = np.asarray([width - 1, height - 1], np.float32)
    grid = ops.Sub(ops.Mul(places, 2 / np.maximum(last, 1)), np.float32(1))
    sampled = ops.GridSample(image, ops.Unsqueeze(grid, [0]), align_corners=1)
    inside = ops.And(ops.GreaterOrEqual(places, np.float32(0)), ops.LessOrEqual(places, last))
    both = ops.ReduceMin(ops.Cast(inside, to="float32"), [2], keepdims=0)
    return ops.Mul(sampled, ops.Unsqueeze(both, [0, 1]))


def mapped(ctx: Context, matrix: Value, rows: int, columns: int) -> Value:
    """``[rows, columns, 2]``: where each pixel's centre comes from, x before y, in pixels from the first one's centre."""
    ops = ctx.ops
    y, x = np.meshgrid(np.arange(rows, dtype=np.float32), np.arange(columns, dtype=np.float32), indexing="ij")
    two = ops.Slice(ops.Reshape(matrix, [4, 4]), [0], [2], [0])
    turned, shifted = ops.Slice(two, [0], [2], [1]), ops.Slice(two, [3], [4], [1])
    half = ops.Sub(ops.Mul(ops.ReduceSum(turned, [1], keepdims=1), np.float32(0.5)), np.float32(0.5))
    shift = ops.Transpose(ops.Add(shifted, half), perm=[1, 0])
    pixels = np.stack([x, y], axis=-1)
    return ops.Add(ops.MatMul(pixels, ops.Transpose(turned, perm=[1, 0])), shift)
