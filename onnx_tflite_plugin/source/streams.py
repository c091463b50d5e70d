"""Read-only stream of a model's bytes, for libraries that read streams."""

from __future__ import annotations

import io

from onnx_tflite_plugin.source.content import Content


def stream_of(content: Content) -> io.BufferedReader:
    """Return a stream of a content. It copies only the pieces that are read."""
    return io.BufferedReader(_Bytes(content))


class _Bytes(io.RawIOBase):
    """A raw stream that copies a content piece by piece."""

    def __init__(self, content: Content) -> None:
        self._content, self._position = content, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._content.size}[whence]
        if start + offset < 0:
            raise OSError("cannot seek before the start of the model")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = max(min(len(buffer), self._content.size - self._position), 0)
        if count:
            buffer[:count] = self._content.read(self._position, count)
        self._position += count
        return count
