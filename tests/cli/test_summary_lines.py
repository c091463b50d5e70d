"""Lines of the summary, interfaces, times and problems."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnx_tflite_plugin.checked import format_shape
from onnx_tflite_plugin.cli import batch, bench, handlers, inspect
from onnx_tflite_plugin.cli.failures import with_hints
from onnx_tflite_plugin.cli.interface_lines import group_numbered, interface_lines, metadata_lines, quantization
from onnx_tflite_plugin.cli.jobs import Job
from onnx_tflite_plugin.cli.operator_lines import decomposed_lines
from onnx_tflite_plugin.cli.output import Row, shorten
from onnx_tflite_plugin.cli.summary import (
    brief_summary,
    next_row,
    summary,
    verification_lines,
    warning_row,
)
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, Problem
from onnx_tflite_plugin.graph.node_metadata import node_props
from onnx_tflite_plugin.presentation.graph_io import GraphValue
from onnx_tflite_plugin.report import Report, Transposed, describe_overrides
from onnx_tflite_plugin.rewrite import RULES
from onnx_tflite_plugin.rewrite.weights.dtypes import describe_runtime
from onnx_tflite_plugin.verify.times.bench import Benchmark, Spread
from onnx_tflite_plugin.verify.times.profile import OperatorTime

PLAIN = Report(
    target="onnxruntime", opset=18, operators={"ADD": 2, "MEAN": 1}, nodes={"Add": 2}, layout="least", layout_cost=0,
    local_plan_differences=0, transposes=0, transposed=(), packs={"onnx-tflite-plugin": 3},
)  # fmt: skip


EMPTY = SimpleNamespace(graph=())


def summarize(folder: Path, **changes: Any) -> list[Row]:
    file = folder / "m.onnx"
    file.write_bytes(bytes(3))
    conversion: Any = SimpleNamespace(
        report=replace(PLAIN, **changes), verification=None, snippet=lambda path: f"run {path}", model=EMPTY
    )
    return summary(conversion, [file, file], 0.126)


def rows(folder: Path, **changes: Any) -> dict[str, list[str]]:
    """Return the summary's lines by label."""
    return {row.label: list(row.lines) for row in summarize(folder, **changes)}


def test_nodes_of_inner_graphs_are_counted_and_named(tmp_path: Path) -> None:
    nodes, inner = {"Add": 4, "Transpose": 3, "If": 1}, {"Add": 2, "Transpose": 2}
    lines = rows(tmp_path, nodes=nodes, inner_nodes=inner)
    assert lines["nodes"] == ["8, of these 4 inside If: 4 Add, 3 Transpose, 1 If"]
    assert lines["layout"] == ["optimal: no Transpose inserted, 3 added by rewrites for speed, of these 2 inside If"]


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


def test_signature_that_was_requested_is_no_warning(tmp_path: Path) -> None:
    assert "warning" not in brief_lines(tmp_path, given_signature="c", other_signatures=("a", "b"))


@pytest.mark.parametrize("label", ["inputs", "outputs"])
def test_short_interface_has_one_line_and_a_long_one_a_line_each(tmp_path: Path, label: str) -> None:
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


def test_only_python_lines_are_code(tmp_path: Path) -> None:
    assert [row.label for row in summarize(tmp_path) if row.code] == ["run it"]


# --- inputs and outputs -----------------------------------------------------------------------


def test_interface_lines_show_symbolic_dimensions() -> None:
    graph_values = [
        GraphValue("image", "int8", (None, "height", 3), scale=(0.5,), zero_point=(-3,)),
        GraphValue("", "float32", ()),
        GraphValue("w", "int8", (7,), scale=(0.5, 0.25), zero_point=(0, 0), axis=1, labels=("a", "b", "c", "d")),
    ]
    assert interface_lines(graph_values) == [
        "image  int8 [?, height, 3]  scale 0.5, zero point -3",
        "''     float32 []",
        "w      int8 [7]             2 scales along axis 1",
        "  4 labels: a; b; c; …",
    ]
    assert interface_lines([]) == []
    long = interface_lines(
        [GraphValue("a" * 40, "float32", (1,) * 20), GraphValue("b", "bool", (2,), scale=(2.0,), zero_point=(5,))]
    )
    assert long[1] == f"{'b':40}  {'bool [2]':30}  scale 2, zero point 5"


