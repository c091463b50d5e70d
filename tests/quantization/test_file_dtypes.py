"""Tensors kept in the file's dtype do not change results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.runner import run_case
from conformance.variants import Variant
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.quantization import shifted_storage
from onnx_tflite_plugin.source.model import Tensor
from onnx_tflite_plugin.verify import verify

SHAPE = (2, 3)
Q = quant(0.05, 3)


def simplest_int8_cases() -> list[Case]:
    """Return the simplest case of each operator that supports int8."""
    simplest: dict[str, Case] = {}
    for case in sorted(builtin_cases(), key=lambda case: len(case.name)):
        if case.dtype.startswith("int8") and not (case.refusal or case.known_failure or case.kernel_refusal):
            simplest.setdefault(case.op, case)
    return [*simplest.values()]


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(packs="builtin")


@pytest.mark.parametrize("side", ["inputs", "outputs"])
@pytest.mark.parametrize("case", simplest_int8_cases(), ids=lambda case: case.id)
def test_inputs_and_outputs_may_differ_in_storage_dtype(
    case: Case, side: str, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tensors_on_side(model: BoundModel, *_: Any) -> set[Tensor]:
        operators = (bound.op for bound in model.operators() if bound.op.code == case.op)
        return {t for op in operators for t in (op.inputs if side == "inputs" else op.outputs) if t is not None}

    monkeypatch.setattr(shifted_storage, "_interface_only_tensors", tensors_on_side)
    result = run_case(case, host, [Variant("onnxruntime", None, "least")])
    assert result.ok, result.text


@pytest.mark.parametrize("code", ["HARD_SWISH", "QUANTIZE", "PAD"])
@pytest.mark.parametrize("first", [True, False])
def test_operator_between_subgraph_boundary_and_weighted_operator(code: str, first: bool) -> None:
    """The operator is a table, a rescaling, or a constant at the zero point."""
    model = ModelBuilder()
    for name in ("then", "else"):
        inner = model.subgraph(name)
        w = inner.constant("w", np.arange(-4, 5, dtype=np.int8).reshape(3, 3), quantization=quant(0.1))
        pads = [inner.constant("pads", np.zeros((2, 2), np.int32))] if code == "PAD" else []
        operators = (code, lambda x, pads=pads: [x, *pads]), ("FULLY_CONNECTED", lambda x, w=w: [x, w, None])
        x = inner.input("x", SHAPE, "int8", quantization=Q)
        for op, operands in operators if first else reversed(operators):
            y = inner.tensor(op, SHAPE, "int8", quantization=quant(0.07, -5) if op == "QUANTIZE" else Q)
            inner.operator(op, operands(x), [y])
            x = y
        inner.output(x)
    g = model.main
    which, x = g.input("which", (), "bool"), g.input("x", SHAPE, "int8", quantization=Q)
    y = g.tensor("y", SHAPE, "int8", quantization=quant(0.07, -5) if code == "QUANTIZE" and not first else Q)
    g.operator("IF", [which, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
    g.output(y)
    data = model.build()
    verification = verify(data, otp.convert(data).proto)
    assert verification.ok, verification.text
