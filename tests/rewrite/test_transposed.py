"""A quantized transposed convolution is a convolution that makes several places at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, image, parsed, settled

from conformance.builder import TensorRef
from conformance.models import constant
from conformance.weights import bias, product, weight
from onnx_tflite_plugin.rewrite.images.conv_transpose_to_conv import Axis
from onnx_tflite_plugin.verify import verify


def enlarged(
    net: Network, kernel: Sequence[int], stride: Sequence[int], padding: str, dtype: str = "int8"
) -> TensorRef:
    """TRANSPOSE_CONV between convolutions."""
    x = net.conv(net.input(image(1, 5, 7, 3, dtype=dtype)), 16, (1, 1))
    given = net.spec(x)
    made = [
        n * s if padding == "SAME" else (n - 1) * s + max(k, s) for n, k, s in zip((5, 7), kernel, stride, strict=True)
    ]
    w = weight((11, *kernel, 16), dtype, 0 if dtype == "int8" else None)
    y = product(given, w, (1, *made, 11), 16 * 2)
    b = bias(given, w, 11, "float32" if given.scale is None else "int32", 16)
    y = net.call(
        "TRANSPOSE_CONV",
        [constant([1, *made, 11]), w, x, b],
        y,
        padding=padding,
        stride_h=stride[0],
        stride_w=stride[1],
    )
    return net.conv(y, 17, (1, 1))


@pytest.mark.parametrize(
    "settings",
    [
        ((2, 2), (2, 2), "VALID"),
        ((2, 2), (2, 2), "SAME"),
        ((3, 3), (2, 2), "SAME"),
        ((4, 4), (2, 2), "SAME"),
        ((4, 6), (2, 3), "VALID"),
        ((5, 2), (3, 2), "SAME"),
        ((1, 3), (2, 3), "VALID"),
        ((7, 5), (2, 3), "SAME"),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_transposed_convolution_is_one_of_several_places(settings: tuple[Any, ...], dtype: str) -> None:
    applied = Applied("conv_transpose_to_conv", lambda net: enlarged(net, *settings, dtype))
    assert applied.count == 1
    assert applied.steps <= 1
    differing = [np.count_nonzero(first != second) / first.size for first, second in applied.outputs]
    assert max(differing) < 0.01  # sums of float32 that end on the other side of a half
    assert applied.fused["QLinearConv"] == 3
    assert "ConvTranspose" not in applied.fused
    assert verify(applied.data, settled(applied.after)).ok


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("float", lambda net: enlarged(net, (2, 2), (2, 2), "SAME", "float32")),
        ("a result that no stride divides", lambda net: enlarged(net, (3, 3), (2, 2), "VALID")),
    ],
)
def test_other_transposed_convolutions_are_left_alone(name: str, draw: Draw) -> None:
    assert Applied("conv_transpose_to_conv", draw).count == 0, name


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads", "why"),
    [
        (5, 3, 2, (0, 0), "a result of no multiple of the stride"),
        (5, 2, 1, (2, 0), "pads in front that no weight reaches"),
        (5, 2, 2, (0, 2), "pads behind that no weight reaches"),
    ],
)
def test_what_pads_of_a_convolution_cannot_express_stays(
    size: int, kernel: int, stride: int, pads: tuple[int, int], why: str
) -> None:
    assert Axis.of(size, kernel, stride, pads, 0) is None, why


def test_an_axis_reads_each_weight_of_its_phase() -> None:
    axis = Axis.of(5, 3, 2, (0, 1), 0)
    assert axis == Axis(stride=2, pad=0, kernel=3, blocks=5, first=0, last=1, after=0)
    assert axis is not None
    assert axis.sources().tolist() == [[2, 0], [-1, 1]]


@pytest.mark.parametrize(
    ("option", "count"), [("", 1), (', auto_pad = "VALID"', 0), (", output_shape = [10, 14]", 0), (", group = 2", 0)]
)
def test_pads_that_are_not_spelled_out_and_groups_stay(option: str, count: int) -> None:
    nodes = f"""a = DequantizeLinear (x, s, p) w = DequantizeLinear (k, s, zero)
        b = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]{option}> (a, w) y = QuantizeLinear (b, s, p)"""
    stored = {"s": np.float32(0.05), "p": np.uint8(120), "zero": np.int8(0), "k": np.ones((4, 3, 2, 2), np.int8)}
    model = parsed(f"(uint8[1,4,5,7] x) => (uint8[1,c,h,w] y) {{ {nodes} }}", **stored)
    assert apply("conv_transpose_to_conv", model) == count
