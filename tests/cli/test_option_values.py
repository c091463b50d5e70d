"""Values of command options: dimensions, verification data, paths and names."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.cli import batch
from onnx_tflite_plugin.cli.command_files import CommandFiles
from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.cli.jobs import STREAM, Job, collect_jobs
from onnx_tflite_plugin.cli.options import _parse_range, _parse_sizes, _split_names, pair_callback
from onnx_tflite_plugin.cli.paths import check_pair, check_readable, check_writable, join_command
from onnx_tflite_plugin.errors import VerificationError
from tests.helpers.command import Run


@pytest.fixture
def neg_path(tmp_path: Path) -> Path:
    """Write a model that converts."""
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
    g.operator("NEG", [x], [y])
    g.output(y)
    path = tmp_path / "negated.tflite"
    path.write_bytes(model.build())
    return path


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sizes"), [("1,224,3", (1, 224, 3)), (" N , 5", ("N", 5)), ("batch_1", ("batch_1",)), ("0", (0,))]
)
def test_dimensions_are_numbers_or_names(text: str, sizes: tuple[int | str, ...]) -> None:
    assert _parse_sizes(text) == sizes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not of the form NAME=N,224"),
        ("1,", "'' is not a size"),
        ("-1", "'-1' is not a size"),
        ("1.5", "'1.5' is not a size"),
        ("a b", "'a b' is not a size"),
        ("1,?", r"'\?' is not a size"),
    ],
)
def test_rejects_invalid_dimensions(text: str, message: str) -> None:
    parse: Any = pair_callback("NAME=N,224", _parse_sizes)
    with pytest.raises(click.BadParameter, match=message):
        parse(None, None, [f"x={text}"])


def test_tensor_names_may_be_separated_by_commas() -> None:
    ctx: Any = None
    assert _split_names(ctx, ctx, ["a,b", ",c", ""]) == ("a", "b", "c")


@pytest.mark.parametrize("text", ["1", "1:", ":1", "2:1", "nan:1", "a:b"])
def test_rejects_invalid_ranges(text: str) -> None:
    parse: Any = pair_callback("NAME=LOW:HIGH", _parse_range)
    message = "'x=2:1': the minimum 2 exceeds the maximum 1" if text == "2:1" else "is not of the form NAME=LOW:HIGH"
    with pytest.raises(click.BadParameter, match=message):
        parse(None, None, [f"x={text}"])


@pytest.mark.parametrize(("text", "span"), [("-1:1", (-1, 1)), ("0.5:0.5", (0.5, 0.5)), ("-1e3:-1", (-1000, -1))])
def test_parses_ranges(text: str, span: tuple[float, float]) -> None:
    assert _parse_range(text) == span


def test_pairs_split_at_the_last_equals_sign_and_are_unique() -> None:
    parse: Any = pair_callback("NAME=N", int)
    assert parse(None, None, ["a=b=1", "c=2"]) == {"a=b": 1, "c": 2}
    for wrong in ("a=", "=1", "a"):
        with pytest.raises(click.BadParameter, match=r"is not of the form NAME=N|'a' names no input; write NAME=a"):
            parse(None, None, [wrong])
    with pytest.raises(click.BadParameter, match="is not of the form NAME=TEXT"):
        pair_callback("NAME=TEXT", str)(None, None, ["a="])  # type: ignore[call-arg]
    with pytest.raises(click.BadParameter, match="'a' is given more than once"):
        parse(None, None, ["a=1", "a=1"])


# --- a conversion -----------------------------------------------------------------------------


def test_names_give_dynamic_and_numbers_fixed_dimensions(run: Run, neg_path: Path) -> None:
    assert run("convert", neg_path, "--input-shape", "x=N,5").code == 0
    (x,) = onnx.load(neg_path.with_suffix(".onnx")).graph.input
    n, five = x.type.tensor_type.shape.dim
    assert (n.dim_param, five.dim_value) == ("N", 5)


@pytest.mark.parametrize(
    ("options", "runs"),
    [([], None), (["--verify"], 3), (["--runs", 2], 2), (["--seed", 0], 3), (["--range", "x=0:1"], 3)],
)
def test_data_options_imply_verification(run: Run, neg_path: Path, options: list[object], runs: int | None) -> None:
    output = json.loads(run("convert", neg_path, "--json", *options).out)
    assert (output["verification"] or {}).get("runs") == runs
    assert 0 <= output["seconds"] < 60


def test_inputs_and_tolerance_reach_verification(run: Run, neg_path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((2, 3), np.float32))
    output = json.loads(run("convert", neg_path, "--json", "--inputs", tmp_path / "in.npz", "--tolerance", 0.25).out)
    assert output["verification"]["runs"] == 1
    assert output["verification"]["outputs"][0]["tolerance"] == 0.25


# --- input and output paths -------------------------------------------------------------------


def test_output_path_defaults_to_the_source_folder(neg_path: Path, tmp_path: Path) -> None:
    expected_job = Job(str(neg_path), neg_path, neg_path.with_suffix(".onnx"), "key")
    assert collect_jobs(neg_path, None, "key") == ([expected_job], True)
    (folder := tmp_path / "folder").mkdir()
    assert collect_jobs(neg_path, folder, None)[0][0].output == folder / "negated.onnx"
    assert collect_jobs(neg_path, STREAM, None)[0][0].output == STREAM


def test_folder_models_are_sorted_and_suffixes_ignore_case(neg_path: Path, tmp_path: Path) -> None:
    content = neg_path.read_bytes()
    neg_path.unlink()
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "d.tflite").mkdir()
    for name in ("z.TFLITE", "b/c/a.lite", "b/n.txt"):
        (tmp_path / name).write_bytes(content)
    out = tmp_path / "out"
    planned_jobs, is_single = collect_jobs(tmp_path, out, None)
    assert not is_single
    assert [(job.name, job.output) for job in planned_jobs] == [
        ("b/c/a.lite", out / "b" / "c" / "a.onnx"),
        ("z.TFLITE", out / "z.onnx"),
    ]


def test_folder_that_cannot_be_created_is_reported(neg_path: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    neg_path.rename(tmp_path / "models" / "a.tflite")
    (tmp_path / "file").touch()
    outputs = CommandFiles()
    collect_jobs(tmp_path / "models", tmp_path / "file" / "out", None, outputs)
    with pytest.raises(UsageProblem, match=r"the folder .*out cannot be created: Not a directory"):
        outputs.prepare(folders=True)


def test_file_in_place_of_the_output_folder_is_reported(neg_path: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    neg_path.rename(tmp_path / "models" / "a.tflite")
    (file := tmp_path / "file.onnx").touch()
    outputs = CommandFiles()
    collect_jobs(tmp_path / "models", file, None, outputs)
    with pytest.raises(UsageProblem, match=r"file\.onnx is a file, but the models need a folder"):
        outputs.prepare(folders=True)


def test_missing_input_data_is_reported_with_the_option(run: Run, neg_path: Path) -> None:
    code, _, err = run("verify", neg_path, neg_path, "--inputs", "no.npz")
    assert code == 2
    assert f"error: --inputs no.npz: there is no such file or folder; relative paths begin at {Path.cwd()}" in err


def bundle(path: Path, name: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "content")
    return path


def test_bundle_needs_a_folder_as_output(tmp_path: Path) -> None:
    for source, output in (
        (bundle(tmp_path / "bundle", "a.tflite"), None),
        (bundle(tmp_path / "b.task", "a.tflite"), tmp_path / "bundle"),
    ):
        with pytest.raises(UsageProblem, match=r"is a bundle; name a folder or an .onnx file as the output"):
            collect_jobs(source, output, None)
    with pytest.raises(
        UsageProblem, match=r"is a bundle without a TFLite model; `onnx-tflite inspect` lists its contents"
    ):
        collect_jobs(bundle(tmp_path / "c.task", "a.txt"), None, None)


class Piped(io.BytesIO):
    """Stand-in for stdin."""

    buffer = property(lambda self: self)

    def __init__(self, content: bytes, *, terminal: bool = False) -> None:
        super().__init__(content)
        self.isatty = lambda: terminal  # type: ignore[method-assign]


def test_rejects_a_bundle_or_terminal_as_stdin(neg_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = bundle(tmp_path / "b.task", "a.tflite").read_bytes()
    monkeypatch.setattr(sys, "stdin", Piped(packed))
    with pytest.raises(UsageProblem, match="stdin holds a bundle of models; give the name of its file"):
        collect_jobs(STREAM, tmp_path / "x.onnx", None)
    monkeypatch.setattr(sys, "stdin", Piped(b"", terminal=True))
    with pytest.raises(UsageProblem, match="which is a terminal: pipe a file into it"):
        collect_jobs(STREAM, tmp_path / "x.onnx", None)
    monkeypatch.setattr(sys, "stdin", Piped(neg_path.read_bytes()))
    (job,), is_single = collect_jobs(STREAM, tmp_path / "x.onnx", "key")
    assert is_single
    assert job == Job("stdin", neg_path.read_bytes(), tmp_path / "x.onnx", "key")


@pytest.mark.parametrize(
    ("keys", "converted"),
    [
        ([], [("m", None)]),
        (["a"], [("m", None)]),
        (["all"], [("m", "all")]),
        (["a", "all"], [("m", "all")]),
        (["a/b c", ".."], [("m.a_b_c", "a/b c"), ("m.model", "..")]),
    ],
)
def test_signature_all_writes_one_file_per_signature(
    tmp_path: Path, keys: list[str], converted: list[tuple[str, str | None]]
) -> None:
    model = ModelBuilder()
    x = model.main.input("x", (3,))
    model.main.output(x)
    for key in keys:
        model.signature(key, {"x": x}, {"y": x})
    path = tmp_path / "m.tflite"
    path.write_bytes(model.build())
    planned_jobs, is_single = collect_jobs(path, None, "all")
    assert [(job.output.stem, job.signature) for job in planned_jobs] == converted
    assert is_single is (len(converted) == 1)
    if len(converted) > 1:
        with pytest.raises(
            UsageProblem,
            match=r"--signature all writes 2 files, which stdout cannot hold; pass OUTPUT\.onnx: each file is then named",
        ):
            collect_jobs(path, STREAM, "all")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_rejects_paths_that_are_not_regular_files(neg_path: Path, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    for path, text in (
        (tmp_path, "is a folder, not a file"),
        (tmp_path / "no", "there is no such file"),
        (pipe, "is not a regular file; write the model to a file first"),
    ):
        for check in (check_readable, lambda path: check_pair(path, neg_path), lambda path: check_pair(neg_path, path)):
            with pytest.raises(UsageProblem, match=text):
                check(path)
    for path, text in (
        (tmp_path, "is a folder; name the file to write"),
        (pipe, "is not a regular file"),
        (tmp_path / "no" / "x", r"there is no folder .*no; create it first"),
        (neg_path / "x", r"negated.tflite is not a folder"),
        (neg_path, "is the model itself"),
    ):
        with pytest.raises(UsageProblem, match=text):
            check_writable(path, sources=(neg_path,))
    with pytest.raises(UsageProblem, match="is a TFLite model, which would be replaced"):
        check_writable(neg_path)
    assert check_writable(tmp_path / "new", sources=(neg_path,)) == tmp_path / "new"


def test_two_tflite_models_are_not_reported_as_swapped(neg_path: Path, tmp_path: Path) -> None:
    other_folder = tmp_path / "other"
    other_folder.write_bytes(b"\x08\x08")
    check_pair(neg_path, neg_path)
    check_pair(neg_path, other_folder)
    check_pair(other_folder, other_folder)
    with pytest.raises(UsageProblem, match=r"negated.tflite is a TFLite model; give the TFLite model first"):
        check_pair(other_folder, neg_path)


def test_unreadable_file_is_reported_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def close(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "model.tflite").touch()
    monkeypatch.setattr(Path, "open", close)
    with pytest.raises(UsageProblem, match=r"model\.tflite cannot be read: Permission denied"):
        check_readable(tmp_path / "model.tflite")


@pytest.mark.parametrize(
    ("name", "similar"),
    [("modle.tflite", "model.tflite"), ("model", "model.tflite"), ("model.tfl", "model.tflite"), ("model.onx", "model.onnx"),
     ("model.pt", ""), ("zzz", "")],
)  # fmt: skip
def test_missing_file_suggests_a_similar_name(run: Run, tmp_path: Path, name: str, similar: str) -> None:
    for suffix in (".data", ".onnx", ".tflite"):
        (tmp_path / f"model{suffix}").touch()
    suggestion = f"; did you mean {similar!r}?" if similar else ""
    assert run("convert", tmp_path / name).err == f"error: {tmp_path / name}: there is no such file{suggestion}\n"


@pytest.mark.skipif(os.name != "posix", reason="names are bytes")
@pytest.mark.parametrize("name", ["plain", "a b", "it's", "é", "\udcff'\\é\n"])
def test_next_command_can_be_run_whatever_the_name(name: str) -> None:
    command = join_command(["printf", "%s", name])
    assert command.isprintable()
    assert subprocess.run(["bash", "-c", command], capture_output=True).stdout == os.fsencode(name)


def test_message_of_a_value_states_its_fault(run: Run, neg_path: Path, tmp_path: Path) -> None:
    for text, *options in (
        ("the minimum 5 exceeds the maximum 1", tmp_path / "m.onnx", "--range", "x=5:1"),
        ("hint: otp convert --help describes the values\n", tmp_path / "m.onnx", "--quantization", "int8"),
        ("to set a tolerance, write --tolerance 1e-3", tmp_path / "m.onnx", "--verify=1e-3"),
        ("to set a tolerance, write --tolerance 0.1", tmp_path / "m.onnx", "--verify", "0.1"),
        ("'trt' is not one of", tmp_path / "m.onnx", "--target", "trt"),
        ("did you mean 'tensorrt'?", tmp_path / "m.onnx", "--target", "tensort"),
        ("no graph input or output has this position, only 0 to 1", tmp_path / "m.onnx", "--rename", "7=y"),
        ("the suffix .pb belongs to another format", tmp_path / "m.pb"),
    ):
        code, _, err = run("convert", neg_path, *options)
        assert code == 2
        assert text in err
    assert run("convert", neg_path, tmp_path / "m.onnx", "--target", "TensorRT").code == 0


def test_long_messages_of_several_models_keep_their_lines() -> None:
    error = VerificationError("the converted model does not agree with LiteRT:\nop 3 differs\n  y: 0.5")
    job = Job("m.tflite", b"", Path("m.onnx"))
    outcome = batch._refused_outcome(job, error)
    assert outcome.row[-1] == "m.tflite: differs from LiteRT, not written"
    lines = batch._error_lines({outcome.problems[0]: ["m.tflite"]})
    assert lines[:4] == [
        "the converted model does not agree with LiteRT:",
        "  op 3 differs",
        "    y: 0.5",
        "  in m.tflite",
    ]
    assert "--bisect DIR" in lines[-1]
