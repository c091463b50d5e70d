"""Output shapes of operators with sliding windows.

Source: ComputeOutSize (kernels/padding.h).
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_tflite_plugin.api import Dims, Instance, Refusal


def conv_shape(at: Instance) -> Dims:
    """Return the shape of a convolution with filters ``[C_out, H, W, C_in]``."""
    weights = at.op[1].dims
    return window_shape(at, weights[1:-1], weights[0])


def depthwise_conv_shape(at: Instance) -> Dims:
    """Return the shape of a depthwise convolution, with filters ``[1, H, W, C_out]``."""
    weights = at.op[1].dims
    return window_shape(at, weights[1:-1], weights[-1])


def conv_3d_shape(at: Instance) -> Dims:
    """Return the shape of a convolution with filters ``[D, H, W, C_in, C_out]``."""
    weights = at.op[1].dims
    return window_shape(at, weights[:3], weights[-1])


def pool_shape(at: Instance) -> Dims:
    """Return the shape of a pool over height and width."""
    options = at.op.options
    return window_shape(at, (options.filter_height, options.filter_width), at.op[0].dims[-1])


def window_shape(at: Instance, window: Sequence[int | None], channels: int | None) -> Dims:
    """Return ``[N, spatial sizes..., C]`` for a sliding window.

    The sizes depend on padding, strides and dilations of the operator. Raises Refusal for a rank that does not fit the
    window, for a stride below 1, and for a window larger than the image.
    """
    image, options = at.op[0].dims, at.op.options
    letters = "dhw"[-len(window) :]
    if len(image) != len(window) + 2:
        raise Refusal(f"the operand has rank {len(image)}, but the window has {len(window)} axes")
    sizes = [
        _window_count(
            size, extent, options[f"stride_{letter}"], options.get(f"dilation_{letter}_factor", 1), options.padding
        )
        for size, extent, letter in zip(image[1:-1], window, letters, strict=True)
    ]
    return (image[0], *sizes, channels)


def _window_count(size: int | None, window: int | None, stride: int, dilation: int, padding: str) -> int | None:
    """Return the number of window positions along one axis."""
    if stride < 1:
        raise Refusal(f"the stride is {stride}, expected at least 1")
    if size is None or window is None:
        return None
    extent = 1 if padding == "SAME" else (window - 1) * dilation + 1
    if padding == "VALID" and extent > size:
        raise Refusal(f"the window spans {extent} elements, but the axis has {size}")
    return (size + stride - extent) // stride
