"""Sizes of what a window that moves over an image gives (ComputeOutSize, kernels/padding.h)."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_tflite_plugin.api import Dims, Instance, Refused


def convolved_sizes(at: Instance) -> Dims:
    """Return the shape of a convolution whose filters have the axes ``[C_out, H, W, C_in]``."""
    weights = at.op[1].dims
    return window_sizes(at, weights[1:-1], weights[0])


def depthwise_sizes(at: Instance) -> Dims:
    """Return the shape of a depthwise convolution, with filters ``[1, H, W, C_out]``."""
    weights = at.op[1].dims
    return window_sizes(at, weights[1:-1], weights[-1])


def convolved_sizes_3d(at: Instance) -> Dims:
    """Return the shape of a convolution with filters ``[D, H, W, C_in, C_out]``."""
    weights = at.op[1].dims
    return window_sizes(at, weights[:3], weights[-1])


def pooled_sizes(at: Instance) -> Dims:
    """Return the shape of a pool over height and width."""
    options = at.op.options
    return window_sizes(at, (options.filter_height, options.filter_width), at.op[0].dims[-1])


def window_sizes(at: Instance, window: Sequence[int | None], channels: int | None) -> Dims:
    """Return ``[N, spatial sizes..., C]`` for a window, by the operator's padding, strides and dilations.

    Raises Refused for operands of another rank, and for strides that are not positive and windows
    that are larger than the image.
    """
    image, options = at.op[0].dims, at.op.options
    along = "dhw"[-len(window) :]
    if len(image) != len(window) + 2:
        raise Refused(f"its operand has rank {len(image)}, its window {len(window)} axes")
    sizes = [
        _moved(size, extent, options[f"stride_{axis}"], options.get(f"dilation_{axis}_factor", 1), options.padding)
        for size, extent, axis in zip(image[1:-1], window, along, strict=True)
    ]
    return (image[0], *sizes, channels)


def _moved(size: int | None, window: int | None, stride: int, dilation: int, padding: str) -> int | None:
    """Return how many places a window has along one axis."""
    if stride < 1:
        raise Refused(f"its stride is {stride}")
    if size is None or window is None:
        return None
    extent = 1 if padding == "SAME" else (window - 1) * dilation + 1
    if padding == "VALID" and extent > size:
        raise Refused(f"its window spans {extent} of {size} elements")
    return (size + stride - extent) // stride
