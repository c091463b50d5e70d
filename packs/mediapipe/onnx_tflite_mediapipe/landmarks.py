"""Landmarks: affine transforms of points, and crops around some of them."""

from __future__ import annotations

import math

import numpy as np

from onnx_tflite_mediapipe import kernels
from onnx_tflite_mediapipe.options import check_version
from onnx_tflite_plugin.api import Context, Decline, Instance, Operator, Terminate, Value, handler


def check_points(at: Instance) -> Decline | None:
    """Return a Decline for landmarks of a shape that the kernel refuses."""
    shape = at.op[0].dims
    if len(shape) != 3 or shape[0] != 1 or shape[2] not in (2, 3):
        return Decline(f"landmarks have shape {list(shape)}; the kernel requires [1, N, 2] or [1, N, 3]")
    return check_version(at)


@handler(
    "CUSTOM.TransformLandmarks",
    max_version=2,
    layout=Terminate(),
    types="float32, float32 -> float32",
    accepts=check_points,
    kernel=kernels.transform_landmarks,
)
def transform_landmarks(ctx: Context, landmarks: Value, matrix: Value) -> Value:
    """Emit MatMul of x and y; z is unchanged."""
    ops = ctx.ops
    rows = ops.Slice(ops.Reshape(matrix, [4, 4]), [0], [2], [0])
    rotation_part, shift = ops.Slice(rows, [0], [2], [1]), ops.Slice(rows, [3], [4], [1])
    xy = ops.Slice(landmarks, [0], [2], [2])
    transformed = ops.Add(ops.MatMul(xy, ops.Transpose(rotation_part, perm=[1, 0])), ops.Transpose(shift, perm=[1, 0]))
    return (
        transformed if ctx.op[0].dims[2] == 2 else ops.Concat(transformed, ops.Slice(landmarks, [2], [3], [2]), axis=2)
    )


REQUIRED_OPTIONS = (
    "subset_idxs",
    "left_rotation_idx",
    "right_rotation_idx",
    "output_height",
    "output_width",
    "scale_x",
    "scale_y",
)


def crop_landmarks(op: Operator) -> tuple[int, ...]:
    """Return the indices of the landmarks that the crop must contain."""
    return tuple(int(index) for index in op.options.subset_idxs)


def check_crop(at: Instance) -> Decline | None:
    """Return a Decline for options or landmarks that the kernel refuses."""
    options, shape = at.op.options, at.op[0].dims
    if missing := [name for name in REQUIRED_OPTIONS if name not in options]:
        return Decline(f"the options lack {', '.join(missing)}")
    if len(shape) != 3 or shape[2] != 3:
        return Decline(f"landmarks have shape {list(shape)}; the kernel requires [1, N, 3]")
    indices = (*crop_landmarks(at.op), options.left_rotation_idx, options.right_rotation_idx)
    if not crop_landmarks(at.op) or min(indices) < 0 or max(indices) >= (shape[1] or max(indices) + 1):
        return Decline(f"the options name landmarks {indices}, but there are {shape[1]}")
    if min(options.output_height, options.output_width, options.scale_x, options.scale_y) <= 0:
        return Decline("scales and output sizes are not all positive, which the kernel refuses")
    return check_version(at)


@handler(
    "CUSTOM.Landmarks2TransformMatrix",
    max_version=2,
    layout=Terminate(),
    types="float32 -> float32",
    accepts=check_crop,
    kernel=kernels.transform_matrix,
)
def transform_matrix(ctx: Context, landmarks: Value) -> Value:
    """Emit the ``[1, 4, 4]`` transform of a crop.

    The transform rotates by two landmarks, then scales and shifts to the box around a subset.

    The kernel rotates by ``r = target - atan2(dy, dx)``. Only the cosine and the sine of r are needed. They follow from
    the two angles' cosines and sines, ``dx / hypot`` and ``dy / hypot``.
    """
    options, ops = ctx.options, ctx.ops
    xy = ops.Slice(ops.Squeeze(landmarks, [0]), [0], [2], [1])
    target = float(options.get("target_rotation_radians", 0.0))
    rotation_points = ops.Gather(xy, np.asarray([options.right_rotation_idx, options.left_rotation_idx]), axis=0)
    difference = ops.Sub(ops.Slice(rotation_points, [0], [1], [0]), ops.Slice(rotation_points, [1], [2], [0]))
    length = ops.ReduceL2(difference, [1], keepdims=1)
    is_one_point = ops.Equal(length, np.float32(0))
    direction = ops.Div(difference, length)
    direction = ops.Where(is_one_point, np.asarray([[1, 0]], np.float32), direction)  # atan2(0, 0) is 0
    target_rotation = np.asarray(
        [[math.cos(target), math.sin(target)], [math.sin(target), -math.cos(target)]], np.float32
    )
    cos, sin = ops.Split(ops.MatMul(direction, target_rotation), axis=1, num_outputs=2, outputs=2)
    # This is the transpose of the rotation by r, because points are rows.
    rotation = ops.Concat(ops.Concat(cos, sin, axis=1), ops.Concat(ops.Neg(sin), cos, axis=1), axis=0)
    rotated = ops.MatMul(ops.Gather(xy, np.asarray(crop_landmarks(ctx.op)), axis=0), rotation)
    high, low = ops.ReduceMax(rotated, [0], keepdims=1), ops.ReduceMin(rotated, [0], keepdims=1)
    rotation_back = ops.Transpose(rotation, perm=[1, 0])
    center = ops.MatMul(ops.Mul(ops.Add(high, low), np.float32(0.5)), rotation_back)
    size = np.asarray([[options.output_width, options.output_height]], np.float32)
    scale = ops.Mul(ops.Sub(high, low), np.asarray([[options.scale_x, options.scale_y]], np.float32) / size)
    scaled = ops.Mul(rotation, scale)
    shift = ops.Add(ops.MatMul(scaled, -size.T / 2), ops.Transpose(center, perm=[1, 0]))
    rows = ops.Concat(scaled, np.zeros((2, 1), np.float32), shift, axis=1)
    return ops.Unsqueeze(ops.Concat(rows, np.eye(4, dtype=np.float32)[2:], axis=0), [0])
