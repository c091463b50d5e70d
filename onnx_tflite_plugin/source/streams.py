"""Bytes in memory as a file, for libraries that read one."""

from __future__ import annotations

import io


def stream_of(view: memoryview) -> io.BufferedReader:
    """A file over a view, which is not copied."""
    return io.BufferedReader(_Bytes(view))


class _Bytes(io.RawIOBase):
    """What is read is copied, piece by piece."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._position = view, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._view)}[whence]
        if start + offset < 0:
            raise OSError("a position before the start")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._view[self._position : self._position + len(buffer)]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)
