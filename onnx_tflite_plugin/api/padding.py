"""Explicit ONNX pads for TFLite's SAME and VALID.

The kernels compute them from sizes (ComputePaddingHeightWidth, kernels/padding.h): the smaller half goes before,
and dilation widens the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.source.model import Dims


class Padding(TypedDict, total=False):
    """Attributes of a Conv or a pool."""

    pads: list[int]
    auto_pad: str


def conv_pads(
    padding: str, size: Dims, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """``[begin of each axis..., end of each axis...]`` for spatial sizes.

    Raises Refused for SAME on unknown sizes, and for windows, strides or dilations that are not positive.
    """
    if min((*kernel, *stride, *dilation), default=1) < 1:
        raise Refused(
            f"its window {list(kernel)}, strides {list(stride)} and dilations {list(dilation)} are not all positive"
        )
    if padding == "VALID":
        return [0] * (2 * len(kernel))
    before, after = [], []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        total = _same(n, (k - 1) * d + 1, s)
        before.append(total // 2)
        after.append(total - total // 2)
    return [*before, *after]


def padding_attributes(
    padding: str, size: Dims, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Padding:
    """``pads`` of a Conv or a pool, or ``auto_pad`` where they follow from sizes known only at run time.

    Raises Refused where ONNX Runtime's ``auto_pad`` counts otherwise than the kernels: with a dilation, or where a stride is
    longer than the kernel.
    """
    try:
        return {"pads": conv_pads(padding, size, kernel, stride, dilation)}
    except Refused:
        if any(d != 1 for d in dilation) or any(s > k for s, k in zip(stride, kernel, strict=True)):
            raise
        return {"auto_pad": "SAME_UPPER"}


def _same(size: int | None, extent: int, stride: int) -> int:
    """Padding that makes ceil(size / stride) outputs."""
    if size is None:
        if 1 in (stride, extent):
            return extent - 1
        raise Refused("SAME padding with a stride on an unknown size; give it with --input-shape")
    return max((-(-size // stride) - 1) * stride + extent - size, 0)


def transposed_pads(
    padding: str, output: Dims, size: Dims, kernel: Sequence[int], stride: Sequence[int]
) -> tuple[list[int], list[int]]:  # fmt: skip
    """Pads and output padding of a ConvTranspose that makes ``output`` from ``size``: those of the forward convolution.

    Raises Refused where the output cannot come from such a convolution, or sizes are unknown.
    """
    if None in output or None in size:
        raise Refused("a transposed convolution of unknown size; give it with --input-shape")
    pads = conv_pads(padding, output, kernel, stride, [1] * len(kernel))
    n = len(kernel)
    extra = []
    for i in range(n):
        full = ((size[i] or 0) - 1) * stride[i] + kernel[i]
        over = (output[i] or 0) - (full - pads[i] - pads[n + i])
        if over < 0:  # SAME cuts more than the padding where the output is short
            pads[n + i] -= over
            over = 0
        if over >= stride[i]:
            raise Refused(f"its output size {output[i]} cannot come from input size {size[i]}")
        extra.append(over)
    return pads, extra
