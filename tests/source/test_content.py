"""Bytes of a model that are read from its file on demand."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source import content as contents
from onnx_tflite_plugin.source import opening, read
from onnx_tflite_plugin.source.content import Content, FileContent, Section
from onnx_tflite_plugin.source.opening import open_content, read_bytes

BYTES = np.random.default_rng(0).integers(0, 256, 200_003, np.uint8).tobytes()
UINT = struct.Struct("<I")
ROWS = 997


def model() -> bytes:
    """Return a model whose constant spans several pages."""
    builder = ModelBuilder()
    g = builder.main
    x = g.input("x", (1, ROWS))
    w = g.constant("w", np.arange(ROWS * ROWS, dtype=np.float32).reshape(ROWS, ROWS))
    g.operator("FULLY_CONNECTED", [x, w], [y := g.tensor("y", (1, ROWS))])
    g.output(y)
    return builder.build()


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every file as too large to be read at once."""
    monkeypatch.setattr(opening, "READ_AT_ONCE_BYTES", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (path := tmp_path / "model.tflite").write_bytes(model())
    return path


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("start", [0, 7])
def test_a_file_reads_like_the_same_bytes_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, mapped: bool
) -> None:
    monkeypatch.setattr(contents, "MAPPED_FILE_BYTES", 0 if mapped else 1 << 31)
    monkeypatch.setattr(contents, "_MAPPED_RANGE_BYTES", 10_000)
    monkeypatch.setattr(contents, "_MAX_PAGES", 2)
    (path := tmp_path / "bytes").write_bytes(bytes(start) + BYTES)
    file, memory = FileContent.open(path, "bytes").part(start, len(BYTES), "part"), Content(BYTES)
    assert file.size == memory.size
    for position in (0, 65_533, 65_536, 131_071, 199_999, 3):
        assert file.unpack(UINT, position) == memory.unpack(UINT, position)
    for position, count in ((0, 0), (0, 5), (65_530, 4000), (7, 4096), (100, 199_903), (65_536, 10_000)):
        assert file.read(position, count) == memory.read(position, count) == BYTES[position : position + count]
    for position in (-1, len(BYTES) - 3):
        with pytest.raises(struct.error):
            file.unpack(UINT, position)


@pytest.mark.usefixtures("small_pages")
def test_a_system_without_preadv_reads_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "preadv", raising=False)
    (weights,) = (tensor for tensor in read(path).main.tensors if tensor.is_constant)
    assert np.array_equal(weights.array.reshape(-1), np.arange(ROWS * ROWS, dtype=np.float32))


@pytest.mark.usefixtures("small_pages")
def test_a_model_read_by_page_is_the_one_read_at_once(path: Path) -> None:
    (by_page,), (at_once,) = (
        [tensor.array for tensor in read(source).main.tensors if tensor.is_constant]
        for source in (path, path.read_bytes())
    )
    assert np.array_equal(by_page, at_once)


@pytest.mark.usefixtures("small_pages")
def test_a_file_truncated_before_a_constant_is_read_is_an_error(path: Path) -> None:
    (weights,) = (tensor for tensor in read(path).main.tensors if tensor.is_constant)
    os.truncate(path, 100_000)
    with pytest.raises(InvalidModel, match="another process truncated the file while it was read"):
        _ = weights.array


@pytest.mark.usefixtures("small_pages")
def test_a_mapped_file_is_checked_before_a_constant_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAPPED_FILE_BYTES", 0)
    (weights,) = (tensor for tensor in read(path).main.tensors if tensor.is_constant)
    os.truncate(path, 100_000)
    with pytest.raises(InvalidModel, match="another process truncated the file while it was read"):
        _ = weights.array


def test_a_small_file_is_read_before_it_can_be_truncated(path: Path) -> None:
    (weights,) = (tensor for tensor in read(path).main.tensors if tensor.is_constant)
    os.truncate(path, 0)
    assert weights.array[-1, -1] == ROWS * ROWS - 1


def test_a_file_replaced_while_it_is_read_is_read_as_it_was(path: Path, small_pages: None, tmp_path: Path) -> None:
    (weights,) = (tensor for tensor in read(path).main.tensors if tensor.is_constant)
    (tmp_path / "other").write_bytes(b"other")
    os.replace(tmp_path / "other", path)
    assert weights.array[-1, -1] == ROWS * ROWS - 1


def test_a_section_is_read_by_itself_and_must_match_its_checksum(tmp_path: Path) -> None:
    (path := tmp_path / "bytes").write_bytes(BYTES)
    expected = BYTES[5:70_000]
    for content in (FileContent.open(path, "bytes"), Content(BYTES)):
        section = Section(content, 5, len(expected), "part", zlib.crc32(expected))
        assert read_bytes(section) == expected
        section_content, name = open_content(section)
        assert (section_content.read(3, 9), section_content.size, name) == (expected[3:12], len(expected), "part")
        with pytest.raises(InvalidModel, match=r"cannot read part\n.*CRC-32"):
            open_content(section._replace(crc=1))


PROGRAM = """
import os, sys
from onnx_tflite_plugin.source import content, opening
opening.READ_AT_ONCE_BYTES = content.MAPPED_FILE_BYTES = content._MAPPED_RANGE_BYTES = 0
mapped = content.FileContent._map_range
def truncate(self, start, count):
    view = mapped(self, start, count)
    if count > 100_000:
        os.truncate(sys.argv[2], 1000)  # after the size was checked
    return view
content.FileContent._map_range = truncate
from onnx_tflite_plugin.cli import main
main()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_the_command_reports_a_mapped_file_truncated_at_any_time(path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, "convert", str(path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert process.returncode == 1
    assert "the model file was truncated" in process.stderr
    assert not path.with_suffix(".onnx").exists()
