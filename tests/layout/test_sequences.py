"""Convolutions and pools of one-row images become 1-D unless images are faster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto

from conformance.cases.fusions.convolution import CAUSAL, ROW, Conv, depthwise
from conformance.cases.networks.sequences import CHAINS, POOLS, SEQUENCE_LAYERS, SequenceLayer
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.host import Host

RESHAPES = ("Reshape", "Squeeze", "Unsqueeze")


def convert_net(build: object, target: str) -> ModelProto:
    model = Net()
    build(model)  # type: ignore[operator]
    return convert(model.build(), host=Host(packs="builtin"), target=target).proto


def spatial_rank(proto: ModelProto) -> int:
    """Return the number of spatial axes of convolution and pooling kernels."""
    (count,) = {
        len(attribute.ints)
        for node in proto.graph.node
        if node.op_type in ("Conv", "MaxPool", "AveragePool")
        for attribute in node.attribute
        if attribute.name == "kernel_shape"
    }
    return count


def reshape_count(proto: ModelProto) -> int:
    return sum(node.op_type in RESHAPES for node in proto.graph.node)


OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", *POOLS)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("unit", [1, 2])
@pytest.mark.parametrize(("dtype", "target"), [("float32", "generic"), ("int8", "generic"), ("int8", "onnxruntime")])
def test_operator_on_a_sequence_has_one_spatial_axis(op: str, unit: int, dtype: str, target: str) -> None:
    proto = convert_net(SequenceLayer(op=op, unit_axis=unit, dtype=dtype), target)
    assert spatial_rank(proto) == 1
    assert reshape_count(proto) == 0


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_image_is_kept_if_the_target_keeps_unit_axes(op: str, dtype: str) -> None:
    if (op, dtype) != ("MAX_POOL_2D", "int16"):
        assert spatial_rank(convert_net(SequenceLayer(op=op, dtype=dtype), "onnxruntime")) == 2


@pytest.mark.parametrize("name", ["sequence in a row, kernel of height 3", "sequence in a column, kernel of width 2"])
def test_kernel_larger_than_the_unit_axis_stays_two_dimensional(name: str) -> None:
    assert spatial_rank(convert_net(SEQUENCE_LAYERS[name], "generic")) == 2


@pytest.mark.parametrize("length", [11, 1])
def test_image_without_sequence_neighbors_stays_an_image(length: int) -> None:
    assert (
        spatial_rank(convert_net(SequenceLayer(shape=(2, length, 3), kernel=1, to_image="", to_sequence=""), "generic"))
        == 2
    )


@pytest.mark.parametrize("name", CHAINS)
def test_chains_between_sequences_have_no_reshapes(name: str) -> None:
    proto = convert_net(CHAINS[name]("int8"), "generic")
    assert spatial_rank(proto) == 1
    assert reshape_count(proto) == (name == "per-channel factor")  # its constant is broadcast


@pytest.mark.parametrize("setting", [ROW, CAUSAL, depthwise(ROW), depthwise(CAUSAL)])
@pytest.mark.parametrize(("dtype", "target"), [("float32", "generic"), ("int8", "onnxruntime")])
def test_padding_and_dilation_are_fused_in_one_dimension(setting: Conv, dtype: str, target: str) -> None:
    proto = convert_net(replace(setting, dtype=dtype), target)
    assert spatial_rank(proto) == 1
    assert Counter(node.op_type for node in proto.graph.node)["Pad"] == 0


def test_sequence_to_image_reshapes_are_shared() -> None:
    """Three causal convolutions share one Unsqueeze and one Squeeze.

    Each convolution reads a padded sequence.
    """

    def build(model: Net) -> None:
        sequence = model.input(tensor(2, 11, 3))
        for _ in range(3):
            spec = model.spec(sequence)
            n, length, channels = spec.shape
            assert length is not None
            padded = model.call(
                "PAD", [sequence, constant([[0, 0], [2, 0], [0, 0]])], spec.with_shape(n, length + 2, channels)
            )
            image = model.call("EXPAND_DIMS", [padded, constant(1)], spec.with_shape(n, 1, length + 2, channels))
            w, b = constant(np.ones((5, 1, 3, channels or 1), np.float32)), constant(np.zeros(5, np.float32))
            options = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
            y = model.call("CONV_2D", [image, w, b], spec.with_shape(n, 1, length, 5), **options)
            sequence = model.call("SQUEEZE", [y], spec.with_shape(n, length, 5), squeeze_dims=(1,))
        model.output(sequence)

    proto = convert_net(build, "onnxruntime")
    assert spatial_rank(proto) == 2
    assert reshape_count(proto) == 2


def test_restore_inserts_missing_unit_axes() -> None:
    array = np.arange(2 * 5 * 3).reshape(2, 1, 5, 3)
    without_axis = TensorValue("v", 0, 0, order=(0, 3, 2))
    restored = without_axis.restore(array[:, 0].transpose(0, 2, 1), array.dtype)
    assert restored is not None
    np.testing.assert_array_equal(restored, array)
    with_inserted_axis = TensorValue("v", 0, 0, order=(0, 2, -1, 1))
    restored = with_inserted_axis.restore(array.transpose(0, 3, 1, 2), array.dtype)
    assert restored is not None
    np.testing.assert_array_equal(restored, array[:, 0])
