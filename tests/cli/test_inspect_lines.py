"""Lines of ``inspect`` and ``handlers``."""

from __future__ import annotations

import pytest

from onnx_tflite_plugin.cli import handlers, inspect


def test_problem_of_a_pack_is_printed_once() -> None:
    """Load errors are printed with their handler or target, other problems with the pack."""
    failed = {"code": "CUSTOM.A", "error": "pack a: no module 'b'"}
    installed = {
        "handlers": [failed, {"code": "ADD", "error": ""}],
        "targets": [{"name": "npu", "error": "target npu: no opset"}],
        "packs": [{"wrong": ["CUSTOM.A: pack a: no module 'b'", "its cases fail"]}],
        "warnings": ["pack a: no module 'b'; it is skipped", "hook of a: odd"],
    }
    assert handlers._unlisted(installed, installed["packs"][0]["wrong"]) == ["its cases fail"]
    assert handlers._unlisted(installed, installed["warnings"]) == ["hook of a: odd"]


def test_empty_cells_of_the_pack_table_are_dashes() -> None:
    row = {"hooks": ["a", "b"], "fusions": 0, "cases": 7, "overrides": [], "wrong": ["x", "y"], "version": "1.0"}
    assert [handlers._pack_cell(row, name) for name in row] == ["a, b", "-", 7, "-", "2 problems", "1.0"]
    assert handlers._pack_cell({"wrong": []}, "wrong") == "-"
    assert handlers._pack_cell({"hooks": list("abcdefg")}, "hooks") == "a, b, c, d, … and 3 more (--json shows all)"


@pytest.mark.parametrize(
    ("details", "packs", "cells"),
    [
        (False, False, ["A", 3, "does it"]),
        (False, True, ["A", 3, "p", "does it"]),
        (True, True, ["A", 3, "p", "Implicit", "Raw"]),
    ],
)
def test_handler_row_has_summary_or_declarations(details: bool, packs: bool, cells: list[object]) -> None:
    row = {
        "code": "A", "pack": "p", "error": "", "max_version": 3, "summary": "does it", "layout": "Implicit",
        "quantization": "Raw",
    }  # fmt: skip
    assert handlers._handler_cells(row, details, packs) == cells
    unusable = handlers._handler_cells({**row, "pack": "onnx-tflite-plugin", "error": "why"}, details, packs)
    assert unusable == ["A", "-", *(["built-in"] if packs else []), *(["-"] if details else []), "unusable: why"]


def test_operator_row_names_the_pack_of_its_handler() -> None:
    row = {
        "code": "A", "count": 2, "versions": [1, 3], "pack": "p", "missing": "", "called": True, "layout": None,
        "quantization": "Raw", "first": "op 7",
    }  # fmt: skip
    assert inspect._format_operator(row, True) == [2, "A", "1, 3", "p", "-", "Raw"]
    assert inspect._format_operator({**row, "pack": "onnx-tflite-plugin"}, False) == [2, "A", "1, 3", "built-in"]
    missing = {**row, "missing": "nobody", "called": False, "signatures": ()}
    assert inspect._format_operator(missing, False) == [2, "A (never called)", "1, 3", "none"]
    assert inspect._format_missing(missing) == "A (op 7, 2 in all): nobody"
    assert inspect._format_missing({**missing, "count": 1}) == "A (op 7): nobody"


def test_inspect_has_one_line_per_tensor_signature_and_state() -> None:
    scaled = {"scale": [0.5], "zero_point": [-3], "axis": 2}
    x = {"name": "x", "dtype": "int8", "shape": [None, 0, 5], "quantization": scaled}
    assert inspect._format_tensor(x) == "x  int8 [?, 0, 5]  scale 0.5, zero point -3"
    by_channel = {**scaled, "scale": [1.0, 2.0]}
    assert (
        inspect._format_tensor({**x, "name": "", "quantization": by_channel})
        == "''  int8 [?, 0, 5]  2 scales along axis 2"
    )
    unknown = {**x, "shape": None, "quantization": {"block_size": 32}}
    assert inspect._format_tensor(unknown) == "x  int8, shape not stored  blocks of 32 share a scale"
    assert inspect._format_tensor({**x, "quantization": None}) == "x  int8 [?, 0, 5]"
    signature = {"key": "k", "subgraph": 3, "inputs": list("abcdef"), "outputs": []}
    line = "'k' of subgraph 3: a, b, c, d, e, f → nothing"
    assert inspect._format_signature(signature) == [line]
    assert inspect._format_signature({**signature, "subgraph": 0, "inputs": []}) == ["'k': nothing → nothing"]
    assert inspect._format_signature({**signature, "tensors": {"a": "t:0"}}, True) == [line, "  a = t:0"]
    assert inspect._format_state({"kind": "resource", "name": "box/kept"}) == "resource box/kept"
    assert inspect._format_state({"kind": "variable", **x, "quantization": None}) == "variable x  int8 [?, 0, 5]"


def test_signature_names_precede_tensor_names() -> None:
    signatures = [{"subgraph": k, "inputs": {f"x{k}": 3}, "outputs": {f"y{k}": 5, "same": 7}} for k in (1, 0)]
    inputs, outputs = inspect._signature_names({"signatures": signatures})
    assert (inputs, outputs) == ({3: "x0"}, {5: "y0", 7: "same"})
    tensor = {"name": "t:0", "index": 3, "dtype": "int8", "shape": [2], "quantization": None, "metadata": {}}
    assert inspect._format_graph_value(tensor, inputs) == ["x0 = t:0  int8 [2]"]
    assert inspect._format_graph_value({**tensor, "name": "same", "index": 7}, outputs) == ["same  int8 [2]"]
    assert inspect._signature_names({"signatures": []}) == ({}, {})


def test_constants_without_elements_have_no_size() -> None:
    sizes = [("int8", True, 2, 9), ("float32", False, 16, 0), ("int32", False, 1, 0)]
    rows = [dict(zip(("dtype", "sparse", "count", "bytes"), size, strict=True)) for size in sizes]
    text = "sparse int8 9 bytes in 2 constants, 16 empty float32 constants, 1 empty int32 constant"
    assert inspect._format_constants(rows) == text
