"""Output paths: collisions are errors, and notes list the written files."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.cli import command_files
from onnx_tflite_plugin.cli.command_files import CommandFiles
from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.source import formats
from onnx_tflite_plugin.source.content import Content
from tests.helpers.command import Run


def model(code: str = "NEG", *keys: str) -> bytes:
    built = ModelBuilder()
    g = built.main
    x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
    g.operator(code, [x], [y])
    g.output(y)
    for key in keys:
        built.signature(key, {"a": x}, {"b": y})
    return built.build()


def bundle(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, model())
    return path


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (path := tmp_path / "m.tflite").write_bytes(model())
    return path


# --- two outputs ------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("x/m.tflite", "x_m.tflite"), ("x_m.tflite", "../x/m.tflite"), ("m.tflite", "m")])
def test_rejects_bundle_members_with_equal_output(run: Run, tmp_path: Path, names: tuple[str, str]) -> None:
    bundle(tmp_path / "b.task", "other.tflite", *names)
    code, _, err = run("convert", tmp_path / "b.task")
    assert code == 2
    assert f"{names[0]!r} and {names[1]!r} would both be written to " in err
    assert files(tmp_path) == ["b.task"]


def test_rejects_signatures_with_equal_output(run: Run, tmp_path: Path) -> None:
    (path := tmp_path / "m.tflite").write_bytes(model("NEG", "a b", "c", "a_b"))
    code, _, err = run("convert", path, "--signature", "all")
    assert code == 2
    assert f"'{path}: a b' and '{path}: a_b' would both be written to {tmp_path / 'm.a_b.onnx'}" in err
    assert "convert them one at a time with --signature KEY" in err
    assert files(tmp_path) == ["m.tflite"]


def test_rejects_a_signature_and_a_model_with_equal_output(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(model("NEG", "a", "b"))
    (tmp_path / "m.a.tflite").write_bytes(model())
    code, _, err = run("convert", tmp_path, "--signature", "all")
    assert code == 2
    assert "'m.a.tflite' and 'm.tflite: a' would both be written to" in err
    assert files(tmp_path) == ["m.a.tflite", "m.tflite"]


SPELLINGS: dict[str, Callable[[Path], Path]] = {
    "same": lambda path: path,
    "relative": lambda path: Path(os.path.relpath(path)),
    "dots": lambda path: path.parent / "inner" / ".." / path.name,
    "folder link": lambda path: path.parent / "link" / path.name,
    "file link": lambda path: path.parent / "link.html",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_rejects_equal_paths_of_model_and_report(
    run: Run, source: Path, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    (source.parent / "inner").mkdir()
    (source.parent / "link").symlink_to(source.parent)
    (source.parent / "link.html").symlink_to(source.parent / "o.html")
    before = files(source.parent)
    output = source.parent / "o.html"
    code, _, err = run("convert", source, output, "--report", SPELLINGS[spelling](output))
    assert code == 2
    assert "choose a different file for the report" in err
    assert files(source.parent) == before


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("names", [("a", "A"), (unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é"))])
def test_names_collide_on_case_insensitive_file_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str], folds: bool
) -> None:
    """This includes folders that do not exist yet."""
    monkeypatch.setattr(command_files, "_is_alias", lambda folder, name, alias: folds)
    for paths in ([tmp_path / f"{name}.onnx" for name in names], [tmp_path / name / "m.onnx" for name in names]):
        run = CommandFiles()
        run.register_output(paths[0], "one", "rename it")
        if not folds:
            run.register_output(paths[1], "two", "rename it")
            continue
        with pytest.raises(
            UsageProblem, match=r"one would be written to .* and two to .*, which is the same file; rename it"
        ):
            run.register_output(paths[1], "two", "rename it")


def test_detects_case_sensitivity_of_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "case").touch()
    assert command_files._is_alias(tmp_path, "a.onnx", "A.onnx") is (tmp_path / "CASE").exists()
    assert command_files._is_alias(tmp_path, "a.onnx", "a.onnx")
    assert files(tmp_path) == ["case"]


def test_hard_linked_outputs_are_replaced_separately(run: Run, source: Path) -> None:
    """Replacing one link keeps the other."""
    (source.parent / "n.tflite").write_bytes(model("EXP"))
    (source.parent / "m.onnx").write_bytes(b"older")
    os.link(source.parent / "m.onnx", source.parent / "n.onnx")
    assert run("convert", source.parent).code == 0
    assert (source.parent / "m.onnx").read_bytes() != (source.parent / "n.onnx").read_bytes()


# --- an output and an input -------------------------------------------------------------------


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_rejects_an_output_that_replaces_the_model(run: Run, source: Path, link: Callable[[Path, Path], None]) -> None:
    link(source, alias := source.parent / "alias.html")
    for arguments in ([source, alias], [source, source], [alias, source], [source, "--report", alias]):
        code, _, err = run("convert", *arguments)
        assert code == 2
        assert "is the model itself; choose a different output file" in err
    assert source.read_bytes() == model()


def test_rejects_an_output_that_replaces_another_model(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.tflite").write_bytes(model())
    (tmp_path / "b.tflite").write_bytes(model("EXP"))
    (tmp_path / "b.onnx").symlink_to(tmp_path / "a.tflite")
    code, _, err = run("convert", tmp_path)
    assert (code, (tmp_path / "a.tflite").read_bytes()) == (2, model())
    assert "is a model of the folder itself" in err
    assert not (tmp_path / "a.onnx").exists()


def test_rejects_an_output_that_replaces_input_data(run: Run, source: Path) -> None:
    np.savez(data := source.parent / "data.npz", x=np.ones((2, 3), np.float32))
    before = data.read_bytes()
    code, _, err = run("convert", source, data, "--inputs", data)
    assert (code, data.read_bytes()) == (2, before)
    assert "is the data of --inputs; choose a different output file" in err


def test_rejects_a_report_that_replaces_a_model(run: Run, source: Path) -> None:
    assert run("convert", source).code == 0
    for name, kind in (("m.tflite", "the TFLite model"), ("m.onnx", "the ONNX model")):
        (page := source.parent / "page.html").symlink_to(source.parent / name)
        code, _, err = run("report", source, source.with_suffix(".onnx"), page)
        page.unlink()
        assert code == 2
        assert f"is {kind}; choose a different output file" in err


@pytest.mark.parametrize("name", ["part.tflite", "part.onnx"])
def test_rejects_a_bisect_output_that_replaces_an_input(run: Run, source: Path, name: str) -> None:
    assert run("convert", source).code == 0
    source.with_suffix(Path(name).suffix).rename(source.parent / name)
    paths = [source.parent / "part.tflite", source.with_suffix(".onnx")]
    if name == "part.onnx":
        paths = [source, source.parent / name]
    code, _, err = run("verify", *paths, "--bisect", source.parent)
    assert code == 2
    assert "choose a different output file" in err


# --- messages ---------------------------------------------------------------------------------


def test_note_lists_written_files(tmp_path: Path) -> None:
    (old := tmp_path / "old").write_bytes(b"old")
    run = CommandFiles()
    assert run.note() == "nothing was written"
    for path in (old, tmp_path / "new", tmp_path / "none"):
        run.register_output(path, path.name, "rename it")
    assert (
        run.note()
        == f"the existing {old} is unchanged; {tmp_path / 'new'} was not written; {tmp_path / 'none'} was not written"
    )
    (tmp_path / "other").write_bytes(b"new")
    os.replace(tmp_path / "other", old)
    (tmp_path / "new").touch()
    assert run.note() == f"{old} was written; {tmp_path / 'new'} was written; {tmp_path / 'none'} was not written"
    run.register_output(tmp_path / "fourth", "fourth", "rename it")
    assert run.note() == "2 of 4 files were written"


LIMIT = 100_000  # maximum bytes of a file: more than the model, less than the report page


def run_with_full_disk(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command that cannot write large files, as with a full disk."""
    resource = pytest.importorskip("resource")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))

    line = [sys.executable, "-m", "onnx_tflite_plugin", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120, preexec_fn=limit)


