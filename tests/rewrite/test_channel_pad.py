"""Zeros appended to the channels of a residual connection come from a convolution by the identity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from passes_networks import Applied, Draw, Network, apply, image, parsed

from conformance.builder import TensorRef
from conformance.models import constant

CHANNELS = ((0, 0), (0, 0), (0, 0))


def residual(
    net: Network,
    pads: Sequence[int] = (0, 16),
    channels: int = 16,
    dtype: str = "float32",
    around: Sequence[int] = (0, 0),
) -> TensorRef:
    """A tensor with more channels behind (and in front of) its own, and a sum with a convolution's result."""
    x = net.conv(net.input(image(1, 5, 7, 3, dtype=dtype)), channels, (1, 1), fused_activation_function="RELU")
    shape = (1, 5 + sum(around), 7, channels + sum(pads))
    padded = net.like("PAD", x, constant([[0, 0], [*around], [0, 0], [*pads]]), shape=shape)
    other = net.conv(net.input(image(1, 5 + sum(around), 7, 3, dtype=dtype)), shape[3], (1, 1))
    return net.like("ADD", other, padded, fused_activation_function="RELU")


@pytest.mark.parametrize("pads", [(0, 16), (16, 0), (4, 12), (0, 8)], ids=str)
def test_zeros_come_from_a_convolution_by_the_identity(pads: tuple[int, int]) -> None:
    applied = Applied("pad_to_conv", lambda net: residual(net, pads))
    assert applied.count == 1
    assert applied.near(1e-6)
    assert not applied.nodes("Pad")
    [identity] = [held for node in applied.nodes("Conv") if (held := applied.held(node, 1)).shape[1] == 16]
    assert np.array_equal(np.argwhere(identity[:, :, 0, 0]), [(pads[0] + k, k) for k in range(16)])


def unsummed(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 5, 7, 3, dtype="float32")), 16, (1, 1), fused_activation_function="RELU")
    padded = net.like("PAD", x, constant([*CHANNELS, (0, 16)]), shape=(1, 5, 7, 32))
    return net.like("SOFTMAX", padded, beta=1.0)


@pytest.mark.parametrize(
    "draw",
    [
        unsummed,
        lambda net: residual(net, around=(1, 0)),
        lambda net: residual(net, dtype="int8"),
        lambda net: residual(net, channels=29),
        lambda net: residual(net, channels=256),
        lambda net: residual(net, (0, 0)),
    ],
    ids=["no sum", "rows too", "integers", "channels that no block divides", "too many products", "nothing to append"],
)
def test_others_are_left_alone(draw: Draw) -> None:
    assert Applied("pad_to_conv", draw).count == 0


@pytest.mark.parametrize(("channels", "count"), [((0, 16), 1), ((-4, 16), 0), ((16, -4), 0)])
def test_channels_that_a_pad_cuts_off_are_no_zeros(channels: tuple[int, int], count: int) -> None:
    """ONNX reads pads below 0 as a cut, which no model of TFLite asks of this operator."""
    front, behind = channels
    features = 16 + front + behind
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 18]>
        padded (float[1,16,5,7] x, float[1,3,5,7] image) => (float[1,{features},5,7] y)
        <int64[8] pads = {{0,{front},0,0,0,{behind},0,0}}, float[{features},3,1,1] w = {{{",".join(["1"] * 3 * features)}}}>
        {{
            appended = Pad(x, pads)
            other = Conv(image, w)
            y = Add(other, appended)
        }}
    """)
    assert apply("pad_to_conv", ir.from_proto(model)) == count


@pytest.mark.parametrize(
    ("nodes", "kind", "count"),
    [
        ("p = Pad (x, pads) c = Conv (z, w) y = Add (c, p)", "float", 1),
        ("p = Pad (x, pads, one) c = Conv (z, w) y = Add (c, p)", "float", 0),
        ("p = Pad (x, pads, zero, axes) c = Conv (z, w) y = Add (c, p)", "float", 0),
        ('p = Pad <mode = "reflect"> (x, pads) c = Conv (z, w) y = Add (c, p)', "float", 0),
        ("p = Pad (x, pads) c = Concat <axis = 1> (x, x) y = Add (c, p)", "float", 0),
        ("p = Pad (x, pads) c = Conv (z, w) y = Add (c, p)", "double", 0),
    ],
    ids=["zeros", "ones", "other axes", "reflected", "no convolution to be added to", "64 bits"],
)
def test_zeros_behind_channels_are_made_for_sums_with_convolutions(nodes: str, kind: str, count: int) -> None:
    dtype = {"float": np.float32, "double": np.float64}[kind]
    stored = {"pads": np.array([0, 0, 0, 0, 0, 8, 0, 0]), "axes": np.array([0, 1, 3, 2]), "w": np.ones((16, 3, 1, 1), dtype),
              "one": np.ones((), dtype), "zero": np.zeros((), dtype)}  # fmt: skip
    model = parsed(f"({kind}[1,8,5,7] x, {kind}[1,3,5,7] z) => ({kind}[1,16,5,7] y) {{ {nodes} }}", **stored)
    assert apply("pad_to_conv", model) == count
