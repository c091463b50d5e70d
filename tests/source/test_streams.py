"""Bytes in memory with the interface of a file."""

from __future__ import annotations

import io

import pytest

from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.source.streams import stream_of

CONTENT = bytes(range(251)) * 97


def test_read_continues_from_the_seek_position() -> None:
    with stream_of(Content(CONTENT)) as stream:
        assert stream.read(7) == CONTENT[:7]
        assert stream.seek(5, io.SEEK_CUR) == 12
        assert stream.read(3) == CONTENT[12:15]
        assert stream.seek(-11, io.SEEK_END) == len(CONTENT) - 11
        assert stream.read() == CONTENT[-11:]
        assert (stream.seek(0), stream.read()) == (0, CONTENT)
        assert (stream.seek(len(CONTENT) + 3), stream.read(2)) == (len(CONTENT) + 3, b"")


def test_seek_before_the_start_is_an_error() -> None:
    with stream_of(Content(CONTENT)) as stream, pytest.raises(OSError, match="cannot seek before the start"):
        stream.seek(-1)
