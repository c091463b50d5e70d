"""Window extraction and image resizing in NumPy, for kernels of ``verify``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array


def same_padding(size: int, kernel: int, stride: int, dilation: int, mode: str) -> tuple[int, int]:
    """Return the padding at both ends of an axis; zeros unless the mode is SAME."""
    if mode != "SAME":
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def extract_windows(
    image: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    mode: str,
    fill_value: float,
    explicit_pads: Array | None = None,
) -> Array:
    """Return the windows of a channels-last image, [n, positions..., kernel..., c]."""
    sizes = image.shape[1:-1]
    if explicit_pads is None:
        paddings = [
            same_padding(*parameters, mode) for parameters in zip(sizes, kernel, strides, dilations, strict=True)
        ]
    else:
        paddings = [(int(before), int(after)) for before, after in explicit_pads]
    padded = np.pad(image, [(0, 0), *paddings, (0, 0)], constant_values=fill_value)
    counts = [
        (size - (k - 1) * d - 1) // s + 1
        for size, k, s, d in zip(padded.shape[1:-1], kernel, strides, dilations, strict=True)
    ]
    result = np.empty((len(image), *counts, *kernel, image.shape[-1]), image.dtype)
    for offset in product(*map(range, kernel)):
        source_index = tuple(
            slice(k * d, k * d + (count - 1) * s + 1, s)
            for k, d, count, s in zip(offset, dilations, counts, strides, strict=True)
        )
        target_index: tuple[Any, ...] = (*[slice(None)] * (1 + len(kernel)), *offset)
        result[target_index] = padded[(slice(None), *source_index)]
    return result


def resize_nearest(x: Array, size: Sequence[int], align_corners: bool, half_pixel_centers: bool) -> Array:
    """Return the image resized to (height, width) with the nearest pixels."""
    for axis, new_size in zip((1, 2), size, strict=True):
        indices = np.arange(new_size, dtype=np.float32)
        scale = coordinate_scale(x.shape[axis], new_size, align_corners)
        positions = (indices + np.float32(0.5)) * scale if half_pixel_centers else indices * scale
        nearest = np.floor(positions + np.float32(0.5)) if align_corners else np.floor(positions)
        x = np.take(x, np.clip(nearest.astype(int), 0, x.shape[axis] - 1), axis)
    return x


def resize_bilinear(x: Array, size: Sequence[int], align_corners: bool, half_pixel_centers: bool) -> Array:
    """Return the image resized to (height, width) by bilinear interpolation."""
    for axis, new_size in zip((1, 2), size, strict=True):
        indices = np.arange(new_size, dtype=np.float32)
        scale = coordinate_scale(x.shape[axis], new_size, align_corners)
        positions = (indices + np.float32(0.5)) * scale - np.float32(0.5) if half_pixel_centers else indices * scale
        lower = np.floor(positions)
        weight = (positions - lower).reshape(-1, *[1] * (x.ndim - axis - 1))
        last = x.shape[axis] - 1
        low, high = (np.clip(k.astype(int), 0, last) for k in (lower, lower + 1))
        x = np.take(x, low, axis) * (1 - weight) + np.take(x, high, axis) * weight
    return x.astype(np.float32)


def coordinate_scale(size: int, new_size: int, align_corners: bool) -> np.float32:
    """Return the step in input pixels between adjacent output pixels."""
    if align_corners and new_size > 1:
        return np.float32((size - 1) / (new_size - 1))
    return np.float32(size / new_size)
