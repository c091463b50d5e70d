"""Captured values become constants if they are computed from constants only."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from conformance.lstms import Lstm
from conformance.models import Net
from onnx_tflite_plugin import convert
from tests.helpers.passes_networks import agrees, apply, parse_model
from tests.rewrite.harness import Case, declines, graph, rule_test

SCAN_MODEL = """(float[2,3] s, float[5,3] x) => (float[2,3] last, float[5,2,3] all) {{
    {before}
    last, all = Scan <num_scan_inputs = 1, body = step (float[2,3] h, float[3] r) => (float[2,3] n, float[2,3] o) {{
        sum = Add (h, r)
        n = Mul (sum, scaled)
        o = Identity (n)
    }}> (s, x)
}}"""
CONSTANTS = {"c": np.array([2, 5, 7], np.int32), "axes": np.array([0], np.int64)}

test_captured_constants_are_folded = rule_test(
    "fold_captures",
    Case(
        "two nodes from constants",
        graph(SCAN_MODEL.format(before="f = Cast <to = 1> (c) scaled = Unsqueeze (f, axes)"), **CONSTANTS),
        nodes={"Cast": 0, "Unsqueeze": 0, "Scan": 1},
    ),
    declines("a node of an input", graph(SCAN_MODEL.format(before="scaled = Neg (s)")), "not a constant"),
    declines(
        "random numbers", graph(SCAN_MODEL.format(before="scaled = RandomNormal <shape = [2, 3]> ()")), "not a constant"
    ),
)  # fmt: skip


def test_captures_after_thousands_of_nodes_are_declined() -> None:
    chain = " ".join(f"v{k + 1} = Neg (v{k})" for k in range(3000))
    model = parse_model(SCAN_MODEL.format(before=f"v0 = Neg (s) {chain} scaled = Neg (v3000)"), 18)
    assert apply("fold_captures", model) == 0


@pytest.mark.parametrize("opset", [13, 18, 21])
def test_dequantized_captures_are_folded_at_every_opset(opset: int) -> None:
    text = SCAN_MODEL.format(before="scaled = DequantizeLinear <axis = 0> (q, scales, zero_points)")
    model = parse_model(
        text,
        opset,
        q=np.array([-7, 3, 11], np.int8),
        scales=np.array([0.5, 0.25, 2], np.float32),
        zero_points=np.array([1, 0, -3], np.int8),
    )
    assert agrees("fold_captures", model)
    assert apply("fold_captures", model) == 0
    arrays = [value.const_value.numpy() for value in model.graph.initializers.values() if value.const_value is not None]
    assert [-4.0, 0.75, 28.0] in [array.tolist() for array in arrays]


@pytest.mark.parametrize("target", ["openvino", "portable"])
def test_bodies_of_converted_models_capture_initializers_only(target: str) -> None:
    net = Net()
    Lstm(options=(("cell_clip", 0.31),)).build(net)
    model = convert(net.build(), target=target, unroll=1).model
    bodies = {node.op_type for node in model.graph.all_nodes()} & {"Scan"}
    captured = [
        value
        for node in model.graph.all_nodes()
        for value in node.inputs
        if value is not None
        and (producer_node := value.producer()) is not None
        and producer_node.graph is not node.graph
    ]
    assert bodies == {"Scan"}
    assert captured == []
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
