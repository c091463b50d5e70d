"""Gates, one factor per channel that the network computes, are repeated over the image that they multiply."""

from __future__ import annotations

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, built, image, optimized, parsed, settled

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import constant, drawn
from onnx_tflite_plugin.passes.images import gate_in_blocks
from op_handlers.kernels import hybrid


def gated(
    net: Network,
    channels: int = 32,
    dtype: str = "float32",
    batch: int | None = 1,
    size: tuple[int, int] = (5, 7),
    *,
    swap: bool = False,
    dense: bool = False,
    last: bool = False,
    weights: str | None = None,
) -> TensorRef:
    """Squeeze and excitation of a convolution's result, in front of another convolution."""
    x = net.conv(
        net.input(image(batch, *size, 3, dtype=dtype)),
        channels,
        (3, 3),
        weights=weights,
        fused_activation_function="RELU",
    )
    mean = net.like("MEAN", x, constant([1, 2]), shape=(batch, 1, 1, channels), keep_dims=True)
    made = mean if dense else net.conv(mean, channels, (1, 1))  # dense: it does not come from a convolution
    gate = net.like("LOGISTIC", made)
    product = net.like("MUL", *((gate, x) if swap else (x, gate)), shape=(batch, *size, channels))
    return product if last else net.conv(product, 16, (1, 1))


@pytest.mark.needs("onnxruntime", "1.25", "a product by channel in the blocked layout")
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("batch", [1, None, 3])
@pytest.mark.parametrize("channels", [16, 20, 48])
def test_the_product_stays_in_the_blocked_layout(channels: int, batch: int | None, swap: bool) -> None:
    applied = Applied("gate_in_blocks", lambda net: gated(net, channels, batch=batch, swap=swap), batch=3)
    assert applied.count == 1
    assert applied.equal
    before = optimized(settled(applied.before))
    assert applied.fused["ReorderInput"] < before["ReorderInput"]
    assert applied.fused["ReorderOutput"] < before["ReorderOutput"]
    assert applied.fused["Upsample"] == 1


@pytest.mark.parametrize(
    "draw",
    [
        lambda net: gated(net, dtype="int8"),
        lambda net: gated(net, channels=12),
        lambda net: gated(net, channels=29),
        lambda net: gated(net, size=(1, 1)),
        lambda net: gated(net, dense=True),
        lambda net: gated(net, last=True),
    ],
    ids=["integers", "fewer than a block", "no divisor", "one pixel", "no convolution in front", "none behind"],
)
def test_others_are_left_alone(draw: Draw) -> None:
    assert Applied("gate_in_blocks", draw).count == 0


def test_weights_that_are_dequantized_as_the_model_loads_are_seen_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a network that is too large for activations to be rounded."""
    monkeypatch.setattr(hybrid, "MAX_LAYERS", 0)
    monkeypatch.setattr(hybrid, "MAX_ELEMENTS", 0)
    applied = Applied("gate_in_blocks", lambda net: gated(net, batch=None, weights="int8"), batch=2)
    assert applied.nodes("Cast")
    assert applied.count == 1
    assert applied.equal


def test_an_image_that_other_passes_reshape_keeps_no_gate_from_being_repeated() -> None:
    passes = otp.convert(built(lambda net: gated(net, batch=None))).report.passes
    assert {name: passes.get(name) for name in ("gate_in_blocks", "channels_as_columns")} == {
        "gate_in_blocks": 1,
        "channels_as_columns": 1,
    }


@pytest.mark.parametrize(
    ("given", "count"), [("float[1,3,5,7] x", 1), ("uint8[1,3,5,7] q", 0)], ids=["floats", "integers"]
)
def test_convolutions_of_floats_work_in_blocks(given: str, count: int) -> None:
    nodes = (
        """a = Conv (x, w) m = GlobalAveragePool (a) g = Conv (m, v) h = Sigmoid (g) b = Mul (a, h) y = Conv (b, v)"""
    )
    dequantized = "x = DequantizeLinear (q, s, p) " if given.endswith("q") else ""
    stored = {"w": drawn(16, 3, 1, 1), "v": drawn(16, 16, 1, 1), "s": np.float32(0.05), "p": np.uint8(120)}
    model = parsed(f"({given}) => (float[1,16,5,7] y) {{ {dequantized}{nodes} }}", **stored)
    assert gate_in_blocks.run(model) == count


@pytest.mark.parametrize(("images", "count"), [(1, 1), (5, 0)])
def test_a_gate_is_repeated_over_an_image_not_over_several(images: int, count: int) -> None:
    nodes = "a = Conv (x, w) g = Conv (m, v) h = Sigmoid (g) b = Mul (a, h) y = Conv (b, v)"
    given = f"float[{images},3,5,7] x, float[1,16,1,1] m"
    model = parsed(
        f"({given}) => (float[{images},16,5,7] y) {{ {nodes} }}", w=drawn(16, 3, 1, 1), v=drawn(16, 16, 1, 1)
    )
    assert gate_in_blocks.run(model) == count
