"""Test unusual input files and output paths, such as pipes, links and long names."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin import conversion, files
from onnx_tflite_plugin.errors import InvalidModel


def small_model(constant: int = 3) -> bytes:
    model = ModelBuilder()
    x = model.main.input("x", (2, constant))
    w = model.main.constant("w", np.arange(constant, dtype=np.float32))
    model.main.operator("ADD", [x, w], [y := model.main.tensor("y", (2, constant))])
    model.main.output(y)
    return model.build()


def zip_entries(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, small_model())
    return file.getvalue()


_BUNDLE = ": give the path of its file, BUNDLE#PART for one of them"
BUNDLES = [
    (zip_entries("readme.txt"), "it is a zip archive: unpack it first"),
    (zip_entries("hand.tflite", "palm.tflite"), f"it is a bundle of hand.tflite, palm.tflite{_BUNDLE}"),
    (zip_entries("words.txt", "TF_LITE_PREFILL_DECODE"), f"it is a bundle of TF_LITE_PREFILL_DECODE{_BUNDLE}"),
    (
        zip_entries(*(f"{k}.tflite" for k in range(7))),
        f"it is a bundle of 0.tflite, 1.tflite, 2.tflite, 3.tflite, 4.tflite and 2 more{_BUNDLE}",
    ),
    (zip_entries("hand.tflite")[:60], "it is a zip archive: unpack it first"),
    (zip_entries("archive/data.pkl"), "it is a PyTorch file"),
]
"""Contents of zip archives. A part of a bundle can be converted from a path, but not from bytes."""
OTHER_FORMATS = [
    (gzip.compress(small_model()), "it is compressed with gzip: gunzip it first"),
    (otp.convert(small_model()).proto.SerializeToString(), "it is an ONNX model already"),
    (b"\x08\x0a\x12", "it is an ONNX model already"),
    (b"\x08\x0a", "is it the right file, and complete?"),
    (b"\x08\x20\x12", "is it the right file, and complete?"),
    (b"<!DOCTYPE html><html>", "it is a web page"),
    (b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer"),
    (b"", "it is empty"),
    (b"something else", "it is text, not a model; models are .tflite, .lite, .task and .litertlm files"),
]


@pytest.mark.parametrize(("data", "text"), BUNDLES, ids=range(len(BUNDLES)))
def test_content_of_a_bundle_is_not_a_model(data: bytes, text: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        otp.convert(data)
    assert text in str(caught.value)


@pytest.mark.parametrize(("data", "text"), OTHER_FORMATS, ids=range(len(OTHER_FORMATS)))
def test_error_names_the_format_of_another_file(data: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    for source in (data, path):
        with pytest.raises(InvalidModel) as caught:
            otp.convert(source)
        assert text in str(caught.value)


def test_rejects_a_pipe_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.tflite")
    for source in (pipe, Path("/dev/zero")):
        with pytest.raises(InvalidModel, match="not a regular file"):
            otp.convert(source)
        completed = command("convert", source, tmp_path / "out.onnx")
        assert (completed.returncode, "not a regular file" in completed.stderr) == (2, True)


def command(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "onnx_tflite_plugin", *map(str, arguments)]
    run_options = {"capture_output": True, **options}
    return subprocess.run(line, text=True, timeout=60, check=False, **run_options)  # type: ignore[call-overload, no-any-return]


def test_save_writes_through_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere/real.onnx", tmp_path / "out.onnx"
    link.symlink_to(target)
    for _ in range(2):  # pointing to nothing, then to a file
        assert otp.convert(small_model()).save(link) == [target]
        assert link.is_symlink()
        assert target.stat().st_size > 0


@pytest.mark.parametrize("letter", ["x", "é"])
def test_output_name_may_have_maximum_length(letter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / (letter * (250 // len(letter.encode())) + ".onnx")
    assert otp.convert(small_model()).save(path) == [path]
    monkeypatch.setattr(conversion, "MAX_PROTO_BYTES", 10)
    model, data = otp.convert(small_model(1000), check="standard").save(path)
    assert (model, data.suffix, data.stat().st_size >= 4000) == (path, ".data", True)
    assert sorted(tmp_path.iterdir()) == sorted([model, data])


def test_output_name_may_be_invalid_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.onnx")
    assert otp.convert(small_model()).save(path) == [path]
    assert [*tmp_path.iterdir()] == [path]


def test_next_run_removes_temporary_files_of_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    program = (
        "import os, signal, sys; from pathlib import Path; from onnx_tflite_plugin import files\n"
        "os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)\n"
        "files.write(Path(sys.argv[1]), b'half')"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == -9
    (leftover,) = tmp_path.iterdir()
    live_file = tmp_path / f"{files._prefix(path)}{os.getpid()}.running"
    live_file.write_bytes(b"of a running process")
    folder = leftover.with_name(f"{leftover.name}.folder")  # as for external weights
    folder.mkdir()
    (folder / "model.onnx.data").write_bytes(b"half")
    user_file = tmp_path / f"{leftover.name.removeprefix(files._prefix(path)).partition('.')[0]}.txt"
    user_file.write_text("a file of the user with the same process id")
    otp.convert(small_model()).save(path)
    assert sorted(tmp_path.iterdir()) == sorted([path, live_file, user_file])


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_file_permissions_respect_umask(mask: int, tmp_path: Path) -> None:
    original_mask = os.umask(mask)
    try:
        (path,) = otp.convert(small_model()).save(tmp_path / "model.onnx")
    finally:
        mask_during_save = os.umask(original_mask)
    assert mask_during_save == mask
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_conversion_succeeds_with_closed_stdout(tmp_path: Path) -> None:
    model, out = tmp_path / "model.tflite", tmp_path / "out.onnx"
    model.write_bytes(small_model())
    reader, writer = os.pipe()
    os.close(reader)
    completed = command("convert", model, out, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (completed.returncode, completed.stderr, out.exists()) == (0, "", True)
    out.unlink()
    line = [sys.executable, "-m", "onnx_tflite_plugin", "convert", str(model), str(out)]
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *line], stderr=subprocess.PIPE, check=False)
    assert (closed.returncode, closed.stderr, out.exists()) == (0, b"", True)


def test_large_model_is_verified_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "MAX_PROTO_BYTES", 10)
    converted = otp.convert(small_model(1000), verify=True)
    assert converted.verification is not None
    assert converted.verification.ok


@pytest.mark.parametrize("name", ["model.tflite", "model.LITE", "model.pb"])
def test_save_rejects_the_suffix_of_another_format(tmp_path: Path, name: str) -> None:
    converted = otp.convert(small_model())
    with pytest.raises(ValueError, match=r"name an \.onnx file"):
        converted.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("streamed", [False, True])
def test_write_completes_short_writes(streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if streamed:
        monkeypatch.setattr(conversion, "STREAMED_BYTES", 0)

    class ShortWrites(io.FileIO):
        def write(self, content: Any, /) -> int:
            return super().write(memoryview(content)[:100])

    with ShortWrites(tmp_path / "short.onnx", "w") as file:
        otp.convert(small_model()).write(file)
    assert (tmp_path / "short.onnx").read_bytes() == otp.convert(small_model()).proto.SerializeToString()
