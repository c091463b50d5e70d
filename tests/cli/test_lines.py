"""Single lines and cells of what commands print: what each says where something is missing, one or several."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from onnx_tflite_plugin.cli import convert, handlers, inspect, report
from onnx_tflite_plugin.cli.output import _plain, at_most, counted, plural, short, size
from onnx_tflite_plugin.guard import BUILTIN
from onnx_tflite_plugin.options import VerifyOptions

ROW = {"code": "ABS", "max_version": 2, "pack": BUILTIN, "layout": "Transparent", "quantization": "Raw", "error": ""}


@pytest.mark.parametrize(
    ("changes", "details", "packs", "cells"),
    [
        ({"summary": "Absolute value."}, False, False, ["ABS", 2, "Absolute value."]),
        ({"summary": ""}, True, True, ["ABS", 2, "built-in", "Transparent", "Raw"]),
        ({"pack": "a-pack", "error": "no kernel"}, False, True, ["ABS", "-", "a-pack", "does not serve: no kernel"]),
        ({"error": "no kernel"}, True, False, ["ABS", "-", "-", "does not serve: no kernel"]),
    ],
)
def test_a_handler_is_a_row_of_cells(
    changes: Mapping[str, Any], details: bool, packs: bool, cells: list[object]
) -> None:
    assert handlers._row({**ROW, **changes}, details, packs) == cells


@pytest.mark.parametrize(
    ("name", "value", "cell"),
    [
        ("wrong", [], "-"),
        ("wrong", ["a", "b"], "a; b"),
        ("overrides", [], "-"),
        ("overrides", ["A", "B"], "A, B"),
        ("handlers", 0, "-"),
        ("handlers", 7, 7),
    ],
)
def test_a_cell_of_a_pack_that_has_nothing_is_a_dash(name: str, value: object, cell: object) -> None:
    assert handlers._cell({name: value}, name) == cell


@pytest.mark.parametrize(("exact", "when"), [(True, "always"), (False, "with --optimize speed")])
def test_a_fusion_that_skips_a_rounding_runs_for_speed_alone(exact: bool, when: str) -> None:
    assert handlers._when({"exact": exact}) == when


@pytest.mark.parametrize(
    ("quantization", "said"),
    [
        (None, ""),
        ({"scale": (0.5,), "zero_point": (3,), "axis": 0}, "  scale 0.5, zero point 3"),
        ({"scale": (0.5, 0.25), "zero_point": (0, 0), "axis": 2}, "  2 scales along axis 2"),
        ({"scales": 7, "block_size": 32}, "  blocks of 32 share a scale"),
    ],
)
def test_a_tensor_is_told_with_what_its_integers_mean(quantization: Any, said: str) -> None:
    tensor = {"name": "x", "dtype": "int8", "shape": [2, None], "quantization": quantization}
    assert inspect._tensor(tensor) == f"x  int8 [2, ?]{said}"
    assert inspect._tensor({**tensor, "name": "", "shape": None}) == f"''  int8 of unknown rank{said}"


def test_subgraphs_signatures_and_operators_are_told() -> None:
    graph = {"index": 2, "name": "body", "operators": 1, "called": True}
    assert inspect._subgraph(graph) == "2 'body': 1 operator"
    assert inspect._subgraph({**graph, "operators": 3, "called": False}) == "2 'body': 3 operators, never called"
    signature = {"key": "serve", "subgraph": 0, "inputs": {"a": 0, "b": 1}, "outputs": {}}
    assert inspect._signature(signature) == "'serve': a, b → nothing"
    assert inspect._signature({**signature, "subgraph": 3, "inputs": {}}) == "'serve' of subgraph 3: nothing → nothing"
    row = {"code": "ABS", "count": 1, "versions": [1, 2], "first": "op 3", "called": True, "missing": "", **ROW}
    assert inspect._operator(row, False) == [1, "ABS", "1, 2", "built-in"]
    assert inspect._operator({**row, "called": False, "pack": "a-pack"}, True) == [
        1, "ABS (never called)", "1, 2", "a-pack", "Transparent", "Raw",
    ]  # fmt: skip
    assert inspect._operator({**row, "missing": "no kernel", "pack": "", "layout": ""}, True)[3:] == [
        "none",
        "-",
        "Raw",
    ]
    assert inspect._missing({**row, "missing": "no kernel"}) == "ABS (op 3): no kernel"
    assert inspect._missing({**row, "missing": "no kernel", "count": 2}) == "ABS (op 3, 2 in all): no kernel"


@pytest.mark.parametrize(
    ("count", "said"),
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
def test_sizes_have_three_digits_and_the_unit_that_fits(count: int, said: str) -> None:
    assert size(count) == said


def test_what_is_long_loses_its_middle_or_its_end_and_says_so() -> None:
    assert (short("abcdefg", 7), short("abcdefgh", 7), short("abcdefgh", 6)) == ("abcdefg", "abc…fgh", "ab…fgh")
    assert at_most(["a", "b", "c"], 2) == ["a", "b", "c"]
    assert at_most(["a", "b", "c", "d"], 2) == ["a", "b", "… and 2 more (--json shows all)"]
    assert counted([("A", 3), ("B", 2), ("C", 1)], 2) == "3 A, 2 B, 1 C"
    assert counted([("A", 3), ("B", 2), ("C", 1), ("D", 1)], 2) == "3 A, 2 B, … and 2 kinds more"
    assert (plural(1, "node"), plural(0, "node"), plural(2, "node")) == ("1 node", "0 nodes", "2 nodes")


def test_json_has_numbers_of_numpy_as_its_own_and_null_for_what_it_cannot_say() -> None:
    given = {3: np.float32(0.5), "a": (np.inf, float("nan"), True), "b": np.array([1, 2]), "c": Path("x"), "d": None}
    assert _plain(given) == {"3": 0.5, "a": [None, None, True], "b": [1, 2], "c": "x", "d": None}


def test_a_partial_comparison_is_one_also_where_nothing_else_is_given() -> None:
    def asked(*options: str) -> bool | VerifyOptions:
        with convert.convert.make_context("convert", ["m.tflite", *options]) as context:
            return convert._verification(context, dict(context.params))

    assert asked("--verify=partial") == VerifyOptions(partial=True)
    assert asked("--runs", "2") == VerifyOptions(runs=2)
    assert asked("--verify") is True
    assert asked() is False


def test_a_page_is_written_with_the_report_that_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("onnx_tflite_plugin.page.gather.gather", lambda *models, **others: given.update(others))
    monkeypatch.setattr("onnx_tflite_plugin.page.html.html", lambda page: "<é>")
    held: Any = object()
    report.write_page(tmp_path / "p.html", b"", held, "title", held, click.echo)
    assert (given["report"], given["progress"]) == (held, click.echo)
    assert (tmp_path / "p.html").read_bytes() == "<é>".encode()
