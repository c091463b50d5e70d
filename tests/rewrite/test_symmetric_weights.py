"""uint8 weights become symmetric int8; large weights use a second channel.

A weight that exceeds int8 is split between a channel and its duplicate.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from conformance.builder import TensorRef
from conformance.models import constant
from onnx_tflite_plugin.source.model import Array
from tests.helpers.passes_networks import Network, RewriteTrial, image
from tests.rewrite.harness import declines, graph, rule_test

pytestmark = pytest.mark.int8_products


def chain(
    net: Network,
    *beyond_int8: tuple[int, ...],
    features: int = 24,
    reader: tuple[int, int] = (1, 1),
    biased: bool = True,
) -> TensorRef:
    """Build two convolutions, some of whose weights do not fit symmetric int8.

    ``beyond_int8``: the indices of these weights.
    """
    x = net.input(image(1, 11, 13, 16, dtype="uint8"))
    x = net.conv(x, features, (1, 1), beyond_int8=[(5, 0, 0, 3)], name="maker", biased=biased)
    return net.conv(x, 96, reader, beyond_int8=beyond_int8, name="reader", biased=biased)


def residual(net: Network) -> TensorRef:
    """Build readers of one tensor and of a sum with it.

    All readers but the last have different weights that do not fit int8.
    """
    x = net.input(image(1, 11, 13, 16, dtype="uint8"))
    a = net.conv(x, 24, (1, 1), beyond_int8=[(5, 0, 0, 3)], name="a", fused_activation_function="RELU6")
    b = net.conv(
        net.conv(a, 96, (1, 1), beyond_int8=[(7, 0, 0, 2), (11, 0, 0, 19)]), 24, (1, 1), beyond_int8=[(0, 0, 0, 1)]
    )
    total = net.like("ADD", a, b)
    c = net.conv(total, 96, (1, 1), beyond_int8=[(95, 0, 0, 23)])
    d = net.conv(total, 96, (1, 1), beyond_int8=[])
    return net.like("ADD", c, d)


def conv_added_to_its_operand(net: Network) -> TensorRef:
    """Build a convolution whose result is added to its operand."""
    x = net.conv(net.input(image(1, 11, 13, 16, dtype="uint8")), 24, (1, 1), beyond_int8=[])
    y = net.like("ADD", x, net.conv(x, 24, (1, 1), beyond_int8=[(5, 0, 0, 5), (7, 0, 0, 5)]))
    return net.conv(y, 96, (1, 1), beyond_int8=[(95, 0, 0, 7)])


def depthwise_and_pool(net: Network) -> TensorRef:
    """Build a depthwise convolution and a pool between two convolutions."""
    x = net.conv(net.input(image(1, 11, 13, 5, dtype="uint8")), 17, (1, 1), beyond_int8=[])
    x = net.conv(x, 17, (3, 3), depthwise=True, beyond_int8=[(0, 1, 2, 3)])
    pool = {"filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1, "padding": "VALID"}
    x = net.like("MAX_POOL_2D", x, shape=(1, 10, 12, 17), **pool)
    return net.conv(x, 512, (1, 1), beyond_int8=[(2, 0, 0, 13), (501, 0, 0, 13), (3, 0, 0, 0)])


def symmetric_weights(trial: RewriteTrial) -> dict[str, np.ndarray]:
    """Return the int8 weights of convolutions with zero points of 0, by node name."""
    producers = {name: node for node in trial.after.graph.node for name in node.output}
    stored = {
        initializer.name: onnx.numpy_helper.to_array(initializer) for initializer in trial.after.graph.initializer
    }
    return {
        conv.name: trial.constant_values(conv, 1)
        for conv in trial.nodes("Conv")
        if not stored[producers[conv.input[1]].input[2]].any()
    }


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("reader", [(1, 1), (1, 2)], ids=str)
def test_channel_is_duplicated_for_a_weight_that_exceeds_int8(reader: tuple[int, int], biased: bool) -> None:
    trial = RewriteTrial(
        "symmetric_weights", lambda net: chain(net, (7, 0, 0, 5), (31, 0, 0, 22), reader=reader, biased=biased)
    )
    assert trial.count == 1
    assert trial.has_equal_outputs
    producer, last = (trial.constant_values(conv, 1) for conv in trial.nodes("Conv"))
    assert producer.shape[0] == last.shape[1] == 28
    assert np.array_equal(producer[24:26], producer[[5, 22]])
    assert (last[7, 5, 0, 0], last[7, 24, 0, 0]) == (127, 255 - 119 - 127)
    assert not last[:, 26:].any()
    assert len(symmetric_weights(trial)) == 1
    assert {"Conv", "FusedConv"}.isdisjoint(trial.ort_op_counts)


@pytest.mark.parametrize("point", [1, 254])
def test_weight_twice_as_large_as_int8_needs_two_more_channels(point: int) -> None:
    trial = RewriteTrial(
        "symmetric_weights",
        lambda net: net.conv(
            net.conv(net.input(image(1, 11, 13, 16, dtype="uint8")), 24, (1, 1), beyond_int8=[]),
            512, (1, 1), zero_point=point, beyond_int8=[(7, 0, 0, 5)],
        ),
    )  # fmt: skip
    last = trial.constant_values(trial.nodes("Conv")[-1], 1)
    assert trial.has_equal_outputs
    assert last[7, [5, 24, 25], 0, 0].astype(int).sum() == (254 if point == 1 else -254)


def test_added_tensors_duplicate_the_channels_of_all_readers() -> None:
    trial = RewriteTrial("symmetric_weights", residual)
    assert trial.has_equal_outputs
    assert trial.count == len(symmetric_weights(trial)) == 3
    shapes = [trial.constant_values(conv, 1).shape[:2] for conv in trial.nodes("Conv")]
    assert shapes == [(28, 16), (96, 28), (28, 96), (96, 28), (96, 28)]


def test_convolution_may_produce_and_read_the_same_channels() -> None:
    trial = RewriteTrial("symmetric_weights", conv_added_to_its_operand)
    assert trial.has_equal_outputs
    assert trial.count == 3
    assert [trial.constant_values(conv, 1).shape[:2] for conv in trial.nodes("Conv")] == [
        (28, 16),
        (28, 28),
        (96, 28),
    ]


def test_duplicated_channels_pass_through_pools_and_depthwise() -> None:
    trial = RewriteTrial("symmetric_weights", depthwise_and_pool)
    assert trial.has_equal_outputs
    first, deep, last = trial.nodes("Conv")
    assert (
        trial.constant_values(first, 1).shape[0]
        == trial.constant_values(deep, 1).shape[0]
        == trial.constant_values(last, 1).shape[1]
        == 20
    )
    assert next(a.i for a in deep.attribute if a.name == "group") == 20


def test_weights_that_fit_int8_get_a_zero_point_of_0() -> None:
    trial = RewriteTrial(
        "symmetric_weights",
        lambda net: net.conv(net.input(image(1, 11, 13, 3, dtype="uint8")), 17, (3, 3), beyond_int8=[]),
    )
    assert trial.count == len(symmetric_weights(trial)) == 1
    assert trial.has_equal_outputs


def conv_of_input(net: Network) -> TensorRef:
    return net.conv(net.input(image(1, 11, 13, 16, dtype="uint8")), 96, (1, 1), beyond_int8=[(7, 0, 0, 5)])


def slice_channels(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 11, 13, 16, dtype="uint8")), 24, (1, 1), beyond_int8=[(5, 0, 0, 3)])
    cut = net.like("SLICE", x, constant([0, 0, 0, 3]), constant([1, 11, 13, 19]), shape=(1, 11, 13, 19))
    return net.conv(x, 96, (1, 1), beyond_int8=[(7, 0, 0, 5)]), cut


def many_channels(net: Network) -> TensorRef:
    return chain(net, *((k, 0, 0, k) for k in range(24)))


def int8_input(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 11, 13, 16)), 24, (1, 1))
    return net.conv(x, 96, (1, 1))


def few_features(net: Network) -> TensorRef:
    """Build a product with many input channels and few output features."""
    x = net.conv(net.input(image(1, 11, 13, 512, dtype="uint8")), 24, (1, 1), beyond_int8=[(5, 0, 0, 3)])
    return net.conv(x, 2, (1, 1), beyond_int8=[(1, 0, 0, 5)])


def small_gain(net: Network) -> TensorRef:
    """Build a product for which symmetric weights save 9 % with VNNI.

    The four additional channels cost the same 9 % without VNNI.
    """
    x = net.conv(net.input(image(1, 11, 13, 128, dtype="uint8")), 16, (1, 1), beyond_int8=[(5, 0, 0, 3)])
    return net.conv(x, 48, (1, 1), beyond_int8=[(7, 0, 0, 5)])


def uint8_constant() -> ir.Model:
    nodes = "a = DequantizeLinear (x, s, p) w = DequantizeLinear (k, s, p) b = Conv (a, w) y = QuantizeLinear (b, s, p)"
    stored = {"s": np.float32(0.05), "p": np.uint8(120), "k": np.full((16, 16, 1, 1), 200, np.uint8)}
    return graph(f"(uint8[1,16,11,13] x) => (uint8[1,16,11,13] y) {{ {nodes} }}", **stored)()


IMPOSSIBLE = "duplicated input channels are impossible or cost more"

test_declines_to_duplicate_channels = rule_test(
    "symmetric_weights",
    *(
        declines(text, build, IMPOSSIBLE)
        for text, build in (
            ("channels of an input", conv_of_input), ("another reader", slice_channels), ("many channels", many_channels),
            ("few features, many input channels", few_features), ("a small gain", small_gain),
        )
    ),
    declines("symmetric weights", int8_input),
    declines("uint8 that is stored", uint8_constant),
)  # fmt: skip


def test_only_gaining_readers_decide_which_channels_are_duplicated() -> None:
    """A reader with a zero point of 0 does not change."""

    def set_zero(weights: Array) -> Array:
        weights[0, 0, 0, 2] = 0
        return weights

    def build(net: Network) -> TensorRef:
        x = net.conv(net.input(image(1, 11, 13, 16, dtype="uint8")), 24, (1, 1), beyond_int8=[], name="maker")
        symmetric_reader = net.conv(x, 96, (1, 1), zero_point=128, change=set_zero)
        return net.like("ADD", net.conv(x, 96, (1, 1), beyond_int8=[(7, 0, 0, 5)]), symmetric_reader)

    trial = RewriteTrial("symmetric_weights", build)
    assert trial.has_equal_outputs
    producer_weights = trial.constant_values(trial.nodes("Conv")[0], 1)
    assert len(producer_weights) == 28
    assert np.array_equal(producer_weights[24], producer_weights[5])
    assert len(np.unique(producer_weights[25:])) == 1


def test_depthwise_input_channels_are_not_duplicated() -> None:
    def build(net: Network) -> TensorRef:
        x = net.conv(net.input(image(1, 11, 13, 16, dtype="uint8")), 24, (1, 1), beyond_int8=[(5, 0, 0, 3)])
        return net.conv(net.conv(x, 24, (3, 3), depthwise=True, beyond_int8=[(0, 1, 1, 7)]), 96, (1, 1), beyond_int8=[])

    trial = RewriteTrial("symmetric_weights", build)
    assert trial.count == 1  # the last one, with weights that fit int8
    assert trial.has_equal_outputs
    assert [len(trial.constant_values(conv, 1)) for conv in trial.nodes("Conv")] == [24, 24, 96]