def test_interface_lines_are_truncated() -> None:
    lines = interface_lines([GraphValue(f"x{k}", "bool", (k,)) for k in range(20)])
    assert len(lines) == 17
    assert lines[-1] == "… and 4 more (--json shows all)"


@pytest.mark.parametrize(
    ("graph_value", "lines"),
    [
        ({}, []),
        ({"kind": "image"}, []),
        ({"mean": (3.0, 3.0), "std": (2.0, 5.0)}, ["normalized (x - 3) / [2, 5]"]),
        ({"mean": (3.0,)}, []),
        ({"std": (3.0,)}, []),
        ({"kind": "image", "range": ((-1.0,), (0.0, 1.0))}, ["image, values -1 to [0, 1]"]),
        ({"kind": "feature", "threshold": 0.0}, ["score threshold 0"]),
        ({"labels": ("a", "b", "c" * 30)}, [f"3 labels: a; b; {'c' * 11}…{'c' * 12}"]),
    ],
)
def test_metadata_has_one_line_and_labels_another(graph_value: dict[str, Any], lines: list[str]) -> None:
    assert list(metadata_lines(GraphValue("x", "float32", (), **graph_value))) == lines


def test_several_scales_are_counted() -> None:
    assert quantization((), (), 0) == ""
    assert quantization((0.123456789,), (7,), 3) == "scale 0.123457, zero point 7"
    assert quantization((1.0, 2.0, 3.0), (0, 0, 0), 3) == "3 scales along axis 3"
    assert format_shape((None, "n", 0)) == "[?, n, 0]"


def test_normalization_that_changes_nothing_is_not_printed() -> None:
    plain = GraphValue("x", "uint8", (1,), kind="image", mean=(0.0,), std=(1.0,), range=((0.0,), (255.0,)))
    assert [*metadata_lines(plain)] == ["image, values 0 to 255"]
    assert [*metadata_lines(replace(plain, std=(2.0,)))] == ["image, normalized (x - 0) / 2, values 0 to 255"]


# --- the summary ------------------------------------------------------------------------------


