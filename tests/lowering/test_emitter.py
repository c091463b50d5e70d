"""Tests of emitted nodes and constants, without a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.ir_values import set_type
from onnx_tflite_plugin.lowering.lookup import gather_entries
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.targets import TARGETS


def floats(numbers: Any) -> Array:
    return np.asarray(numbers, np.float32)


def emitter(opset: int = 18) -> Emitter:
    return Emitter(opset, UniqueNames(), TARGETS["generic"].wider_dtypes)


def test_equal_constants_are_shared() -> None:
    builder, array = emitter(), np.arange(997, dtype=np.float32)
    different = array.copy()
    different[-1] += 1
    assert builder.constant(array) is builder.constant(array.copy())
    assert builder.constant(array) is not builder.constant(different)
    assert builder.constant(array) is not builder.constant(array.view(np.int32))
    assert builder.constant(array) is not builder.constant(array[None])


def test_trailing_absent_operands_are_dropped() -> None:
    builder = emitter()
    without_bounds = builder.emit("Clip", [floats([1]), None, None], {})[0].producer()
    with_maximum = builder.emit("Clip", [floats([1]), None, floats(2)], {})[0].producer()
    assert without_bounds is not None
    assert with_maximum is not None
    assert (len(without_bounds.inputs), len(with_maximum.inputs)) == (1, 3)


def test_node_has_all_required_outputs() -> None:
    assert len(emitter().emit("TopK", [floats([1, 2, 3]), [2]], {})) == 2


def test_each_domain_has_one_version() -> None:
    builder = emitter()
    builder.emit("ArrayFeatureExtractor", [floats([[1, 2]]), [0]], {}, domain="ai.onnx.ml")
    builder.emit_foreign("com.example", "Anything", [], {}, [None])
    assert builder.domains == {"": 18, "ai.onnx.ml": 3, "com.example": 1}


def test_nodes_take_name_and_metadata_of_the_innermost_scope() -> None:
    builder = emitter()
    with builder.label_nodes("op3", {"mark": "outer"}):
        with builder.label_nodes("op5", {"mark": "inner"}):
            builder.emit("Abs", [floats([1])], {})
        builder.emit("Abs", [floats([1])], {})
    builder.emit("Abs", [floats([1])], {})
    assert [(node.name, dict(node.metadata_props)) for node in builder.nodes] == [
        ("op5/Abs", {"mark": "inner"}),
        ("op3/Abs", {"mark": "outer"}),
        ("Abs", {}),
    ]


def test_foreign_operator_accepts_list_and_tuple_attributes() -> None:
    builder = emitter()
    builder.emit_foreign("com.example", "Anything", [], {"a": (2, 3), "b": [2.5], "c": floats([[7]])}, [("int8", (2,))])
    (node,) = builder.nodes
    assert list(node.attributes["a"].as_ints()) == [2, 3]
    assert list(node.attributes["b"].as_floats()) == [2.5]
    assert node.attributes["c"].as_tensor().shape == (1, 1)
    assert node.outputs[0].dtype == ir.DataType.INT8


def test_number_lists_become_list_attributes_and_arrays_tensors() -> None:
    builder = emitter()
    attributes = {"a": np.asarray([2, 3]), "b": floats([[7]]), "c": 5}
    builder.emit("Anything", [floats([1])], attributes, domain="com.microsoft")
    kinds = {name: attribute.type for name, attribute in builder.nodes[0].attributes.items()}
    assert kinds == {"a": ir.AttributeType.INTS, "b": ir.AttributeType.TENSOR, "c": ir.AttributeType.INT}


def test_output_dtype_follows_the_dtype_attribute() -> None:
    builder = emitter()
    assert builder.emit("Cast", [floats([1])], {"to": "int8"})[0].dtype == ir.DataType.INT8
    assert builder.emit("RandomUniform", [], {"shape": [2], "dtype": "float16"})[0].dtype == ir.DataType.FLOAT16


@pytest.mark.parametrize("inputs", [0, 4])
def test_wrong_number_of_operands_raises_type_error(inputs: int) -> None:
    with pytest.raises(TypeError, match="takes 1 to 3 inputs"):
        emitter().emit("Clip", [floats([1])] * inputs, {})


@pytest.mark.parametrize(
    ("dims", "nodes"),
    [
        ((), ["Gather"]),
        ((0, 3), ["Gather"]),
        ((None, None), ["Gather"]),
        ((1, 1), ["GatherElements"]),
        ((1, 7, 1), ["GatherElements"]),
        ((None,), ["GatherElements"]),
        ((2, 3), ["Reshape", "GatherElements", "Reshape"]),
        ((None, 3), ["Reshape", "GatherElements", "Reshape"]),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_gather_entries_uses_gather_elements_for_static_shapes(
    dims: tuple[int | None, ...], nodes: list[str], dtype: str
) -> None:
    builder = emitter()
    indices = builder.register(set_type(ir.Value(name="x"), dtype, dims))
    gather_entries(builder, floats([2, 3, 5, 7, 11]), indices, dims)
    assert [node.op_type for node in builder.nodes] == ["Cast"] * (dtype == "uint8") + nodes
    elements = next((node for node in builder.nodes if node.op_type == "GatherElements"), None)
    if elements is not None and elements.inputs[0] is not None and len(nodes) == 1:
        gather_axis = elements.attributes["axis"].as_int()
        assert list(elements.inputs[0].shape or ()) == [5 if axis == gather_axis else 1 for axis in range(len(dims))]
        assert gather_axis == (1 if dims == (1, 7, 1) else 0)


def test_scalar_axis_operand_becomes_a_list_attribute() -> None:
    node = emitter(17).emit("ReduceMax", [floats([[1, 2]]), np.asarray(1)], {})[0].producer()
    assert node is not None
    assert list(node.attributes["axes"].as_ints()) == [1]


@pytest.mark.parametrize(("op_type", "name", "since"), [("DFT", "axis", 20), ("ReduceMax", "axes", 18)])
def test_runtime_value_for_an_attribute_names_the_opset_needed(op_type: str, name: str, since: int) -> None:
    builder = emitter(17)
    number = builder.register(set_type(ir.Value(name="n"), "int64", () if since == 20 else (1,)))
    operands = [floats(np.zeros((1, 3, 2))), *([None] if since == 20 else []), number]
    with pytest.raises(Refusal, match=f"{op_type} with {name} as a runtime value needs opset {since}"):
        builder.emit(op_type, operands, {})


def test_output_dtype_follows_the_operand_of_the_same_type() -> None:
    builder = emitter()
    operands = [np.asarray([2, 3], np.int32), np.asarray(5), floats([0, 1])]
    assert builder.emit("OneHot", operands, {})[0].dtype == ir.DataType.FLOAT
    assert builder.emit("Where", [np.asarray(True), *operands[:1], *operands[:1]], {})[0].dtype == ir.DataType.INT32
    assert builder.emit("Concat", [operands[2]] * 3, {"axis": 0})[0].dtype == ir.DataType.FLOAT


def test_attributes_without_a_schema_take_the_type_of_their_value() -> None:
    body = ir.Graph([], [], nodes=[], name="body")
    values = {
        "body": body,
        "text": "a",
        "number": 2,
        "switch": True,
        "share": 0.5,
        "list": [2, 3],
        "array": floats([[1]]),
    }
    node = emitter().emit("Anything", [], values, domain="com.example")[0].producer()
    assert node is not None
    kinds = {name: attribute.type.name for name, attribute in node.attributes.items()}
    assert kinds == {
        "body": "GRAPH", "text": "STRING", "number": "INT", "switch": "INT", "share": "FLOAT", "list": "INTS", "array": "TENSOR",
    }  # fmt: skip
