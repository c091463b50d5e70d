"""Affine transforms of images."""

from __future__ import annotations

import numpy as np

from onnx_tflite_mediapipe.kernels import transform_tensor as kernel
from onnx_tflite_mediapipe.options import check_version
from onnx_tflite_plugin.api import Context, Decline, Implicit, Instance, Refusal, Value, handler


def check_batch(at: Instance) -> Decline | None:
    """Return a Decline for batches: the kernel transforms only the first image."""
    return check_version(at) or (
        None if at.op[0].dims[0] == 1 else Decline("the operator transforms only the first image of a batch")
    )


@handler(
    "CUSTOM.TransformTensorBilinear",
    max_version=2,
    min_opset=16,
    layout=Implicit(onnx={0: "n c h w"}),
    axes="n h w c, _ -> n y x c",
    types="float32, float32 -> float32",
    accepts=check_batch,
    kernel=kernel,
)
def transform_tensor(ctx: Context, image: Value, matrix: Value) -> Value:
    """Emit GridSample at the mapped coordinates; zero outside the image."""
    ops = ctx.ops
    _, height, width, _ = ctx.op[0].dims
    _, rows, columns, _ = ctx.op[~0].dims
    if height is None or width is None or rows is None or columns is None:
        raise Refusal("sampling positions depend on dynamic sizes; set them with --input-shape")
    coordinates = map_coordinates(ctx, matrix, rows, columns)
    last_pixel = np.asarray([width - 1, height - 1], np.float32)
    grid = ops.Sub(ops.Mul(coordinates, 2 / np.maximum(last_pixel, 1)), np.float32(1))
    sampled = ops.GridSample(image, ops.Unsqueeze(grid, [0]), align_corners=1)
    in_range = ops.And(ops.GreaterOrEqual(coordinates, np.float32(0)), ops.LessOrEqual(coordinates, last_pixel))
    is_inside = ops.ReduceMin(ops.Cast(in_range, to="float32"), [2], keepdims=0)
    return ops.Mul(sampled, ops.Unsqueeze(is_inside, [0, 1]))


def map_coordinates(ctx: Context, matrix: Value, rows: int, columns: int) -> Value:
    """Emit the source coordinates of each output pixel, as ``[rows, columns, 2]``.

    The last axis holds x and y, relative to the center of the first pixel.
    """
    ops = ctx.ops
    y, x = np.meshgrid(np.arange(rows, dtype=np.float32), np.arange(columns, dtype=np.float32), indexing="ij")
    matrix_rows = ops.Slice(ops.Reshape(matrix, [4, 4]), [0], [2], [0])
    rotation_part, translation = ops.Slice(matrix_rows, [0], [2], [1]), ops.Slice(matrix_rows, [3], [4], [1])
    center_shift = ops.Sub(ops.Mul(ops.ReduceSum(rotation_part, [1], keepdims=1), np.float32(0.5)), np.float32(0.5))
    shift = ops.Transpose(ops.Add(translation, center_shift), perm=[1, 0])
    pixels = np.stack([x, y], axis=-1)
    return ops.Add(ops.MatMul(pixels, ops.Transpose(rotation_part, perm=[1, 0])), shift)
