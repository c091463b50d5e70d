"""Wrong arguments of the command: message and exit code 2."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import onnx
import pytest

from tests.helpers.command import Run
from tests.helpers.command_models import two_inputs
from tests.helpers.wrong_models import without_digest


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
