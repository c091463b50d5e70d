"""Tests of attribution: stored shapes compared with those that LiteRT computes."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.diagnosis import litert as diagnosis
from onnx_tflite_plugin.diagnosis.litert import check_with_litert, probe_file, shape_contradiction
from onnx_tflite_plugin.diagnosis.probe import probe
from onnx_tflite_plugin.errors import AttributedProblem, Contradiction, ConversionError, InvalidModel, Problem
from tests.helpers.verify_graphs import model as build_model
from tests.helpers.verify_graphs import slot, subgraph

CONVERTER_FAULT = AttributedProblem("op 3", "why", "report it", to_converter=True)


def divide(size: int = 3, stored: int = 3) -> bytes:
    """Return an integer division; LiteRT refuses a divisor of 0."""
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (size,), "int32"), g.tensor("y", (stored,), "int32")
    g.operator("DIV", [g.constant("dividend", np.ones(1, np.int32)), x], [y])
    g.output(y)
    return model.build()


def divide_by_zero() -> bytes:
    """Return a division by 0 for every input."""
    model = ModelBuilder()
    g = model.main
    x, zero, y = g.input("x", (3,), "int32"), g.tensor("zero", (3,), "int32"), g.tensor("y", (3,), "int32")
    g.operator("SUB", [x, x], [zero])
    g.operator("DIV", [x, zero], [y])
    g.output(y)
    return model.build()


@pytest.mark.parametrize(("batch", "attributed"), [(None, False), (1, True)])
def test_static_dimensions_may_contradict_litert(batch: int | None, attributed: bool) -> None:
    graph = subgraph(inputs=[slot(0)], outputs=[slot(1, shape=(batch, 4))])
    assert (shape_contradiction(build_model(graph), {"shapes": {"1": [3, 4]}}) is not None) is attributed


def test_unknown_shapes_are_no_contradiction() -> None:
    graph = subgraph(inputs=[slot(0)], outputs=[slot(1, shape=()), slot(2, shape=(5, 7))])
    assert shape_contradiction(build_model(graph), {}) is None
    assert shape_contradiction(build_model(graph), {"shapes": {"1": [3], "2": [5, 7]}}) is None
    reported = shape_contradiction(build_model(graph), {"shapes": {"2": [5, 11]}})
    assert reported is not None
    (problem,) = reported.problems
    assert isinstance(problem, Contradiction)
    assert problem.where == "subgraphs[0].tensors[2].shape"
    assert problem.reason == "tensor 2 't2' has shape [5, 7], but LiteRT computes [5, 11]"


@pytest.mark.parametrize(
    "problems",
    [[], [Problem("op 3", "why")], [AttributedProblem("op 3", "why", "", to_converter=False)]],
    ids=["none", "unattributed", "file"],
)
def test_litert_is_probed_only_for_failures_of_the_converter(
    monkeypatch: pytest.MonkeyPatch, problems: list[Problem]
) -> None:
    monkeypatch.setattr(diagnosis, "probe_file", pytest.fail)
    error = ConversionError("why", problems)
    assert check_with_litert(error, b"") is error


def test_failure_is_attributed_to_file_that_litert_contradicts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = ConversionError("why", [Problem("op 1", "another"), CONVERTER_FAULT])
    monkeypatch.setattr(diagnosis, "probe_file", lambda source: {"refused": "it is odd"})
    reported = check_with_litert(error, divide())
    assert isinstance(reported, InvalidModel)
    assert [(problem.where, problem.reason) for problem in reported.problems] == [("op 3", "it is odd")]
    monkeypatch.setattr(diagnosis, "probe_file", lambda source: {"shapes": {"1": [5]}})
    reported = check_with_litert(error, divide())
    assert isinstance(reported, InvalidModel)
    assert [problem.where for problem in reported.problems] == ["subgraphs[0].tensors[1].shape"]
    for empty_result in ({}, {"shapes": {"1": [3]}}):
        monkeypatch.setattr(diagnosis, "probe_file", lambda source, result=empty_result: result)
        assert check_with_litert(error, divide()) is error


# --- the probe of LiteRT ----------------------------------------------------------------------

SHAPES = {"shapes": {"0": [3]}}


@pytest.mark.parametrize(
    ("code", "output", "reported"),
    [
        (0, json.dumps(SHAPES), SHAPES),
        (0, json.dumps({"refused": "it is odd"}), {"refused": "it is odd"}),
        (0, json.dumps({"refused": "Encountered unresolved custom op: X"}), {}),
        (1, "", {}),
        (-signal.SIGSEGV, json.dumps(SHAPES), {"refused": "LiteRT ended with signal 11"}),
        (-signal.SIGKILL, "", {}),
        (-signal.SIGXCPU, "", {}),
    ],
)
def test_file_that_crashes_litert_is_invalid_unless_limits_ended_it(
    monkeypatch: pytest.MonkeyPatch, code: int, output: str, reported: dict[str, Any]
) -> None:
    probed: list[bytes] = []

    def run(command: list[str], **options: Any) -> Any:
        probed.append(Path(command[-1]).read_bytes())
        return subprocess.CompletedProcess(command, code, output.encode(), b"")

    monkeypatch.setattr(subprocess, "run", run)
    assert probe_file(b"content") == reported
    assert probed == [b"content"]


def test_failed_probe_attributes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def time_out(command: list[str], **options: Any) -> Any:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", time_out)
    (path := tmp_path / "m.tflite").write_bytes(b"12345")
    assert probe_file(b"12345") == probe_file(path) == {}
    monkeypatch.setattr(diagnosis, "_run_probe", lambda path: {"refused": path.name})
    monkeypatch.setattr(diagnosis, "MAX_FILE_BYTES", 5)
    assert probe_file(path) == {"refused": "m.tflite"}
    assert probe_file(b"12345") == {"refused": "model.tflite"}
    assert probe_file(tmp_path / "none.tflite") == probe_file(tmp_path) == probe_file(b"123456") == {}
    path.write_bytes(b"123456")
    assert probe_file(str(path)) == {}
    monkeypatch.setattr(diagnosis, "find_spec", lambda name: None)
    assert probe_file(b"1") == {}


def test_model_that_fails_for_zeros_is_run_with_ones(tmp_path: Path) -> None:
    (path := tmp_path / "m.tflite").write_bytes(divide(5, 5))
    assert probe(str(path)) == probe(divide(5, 5)) == {"shapes": {"0": [5], "1": [5], "2": [1]}}
    assert probe(divide(5, 3))["shapes"]["1"] == [5]
    assert "refused" in probe(b"nothing")
    assert "refused" in probe(divide_by_zero())
