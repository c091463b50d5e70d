"""Folders of models, streams, bundles, and output within 80 columns."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import onnx
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.cli import cli
from onnx_tflite_plugin.cli.output import print_error
from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source import bundle as bundles
from onnx_tflite_plugin.source import read_bytes
from onnx_tflite_plugin.source.bundle import members
from tests.helpers.command import Run
from tests.helpers.metadata_files import classifier_metadata, model_with_metadata, serialize
from tests.helpers.wrong_models import without_digest


def model(code: str = "NEG", *, signatures: int = 0) -> bytes:
    builder = ModelBuilder()
    g = builder.main
    x, y = g.input("x", (1, 2, 3, 5)), g.tensor("y", (1, 2, 3, 5))
    g.operator(code, [x], [y])
    g.output(y)
    if signatures:
        builder.signature("first/one", {"a": x}, {"b": y})
    if signatures > 1:
        other = builder.subgraph("other")
        u, v = other.input("u", (7,)), other.tensor("v", (7,))
        other.operator("EXP", [u], [v])
        other.output(v)
        builder.signature("second", {"a": u}, {"b": v}, subgraph=1)
    return builder.build()


def two_inputs() -> bytes:
    builder = ModelBuilder()
    g = builder.main
    x, y, z = g.input("x", (1, 2)), g.input("y", (1, 2)), g.tensor("z", (1, 2))
    g.operator("ADD", [x, y], [z])
    g.output(z)
    return builder.build()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a folder of two models that convert and two that do not.

    Both failures have the same reason.
    """
    models = tmp_path / "models"
    (models / "inner").mkdir(parents=True)
    (models / "a.tflite").write_bytes(model())
    (models / "inner" / "b.tflite").write_bytes(model("EXP"))
    for name in "cd":
        (models / f"{name}.tflite").write_bytes(model("CUSTOM.Odd"))
    (models / "readme.txt").write_text("not a model")
    return models


