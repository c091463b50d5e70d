"""An image of a few channels is read where it lies: the same products, and no Transpose in front of its convolution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, built, image, parsed

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import constant, drawn, tensor


def first(*shape: int | None, kernel: tuple[int, int] = (3, 5), features: int = 16, **options: Any) -> Draw:
    return lambda net: net.conv(net.input(image(*shape, dtype="float32")), features, kernel, **options)


READ: dict[str, Draw] = {
    "an image": first(1, 41, 37, 3),
    "stride": first(1, 41, 37, 3, stride=2),
    "stride, even sizes": first(1, 42, 38, 3, kernel=(3, 3), stride=2),
    "no padding": first(1, 41, 37, 3, padding="VALID"),
    "one tap": first(1, 41, 37, 3, kernel=(1, 1)),
    "two channels": first(1, 41, 37, 2),
    "channels just short of a block": first(1, 41, 37, 13),
    "features that are no block": first(1, 41, 37, 3, features=7),
    "dilated rows": first(1, 41, 37, 3, dilation_h_factor=3),
    "several images": first(5, 41, 37, 3),
    "activation": first(1, 41, 37, 3, fused_activation_function="RELU6"),
}


@pytest.mark.parametrize("name", READ)
def test_an_image_of_few_channels_is_not_transposed(name: str) -> None:
    applied = Applied("image_channels_to_width", READ[name])
    assert applied.count == 1
    assert applied.near(1e-6)
    [conv] = applied.nodes("Conv")
    assert applied.held(conv, 1).shape[1] == 1
    before = sum(node.op_type == "Transpose" for node in applied.before.graph.node)
    assert len(applied.nodes("Transpose")) == before - 1


@pytest.mark.parametrize("shape", [(None, 11, 13, 3), (None, None, 13, 3)], ids=str)
def test_open_sizes_stay_open(shape: tuple[int | None, ...]) -> None:
    applied = Applied("image_channels_to_width", first(*shape, features=8), batch=7)
    assert applied.count == 1
    assert applied.near(1e-6)


def both(net: Network) -> tuple[TensorRef, TensorRef]:
    x = net.input(image(1, 11, 13, 3, dtype="float32"))
    return net.conv(x, 8, (3, 5), name="tall"), net.conv(x, 16, (1, 3), stride=2, name="flat")


def test_several_convolutions_read_one_plane() -> None:
    applied = Applied("image_channels_to_width", both)
    assert applied.count == 1
    assert applied.near(1e-6)
    assert len({conv.input[0] for conv in applied.nodes("Conv")}) == 1


def test_float16_weights_stay_float16() -> None:
    def draw(net: Network) -> TensorRef:
        shape, x = (7, 3, 5, 3), net.input(image(1, 11, 13, 3, dtype="float32"))
        w = net.call("DEQUANTIZE", [constant(drawn(*shape, seed="w").astype(np.float16))], tensor(*shape))
        y = replace(tensor(1, 11, 13, 7), name="")
        return net.call("CONV_2D", [x, w, constant(drawn(7, seed="b"))], y, padding="SAME", stride_h=1, stride_w=1)

    applied = Applied("image_channels_to_width", draw)
    assert applied.count == 1
    assert applied.near(1e-6)
    [conv] = applied.nodes("Conv")
    assert applied.held(conv, 1).dtype == np.float16
    assert applied.held(conv, 1).shape == (7, 1, 3, 15)


def test_it_agrees_with_the_original() -> None:
    data = built(first(1, 41, 37, 3, stride=2, fused_activation_function="RELU"))
    assert otp.convert(data, verify=True).report.passes["image_channels_to_width"] == 1


def transposed_as_well(net: Network) -> tuple[TensorRef, TensorRef]:
    """The planes are an output themselves."""
    x = net.input(image(1, 11, 13, 3, dtype="float32"))
    return net.conv(x, 8), net.like("TRANSPOSE", x, constant([0, 3, 1, 2]), shape=(1, 3, 11, 13))


LEFT: dict[str, Draw] = {
    "one channel, which needs no Transpose": first(1, 41, 37, 1),
    "a block of channels": first(1, 41, 37, 16),
    "dilated columns": first(1, 41, 37, 3, dilation_w_factor=2),
    "a width that is not known": first(1, 41, None, 3),
    "by channel": first(1, 41, 37, 3, features=3, deep=True),
    "integers": lambda net: net.conv(net.input(image(1, 41, 37, 3)), 16),
    "planes that others need": transposed_as_well,
}


@pytest.mark.parametrize("name", LEFT)
def test_what_does_not_gain_is_left_alone(name: str) -> None:
    assert Applied("image_channels_to_width", LEFT[name]).count == 0


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        ("b = Conv (a, w)", 1),
        ('b = Conv <auto_pad = "SAME_UPPER"> (a, w)', 0),
        ("v = DequantizeLinear (k, s) b = Conv (a, v)", 0),
        ("c = Abs (a) b = Conv (a, w)", 0),
    ],
    ids=["a convolution", "pads that are not spelled out", "integers for weights", "others read it"],
)
def test_what_reads_the_image_are_plain_convolutions(nodes: str, count: int) -> None:
    stored = {"w": drawn(5, 3, 3, 3), "k": np.ones((5, 3, 3, 3), np.int8), "s": np.float32(0.05)}
    graph = (
        f"(float[1,11,13,3] x) => (float[1,5,h,w] y) {{ a = Transpose <perm = [0, 3, 1, 2]> (x) {nodes} y = Relu (b) }}"
    )
    assert apply("image_channels_to_width", parsed(graph, **stored)) == count
