"""Folders, signatures, streams and terminal width of the command."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.cli import cli
from onnx_tflite_plugin.cli.output import print_error
from tests.helpers.command import Run
from tests.helpers.command_models import model

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


def test_rejects_models_with_the_same_output_path(run: Run, folder: Path) -> None:
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
    assert "is a folder; name the file to write" in run("convert", "-", tmp_path)[2]


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
    text_without_colors = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert max(map(len, text_without_colors.splitlines())) <= 80
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
