"""Invalid ONNX models are attributed to file, pack, target or converter."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_tflite_plugin.errors import ConversionError, HandlerError, InvalidModel, TargetRefusal
from onnx_tflite_plugin.graph.node_metadata import node_props
from onnx_tflite_plugin.graph.serialized import remove_constant_infos, to_proto
from onnx_tflite_plugin.graph.validity import DeclaredHandler, check_valid, weight_bytes
from onnx_tflite_plugin.guard import BUILTIN


def value(name: str, *shape: int, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def model(op_type: str, inputs: list[ir.Value], result: ir.Value, pack: str = "", handler: str = "H") -> ir.Model:
    """Return a model with a valid node followed by the given one."""
    first = ir.node(
        "Identity", [inputs[0]], outputs=[value("same", *inputs[0].shape, dtype=inputs[0].dtype)], name="first"
    )  # type: ignore[misc,arg-type]
    node = ir.node(op_type, inputs, outputs=[result], name="second")
    for emitted, location in ((first, (0, 3)), (node, (0, 7))):
        if pack:
            emitted.metadata_props.update(node_props([location], handler, pack, emitted.name or ""))
    graph = ir.Graph(inputs, [result, *first.outputs], nodes=[first, node], opset_imports={"": 21}, name="g")
    return ir.Model(graph, ir_version=10)


def refuse(invalid: ir.Model, declared: Mapping[tuple[str, str], DeclaredHandler] | None = None) -> ConversionError:
    with pytest.raises(ConversionError) as caught:
        check_valid(invalid, to_proto(invalid), declared)
    return caught.value


def wrong_size(pack: str = "") -> ir.Model:
    return model("Neg", [value("x", 2, 3)], value("y", 2, 5), pack)


def test_valid_model_passes() -> None:
    valid = model("Neg", [value("x", 2, 3)], value("y", 2, 3))
    check_valid(valid, to_proto(valid))


def test_wrong_size_of_built_in_handler_is_attributed_to_file() -> None:
    error = refuse(wrong_size(BUILTIN))
    assert isinstance(error, InvalidModel)
    assert error.problems[0].where == "subgraphs[0].operators[7]: Neg 'second'"
    assert "the emitted value has size " in error.problems[0].reason
    assert "size 3 along axis 1, but 5 is expected from the file " in error.problems[0].reason


def test_wrong_size_of_pack_handler_is_attributed_to_pack() -> None:
    error = refuse(wrong_size("a-pack"))
    assert isinstance(error, HandlerError)
    assert error.problems[0].where == "Neg 'second'"
    assert "handler H of a-pack failed: the emitted value has size" in error.problems[0].reason
    reason = (
        refuse(wrong_size("a-pack"), {("H", "a-pack"): DeclaredHandler("X", "result_shape=f", "x.py:7 in f")})
        .problems[0]
        .reason
    )
    assert "but 5 is expected from the file and the handler's declarations; it declares result_shape=f" in reason
    assert reason.endswith("; correct the lowering or the declarations, at x.py:7 in f")
    other = (
        refuse(wrong_size("a-pack"), {("H", "b-pack"): DeclaredHandler("X", "result_shape=f", "x.py:7 in f")})
        .problems[0]
        .reason
    )
    assert "declares" not in other


def test_wrong_rank_is_reported() -> None:
    error = refuse(model("Neg", [value("x", 2, 3)], value("y", 2, 3, 1), BUILTIN))
    assert isinstance(error, InvalidModel)
    assert "the emitted value has rank 2, but 3 is expected from the file" in error.problems[0].reason


def test_incompatible_operands_are_attributed_to_file() -> None:
    error = refuse(model("MatMul", [value("x", 2, 3), value("w", 5, 7)], value("y", 2, 7), BUILTIN))
    assert isinstance(error, InvalidModel)
    assert "the shapes and dtypes of the operands are inconsistent" in error.problems[0].reason


def test_node_without_handler_metadata_is_attributed_to_converter() -> None:
    error = refuse(wrong_size())
    assert isinstance(error, HandlerError)
    assert error.problems[0].where == "the model"


@pytest.mark.parametrize(
    ("dtype", "hint"), [(ir.DataType.INT8, "--quantization float"), (ir.DataType.STRING, "")], ids=["int8", "string"]
)
def test_dtype_unsupported_by_onnx_is_attributed_to_target(dtype: ir.DataType, hint: str) -> None:
    invalid = model("Exp", [value("x", 2, dtype=dtype)], value("y", 2, dtype=dtype), "a-pack")
    error = refuse(invalid)
    assert isinstance(error, TargetRefusal)
    assert error.problems[0].where == "subgraphs[0].operators[7]: Exp 'second'"
    assert error.problems[0].reason == f"ONNX defines no Exp for {dtype.name.lower()}"
    assert error.problems[0].hint == hint
    assert isinstance(refuse(invalid, {("H", "a-pack"): DeclaredHandler("X", "quantization=q")}), HandlerError)


def test_unknown_operator_is_reported_with_the_checker_message() -> None:
    error = refuse(model("Exp", [value("x", 2, dtype=ir.DataType.INT8)], value("y", 2, dtype=ir.DataType.INT8)))
    assert isinstance(error, TargetRefusal)
    assert error.problems[0].where == "the model"
    assert "unsupported type: tensor(int8)" in error.problems[0].reason


def test_error_is_attributed_to_the_exact_node_name() -> None:
    invalid = model("Neg", [value("x", 2, 3)], value("y", 2, 5), BUILTIN)
    for node, name in zip(invalid.graph, ("op1/Neg", "op1/Neg_1"), strict=True):
        node.name = name
    assert refuse(invalid).problems[0].where == "subgraphs[0].operators[7]: Neg 'op1/Neg_1'"


def test_weight_bytes_include_text_length() -> None:
    tensors = {
        "f": ir.tensor(np.zeros((2, 3), np.float32)),
        "n": ir.tensor(np.zeros(8, ml_dtypes.int4)),
        "s": ir.StringTensor([b"abc", b"", b"de"], shape=ir.Shape((3,))),
    }
    stored = [ir.Value(name=name, const_value=tensor) for name, tensor in tensors.items()]
    graph = ir.Graph([], [], nodes=[], initializers=stored, opset_imports={"": 21})
    assert weight_bytes(ir.Model(graph, ir_version=10)) == 24 + 4 + 5


def test_remove_constant_infos_includes_inner_graphs() -> None:
    def inner_graph(name: str, *inner: onnx.NodeProto) -> onnx.GraphProto:
        infos = [onnx.helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, (3,)) for each in ("w", "v")]
        stored = [onnx.numpy_helper.from_array(np.ones(3, np.float32), "w")]
        return onnx.helper.make_graph(list(inner), name, [], [], stored, value_info=infos)

    choice = onnx.helper.make_node("If", ["c"], ["y"], then_branch=inner_graph("then"), else_branch=inner_graph("else"))
    graph = inner_graph("main", choice)
    remove_constant_infos(graph)
    graphs = [graph, *(attribute.g for attribute in graph.node[0].attribute)]
    assert [[info.name for info in each.value_info] for each in graphs] == [["v"]] * 3