@pytest.mark.parametrize("older", [False, True])
def test_failed_report_keeps_the_model(source: Path, older: bool) -> None:
    output, page = source.with_suffix(".onnx"), source.with_suffix(".html")
    if older:
        page.write_bytes(b"older")
    expected = f"the existing {page} is unchanged" if older else f"{page} was not written"
    completed = run_with_full_disk("convert", source, "--report", page)
    assert completed.returncode == 2
    assert completed.stderr.splitlines() == [f"error: {page}: File too large", f"  {output} was written; {expected}"]
    completed = run_with_full_disk("report", source, output, page)
    assert completed.returncode == 2
    assert completed.stderr.splitlines() == [f"error: {page}: File too large", f"  {expected}"]
    assert files(source.parent) == [*(["m.html"] if older else []), "m.onnx", "m.tflite"]
    assert not older or page.read_bytes() == b"older"


def test_table_lists_files_of_all_signatures(run: Run, tmp_path: Path) -> None:
    (path := tmp_path / "m.tflite").write_bytes(model("NEG", "add", "other"))
    out = run("convert", path, tmp_path / "sig", "--signature", "all").out
    assert [line.split()[5:7] for line in out.splitlines()[1:3]] == [
        ["sig.add.onnx", f"{path}:"],
        ["sig.other.onnx", f"{path}:"],
    ]


def test_table_has_paths_relative_to_the_output_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in" / "inner").mkdir(parents=True)
    for name in ("a.tflite", "inner/b.tflite"):
        (tmp_path / "in" / name).write_bytes(model())
    out = run("convert", tmp_path / "in", tmp_path / "out").out
    assert [line.split()[5] for line in out.splitlines()[1:3]] == ["a.onnx", str(Path("inner") / "b.onnx")]


# --- files of other formats -------------------------------------------------------------------


def test_error_describes_an_onnx_source(run: Run, source: Path) -> None:
    assert run("convert", source).code == 0
    for command in (["convert"], ["inspect"]):
        code, _, err = run(*command, source.with_suffix(".onnx"))
        assert code == 1
        assert "it is an ONNX model already" in err
        assert "the model itself" not in err
    code, _, err = run("verify", source.with_suffix(".onnx"), source.with_suffix(".onnx"))
    assert code == 2
    assert "is an ONNX model; give the TFLite model as the first argument" in err


