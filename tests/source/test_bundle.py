"""Bundles are listed without unpacking; models load when converted."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin import bundle_parts, convert, inspect
from onnx_tflite_plugin.errors import InvalidModel, NoSuchPart
from onnx_tflite_plugin.source import Section, opening, read, read_bytes
from onnx_tflite_plugin.source import bundle as bundles
from onnx_tflite_plugin.source.bundle import members
from tests.helpers.command import Run

MIB = 1 << 20
START = b"\x1c\0\0\0TFL3"  # first bytes of a model, which identify it in a listing


def model(size: int = 3) -> bytes:
    builder = ModelBuilder()
    g = builder.main
    x, y = g.input("x", (2, size)), g.tensor("y", (2, size))
    g.operator("ADD", [x, g.constant("w", np.arange(size, dtype=np.float32))], [y])
    g.output(y)
    return builder.build()


def archive(path: Path, contents: dict[str, bytes], method: int = zipfile.ZIP_STORED, prefix: bytes = b"") -> Path:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive_file:
        for name, content in contents.items():
            archive_file.writestr(name, content)
    path.write_bytes(prefix + buffer.getvalue())
    return path


@contextmanager
def measure_peak() -> Iterator[Callable[[], float]]:
    """Measure the peak memory inside, in MiB."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("inner", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("prefix", [b"", b"#!/bin/sh\n"])
def test_members_are_read_byte_for_byte(tmp_path: Path, method: int, inner: int | None, prefix: bytes) -> None:
    models = {"a.tflite": model(3), "b.tflite": model(5)}
    path = archive(tmp_path / "n.task", models, method, prefix)
    if inner is not None and not prefix:
        path = archive(tmp_path / "o.task", {"n.task": path.read_bytes()}, inner)
    for source in (path, path.read_bytes()):
        parts = members(source, "o.task")
        assert [Path(part.name).name for part in parts] == [*models]
        assert [read_bytes(part.load()) for part in parts] == [*models.values()]
        assert [read(part.load()).main.inputs[0].shape for part in parts] == [(2, 3), (2, 5)]


def test_stored_member_is_a_section_and_compressed_member_is_unpacked(tmp_path: Path) -> None:
    inner = archive(tmp_path / "n.task", {"m.tflite": model()}).read_bytes()
    stored = members(archive(tmp_path / "s.task", {"m.tflite": model(), "n.task": inner}), "s")
    assert [type(part.load()) for part in stored] == [Section, Section]
    (compressed,) = members(archive(tmp_path / "d.task", {"m.tflite": model()}, zipfile.ZIP_DEFLATED), "d")
    assert type(compressed.load()) is bytes


@pytest.mark.parametrize(("method", "max_mib"), [(zipfile.ZIP_STORED, 1), (zipfile.ZIP_DEFLATED, 1)])
def test_listing_a_bundle_takes_no_memory_for_its_members(tmp_path: Path, method: int, max_mib: int) -> None:
    path = archive(tmp_path / "b.task", {f"{k}.tflite": START + bytes(16 * MIB) for k in range(4)}, method)
    with measure_peak() as peak_mib:
        parts = members(path, "b.task")
        assert peak_mib() < max_mib
    assert [part.size for part in parts] == [16 * MIB + 8] * 4


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_member_is_in_memory_only_once(tmp_path: Path, method: int) -> None:
    path = archive(tmp_path / "b.task", {"m.tflite": START + bytes(48 * MIB)}, method)
    (part,) = members(path, "b.task")
    with measure_peak() as peak_mib:
        content, _ = opening.open_content(part.load())
        assert content.size == 48 * MIB + 8
        assert peak_mib() < 1.3 * 48 + 4


def test_a_large_stored_member_is_not_read_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "READ_AT_ONCE_BYTES", 0)
    (part,) = members(archive(tmp_path / "b.task", {"m.tflite": model(8 * MIB)}), "b.task")
    with measure_peak() as peak_mib:
        tensors = read(part.load()).main.tensors
        assert peak_mib() < 20  # one chunk for the checksum
    assert [tensor.array[-1] for tensor in tensors if tensor.is_constant] == [8 * MIB - 1]


