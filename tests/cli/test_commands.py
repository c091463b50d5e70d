"""The commands ``verify``, ``handlers`` and ``conformance``, and the summary."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.cli import cli
from onnx_tflite_plugin.cli.output import clean
from onnx_tflite_plugin.cli.summary import summary
from onnx_tflite_plugin.report import Report, TransposedTensor
from tests.helpers.command import Run
from tests.helpers.wrong_models import without_digest


def binary(code: str) -> bytes:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
    g.operator(code, [x, x], [y])
    g.output(y)
    return model.build()


# --- verify -----------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Write a TFLite model and its conversion."""
    source = tmp_path / "sub.tflite"
    source.write_bytes(binary("SUB"))
    otp.convert(source).save(tmp_path / "sub.onnx")
    return source, tmp_path / "sub.onnx"


def test_verify_of_equal_models_exits_with_0(run: Run, pair: tuple[Path, Path]) -> None:
    code, out, err = run("verify", *pair, "--seed", 7, "--runs", 2)
    assert (code, err) == (0, "")
    assert out.startswith("ok")
    assert "2 runs" in out


def test_verify_of_different_models_exits_with_3(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    source = tmp_path / "add.tflite"
    source.write_bytes(binary("ADD"))
    onnx.save(without_digest(onnx.load(pair[1])), pair[1])
    code, out, _ = run("verify", source, pair[1])
    assert code == 3
    assert out.startswith("FAILED")
    assert "the ONNX model does not record its TFLite file, so it may not be the conversion of add.tflite" in out
    code, out, _ = run("verify", source, pair[1], "--json")
    output = json.loads(out)
    assert (code, output["ok"]) == (3, False)
    assert output["outputs"][0]["name"] == "y"
    assert output["diverging"]["code"] == "ADD"


def test_verify_accepts_inputs(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.full((2, 3), 2, np.float32))
    output = json.loads(run("verify", *pair, "--inputs", tmp_path / "in.npz", "--json")[1])
    assert (output["ok"], output["runs"]) == (True, 1)


def test_verify_reports_missing_files_and_extra(
    run: Run, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (
        (pair[0], tmp_path / "no.onnx"),
        (tmp_path / "no.tflite", pair[1]),
        (*pair, "--inputs", tmp_path / "no.npz"),
    ):
        code, out, err = run("verify", *arguments)
        assert (code, out) == (2, "")
        assert "there is no such file" in err
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, _, err = run("verify", *pair)
    assert code == 2
    assert 'pip install "onnx-tflite-plugin[verify]"' in err


# --- handlers ---------------------------------------------------------------------------------


def install(folder: Path, name: str, entries: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    requirement = "Requires-Dist: onnx-tflite-plugin~=0.2.0"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requirement}\n")
    (info / "entry_points.txt").write_text(entries)


def test_handlers_are_listed_in_a_stable_order(run: Run) -> None:
    output = json.loads(run("handlers", "--json")[1])
    codes = [row["code"] for row in output["handlers"]]
    assert codes == sorted(codes)
    (add,) = [row for row in output["handlers"] if row["code"] == "ADD"]
    assert add["pack"] == "onnx-tflite-plugin"
    assert add["layout"] == "Transparent"
    assert add["max_version"] > 1
    assert add["summary"]
    assert any(len(row["roots"]) > 1 for row in output["fusions"])
    assert all(row["summary"] for row in output["fusions"])
    assert all(row["roots"] == sorted(row["roots"]) for row in output["fusions"])
    errors = [row["error"] for row in output["handlers"] if row["error"]]
    assert all(error.startswith("not expressible in ONNX: ") for error in errors)


def test_handlers_lists_commands_of_packs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "only-a-command", "[onnx_tflite_plugin.commands]\ngreet = no_such_module:greet\n")
    output = json.loads(run("handlers", "--json")[1])
    assert {"pack": "only-a-command", "command": "greet"} in output["commands"]
    (row,) = [row for row in output["packs"] if row["pack"] == "only-a-command"]
    assert row["commands"] == ["greet"]
    assert "greet    only-a-command" in run("handlers")[1]


def test_handlers_filters_by_pack(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "small-pack", "[onnx_tflite_plugin.handlers]\nCUSTOM.Small = op_handlers.math.unary:absolute\n")
    output = json.loads(run("handlers", "--pack", "Small_Pack", "--json")[1])
    assert [row["code"] for row in output["handlers"]] == ["CUSTOM.Small"]
    assert [row["pack"] for row in output["packs"]] == ["small-pack"]
    assert output["fusions"] == output["hooks"] == output["targets"] == output["commands"] == []
    assert "ADD" not in run("handlers", "--pack", "small-pack")[1]
    code, _, err = run("handlers", "--pack", "smal-pack")
    assert code == 2
    assert (
        "pack 'smal-pack' is not installed; did you mean 'small-pack'? installed packs: onnx-tflite-plugin, small-pack"
        in err
    )


def test_handler_that_does_not_load_overrides_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    entries = "ABS = op_handlers.math.unary:absolute\nNEG = no_such_module:negate\n"
    install(tmp_path, "half-pack", f"[onnx_tflite_plugin.handlers]\n{entries}")
    (row,) = json.loads(run("handlers", "--pack", "half-pack", "--json")[1])["packs"]
    assert row["overrides"] == ["ABS"]


def test_handlers_fails_for_a_pack_with_problems(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "broken-pack", "[onnx_tflite_plugin.handlers]\nCUSTOM.Small = no_such_module:absolute\n")
    assert run("handlers", "--pack", "broken-pack")[0] == 1
    assert run("handlers", "--pack", "broken-pack", "--json")[0] == 1
    assert run("handlers")[0] == 0


def test_declining_handler_is_not_a_problem_of_its_pack(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = "SKIP_GRAM = op_handlers.refused.operators:skip_gram"
    install(tmp_path, "refusing-pack", f"[onnx_tflite_plugin.handlers]\n{entry}\n")
    output = json.loads(run("handlers", "--json")[1])
    (handler,) = [row for row in output["handlers"] if row["pack"] == "refusing-pack"]
    assert handler["error"]
    (pack,) = [row for row in output["packs"] if row["pack"] == "refusing-pack"]
    assert pack["wrong"] == []


def test_handlers_lists_load_errors(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    group = "[onnx_tflite_plugin.handlers]\n"
    install(
        tmp_path,
        "broken-pack",
        f"{group}CUSTOM.Broken = no_such_module:f\nCUSTOM.Text = string:digits\nADD = op_handlers.math.arithmetic:mul\n",
    )
    code, out, _ = run("handlers")
    assert code == 0
    assert "CUSTOM.Broken" in out
    assert "unusable: entry point CUSTOM.Broken = no_such_module:f of broken-pack failed: there is no module" in out
    assert "it is the str '0123456789', not a handler" in out
    assert "it is a handler of 'MUL'" in out
    assert "of 2 packs" in out


# --- conformance ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1])
def test_conformance_returns_the_exit_code_of_its_command(run: Run, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    calls: list[Any] = []
    fake = SimpleNamespace(run=lambda pack, ops, as_json: calls.append((pack, ops, as_json)) or code)
    monkeypatch.setitem(sys.modules, "conformance.command", fake)
    assert run("conformance", "--pack", "my-pack", "--op", "ADD")[0] == code
    assert calls == [("my-pack", ("ADD",), False)]


@pytest.mark.parametrize(
    "options", [("--op", "FLOOR", "--op", "CEIL"), ("--op", "FLOOR,CEIL"), ("--op", "CEIL, FLOOR")]
)
def test_conformance_tries_each_operator_that_is_named(run: Run, options: tuple[str, ...]) -> None:
    code, out, _ = run("conformance", *options, "--json")
    assert (code, {case["operator"] for case in json.loads(out)["cases"]}) == (0, {"FLOOR", "CEIL"})


def test_conformance_refuses_a_list_with_an_unknown_operator(run: Run) -> None:
    code, _, err = run("conformance", "--op", "FLOOR", "--op", "CEILING")
    assert code == 2
    assert "no handler and no case for CEILING; did you mean 'CEIL'?" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("conformance", "--pack", "one", "--pack", "two"),
        ("handlers", "--pack", "one", "--pack", "two"),
        ("new-pack", "folder", "--op", "one", "--op", "two"),
    ],
)
def test_option_with_one_value_refuses_a_second(run: Run, arguments: tuple[str, ...]) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert "'one' and 'two' are given; run the command once for each" in err


def test_conformance_as_json(run: Run) -> None:
    code, out, _ = run("conformance", "--op", "FLOOR", "--json")
    output = json.loads(out)
    assert (code, output["passed"]) == (0, True)
    assert {case["operator"] for case in output["cases"]} == {"FLOOR"}
    code, out, _ = run("conformance", "--op", "NOTHING", "--json")
    assert code == 2
    assert json.loads(out)["error"]["message"].startswith("no handler and no case for NOTHING;")


# --- the summary ------------------------------------------------------------------------------

PLAIN = Report(
    target="onnxruntime",
    opset=18,
    operators={"ADD": 2, "MEAN": 1},
    nodes={"Add": 2, "ReduceMean": 1},
    layout="least",
    layout_cost=0,
    local_plan_differences=0,
    transposes=0,
    transposed=(),
    packs={"onnx-tflite-plugin": 3},
)


def summary_rows(report: Report, file: Path) -> dict[str, str]:
    file.write_bytes(bytes(2500))
    model: Any = SimpleNamespace(graph=())
    source: Any = SimpleNamespace(size=0, main=SimpleNamespace(operators=()))
    conversion = otp.Conversion(model, report, source)
    return {row.label: "\n".join(row.lines) for row in summary(conversion, [file], 1.5)}


def test_summary_of_a_simple_conversion(tmp_path: Path) -> None:
    rows = summary_rows(PLAIN, tmp_path / "m.onnx")
    assert list(rows) == ["wrote", "run it", "target", "operators", "nodes", "layout"]
    assert rows["wrote"].endswith("m.onnx (2.5 kB), converted in 1.50 s")
    assert rows["operators"] == "3: 2 ADD, 1 MEAN"
    assert rows["layout"] == "optimal: no Transpose"


def test_summary_reports_unusual_facts(tmp_path: Path) -> None:
    label = "op 12 CONV_2D v3 'a name v2'"
    copy = TransposedTensor("some/" * 20 + "BiasAdd", "0,1,2,3 -> 0,3,1,2", 4096, "graph input", (label, label, label))
    report = replace(
        PLAIN,
        layout="heuristic",
        transposes=9,
        transposed=(copy,) * 9,
        transposed_for_speed=(("op 3 SOFTMAX v1 'p'", 80_000),),
        fused={"LAYER": 2},
        operators={"ADD": 12},
        fusions_declined=("LAYER at op 4: no axis",),
        states=("h", "c"),
        state_types=("int8 [2]", "int8 [3]"),
        packs={"onnx-tflite-plugin": 3, "my-pack": 1},
        overrides={"ADD": "my-pack"},
        storage={"int8 stored as uint8": 7},
        warnings=("the hooks of bad-pack are skipped",),
    )
    rows = summary_rows(report, tmp_path / "m.onnx")
    first, *lines, last = rows["layout"].splitlines()
    assert first == "heuristic, not proven optimal: no Transpose: 9 inserted, 9 removed by rewrites"
    assert len(lines) == 6
    assert lines[-1] == "  … and 4 more (--json shows all)"
    assert lines[0].startswith(
        "  graph input → op 12 CONV_2D, op 12 CONV_2D and 1 more: axes 0,1,2,3 → 0,3,1,2, 4.1 kB, '"
    )
    assert "…" in lines[0].split()[-1]
    assert lines[0].endswith("/BiasAdd'")
    assert last == "  larger tensors transposed to save time: op 3 SOFTMAX saves about 10 µs"
    assert rows["fused"] == "2 LAYER, from 10 operators; `onnx-tflite handlers` describes them"
    assert rows["states"].splitlines()[1:] == ["  h int8 [2]", "  c int8 [3]"]
    assert rows["packs"] == "my-pack: 1 operator, instead of the built-in ADD"
    assert rows["storage"] == "7 tensors: int8 stored as uint8, the same values"
    assert rows["warning"] == "the hooks of bad-pack are skipped"


def test_summary_fits_a_screen(tmp_path: Path) -> None:
    operators = {f"OP_{k}": k for k in range(100)}
    copy = TransposedTensor("t", "0,1 -> 1,0", 8, "graph input", ("op 1 X v1",))
    report = replace(
        PLAIN,
        operators=operators,
        nodes=operators,
        transposed=(copy,) * 100,
        transposes=100,
        fused=operators,
        fusions_declined=("no",) * 100,
        states=tuple(operators),
        state_types=("float32 [1]",) * 100,
        packs={**PLAIN.packs, "p": 1},
        storage={"int8 stored as uint8": 1, "uint8 stored as int8": 1},
        warnings=("w",) * 100,
    )
    rows = summary_rows(report, tmp_path / "m.onnx")
    assert sum(len(text.splitlines()) for text in rows.values()) <= 36
    assert max(len(line) for label, text in rows.items() if label != "wrote" for line in text.splitlines()) < 140


def test_control_characters_are_escaped() -> None:
    assert clean("naïve\x1b[0m\udc80") == r"naïve\x1b[0m\udc80"


def test_all_installed_packs_are_used_by_default() -> None:
    context = click.Context(cli)
    command = cli.get_command(context, "convert")
    assert command is not None
    assert command.make_context("convert", ["m.tflite"], context, resilient_parsing=True).params["packs"] is None
