"""Lines of the brief summary after ``convert``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnx_tflite_plugin.cli.interface_lines import group_numbered, interface_lines
from onnx_tflite_plugin.cli.summary import (
    brief_summary,
    next_row,
)
from onnx_tflite_plugin.presentation.graph_io import GraphValue
from onnx_tflite_plugin.report import describe_overrides
from tests.helpers.summary_rows import PLAIN


def brief_lines(
    folder: Path, given_signature: str | None = None, stages: Any = None, **changes: Any
) -> dict[str, list[str]]:
    """Return the lines of the brief summary by label."""
    (file := folder / "m.onnx").write_bytes(bytes(3))
    verification = SimpleNamespace(
        text="within tolerance\n  ok y\n  ok z", verdict="agrees", end_to_end=("y differs", "cause: rounding")
    )
    conversion: Any = SimpleNamespace(
        report=replace(PLAIN, **changes),
        source=SimpleNamespace(size=0),
        verification=verification,
        verification_seconds=12.3,
        verification_stages=stages or {"ONNX Runtime": 9.0},
    )
    lines = brief_summary(conversion, [file], 0.126, given_signature=given_signature)
    return {row.label: list(row.lines) for row in lines}


def test_brief_summary_has_interface_states_verdict_and_every_warning(tmp_path: Path) -> None:
    graph_values = tuple(GraphValue(f"x{k}", "float32", (k + 2, None)) for k in range(2))
    lines = brief_lines(
        tmp_path,
        inputs=graph_values,
        outputs=graph_values[:1],
        states=("h", "c"),
        state_types=("int8 [2]", "int8 [3]"),
        other_signatures=("a", "b"),
        warnings=("odd", "odder"),
    )
    assert lines == {
        "wrote": [f"{tmp_path / 'm.onnx'} (3 bytes), converted in 0.13 s"],
        "inputs": ["x0 float32 [2, ?], x1 float32 [3, ?]"],
        "outputs": ["x0 float32 [2, ?]"],
        "states": [
            "2, as extra inputs and outputs: h int8 [2], c int8 [3]; "
            "onnx_tflite_plugin.runtime.Session carries them from run to run"
        ],
        "verified": ["within tolerance, in 12 s", "  y differs", "  cause: rounding"],
        "warning": [
            "only the main subgraph was converted; --signature all also converts 'a', 'b'",
            "odd",
            "odder",
        ],
    }


def test_slow_verification_names_its_slowest_stage(tmp_path: Path) -> None:
    line = brief_lines(tmp_path, stages={"LiteRT (xnnpack)": 11.2, "ONNX Runtime": 1.0})["verified"][0]
    assert line == "within tolerance, in 12 s, of these 11 s for LiteRT (xnnpack)"


def test_requested_signature_causes_no_warning(tmp_path: Path) -> None:
    assert "warning" not in brief_lines(tmp_path, given_signature="c", other_signatures=("a", "b"))


@pytest.mark.parametrize("label", ["inputs", "outputs"])
def test_long_interface_has_one_line_per_tensor(tmp_path: Path, label: str) -> None:
    for name, number in (("y", 4), ("TFLite_Detection_PostProcess:", 4), ("onset", 9)):
        graph_values = tuple(GraphValue(f"{name}{k}", "float32", (1, 10 + k)) for k in range(number))
        texts = [f"{graph_value.name} float32 [1, {10 + k}]" for k, graph_value in enumerate(graph_values)]
        assert brief_lines(tmp_path, **{label: graph_values})[label] == ([", ".join(texts)] if name == "y" else texts)


def test_more_than_nine_outputs_are_counted(tmp_path: Path) -> None:
    output_lines = brief_lines(tmp_path, outputs=tuple(GraphValue(f"y{k}", "float32", (k,)) for k in range(10)))[
        "outputs"
    ]
    assert output_lines == [*(f"y{k} float32 [{k}]" for k in range(8)), "… and 2 more (convert -v shows more)"]


def caches(end: str = "") -> tuple[GraphValue, ...]:
    return tuple(GraphValue(f"cache_{kind}_{k}{end}", "float32", (1, 64, 8)) for k in range(12) for kind in "kv")


def test_values_with_consecutive_numbers_share_a_line(tmp_path: Path) -> None:
    lines = ["cache_k_0 … cache_k_11: 12 × float32 [1, 64, 8]", "cache_v_0 … cache_v_11: 12 × float32 [1, 64, 8]"]
    assert brief_lines(tmp_path, inputs=caches())["inputs"] == lines
    assert interface_lines(caches()) == [line.replace(": ", "  ") for line in lines]
    assert group_numbered(["a1", "b", "a2", "a3", "c1", "c3", "c5", "d1", "d2"], [0] * 9) == [
        [0, 2, 3], [1], [4], [5], [6], [7], [8],
    ]  # fmt: skip
    assert group_numbered(["a1", "a2", "a3"], ["float32", "float32", "int8"]) == [[0], [1], [2]]


def test_signature_without_logits_names_the_command_for_all(tmp_path: Path) -> None:
    tokens = (GraphValue("tokens", "int32", (1, 5)), GraphValue("pos", "int32", (5,)))
    changes: dict[str, Any] = {
        "inputs": (*tokens, *caches()),
        "outputs": caches(":next"),
        "signature": "prefill",
        "other_signatures": ("decode",),
    }
    (warning,) = brief_lines(tmp_path, **changes)["warning"]
    assert warning.startswith("only signature 'prefill' was converted: the signature fills the key-value cache")
    assert warning.endswith(
        "returns no logits, so the model cannot generate text; --signature all also converts 'decode'"
    )
    conversion: Any = SimpleNamespace(verification=None, report=replace(PLAIN, **changes))
    row = next_row(conversion, Path("a.tflite"), [Path("m.onnx")], has_page=False)
    assert row.lines[0] == "onnx-tflite convert a.tflite m.onnx --signature all converts all signatures"
    changes["outputs"] = (*caches(":next"), GraphValue("logits", "float32", (1, 1, 9)))
    assert "logits" not in brief_lines(tmp_path, **changes)["warning"][0]


def test_hints_have_a_row_of_their_own(tmp_path: Path) -> None:
    assert brief_lines(tmp_path, hints=("pass real values",))["hint"] == ["pass real values"]


@pytest.mark.parametrize(
    ("model", "verified", "page", "lines"),
    [
        (Path("a b.tflite"), False, False, ["onnx-tflite verify 'a b.tflite' m.onnx compares it with LiteRT"]),
        (Path("m.tflite"), True, False, ["onnx-tflite report m.tflite m.onnx writes a page about it"]),
        (Path("m.tflite"), True, True, []),
        (None, False, False, []),
    ],
)
def test_summary_names_the_next_commands(model: Path | None, verified: bool, page: bool, lines: list[str]) -> None:
    conversion: Any = SimpleNamespace(verification="any" if verified else None, report=PLAIN)
    row = next_row(conversion, model, [Path("m.onnx")], has_page=page)
    assert list(row.lines) == [*lines, "convert -v prints the Python lines that run the model"]


def test_model_of_unknown_operators_is_not_to_be_verified() -> None:
    conversion: Any = SimpleNamespace(verification=None, report=replace(PLAIN, domains=("tflite.custom",)))
    row = next_row(conversion, Path("m.tflite"), [Path("m.onnx")], has_page=False)
    assert list(row.lines) == [
        "convert -v prints the Python lines that run the model with a library of kernels for tflite.custom"
    ]


def test_brief_summary_warns_of_replaced_handlers() -> None:
    report = SimpleNamespace(overrides={"SOFTMAX": "my-pack", "ADD": "my-pack"})
    assert describe_overrides(report) == [  # type: ignore[arg-type]
        "my-pack converts SOFTMAX, ADD instead of the built-in handler; --block my-pack leaves the pack out"
    ]


@pytest.mark.parametrize(
    ("source_bytes", "has_origin"), [(244_000, True), (600_000, True), (800_000, False), (0, False)]
)
def test_size_of_the_source_is_printed_if_the_file_grew(tmp_path: Path, source_bytes: int, has_origin: bool) -> None:
    (file := tmp_path / "m.onnx").write_bytes(bytes(1_140_000))
    conversion: Any = SimpleNamespace(report=PLAIN, source=SimpleNamespace(size=source_bytes), verification=None)
    (line,) = brief_summary(conversion, [file], 0.126)[0].lines
    size = f"1.14 MB, from {source_bytes // 1000} kB" if has_origin else "1.14 MB"
    assert line == f"{file} ({size}), converted in 0.13 s"


def test_file_that_grew_has_a_line_with_constants_by_dtype(tmp_path: Path) -> None:
    (file := tmp_path / "m.onnx").write_bytes(bytes(1_140_000))
    report = replace(
        PLAIN,
        file_constants={"sparse float16": 400_000, "float16": 70_000},
        constants={"float16": 1_100_000, "int64": 5, "bool": 2, "float32": 3, "int8": 1},
    )
    lines = {}
    for source_bytes in (500_000, 1_000_000):
        conversion: Any = SimpleNamespace(report=report, source=SimpleNamespace(size=source_bytes), verification=None)
        rows = brief_summary(conversion, [file], 0.126)
        lines[source_bytes] = [line for row in rows if row.label == "constants" for line in row.lines]
    assert lines == {
        500_000: [
            "TFLite: 400 kB sparse float16, 70 kB float16; ONNX: 1.1 MB float16, 5 bytes int64, 3 bytes float32, "
            "3 bytes of other dtypes; ONNX stores the zeros of sparse constants too"
        ],
        1_000_000: [],
    }
