"""Output of the commands as text and JSON, and the summary."""

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
from conformance.builder import ModelBuilder, quant
from conformance.models import Net, tensor
from onnx_tflite_plugin.cli import cli
from onnx_tflite_plugin.cli.output import clean
from onnx_tflite_plugin.cli.summary import summary
from onnx_tflite_plugin.report import Report, Transposed
from tests.helpers.command import Run
from tests.helpers.metadata_files import LABELS, classifier_metadata, model_with_metadata
from tests.helpers.wrong_models import without_digest


def binary(code: str) -> bytes:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
    g.operator(code, [x, x], [y])
    g.output(y)
    return model.build()


@pytest.fixture
def mixed_path(tmp_path: Path) -> Path:
    """Write a model with all that ``inspect`` lists.

    It has a missing operator, a dynamic size, a signature, states, metadata and an uncalled subgraph.
    """
    model = ModelBuilder("a description")
    g = model.main
    x = g.input("x", (None, 3), "int8", quantization=quant(0.5, -3))
    twice, odd = (g.tensor(name, (None, 3), "int8", quantization=quant(0.5, -3)) for name in ("twice", "odd"))
    g.operator("ADD", [x, x], [twice])
    g.operator(
        "ADD", [twice, x], [twice2 := g.tensor("more", (None, 3), "int8", quantization=quant(0.5, -3))], version=2
    )
    g.operator("CUSTOM.Odd", [twice2], [odd])
    g.operator("VAR_HANDLE", [], [g.tensor("handle", (), "resource")], {"container": "box", "shared_name": "kept"})
    g.tensor("memory", (1, 4), variable=True)
    g.output(odd)
    model.signature("serve", {"image": x}, {"label": odd})
    model.metadata("min_runtime_version", b"2.3.0")
    uncalled = model.subgraph("lost")
    a, b = uncalled.input("a", (1,)), uncalled.tensor("b", (1,))
    uncalled.operator("CUSTOM.Unreached", [a], [b])
    uncalled.output(b)
    path = tmp_path / "mixed.tflite"
    path.write_bytes(model.build())
    return path


# --- inspect ----------------------------------------------------------------------------------


def test_inspect_succeeds_with_a_missing_handler(run: Run, mixed_path: Path) -> None:
    code, out, err = run("inspect", mixed_path)
    assert (code, err) == (0, "")
    for text in (
        "5 operators, 2 subgraphs",
        "a description",
        "x  int8 [?, 3]  scale 0.5, zero point -3",
        "1 'lost': 1 operator, never called",
        "'serve': image → label",
        "variable tensor memory",
        "resource box/kept",
        "min_runtime_version",
        "CUSTOM.Odd (op 2): no installed pack has a handler for it",
        "new-pack DIR --op CUSTOM.Odd",
    ):
        assert text in out
    table = [line.split() for line in out.splitlines() if line.strip()[:1].isdigit()]
    assert ["2", "ADD", "1,", "2", "built-in"] in table
    assert ["1", "CUSTOM.Odd", "1", "none"] in table
    detailed = [line.split() for line in run("inspect", mixed_path, "--details")[1].splitlines()]
    assert ["2", "ADD", "1,", "2", "built-in", "Transparent", "Dequantized"] in detailed
    assert not mixed_path.with_suffix(".onnx").exists()


def test_inspect_lists_the_models_of_a_folder(run: Run, mixed_path: Path) -> None:
    folder = mixed_path.parent
    (folder / "inner").mkdir()
    (folder / "inner" / "broken.tflite").write_bytes(b"nothing")
    code, out, _ = run("inspect", folder)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[2][-2:] == ["mixed.tflite", "CUSTOM.Odd"]
    assert "inner/broken.tflite" in lines[1]
    assert "2 models, 0 of them with a handler for every operator" in out
    entries = json.loads(run("inspect", folder, "--json").out)["models"]
    assert ["error" in entry for entry in entries] == [True, False]
    (folder / "none").mkdir()
    assert run("inspect", folder / "none").code == 2


def test_inspect_says_whose_inputs_it_lists(run: Run) -> None:
    out = run("inspect", Path(__file__).parents[2] / "examples" / "language_model.tflite").out
    assert "inputs and outputs of 'prefill_5'; convert takes it by default" in out
    assert "signature 'decode'" in out
    assert "never called" not in out


def test_each_version_is_listed_once(run: Run, tmp_path: Path) -> None:
    net = Net()
    net.output(net.call("NEG", [net.call("NEG", [tensor(2, 3)], tensor(2, 3))], tensor(2, 3)))
    (path := tmp_path / "twice.tflite").write_bytes(net.build())
    (row,) = json.loads(run("inspect", path, "--json")[1])["operators"]
    assert (row["count"], row["versions"]) == (2, [1])


