"""Errors for common mistakes of users have a remedy."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.graph.ort_ports import Port, check_array
from tests.helpers.command import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits_int8.tflite"


def test_error_on_floats_has_code_to_quantize_them() -> None:
    session = otp.Session(otp.convert(DIGITS))
    floats = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 8, 8, 1)
    with pytest.raises(ValueError, match="normalized values: ") as caught:
        session.run({"image": floats})
    advice = str(caught.value).partition("normalized values: ")[2]
    quantized = eval(advice, {"np": np, "array": floats})
    assert quantized.dtype == np.int8
    assert (quantized.min(), quantized.max()) == (-128, 127)
    session.run({"image": quantized})


@pytest.mark.parametrize(
    ("port", "expression"),
    [
        (
            Port("x", "uint8", (1, 8, 8, 3), (1 / 127.5,), (127,), 0, (127.5,) * 3, (127.5,) * 3),
            "array.astype('uint8')",
        ),
        (Port("x", "uint8", (1, 8, 8, 3), (1 / 128,), (128,)), "array.astype('uint8')"),
        (Port("x", "int8", (1, 8, 8, 3), (1 / 255,), (-128,)), "(array - 128).astype('int8')"),
    ],
)
def test_pixels_need_a_cast_only_if_quantization_undoes_normalization(port: Port, expression: str) -> None:
    pixels = np.arange(192, dtype=np.float32).reshape(1, 8, 8, 3)
    with pytest.raises(ValueError, match="pixels 0 to 255: ") as caught:
        check_array(pixels, port)
    assert f"pixels 0 to 255: {expression}; normalized values: np.clip(" in str(caught.value)


@pytest.mark.parametrize(
    "port",
    [
        Port("x", "uint8", (1, 8), (1 / 255,), (0,)),  # not an image
        Port(
            "x", "uint8", (1, 8, 8, 3), (1 / 127.5,), (127,), 0, (0.0,), (1.0,)
        ),  # the author states another normalization
        Port("x", "uint8", (1, 8, 8, 3), (0.5,), (10,)),
        Port("x", "int16", (1, 8, 8, 3), (1.0,), (0,)),
    ],
)
def test_error_on_other_floats_has_code_to_quantize_them(port: Port) -> None:
    with pytest.raises(ValueError, match="quantize it: "):
        check_array(np.zeros((1, 8), np.float32), port)


def test_error_on_other_signedness_has_code_to_shift() -> None:
    session = otp.Session(otp.convert(DIGITS))
    pixels = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1) * 4
    with pytest.raises(ValueError, match=r"quantized values of scale .* and zero point -128") as caught:
        session.run({"image": pixels})
    shifted = eval(str(caught.value).partition("shift it: ")[2], {"array": pixels})
    np.testing.assert_array_equal(shifted.astype(int) + 128, pixels)


def test_error_on_integers_has_code_to_convert_them() -> None:
    session = otp.Session(otp.convert(EXAMPLES / "digits_float.tflite"))
    with pytest.raises(ValueError, match=r"convert the array if intended: array\.astype\('float32'\)"):
        session.run({"image": np.zeros((1, 8, 8, 1), np.int8)})


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--verify", "partial"), "attach the value to --verify with '=': --verify=partial"),
        (("--dtype", "float16"), "--quantization float converts quantized operators to float32"),
    ],
)
def test_option_of_another_tool_gets_a_remedy(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], remedy: str
) -> None:
    result = run("convert", DIGITS, tmp_path / "m.onnx", *arguments)
    assert result.code == 2
    assert remedy in " ".join(result.err.split())


def test_verify_suggests_a_similar_keyword() -> None:
    with pytest.raises(TypeError, match="verify takes no keyword 'run'; did you mean 'runs'"):
        otp.verify(DIGITS, otp.convert(DIGITS), run=5)  # type: ignore[call-arg]


def test_inspect_reads_a_model_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(DIGITS.read_bytes()))
    monkeypatch.setattr("sys.stdin", stdin)
    result = run("inspect", "-")
    assert result.code == 0
    assert "image  int8 [1, 8, 8, 1]" in result.out


def test_unknown_pack_error_does_not_suggest_an_index(run: Run) -> None:
    result = run("conformance", "--pack", "nosuch")
    assert result.code == 1
    assert "pip install nosuch" not in result.err
    assert "pip install -e DIR" in result.err


def test_conversion_has_a_verify_method() -> None:
    assert otp.convert(DIGITS).verify().ok
    assert otp.convert(DIGITS.read_bytes()).verify(runs=1).runs == 1


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("number", "code", "text"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated by signal 15 (SIGTERM)"),
        (getattr(signal, "SIGHUP", 1), 129, "terminated by signal 1 (SIGHUP)"),
    ],
)
def test_signal_stops_the_command_within_a_second(number: int, code: int, text: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "onnx_tflite_plugin", "convert", "-", str(tmp_path / "model.onnx")]

    def restore_default() -> None:  # nohup and background jobs ignore some signals
        signal.signal(number, signal.SIG_DFL)

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=restore_default
    ) as process:
        time.sleep(1.5)  # it waits for its stdin
        process.send_signal(number)
        start = time.monotonic()
        _, err = process.communicate()
        assert time.monotonic() - start < 1
    assert process.returncode == code
    assert err.splitlines() == [f"error: {text}", "  nothing was written"]


@pytest.mark.parametrize(
    "start",
    [
        'import runpy; runpy.run_module("onnx_tflite_plugin", run_name="__main__")',
        'from importlib.metadata import entry_points; entry_points(group="console_scripts")["onnx-tflite"].load()',
    ],
)
def test_early_interruption_has_no_traceback(start: str) -> None:
    code = dedent(f"""
        import sys
        class Interrupts:
            def find_spec(self, name, *_):
                if name == "onnx_tflite_plugin.cli":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupts())
        {start}
    """)
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stderr) == (130, "error: interrupted\n")


def test_bench_warns_of_noise_and_too_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    calm, noisy = SimpleNamespace(low=1.0, high=1.2), SimpleNamespace(low=1.0, high=1.7)
    module = import_module("onnx_tflite_plugin.cli.bench")
    monkeypatch.setattr(module, "available_processors", lambda: 2)
    warnings = module._warnings
    assert warnings(SimpleNamespace(threads=2, litert=calm, onnxruntime=calm)) == []
    threads, noise = warnings(SimpleNamespace(threads=3, litert=calm, onnxruntime=noisy))
    assert "3 threads share 2 processors" in threads
    assert "ONNX Runtime vary by more than 50%" in noise


def test_conformance_without_litert_names_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    result = run("conformance", "--op", "ADD")
    assert (result.code, result.out.strip()) == (2, "")
    assert result.err.startswith(
        'error: ai-edge-litert is not installed: pip install "onnx-tflite-plugin[verify]", or its packages: pip install '
    )
    assert {"ai-edge-litert", "onnxruntime"} <= set(result.err.rpartition("pip install ")[2].split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convrt", "a.tflite"], "No such command 'convrt'; did you mean 'convert'?"),
        (["a.tflite"], "No such command 'a.tflite'; to convert it: otp convert a.tflite"),
        (["zzz"], "error: No such command 'zzz'\n"),
        (["convert", DIGITS, "--opset", "abc"], "error: --opset: 'abc' is not a valid integer\n"),
        (["convert", DIGITS, "--layuot", "x"], "error: No such option '--layuot'; did you mean '--layout'?\n"),
        (["convert", DIGITS, "--zzz"], "error: No such option '--zzz'\n  hint: otp convert --help lists the options\n"),
        (["convert"], "error: Missing argument 'MODEL'\n  hint: otp convert [OPTIONS] MODEL [MODEL.onnx]\n"),
        (["convert", DIGITS, "--optimize", "redable"], "; did you mean 'readable'?\n"),
        (["convert", DIGITS, "--target", "trt"], "; did you mean 'tensorrt'?\n"),
        (["bench", DIGITS, "--repeat", "3"], "error: No such option '--repeat'; did you mean '--rounds'?\n"),
        (["convert", EXAMPLES / "language_model.tflite", "--signature", "decod"], "; did you mean 'decode'?"),
        (["convert", DIGITS, "-o", "a.onnx"], "'-o': give the output file as an argument: MODEL [MODEL.onnx]"),
        (["convert", DIGITS, "--output=a.onnx"], "'--output': give the output file as an argument: MODEL [MODEL.onnx]"),
        (["convert", DIGITS, "--outputs", "a.onnx"], "give the output file as an argument: convert MODEL MODEL.onnx"),
        (["convert", DIGITS, "--outputs", "zzz"], "some names: image, probabilities, logits"),
        (
            ["convert", DIGITS, "--input-shape", "0=-1,8,8,1"],
            "'-1' is not a size: give a number, or a name for a dynamic",
        ),
        (["convert", DIGITS, "--range", "0=a:b"], "'0=a:b' is not of the form NAME=LOW:HIGH\n"),
        (
            ["convert", EXAMPLES / "language_model.tflite", "--signature", "x"],
            "available signatures: 'prefill_5', 'decode'\n",
        ),
    ],
)
def test_misspelled_arguments_get_suggestions(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_extra_argument_error_suggests_a_folder(run: Run) -> None:
    result = run("convert", "a.tflite", "b.onnx", "c.tflite")
    assert result.code == 2
    assert "convert takes MODEL and [MODEL.onnx], but got an extra argument 'c.tflite'" in result.err
    assert "to convert several models, give their folder" in result.err
    assert "verify takes MODEL.tflite and MODEL.onnx, but got an extra argument 'c'" in run("verify", "a", "b", "c").err


@pytest.mark.parametrize("flag", ["--outputs", "--inputs-at"])
def test_unknown_tensor_error_lists_names(run: Run, tmp_path: Path, flag: str) -> None:
    result = run("convert", DIGITS, tmp_path / "d.onnx", flag, "nosuch")
    assert f"{flag} nosuch: no tensor has this name; some names: image, probabilities, logits, features" in result.err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tolerance": "x"}, "tolerance is the str 'x'.*; give float or None"),
        ({"runs": "a"}, "runs is the str 'a'.*; give int"),
        ({"seed": 1.5}, "seed is the float 1.5.*; give int"),
        ({"ranges": 3}, "ranges is the int 3.*; give a mapping"),
        (
            {"inputs": 5},
            "inputs must be a mapping from input name to array, a sequence of such mappings, or a path, not int",
        ),
    ],
)
def test_verify_names_arguments_of_wrong_type(options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        otp.verify(DIGITS, otp.convert(DIGITS), **options)


def test_verify_reports_rounded_inputs() -> None:
    model = EXAMPLES / "digits_float.tflite"
    conversion = otp.convert(model)
    image = np.linspace(0, 1, 64).reshape(1, 8, 8, 1)
    note = "input 'image': the given float64 values were rounded to the model's float32"
    assert note in otp.verify(model, conversion, inputs={"image": image}).text
    assert note not in otp.verify(model, conversion, inputs={"image": np.zeros((1, 8, 8, 1))}).text
    assert note not in otp.verify(model, conversion, inputs={"image": image.astype(np.float32)}).text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["", "m.onnx"], "MODEL: the path is empty; a shell variable may be unset"),
        (["https://host/m.tflite"], "https://host/m.tflite is an address, not a file; download the file first"),
        ([DIGITS, "--tolerance", "1%"], "--tolerance: '1%' is not a valid number"),
        ([DIGITS, "--opset", "new"], "--opset: 'new' is not a valid integer"),
        ([DIGITS, "--range", "image=5:1"], "--range: 'image=5:1': the minimum 5 exceeds the maximum 1"),
    ],
)
def test_error_names_what_is_wrong_with_the_value(run: Run, arguments: list[str], message: str) -> None:
    result = run("convert", *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_negative_size_in_python_is_answered_with_a_name() -> None:
    with pytest.raises(otp.ConversionError, match=r"-1 is not a size; give a number, or a name such as 'N'"):
        otp.convert(DIGITS, input_shape={"image": (-1, 8, 8, 1)})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--input-shape", "1,16,16,1"), "'1,16,16,1' names no input; write NAME=1,16,16,1, or 0=1,16,16,1"),
        (("--input-shape", "7=1,16,16,1"), "no graph input has this position, only 0; the model's inputs are image"),
        (("--input-shape", "imag=1,8,8,1"), "the model's inputs are image; did you mean 'image'?"),
        (("--layout", "imag=NHWC:NCHW"), "available names: image, probabilities; did you mean 'image'?"),
    ],
)
def test_unknown_input_is_reported_with_those_of_the_model(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run("convert", DIGITS, tmp_path / "m.onnx", *arguments)
    assert result.code == 2
    assert message in " ".join(result.err.split())


def test_missing_file_has_a_remedy(run: Run, tmp_path: Path) -> None:
    assert "did you mean 'digits_int8.tflite'?" in run("convert", DIGITS.with_name("digits_int9.tflite")).err
    assert "there is no folder" in run("convert", tmp_path / "none" / "m.tflite").err


def test_refusal_before_any_work_reports_that_nothing_was_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_text("some text")
    assert run("convert", tmp_path / "m.tflite", tmp_path / "m.onnx").err.splitlines()[-1] == "  nothing was written"
