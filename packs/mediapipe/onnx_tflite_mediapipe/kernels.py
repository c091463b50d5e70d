"""NumPy versions of MediaPipe's C++ kernels.

The source is mediapipe/util/tflite/operations. Arrays are channels last (N H W C).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_tflite_mediapipe.options import read_pool_options, read_transposed_convolution_options
from onnx_tflite_plugin.api import Operator

Array = npt.NDArray[Any]


def transposed_convolution(op: Operator, x: Array, weights: Array, bias: Array) -> Array:
    """Add the filter, scaled by each input pixel, at the pixel's output position.

    The kernel is TransposeConvBias, transpose_conv_bias.cc.
    """
    options = read_transposed_convolution_options(op)
    (batch, height, width, _), (channels, rows, columns, _) = x.shape, weights.shape
    row_stride, column_stride = options.strides
    output = np.zeros(
        (batch, row_stride * (height - 1) + rows, column_stride * (width - 1) + columns, channels), np.float32
    )
    for j in range(rows):
        for k in range(columns):
            output[:, j : j + row_stride * height : row_stride, k : k + column_stride * width : column_stride][
                :, :height, :width
            ] += x @ weights[:, j, k].T
    if options.padding == "SAME":
        cropped_sizes = [
            max(0, rows - (height - 1) % row_stride - 1),
            max(0, columns - (width - 1) % column_stride - 1),
        ]
        output = output[
            :,
            cropped_sizes[0] // 2 : output.shape[1] - (cropped_sizes[0] + 1) // 2,
            cropped_sizes[1] // 2 : output.shape[2] - (cropped_sizes[1] + 1) // 2,
        ]
    return output + bias


def max_pooling(op: Operator, x: Array) -> tuple[Array, Array]:
    """Return the maximum of each window, and its first index in the window plus 0.1.

    The kernel is MaxPoolArgmax, max_pool_argmax.cc.
    """
    options = read_pool_options(op)
    batch, height, width, channels = x.shape
    counts, pads = [], []
    for size, length, step in zip((height, width), options.size, options.strides, strict=True):
        count = -(-size // step) if options.padding == "SAME" else (size - length + step) // step
        counts.append(count)
        pads.append(max(0, (count - 1) * step + length - size) // 2)
    pooled = np.empty((batch, *counts, channels), np.float32)
    indices = np.empty_like(pooled)
    for row in range(counts[0]):
        for column in range(counts[1]):
            top, left = row * options.strides[0] - pads[0], column * options.strides[1] - pads[1]
            padding_before = max(0, -top), max(0, -left)
            patch = x[:, max(0, top) : top + options.size[0], max(0, left) : left + options.size[1]]
            elements = patch.reshape(batch, -1, channels)
            position = elements.argmax(axis=1)
            row_in_patch, column_in_patch = np.divmod(position, patch.shape[2])
            pooled[:, row, column] = np.take_along_axis(elements, position[:, None], axis=1)[:, 0]
            indices[:, row, column] = (
                (row_in_patch + padding_before[0]) * options.size[1]
                + column_in_patch
                + padding_before[1]
                + np.float32(0.1)
            )
    return np.clip(pooled, *options.bounds) if options.bounds != (None, None) else pooled, indices


def max_unpooling(op: Operator, x: Array, indices: Array) -> Array:
    """Place each element at its index in its window, with zeros around it.

    The kernel is MaxUnpooling, max_unpooling.cc.
    """
    options = read_pool_options(op)
    batch, height, width, channels = x.shape
    result = np.zeros((batch, height * options.size[0], width * options.size[1], channels), np.float32)
    row_in_window, column_in_window = np.divmod(indices.astype(int), options.size[1])
    n, row, column, c = np.indices(x.shape)
    result[n, row * options.strides[0] + row_in_window, column * options.strides[1] + column_in_window, c] = x
    return result


def transform_tensor(op: Operator, image: Array, matrix: Array) -> Array:
    """Interpolate each pixel from the four neighbors of its mapped center.

    The kernel is TransformTensorBilinearV2.
    """
    (_, height, width, _), m = image.shape, matrix.reshape(4, 4)
    result = np.zeros(op[~0].shape, np.float32)
    for row, column in np.ndindex(*result.shape[1:3]):
        x, y = (float(m[k, 0] * (column + 0.5) + m[k, 1] * (row + 0.5) + m[k, 3] - 0.5) for k in (0, 1))
        if not (0 <= x <= width - 1 and 0 <= y <= height - 1):
            continue
        left, top = math.floor(x), math.floor(y)
        bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)  # beyond the edge their weight is 0
        upper = (left + 1 - x) * image[0, top, left] + (x - left) * image[0, top, right]
        lower = (left + 1 - x) * image[0, bottom, left] + (x - left) * image[0, bottom, right]
        result[0, row, column] = (top + 1 - y) * upper + (y - top) * lower
    return result


def transform_landmarks(op: Operator, landmarks: Array, matrix: Array) -> Array:
    """Transform x and y by the first two rows of the matrix.

    The kernel is TransformLandmarksV2.
    """
    m = matrix.reshape(4, 4)
    result = landmarks.copy()
    for k in (0, 1):
        result[..., k] = m[k, 0] * landmarks[..., 0] + m[k, 1] * landmarks[..., 1] + m[k, 3]
    return result


def transform_matrix(op: Operator, landmarks: Array) -> Array:
    """Return the matrix that maps the output image to the crop.

    The matrix shifts by half the output, scales, rotates, and shifts to the crop's center. The kernel is
    LandmarksToTransformMatrixV2.
    """
    options, points = op.options, landmarks.reshape(-1, 3)[:, :2].astype(np.float64)
    dx, dy = points[options.right_rotation_idx] - points[options.left_rotation_idx]
    angle = options.get("target_rotation_radians", 0.0) - math.atan2(dy, dx)
    rotate, rotate_back = rotation(angle), rotation(-angle)
    rotated = points[list(options.subset_idxs)] @ rotate[:2, :2].T
    high, low = rotated.max(axis=0), rotated.min(axis=0)
    center = rotate_back[:2, :2] @ ((high + low) / 2)
    size = np.asarray([options.output_width, options.output_height])
    scale = np.asarray([options.scale_x, options.scale_y]) * (high - low) / size
    result = translation(*center) @ rotate_back @ np.diag([*scale, 1, 1]) @ translation(*(-size / 2))
    return result.astype(np.float32)[None]


def rotation(angle: float) -> Array:
    matrix = np.eye(4)
    matrix[:2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    return matrix


def translation(x: float, y: float) -> Array:
    matrix = np.eye(4)
    matrix[:2, 3] = x, y
    return matrix
