"""Converted models with equal graphs and operator versions run once."""

from __future__ import annotations

import onnx
import onnx.helper as oh
import pytest

from conformance.equivalence import equivalence_key
from conformance.models import tensor, unary
from conformance.runner import OnnxRuntime, run_case
from onnx_tflite_plugin.host import Host


def model(op: str, opset: int, *, inside: str = "", ir_version: int = 10, **attributes: object) -> onnx.ModelProto:
    """Return a model with one node, or with an If whose branches have it."""

    def graph(name: str, node: onnx.NodeProto, inputs: list[onnx.ValueInfoProto]) -> onnx.GraphProto:
        y = oh.make_tensor_value_info(f"{name}_y", onnx.TensorProto.FLOAT, [5, 3])
        return oh.make_graph([node], name, inputs, [y])

    x = oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [5, 3])
    main = graph("main", oh.make_node(op, ["x"], ["main_y"], **attributes), [x])
    if inside:
        yes = oh.make_tensor_value_info("yes", onnx.TensorProto.BOOL, [])
        branches = {
            side: graph(side, oh.make_node(op, ["x"], [f"{side}_y"], **attributes), [])
            for side in ("then_branch", "else_branch")
        }
        main = graph("main", oh.make_node("If", ["yes"], ["main_y"], **branches), [x, yes])
    proto = oh.make_model(main, opset_imports=[oh.make_opsetid("", opset)])
    proto.ir_version = ir_version
    return proto


def test_equivalence_key_ignores_opsets_with_equal_operators() -> None:
    """Relu is unchanged from opset 14 to 20; If changes in opset 19."""
    assert equivalence_key(model("Relu", 18, ir_version=8)) == equivalence_key(model("Relu", 20))
    assert equivalence_key(model("Relu", 16, inside="If")) == equivalence_key(model("Relu", 18, inside="If"))
    assert equivalence_key(model("Relu", 18, inside="If")) != equivalence_key(model("Relu", 20, inside="If"))


@pytest.mark.parametrize("inside", ["", "If"])
def test_operator_version_changes_the_meaning(inside: str) -> None:
    """Relu changes in opset 14, also in an inner graph; If does not."""
    assert equivalence_key(model("Relu", 13, inside=inside)) != equivalence_key(model("Relu", 14, inside=inside))


def test_attribute_changes_the_meaning() -> None:
    assert equivalence_key(model("Elu", 18, alpha=1.5)) != equivalence_key(model("Elu", 18, alpha=1.75))


def test_variants_of_equal_meaning_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """NEG becomes the same node for both targets, although their opsets differ."""
    opened = []
    open_session = OnnxRuntime.__init__

    def count_calls(session: OnnxRuntime, proto: onnx.ModelProto) -> None:
        opened.append(proto)
        open_session(session, proto)

    monkeypatch.setattr(OnnxRuntime, "__init__", count_calls)
    result = run_case(unary("NEG", "once", tensor(5, 7)), Host(packs="builtin"))
    assert (result.status, result.variants, len(opened)) == ("passed", 2, 1)
