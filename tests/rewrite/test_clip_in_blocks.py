"""What bounds a sum or an activation of convolutions is part of a convolution: the same numbers, in the layout that they share."""

from __future__ import annotations

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, built, image, parsed

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import constant, drawn
from onnx_tflite_plugin.source.model import Array


def bounded(
    net: Network, channels: int = 16, batch: int | None = 1, *, bound: str = "RELU6", dtype: str = "float32",
    size: tuple[int, int] = (11, 13), last: bool = False,
) -> TensorRef:  # fmt: skip
    """A residual connection with a bound on its sum, in front of another convolution."""
    x = net.conv(net.input(image(batch, *size, 3, dtype=dtype)), channels, name="before")
    total = net.like("ADD", x, net.conv(x, channels, name="inside"), fused_activation_function=bound)
    return total if last else net.conv(total, 7, name="behind")


@pytest.mark.parametrize("bound", ["RELU6", "RELU_N1_TO_1"])
@pytest.mark.parametrize("channels", [8, 20, 48])
def test_a_bound_of_a_sum_stays_in_the_blocked_layout(channels: int, bound: str) -> None:
    applied = Applied("clip_to_conv", lambda net: bounded(net, channels, bound=bound))
    assert applied.count == 1
    assert applied.near(1e-6)
    assert "Clip" not in applied.fused
    assert "ReorderInput" not in applied.fused


def activated(net: Network, op: str = "MAXIMUM", bound: float | Array = -0.25) -> TensorRef:
    """An activation that is cut off, in front of another convolution."""
    x = net.conv(net.input(image(1, 11, 13, 3, dtype="float32")), 16, name="before")
    x = net.like("LEAKY_RELU", x, alpha=0.5)
    return net.conv(net.like(op, x, constant(bound)), 7, name="behind")


@pytest.mark.parametrize(("op", "bound"), [("MAXIMUM", -0.25), ("MINIMUM", 0.5)])
def test_a_number_that_bounds_an_activation_stays_in_the_blocked_layout(op: str, bound: float) -> None:
    applied = Applied("clip_to_conv", lambda net: activated(net, op, bound))
    assert applied.count == 1
    assert applied.near(1e-6)
    assert not {"Max", "Min", "Clip", "ReorderInput"} & applied.fused.keys()


@pytest.mark.parametrize("batch", [None, 5])
def test_any_number_of_images(batch: int | None) -> None:
    applied = Applied("clip_to_conv", lambda net: bounded(net, batch=batch), batch=5)
    assert applied.count == 1
    assert applied.near(1e-6)


def test_it_agrees_with_the_original() -> None:
    assert otp.convert(built(bounded), verify=True).report.passes["clip_to_conv"] == 1


def of_a_constant(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 11, 13, 3, dtype="float32")), 16)
    term = constant(drawn(1, 11, 13, 16, dtype="float32", seed="term"))
    return net.conv(net.like("ADD", x, term, fused_activation_function="RELU6"), 7)


def looked_into(net: Network) -> tuple[TensorRef, TensorRef]:
    """The sum is an output itself."""
    x = net.conv(net.input(image(1, 11, 13, 3, dtype="float32")), 16, name="before")
    total = net.like("ADD", x, net.conv(x, 16, name="inside"))
    return net.conv(net.like("RELU6", total), 7), total


LEFT: dict[str, Draw] = {
    "a bound below, which sums take with them": lambda net: bounded(net, bound="RELU"),
    "no divisor": lambda net: bounded(net, 18),
    "one pixel": lambda net: bounded(net, size=(1, 1)),
    "no convolution behind": lambda net: bounded(net, last=True),
    "integers": lambda net: bounded(net, dtype="int8"),
    "a constant term": of_a_constant,
    "a sum that others need": looked_into,
    "a bound for each channel": lambda net: activated(net, bound=drawn(16, dtype="float32", seed="bounds")),
}


@pytest.mark.parametrize("name", LEFT)
def test_others_are_left_alone(name: str) -> None:
    assert Applied("clip_to_conv", LEFT[name]).count == 0


SUM = "a = Conv (x, w) b = Conv (x, w) c = Add (a, b) d = Clip (c, low, high) y = Conv (d, v)"


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        (SUM, 1),
        (SUM.replace("b = Conv (x, w)", "m = GlobalAveragePool (x) b = Conv (m, w)"), 0),
        (SUM.replace("b = Conv (x, w)", "b = Neg (each)"), 0),
        (
            SUM.replace(
                "y = ",
                "q = QuantizeLinear (d, s, p) e = DequantizeLinear (q, s, p) f = Conv (e, v) g = Conv (d, v) y = Add (f, g) z = ",
            ),
            0,
        ),
    ],
    ids=["images", "a sum with one number a channel", "a sum with a constant", "what is quantized too"],
)
def test_images_that_are_added_pixel_by_pixel_and_stay_floats_are_bounded_in_blocks(nodes: str, count: int) -> None:
    stored = {
        "w": drawn(8, 3, 1, 1), "v": drawn(7, 8, 1, 1), "each": drawn(1, 8, 1, 1), "low": np.float32(-0.5),
        "high": np.float32(0.5), "s": np.float32(0.05), "p": np.uint8(120),
    }  # fmt: skip
    assert apply("clip_to_conv", parsed(f"(float[1,3,5,7] x) => (float[1,7,5,7] y) {{ {nodes} }}", **stored)) == count
