"""Tests of the Python API: help, typed options, repr, progress and logging."""

from __future__ import annotations

import inspect
import io
import logging
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, InvalidOnnx, Problem, UnsupportedOption
from onnx_tflite_plugin.keywords import keywords_of, name_keywords
from tests.helpers.command import Run

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


def test_help_lists_the_public_functions() -> None:
    text = pydoc.render_doc(otp, renderer=pydoc.plaintext)
    for part in ("convert(source", "inspect(source", "class Conversion", "class Session", "VERSION", "opset: "):
        assert part in text
    functions = text[text.index("FUNCTIONS") : text.rindex("VERSION")]
    assert "verify(tflite, onnx, *, inputs=None" in functions
    assert {"convert", "inspect", "verify", "Conversion", "Session", "__version__"} <= set(dir(otp))
    assert otp.__version__ == version("onnx-tflite-plugin")


def test_callable_package_has_the_signature_of_its_function() -> None:
    from onnx_tflite_plugin.verify.run import verify

    assert inspect.signature(otp.verify) == inspect.signature(verify)


def test_error_for_mismatched_models_is_public() -> None:
    int8 = otp.convert(DIGITS)
    with pytest.raises(
        otp.MismatchedModels, match=r"was converted from a different TFLite file, not digits_float\.tflite"
    ):
        otp.verify(DIGITS.with_name("digits_float.tflite"), int8)


def test_package_import_loads_no_heavy_dependency() -> None:
    script = "import sys, onnx_tflite_plugin; sys.exit(bool({'numpy', 'onnx', 'tflite'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_repr_of_a_conversion_is_short() -> None:
    conversion = otp.convert(DIGITS)
    assert len(repr(conversion)) < 200
    assert "image → probabilities" in repr(conversion)
    assert len(repr(conversion.report)) < 200
    html = conversion._repr_html_()
    assert "<td>image</td>" in html
    assert "InferenceSession" in html


def test_repr_of_other_results_is_short() -> None:
    conversion = otp.convert(DIGITS)
    (image,) = conversion.report.inputs
    assert repr(image).startswith(
        "GraphValue(name='image', dtype='int8', shape=(1, 8, 8, 1), tensor='image', scale=(0.0039"
    )
    assert "range" not in repr(image)
    assert repr(replace(image, labels=("a",) * 1000)).endswith("labels=<1000>)")
    assert repr(otp.Session(conversion)) == "<Session: image → probabilities; no states>"
    verification = otp.verify(DIGITS, conversion, runs=1)
    assert repr(verification).startswith(
        "<Verification: outputs equal; all 7 compared operators agree with LiteRT (XNNPACK and builtin kernels), 1 run;"
    )
    assert repr(verification).endswith("'probabilities': equal (tolerance 1 quantization step)>")


