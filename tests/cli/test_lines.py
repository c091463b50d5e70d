"""Formatting of single lines and table cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.cli import handlers, inspect, report
from onnx_tflite_plugin.cli.output import _json_value, format_counts, format_seconds, format_size, limit_lines, shorten


@pytest.mark.parametrize(("exact", "when"), [(True, "always"), (False, "with --optimize speed")])
def test_inexact_fusion_is_listed_with_its_condition(exact: bool, when: str) -> None:
    assert handlers._condition({"exact": exact}) == when


def test_subgraph_line_has_operator_count_and_calls() -> None:
    graph = {"index": 2, "name": "body", "operators": 1, "called": True}
    assert inspect._format_subgraph(graph) == "2 'body': 1 operator"
    uncalled = {**graph, "operators": 3, "called": False, "signatures": []}
    assert inspect._format_subgraph(uncalled) == "2 'body': 3 operators, never called"
    assert (
        inspect._format_subgraph({**uncalled, "signatures": ["a", "b"]}) == "2 'body': 3 operators, signature 'a', 'b'"
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (999_400, "999 kB"),
        (999_500, "1 MB"),
        (3_440_000, "3.44 MB"),
        (999_500_000, "1 GB"),
        (2_500_000_000, "2.5 GB"),
    ],
)
def test_file_sizes_have_three_digits_and_a_unit(count: int, text: str) -> None:
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.126, "0.13 s"), (9.94, "9.94 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (185, "3 min 5 s")],
)
def test_seconds_have_at_most_three_digits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("acme: no cases", True), ("pack 'acme' is broken", True), ("acme-extra: no cases", False), ("not acme2", False)],
)
def test_warning_belongs_to_the_pack_with_the_whole_name(text: str, expected: bool) -> None:
    assert handlers._is_about(text, "acme") is expected


def test_long_names_and_lists_are_shortened() -> None:
    assert (shorten("abcdefg", 7), shorten("abcdefgh", 7), shorten("abcdefgh", 6)) == ("abcdefg", "abc…fgh", "ab…fgh")
    assert shorten("model_1/batch_normalization/add;model_1/re_lu_3/Relu", 30) == "model_1/…/re_lu_3/Relu"
    assert shorten("model_1/batch_normalization/add_model_123/re", 30) == "model_1/…_model_123/re"
    assert limit_lines(["a", "b", "c"], 2) == ["a", "b", "c"]
    assert limit_lines(["a", "b", "c", "d"], 2) == ["a", "b", "… and 2 more (--json shows all)"]
    assert format_counts([("A", 3), ("B", 2), ("C", 1)], 2) == "3 A, 2 B, 1 C"
    assert format_counts([("A", 3), ("B", 2), ("C", 1), ("D", 1)], 2) == "3 A, 2 B, … and 2 more kinds"
    assert (plural(1, "node"), plural(0, "node"), plural(2, "node")) == ("1 node", "0 nodes", "2 nodes")


def test_json_converts_numpy_values_and_uses_null_for_nan() -> None:
    values = {3: np.float32(0.5), "a": (np.inf, float("nan"), True), "b": np.array([1, 2]), "c": Path("x"), "d": None}
    assert _json_value(values) == {"3": 0.5, "a": [None, None, True], "b": [1, 2], "c": "x", "d": None}


def test_page_reuses_the_given_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {}
    monkeypatch.setattr(
        "onnx_tflite_plugin.page.content.collect_page_data", lambda *models, **keywords: options.update(keywords)
    )
    monkeypatch.setattr("onnx_tflite_plugin.page.html.html", lambda page: "<é>")
    shared_report: Any = object()
    report.write_page(tmp_path / "p.html", b"", shared_report, "title", shared_report, click.echo)
    assert (options["report"], options["progress"]) == (shared_report, click.echo)
    assert (tmp_path / "p.html").read_bytes() == "<é>".encode()
