"""Lines of the summary after ``convert -v``."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.cli.operator_lines import decomposed_lines
from onnx_tflite_plugin.cli.output import shorten
from onnx_tflite_plugin.cli.summary import (
    brief_summary,
    verification_lines,
    warning_row,
)
from onnx_tflite_plugin.graph.node_metadata import node_props
from onnx_tflite_plugin.lowering.emitter import NOTE
from onnx_tflite_plugin.report import TransposedTensor
from onnx_tflite_plugin.rewrite import RULES
from onnx_tflite_plugin.rewrite.weights.dtypes import describe_runtime
from tests.helpers.command import Run
from tests.helpers.summary_rows import EMPTY, PLAIN, rows, summarize


def test_nodes_of_inner_graphs_are_counted_and_named(tmp_path: Path) -> None:
    nodes, inner = {"Add": 4, "Transpose": 3, "If": 1}, {"Add": 2, "Transpose": 2}
    lines = rows(tmp_path, nodes=nodes, inner_nodes=inner)
    assert lines["nodes"] == ["8, 4 of them inside If: 4 Add, 3 Transpose, 1 If"]
    assert lines["layout"] == ["optimal: 3 Transposes added by rewrites for speed (2 inside If)"]


def test_only_python_lines_are_code(tmp_path: Path) -> None:
    assert [row.label for row in summarize(tmp_path) if row.code] == ["run it"]


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
        (1, 0, 1, ["optimal: 1 Transpose from op 2 Y"]),
        (0, 0, 3, ["optimal: 3 Transposes added by rewrites for speed"]),
        (3, 1, 3, ["optimal: 3 Transposes: 1 inserted, 2 from op 2 Y", TRANSPOSE_LINE]),
        (3, 1, 4, ["optimal: 4 Transposes: 1 inserted, 2 from op 2 Y, 1 added by rewrites for speed", TRANSPOSE_LINE]),
        (2, 2, 1, ["optimal: 1 Transpose: 2 inserted, 1 removed by rewrites", TRANSPOSE_LINE, TRANSPOSE_LINE]),
    ],
)
def test_sources_of_transposes_add_up_to_the_nodes(
    tmp_path: Path, inserted: int, listed: int, remaining: int, lines: list[str]
) -> None:
    copy = TransposedTensor("t", "0,1 -> 1,0", 8, "graph input", ("op 1 X v2 'n'",))
    nodes = {"Conv": 2, "Transpose": remaining} if remaining else {"Conv": 2}
    emitted = {"op 2 Y v1 'm'": 1}
    summary = rows(tmp_path, nodes=nodes, transposes=inserted, transposed=(copy,) * listed, operator_transposes=emitted)
    assert summary["layout"] == lines


@pytest.mark.parametrize(("remaining", "outcome"), [(0, "removed by a rewrite"), (2, "replaced by a rewrite")])
def test_rows_mark_transposes_that_rewrites_removed_or_replaced(tmp_path: Path, remaining: int, outcome: str) -> None:
    copy = TransposedTensor("t", "0,1 -> 1,0", 8, "graph input", ("op 1 X v2 'n'",), is_removed=True)
    nodes = {"Conv": 2, "Transpose": remaining}
    lines = rows(tmp_path, nodes=nodes, transposes=1, transposed=(copy,))["layout"]
    assert lines[1] == f"{TRANSPOSE_LINE}, {outcome}"


def test_layout_line_counts_the_transposes_of_the_file(tmp_path: Path) -> None:
    lines = rows(tmp_path, operators={"ADD": 1, "TRANSPOSE": 3})
    assert lines["layout"] == ["optimal: no Transpose, in place of the TFLite file's 3"]


def test_transpose_of_a_dynamic_shape_has_no_fixed_size(tmp_path: Path) -> None:
    change = TransposedTensor("t", "0,1 -> 1,0", 60, "op 1 X v1 'n'", ("op 2 Y v1 'm'",), is_dynamic=True)
    lines = rows(tmp_path, nodes={"Transpose": 1}, transposes=1, transposed=(change,))["layout"]
    assert lines[1] == "  op 1 X → op 2 Y: axes 0,1 → 1,0, 60 bytes if dynamic dimensions are 1, 't'"


def test_split_axes_are_listed_by_shape_and_permutation(tmp_path: Path) -> None:
    change = TransposedTensor("t", "[1, 2, 3] -> 0,2,1", 24, "op 1 X v1 'n'", ("op 2 Y v1 'm'",))
    lines = rows(tmp_path, nodes={"Transpose": 1}, transposes=1, transposed=(change,))["layout"]
    assert lines[1] == "  op 1 X → op 2 Y: as [1, 2, 3], axes 0,1,2 → 0,2,1, 24 bytes, 't'"


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


def test_layers_are_counted_by_weight_dtype(tmp_path: Path) -> None:
    assert rows(tmp_path, weights={"uint8": 2, "int8": 1})["weights"] == [
        "1 layer: int8, exact on every processor",
        "2 layers: uint8",
    ]


def test_rewrites_are_counted_by_rule(tmp_path: Path) -> None:
    assert "rewritten" not in rows(tmp_path, nodes={"Transpose": 5}, transposes=2)
    assert "rewritten" not in rows(tmp_path, nodes={}, transposes=2)
    name = next(iter(RULES))
    assert rows(tmp_path, passes={name: 3})["rewritten"] == [f"{RULES[name].summary}: 3 places"]


def test_decomposed_operators_are_listed_with_their_nodes() -> None:
    """Reshape and Cast do not count; a kind is listed once, with the handler's reason, the most frequent first.

    A kind is named by the operator's code in the file; a replaced or fused operator by its handler.
    """

    def nodes(k: int, *op_types: str, handler: str = "prelu") -> list[Any]:
        metadata = node_props([(0, k)], f"pack:{handler}", "", "")
        meta = {NOTE: "Faster in this runtime. More text."} if handler == "prelu" else {}
        return [SimpleNamespace(op_type=op_type, metadata_props=metadata, meta=meta) for op_type in op_types]

    decomposed = ("Conv", "Relu", "Cast", "Conv", "Add")
    groups = [
        nodes(0, "Add", "Mul", "Exp", handler="gelu"), nodes(1, *decomposed), nodes(2, *decomposed),
        nodes(3, "Conv", "Relu", "Reshape", "Cast"),
    ]  # fmt: skip
    operators = [
        SimpleNamespace(index=k, code=code) for k, code in enumerate(("COMPOSITE", "PARAMETRIC", "PARAMETRIC"))
    ]
    conversion: Any = SimpleNamespace(
        model=SimpleNamespace(graph=[*chain.from_iterable(groups)]),
        source=SimpleNamespace(main=SimpleNamespace(operators=operators)),
        report=SimpleNamespace(operators={"PARAMETRIC": 2}),
    )
    assert [*decomposed_lines(conversion)] == [
        "2 PARAMETRIC: 2 Conv, 1 Relu, 1 Add each. Faster in this runtime", "1 GELU: 1 Add, 1 Mul, 1 Exp",
    ]  # fmt: skip


def test_fused_operators_are_counted_with_their_sources(tmp_path: Path) -> None:
    """Fusion leaves 4 of 7 operators: 2 are unchanged, 2 are fused from 5."""
    lines = rows(tmp_path, operators={"A": 7}, packs={"onnx-tflite-plugin": 4}, fused={"NORM": 2})
    assert lines["fused"] == ["2 NORM, from 5 operators; `onnx-tflite handlers` describes them"]


def test_fusions_of_a_single_operator_are_listed_separately(tmp_path: Path) -> None:
    fused, single = {"NORM": 2, "ROUNDED": 3}, {"ROUNDED": 3}
    lines = rows(tmp_path, operators={"A": 10}, packs={"onnx-tflite-plugin": 7}, fused=fused, fused_single=single)
    assert lines["fused"] == [
        "2 NORM, from 5 operators; `onnx-tflite handlers` describes them",
        "3 ROUNDED, each in place of one operator; `onnx-tflite handlers` describes them",
    ]


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
            report=replace(PLAIN, states=tuple(names), state_types=types),
            verification=None,
            model=EMPTY,
            source=SimpleNamespace(size=0, main=SimpleNamespace(operators=())),
        )
        lines_by_label = {row.label: row.lines for row in brief_summary(conversion, [tmp_path / "m.onnx"], 0.1)}
        assert lines_by_label["states"] == [f"{count}, as extra inputs and outputs: {listing}; {carried}"]


def test_summary_shows_overrides_and_hooks_of_packs(tmp_path: Path) -> None:
    lines = rows(
        tmp_path,
        packs={"onnx-tflite-plugin": 3, "p": 2, "q": 1},
        overrides={"ADD": "p", "MEAN": "p"},
        finished_by=("q", "r"),
    )
    assert lines["packs"] == [
        "p: 2 operators, instead of the built-in ADD, MEAN",
        "q: 1 operator, hook 'finish'",
        "r: hook 'finish'",
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
    assert "rounding" not in rows(tmp_path, traits={"fuses_cached_attention": 3})


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
def test_required_runtime_is_explained(weights: tuple[str, ...], nodes: tuple[str, ...], reason: str) -> None:
    note = describe_runtime(weights, nodes)
    assert note == (f"for ONNX Runtime: {reason}; for other runtimes convert with another --target" if reason else "")


def test_summary_has_dtype_and_shape_of_each_state(tmp_path: Path) -> None:
    lines = rows(tmp_path, states=("h", "c"), state_types=("uint8 [1, 96, 74, 1]", "int32 [?]"))
    assert lines["states"][-2:] == ["  h uint8 [1, 96, 74, 1]", "  c int32 [?]"]


def test_vv_shortens_no_list(run: Run, tmp_path: Path) -> None:
    model = ModelBuilder()
    x = model.main.input("x", (2, 3))
    for code in ("ABS", "NEG", "EXP", "SIN", "COS", "FLOOR", "CEIL", "SQUARE"):
        y = model.main.tensor(code, (2, 3))
        model.main.operator(code, [x], [y])
        model.main.output(y)
    (path := tmp_path / "m.tflite").write_bytes(model.build())
    assert "more kinds" in run("convert", path, "-v").out
    out = run("convert", path, "-vv").out
    assert "1 Ceil" in out
    assert "more kinds" not in out


def test_details_are_on_stderr_if_stdout_has_json(run: Run, tmp_path: Path) -> None:
    (path := tmp_path / "m.tflite").write_bytes(
        (Path(__file__).parents[2] / "examples" / "digits_int8.tflite").read_bytes()
    )
    result = run("convert", path, "--json", "-vv")
    assert json.loads(result.out)["nodes"]
    assert "times        " in result.err
    assert "times" not in run("convert", path, "--json").err
    folder = run("convert", tmp_path, "-v")
    assert folder.err.startswith("-v prints details of a single model only")


@pytest.mark.parametrize(("compared", "verdict", "count"), [(2, "agrees", 1), (3, "agrees", 0), (2, "inconclusive", 0)])
def test_operators_without_a_compared_result_are_counted(
    tmp_path: Path, compared: int, verdict: str, count: int
) -> None:
    verification: Any = SimpleNamespace(text="agree", verdict=verdict, end_to_end=(), operators=compared)
    (row,) = (
        row for row in summarize(tmp_path, verification=verification) if row.label in ("verified", "inconclusive")
    )
    assert sum("1 other operator has no result to compare" in line for line in row.lines) == count