def message(field: int, content: bytes) -> bytes:
    """Encode a field of protobuf that holds bytes."""
    return bytes([field << 3 | 2, len(content)]) + content


NODE = message(1, b"image") + message(2, b"Placeholder")
KINDS = [
    (message(1, NODE), "it is a TensorFlow graph (.pb)"),
    (b"\x08\x01" + message(2, message(1, message(1, b"serve"))), "it is a TensorFlow SavedModel"),
    (b"\x08\x04" + message(2, message(1, b"\x0a\x05image")), "it is a Core ML model"),
    (b"\x08\x08" + message(2, b"pytorch"), "it is an ONNX model already"),
    (b"\x89HDF\r\n\x1a\n", "it is an HDF5 file, such as a Keras model"),
    (b"\x80\x04\x95", "it is a Python pickle"),
    (b"\x1c\0\0\0ET12\0\0\0\0", "it is an ExecuTorch program"),
    (b"\x10\0\0\0\0\0\0\0" + b'{"__metadata__":{', "it is a safetensors file"),
    (b"\x89PNG\r\n\x1a\n", "it is a PNG image, not a model"),
    (b"const unsigned char g_model[] = {", "it is C source"),
    (b'{"format": "layers-model"', "it is JSON text, such as a TensorFlow.js model"),
    (b"\x93NUMPY\x01\0", "it is a NumPy array"),
    (b"\x0a\x80\x01 nothing known", ""),
]


@pytest.mark.parametrize(("content", "expected"), KINDS, ids=range(len(KINDS)))
def test_describes_files_of_other_formats(content: bytes, expected: str) -> None:
    description = formats.describe_format(Content(content))
    assert description.startswith(expected) if expected else not description


ARCHIVES = [
    (["archive/data.pkl", "archive/data/0"], "it is a PyTorch file"),
    (["config.json", "metadata.json", "model.weights.h5"], "it is a Keras model"),
    (["m/saved_model.pb", "m/variables/variables.index"], "it is a TensorFlow SavedModel"),
    (["arr_0.npy", "arr_1.npy"], "it holds NumPy arrays (.npz)"),
    (["a/1.jpg", "a/", "2.PNG"], "it is a zip archive of images"),
    (["m.onnx", "labels.txt"], "it is a zip archive of ONNX models"),
]


@pytest.mark.parametrize(("names", "expected"), ARCHIVES)
def test_describes_an_archive_without_a_model(run: Run, tmp_path: Path, names: list[str], expected: str) -> None:
    path = tmp_path / "file.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    code, _, err = run("convert", path)
    assert code == 2
    assert f"{path} is not a TFLite model: {expected}" in err
    out = run("inspect", path).out
    assert "no TFLite model" in out
    assert expected in out


def test_bundle_without_a_model_is_an_error(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "b.task"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("words.txt", b"x")
    assert "1 part, no TFLite model" in run("inspect", path).out
    assert "is a bundle without a TFLite model; `onnx-tflite inspect` lists its contents" in run("convert", path).err


def test_describes_a_saved_model_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").touch()
    code, _, err = run("convert", tmp_path)
    assert code == 2
    assert "it is a TensorFlow SavedModel: convert it to TFLite first" in err


@pytest.mark.parametrize(
    ("name", "file"), [("con.tflite", "_con.onnx"), ("aux", "_aux.onnx"), ("console", "console.onnx")]
)
def test_avoids_windows_device_names(run: Run, tmp_path: Path, name: str, file: str) -> None:
    assert run("convert", bundle(tmp_path / "b.task", name)).code == 0
    assert files(tmp_path / "b") == [file]


def test_piped_model_may_replace_an_earlier_output(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Piped:
        buffer = io.BytesIO(model())
        isatty = staticmethod(lambda: False)

    monkeypatch.setattr(sys, "stdin", Piped)
    (tmp_path / "m.onnx").write_bytes(b"older")
    assert run("convert", "-", tmp_path / "m.onnx").code == 0


def test_rejects_a_tflite_model_as_output(run: Run, tmp_path: Path) -> None:
    """In a folder of two models, a shell expands ``*.tflite`` to two arguments."""
    (first := tmp_path / "a.tflite").write_bytes(model())
    for name in ("b.tflite", "b.LITE", "b.bin"):
        (second := tmp_path / name).write_bytes(model("EXP"))
        result = run("convert", first, second)
        assert (result.code, result.out) == (2, "")
        assert second.read_bytes() == model("EXP")
    assert "is a TFLite model, which would be replaced; choose a different output file" in result.err
    result = run("convert", first, tmp_path / "new.tflite")
    assert "the suffix .tflite belongs to a TFLite model; name an .onnx file, or a folder" in result.err
    assert not (tmp_path / "new.tflite").exists()
    (tmp_path / "folder.tflite").mkdir()
    assert run("convert", first, tmp_path / "folder.tflite").code == 0
