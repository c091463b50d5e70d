"""Content of a model: in memory, or read from its file on demand.

Files are read, not mapped: if another process truncates a mapped file, accessing its pages ends this process with
SIGBUS. Small files are read at once. In larger files, tables are read by page and each constant on first use.
Constants of files too large for memory are mapped (:data:`MAPPED_FILE_BYTES`).
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
import threading
import weakref
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.errors import InvalidModel, Problem

MAPPED_FILE_BYTES = 1 << 31
"""Constants of larger files are mapped, so that the system can drop their pages if memory is short."""

_MAPPED_RANGE_BYTES = 1 << 20  # minimum bytes of a mapped constant
_PAGED_RANGE_BYTES = 1 << 12  # maximum bytes of a range that is read with its page
_PAGE, _MAX_PAGES = 1 << 16, 256
_CHUNK = 1 << 24

TRUNCATED = "another process truncated the file while it was read"
_RETRY_HINT = "run the conversion again when the file is complete"


class Content:
    """The bytes of a model in memory."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data).toreadonly().cast("B")
        self.size = len(self._view)

    def unpack(self, struct: Struct, position: int) -> tuple[Any, ...]:
        """Unpack a struct at a position. Raises struct.error if it exceeds the content."""
        return struct.unpack_from(self._view, position)

    def read(self, start: int, count: int) -> memoryview:
        """Return a range, which must be inside the content."""
        return self._view[start : start + count]

    def part(self, start: int, size: int, name: str) -> Content:
        """Return a range as a separate content. ``name``: the name of the range in errors."""
        return Content(self.read(start, size))

    def crc(self) -> int:
        """Return the CRC-32 of all bytes."""
        crc = 0
        for start in range(0, self.size, _CHUNK):
            crc = zlib.crc32(self._read_chunks(start, min(_CHUNK, self.size - start)), crc)
        return crc

    def digest(self) -> str:
        """Return the SHA-256 of all bytes, in hexadecimal."""
        digest = hashlib.sha256()
        for start in range(0, self.size, _CHUNK):
            digest.update(self._read_chunks(start, min(_CHUNK, self.size - start)))
        return digest.hexdigest()

    def _read_chunks(self, start: int, count: int) -> memoryview:
        return self.read(start, count)


class FileContent(Content):
    """A file or a range of a file, read on demand.

    ``file``: a file descriptor, which is closed together with the object. Methods raise InvalidModel if the file has
    been truncated.
    """

    def __init__(self, file: int, name: str, start: int, size: int) -> None:
        self._file, self._name, self._start, self.size = file, name, start, size
        weakref.finalize(self, os.close, file)
        self._lock = threading.Lock()
        self._pages: dict[int, memoryview] = {}
        self._mapping: mmap.mmap | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], name: str) -> FileContent:
        """Open a file. Raises OSError."""
        file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        return cls(file, name, 0, os.fstat(file).st_size)

    def part(self, start: int, size: int, name: str) -> FileContent:
        return FileContent(os.dup(self._file), name, self._start + start, size)

    def unpack(self, struct: Struct, position: int) -> tuple[Any, ...]:
        if not 0 <= position <= self.size - struct.size:
            raise StructError(f"{struct.size} bytes at {position} exceed {self.size}")
        number, offset = divmod(position, _PAGE)
        page = self._pages.get(number)
        if page is None:
            page = self._load_page(number)
        if offset + struct.size <= len(page):
            return struct.unpack_from(page, offset)
        return struct.unpack(self.read(position, struct.size))

    def _load_page(self, number: int) -> memoryview:
        """Read a page of tables into the cache. A full cache drops its oldest page."""
        start = number * _PAGE
        page = self._read_chunks(start, min(_PAGE, self.size - start))
        if len(self._pages) >= _MAX_PAGES:
            del self._pages[next(iter(self._pages))]
        self._pages[number] = page
        return page

    def read(self, start: int, count: int) -> memoryview:
        number, offset = divmod(start, _PAGE)
        if count <= _PAGED_RANGE_BYTES and offset + count <= _PAGE:
            page = self._pages.get(number)
            page = self._load_page(number) if page is None else page
            return memoryview(bytes(page[offset : offset + count]))  # a copy, so that the page can be freed
        if (
            count >= _MAPPED_RANGE_BYTES
            and self.size > MAPPED_FILE_BYTES
            and (view := self._map_range(start, count)) is not None
        ):
            return view
        return self._read_chunks(start, count)

    def _read_chunks(self, start: int, count: int) -> memoryview:
        content = np.empty(count, np.uint8).data
        bytes_read = 0
        while bytes_read < count:
            length = self._read_into(content[bytes_read : bytes_read + _CHUNK], self._start + start + bytes_read)
            if not length:
                raise self._truncation_error()
            bytes_read += length
        return content.toreadonly()

    def _read_into(self, chunk: memoryview, position: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file, [chunk], position)
        with self._lock:  # Windows has no preadv: seek and read are two calls
            os.lseek(self._file, position, os.SEEK_SET)
            content = os.read(self._file, len(chunk))
        chunk[: len(content)] = content
        return len(content)

    def _map_range(self, start: int, count: int) -> memoryview | None:
        """Return a mapped range, ``None`` if the file system does not support mapping."""
        file_start = self._start + start
        if os.fstat(self._file).st_size < file_start + count:
            raise self._truncation_error()
        if self._mapping is None:
            try:
                self._mapping = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError):
                return None
        return memoryview(self._mapping)[file_start : file_start + count]

    def _truncation_error(self) -> InvalidModel:
        return InvalidModel(f"cannot read {self._name}", [Problem("file", TRUNCATED, _RETRY_HINT)])