def test_summary_shows_files_and_seconds(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    lines = rows(tmp_path)
    assert lines["wrote"] == [f"{file} (3 bytes) and {file} (3 bytes), converted in 0.13 s"]
    assert lines["run it"] == [f"run {file}"]


def test_summary_names_the_signature_if_there_are_others(tmp_path: Path) -> None:
    assert "signature" not in rows(tmp_path, signature="serve")
    hint = "--signature KEY converts another signature, --signature all converts all signatures"
    assert rows(tmp_path, signature="a", other_signatures=("b", "c"))["signature"] == [
        "'a'; not converted: 'b', 'c'",
        hint,
    ]
    assert rows(tmp_path, other_signatures=("b",))["signature"][0] == (
        "subgraph 0, without a signature; not converted: 'b'"
    )


TRANSPOSE_LINE = "  graph input → op 1 X: axes 0,1 → 1,0, 8 bytes, 't'"


@pytest.mark.parametrize(
    ("inserted", "listed", "remaining", "lines"),
    [
        (0, 0, 0, ["optimal: no Transpose"]),
        (1, 0, 1, ["optimal: no Transpose inserted, 1 from op 2 Y"]),
        (0, 0, 3, ["optimal: no Transpose inserted, 3 added by rewrites for speed"]),
        (3, 1, 3, ["optimal: 1 Transpose inserted, 2 from op 2 Y", TRANSPOSE_LINE]),
        (3, 1, 4, ["optimal: 1 Transpose inserted, 2 from op 2 Y, 1 added by rewrites for speed", TRANSPOSE_LINE]),
        (2, 2, 1, ["optimal: 2 Transposes inserted, 1 removed by rewrites", TRANSPOSE_LINE, TRANSPOSE_LINE]),
    ],
)
def test_sources_of_transposes_add_up_to_the_nodes(
    tmp_path: Path, inserted: int, listed: int, remaining: int, lines: list[str]
) -> None:
    copy = Transposed("t", "0,1 -> 1,0", 8, "graph input", ("op 1 X v2 'n'",))
    nodes = {"Conv": 2, "Transpose": remaining} if remaining else {"Conv": 2}
    emitted = {"op 2 Y v1 'm'": 1}
    summary = rows(tmp_path, nodes=nodes, transposes=inserted, transposed=(copy,) * listed, operator_transposes=emitted)
    assert summary["layout"] == lines


def test_layout_line_counts_the_transposes_of_the_file(tmp_path: Path) -> None:
    lines = rows(tmp_path, operators={"ADD": 1, "TRANSPOSE": 3})
    assert lines["layout"] == ["optimal: no Transpose; the file has 3"]


@pytest.mark.parametrize(
    ("gain", "text"), [(8_000, "1 µs"), (790_000, "99 µs"), (796_000, "0.1 ms"), (16_000_000, "2 ms")]
)
def test_layout_chosen_for_speed_shows_the_time_saved(tmp_path: Path, gain: int, text: str) -> None:
    lines = rows(tmp_path, transposed_for_speed=(("op 3 SOFTMAX v1 'p'", gain),))
    assert lines["layout"][-1] == f"  larger tensors transposed to save time: op 3 SOFTMAX saves about {text}"


@pytest.mark.parametrize(
    ("label", "expected_label"),
    [
        ("op 12 CONV_2D v3 'a v2'", "op 12 CONV_2D"),
        ("op 12 CONV_2D", "op 12 CONV_2D"),
        ("op 12 CUSTOM.x v3", "op 12 CUSTOM.x v3"),
        ("op 12 CUSTOM.x 13 'n'", "op 12 CUSTOM.x 13"),
        ("op 12 CUSTOM.x vast 'n'", "op 12 CUSTOM.x vast"),
        ("graph input", "graph input"),
    ],
)
def test_operator_label_omits_version_and_name(tmp_path: Path, label: str, expected_label: str) -> None:
    lines = rows(tmp_path, transposed_for_speed=((label, 8_000),))
    assert lines["layout"][-1] == f"  larger tensors transposed to save time: {expected_label} saves about 1 µs"


def test_layers_are_listed_by_weight_dtype_and_rewrites_by_place(tmp_path: Path) -> None:
    assert rows(tmp_path, weights={"uint8": 2, "int8": 1})["weights"] == [
        "1 layer: int8, exact on every processor",
        "2 layers: uint8",
    ]
    assert "rewritten" not in rows(tmp_path, nodes={"Transpose": 5}, transposes=2)
    assert "rewritten" not in rows(tmp_path, nodes={}, transposes=2)
    name = next(iter(RULES))
    assert rows(tmp_path, passes={name: 3})["rewritten"] == [f"{RULES[name].summary}: 3 places"]


def test_operators_of_several_nodes_are_listed_with_them() -> None:
    """Reshape and Cast do not count; a kind is listed once, the most frequent first."""

    def nodes(k: int, *op_types: str, handler: str = "prelu") -> list[Any]:
        metadata = node_props([(0, k)], f"pack:{handler}", "", "")
        return [SimpleNamespace(op_type=op_type, metadata_props=metadata) for op_type in op_types]

    decomposed = ("Conv", "Relu", "Cast", "Conv", "Add")
    groups = [
        nodes(0, "Add", "Mul", "Exp", handler="gelu"), nodes(1, *decomposed), nodes(2, *decomposed),
        nodes(3, "Conv", "Relu", "Reshape", "Cast"),
    ]  # fmt: skip
    conversion: Any = SimpleNamespace(model=SimpleNamespace(graph=[*chain.from_iterable(groups)]))
    assert [*decomposed_lines(conversion)] == [
        "2 PRELU: 2 Conv, 1 Relu, 1 Add each", "1 GELU: 1 Add, 1 Mul, 1 Exp",
    ]  # fmt: skip


def test_fused_operators_are_counted_with_their_sources(tmp_path: Path) -> None:
    """Fusion leaves 4 of 7 operators: 2 are unchanged, 2 are fused from 5."""
    lines = rows(tmp_path, operators={"A": 7}, packs={"onnx-tflite-plugin": 4}, fused={"NORM": 2})
    assert lines["fused"] == ["2 NORM, from 5 operators; `onnx-tflite handlers` describes them"]


def test_summary_shows_dtype_and_shape_of_states(tmp_path: Path) -> None:
    carried = "onnx_tflite_plugin.runtime.Session carries them from run to run"
    states = {"states": ("a" * 60, *"bcd"), "state_types": tuple(f"float32 [{k}]" for k in range(4))}
    assert rows(tmp_path, **states)["states"] == [
        f"4, as extra inputs and outputs; {carried}", f"  {shorten('a' * 60)} float32 [0]", "  b float32 [1]",
        "  c float32 [2]", "  d float32 [3]",
    ]  # fmt: skip
    for count, listing in (
        (3, "b float32 [1], c float32 [2], d float32 [3]"),
        (4, "b float32 [1], c float32 [2], … and 2 more"),
    ):
        names, types = "bcde"[:count], tuple(f"float32 [{k}]" for k in range(1, 1 + count))
        conversion: Any = SimpleNamespace(
            report=replace(PLAIN, states=tuple(names), state_types=types), verification=None, model=EMPTY
        )
        found = {row.label: row.lines for row in brief_summary(conversion, [tmp_path / "m.onnx"], 0.1)}
        assert found["states"] == [f"{count}, as extra inputs and outputs: {listing}; {carried}"]


def test_summary_shows_overrides_and_hooks_of_packs(tmp_path: Path) -> None:
    lines = rows(
        tmp_path,
        packs={"onnx-tflite-plugin": 3, "p": 2, "q": 1},
        overrides={"ADD": "p", "MEAN": "p"},
        finished_by=("q", "r"),
    )
    assert lines["packs"] == [
        "p: 2 operators, instead of the built-in ADD, MEAN",
        "q: 1 operator and its hook finish",
        "r: its hook finish",
    ]


def test_shows_up_to_eight_warnings_on_one_line_each() -> None:
    assert list(warning_row([]).lines) == []
    assert list(warning_row(["a\n  b"] * 8).lines) == ["a b"] * 8
    assert list(warning_row(["w"] * 9).lines) == ["w"] * 7 + ["… and 2 more (--json shows all)"]


def test_verdict_precedes_a_truncated_list_of_outputs() -> None:
    verification: Any = SimpleNamespace(text="\n".join(["within", *(f"ok {k}" for k in range(9))]), end_to_end=())
    assert verification_lines(verification) == [
        "within",
        *(f"ok {k}" for k in range(5)),
        "… and 4 more (--json shows all)",
    ]
    assert len(verification_lines(verification, 20)) == 10


# --- several models ---------------------------------------------------------------------------


def test_refusal_counts_problems_and_lists_their_models() -> None:
    first, second = (Problem(f"CUSTOM.{name} v1 (op {k})", "no handler", "write one") for k, name in enumerate("AB"))
    job = Job("m.tflite", b"", Path("m.onnx"))
    for problems, row, expected in (
        ([first, second], "m.tflite: refused, 2 problems", (first, second)),
        ([first], "m.tflite: refused", (first,)),
        ([], "m.tflite: refused", (Problem("", "why"),)),
    ):
        outcome = batch._refusal(job, ConversionError("why", problems))
        assert outcome.row == ("-", "-", "-", "-", "-", row)
        assert (outcome.problems, outcome.exit_code) == (expected, 1)
        assert (outcome.result["model"], outcome.result["error"]["message"]) == ("m.tflite", "why")


@pytest.mark.parametrize(
    ("where", "operator"), [("CUSTOM.A v1 (op 0, output 'y (z)')", "CUSTOM.A v1"), ("tensors[3].shape", ""), ("", "")]
)
def test_problem_of_several_models_has_no_location(where: str, operator: str) -> None:
    assert batch._operator_name(Problem(where, "")) == operator


def test_most_frequent_problems_come_first() -> None:
    rare, frequent = Problem("A v1", "why"), Problem("", "because", "do it")
    assert batch._error_lines({rare: [*"abcd"]}) == ["A v1: why", "  in a, b, c and 1 more"]
    assert batch._error_lines({rare: ["x", "x", "y", "z"], frequent: ["a", "b", "c", "d", "e"]}) == [
        "because",
        "  in a, b, c and 2 more",
        "  hint: do it",
        "A v1: why",
        "  in x, y, z",
    ]


def test_problem_in_a_file_has_its_place_in_the_first_model(capsys: pytest.CaptureFixture[str]) -> None:
    error = InvalidModel("cannot read it", [Problem("tensors[3].shape", "a size is negative")])
    jobs = [Job(name, b"", Path("m.onnx")) for name in ("a", "b")]
    for count, text in (
        (1, "  a size is negative\n    in a, at tensors[3].shape"),
        (2, "    in a, b, first at tensors[3]"),
    ):
        batch._print_problems(jobs[:count], [batch._refusal(job, error) for job in jobs[:count]])
        assert text in capsys.readouterr().err


def test_problems_without_a_hint_keep_their_position() -> None:
    assert with_hints([("", ["b"]), ("h", ["c"]), ("", ["d"])]) == ["b", "c", "  hint: h", "d"]


def test_shared_hint_follows_its_last_problem() -> None:
    assert with_hints([("h", ["a"]), ("", ["b"]), ("h", ["c"]), ("", ["d"]), ("i", ["e"])]) == [
        "a", "c", "  hint to these 2: h", "b", "d", "e", "  hint: i",
    ]  # fmt: skip


# --- handlers and models ----------------------------------------------------------------------


def test_problem_of_a_pack_is_printed_once() -> None:
    """Errors are printed with their handler or target, others with the pack."""
    failed = {"code": "CUSTOM.A", "error": "pack a: no module 'b'"}
    installed = {
        "handlers": [failed, {"code": "ADD", "error": ""}],
        "targets": [{"name": "npu", "error": "target npu: no opset"}],
        "packs": [{"wrong": ["CUSTOM.A: pack a: no module 'b'", "its cases fail"]}],
        "warnings": ["pack a: no module 'b'; it is left out", "hook of a: odd"],
    }
    assert handlers._unlisted(installed, installed["packs"][0]["wrong"]) == ["its cases fail"]
    assert handlers._unlisted(installed, installed["warnings"]) == ["hook of a: odd"]


def test_empty_cells_of_the_pack_table_are_dashes() -> None:
    row = {"hooks": ["a", "b"], "fusions": 0, "cases": 7, "overrides": [], "wrong": ["x", "y"], "version": "1.0"}
    assert [handlers._cell(row, name) for name in row] == ["a, b", "-", 7, "-", "2 problems", "1.0"]
    assert handlers._cell({"wrong": []}, "wrong") == "-"
    assert handlers._cell({"hooks": list("abcdefg")}, "hooks") == "a, b, c, d, … and 3 more (--json shows all)"


@pytest.mark.parametrize(
    ("trait", "text"),
    [
        ("rounds_activations", "3 layers: products in float, with activations rounded"),
        ("fast_dynamic_quantization", "3 layers: dynamic quantization"),
    ],
)
def test_summary_describes_dynamic_quantization(tmp_path: Path, trait: str, text: str) -> None:
    (line,) = rows(tmp_path, traits={trait: 3})["rounding"]
    assert line.startswith(text)
    assert "rounding" not in rows(tmp_path, traits={"attends_causally": 3})


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
    assert handlers._row(row, details, packs) == cells
    unusable = handlers._row({**row, "pack": "onnx-tflite-plugin", "error": "why"}, details, packs)
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


# --- times ------------------------------------------------------------------------------------


def spread(median: float, low: float, high: float) -> Spread:
    return Spread(median, low, high)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.5, 0.99, "faster"), (1.01, 1.5, "slower; --profile lists the slower operators"), (0.5, 1.0, "equal, within the spread"),
        (1.0, 1.5, "equal, within the spread"), (0.9, 1.1, "equal, within the spread"),
    ],
)  # fmt: skip
def test_ratio_gives_a_verdict_if_its_quartiles_agree(low: float, high: float, verdict: str) -> None:
    for threads, text in ((1, "1 thread,"), (3, "3 threads,")):
        benchmark = Benchmark(
            spread(1e-3, 5e-4, 0.0304), spread(9.99e-4, 9e-5, 2e-3), spread(0.875, low, high), 7, threads, "clock",
            "builtin", "processor",
        )  # fmt: skip
        litert, ours, ratio, reason, _, measured, _ = (row.lines for row in bench._rows(benchmark))
        assert list(litert) == ["1 ms (0.5 to 30.4) (builtin kernels)"]
        assert list(ours) == ["999 µs (90 to 2e+03)"]
        assert list(reason) == []
        assert list(ratio) == [f"ONNX Runtime / LiteRT 0.88 ({low:.2f} to {high:.2f}): {verdict}"]
        assert list(measured) == [f"clock, {text} medians and quartiles of 7 rounds", "processor"]