@pytest.mark.parametrize("name", ["n.tflite", "n.task"])
def test_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The refusal comes before any member is unpacked."""
    monkeypatch.setattr(bundles, "UNPACKED_BYTES", 32 * MIB)
    content = (START if name == "n.tflite" else bundles.ZIP) + bytes(64 * MIB)
    path = archive(tmp_path / "b.task", {name: content}, zipfile.ZIP_DEFLATED)
    with measure_peak() as peak_mib:
        with pytest.raises(InvalidModel, match=f"unpacking '{name}'.* bytes. would exceed the limit: 32 MiB"):
            members(path, "b.task")
        assert peak_mib() < 4


def test_size_limit_applies_to_all_members_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "UNPACKED_BYTES", 5 * MIB)
    parts = {f"{k}.tflite": START + bytes(2 * MIB) for k in range(2)}
    assert len(members(archive(tmp_path / "2.task", parts, zipfile.ZIP_DEFLATED), "2")) == 2
    parts["2.tflite"] = START + bytes(2 * MIB)
    with pytest.raises(InvalidModel, match=r"unpacking '2\.tflite' \(2097160 bytes\) would exceed the limit"):
        members(archive(tmp_path / "3.task", parts, zipfile.ZIP_DEFLATED), "3")
    assert len(members(archive(tmp_path / "s.task", parts), "s")) == 3  # stored: nothing is unpacked


def test_members_other_than_models_are_neither_unpacked_nor_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "UNPACKED_BYTES", MIB)
    path = archive(tmp_path / "b.task", {"words.bin": bytes(8 * MIB), "m.tflite": model()}, zipfile.ZIP_DEFLATED)
    assert [part.kind for part in members(path, "b.task")] == ["bin", "model"]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_verified_and_all_their_signatures_converted(run: Run, tmp_path: Path, method: int) -> None:
    path = archive(tmp_path / "b.task", {"a.tflite": model(7), "b.tflite": model(5)}, method)
    out = run("convert", path, "--verify", "--signature", "all").out
    assert "2 of 2 models" in out
    assert "verified against LiteRT" in out


@pytest.mark.parametrize("content", [b"junk", b""])
@pytest.mark.parametrize("options", [[], ["--signature", "all"]])
def test_member_named_like_a_model_is_refused_if_it_is_none(
    run: Run, tmp_path: Path, content: bytes, options: list[str]
) -> None:
    path = archive(tmp_path / "b.task", {"good.tflite": model(5), "bad.tflite": content})
    code, out, err = run("convert", path, *options)
    assert code == 1
    assert "converted    1 of 2 models" in out
    assert "in bad.tflite" in err
    assert [file.name for file in (tmp_path / "b").iterdir()] == ["good.onnx"]


def test_member_that_cannot_be_unpacked_is_refused_alone(run: Run, tmp_path: Path) -> None:
    path = archive(tmp_path / "b.task", {"bad.tflite": model(5), "good.tflite": model(5)}, zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    start = 30 + len("bad.tflite")
    content[start : start + 8] = b"\xff" * 8
    path.write_bytes(content)
    code, out, err = run("convert", path)
    assert (code, "converted    1 of 2 models" in out) == (1, True)
    assert "in bad.tflite" in err
    assert "the zip archive cannot be read" in err


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_is_refused_and_the_others_are_converted(run: Run, tmp_path: Path, method: int) -> None:
    path = archive(tmp_path / "b.task", {"a.tflite": model(997), "b.tflite": model(5)}, method)
    damaged = bytearray(path.read_bytes())
    damaged[900] ^= 1
    path.write_bytes(damaged)
    code, out, err = run("convert", path)
    assert code == 1
    assert "1 of 2 models" in out
    assert "CRC" in err or "the zip archive cannot be read" in err
    assert [file.name for file in (tmp_path / "b").iterdir()] == ["b.onnx"]


def test_a_bundle_truncated_after_it_was_listed_is_an_error(tmp_path: Path) -> None:
    path = archive(tmp_path / "b.task", {"a.tflite": model(997)})
    (part,) = members(path, "b.task")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InvalidModel, match=r"cannot read b\.task: a\.tflite\n.*truncated"):
        read(part.load())


def test_a_member_with_a_wrong_size_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "b.task", {"a.tflite": model()})
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\1\2")
    content[entry + 24 : entry + 28] = (len(model()) + 4).to_bytes(4, "little")  # the unpacked size
    path.write_bytes(content)
    with pytest.raises(
        InvalidModel, match=r"the zip archive cannot be read: 'a\.tflite' has .* bytes, but .* are stored"
    ):
        members(path, "b.task")


def test_a_refused_member_is_freed_before_the_next(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "b.task", {f"{k}.tflite": START + bytes(8 * MIB) for k in range(12)})
    run("convert", path)
    with measure_peak() as peak_mib:
        assert run("convert", path).code == 1
        assert peak_mib() < 4 * 8


def test_existing_file_takes_precedence_over_a_part_of_a_bundle(tmp_path: Path) -> None:
    path = archive(tmp_path / "b#1.task", {"a.tflite": model(3), "b.tflite": model(5)})
    assert read_bytes(f"{path}#b.tflite") == read_bytes(f"{path}#b") == model(5)
    (tmp_path / "b#1.task#b").write_bytes(model(7))
    assert read_bytes(f"{path}#b") == model(7)


def test_a_part_is_converted_like_its_content(tmp_path: Path) -> None:
    path = archive(tmp_path / "b.task", {"a.tflite": model(3), "words.txt": b"x"})
    part = bundle_parts(path)[0]
    for source in (part, path, str(path)):
        conversion = convert(source)
        assert conversion.report.inputs[0].shape == (2, 3)
        assert conversion.file is not None
        assert inspect(source)["inputs"][0]["name"] == "x"
    with pytest.raises(NoSuchPart, match="is not a bundle, so it has no part 'x'"):
        convert(f"{__file__}#x")
