"""Names of graph inputs and outputs, and the layouts requested for them."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from ai_edge_litert.interpreter import Interpreter

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.errors import InvalidModel, UnsupportedOption
from onnx_tflite_plugin.verify import LiteRT, LiteRTError

SHAPE = (2, 5, 7)


def chain(*names: str, signature: dict[str, int] | None = None, inputs: tuple[str, ...] = ("x",)) -> ModelBuilder:
    """Return a model of two negations whose results are both outputs.

    ``signature``: the outputs that the signature names.
    """
    model = ModelBuilder()
    g = model.main
    t = x = g.input(inputs[0], SHAPE)
    results = []
    for name in names:
        operand, t = t, g.tensor(name, SHAPE)
        g.operator("NEG", [operand], [t])
        results.append(t)
    g.output(*results)
    if signature is not None:
        model.signature("main", {inputs[0]: x}, {name: results[k] for name, k in signature.items()})
    return model


def interface_names(model: ModelBuilder, **options: object) -> tuple[list[str | None], list[str | None]]:
    graph = otp.convert(model.build(), **options).model.graph  # type: ignore[arg-type]
    return [value.name for value in graph.inputs], [value.name for value in graph.outputs]


def test_empty_or_repeated_names_get_the_tensor_index() -> None:
    assert interface_names(chain("y", "x", "", "y")) == (["x"], ["y", "x#2", "#3", "y#4"])


def test_outputs_keep_file_order_and_signature_names() -> None:
    assert interface_names(chain("a", "b", "c", signature={"last": 2, "first": 0})) == (["x"], ["first", "b", "last"])


def test_output_positions_equal_those_of_the_interpreter() -> None:
    """Code for ``get_output_details()`` reads the same tensor from ONNX Runtime."""
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (2, 3)), g.input("y", (2, 3))
    results = [g.tensor(name, (2, 3)) for name in ("sum", "difference", "product")]
    for code, result in zip(("ADD", "SUB", "MUL"), results, strict=True):
        g.operator(code, [x, y], [result])
    g.output(*results)
    model.signature("serve", {"b": y, "a": x}, {"z": results[1], "w": results[2], "v": results[0]})
    data = model.build()
    interpreter = Interpreter(model_content=data)
    interpreter.allocate_tensors()
    session = ort.InferenceSession(otp.convert(data).proto.SerializeToString())
    inputs = [np.array([[1, 2, 3], [5, 7, 11]], np.float32), np.array([[13, 17, 19], [23, 29, 31]], np.float32)]
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    names = [info.name for info in session.get_inputs()]
    assert names == ["a", "b"]
    outputs = session.run(None, dict(zip(names, inputs, strict=True)))
    assert [info.name for info in session.get_outputs()] == ["v", "z", "w"]
    for detail, array in zip(interpreter.get_output_details(), outputs, strict=True):
        assert np.array_equal(interpreter.get_tensor(detail["index"]), array)


def test_output_named_like_an_input_becomes_its_next_value() -> None:
    assert interface_names(chain("a", "b", signature={"x": 1, "y": 0})) == (["x"], ["y", "x:next"])


def test_signature_of_another_subgraph_must_be_requested() -> None:
    model = ModelBuilder()
    g, other = model.main, model.subgraph("other")
    results = []
    for graph, code in ((other, "NEG"), (other, "ABS"), (g, "EXP")):
        x = graph.input(f"x of {code}", SHAPE)
        results.append(graph.tensor(code, SHAPE))
        graph.operator(code, [x], [results[-1]])
        graph.output(results[-1])
    model.signature("aside", {}, {"negative": results[0]}, subgraph=other.index)
    assert interface_names(model) == (["x of EXP"], ["EXP"])
    assert interface_names(model, signature="aside")[1] == ["negative"]


def test_requested_layout_is_used() -> None:
    graph = otp.convert(chain("y").build(), layout={"x": "ABC:CAB"}).model.graph
    assert [tuple(value.shape or ()) for value in (*graph.inputs, *graph.outputs)] == [(7, 2, 5), SHAPE]


@pytest.mark.parametrize("io_layout", ["source", "onnx"])
def test_requested_layout_is_kept_with_any_io_layout(io_layout: str) -> None:
    graph = otp.convert(chain("y").build(), layout={"x": "ABC:CAB"}, io_layout=io_layout).model.graph
    assert tuple(graph.inputs[0].shape or ()) == (7, 2, 5)


@pytest.mark.parametrize("letters", ["AAB:ABA", "AB:BA", "ABCD:ABDC", "ABC:ABD", "ABC"])
def test_letters_that_do_not_permute_the_axes_are_refused(letters: str) -> None:
    with pytest.raises(UnsupportedOption, match="give the same 3 letters on both sides"):
        otp.convert(chain("y").build(), layout={"x": letters})


def test_disambiguated_name_does_not_collide_with_another_tensor() -> None:
    assert interface_names(chain("x#3", "y", "x")) == (["x"], ["x#3", "y", "x#3#3"])


def test_internal_tensor_named_as_signature_input_is_ignored() -> None:
    model = chain("a", "b")
    model.signature("main", {"inside": 1, "x": 0}, {"b": 2})
    assert interface_names(model) == (["x"], ["a", "b"])


@pytest.mark.parametrize("subgraph", [0, 1])
@pytest.mark.parametrize("shape", [(), SHAPE])
def test_signature_output_that_is_never_computed_is_refused(subgraph: int, shape: tuple[int, ...]) -> None:
    """LiteRT has no value for it either; existing outputs can be selected by name."""
    model = chain("a")
    graph = (model.main, model.subgraph("other"))[subgraph]
    if subgraph:
        graph.operator("ABS", [graph.input("x", SHAPE)], [y := graph.tensor("b", SHAPE)])
        graph.output(y)
    empty = graph.tensor("empty", shape)
    model.signature("serve", {"x": 0}, {"score": empty}, subgraph=subgraph)
    with pytest.raises(InvalidModel, match=r"signature 'serve', output 'score': no operator computes tensor 2 'empty'"):
        otp.convert(model.build(), signature="serve")
    with pytest.raises(LiteRTError):
        LiteRT(model.build(), "builtin", signature="serve").run([np.zeros(SHAPE, np.float32)])
    name = "b" if subgraph else "a"
    assert interface_names(model, signature="serve", outputs=[name]) == (["x"], [name])
    with pytest.raises(UnsupportedOption, match=r"outputs=\['empty'\]: no operator computes the tensor"):
        otp.convert(model.build(), signature="serve", outputs=["empty"])
