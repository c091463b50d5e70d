"""Averages of integers become convolutions by channel or products: not a bit changes, halves included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from passes_networks import Applied, Draw, Network, apply, image, parsed

from conformance.builder import TensorRef

PASS = "average_pool_to_conv"
ONE = {"filter_height": 1, "filter_width": 1, "stride_h": 1, "stride_w": 1, "padding": "VALID"}


def average(
    shape: Sequence[int | None],
    kernel: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    padding: str = "SAME",
    dtype: str = "int8",
) -> Draw:
    """A network of one average, of int8 behind a convolution."""

    def draw(net: Network) -> TensorRef:
        (_, *size, channels), (tall, wide) = shape, kernel
        results = [
            -(-(n or 0) // stride) if padding == "SAME" else ((n or 0) - taps) // stride + 1
            for n, taps, stride in zip(size, kernel, strides, strict=True)
        ]
        options = {"filter_height": tall, "filter_width": wide, "stride_h": strides[0], "stride_w": strides[1]}
        x = net.input(image(*shape, dtype=dtype))
        if dtype == "int8":  # which stays int8 at the ends of a network
            x = net.conv(x, channels or 0, (1, 1))
        return net.like("AVERAGE_POOL_2D", x, shape=(1, *results, channels or 0), padding=padding, **options)

    return draw


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    "settings",
    [
        ((1, 11, 17, 13), (2, 2), (2, 2), "VALID"),
        ((1, 11, 17, 13), (5, 2), (1, 3), "VALID"),
        ((1, 12, 18, 16), (2, 2), (2, 2), "SAME"),
        ((1, 12, 18, 16), (1, 2), (3, 2), "SAME"),
        ((3, 11, 17, 13), (2, 2), (2, 1), "VALID"),
    ],
    ids=str,
)
def test_windows_inside_the_image_become_a_convolution_by_channel(
    settings: tuple[Sequence[int], tuple[int, int], tuple[int, int], str], dtype: str
) -> None:
    applied = Applied(PASS, average(*settings, dtype=dtype))
    assert applied.count == 1
    assert applied.equal
    assert applied.fused["QLinearConv"] == (1 if dtype == "uint8" else 2)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    "settings",
    [
        ((1, 9, 11, 288), (3, 3)),
        ((1, 13, 17, 67), (3, 3), (2, 2)),
        ((1, 13, 12, 127), (3, 2), (1, 2)),
        ((1, 17, 19, 61), (2, 3), (3, 1)),
        ((3, 11, 13, 128), (3, 3)),
        ((1, 13, 11, 131), (4, 3)),
    ],
    ids=str,
)
def test_windows_over_the_border_become_a_product_of_rows(
    settings: tuple[Sequence[int], tuple[int, int]], dtype: str
) -> None:
    applied = Applied(PASS, average(*settings, dtype=dtype))
    assert applied.count == 1
    assert applied.equal
    assert applied.fused["QLinearMatMul"] == 1


def test_an_open_batch_stays_open() -> None:
    assert Applied(PASS, average((None, 9, 11, 288), (3, 3)), batch=5).equal
    assert Applied(PASS, average((None, 12, 10, 13), (2, 2), (2, 2)), batch=5).equal


@pytest.mark.parametrize(
    "draw",
    [
        average((1, 13, 17, 64), (3, 3), dtype="float32"),
        lambda net: net.like("AVERAGE_POOL_2D", net.input(image(1, 12, 18, 16)), shape=(1, 12, 18, 16), **ONE),
        average((1, 5, 7, 3), (3, 3)),
        average((1, 5, 131, 67), (3, 3)),
        average((1, 23, 29, 67), (5, 5)),
        average((1, 19, 23, 11), (17, 19), (2, 2), "VALID"),
        average((1, None, 17, 64), (2, 2), (2, 2), "VALID"),
    ],
    ids=[
        "floats",
        "int8 at the ends",
        "too small",
        "too wide",
        "factors of more than 8 bits",
        "large windows",
        "an open height",
    ],
)
def test_others_are_left_alone(draw: Draw) -> None:
    assert Applied(PASS, draw).count == 0


@pytest.mark.parametrize(
    ("shape", "options", "count"),
    [
        ("1,4,12,18", "kernel_shape = [2, 2], strides = [2, 2]", 1),
        ("1,4,12,18", 'kernel_shape = [2, 2], strides = [2, 2], auto_pad = "VALID"', 0),
        ("1,4,12,18", "kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1", 0),
        ("1,288,9,11", "kernel_shape = [3, 3], pads = [1, 1, 1, 1]", 1),
        ("1,288,9,11", "kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1", 0),
        ("1,288,9,11", "kernel_shape = [3, 3], pads = [1, 1, 1, 1], dilations = [2, 2]", 0),
    ],
)
def test_averages_of_another_kind_are_left_alone(shape: str, options: str, count: int) -> None:
    nodes = f"a = DequantizeLinear (x, s, p) b = AveragePool <{options}> (a) y = QuantizeLinear (b, s, p)"
    model = parsed(f"(uint8[{shape}] x) => (uint8[1,c,h,w] y) {{ {nodes} }}", s=np.float32(0.05), p=np.uint8(120))
    assert apply("average_pool_to_conv", model) == count


def test_an_average_of_what_has_no_rank_is_left_alone() -> None:
    pooled = "a = DequantizeLinear (u, s, p) b = AveragePool <kernel_shape=[2,2]> (a) y = QuantizeLinear (b, s, p)"
    nodes = f"u = elsewhere.Some (x) {pooled}"
    model = parsed(f"(uint8[1,3,5,7] x) => (uint8[1,c,h,w] y) {{ {nodes} }}", s=np.float32(0.05), p=np.uint8(120))
    taken = model.graph.node(1).inputs[0]
    assert taken is not None
    taken.dtype = ir.DataType.UINT8
    assert taken.shape is None
    assert apply("average_pool_to_conv", model) == 0
