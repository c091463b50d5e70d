"""``--inputs-at`` and ``--outputs`` against LiteRT's intermediate tensors."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.cases.state.variables import VariableNet
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.verify import LiteRT, verify
from tests.helpers.chains import chain


def interface(conversion: otp.Conversion) -> tuple[list[str], list[str]]:
    graph = conversion.proto.graph
    return [value.name for value in graph.input], [value.name for value in graph.output]


def test_outputs_option_removes_unused_operators() -> None:
    data = chain()
    conversion = otp.convert(data, outputs=["b", "a"])
    assert interface(conversion) == (["x"], ["b", "a"])
    assert conversion.report.operators == {"EXP": 1, "NEG": 1}
    x = np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3)
    original = LiteRT(data, "builtin", preserve=True)
    original.run([x, np.zeros_like(x)])
    b, a = onnxruntime.InferenceSession(conversion.proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(b, original.tensors()[3], rtol=1e-6)
    np.testing.assert_array_equal(a, original.tensors()[2])


def test_inputs_at_replaces_upstream_operators() -> None:
    conversion = otp.convert(chain(), inputs_at=["a"])
    assert interface(conversion) == (["a", "z"], ["y"])
    assert conversion.report.operators == {"ABS": 1, "ADD": 1, "EXP": 1}


def test_requested_graph_input_appears_once_in_requested_order() -> None:
    assert interface(otp.convert(chain(), inputs_at=["z", "a"])) == (["z", "a"], ["y"])


def test_keeps_a_multi_output_operator_for_one_result() -> None:
    net = Net()
    half = tensor(5, 3)
    left, right = net.call_multi_output("SPLIT", [constant(np.int32(1)), tensor(5, 6)], half, half, num_splits=2)
    net.output(net.call("NEG", [left], half))
    net.output(net.call("EXP", [right], half))
    submodel = otp.convert(net.build(), outputs=["y1"], verify=True)
    assert submodel.report.operators == {"EXP": 1, "SPLIT": 1}


def test_inputs_at_and_outputs_select_one_operator() -> None:
    assert otp.convert(chain(), inputs_at=["b"], outputs=["c"]).report.operators == {"ADD": 1}


def test_submodel_is_verified_against_the_same_submodel() -> None:
    data = chain()
    submodel = otp.convert(data, inputs_at=["a"], outputs=["c"], verify=True)
    assert submodel.verification is not None
    assert submodel.verification.ok
    verification = verify(data, submodel.proto.SerializeToString())
    assert verification.ok, verification.text
    assert [comparison.name for comparison in verification.comparisons] == ["c"]
    wrong_proto = submodel.proto
    next(node for node in wrong_proto.graph.node if node.op_type == "Exp").op_type = "Neg"
    assert not verify(data, wrong_proto.SerializeToString()).ok


def test_int8_submodel_keeps_its_scales() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 5), "int8", quantization=quant(0.1, 3))
    y, z = (
        g.tensor(name, (1, 5), "int8", quantization=quant(0.25, zero_point))
        for name, zero_point in (("y", -7), ("z", 11))
    )
    g.operator("ADD", [x, x], [y])
    g.operator("MUL", [y, y], [z])
    g.output(z)
    submodel = otp.convert(model.build(), inputs_at=["y"], verify=True)
    (graph_input,) = submodel.report.inputs
    assert (graph_input.name, graph_input.dtype, graph_input.scale, graph_input.zero_point) == (
        "y",
        "int8",
        (0.25,),
        (-7,),
    )


def test_signature_names_select_tensors() -> None:
    model = ModelBuilder()
    g = model.main
    x, a, b = g.input("x", (2, 3)), g.tensor("a", (2, 3)), g.tensor("b", (2, 3))
    g.operator("NEG", [x], [a])
    g.operator("EXP", [a], [b])
    g.output(a, b)
    model.signature("serve", {"image": x}, {"scores": b, "negated": a})
    assert interface(otp.convert(model.build(), outputs=["negated"], verify=True)) == (["image"], ["negated"])


def test_submodel_keeps_a_variable_that_it_writes() -> None:
    from conformance.cases.state import variables

    case = next(iter(variables.cases()))
    whole_model = otp.convert(case.build())
    (output,) = whole_model.report.outputs
    assert otp.convert(case.build(), outputs=[output.name]).report.states == whole_model.report.states


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"outputs": ["q"]}, r"outputs=\['q'\]: no tensor has this name"),
        ({"outputs": ["yy"]}, r"did you mean 'y'\? The model's outputs are y"),
        ({"outputs": ["#6"]}, "no tensor has this name"),
        ({"inputs_at": ["y"]}, "is also an output"),
        ({"inputs_at": ["a"], "outputs": ["a"]}, "is also an output"),
        ({"inputs_at": ["c"], "outputs": ["b"]}, r"inputs_at=\['c'\]: no output depends on this input"),
    ],
)
def test_rejects_empty_submodels(options: dict[str, list[str]], text: str) -> None:
    with pytest.raises(UnsupportedOption, match=text):
        otp.convert(chain(), **options)  # type: ignore[arg-type]


def test_suggests_names_that_the_given_text_abbreviates() -> None:
    for name, suggestion in (("probs", r"'probabilities' or 'parts'\?"), ("Prob", r"'probabilities'\?")):
        model = ModelBuilder()
        g = model.main
        x, parts, y = g.input("x", (2, 3)), g.tensor("parts", (2, 3)), g.tensor("probabilities", (2, 3))
        g.operator("NEG", [x], [parts])
        g.operator("ABS", [parts], [y])
        g.output(y)
        with pytest.raises(UnsupportedOption, match=f"did you mean {suggestion}"):
            otp.convert(model.build(), outputs=[name])


def test_a_shortened_name_gives_the_output_its_full_name() -> None:
    net = Net()
    net.output(net.call("ABS", [net.call("NEG", [tensor(2, 3)], tensor(2, 3))], tensor(2, 3)))
    (name,) = interface(otp.convert(net.build()))[1]
    assert interface(otp.convert(net.build(), outputs=[f"{name[0]}…{name[2:]}"]))[1] == [name]


def test_rejects_a_cut_at_a_constant() -> None:
    net = Net()
    y = net.call("ADD", [tensor(2, 3), constant(np.ones((2, 3), np.float32))], tensor(2, 3))
    net.output(y)
    with pytest.raises(UnsupportedOption, match=r"inputs_at=\['#1'\]: the tensor is a constant"):
        otp.convert(net.build(), inputs_at=["#1"])


def test_ambiguous_tensor_name_needs_an_index() -> None:
    with pytest.raises(UnsupportedOption, match=r"2 tensors have this name; select one by its index: #2, #3"):
        otp.convert(chain(repeated=True), outputs=["a"])
    assert otp.convert(chain(repeated=True), outputs=["#3"], verify=True).report.operators == {"EXP": 1, "NEG": 1}


def test_state_writer_of_graph_inputs_is_in_every_submodel() -> None:
    model, spec = VariableNet(), tensor(2, 3)
    state = model.variable(spec, np.zeros((2, 3)))
    total = model.call("ADD", [model.read(state, spec), spec], spec)
    state.assign(model.input(spec))
    model.output(model.call("NEG", [total], spec))
    data = model.build()
    submodel = otp.convert(data, outputs=[f"#{int(total)}"])
    assert interface(submodel)[0] == ["x0", "x1", "state"]
    assert verify(data, submodel.proto).ok


def test_submodel_keeps_the_writer_of_a_write_only_state() -> None:
    model, spec = VariableNet(), tensor(2, 3)
    state, x = model.variable(spec, np.zeros((2, 3))), model.input(spec)
    state.assign(x)
    total = model.call("NEG", [x], spec)
    model.output(model.call("ABS", [total], spec))
    data = model.build()
    submodel = otp.convert(data, outputs=[f"#{int(total)}"])
    assert submodel.report.states == otp.convert(data).report.states
    assert submodel.report.states


def test_submodel_keeps_a_state_writer_of_its_values() -> None:
    model, spec = VariableNet(), tensor(2, 3)
    state, x = model.variable(spec, np.zeros((2, 3))), model.input(spec)
    total = model.call("NEG", [x], spec)
    state.assign(total)
    model.output(model.call("ABS", [total], spec))
    data = model.build()
    submodel = otp.convert(data, outputs=[f"#{int(total)}"])
    assert submodel.report.states
    assert submodel.report.states == otp.convert(data).report.states


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (["p,q"], ["p,q"]),
        (["p,q,r"], ["p,q", "r"]),
        (["r,p,q"], ["r", "p,q"]),
        ([",r,"], ["r"]),
        (["r", "p,q"], ["r", "p,q"]),
    ],
)
def test_names_with_commas_can_be_pasted(outputs: list[str], expected: list[str]) -> None:
    model = ModelBuilder()
    g = model.main
    x, comma_named, r = g.input("x", (2, 3)), g.tensor("p,q", (2, 3)), g.tensor("r", (2, 3))
    g.operator("ABS", [x], [comma_named])
    g.operator("NEG", [comma_named], [r])
    g.output(r)
    assert interface(otp.convert(model.build(), outputs=outputs))[1] == expected


def test_model_without_operators_is_refused_without_mention_of_options() -> None:
    with pytest.raises(otp.ConversionError) as caught:
        otp.convert(ModelBuilder().build())
    (problem,) = caught.value.problems
    assert problem.reason == "the model has neither operators nor outputs"
    assert "--outputs" not in problem.hint