def test_small_model_that_is_slower_has_the_reason() -> None:
    seconds, ratio = spread(9e-5, 9e-5, 9e-5), spread(2, 1.9, 2.1)
    small = Benchmark(seconds, seconds, ratio, 7, 1, "clock", "builtin", "processor")
    reasons = [
        next(row.lines for row in bench._rows(benchmark) if row.label == "reason")
        for benchmark in (
            small,
            replace(small, litert=spread(1e-4, 1e-4, 1e-4)),
            replace(small, ratio=spread(1, 0.9, 1.1)),
        )
    ]
    assert [len(lines) for lines in reasons] == [1, 0, 0]
    assert "overhead of 0.2 to 1 µs per node" in reasons[0][0]
    [verdict] = next(row.lines for row in bench._rows(small) if row.label == "ratio")
    assert verdict.endswith("--profile lists the slower operators")


def test_slowest_operators_are_slower_than_in_litert(capsys: pytest.CaptureFixture[str]) -> None:
    faster = OperatorTime((3,), ("ADD",), "", ("Add",), 5e-6, 4e-6)
    bench._print_profile([faster])
    assert capsys.readouterr().out.endswith("\n\nno operator takes longer than in LiteRT\n")
    bench._print_profile([replace(faster, operators=(1, 2, 3), nodes=tuple("ABCDE"), litert=1e-6), faster])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split()[0] == "1–3"
    assert "A + B + C + 2 more" in last