def test_session_accepts_a_conversion_path_or_bytes(tmp_path: Path) -> None:
    conversion = otp.convert(DIGITS)
    (path,) = conversion.save(tmp_path / "digits.onnx")
    feeds = {"image": np.full((1, 8, 8, 1), 7, np.int8)}
    first, *later_results = (
        otp.Session(model).run(feeds) for model in (conversion, path, str(path), path.read_bytes())
    )
    for result in later_results:
        np.testing.assert_array_equal(first["probabilities"], result["probabilities"])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda c: otp.convert(3), TypeError, "not int"),
        (lambda c: otp.convert(DIGITS, progress=3), TypeError, "not int"),
        (lambda c: otp.convert(DIGITS.parent), InvalidModel, "it is a folder (name one model in it"),
        (lambda c: otp.verify(DIGITS, None), TypeError, "onnx is NoneType; pass a path"),
        (lambda c: otp.verify(DIGITS, DIGITS), InvalidOnnx, "it is a TFLite model"),
        (lambda c: otp.verify(DIGITS, c, runs=0), ValueError, "runs is 0; give 1 or more"),
        (lambda c: otp.verify(DIGITS, c, inputs=[1, 2]), TypeError, "inputs must be a mapping from input name"),
        (lambda c: otp.verify(DIGITS, c, inputs=3), TypeError, "not int"),
        (lambda c: c.save(DIGITS.parent), IsADirectoryError, "examples: this is a folder; name the file to write"),
        (lambda c: c.save(DIGITS.parent / "nowhere" / "x.onnx"), FileNotFoundError, "nowhere: there is no such folder"),
        (lambda c: otp.Session(None), TypeError, "not NoneType"),
        (
            lambda c: otp.Session(c).run([1]),
            TypeError,
            "inputs must be a mapping from name to array, not list; pass {'image': array0}",
        ),
    ],
)
def test_wrong_arguments_give_clear_errors(
    call: Callable[[otp.Conversion], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call(otp.convert(DIGITS))


def test_warnings_are_logged_and_in_html(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    conversion = otp.convert(DIGITS, block=["nobody"])
    (text,) = conversion.report.warnings
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [text]
    assert "warning: no op pack" in conversion._repr_html_()
    assert capfd.readouterr() == ("", "")


def test_html_escapes_names() -> None:
    from onnx_tflite_plugin.presentation.graph_io import GraphValue
    from onnx_tflite_plugin.presentation.notebook import as_html

    assert "<script>" not in as_html("a <script>", [GraphValue("<script>x</script>", "float32", (1,))], [], "<script>")


def test_verify_accepts_paths_and_conversions(tmp_path: Path) -> None:
    conversion = otp.convert(DIGITS)
    conversion.save(tmp_path / "digits.onnx")
    assert otp.verify(str(DIGITS), str(tmp_path / "digits.onnx"), runs=1).ok
    assert otp.verify(DIGITS, conversion, runs=1).ok


def test_inspect_returns_the_data_of_the_command() -> None:
    inspection = otp.inspect(DIGITS)
    assert [tensor["name"] for tensor in inspection["inputs"]] == ["image"]
    assert inspection["missing"] == []


def test_progress_is_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    stages: list[str] = []
    with caplog.at_level(logging.INFO, "onnx_tflite_plugin"):
        otp.convert(DIGITS, progress=stages.append, verify=True)
    assert stages[0] == "reading"
    reported = ["planning the layout", "lowering", "checking"]
    assert [stage for stage in stages if stage in reported] == reported
    assert "ONNX Runtime, run 1 of 3" in stages
    logged = [record.getMessage() for record in caplog.records]
    assert [text.rpartition(":")[0] for text in logged] == stages
    assert all(text.endswith(" s") for text in logged)


@pytest.mark.parametrize("call", [otp.convert, otp.inspect, lambda source: otp.verify(source, b"")])
def test_error_on_a_file_object_suggests_its_content(call: Any) -> None:
    with pytest.raises(TypeError, match=r"not BytesIO; pass its content, source.read\(\)"):
        call(io.BytesIO(DIGITS.read_bytes()))
    with pytest.raises(TypeError, match="a model must be a path, bytes or a part of a bundle, not int"):
        call(3)


def test_content_may_be_any_bytes() -> None:
    for content in (bytearray(DIGITS.read_bytes()), memoryview(DIGITS.read_bytes())):
        assert otp.convert(content).report.operators  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: otp.ConvertOptions(taget="x"), "ConvertOptions takes no keyword 'taget'; did you mean 'target'?"),  # type: ignore[call-arg]
        (lambda: otp.convert(DIGITS, runs=3), "'runs'; give it as convert(…, verify=VerifyOptions(runs=…))"),  # type: ignore[call-arg]
        (lambda: otp.convert(DIGITS, output="m.onnx"), "'output'; convert(…).save(PATH) writes the file"),  # type: ignore[call-arg]
        (lambda: otp.convert(DIGITS).verify(opset=18), "'opset'; convert and ConvertOptions take it"),
        (lambda: otp.VerifyOptions(opset=18), "'opset'; convert and ConvertOptions take it"),  # type: ignore[call-arg]
        (lambda: otp.ConvertOptions(input_shape=(1, 8)), "such as {'image': ('N', 224, 224, 3)}"),  # type: ignore[arg-type]
        (lambda: otp.convert(DIGITS, host=3), "host is the int 3; give an onnx_tflite_plugin.host.Host"),  # type: ignore[arg-type]
        (lambda: otp.convert(DIGITS).verify(progress=3), "progress must be a function"),
        (lambda: otp.convert(DIGITS).verify(bisect=3), "bisect is the int 3; give the path of a folder"),
        (lambda: otp.convert(DIGITS).verify(run=1), "verify takes no keyword 'run'; did you mean 'runs'?"),
        (
            lambda: otp.convert(DIGITS, input_shape={"image": (None, 8, 8, 1)}),  # type: ignore[dict-item]
            "for a dynamic dimension give a name such as 'N'",
        ),
        (lambda: otp.Session(otp.convert(DIGITS)).run([1]), "pass {'image': array0}"),  # type: ignore[arg-type]
        (lambda: otp.Session(otp.convert(DIGITS)).restore(3), "pass the result of save()"),  # type: ignore[arg-type]
    ],
)
def test_type_error_has_a_remedy(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        call()


def test_session_takes_a_model_proto_and_explains_positions() -> None:
    session = otp.Session(otp.convert(DIGITS).proto)
    with pytest.raises(ValueError, match=re.escape("position 0 is session.inputs[0].name")):
        session.run({0: np.zeros((1, 8, 8, 1), np.int8)})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "--opset 9: target t supports 13; choose another --target",
            "opset=9: target t supports 13; choose another target",
        ),
        ("--input-shape x=N,8,1: there is", "input_shape={'x': ('N', 8, 1)}: there is"),
        ("--input-shape 0: 'a' is given twice", "input_shape['0']: 'a' is given twice"),
        ("--outputs q: no tensor has this name", "outputs=['q']: no tensor has this name"),
        ("set it with --input-shape", "set it with input_shape"),
        ("omit --dynamic-batch; use --signature all", "omit dynamic_batch=True; use signature='all'"),
        ("--optimize speed or --optimize with", "optimize='speed' or optimize with"),
        ("use --target tensorrt, or --target of another", "use target='tensorrt', or target of another"),
        ("--nothing 3", "--nothing 3"),
        ("(set it with --input-shape x=...)", "(set it with input_shape={'x': ...})"),
        ("--unroll N unrolls loops; --bisect DIR writes", "unroll=N unrolls loops; bisect DIR writes"),
    ],
)
def test_messages_in_python_name_keywords(text: str, expected: str) -> None:
    assert keywords_of(text) == expected


def test_option_errors_name_keywords_in_python_only(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOption, match=r"^opset=9: "):
        otp.convert(DIGITS, opset=9)
    assert run("convert", DIGITS, tmp_path / "m.onnx", "--opset", "9").err.startswith("error: --opset 9: ")


def test_problems_name_keywords_in_python() -> None:
    @name_keywords()
    def refuse() -> None:
        raise ConversionError("no", [Problem("op 0", "needs --opset 18", "try --quantization float")])

    with pytest.raises(ConversionError) as caught:
        refuse()
    assert str(caught.value.problems[0]) == "op 0: needs opset=18 (try quantization='float')"
    assert "needs opset=18" in str(caught.value)


def test_help_names_keywords() -> None:
    for documented in (otp.convert, otp.ConvertOptions, otp.VerifyOptions):
        assert "--" not in (documented.__doc__ or ""), documented


def test_unknown_name_of_the_package_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conver'; did you mean 'convert'"):
        _ = otp.conver
    assert issubclass(otp.VerificationError, otp.ConversionError)
