"""Windows and places of images in NumPy, for the kernels that verification runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array


def pads(size: int, kernel: int, stride: int, dilation: int, kind: str) -> tuple[int, int]:
    """Return the padding of SAME before and after an axis."""
    if kind != "SAME":
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def patches(
    image: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    kind: str,
    filling: float,
    explicit: Array | None = None,
) -> Array:
    """Return the windows of an image, channels last: [n, places..., kernel..., c]."""
    sizes = image.shape[1:-1]
    if explicit is None:
        each = [pads(*of, kind) for of in zip(sizes, kernel, strides, dilations, strict=True)]
    else:
        each = [(int(before), int(after)) for before, after in explicit]
    padded = np.pad(image, [(0, 0), *each, (0, 0)], constant_values=filling)
    counts = [
        (size - (k - 1) * d - 1) // s + 1
        for size, k, s, d in zip(padded.shape[1:-1], kernel, strides, dilations, strict=True)
    ]
    result = np.empty((len(image), *counts, *kernel, image.shape[-1]), image.dtype)
    for at in product(*map(range, kernel)):
        places = tuple(
            slice(k * d, k * d + (count - 1) * s + 1, s)
            for k, d, count, s in zip(at, dilations, counts, strides, strict=True)
        )
        target: tuple[Any, ...] = (*[slice(None)] * (1 + len(kernel)), *at)
        result[target] = padded[(slice(None), *places)]
    return result


def nearest(x: Array, size: Sequence[int], align_corners: bool, half_pixel_centers: bool) -> Array:
    """Return the nearest pixels."""
    for axis, wanted in zip((1, 2), size, strict=True):
        at = np.arange(wanted, dtype=np.float32)
        scale = step(x.shape[axis], wanted, align_corners)
        place = (at + np.float32(0.5)) * scale if half_pixel_centers else at * scale
        index = np.floor(place + np.float32(0.5)) if align_corners else np.floor(place)
        x = np.take(x, np.clip(index.astype(int), 0, x.shape[axis] - 1), axis)
    return x


def bilinear(x: Array, size: Sequence[int], align_corners: bool, half_pixel_centers: bool) -> Array:
    """Return means of neighboring pixels."""
    for axis, wanted in zip((1, 2), size, strict=True):
        at = np.arange(wanted, dtype=np.float32)
        scale = step(x.shape[axis], wanted, align_corners)
        place = (at + np.float32(0.5)) * scale - np.float32(0.5) if half_pixel_centers else at * scale
        below = np.floor(place)
        share = (place - below).reshape(-1, *[1] * (x.ndim - axis - 1))
        last = x.shape[axis] - 1
        low, high = (np.clip(k.astype(int), 0, last) for k in (below, below + 1))
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    return x.astype(np.float32)


def step(size: int, wanted: int, align_corners: bool) -> np.float32:
    """Return the positions in the image from one pixel of the result to the next."""
    if align_corners and wanted > 1:
        return np.float32((size - 1) / (wanted - 1))
    return np.float32(size / wanted)
