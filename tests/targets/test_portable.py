"""The target ``portable``: float tensors and plain nodes, equal results."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from conformance.cases.control import branches
from conformance.lstms import Lstm
from conformance.models import Net
from onnx_tflite_plugin.errors import TargetRefusal, UnsupportedOption
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.target_options import apply_target_defaults
from onnx_tflite_plugin.verify import LiteRT
from tests.helpers.target_networks import network

RECURRENT = Lstm(options=(("cell_clip", 0.31),))


def recurrent() -> bytes:
    net = Net()
    RECURRENT.build(net)
    return net.build()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_quantized_networks_become_float(dtype: str) -> None:
    zero_point = {"int8": 3, "uint8": 131, "int16": 0}[dtype]
    proto = otp.convert(network(dtype, zero_point, weight_zero_point=0), target="portable").proto
    assert [(opset_import.domain, opset_import.version) for opset_import in proto.opset_import] == [("", 13)]
    values = (*proto.graph.input, *proto.graph.output, *proto.graph.value_info)
    assert {value.type.tensor_type.elem_type for value in values} == {onnx.TensorProto.FLOAT}
    assert not {"QuantizeLinear", "DequantizeLinear", "Cast"} & {node.op_type for node in proto.graph.node}


def test_float16_weights_are_constants_of_float32() -> None:
    model = ModelBuilder()
    g = model.main
    x, wide = g.input("x", (3, 5)), g.tensor("wide", (7, 5))
    g.operator("DEQUANTIZE", [g.constant("w", np.arange(35, dtype=np.float16).reshape(7, 5) / 8)], [wide])
    g.output(y := g.tensor("y", (3, 7)))
    g.operator("FULLY_CONNECTED", [x, wide], [y])
    proto = otp.convert(model.build(), target="portable").proto
    assert onnx.TensorProto.FLOAT16 not in {initializer.data_type for initializer in proto.graph.initializer}
    assert "Cast" not in {node.op_type for node in proto.graph.node}
    array = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    (expected,) = LiteRT(model.build(), "builtin").run([array])
    (computed,) = ReferenceEvaluator(proto).run(None, {proto.graph.input[0].name: array})
    np.testing.assert_allclose(computed, expected, rtol=1e-5)


def test_short_loops_are_unrolled_and_long_ones_are_not() -> None:
    def loops(**options: Any) -> Counter[str]:
        model = otp.convert(recurrent(), target="portable", **options).model
        return Counter(node.op_type for node in model.graph.all_nodes() if node.op_type in ("Loop", "Scan"))

    assert loops() == {}
    assert loops(unroll=1) == {"Scan": 1}


def test_clipped_cells_need_no_branch() -> None:
    """Few cells reach their bound; targets with If check it at runtime."""
    net = Net()
    Lstm(options=(("cell_clip", 7.0),)).build(net)
    for target, has_if in (("generic", True), ("portable", False)):
        model = otp.convert(net.build(), target=target).model
        assert ("If" in {node.op_type for node in model.graph.all_nodes()}) == has_if


def test_images_are_resized_along_the_last_two_axes() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 5, 7, 11))
    g.output(y := g.tensor("y", (1, 13, 17, 11)))
    g.operator("RESIZE_BILINEAR", [x, g.constant("size", np.array([13, 17], np.int32))], [y])
    proto = otp.convert(model.build(), target="portable").proto
    (resize,) = (node for node in proto.graph.node if node.op_type == "Resize")
    constants = {i.name: onnx.numpy_helper.to_array(i).tolist() for i in proto.graph.initializer}
    assert constants[resize.input[3]] == [1, 11, 13, 17]


def test_branches_are_refused_with_a_remedy() -> None:
    branch = next(case for case in branches.cases() if case.op == "IF")
    with pytest.raises(TargetRefusal, match=r"portable has no If(.|\n)*target='generic'"):
        otp.convert(branch.build(), target="portable")


def test_defaults_of_the_target_yield_to_other_values() -> None:
    host = Host(packs="builtin")
    options = apply_target_defaults(ConvertOptions(target="portable"), host)
    assert (options.quantization, options.weights, options.unroll) == ("float", "fold", 32)
    assert apply_target_defaults(ConvertOptions(target="portable", unroll=7), host).unroll == 7
    assert apply_target_defaults(ConvertOptions(unroll=7), host) == ConvertOptions(unroll=7)


def test_older_opset_than_the_target_has_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="supports opsets 11 to 26"):
        otp.convert(network("int8", 3), target="portable", opset=10)
