"""The command ``convert``: messages, exit codes and written files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnx_tflite_plugin as otp
import onnx_tflite_plugin.conversion
import onnx_tflite_plugin.verify
from conformance.builder import ModelBuilder, quant
from tests.helpers.command import Run
from tests.helpers.command_models import unary

INT8 = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


@pytest.fixture
def unsupported_path(tmp_path: Path) -> Path:
    """Write a model whose operator has no handler."""
    path = tmp_path / "refused.tflite"
    path.write_bytes(unary("CUSTOM.Nobody Knows"))
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# --- success ----------------------------------------------------------------------------------


def test_model_is_written_next_to_its_source_with_a_summary(run: Run, add_path: Path) -> None:
    result = run("convert", add_path, "-v")
    onnx_path = add_path.with_suffix(".onnx")
    assert result.code == 0
    assert result.err == ""
    assert [node.op_type for node in onnx.load(onnx_path).graph.node] == ["Add"]
    for text in (str(onnx_path), "bytes", "onnxruntime, opset 18", "1: 1 ADD", "1: 1 Add", "optimal: no Transpose"):
        assert text in result.out
    assert names(add_path.parent) == {"added.tflite", "added.onnx"}


def test_conversion_time_excludes_verification(run: Run, add_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = onnx_tflite_plugin.verify.verify

    def verify_slowly(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.5)
        return verify(*arguments, **options)

    monkeypatch.setattr(onnx_tflite_plugin.verify, "verify", verify_slowly)
    start = time.perf_counter()
    report = json.loads(run("convert", add_path, "--verify", "--json").out)
    assert report["verification_seconds"] >= 0.5
    assert report["seconds"] + report["verification_seconds"] <= time.perf_counter() - start


def test_stdout_has_only_json(run: Run, add_path: Path, tmp_path: Path) -> None:
    result = run("convert", add_path, tmp_path / "out.onnx", "--json")
    report = json.loads(result.out)
    assert result.err == ""
    assert report["output"] == str(tmp_path / "out.onnx")
    assert report["files"] == [{"path": report["output"], "bytes": (tmp_path / "out.onnx").stat().st_size}]
    assert report["operators"] == {"ADD": 1}
    assert report["opset"] == 18
    assert report["transposes"] == 0
    assert report["verification"] is None


def test_quiet_prints_nothing(run: Run, add_path: Path) -> None:
    assert run("convert", add_path, "--quiet") == (0, "", "")


def test_summary_is_brief_unless_verbose(run: Run, tmp_path: Path) -> None:
    labels = {}
    for flags in ((), ("-v",), ("-vv",)):
        result = run("convert", INT8, tmp_path / "out.onnx", "--verify", *flags)
        assert result.code == 0
        labels[flags] = [line[:12].strip() for line in result.out.splitlines()]
    assert labels[()] == ["wrote", "inputs", "outputs", "verified", "next", ""]
    assert {"run it", "target", "operators", "layout", "rewritten"} <= set(labels["-v",])
    assert "op 0" not in labels["-v",]
    assert {f"op {index}" for index in range(7)} <= set(labels["-vv",])


def test_vv_prints_everything_to_stdout_in_groups(run: Run, tmp_path: Path) -> None:
    code, out, err = run("convert", INT8, tmp_path / "out.onnx", "-vv")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    start = next(k for k, line in enumerate(lines) if "fold_depthwise (columns are folded into channels" in line)
    assert lines[start + 1].strip() == "1 place: there are more than 8 channels"
    assert next(line for line in lines if line.startswith("not applied"))
    assert next(line for line in lines if line.startswith("whole model")).split()[2:4] == [
        "'int8_products_are_exact':",
        "1",
    ]
    assert next(line for line in lines if line.startswith("op 6 ")).split()[:4] == [
        "op",
        "6",
        "softmax",
        "'probabilities':",
    ]
    assert [stage in lines[-1] for stage in ("reading ", "rewriting ", "checking ")] == [True] * 3
    assert lines[-1].startswith("times ")


def test_vv_prints_nothing_if_quiet(run: Run, tmp_path: Path) -> None:
    assert run("convert", INT8, tmp_path / "out.onnx", "--quiet", "-vv") == (0, "", "")


def test_options_reach_the_conversion(run: Run, add_path: Path, tmp_path: Path) -> None:
    arguments = [
        "--opset",
        15,
        "--target",
        "generic",
        "--layout-plan",
        "local",
        "--optimize",
        "speed",
        "--weights-dtype",
        "keep",
    ]
    arguments += ["--layout", "x=NHWC:NCHW", "--block", "a", "--block", "b", "--packs", "builtin", "--json"]
    report = json.loads(run("convert", add_path, tmp_path / "out.onnx", *arguments).out)
    assert (report["opset"], report["target"], report["layout"]) == (15, "generic", "local")
    (x,) = onnx.load(tmp_path / "out.onnx").graph.input
    assert [size.dim_value for size in x.type.tensor_type.shape.dim] == [1, 5, 2, 3]


def test_layout_is_split_at_the_last_equals_sign(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "odd.tflite"
    path.write_bytes(unary("ADD", name="a=b:c"))
    assert run("convert", path, "--layout", "a=b:c=NHWC:NCHW").code == 0


def test_verification_is_in_summary_and_json(run: Run, add_path: Path) -> None:
    assert "verified" in run("convert", add_path, "--verify").out
    verification = json.loads(run("convert", add_path, "--verify", "--json").out)["verification"]
    assert verification["ok"]
    assert [output["name"] for output in verification["outputs"]] == ["y"]


# --- exit code 1: refused ---------------------------------------------------------------------


def test_refusal_prints_the_next_step_on_stderr(run: Run, unsupported_path: Path) -> None:
    code, out, err = run("convert", unsupported_path)
    assert (code, out) == (1, "")
    first, problem, hint, note = err.splitlines()
    assert first == "error: operators that cannot be converted:"
    assert problem == "  CUSTOM.Nobody Knows v1 (op 0, output 'y'): no installed pack has a handler for it"
    assert hint.startswith("    hint: ")
    assert "new-pack DIR --op CUSTOM.Nobody%20Knows" in hint
    assert note == f"  {unsupported_path.with_suffix('.onnx')} was not written"
    assert names(unsupported_path.parent) == {"refused.tflite"}


def test_refusal_keeps_the_output_of_an_earlier_run(run: Run, unsupported_path: Path) -> None:
    older = unsupported_path.with_suffix(".onnx")
    older.write_bytes(b"older")
    assert " is unchanged" in run("convert", unsupported_path).err
    assert older.read_bytes() == b"older"


def test_refusal_as_json(run: Run, unsupported_path: Path) -> None:
    code, out, err = run("convert", unsupported_path, "--json")
    error = json.loads(out)["error"]
    assert code == error["exit_code"] == 1
    assert error["kind"] == "UnsupportedOperator"
    assert error["problems"][0]["where"].startswith("CUSTOM.Nobody Knows")
    assert err.startswith("error: ")


def test_truncates_a_long_list_of_problems(run: Run, tmp_path: Path) -> None:
    model = ModelBuilder()
    g = model.main
    tensor = g.input("x", (1,))
    for k in range(50):
        result_tensor = g.tensor(f"t{k}", (1,))
        g.operator(f"CUSTOM.Op{k}", [tensor], [result_tensor])
        tensor = result_tensor
    g.output(tensor)
    path = tmp_path / "many.tflite"
    path.write_bytes(model.build())
    lines = run("convert", path).err.splitlines()
    assert len(lines) == 24
    assert "50 problems in all; --json lists them" in lines[-2]
    assert len(json.loads(run("convert", path, "--json").out)["error"]["problems"]) == 50


def test_rejects_a_file_of_another_format(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "text.tflite"
    path.write_text("not a model at all")
    code, _, err = run("convert", path)
    assert code == 1
    assert "not a TFLite file" in err


def test_escapes_control_characters_in_names(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "control.tflite"
    path.write_bytes(unary("CUSTOM.\x1b[2Jrude\rname"))
    err = run("convert", path).err
    assert r"CUSTOM.\x1b[2Jrude\rname" in err
    assert "\x1b[2J" not in err


# --- exit code 2: usage -----------------------------------------------------------------------


def test_unsupported_operator_is_kept_as_a_node_on_request(run: Run, tmp_path: Path) -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 2, 3, 5), "int8", quantization=quant(0.5, 7))
    y, z = (g.tensor(name, (1, 2, 3, 5), "int8", quantization=quant(0.5, 7)) for name in "yz")
    options = {"alpha": 0.5, "size": 3, "name": "n", "sides": [2, 5]}
    g.operator("CUSTOM.Nobody Knows", [x], [y], custom_options=options)
    g.operator("CUSTOM.nor.this::one", [y, x], [z], custom_options=b"\x00\xff")
    g.output(z)
    path = tmp_path / "unknown.tflite"
    path.write_bytes(model.build())
    result = run("convert", path, "--keep-unknown")
    assert result.code == 0
    assert "CUSTOM.Nobody Knows is kept as a node of domain tflite.custom" in result.out
    assert "for a runtime that has a kernel: no installed pack has a handler for it" in " ".join(result.out.split())
    proto = onnx.load(path.with_suffix(".onnx"))
    onnx.checker.check_model(proto)
    first, second = proto.graph.node
    assert (first.domain, first.op_type, second.op_type) == ("tflite.custom", "Nobody Knows", "nor.this::one")
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in first.attribute}
    assert attributes == {"alpha": 0.5, "size": 3, "name": b"n", "sides": [2, 5]}
    (raw,) = second.attribute
    assert onnx.numpy_helper.to_array(raw.t).tolist() == [0, 255]
    assert list(second.input) == ["y", "x"]
    (info,) = (info for info in proto.graph.value_info if info.name == "y")
    assert info.type.tensor_type.elem_type == onnx.TensorProto.INT8


def test_output_in_a_folder_keeps_the_model_name(run: Run, add_path: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "out").mkdir()
    assert run("convert", add_path, folder).code == 0
    assert names(folder) == {"added.onnx"}


def test_missing_extra_error_has_the_pip_command(run: Run, add_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, out, err = run("convert", add_path, "--verify")
    assert (code, out) == (2, "")
    assert 'pip install "onnx-tflite-plugin[verify]"' in err
    assert names(add_path.parent) == {"added.tflite"}


# --- exit code 3: verification, and unexpected errors -----------------------------------------


def test_model_that_fails_verification_is_not_written(
    run: Run, add_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = onnx_tflite_plugin.verify.verify
    wrong = ModelBuilder()
    g = wrong.main
    x, y = g.input("x", (1, 2, 3, 5)), g.tensor("y", (1, 2, 3, 5))
    g.operator("MUL", [x, x], [y])
    g.output(y)
    monkeypatch.setattr(onnx_tflite_plugin.verify, "verify", lambda data, model, **_: verify(wrong.build(), model))
    code, out, err = run("convert", add_path, "--verify")
    assert (code, out) == (3, "")
    assert "does not agree with LiteRT" in err
    assert names(add_path.parent) == {"added.tflite"}


def failing_function(error: BaseException) -> Callable[..., Any]:
    def fail(*arguments: object, **options: object) -> Any:
        raise error

    return fail


def test_internal_error_is_short_and_has_a_remedy(run: Run, add_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_tflite_plugin.conversion, "convert", failing_function(ZeroDivisionError("by nothing")))
    code, out, err = run("convert", add_path)
    assert (code, out) == (1, "")
    assert "internal error: ZeroDivisionError: by nothing" in err
    assert "please report it" in err
    assert "Traceback" not in err
    monkeypatch.setenv("ONNX_TFLITE_PLUGIN_DEBUG", "1")
    assert "Traceback" in run("convert", add_path).err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device"), MemoryError()])
def test_failed_write_leaves_no_file(
    run: Run, add_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(os, "replace", failing_function(error))
    code, out, err = run("convert", add_path)
    assert out == ""
    assert code == {KeyboardInterrupt: 130, OSError: 2, MemoryError: 1}[type(error)]
    assert "was not written" in err
    assert names(add_path.parent) == {"added.tflite"}


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_terminated_process_leaves_no_file(add_path: Path) -> None:
    kill_on_replace = "import os, signal; os.replace = lambda *arguments: os.kill(os.getpid(), signal.SIGTERM)"
    script = f"{kill_on_replace}; from onnx_tflite_plugin.cli import main; main()"
    completed = subprocess.run([sys.executable, "-c", script, "convert", str(add_path)], capture_output=True)
    assert completed.returncode == 143
    assert names(add_path.parent) == {"added.tflite"}


# --- defaults ---------------------------------------------------------------------------------


def test_command_writes_the_result_of_the_function(run: Run, tmp_path: Path) -> None:
    digits = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
    result = run("convert", digits, tmp_path / "digits.onnx", "-v")
    assert (
        "adjacent columns of the image are folded into channels of the first convolution, for speed: 1 place"
        in result.out
    )
    assert onnx.load(tmp_path / "digits.onnx").SerializeToString() == otp.convert(digits).proto.SerializeToString()


# --- output ----------------------------------------------------------------------------------


def test_terminal_output_has_colors_but_names_have_no_markup(
    run: Run, add_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    path = add_path.with_name("[red]markup[-1].tflite")
    add_path.rename(path)
    out = run("convert", path).out
    assert "\x1b[" in out
    assert "[red]markup[-1].onnx" in out
