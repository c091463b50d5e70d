"""Reordered channels avoid overflows, with bit-identical results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.builder import TensorRef
from conformance.models import constant
from onnx_tflite_plugin.graph.metadata import PREFIX
from onnx_tflite_plugin.graph.value_metadata import read_tensor
from onnx_tflite_plugin.rewrite.channels.reorder_channels import pair_rows
from onnx_tflite_plugin.rewrite.weights.int8_operands import int8_operands, overflows
from onnx_tflite_plugin.source.model import Array
from tests.helpers.passes_networks import BuildNetwork, Network, RewriteTrial, apply, image
from tests.rewrite.harness import declines, rule_test

pytestmark = pytest.mark.int8_products

PASS = "reorder_channels"


def large_weights(*groups: tuple[int, ...], size: int = 90) -> Callable[[Array], Array]:
    """Return a function that limits weights to 31, except in ``groups``.

    A group is the input channels of one output feature that overflow pairwise.
    """

    def change(weights: Array) -> Array:
        changed = weights.astype(int) * 31 // 127
        for feature, channels in enumerate(groups, 5):
            changed[feature, 0, 0, list(channels)] = size
        return changed

    return change


FOUR_LARGE = large_weights((2, 3, 8, 9))


def chain(
    change: Callable[[Array], Array] = FOUR_LARGE,
    channels: int = 24,
    features: int = 32,
    kernel: tuple[int, int] = (1, 1),
    dtype: str = "int8",
) -> BuildNetwork:
    """Build two consecutive convolutions."""

    def build(net: Network) -> TensorRef:
        x = net.conv(
            net.input(image(1, 11, 13, 7, dtype=dtype)), channels, (1, 1), name="maker", per_axis=dtype == "int8"
        )
        return net.conv(x, features, kernel, change=change, name="reader")

    return build


def residual(net: Network) -> TensorRef:
    """Build two readers of one tensor, the second through a sum.

    Different channels overflow in the two readers, which need one common channel order.
    """
    x = net.conv(net.input(image(1, 11, 13, 7)), 24, (1, 1), name="a")
    y = net.conv(net.conv(x, 32, (1, 1), change=large_weights((2, 3))), 24, (1, 1), change=large_weights())
    return net.conv(net.like("ADD", x, y), 32, (1, 1), change=large_weights((3, 8, 9), size=-90))


def depthwise_and_pool(net: Network) -> TensorRef:
    """Build a depthwise convolution and a pool between two convolutions."""
    x = net.conv(net.input(image(1, 11, 13, 5)), 24, (1, 1))
    x = net.conv(x, 24, (3, 3), depthwise=True)
    pool = {"filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1, "padding": "VALID"}
    x = net.like("MAX_POOL_2D", x, shape=(1, 10, 12, 24), **pool)
    return net.conv(x, 37, (1, 1), change=large_weights((0, 1, 22, 23)))


def conv_added_to_its_operand(net: Network) -> TensorRef:
    """Build a convolution whose result is added to its operand."""
    x = net.conv(net.input(image(1, 11, 13, 7)), 24, (1, 1))
    y = net.like("ADD", x, net.conv(x, 24, (3, 3), change=large_weights((2, 3))))
    return net.conv(y, 32, (1, 1), change=large_weights())


def inexact_nodes(proto: onnx.ModelProto) -> list[str]:
    """Return the names of nodes whose int8 weights overflow on some processors."""
    return [str(operand.node.name) for operand in int8_operands(ir.from_proto(proto)) if not operand.exact]


@pytest.mark.parametrize(
    ("build", "count"),
    [
        (chain(), 1),
        (chain(kernel=(3, 3)), 1),
        (chain(large_weights((2, 3), size=-90)), 1),
        (chain(lambda weights: large_weights((2, 3))(weights - 128) + 128, dtype="uint8"), 1),
        (residual, 2),
        (depthwise_and_pool, 1),
        (conv_added_to_its_operand, 1),
    ],
    ids=["1x1", "3x3", "negative", "uint8", "residual", "depthwise and pool", "added to its operand"],
)
def test_overflowing_channels_get_other_neighbors(build: BuildNetwork, count: int) -> None:
    trial = RewriteTrial(PASS, build)
    assert trial.count == count
    assert len(inexact_nodes(trial.before)) - len(inexact_nodes(trial.after)) == count
    assert trial.has_equal_outputs
    assert {"Conv", "FusedConv"}.isdisjoint(trial.ort_op_counts)


def test_costlier_of_two_conflicting_readers_decides_the_order() -> None:
    """In one reader channel 0 can only be next to 3, in the other only next to 2."""

    def build(net: Network) -> tuple[TensorRef, ...]:
        x = net.conv(net.input(image(1, 11, 13, 7)), 4, (1, 1))
        changes = large_weights((0, 1), (0, 2)), large_weights((0, 1), (0, 3))
        return tuple(net.conv(x, 256 + k, (1, 1), change=change) for k, change in enumerate(changes))

    trial = RewriteTrial(PASS, build)
    assert trial.count == 1
    assert inexact_nodes(trial.after)[-1] == trial.nodes("Conv")[1].name
    assert trial.has_equal_outputs


def test_exact_reader_stays_exact() -> None:
    """In the exact reader channels 0 and 1 must stay adjacent."""

    def build(net: Network) -> tuple[TensorRef, ...]:
        x = net.conv(net.input(image(1, 11, 13, 7)), 6, (1, 1))

        def make_exact(weights: Array) -> Array:
            weights = np.zeros_like(weights)
            weights[5, 0, 0] = [127, 1, 64, 64, 64, 64]
            return weights

        return tuple(
            net.conv(x, 128 + k, (1, 1), change=change) for k, change in enumerate((make_exact, large_weights((2, 3))))
        )

    trial = RewriteTrial(PASS, build)
    assert trial.count == 1
    assert inexact_nodes(trial.after) == [trial.nodes("Conv")[0].name]
    assert trial.has_equal_outputs


def slice_channels(net: Network) -> tuple[TensorRef, ...]:
    x = net.conv(net.input(image(1, 11, 13, 7)), 24, (1, 1))
    cut = net.like("SLICE", x, constant([0, 0, 0, 3]), constant([1, 11, 13, 19]), shape=(1, 11, 13, 19))
    return net.conv(x, 32, (1, 1), change=large_weights((2, 3))), cut


def conv_of_input(net: Network) -> TensorRef:
    return net.conv(net.input(image(1, 11, 13, 24)), 32, (1, 1), change=large_weights((2, 3)))


def set_minus_128(weights: Array) -> Array:
    """Return weights that no channel order makes exact.

    They have a -128, and an overflowing pair that reordering could separate.
    """
    changed = np.zeros_like(weights)
    changed[5, 0, 0, 2] = -128
    changed[6, 0, 0, [8, 9]] = 90
    return changed


NO_ORDER, SHARED = "no channel order", "an operator other than a convolution mixes them"

test_declines_impossible_or_useless_orders = rule_test(
    PASS,
    declines("another reader", slice_channels, SHARED),
    declines("channels of an input", conv_of_input, SHARED),
    declines("-128 among others", chain(set_minus_128)),
    declines("13 of 24 channels", chain(large_weights(tuple(range(13)))), NO_ORDER),
    declines("-128", chain(large_weights((2, 3), size=-128))),
    declines("an odd number", chain(large_weights((2, 3)), channels=23), NO_ORDER),
    declines("few multiplications", chain(large_weights((2, 3)), features=17)),
    declines("no overflow", chain(large_weights())),
    declines("floats", chain(dtype="float32")),
)


def test_per_channel_requantization_prevents_reordering() -> None:
    """Otherwise a channel would be rounded with the parameters of another channel."""
    model = ir.from_proto(RewriteTrial(PASS, chain()).before)
    *_, reader = (node for node in model.graph if node.op_type == "Conv")
    dequantize = reader.inputs[0].producer()
    proto = ir.to_proto(model)
    names = [value.name for value in dequantize.inputs]
    k = next(k for k, node in enumerate(proto.graph.node) if node.output[0] == dequantize.outputs[0].name)
    parameter_names = ["scales", "zero_points"]
    requantization = [
        onnx.helper.make_node("DequantizeLinear", names, ["a"]),
        onnx.helper.make_node("QuantizeLinear", ["a", *parameter_names], ["b"], axis=1),
        onnx.helper.make_node("DequantizeLinear", ["b", *parameter_names], ["c"], axis=1),
        onnx.helper.make_node("QuantizeLinear", ["c", *names[1:]], ["d"]),
    ]
    proto.graph.node[k].input[0] = "d"
    for position, node in enumerate(requantization, k):
        proto.graph.node.insert(position, node)
    scale, zero_point = (value.const_value.numpy() for value in dequantize.inputs[1:])
    arrays = np.linspace(scale, 2 * scale, 24, dtype=scale.dtype), np.full(24, zero_point)
    proto.graph.initializer.extend(map(onnx.numpy_helper.from_array, arrays, parameter_names))
    del proto.graph.value_info[:]
    assert apply(PASS, ir.from_proto(onnx.shape_inference.infer_shapes(proto))) == 0


def test_metadata_has_the_order_of_the_channels() -> None:
    trial = RewriteTrial(PASS, chain())
    metadata = read_tensor("maker", {PREFIX + key: text for key, text in trial.value_metadata("maker").items()})
    assert metadata is not None
    assert sorted(metadata.channels) == list(range(24)) != list(metadata.channels)
    assert "channels" not in trial.value_metadata("reader")


# --- pairing ----------------------------------------------------------------------------------


@settings(deadline=None)  # a busy machine is not a failure
@given(st.integers(1, 6), st.integers(1, 3), st.data())
def test_pair_rows_returns_a_permutation_without_overflow(pairs: int, width: int, data: st.DataObject) -> None:
    weight = st.sampled_from([-127, -65, -64, -63, -1, 0, 1, 2, 63, 64, 65, 127])
    size = 2 * pairs * width
    rows = np.array(data.draw(st.lists(weight, min_size=size, max_size=size)), np.int8).reshape(2 * pairs, width)
    order = pair_rows(rows)
    if order is not None:
        assert sorted(order) == list(range(2 * pairs))
        assert not overflows(np.ascontiguousarray(rows[order].T))
    else:
        assert overflows(rows.T)


def test_leftover_channels_take_partners_from_other_pairs() -> None:
    """Channel 0 fits 1 and 2, but 1 fits only 0 and 3.

    The pair (0, 1) is formed first, because 1 has more large weights than 2. Then 2 and 3 are left, and do not fit.
    """
    rows = np.zeros((4, 8), np.int8)
    for column, channels in enumerate([(2, 3), (0, 3), (1, 2), (0,), (0,), (0,), (1,), (1,)]):
        rows[list(channels), column] = 127
    assert pair_rows(rows) == [0, 2, 1, 3]


def test_no_order_if_a_channel_fits_no_other() -> None:
    assert pair_rows(np.array([[127], [2], [2], [2]], np.int8)) is None
    assert pair_rows(np.array([[127], [1], [2], [2]], np.int8)) == [0, 1, 2, 3]


def test_no_order_if_partners_are_too_few() -> None:
    """Three channels of zeros fit every channel; the five other channels fit only these three."""
    rows = np.full((8, 3), 127, np.int8)
    rows[[1, 4, 6]] = 0
    assert pair_rows(rows) is None
    rows[2] = 1
    assert sorted(pair_rows(rows) or []) == list(range(8))
