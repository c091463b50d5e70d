"""Width folding of a first convolution, with bit-identical results.

Columns become channels if that is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import constant
from onnx_tflite_plugin.rewrite.weights.int8_operands import int8_operands
from onnx_tflite_plugin.source.model import Array
from tests.helpers.passes_networks import BuildNetwork, Network, RewriteTrial, build_model, image

pytestmark = pytest.mark.int8_products

FOLDED = [
    ((1, 13, 32, 3), 8, (3, 3), 2, "SAME"),
    ((1, 13, 32, 3), 8, (3, 2), 2, "VALID"),
    ((1, 17, 48, 3), 37, (7, 7), 2, "SAME"),
    ((1, 11, 48, 3), 17, (5, 3), 3, "SAME"),
    ((1, 11, 32, 1), 7, (3, 5), 2, "SAME"),
    ((1, 11, 32, 2), 13, (1, 1), 1, "SAME"),
    ((1, 7, 20, 4), 5, (3, 2), 1, "SAME"),
    ((1, 19, 96, 3), 8, (2, 4), 4, "VALID"),
    ((3, 13, 32, 3), 8, (3, 3), 2, "SAME"),
]

# With so many features, folding saves time for int8 weights only, not for uint8.
FOLDED_BY_PROCESSOR = [
    ((1, 11, 32, 3), 19, (3, 3), 1, "SAME"),
    ((1, 13, 32, 3), 32, (3, 3), 2, "SAME"),
]


def first_conv(
    shape: Sequence[int | None], features: int, *settings: Any, dtype: str = "int8", **options: Any
) -> BuildNetwork:
    """Build one convolution of an image; ``settings``: kernel, stride and padding."""
    kernel, stride, padding = settings
    return lambda net: net.conv(
        net.input(image(*shape, dtype=dtype)), features, kernel, stride, padding=padding, **options
    )


@pytest.mark.parametrize("settings", FOLDED, ids=str)
def test_folded_convolution_is_bit_identical(settings: tuple[Any, ...]) -> None:
    trial = RewriteTrial("fold_width", first_conv(*settings))
    assert trial.count == 1
    assert trial.has_equal_outputs
    [conv] = trial.nodes("Conv")
    assert trial.constant_values(conv, 1).shape[1] > settings[0][3]  # columns are channels now
    assert trial.ort_op_counts["QLinearConv"] == 1
    assert "Transpose" not in trial.ort_op_counts


@pytest.mark.parametrize("settings", FOLDED_BY_PROCESSOR, ids=str)
def test_if_selects_folding_that_pays_off_only_with_vnni(settings: tuple[Any, ...]) -> None:
    trial = RewriteTrial("fold_width", first_conv(*settings))
    assert trial.count == 1
    assert trial.has_equal_outputs
    assert not trial.nodes("Conv")
    [choice] = trial.nodes("If")
    branches = {attribute.name: attribute.g for attribute in choice.attribute}
    folded, original = (_convolution(branches[name]) for name in ("then_branch", "else_branch"))
    assert original["strides"] == [settings[3]] * 2
    assert folded["strides"] == [settings[3], 1]
    assert len(_nodes(branches["then_branch"], "Reshape")) == 2
    assert not _nodes(branches["else_branch"], "Reshape")
    assert trial.ort_op_counts["QLinearConv"] == 1
    assert not {"If", "Transpose", "Conv"} & {*trial.ort_op_counts}


def test_convolutions_in_both_branches_count_as_one() -> None:
    data = build_model(first_conv(*FOLDED_BY_PROCESSOR[0]))
    for option, expected in (("auto", {"chosen": 1}), ("uint8", {"uint8": 1})):
        conversion = otp.convert(data, weights_dtype=option)
        assert conversion.report.weights == expected
        int8 = [operand for operand in int8_operands(ir.from_proto(conversion.proto)) if operand.weights is not None]
        assert [product.on_exact_branch for product in int8] == [True] * (option == "auto")


def _convolution(graph: onnx.GraphProto) -> dict[str, list[int]]:
    [conv] = _nodes(graph, "Conv")
    return {attribute.name: list(attribute.ints) for attribute in conv.attribute}


def _nodes(graph: onnx.GraphProto, op_type: str) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type == op_type]


@pytest.mark.parametrize("per_axis", [True, False])
def test_unused_folded_weights_equal_the_zero_point(per_axis: bool) -> None:
    trial = RewriteTrial(
        "fold_width", first_conv((1, 13, 32, 3), 8, (3, 3), 2, "SAME", dtype="uint8", per_axis=per_axis)
    )
    [conv] = trial.nodes("Conv")
    assert trial.count == 1
    assert trial.has_equal_outputs
    assert np.count_nonzero(trial.constant_values(conv, 1) == 119 - 128) > trial.constant_values(conv, 1).size / 4


def test_folding_keeps_a_dynamic_batch() -> None:
    assert RewriteTrial("fold_width", first_conv((None, 13, 32, 3), 8, (3, 3), 2, "SAME"), batch=5).has_equal_outputs


def test_single_channel_image_is_folded_without_transpose() -> None:
    trial = RewriteTrial("fold_width", first_conv((1, 13, 32, 1), 8, (3, 3), 2, "SAME"))
    assert not any(node.op_type == "Transpose" for node in trial.before.graph.node[:4])
    assert trial.count == 1


@pytest.mark.parametrize(("features", "folds_by_processor"), [(7, False), (37, True)])
@pytest.mark.parametrize("batch", [3, None])
def test_single_channel_image_reshaped_from_a_row_is_folded(
    batch: int | None, features: int, folds_by_processor: bool
) -> None:
    def build(net: Network) -> TensorRef:
        row = net.input(replace(image(1, 1, 1, 1), shape=(batch, 11 * 32)))
        size = constant([-1, 11, 32, 1])
        return net.conv(net.like("RESHAPE", row, size, shape=(batch, 11, 32, 1)), features, (3, 5), 2)

    trial = RewriteTrial("fold_width", build, batch=5) if batch is None else RewriteTrial("fold_width", build)
    assert trial.count == 1
    assert trial.has_equal_outputs
    assert bool(trial.nodes("If")) is folds_by_processor


def test_folded_convolution_keeps_its_fused_activation() -> None:
    trial = RewriteTrial(
        "fold_width", first_conv((1, 13, 32, 3), 8, (3, 3), 2, "SAME", fused_activation_function="RELU")
    )
    assert trial.count == 1
    assert trial.has_equal_outputs
    assert trial.ort_op_counts["QLinearConv"] == 1


UNFOLDED: dict[str, BuildNetwork] = {
    "float": first_conv((1, 13, 32, 3), 8, (3, 3), 2, "SAME", dtype="float32"),
    "more channels than an image has": first_conv((1, 13, 32, 5), 8, (3, 3), 2, "SAME"),
    "a width without a divisor": first_conv((1, 13, 31, 3), 8, (3, 3), 2, "SAME"),
    "a result width without a divisor": first_conv((1, 13, 32, 3), 8, (3, 2), 1, "VALID"),
    "dilation": first_conv((1, 13, 32, 3), 8, (3, 3), 1, "SAME", dilation_w_factor=2),
    "groups": lambda net: net.conv(net.input(image(1, 13, 32, 4)), 8, groups=2),
    "more products than it saves": first_conv((1, 13, 32, 4), 64, (3, 3), 2, "SAME"),
}


def with_minus_128(weights: Array) -> Array:
    """Return weights with one -128 that overflows with no other weight of its sum."""
    changed = weights // 4
    changed[0] = 0
    changed[0, 1, 1, 1] = -128
    return changed


UNFOLDED["-128 among weights that cost more as uint8"] = first_conv(*FOLDED_BY_PROCESSOR[0], change=with_minus_128)
UNFOLDED["-128 among weights that overflow"] = first_conv(
    *FOLDED_BY_PROCESSOR[0], change=lambda weights: np.where(weights == weights.min(), -128, weights)
)


@pytest.mark.parametrize("name", UNFOLDED)
def test_convolution_without_gain_is_not_folded(name: str) -> None:
    trial = RewriteTrial("fold_width", UNFOLDED[name])
    assert trial.count == 0
    assert trial.after == ir.to_proto(ir.from_proto(trial.before))


def test_image_with_swapped_height_and_width_is_not_folded() -> None:
    def build(net: Network) -> TensorRef:
        x = net.input(image(1, 64, 32, 3))
        return net.conv(net.like("TRANSPOSE", x, constant([0, 2, 1, 3]), shape=(1, 32, 64, 3)), 8, (3, 3), 2)

    trial = RewriteTrial("fold_width", build)
    transpose = next(node for node in trial.before.graph.node if node.op_type == "Transpose")
    assert list(transpose.attribute[0].ints) == [0, 3, 2, 1]
    assert trial.count == 0


def test_folded_result_may_be_a_graph_output() -> None:
    build = first_conv((1, 13, 32, 3), 8, (3, 3), 2, "SAME", dtype="uint8")
    trial = RewriteTrial("fold_width", build, io_layout="onnx", layout={"x0": "NHWC:NHWC"})
    assert trial.count == 1
    assert trial.has_equal_outputs


def test_only_first_convolutions_are_folded() -> None:
    def build(net: Network) -> TensorRef:
        return net.conv(net.conv(net.input(image(1, 13, 32, 7)), 3, name="inner"), 8)

    assert RewriteTrial("fold_width", build).count == 0
