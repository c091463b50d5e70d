"""Tests of runs in other runtimes, and of the table of results."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from tests.qa.runtimes.__main__ import Worker, format_results, run_matrix
from tests.qa.runtimes.lists import LISTS, missing_operators, read_list
from tests.qa.runtimes.models import Converted, Source, convert_for, find_error, find_sources
from tests.qa.runtimes.table import PAGE, RESULTS, format_table, insert_table

EXAMPLES = Path(__file__).parents[2] / "examples"
INT8, FLOAT = EXAMPLES / "digits_int8.tflite", EXAMPLES / "digits_float.tflite"


OTHER_TARGETS = ("generic", "portable", "openvino", "tvm", "qnn")
"""Targets other than the default."""


def convert_model(file: Path, target: str, folder: Path) -> Converted:
    return convert_for(source_of(file), target, folder / target)


@cache
def source_of(file: Path) -> Source:
    (source,) = find_sources([file])
    return source


@pytest.mark.int8_products
def test_examples_are_right_in_onnx_runtime_and_the_reference_evaluator(tmp_path: Path) -> None:
    """The evaluator lacks DequantizeLinear at the default target's opset."""
    results = run_matrix([INT8, FLOAT], [*OTHER_TARGETS, "onnxruntime"], [], tmp_path)
    assert {row["kind"] for row in results["rows"]} == {"int8", "float32"}
    assert not any(row["refused"] for row in results["rows"])
    outcomes = {(row["kind"], row["target"]): list(row["outcomes"].values()) for row in results["rows"]}
    first, second = outcomes.pop(("int8", "onnxruntime"))
    assert first == "right"
    assert "DequantizeLinear" in second
    assert outcomes.pop(("float32", "onnxruntime"))[0] == "right"
    assert outcomes == {(kind, target): ["right"] * 2 for kind in ("int8", "float32") for target in OTHER_TARGETS}


def test_wrong_results_are_reported(tmp_path: Path) -> None:
    model = convert_model(INT8, "generic", tmp_path)
    correct = list(model.source.results)
    assert find_error(model, correct) == ""
    assert model.source.growth[0] == pytest.approx(0.2375 / (1 / 256) / 4, rel=1e-3)  # one step of the logits
    for steps, message in ((15, ""), (16, "differs by 16, more than 15.2")):
        changed = np.where(correct[0] > 0, correct[0] - steps, correct[0] + steps).astype(correct[0].dtype)
        assert message in find_error(model, [changed, *correct[1:]])
    strict = replace(model, source=replace(model.source, growth=[0.0] * len(correct)))
    changed = np.where(correct[0] > 0, correct[0] - 3, correct[0] + 3).astype(correct[0].dtype)
    assert "differs by 3, more than 2" in find_error(strict, [changed, *correct[1:]])
    assert "shape" in find_error(model, [correct[0].reshape(-1), *correct[1:]])
    assert "results instead of" in find_error(model, [*correct, correct[0]])


def test_dropped_quantization_is_compared_with_another_runtime(tmp_path: Path) -> None:
    model = convert_model(INT8, "portable", tmp_path)
    assert model.is_unquantized
    floats = [np.linspace(0, 1, right.size, dtype=np.float32).reshape(right.shape) for right in model.source.results]
    assert find_error(model, floats) == "no other runtime computes it"
    assert find_error(model, floats, floats) == ""
    assert "differs by" in find_error(model, [floats[0] + np.float32(0.1), *floats[1:]], floats)


def test_crashed_runtime_is_restarted(tmp_path: Path) -> None:
    model = convert_model(FLOAT, "generic", tmp_path)
    worker = Worker("onnxruntime", sys.executable)
    try:
        assert worker.run(model.path, model.inputs, tmp_path / "y.npz") == ""
        assert worker._process is not None
        worker._process.kill()
        assert worker.run(model.path, model.inputs, tmp_path / "y.npz").startswith("crash")
        assert worker.run(model.path, model.inputs, tmp_path / "y.npz") == ""
        assert "missing.onnx" in worker.run(tmp_path / "missing.onnx", model.inputs, tmp_path / "y.npz")
    finally:
        worker.stop()


def test_table_counts_models_that_run_and_are_correct() -> None:
    rows = [
        {"model": model, "kind": kind, "target": target, "refused": refused, "outcomes": outcomes}
        for model, kind, target, refused, outcomes in (
            ("a", "int8", "generic", "", {"tract 1": "right"}),
            ("b", "float32", "generic", "", {"tract 1": "wrong: result 0 differs"}),
            ("c", "uint8", "generic", "", {"tract 1": "fails: no operator"}),
            ("a", "int8", "qnn", "no Scan", {}),
        )
    ]
    table = format_table({"date": "2026-01-02", "runtimes": ["tract 1"], "rows": rows})
    assert "with 3 models, 2 of them" in table
    assert table.splitlines()[-2:] == ["| converted | 3 | 0 |", "| tract 1 | 2 / 1 | 0 / 0 |"]
    page = "before\n<!-- runtimes: generated -->\nold\n<!-- runtimes: end -->\nafter\n"
    assert insert_table(page, "new") == page.replace("old", "new")


def test_documentation_has_the_table_of_the_committed_results() -> None:
    page = PAGE.read_text()
    assert insert_table(page, format_table(json.loads(RESULTS.read_text()))) == page


def test_results_are_one_line_per_model_and_target() -> None:
    results = {"date": "2026-01-02", "runtimes": ["a 1"], "rows": [{"model": "x"}, {"model": "y"}]}
    text = format_results(results)
    assert json.loads(text) == results
    assert text.count("\n") == 4


@pytest.mark.parametrize("name", LISTS)
def test_lists_name_operators_of_onnx_and_their_source(name: str) -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas()} | {"SimplifiedLayerNormalization"}
    listed = read_list(LISTS[name])
    assert len(listed) > 50
    assert {operator for operator in listed if not operator.startswith("com.microsoft.")} <= known
    assert "https://" in LISTS[name].read_text(encoding="utf-8").split("\n")[1]


def test_missing_operators_include_those_of_subgraphs() -> None:
    model = otp.convert(INT8).model
    op_types = {node.op_type for node in model.graph.all_nodes()}
    inner = op_types - {node.op_type for node in model.graph}
    assert inner
    assert missing_operators(model, frozenset(op_types)) == frozenset()
    assert missing_operators(model, frozenset(op_types - inner)) == inner


def test_portable_examples_use_only_listed_operators() -> None:
    for file in (INT8, FLOAT):
        model = otp.convert(file, target="portable").model
        assert {name: missing_operators(model, read_list(path)) for name, path in LISTS.items()} == dict.fromkeys(
            LISTS, frozenset()
        )
