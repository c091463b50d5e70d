"""Explicit pads for SAME and VALID equal TFLite's.

The formula is ComputePaddingHeightWidth (kernels/padding.h).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from onnx_tflite_plugin.api import Refusal
from onnx_tflite_plugin.api.padding import conv_pads, conv_transpose_pads, padding_attributes


def kernel_pads(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the padding before and after, computed as the kernel does.

    See ``ComputePaddingWithOffset``.
    """
    extent = (kernel - 1) * dilation + 1
    outputs = (size + stride - 1) // stride
    total = max((outputs - 1) * stride + extent - size, 0)
    return total // 2, total // 2 + total % 2


def test_same_padding_equals_the_kernel() -> None:
    for size, kernel, stride, dilation in itertools.product((1, 5, 8), (1, 2, 3, 7), (1, 2, 3), (1, 2)):
        before, after = kernel_pads(size, kernel, stride, dilation)
        pads = conv_pads("SAME", (size, 11), (kernel, 3), (stride, 2), (dilation, 1))
        assert pads == [before, 1, after, 1]
        assert conv_pads("VALID", (size, 11), (kernel, 3), (stride, 2), (dilation, 1)) == [0] * 4


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "pads"),
    [(3, 1, 1, [1, 1]), (4, 1, 1, [1, 2]), (3, 1, 2, [2, 2]), (1, 1, 1, [0, 0]), (1, 3, 1, [0, 0])],
)
def test_same_padding_with_stride_1_works_for_dynamic_sizes(
    kernel: int, stride: int, dilation: int, pads: list[int]
) -> None:
    assert conv_pads("SAME", (None,), (kernel,), (stride,), (dilation,)) == pads
    assert padding_attributes("SAME", (None,), (kernel,), (stride,), (dilation,)) == {"pads": pads}


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "has_auto_pad"),
    [(3, 2, 1, True), (2, 2, 1, True), (2, 3, 1, False), (3, 2, 2, False)],
)
def test_same_padding_of_dynamic_dimension_uses_equivalent_auto_pad(
    kernel: int, stride: int, dilation: int, has_auto_pad: bool
) -> None:
    arguments = ("SAME", (None, 7), (kernel, 3), (stride, 1), (dilation, 1))
    with pytest.raises(Refusal, match="SAME padding with a stride on a dynamic dimension"):
        conv_pads(*arguments)
    if has_auto_pad:
        assert padding_attributes(*arguments) == {"auto_pad": "SAME_UPPER"}
    else:
        with pytest.raises(Refusal, match="SAME padding with a stride on a dynamic dimension"):
            padding_attributes(*arguments)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [((0, 3), (1, 1), (1, 1)), ((3, 3), (1, 0), (1, 1)), ((3, 3), (1, 1), (0, 1))]
)
def test_windows_strides_and_dilations_are_positive(kernel: list[int], stride: list[int], dilation: list[int]) -> None:
    for padding in ("SAME", "VALID"):
        with pytest.raises(Refusal, match="are not all positive"):
            conv_pads(padding, (5, 7), kernel, stride, dilation)


def test_transposed_convolution_inverts_every_convolution_size() -> None:
    for padding, output, kernel, stride in itertools.product(("SAME", "VALID"), (7, 8, 11), (1, 2, 3, 5), (1, 2, 3)):
        size = -(-output // stride) if padding == "SAME" else (output - kernel) // stride + 1
        (before, after), (extra,) = conv_transpose_pads(padding, (output,), (size,), (kernel,), (stride,))
        assert (size - 1) * stride + kernel - before - after + extra == output  # as ONNX defines ConvTranspose
        assert before == (kernel_pads(output, kernel, stride, 1)[0] if padding == "SAME" else 0)
        assert 0 <= extra < stride


@pytest.mark.parametrize(
    ("output", "size", "reason"), [(None, 3, "dynamic shape"), (9, None, "dynamic shape"), (9, 3, "cannot come from")]
)
def test_impossible_output_size_of_transposed_convolution_is_refused(
    output: int | None, size: int | None, reason: str
) -> None:
    with pytest.raises(Refusal, match=reason):
        conv_transpose_pads("VALID", (output,), (size,), (3,), (2,))


@pytest.mark.parametrize("padding", ["valid", "same", "foo", "", 1])
def test_paddings_other_than_same_and_valid_are_errors(padding: Any) -> None:
    for call in (
        lambda: conv_pads(padding, (5,), (3,), (1,), (1,)),
        lambda: padding_attributes(padding, (None,), (3,), (1,), (1,)),
        lambda: conv_transpose_pads(padding, (5,), (5,), (3,), (1,)),
    ):
        with pytest.raises(ValueError, match=f"padding is {padding!r}; write 'SAME' or 'VALID'"):
            call()
