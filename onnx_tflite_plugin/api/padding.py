"""Explicit ONNX pads for TFLite's SAME and VALID.

As in the kernels (ComputePaddingHeightWidth, kernels/padding.h), pads are computed from sizes: the smaller half comes
first, and dilation widens the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.source.model import Dims


class Padding(TypedDict, total=False):
    """Padding attributes of a Conv or a pool."""

    pads: list[int]
    auto_pad: str


def conv_pads(
    padding: str, size: Dims, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Return the ONNX pads ``[begin of each axis..., end of each axis...]``.

    ``padding``: "SAME" or "VALID". All other arguments have one entry per spatial axis; ``size`` contains the sizes of
    the input. Raises Refusal for SAME with dynamic dimensions, and for windows, strides or dilations that are not
    positive. Raises ValueError for another ``padding``.
    """
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"padding is {padding!r}; write 'SAME' or 'VALID'")
    if min((*kernel, *stride, *dilation), default=1) < 1:
        raise Refusal(
            f"window {list(kernel)}, strides {list(stride)} and dilations {list(dilation)} are not all positive"
        )
    if padding == "VALID":
        return [0] * (2 * len(kernel))
    before, after = [], []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        total = _same_padding(n, (k - 1) * d + 1, s)
        before.append(total // 2)
        after.append(total - total // 2)
    return [*before, *after]


def padding_attributes(
    padding: str, size: Dims, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Padding:
    """Return the padding attributes of a Conv or a pool.

    The result has ``pads``, or ``auto_pad`` if the pads depend on sizes that are known only at runtime. Raises Refusal if
    ONNX Runtime's ``auto_pad`` differs from the kernels: with a dilation, or if a stride is longer than the kernel.
    """
    try:
        return {"pads": conv_pads(padding, size, kernel, stride, dilation)}
    except Refusal:
        if any(d != 1 for d in dilation) or any(s > k for s, k in zip(stride, kernel, strict=True)):
            raise
        return {"auto_pad": "SAME_UPPER"}


def _same_padding(size: int | None, extent: int, stride: int) -> int:
    """Return the padding that yields ceil(size / stride) outputs."""
    if size is None:
        if 1 in (stride, extent):
            return extent - 1
        raise Refusal("SAME padding with a stride on a dynamic dimension; set its size with --input-shape")
    return max((-(-size // stride) - 1) * stride + extent - size, 0)


def conv_transpose_pads(
    padding: str, output: Dims, size: Dims, kernel: Sequence[int], stride: Sequence[int]
) -> tuple[list[int], list[int]]:  # fmt: skip
    """Return pads and output padding of a ConvTranspose from ``size`` to ``output``.

    These are the pads of the convolution from ``output`` to ``size``. Raises Refusal if no ConvTranspose has this output
    size, or if a dimension is dynamic.
    """
    if None in output or None in size:
        raise Refusal("a transposed convolution has a dynamic shape; set the shape with --input-shape")
    pads = conv_pads(padding, output, kernel, stride, [1] * len(kernel))
    n = len(kernel)
    output_padding = []
    for i in range(n):
        full_size = ((size[i] or 0) - 1) * stride[i] + kernel[i]
        excess = (output[i] or 0) - (full_size - pads[i] - pads[n + i])
        if excess < 0:  # SAME crops more than the padding if the output is short
            pads[n + i] -= excess
            excess = 0
        if excess >= stride[i]:
            raise Refusal(f"output size {output[i]} cannot come from input size {size[i]}")
        output_padding.append(excess)
    return pads, output_padding
