"""Arithmetic with constants is folded into weights, or the report says why not."""

from __future__ import annotations

import pytest

from conformance.cases.fusions import arithmetic as patterns
from conformance.models import Net
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.report import Report

MULTIPLY = [("MUL", ("C",))]
NODES = {"CONV_2D": "Conv", "DEPTHWISE_CONV_2D": "Conv", "TRANSPOSE_CONV": "ConvTranspose", "FULLY_CONNECTED": "Gemm"}
FOLDED = [(op, name) for op in NODES for name in patterns.FOLDED if op != "FULLY_CONNECTED" or "rank 4" not in name]


def report(build: patterns.BuildFunction) -> Report:
    model = Net()
    build(model)
    return convert(model.build(), host=Host(packs="builtin")).report


@pytest.mark.parametrize(("op", "name"), FOLDED, ids=[f"{op}-{name}" for op, name in FOLDED])
def test_arithmetic_is_folded_into_weights(op: str, name: str) -> None:
    outcome = report(patterns.layer_then_steps(op, patterns.FOLDED[name]))
    assert outcome.fused == {f"{op}_ARITHMETIC": 1}
    assert not {"Mul", "Add", "Sub"} & outcome.nodes.keys()
    assert outcome.nodes[NODES[op]] == 1


@pytest.mark.parametrize("name", patterns.NOT_FOLDED)
def test_arithmetic_that_weights_cannot_express_is_kept(name: str) -> None:
    last_step = patterns.NOT_FOLDED[name][-1]
    outcome = report(patterns.layer_then_steps("CONV_2D", patterns.NOT_FOLDED[name]))
    assert {"MUL": "Mul", "ADD": "Add", "SUB": "Sub"}[
        last_step[1] if last_step[0] == "first" else last_step[0]
    ] in outcome.nodes


def test_longest_foldable_run_is_folded() -> None:
    outcome = report(patterns.layer_then_steps("CONV_2D", [*MULTIPLY, ("ADD", ("C",)), *MULTIPLY]))
    assert outcome.fused == {"CONV_2D_ARITHMETIC": 1}
    assert outcome.nodes == {"Reshape": 1, "Transpose": 1, "Conv": 1, "Mul": 1}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_integer_model_is_declined_because_it_rounds_in_between(dtype: str) -> None:
    outcome = report(patterns.quantized_model(dtype))
    assert not outcome.fused
    assert any(
        f"the input is {dtype}, so results are rounded between the operators" in reason
        for reason in outcome.fusions_declined
    )


def test_activation_in_between_is_the_decline_reason() -> None:
    outcome = report(patterns.layer_then_steps("CONV_2D", [("ADD", ("C",))], activation="RELU"))
    assert [reason.rpartition(": ")[2] for reason in outcome.fusions_declined] == [
        "an activation between the operators cannot be merged"
    ]


def test_all_fused_operators_count_as_converted() -> None:
    outcome = report(patterns.layer_then_steps("CONV_2D", [*MULTIPLY, ("ADD", ("C",))]))
    assert outcome.operators == {"ADD": 1, "CONV_2D": 1, "MUL": 1}
