"""Whose fault a model is that ONNX's own checker refuses, and how large one is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_tflite_plugin.errors import HandlerError, TargetRefusal
from onnx_tflite_plugin.graph.kernels import advice
from onnx_tflite_plugin.graph.metadata import node_props
from onnx_tflite_plugin.graph.validity import check_valid, weight_bytes

ONE = """<ir_version: 8, opset_import: ["": 18]> g (int32[2, 3] x) => (int32[2, 3] y) { y = Sin(x) }"""
TWO = """<ir_version: 8, opset_import: ["": 18]> g (float[2, 3] f, int32[2, 3] x) => (float[2, 3] z, int32[2, 3] y) {
    z = Sin(f)
    y = Sin(x)
}"""
PACK = ("my sin", "my-pack")


def named(text: str, names: Sequence[str], *origins: tuple[int, int]) -> ir.Model:
    """The model with nodes of these names, each lowered from an operator by a pack's handler."""
    model = ir.from_proto(onnx.parser.parse_model(text))
    for node, name in zip(model.graph, names, strict=True):
        node.name = name
    for node, origin in zip(model.graph, origins, strict=False):
        node.metadata_props.update(node_props([origin], *PACK, node.name or ""))
    return model


def test_a_node_of_no_operator_is_told_as_the_checker_tells_it() -> None:
    model = named(ONE, ["moved"])
    with pytest.raises(TargetRefusal) as caught:
        check_valid(model, ir.to_proto(model))
    (problem,) = caught.value.problems
    assert problem.where == "the model"
    assert "unsupported type: tensor(int32)" in problem.reason


def test_a_dtype_that_a_pack_declares_is_the_pack_s_fault() -> None:
    model = named(ONE, ["op7/Sin"], (0, 7))
    with pytest.raises(TargetRefusal, match=r"subgraphs\[0\].operators\[7\].*ONNX defines no Sin of int32"):
        check_valid(model, ir.to_proto(model))
    with pytest.raises(HandlerError, match=r"handler my sin of my-pack failed.*it declares dtypes=of"):
        check_valid(model, ir.to_proto(model), {PACK: ("op 7 SIN", "dtypes=of")})


def test_the_node_that_the_checker_names_is_blamed_not_one_whose_name_begins_alike() -> None:
    model = named(TWO, ["op1/Sin", "op1/Sin_1"], (0, 1), (0, 11))
    with pytest.raises(TargetRefusal, match=r"subgraphs\[0\].operators\[11\]: Sin 'op1/Sin_1'"):
        check_valid(model, ir.to_proto(model))


def test_texts_count_by_their_bytes() -> None:
    model = ir.from_proto(onnx.parser.parse_model(ONE))
    for name, array in {"a": np.zeros((3, 5), np.float32), "b": np.array([b"seven..", b"", b"elf"], object)}.items():
        model.graph.register_initializer(ir.val(name, const_value=ir.tensor(array, name=name)))
    assert weight_bytes(model) == 3 * 5 * 4 + 7 + 3


SMALLEST = """<ir_version: 8, opset_import: ["": 18]> g (float[2, 3] a, {0}[2, 3] b, int64[1] k) => (float[2, 1] y, {0}[2, 1] z) {{
    y = ReduceMin(a, k)
    z = ReduceMin(b, k)
}}"""


@pytest.mark.parametrize(("dtype", "helps"), [("int32", True), ("uint64", False)])
def test_an_opset_helps_where_every_node_of_the_operator_has_a_kernel_in_it(dtype: str, helps: bool) -> None:
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(SMALLEST.format(dtype))))
    told = advice(model, "Could not find an implementation for ReduceMin(18) node with name ''", (18, 20))
    assert ("--opset 20 may help" in told) is helps
