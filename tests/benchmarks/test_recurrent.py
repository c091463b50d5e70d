"""Tests of the table of recurrent layers: its layers and its rows."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from benchmarks.recurrent import Row, operator_builders, recurrent, render_table


def test_row_has_nodes_both_errors_and_the_time(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    arguments = [str(tmp_path / "layers"), "--rounds", "3", "--only", "svdf_int8", "--markdown", str(table)]
    result = CliRunner().invoke(recurrent, arguments)
    assert result.exit_code == 0, result.output
    (row,) = (line for line in table.read_text(encoding="utf-8").splitlines() if line.startswith("| op"))
    name, kind, nodes, once, several, litert, ratio = (cell.strip() for cell in row.strip("|").split("|"))
    assert (name, kind, once, several) == ("op\\_svdf", "int8", "equal", "equal")
    assert int(nodes) > 5
    assert int(litert) > 0
    assert float(ratio) > 0


def test_table_has_each_operator_in_each_kind_of_litert() -> None:
    kinds: dict[str, set[str]] = {}
    for name, _ in operator_builders():
        layer, _, kind = name.rpartition("_")
        kinds.setdefault(layer, set()).add(kind)
    assert kinds.pop("op_svdf") == {"float", "dynamic", "int8"}
    assert kinds.pop("op_bilstm") == {"float", "dynamic"}
    assert len(kinds) == 8
    assert all(operator_kinds == {"float", "float16", "dynamic", "int8"} for operator_kinds in kinds.values())


def test_failed_layer_has_a_reason() -> None:
    assert (
        render_table([Row("gru", "int8", problem="fails: no kernel")], []).splitlines()[-1]
        == "| gru | int8 |  |  |  |  | fails |"
    )