class Section(NamedTuple):
    """A range of a content that is a model by itself.

    An example is an uncompressed member of an archive. ``crc`` is the expected CRC-32 of the range, if known.
    """

    content: Content
    start: int
    size: int
    name: str
    crc: int | None = None

    def read(self) -> bytes:
        """Return all bytes. Raises InvalidModel if their CRC-32 does not match."""
        content = self.open()
        return bytes(content.read(0, content.size))

    def open(self) -> Content:
        """Return the range as a content. Raises InvalidModel if its CRC-32 does not match."""
        content = self.content.part(self.start, self.size, self.name)
        if self.crc is not None and content.crc() != self.crc:
            reason, hint = "CRC-32 differs from the one in the archive", "the archive is damaged: fetch it again"
            raise InvalidModel(f"cannot read {self.name}", [Problem("file", reason, hint)])
        return content


@dataclass(frozen=True)
class Member:
    """One file or section of a bundle.

    A member that is a model can be passed to ``convert``, ``inspect`` and ``verify``. ``load`` returns the content of a
    model or of a section of a LiteRT-LM bundle, and empty bytes for any other file.
    """

    name: str
    kind: str
    size: int
    load: Callable[[], bytes | Section] = field(default=bytes, repr=False, compare=False)

    def read(self) -> bytes:
        """Return the content as bytes."""
        content = self.load()
        return content if isinstance(content, bytes) else content.read()


def check_file(path: Path) -> Path:
    """Return the path of a regular file.

    Raises FileNotFoundError if there is no file, and InvalidModel for a folder or a pipe. Reading a pipe would block.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise missing_file(path) from None
    if not stat.S_ISREG(mode):
        reason, hint = (
            ("it is a folder", "name one model in it; the commands convert and inspect take a folder")
            if path.is_dir()
            else ("it is not a regular file", "write the model to a regular file first")
        )
        raise InvalidModel(f"cannot read {path}", [Problem("file", reason, hint)])
    return path


class MissingFile(FileNotFoundError):
    """A path without a file. The message begins with the path."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def missing_file(path: Path) -> FileNotFoundError:
    """Return the error for a path without a file, with the base of a relative path."""
    base = "" if path.is_absolute() else f"; relative paths begin at {Path.cwd()}"
    return MissingFile(errno.ENOENT, f"there is no such file{base}", str(path))
