"""Bytes in memory read as a file is."""

from __future__ import annotations

import io

import pytest

from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.source.streams import stream_of

CONTENT = bytes(range(251)) * 97


def test_it_is_read_piece_by_piece_from_wherever_it_is_set() -> None:
    with stream_of(Content(CONTENT)) as stream:
        assert stream.read(7) == CONTENT[:7]
        assert stream.seek(5, io.SEEK_CUR) == 12
        assert stream.read(3) == CONTENT[12:15]
        assert stream.seek(-11, io.SEEK_END) == len(CONTENT) - 11
        assert stream.read() == CONTENT[-11:]
        assert (stream.seek(0), stream.read()) == (0, CONTENT)
        assert (stream.seek(len(CONTENT) + 3), stream.read(2)) == (len(CONTENT) + 3, b"")


def test_nothing_is_before_its_start() -> None:
    with stream_of(Content(CONTENT)) as stream, pytest.raises(OSError, match="a position before the start"):
        stream.seek(-1)