def test_operator_times_are_in_microseconds() -> None:
    assert bench._microseconds(2e-6, 5.6e-6) == ("2.0", "5.6", "3.6")
    assert bench._microseconds(5e-6, 2e-6) == ("5.0", "2.0", "-3.0")
    assert bench._microseconds(None, 2e-6) == ("fails in isolation", "2.0", "2.0")


def test_profile_has_tables_of_kinds_and_worst_operators(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        OperatorTime((1, 20), ("CONV_2D", "RELU"), "", ("Conv", "Conv"), 1e-6, 20e-6),
        OperatorTime((3,), ("ADD",), "", ("Add",), None, 4e-6),
    ]
    bench._print_profile(rows)
    assert (
        capsys.readouterr().out
        == """
operators       count  LiteRT µs  ONNX Runtime µs  difference µs
CONV_2D + RELU      1        1.0             20.0           19.0
ADD                 1        0.0              4.0            4.0
all                 2        1.0             24.0           23.0

index  operator        nodes            LiteRT µs  ONNX Runtime µs  difference µs
1, 20  CONV_2D + RELU  2 Conv                 1.0             20.0           19.0
3      ADD             Add     fails in isolation              4.0            4.0
"""
    )


@pytest.mark.parametrize(("kinds", "kind_count"), [(9, 9), (10, 8)])
def test_omitted_kinds_are_summed(capsys: pytest.CaptureFixture[str], kinds: int, kind_count: int) -> None:
    rows = [OperatorTime((k,), (f"OP{k}",), "", ("Node",), 1e-6, (20 - k) * 1e-6) for k in range(kinds)]
    bench._print_profile(rows)
    table, worst = (block.splitlines() for block in capsys.readouterr().out.strip().split("\n\n"))
    assert [line.split()[0] for line in table[1 : 1 + kind_count]] == [f"OP{k}" for k in range(kind_count)]
    other_cells = [line.split() for line in table[1 + kind_count : -1]]
    assert other_cells == ([["2", "more", "kinds", "2", "2.0", "23.0", "21.0"]] if kind_count < kinds else [])
    total = sum(20 - k for k in range(kinds))
    assert table[-1].split() == ["all", str(kinds), f"{kinds}.0", f"{total}.0", f"{total - kinds}.0"]
    assert [line.split()[:3] for line in worst[1:]] == [[str(k), f"OP{k}", "Node"] for k in range(5)]
    assert table[1].split() == ["OP0", "1", "1.0", "20.0", "19.0"]


