"""A scale and an offset per channel are one convolution, which rounds once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, image

from conformance.builder import TensorRef
from conformance.models import Spec, constant, drawn
from onnx_tflite_plugin.rewrite.images.scale_offset_to_conv import depthwise_constants


def normalized(net: Network, dtype: str = "int8", channels: int = 32, **multiplied: Any) -> TensorRef:
    """A scale and an offset per channel, behind a convolution: some are zero, negative, or far apart in size."""
    x = net.conv(net.input(image(1, 7, 11, 5, dtype=dtype)), channels, (1, 1))
    given = net.spec(x)
    low = {"int8": -128, "uint8": 0}.get(dtype, -1)
    factor, offset = (drawn(1, 1, 1, channels, dtype=dtype, seed=seed) for seed in ("factor", "offset"))
    factor[..., :3] = low + 91, low + 92, low + 255
    at = {} if given.scale is None else {"scale": 0.006, "zero_point": low + 91}
    step = float(np.asarray(given.scale or 1.0))
    y = Spec(given.shape, dtype, given.scale and step * 1.5, given.scale and low + 117)
    y = net.call("MUL", [x, constant(factor, **at)], y, **multiplied)
    z = Spec(given.shape, dtype, given.scale and step * 1.7, given.scale and low + 131)
    shift = {} if given.scale is None else {"scale": step * 0.37, "zero_point": low + 91}
    return net.drained(net.call("ADD", [constant(offset, **shift), y], z))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_scale_and_an_offset_are_one_convolution_within_a_step(dtype: str) -> None:
    applied = Applied("batch_norm_to_conv", lambda net: normalized(net, dtype))
    assert applied.count == 1
    assert applied.steps <= 1
    assert applied.fused["QLinearConv"] == 3
    assert not {"QLinearMul", "QLinearAdd", "Mul", "Add"} & applied.fused.keys()


@pytest.mark.parametrize(
    ("factor", "offset"), [(0.3, -7.0), (-1.7, 40.0), (0.0, 11.0), (1e-9, 3.0), (2.1, 0.0), (0.0, 0.0)]
)
def test_the_convolution_rounds_what_factor_and_offset_give(factor: float, offset: float) -> None:
    x, scale = np.arange(-128, 128), 0.05
    weights, bias_ = depthwise_constants(np.full(1, factor), np.full(1, offset), scale)
    assert weights.integers is not None
    assert bias_.integers is not None
    assert np.allclose(bias_.scale, scale * weights.scale)
    sums = x.astype(np.int64) * weights.integers.reshape(()) + bias_.integers
    assert np.abs(sums).max() < 2**25
    assert np.allclose(sums * bias_.scale.astype(np.float64), factor * x * scale + offset, rtol=1e-6, atol=1e-2 * scale)


def per_channel(seed: str) -> Spec:
    return constant(drawn(1, 1, 1, 16, dtype="int8", seed=seed), None, 0.1, 3)


def by_input(net: Network) -> TensorRef:
    y = net.like("MUL", net.conv(net.input(image(1, 7, 11, 3)), 16), net.input(image(1, 1, 1, 16)))
    return net.drained(net.like("ADD", y, per_channel("offset")))


def scaled(net: Network) -> TensorRef:
    return net.drained(net.like("MUL", net.conv(net.input(image(1, 7, 11, 3)), 16), per_channel("k")))


def per_row(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 16, 11, 3)), 16)
    y = net.like("MUL", x, constant(drawn(1, 16, 1, 1, dtype="int8"), None, 0.1, 3))
    return net.drained(net.like("ADD", y, per_channel("offset")))


UNMERGED: dict[str, Draw] = {
    "float": lambda net: normalized(net, "float32"),
    "an activation in between": lambda net: normalized(net, fused_activation_function="RELU"),
    "channels that are no blocks": lambda net: normalized(net, channels=31),
    "a factor computed at run time": by_input,
    "a scale alone": scaled,
    "a factor per row": per_row,
}


@pytest.mark.parametrize("name", UNMERGED)
def test_other_products_and_sums_are_left_alone(name: str) -> None:
    assert Applied("batch_norm_to_conv", UNMERGED[name]).count == 0


def test_a_product_that_somebody_else_needs_is_kept() -> None:
    def draw(net: Network) -> tuple[TensorRef, TensorRef]:
        x = net.conv(net.input(image(1, 7, 11, 3)), 16)
        y = net.like("MUL", x, per_channel("factor"))
        return net.drained(net.like("ADD", y, per_channel("offset"))), net.drained(y)

    assert Applied("batch_norm_to_conv", draw).count == 0