def zip_entries(entries: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return stream.getvalue()


# --- folders ----------------------------------------------------------------------------------


def test_refusal_does_not_stop_other_models_of_a_folder(run: Run, folder: Path) -> None:
    code, out, err = run("convert", folder)
    assert code == 1
    rows = [line.split() for line in out.splitlines()]
    assert ["1", "1", "0", "a.tflite"] in [[*row[:3], *row[-1:]] for row in rows]
    assert "2 of 4 models" in out
    assert (folder / "a.onnx").exists()
    assert (folder / "inner" / "b.onnx").exists()
    assert not (folder / "c.onnx").exists()
    assert err.count("no installed pack has a handler for it") == 1
    assert "in c.tflite, d.tflite" in err


def test_rejects_models_of_a_folder_with_equal_output(run: Run, folder: Path) -> None:
    first = min(folder.glob("*.tflite"))
    first.with_suffix(".lite").write_bytes(first.read_bytes())
    code, _, err = run("convert", folder)
    assert code == 2
    assert f"would both be written to {first.with_suffix('.onnx')}" in err


def test_output_folder_mirrors_subfolders(run: Run, folder: Path, tmp_path: Path) -> None:
    run("convert", folder, tmp_path / "out")
    assert (tmp_path / "out" / "inner" / "b.onnx").exists()
    assert not (folder / "a.onnx").exists()


def test_several_models_as_json(run: Run, folder: Path) -> None:
    output = json.loads(run("convert", folder, "--json")[1])
    assert (output["converted"], output["refused"]) == (2, 2)
    assert [("error" in model) for model in output["models"]] == [False, True, True, False]


def test_warnings_and_hints_of_a_folder_name_their_models(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.tflite").write_bytes(model(signatures=2))
    out = run("convert", tmp_path).out
    assert "warning      a.tflite, b.tflite: only signature 'first/one' was converted" in out
    examples = Path(__file__).parents[2] / "examples"
    (tmp_path / "b.tflite").write_bytes((examples / "digits_int8.tflite").read_bytes())
    out = run("convert", tmp_path, "--quantization", "float").out
    assert "hint         b.tflite: input 'image' takes float32 instead of int8" in out


# --- signatures -------------------------------------------------------------------------------


def test_each_signature_becomes_a_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(model(signatures=2))
    code, out, _ = run("convert", path, "--signature", "all")
    assert code == 0
    names = {file.name: [node.op_type for node in onnx.load(file).graph.node] for file in tmp_path.glob("*.onnx")}
    assert names == {"m.first_one.onnx": ["Neg"], "m.second.onnx": ["Exp"]}
    assert "2 of 2 models" in out
    note = run("convert", path)[1]
    assert "only signature 'first/one' was converted; --signature all also converts 'second'" in note


@pytest.mark.parametrize("signatures", [0, 1])
def test_model_with_one_signature_keeps_its_name(run: Run, tmp_path: Path, signatures: int) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(model(signatures=signatures))
    assert run("convert", path, "--signature", "all")[0] == 0
    assert [file.name for file in tmp_path.glob("*.onnx")] == ["m.onnx"]


# --- bundles ----------------------------------------------------------------------------------


def test_converts_nested_bundles(run: Run, tmp_path: Path) -> None:
    inner = zip_entries({"hand.tflite": model("EXP"), "labels.txt": b"x"})
    (tmp_path / "gesture.task").write_bytes(zip_entries({"detector.tflite": model(), "hand.task": inner}))
    assert run("convert", tmp_path / "gesture.task")[0] == 0
    assert {file.name for file in (tmp_path / "gesture").iterdir()} == {"detector.onnx", "hand.task_hand.onnx"}
    output = json.loads(run("inspect", tmp_path / "gesture.task", "--json")[1])
    assert [(part["name"], part["kind"]) for part in output["parts"]] == [
        ("detector.tflite", "model"),
        ("hand.task/hand.tflite", "model"),
        ("hand.task/labels.txt", "txt"),
    ]


def test_every_command_takes_a_part_of_a_bundle(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b.task").write_bytes(zip_entries({"neg.tflite": model(), "exp.tflite": model("EXP")}))
    bundle_member = f"{tmp_path / 'b.task'}#exp"
    assert run("convert", bundle_member).code == 0
    assert [node.op_type for node in onnx.load(tmp_path / "exp.onnx").graph.node] == ["Exp"]
    assert "EXP" in run("inspect", bundle_member).out
    assert run("verify", bundle_member, tmp_path / "exp.onnx").code == 0
    assert run("bench", bundle_member, "--rounds", "3").code == 0
    assert run("report", bundle_member, tmp_path / "exp.onnx").code == 0


def test_command_about_one_model_lists_those_of_a_bundle(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b.task").write_bytes(zip_entries({"neg.tflite": model(), "exp.tflite": model("EXP")}))
    (tmp_path / "m.onnx").touch()
    message = f"{tmp_path / 'b.task'} holds 2 models: 'neg.tflite', 'exp.tflite'; "
    for text, *command in (
        (
            f"{message}name one of them, such as {tmp_path / 'b.task'}#neg.tflite",
            "verify",
            tmp_path / "b.task",
            tmp_path / "m.onnx",
        ),
        (
            f"{message}'nex.tflite' is none of these names; did you mean 'neg.tflite'?",
            "convert",
            f"{tmp_path / 'b.task'}#nex.tflite",
        ),
        (f"{message}'.tflite' is part of several names", "bench", f"{tmp_path / 'b.task'}#.tflite"),
    ):
        code, _, err = run(*command)
        assert (code, err) == (2, f"error: {text}\n")


def test_bundle_of_one_model_is_written_to_the_named_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chat.litertlm"
    path.write_bytes(litert_lm([(5, b"proto"), (3, model())]))
    code, out, _ = run("convert", path, tmp_path / "chat.onnx")
    assert code == 0
    assert "inputs " in out
    assert (tmp_path / "chat.onnx").is_file()
    assert run("verify", path, tmp_path / "chat.onnx").code == 0


def test_file_for_several_models_is_a_usage_error(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "b.task").write_bytes(zip_entries({"neg.tflite": model(), "exp.tflite": model("EXP")}))
    code, _, err = run("convert", tmp_path / "b.task", tmp_path / "b.onnx")
    assert (code, (tmp_path / "b.onnx").exists()) == (2, False)
    assert "holds 2 models, which cannot all be written to the file" in err
    code, _, err = run("convert", folder, "-")
    assert code == 2
    assert "a folder of models cannot be written to stdout; name a folder" in err


def test_bundle_members_stay_inside_the_output_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.task").write_bytes(zip_entries({"../../evil.tflite": model(), "/abs.tflite": model()}))
    run("convert", tmp_path / "in" / "b.task")
    assert {file.parent.name for file in tmp_path.rglob("*.onnx")} == {"b"}


@pytest.mark.parametrize("front", [b"\0\0", b"#!/bin/sh\n"])
def test_bundle_may_have_a_prefix(run: Run, tmp_path: Path, front: bytes) -> None:
    """Zip archives are located from the end; some begin with two zero bytes.

    Some archives of MediaPipe do.
    """
    path = tmp_path / "b.task"
    path.write_bytes(front + zip_entries({"a.tflite": model()}))
    assert "1 part, 1 model" in run("inspect", path)[1]
    assert run("convert", path)[0] == 0
    assert (tmp_path / "b" / "a.onnx").exists()


def test_model_with_associated_files_is_not_a_bundle(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pets.tflite"
    path.write_bytes(model_with_metadata(classifier_metadata()))
    assert zipfile.is_zipfile(path)
    assert run("convert", path)[0] == 0
    assert path.with_suffix(".onnx").exists()


def litert_lm(sections: list[tuple[int, bytes]]) -> bytes:
    """Return a bundle of a header and one section per block."""
    start, tables = 16384, []
    body = b""
    for kind, content in sections:
        begin = start + len(body)
        body += content
        tables.append({1: ("Uint64", begin), 2: ("Uint64", begin + len(content)), 3: ("Uint8", kind)})
    header = serialize({1: {0: tables}})
    front = b"LITERTLM" + struct.pack("<IIII", 1, 0, 0, 0) + struct.pack("<Q", 32 + len(header)) + header
    return front + bytes(start - len(front)) + body


def test_converts_models_of_a_litert_lm_bundle(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chat.litertlm"
    path.write_bytes(litert_lm([(5, b"proto"), (3, model()), (4, b"words")]))
    _, out, _ = run("inspect", path)
    for text in ("LLM metadata", "SentencePiece tokenizer", "3 parts, 1 model"):
        assert text in out
    assert run("convert", path)[0] == 0
    assert [file.name for file in (tmp_path / "chat").iterdir()] == ["section_1.onnx"]


def test_inspect_shows_the_only_model_of_a_bundle(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chat.litertlm"
    path.write_bytes(litert_lm([(5, b"proto"), (3, model("EXP"))]))
    out = run("inspect", path).out
    assert "LLM metadata" in out
    (line,) = (line for line in out.splitlines() if line.startswith("model  "))
    assert re.search(r"^ +1  EXP ", out, re.MULTILINE)
    printed = line.removeprefix("model").split(" (")[0]
    (argument,) = shlex.split(printed)
    assert argument.endswith("#section 1")
    assert run("convert", argument, tmp_path / "m.onnx").code == 0
    output = json.loads(run("inspect", path, "--json").out)
    assert [row["code"] for row in output["model"]["operators"]] == ["EXP"]
    assert len(output["parts"]) == 2


def test_inspect_shows_caches_of_all_layers_in_one_line(run: Run, tmp_path: Path) -> None:
    builder = ModelBuilder()
    g = builder.main
    caches = [g.input(f"cache_{k}", (1, 7)) for k in range(12)]
    for k, cache in enumerate(caches):
        g.operator("NEG", [cache], [y := g.tensor(f"new_{k}", (1, 7))])
        g.output(y)
    (tmp_path / "m.tflite").write_bytes(builder.build())
    out = run("inspect", tmp_path / "m.tflite").out
    assert "cache_0 … cache_11  12 × float32 [1, 7]" in out
    assert "new_0 … new_11  12 × float32 [1, 7]" in out


def test_litert_lm_section_has_model_type_and_range() -> None:
    body = bytes(16384) + model()
    kind, end = ("Uint8", 3), ("Uint64", len(body))
    items = [{0: "other", 1: ("Uint8", 9), 2: {0: "x"}}, {0: "model_type", 1: ("Uint8", 9), 2: {0: "prefill"}}]

    def bundle_bytes(last: tuple[str, int]) -> bytes:
        header = serialize({1: {0: [{0: items, 1: ("Uint64", 16384), 2: last, 3: kind}]}})
        return b"LITERTLM" + bytes(16) + struct.pack("<Q", 32 + len(header)) + header + body[32 + len(header) :]

    (member,) = members(bundle_bytes(end), "x")
    assert (member.name, read_bytes(member.load())) == ("section 0 prefill", model())
    with pytest.raises(InvalidModel, match=f"bytes 16384 to {len(body) + 1} are outside the file of {len(body)} bytes"):
        members(bundle_bytes(("Uint64", len(body) + 1)), "x")


@pytest.mark.parametrize("cut", [9, 20, 31, 36, 45, 60])
def test_rejects_a_damaged_bundle(cut: int) -> None:
    with pytest.raises(InvalidModel):
        members(litert_lm([(3, model())])[:cut], "x")
    with pytest.raises(InvalidModel):
        members(zip_entries({"a.tflite": model()})[:-cut], "x")


def test_limits_the_number_of_files_of_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of nested archives are counted."""
    monkeypatch.setattr(bundles, "MAX_MEMBERS", 3)
    inner = zip_entries({"b.txt": b"b", "folder/": b""})
    assert [part.name for part in members(zip_entries({"a.txt": b"ab", "n.task": inner}), "x")] == [
        "a.txt",
        "n.task/b.txt",
    ]
    with pytest.raises(InvalidModel, match="the bundle holds more than 3 files"):
        members(zip_entries({"a.txt": b"ab", "n.task": inner, "c.txt": b"c"}), "x")


# --- streams ----------------------------------------------------------------------------------


class Piped:
    def __init__(self, content: bytes = b"") -> None:
        self.buffer = io.BytesIO(content)

    def isatty(self) -> bool:
        return False


def test_reads_a_model_from_stdin(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Piped(model()))
    assert run("convert", "-", tmp_path / "out.onnx")[0] == 0
    assert onnx.load(tmp_path / "out.onnx").graph.node[0].op_type == "Neg"
    monkeypatch.setattr(sys, "stdin", Piped(model()))
    assert "name the file to write" in run("convert", "-")[2]
    monkeypatch.setattr(sys, "stdin", Piped(model()))
    assert "is a directory; name the file to write" in run("convert", "-", tmp_path)[2]


def test_stdout_has_only_the_model(tmp_path: Path, capfdbinary: Any) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(model())
    with pytest.raises(SystemExit):
        cli.main(["convert", str(path), "-"], prog_name="otp")
    assert onnx.load_model_from_string(capfdbinary.readouterr().out).graph.node[0].op_type == "Neg"
    assert not list(tmp_path.glob("-*"))
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["convert", str(path), "-", "--json"], prog_name="otp")
    assert exit_info.value.code == 2


# --- 80 columns -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["convert"], ["inspect"], ["inspect", "--details"], ["handlers"], ["verify"]])
@pytest.mark.parametrize("color", [True, False])
def test_output_fits_80_columns(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], color: bool
) -> None:
    monkeypatch.chdir(folder)
    run("convert", "a.tflite")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    if not color:
        monkeypatch.setenv("NO_COLOR", "1")
    files = {"handlers": [], "verify": ["a.tflite", "a.onnx"]}.get(command[0], ["a.tflite"])
    out = run(*command, *files)[1]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert max(map(len, plain.splitlines())) <= 80
    if not color:
        assert not re.search(r"\x1b\[[0-9;]*3\d", out)


def test_errors_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    with contextlib.redirect_stderr(stream):
        print_error("error", ["operators that cannot be converted:", "word " * 40, "  hint: " + "word " * 40])
    first, *rest = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
    assert first == "error: operators that cannot be converted:"
    assert max(map(len, rest)) <= 80
    assert [len(line) - len(line.lstrip()) for line in rest] == [2, 4, 4, 4, 6, 6]


# --- usage errors -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["convert", "--json"], ["convert", "x.tflite", "--opset", "new", "--json"], ["inspect", "--json", "--nothing"],
     ["verify", "--json", "missing.tflite", "missing.onnx"], ["handlers", "--json", "too", "many"],
     ["bench", "--json"], ["nobody", "--json"], ["new-pack", "d", "--json"]],
)  # fmt: skip
def test_usage_error_as_json(run: Run, arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    error = json.loads(out)["error"]
    assert code == error["exit_code"] == 2
    assert error["message"]
    assert err


@pytest.mark.parametrize("command", ["verify", "bench", "report"])
def test_swapped_models_are_reported(run: Run, folder: Path, command: str) -> None:
    run("convert", folder / "a.tflite")
    code, _, err = run(command, folder / "a.onnx", folder / "a.tflite")
    assert code == 2
    assert "a.tflite is a TFLite model; give the TFLite model first" in err


def test_report_states_that_models_differ(run: Run, folder: Path) -> None:
    """The command prints it too, and refuses a model with different inputs."""
    run("convert", folder / "a.tflite")
    run("convert", folder / "inner" / "b.tflite")
    old = folder / "old.onnx"
    onnx.save(without_digest(onnx.load(folder / "a.onnx")), old)
    _, out, _ = run("report", folder / "inner" / "b.tflite", old, "--seed", 3)
    assert "NOT within tolerance" in out
    command = f"onnx-tflite verify {folder / 'inner' / 'b.tflite'} {old} --seed 3 --bisect DIR"
    assert f"{command} writes the submodels that differ" in " ".join(out.split())
    assert "FAILED" not in run("report", folder / "a.tflite", folder / "a.onnx")[1]
    (folder / "e.tflite").write_bytes(two_inputs())
    code, _, err = run("report", folder / "e.tflite", old)
    assert code == 2
    assert "the ONNX model was probably converted from another file" in err


@pytest.mark.parametrize("command", ["convert", "report"])
def test_page_without_a_comparison_is_reported(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    model, page = [folder / "a.tflite", folder / "a.onnx"], folder / "a.html"
    run("convert", *model)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    options = ["--check", "standard", "--report", page] if command == "convert" else [page]
    code, out, _ = run(command, *model, *options)
    assert code == 0
    assert page.exists()
    assert re.search("warning .*onnxruntime is not installed", out)


@pytest.mark.parametrize("place", ["a.onnx", "a.tflite", "other.onnx", "page"])
def test_report_needs_the_html_suffix(run: Run, folder: Path, place: str) -> None:
    before = (folder / "a.tflite").read_bytes()
    code, _, err = run("convert", folder / "a.tflite", folder / "a.onnx", "--report", folder / place)
    assert code == 2
    assert "the report is a web page; give a name with the suffix .html" in err
    assert not (folder / "a.onnx").exists()
    run("convert", folder / "a.tflite")
    assert run("report", folder / "a.tflite", folder / "a.onnx", folder / place)[0] == 2
    assert (folder / "a.tflite").read_bytes() == before


@pytest.mark.parametrize("command", ["verify", "bench", "report"])
def test_rejects_a_file_that_is_not_an_onnx_model(run: Run, folder: Path, command: str) -> None:
    code, _, err = run(command, folder / "a.tflite", folder / "readme.txt")
    assert code == 2
    assert "readme.txt is not an ONNX model: it is text" in err


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_conversion_of_another_model_is_reported(run: Run, folder: Path, command: str) -> None:
    digits = Path(__file__).parents[2] / "examples" / "digits_{}.tflite"
    run("convert", str(digits).format("int8"), folder / "int8.onnx")
    code, _, err = run(command, str(digits).format("float"), folder / "int8.onnx")
    assert code == 2
    assert "int8.onnx was converted from another TFLite file than digits_float.tflite" in err
    onnx.save(without_digest(onnx.load(folder / "int8.onnx")), folder / "old.onnx")
    code, _, err = run(command, str(digits).format("float"), folder / "old.onnx")
    assert code == 2
    assert "'image' is float32 in the TFLite model, but int8 in the ONNX model" in err


@pytest.mark.parametrize("command", ["convert", "verify"])
@pytest.mark.parametrize("range_option", ["x=5:0", "x=nan:1", "x=0:nan", "x=3"])
def test_invalid_range_is_a_usage_error(run: Run, folder: Path, command: str, range_option: str) -> None:
    code, _, err = run(command, folder / "a.tflite", folder / "a.onnx", "--range", range_option)
    assert code == 2
    assert ("the minimum 5 exceeds the maximum 0" if range_option == "x=5:0" else "NAME=LOW:HIGH") in err


def test_same_problem_is_reported_once_with_its_count(run: Run, tmp_path: Path) -> None:
    builder = ModelBuilder()
    g = builder.main
    tensor = g.input("t0", (1, 5))
    for k in range(30):
        result_tensor = g.tensor(f"t{k + 1}", (1, 5))
        g.operator("CUSTOM.Odd" if k % 2 else "CUSTOM.Strange", [tensor], [result_tensor])
        tensor = result_tensor
    g.output(tensor)
    path = tmp_path / "m.tflite"
    path.write_bytes(builder.build())
    err = run("convert", path)[2]
    assert len(err.splitlines()) < 9
    assert "15 in all" in err