@pytest.mark.parametrize(
    ("weights", "nodes", "reason"),
    [
        ((), ("Conv", "other.FastGelu"), ""),
        (("chosen",), ("Conv", "If"), "an If selects weights at load time"),
        (("int8",), ("com.microsoft.FastGelu",), "the model contains its operators (FastGelu)"),
        (
            ("chosen",), ("com.microsoft.RotaryEmbedding", "com.microsoft.FastGelu"),
            "an If selects weights at load time, and the model contains its operators (FastGelu, RotaryEmbedding)",
        ),
    ],
)  # fmt: skip
def test_runtime_is_named_with_its_reasons(weights: tuple[str, ...], nodes: tuple[str, ...], reason: str) -> None:
    note = describe_runtime(weights, nodes)
    assert note == (f"for ONNX Runtime: {reason}; for other runtimes convert with another --target" if reason else "")


def test_brief_summary_warns_of_replaced_handlers() -> None:
    report = SimpleNamespace(overrides={"SOFTMAX": "my-pack", "ADD": "my-pack"})
    assert describe_overrides(report) == [  # type: ignore[arg-type]
        "my-pack converts SOFTMAX, ADD instead of the built-in handler; --block my-pack leaves the pack out"
    ]


def test_summary_has_dtype_and_shape_of_each_state(tmp_path: Path) -> None:
    lines = rows(tmp_path, states=("h", "c"), state_types=("uint8 [1, 96, 74, 1]", "int32 [?]"))
    assert lines["states"][-2:] == ["  h uint8 [1, 96, 74, 1]", "  c int32 [?]"]
