"""Reports of conversions, and the rows of their summaries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from onnx_tflite_plugin.cli.output import Row
from onnx_tflite_plugin.cli.summary import summary
from onnx_tflite_plugin.report import Report

PLAIN = Report(
    target="onnxruntime", opset=18, operators={"ADD": 2, "MEAN": 1}, nodes={"Add": 2}, layout="least", layout_cost=0,
    local_plan_differences=0, transposes=0, transposed=(), packs={"onnx-tflite-plugin": 3},
)  # fmt: skip

EMPTY = SimpleNamespace(graph=())


def summarize(folder: Path, *, verification: Any = None, **changes: Any) -> list[Row]:
    file = folder / "m.onnx"
    file.write_bytes(bytes(3))
    conversion: Any = SimpleNamespace(
        report=replace(PLAIN, **changes),
        verification=verification,
        verification_stages={},
        verification_seconds=1.0,
        snippet=lambda path: f"run {path}",
        model=EMPTY,
        source=SimpleNamespace(size=0, main=SimpleNamespace(operators=())),
    )
    return summary(conversion, [file, file], 0.126)


def rows(folder: Path, **changes: Any) -> dict[str, list[str]]:
    """Return the summary's lines by label."""
    return {row.label: list(row.lines) for row in summarize(folder, **changes)}
