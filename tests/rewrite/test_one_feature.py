"""A convolution of one feature becomes one by channel and a sum: the same numbers, and only where kernels gain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, built, image, parsed

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef


def one(*shape: int | None, kernel: tuple[int, int] = (3, 5), dtype: str = "float32", **options: Any) -> Draw:
    return lambda net: net.conv(net.input(image(*shape, dtype=dtype)), options.pop("features", 1), kernel, **options)


ALIKE: dict[str, Draw] = {
    "as it is": one(1, 41, 37, 16),
    "half a block": one(1, 41, 37, 24),
    "stride": one(1, 83, 79, 16, stride=2),
    "dilation": one(1, 41, 37, 16, dilation_h_factor=2, dilation_w_factor=3),
    "activation": one(1, 41, 37, 16, fused_activation_function="RELU6"),
    "several images": one(3, 41, 37, 16),
}


@pytest.mark.parametrize("name", ALIKE)
def test_one_feature_is_made_channel_by_channel(name: str) -> None:
    applied = Applied("split_single_feature_conv", ALIKE[name])
    assert applied.count == 1
    assert applied.near(1e-5)
    deep, total = applied.nodes("Conv")
    channels = applied.held(total, 1).shape[1]
    assert next(a.i for a in deep.attribute if a.name == "group") == channels
    assert (applied.held(total, 1) == 1).all()
    assert [len(conv.input) for conv in (deep, total)] == [2, 3]


def test_it_agrees_with_the_original() -> None:
    def draw(net: Network) -> TensorRef:
        x = net.conv(net.input(image(1, 83, 79, 3, dtype="float32")), 16, fused_activation_function="RELU")
        return net.conv(x, 1, (3, 5), stride=2)

    report = otp.convert(built(draw), verify=True).report
    assert report.passes["split_single_feature_conv"] == 1


LEFT: dict[str, Draw] = {
    "two features": one(1, 41, 37, 16, features=2),
    "one tap": one(1, 41, 37, 96, kernel=(1, 1)),
    "few channels": one(1, 97, 89, 3),
    "channels that are no block": one(1, 41, 37, 18),
    "too small to gain": one(1, 7, 11, 16),
    "integers": one(1, 41, 37, 16, dtype="int8"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_does_not_gain_is_left_alone(name: str) -> None:
    assert Applied("split_single_feature_conv", LEFT[name]).count == 0


@pytest.mark.parametrize(("axes", "count"), [("41,37", 1), ("1517", 0)], ids=["an image", "a sequence"])
def test_images_alone_are_made_channel_by_channel(axes: str, count: int) -> None:
    weights = np.ones((1, 16, *[5] * len(axes.split(","))), np.float32)
    model = parsed(
        f"(float[1,16,{axes}] x) => (float[1,1,{','.join('hw'[: weights.ndim - 2])}] y) {{ y = Conv (x, w) }}",
        w=weights,
    )
    assert apply("split_single_feature_conv", model) == count
