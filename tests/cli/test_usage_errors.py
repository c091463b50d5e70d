"""Wrong arguments of the command: message and exit code 2."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import onnx
import pytest

import onnx_tflite_plugin.conversion
import onnx_tflite_plugin.verify
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


@pytest.mark.parametrize("command", ["convert", "verify", "report", "bench"])
def test_negative_seed_is_a_usage_error(run: Run, folder: Path, command: str) -> None:
    model = folder / "a.tflite"
    pair = (model, model) if command == "verify" else (model,)
    code, _, err = run(command, *pair, "--seed", "-1")
    assert (code, err) == (2, "error: --seed: -1 is not in the range x>=0\n")


@pytest.mark.parametrize("command", ["verify", "bench", "report"])
def test_swapped_models_are_reported(run: Run, folder: Path, command: str) -> None:
    run("convert", folder / "a.tflite")
    code, _, err = run(command, folder / "a.onnx", folder / "a.tflite")
    assert code == 2
    assert "a.tflite is a TFLite model; give the TFLite model first" in err


def test_report_states_that_models_differ(run: Run, folder: Path) -> None:
    """The command ``report`` prints the verdict, and refuses a model of other inputs."""
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
    assert "int8.onnx was converted from a different TFLite file, not digits_float.tflite" in err
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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--opset", "999"], "supports opsets 13 to"),
        (["--opset", "new"], "'new' is not a valid integer"),
        (["--target", "toaster"], "'toaster' is not one of"),
        (["--io-layout", "best"], "'best' is not one of"),
        (["--layout", "x"], "names no input; write TENSOR=x, or 0=x for the first input"),
        (["--layout", "x=NHWC"], "give the same 4 letters on both sides"),
        (["--layout", "z=NHWC:NCHW"], "no graph input or output has this name; available names: x, y"),
        (["--layout", "x=NHWC:NCHW", "--layout", "x=NHWC:NHWC"], "'x' is given more than once"),
        (["--layout-plan", "local", "--io-layout", "onnx"], "has no effect; omit"),
        (["--input-shape", "x=1,two/3"], "'two/3' is not a size: give a number, or a name"),
        (["--input-shape", "x=1,-2,3,5"], "'-2' is not a size: give a number, or a name"),
        (["--input-shape", "x=1x2x3x5"], "for a dynamic dimension; separate sizes by commas"),
        (["--verify", "--tolerance", "2.5 %"], "'2.5 %' is not a valid number; 2.5 % is 0.025"),
        (["--verify", "--tolerance", "two"], "--tolerance: 'two' is not a valid number\n"),
        (["--outputs", "why"], "--outputs why: no tensor has this name"),
        (["--outputs", "y, why"], "--outputs why: no tensor has this name"),
        (["--keep-unknown", "--verify"], "no installed runtime can run"),
        (["--signature", "nobody"], "no signature 'nobody'; available signatures: none; leave --signature out"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_invalid_values_are_usage_errors(run: Run, add_path: Path, arguments: list[str], text: str) -> None:
    code, out, err = run("convert", add_path, *arguments)
    assert (code, out) == (2, "")
    assert text in err
    assert {path.name for path in add_path.parent.iterdir()} == {"added.tflite"}


def test_paths_are_checked_before_any_work(
    run: Run, add_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_tflite_plugin.conversion, "convert", pytest.fail)
    (empty := tmp_path / "empty").mkdir()
    for arguments, text in (
        ([tmp_path / "missing.tflite"], "there is no such file"),
        ([empty], "holds no .tflite or .lite file"),
        ([add_path, tmp_path / "no" / "out.onnx"], "there is no folder"),
        ([add_path, add_path / "out.onnx"], "is not a folder"),
        ([add_path, add_path], "is the model itself"),
        ([add_path, os.devnull], "is not a regular file"),
    ):
        code, out, err = run("convert", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert text in err


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind root")
def test_files_without_permission_are_usage_errors(run: Run, add_path: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    assert "cannot be written to" in run("convert", add_path, closed / "out.onnx").err
    add_path.chmod(0)
    assert run("convert", add_path).code == 2


def test_option_of_another_command_names_that_command(run: Run, folder: Path) -> None:
    code, _, err = run("convert", folder / "a.tflite", "--bisect", folder / "parts")
    assert (code, err) == (2, "error: No such option '--bisect'; it is an option of verify\n")


def test_folder_of_models_needs_an_output_folder(run: Run, folder: Path) -> None:
    code, _, err = run("convert", folder, folder / "one.onnx")
    assert code == 2
    assert f"{folder} is a folder of models; name a folder to write into" in err
    assert not (folder / "one.onnx").exists()


def test_output_with_a_slash_must_be_an_existing_folder(run: Run, folder: Path) -> None:
    code, _, err = run("convert", folder / "a.tflite", f"{folder}/new/")
    assert code == 2
    assert f"there is no folder {folder}/new; create it first" in err
    assert not (folder / "new").exists()
    (folder / "new").mkdir()
    assert run("convert", folder / "a.tflite", f"{folder}/new/").code == 0
    assert (folder / "new" / "a.onnx").is_file()
