"""Test comparison of long models in segments: same verdict with bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.verify import LiteRT, verify
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.submodels import comparer
from onnx_tflite_plugin.verify.submodels.points import CutPoints
from tests.helpers.control_flow import add_branches

SHAPE = (2, 3, 7)
CODES = ("NEG", "EXP", "ABS", "TANH", "LOGISTIC")


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit segments to one submodel."""
    monkeypatch.setattr(comparer, "_SEGMENT_BYTES", 1)


def chain() -> bytes:
    """Return a chain of operators whose last one also reads the first result."""
    net = Net()
    x = first_result = net.input(tensor(*SHAPE))
    for k, code in enumerate(CODES):
        x = net.call(code, [x], tensor(*SHAPE))
        first_result = x if k == 0 else first_result
    net.output(net.call("SUB", [x, first_result], tensor(*SHAPE)))
    return net.build()


def replace_operator(proto: onnx.ModelProto, op_type: str, wrong_op_type: str) -> onnx.ModelProto:
    (node,) = (node for node in proto.graph.node if node.op_type == op_type)
    node.op_type = wrong_op_type
    return proto


@pytest.mark.usefixtures("short_segments")
def test_compares_every_operator_of_a_long_model() -> None:
    data = chain()
    stages: list[str] = []
    verification = verify(data, otp.convert(data), progress=stages.append)
    assert verification.verdict == "agrees", verification.text
    assert verification.operators == len(CODES) + 1
    assert [stage for stage in stages if stage.startswith("operators ")] == [
        f"operators {k} to {k} on the same inputs" for k in range(len(CODES) + 1)
    ]


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize(("op_type", "wrong_op_type", "code"), [("Exp", "Abs", "EXP"), ("Sub", "Add", "SUB")])
def test_finds_a_wrong_operator_in_any_segment(op_type: str, wrong_op_type: str, code: str) -> None:
    data = chain()
    verification = verify(data, replace_operator(otp.convert(data).proto, op_type, wrong_op_type))
    assert verification.verdict == "differs"
    assert verification.diverging is not None
    assert verification.diverging.operator.code == code


@pytest.mark.usefixtures("short_segments")
def test_compares_a_stateful_model_as_a_whole() -> None:
    model = ModelBuilder()
    g = model.main
    x, state = g.input("x", (1, 5)), g.tensor("state", (1, 5), variable=True)
    total, y = g.tensor("total", (1, 5)), g.tensor("y", (1, 5))
    g.operator("ADD", [x, state], [total])
    g.operator("ABS", [total], [y])
    g.output(y)
    data = model.build()
    stages: list[str] = []
    assert verify(data, otp.convert(data), progress=stages.append).ok
    assert not any(stage.startswith("operators ") for stage in stages)


def test_segment_respects_the_byte_limit() -> None:
    data = chain()
    entry = structure.entry(structure.read(data))
    session = otp.verify.OnnxRuntime(otp.convert(data).proto)  # type: ignore[attr-defined]
    size = 4 * int(np.prod(SHAPE))
    segments = CutPoints(entry, session).segments(4 * size, {})
    assert [[submodel.operators[0].code for submodel in segment] for segment in segments] == [
        ["NEG", "EXP", "ABS"],
        ["TANH", "LOGISTIC", "SUB"],
    ]
    actual = {tensor.index: (8, *SHAPE) for tensor in entry.subgraph.tensors}
    assert len(CutPoints(entry, session).segments(4 * size, actual)) == len(CODES) + 1


def test_selects_one_run_of_each_shape_and_condition() -> None:
    numbers, others, true, false = np.zeros(3), np.ones(3), np.array([True]), np.array([False])
    runs = [[numbers, true], [others, true], [others, false], [np.zeros(5), false]]
    assert comparer.distinct_runs(runs) == [runs[0], runs[2], runs[3]]


# --- the file of a segment --------------------------------------------------------------------


def branches() -> bytes:
    """Return a model with a branch and a downstream operator."""
    model = ModelBuilder()
    add_branches(model)
    g = model.main
    x, condition = g.input("x", (1, 5)), g.input("c", (), "bool")
    y, z = g.tensor("y", (1, 5)), g.tensor("z", (1, 5))
    g.operator("IF", [condition, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
    g.operator("ABS", [y], [z])
    g.output(z)
    return model.build()


def test_submodel_contains_only_called_subgraphs() -> None:
    data = branches()
    graph = structure.read(data).main
    branch, last = graph.operators
    writer = SubmodelWriter(data, graph)
    x, condition = (tensor.index for tensor in graph.inputs)
    y, z = (op.outputs[0].index for op in (branch, last) if op.outputs[0] is not None)
    last_only = writer.write([last], [], [z], [y])
    assert [len(subgraph.operators) for subgraph in structure.read(last_only).subgraphs] == [1, 0, 0]
    with_branch = writer.write([branch], [x, condition], [y])
    (result,) = LiteRT(with_branch, "builtin").run([np.full((1, 5), 2, np.float32), np.array(False)])
    assert result.tolist() == [[-2.0] * 5]


# --- the last bits of operands ----------------------------------------------------------------


def spectrum() -> bytes:
    """Return a model with a product whose weights cancel out."""
    net = Net()
    x = net.input(tensor(3, 512))
    weights: Any = np.ones((7, 512), np.float32)
    weights[:, 1::2] = -1
    net.output(net.call("FULLY_CONNECTED", [x, constant(weights)], tensor(3, 7)))
    return net.build()


def test_tolerates_errors_explained_by_operand_rounding() -> None:
    data = spectrum()
    proto = otp.convert(data).proto
    constant_input = {"x0": np.full((3, 512), 1e3 / 3, np.float32)}
    assert verify(data, proto, inputs=constant_input).ok


def test_own_state_of_an_operator_is_not_an_operand() -> None:
    model = ModelBuilder()
    g = model.main
    x, state, y = g.input("x", (1, 5)), g.tensor("state", (1, 7), variable=True), g.tensor("y", (1, 7))
    weights, recurrent = g.constant("w", np.ones((7, 5), np.float32)), g.constant("r", np.full((7, 7), 0.1, np.float32))
    bias = g.constant("b", np.zeros(7, np.float32))
    g.operator("RNN", [x, weights, recurrent, bias, state], [y], {"fused_activation_function": "RELU"})
    g.output(y)
    data = model.build()
    verification = verify(data, otp.convert(data))
    assert verification.verdict == "agrees", verification.text