def test_inspect_as_json(run: Run, mixed_path: Path) -> None:
    output = json.loads(run("inspect", mixed_path, "--json")[1])
    assert output["missing"] == ["CUSTOM.Odd"]
    assert output["inputs"] == [
        {
            "name": "x",
            "index": 0,
            "dtype": "int8",
            "shape": [None, 3],
            "quantization": {"scale": [0.5], "zero_point": [-3], "axis": 0},
            "metadata": {
                **dict.fromkeys(("kind", "description"), ""),
                **{name: [] for name in ("mean", "std", "labels", "files")},
                **dict.fromkeys(("range", "threshold")),
            },
        }
    ]
    add = next(row for row in output["operators"] if row["code"] == "ADD")
    assert (add["count"], add["versions"], add["pack"]) == (2, [1, 2], "onnx-tflite-plugin")
    assert (add["layout"], add["quantization"]) == ("Transparent", "Dequantized")
    assert output["signatures"][0]["key"] == "serve"
    assert [state["name"] for state in output["states"]] == ["memory", "box/kept"]
    assert [graph["called"] for graph in output["subgraphs"]] == [True, False]


def test_inspect_shows_metadata_of_inputs_and_outputs(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pets.tflite"
    path.write_bytes(model_with_metadata(classifier_metadata()))
    out = run("inspect", path)[1].splitlines()
    for text in (
        "image, normalized (x - 127.5) / 63.5, values -2 to 1",
        "score threshold 0.25",
        f"{len(LABELS)} labels: ",
    ):
        assert any(text in line for line in out)
    (y,) = json.loads(run("inspect", path, "--json")[1])["outputs"]
    assert (y["metadata"]["labels"], y["metadata"]["threshold"]) == (LABELS, 0.25)


def test_shared_hint_is_printed_once(run: Run, tmp_path: Path) -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3))
    for name in ("Lgamma", "Digamma", "Zeta"):
        y = g.tensor(name, (2, 3))
        g.operator(f"CUSTOM.Flex{name}", [x], [y])
        x = y
    g.output(x)
    path = tmp_path / "flex.tflite"
    path.write_bytes(model.build())
    for out in (run("inspect", path)[1], run("convert", path)[2]):
        hints = [line.strip() for line in out.splitlines() if line.strip().startswith("hint")]
        assert len(hints) == 1
        assert hints[0].startswith("hint to these 3: an op pack can convert them")
        assert "--op CUSTOM.FlexLgamma" in hints[0]


def test_inspect_rejects_a_file_of_another_format(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    path.write_bytes(b"")
    assert run("inspect", path)[0] == 1
    assert run("inspect", tmp_path / "missing.tflite")[0] == 2


# --- verify -----------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
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
        "no pack 'smal-pack' is installed; did you mean 'small-pack'? installed packs: onnx-tflite-plugin, small-pack"
        in err
    )


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
    fake = SimpleNamespace(run=lambda pack, op, as_json: calls.append((pack, op, as_json)) or code)
    monkeypatch.setitem(sys.modules, "conformance.command", fake)
    assert run("conformance", "--pack", "my-pack", "--op", "ADD")[0] == code
    assert calls == [("my-pack", "ADD", False)]


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
    unused: Any = None
    conversion = otp.Conversion(model, report, unused)
    return {row.label: "\n".join(row.lines) for row in summary(conversion, [file], 1.5)}


def test_summary_of_a_simple_conversion(tmp_path: Path) -> None:
    rows = summary_rows(PLAIN, tmp_path / "m.onnx")
    assert list(rows) == ["wrote", "run it", "target", "operators", "nodes", "layout"]
    assert rows["wrote"].endswith("m.onnx (2.5 kB), converted in 1.50 s")
    assert rows["operators"] == "3: 2 ADD, 1 MEAN"
    assert rows["layout"] == "optimal: no Transpose"


def test_summary_reports_unusual_facts(tmp_path: Path) -> None:
    label = "op 12 CONV_2D v3 'a name v2'"
    copy = Transposed("some/" * 20 + "BiasAdd", "0,1,2,3 -> 0,3,1,2", 4096, "graph input", (label, label, label))
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
        warnings=("the hooks of bad-pack were left out",),
    )
    rows = summary_rows(report, tmp_path / "m.onnx")
    first, *lines, last = rows["layout"].splitlines()
    assert first == "heuristic, not proven optimal: 9 Transposes inserted, 9 removed by rewrites"
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
    assert rows["warning"] == "the hooks of bad-pack were left out"


def test_summary_fits_a_screen(tmp_path: Path) -> None:
    operators = {f"OP_{k}": k for k in range(100)}
    copy = Transposed("t", "0,1 -> 1,0", 8, "graph input", ("op 1 X v1",))
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


def test_inspect_merges_rows_that_differ_only_in_details() -> None:
    from onnx_tflite_plugin.cli.inspect import _merge_rows

    row = {"code": "ADD", "called": True, "signatures": (), "missing": "", "pack": "p", "count": 2, "versions": [1]}
    merged = _merge_rows([{**row, "layout": "Transparent"}, {**row, "layout": "Attribute", "versions": [2]}])
    assert [(entry["count"], entry["versions"]) for entry in merged] == [(4, [1, 2])]


def test_inspect_details_explain_layouts_and_quantization(run: Run) -> None:
    out = run("inspect", Path(__file__).parents[2] / "examples" / "digits_int8.tflite", "--details").out
    assert "Terminate: Source layout only" in out
    assert "Dequantized: Dequantize, compute in float, quantize" in out
