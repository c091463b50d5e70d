"""Verdicts: agrees, differs, inconclusive; a differing model is not written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.page.measurements import measure_conversion
from onnx_tflite_plugin.verify import Comparison, Verification, verify
from tests.helpers.command import Run

RIGHT, WRONG = Comparison("y", "range", 0.0, 0.0, 1e-3), Comparison("z", "range", 1.0, 1.0, 1e-3)


def noisy() -> bytes:
    """Return a model that adds random numbers and applies TANH."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (7,))
    noise, total, y = (g.tensor(name, (7,)) for name in ("noise", "total", "y"))
    g.operator("RANDOM_UNIFORM", [g.constant("shape", np.array([7], np.int32))], [noise])
    g.operator("ADD", [x, noise], [total])
    g.operator("TANH", [total], [y])
    g.output(y)
    return model.build()


def replace_tanh(proto: ModelProto) -> ModelProto:
    for node in proto.graph.node:
        node.op_type = {"Tanh": "Sigmoid"}.get(node.op_type, node.op_type)
    return proto


@pytest.mark.parametrize(
    ("comparisons", "reasons", "verdict"),
    [
        ((RIGHT,), (), "agrees"),
        ((RIGHT,), ("no kernel",), "inconclusive"),
        ((), ("no kernel",), "inconclusive"),
        ((RIGHT, WRONG), (), "differs"),
        ((RIGHT, WRONG), ("no kernel",), "differs"),
    ],
)
def test_differs_beats_inconclusive_and_inconclusive_beats_agrees(
    comparisons: tuple[Comparison, ...], reasons: tuple[str, ...], verdict: str
) -> None:
    verification = Verification(comparisons, ("builtin",), 3, reasons=reasons)
    assert verification.verdict == verdict
    assert verification.ok is (verdict == "agrees")
    accepted = Verification(comparisons, ("builtin",), 3, reasons=reasons, partial=True)
    assert accepted.ok is (verdict != "differs")
    start = {"agrees": "outputs", "differs": "NOT within", "inconclusive": "inconclusive: no kernel"}[verdict]
    assert verification.text.startswith(start)


def test_random_numbers_make_the_verdict_inconclusive() -> None:
    verification = verify(noisy(), otp.convert(noisy()))
    assert verification.verdict == "inconclusive"
    assert "the model draws random numbers" in verification.text
    assert [comparison.name for comparison in verification.comparisons] == ["y"]


def test_wrong_operator_in_a_model_with_random_numbers_differs() -> None:
    assert verify(noisy(), replace_tanh(otp.convert(noisy()).proto)).verdict == "differs"


def logarithm_of_zero() -> bytes:
    """Return a model that takes the logarithm of a product with 0."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (3,))
    zero, y = (g.tensor(name, (3,)) for name in ("zero", "y"))
    g.operator("MUL", [x, g.constant("factor", np.zeros(3, np.float32))], [zero])
    g.operator("LOG", [zero], [y])
    g.output(y)
    return model.build()


def test_infinity_in_one_runtime_only_is_not_verified() -> None:
    onnx = otp.convert(logarithm_of_zero(), optimize="none").proto
    (factor,) = (item for item in onnx.graph.initializer if not np.any(numpy_helper.to_array(item)))
    factor.CopyFrom(numpy_helper.from_array(np.full(3, 1e-12, np.float32), factor.name))
    verification = verify(logarithm_of_zero(), onnx)
    assert verification.verdict == "inconclusive", verification.text
    assert "at different positions" in verification.text


def test_command_writes_an_inconclusive_model_and_exits_with_4(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "noisy.tflite"
    path.write_bytes(noisy())
    outcome = run("convert", path, "--verify")
    assert outcome.code == 4
    assert path.with_suffix(".onnx").exists()
    assert "inconclusive" in outcome.out
    assert "verified" not in outcome.out
    assert run("convert", path, "--verify=partial").code == 0
    checked = run("verify", path, path.with_suffix(".onnx"), "--json")
    assert checked.code == 4
    result = json.loads(checked.out)
    assert (result["ok"], result["verdict"], len(result["reasons"])) == (False, "inconclusive", 1)
    assert run("verify", path, path.with_suffix(".onnx"), "--partial").code == 0


def test_folder_summary_names_inconclusive_models(run: Run, tmp_path: Path) -> None:
    (tmp_path / "noisy.tflite").write_bytes(noisy())
    outcome = run("convert", tmp_path, tmp_path / "out", "--verify")
    assert outcome.code == 4
    assert "0 verified against LiteRT, 1 inconclusive: noisy.tflite" in " ".join(outcome.out.split())


def test_report_has_the_verdict_of_verify(run: Run, tmp_path: Path) -> None:
    onnx = tmp_path / "noisy.onnx"
    otp.convert(noisy()).save(onnx)
    (tmp_path / "noisy.tflite").write_bytes(noisy())
    measured = measure_conversion(noisy(), otp.convert(noisy()).proto, 2)
    assert measured.verdict.startswith("inconclusive: the model draws random numbers")
    assert not measured.differs
    assert measured.seconds
    outcome = run("report", tmp_path / "noisy.tflite", onnx, tmp_path / "page.html")
    assert outcome.code == 4
    assert "inconclusive" in outcome.out
