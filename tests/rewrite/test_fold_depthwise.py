"""Columns of a few channels become channels of a dense convolution: not a bit changes, and nothing overflows for it."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
from passes_networks import Applied, Draw, Network, image

from conformance.builder import TensorRef
from onnx_tflite_plugin.rewrite.weights.products import products
from onnx_tflite_plugin.source.model import Array

PASS = "fold_depthwise"


def deep(
    channels: int = 8,
    kernel: tuple[int, int] = (3, 3),
    size: tuple[int | None, int] = (23, 32),
    features: int = 1,
    stride: int = 1,
    dtype: str = "int8",
    **options: Any,
) -> Draw:
    """A convolution by channel, with ``features`` of each, of what another makes."""

    def draw(net: Network) -> TensorRef:
        x = net.conv(net.input(image(1, *size, 3, dtype=dtype)), channels, (1, 1), name="maker")
        return net.conv(x, features * channels, kernel, stride, deep=True, name="deep", **options)

    return draw


def least(drawn: Array) -> Array:
    drawn[0, 1, 1, 3] = -128
    return drawn


@pytest.mark.parametrize(
    ("draw", "columns"),
    [
        (deep(), 2),
        (deep(7), 4),
        (deep(5, (5, 3)), 4),
        (deep(3, (3, 5)), 8),
        (deep(2, (1, 3)), 8),
        (deep(8, (2, 3), padding="VALID", size=(23, 34)), 2),
        (deep(per_axis=False, fused_activation_function="RELU6"), 2),
    ],
    ids=["8", "7", "5", "3", "2", "valid", "one scale"],
)
def test_folding_changes_no_bit_and_overflows_nowhere(draw: Draw, columns: int) -> None:
    applied = Applied(PASS, draw)
    assert applied.count == 1
    assert applied.equal
    maker, dense = applied.nodes("Conv")
    features, channels = applied.held(dense, 1).shape[:2]
    assert features == channels == columns * applied.held(maker, 1).shape[0]
    assert all(product.exact for product in products(ir.from_proto(applied.after)) if product.node.name == dense.name)
    assert applied.fused["QLinearConv"] == 2
    assert "Transpose" not in applied.fused


def test_an_open_batch_stays_open() -> None:
    def draw(net: Network) -> TensorRef:
        x = net.conv(net.input(image(None, 23, 32, 3)), 8, (1, 1))
        return net.conv(x, 8, (3, 3), deep=True)

    assert Applied(PASS, draw, batch=5).equal


def test_an_image_is_folded_as_it_comes() -> None:
    applied = Applied(PASS, lambda net: net.conv(net.input(image(1, 23, 32, 8)), 8, (3, 3), deep=True))
    assert applied.count == 1
    assert applied.equal
    assert "Transpose" not in applied.fused


def pooled(net: Network) -> TensorRef:
    """What channels first brings nearer to no convolution."""
    x = net.conv(net.input(image(1, 23, 32, 3)), 8, (1, 1))
    pool = {"filter_height": 1, "filter_width": 1, "stride_h": 1, "stride_w": 1, "padding": "SAME"}
    return net.conv(net.like("MAX_POOL_2D", x, **pool), 8, (3, 3), deep=True)


@pytest.mark.parametrize(
    "draw",
    [
        deep(9),
        deep(stride=2, size=(46, 64)),
        deep(features=2),
        deep(size=(13, 32)),
        deep(size=(23, 31)),
        deep(size=(None, 32)),
        deep(dtype="float32"),
        deep(dtype="uint8"),
        deep(change=least),
        deep(dilation_h_factor=2),
        pooled,
    ],
    ids=[
        "many", "strided", "two of each", "little", "odd", "open", "floats", "not around 0", "-128", "dilated",
        "of no convolution",
    ],
)  # fmt: skip
def test_others_are_left_alone(draw: Draw) -> None:
    applied = Applied(PASS, draw)
    assert applied.count == 0
    assert applied.equal
