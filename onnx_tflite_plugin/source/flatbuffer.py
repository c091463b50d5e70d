"""Checked FlatBuffers reader.

For any bytes of a file, the result is a value or ``InvalidModel``. The format is https://flatbuffers.dev/internals. A
table starts with a signed 32-bit distance back to its vtable. The vtable holds its own size, the size of the table, and
a 16-bit offset of each field in the table. The offset 0 means that the field is absent and has its default. A string,
vector or sub-table is reached by an unsigned 32-bit distance forward. All numbers are little-endian. ``struct`` raises
on reads past the end of a buffer, so every read at a non-negative position is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_tflite_plugin.errors import InvalidModel, Problem
from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.source.model import Array

# Hints for the two kinds of invalid files: damaged bytes, and bytes that were written wrongly.
DAMAGED = "the file is damaged or cut short: fetch or convert it again"
REFUSED = "LiteRT refuses the file too; convert the original model again"

# Limit on tables per file: tables and vectors may be shared, so a few bytes could otherwise take hours to read.
# The FlatBuffers verifier, which LiteRT runs on every file, has the same limit.
MAX_TABLES = 1_000_000
# Limit on numbers that become Python objects: shapes, operands, scales and zero points. An embedding with 256k per-row
# scales has 512k.
MAX_NUMBERS = 1 << 24
# A file without shared content has at least 8 bytes per table and 1 per number, and each of its strings is copied once.
SLACK = 1 << 16  # number of tables, numbers and copied bytes that a small file may have in addition
MAX_COPIES = 4  # maximum ratio of copied bytes to the size of the file

_CODES = {
    "bool": "?",
    "byte": "b",
    "ubyte": "B",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "float": "f",
    "double": "d",
}
_STRUCTS = {kind: struct.Struct("<" + code) for kind, code in _CODES.items()}
_INT, _UINT, _USHORT = _STRUCTS["int"], _STRUCTS["uint"], _STRUCTS["ushort"]


@dataclass(frozen=True, eq=False, slots=True)
class Field:
    """One field of a table.

    ``index``: the field's position in the vtable. ``kind``: the schema's scalar type, "string" or "table". ``vector``:
    True for a vector of this kind.
    """

    name: str
    index: int
    kind: str
    vector: bool = False
    default: Any = 0

    @property
    def absent_value(self) -> Any:
        """The value of this field in a table that does not contain it."""
        if self.vector:
            return b"" if self.kind == "ubyte" else ()
        return "" if self.kind == "string" else self.default


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """The known fields of one table; a newer schema may contain more."""

    name: str
    fields: Mapping[str, Field]

    @classmethod
    def parse(cls, name: str, declaration: str) -> Layout:
        """Parse a declaration such as ``"shape:[int]; version:int=1; options:union"``.

        A union has two fields: ``options_type`` and ``options``.
        """
        fields: dict[str, Field] = {}
        index = 0
        for field in filter(None, (field.strip() for field in declaration.split(";"))):
            key, kind = (word.strip() for word in field.split(":"))
            kind, _, default = kind.partition("=")
            if kind == "union":
                fields[key + "_type"] = Field(key + "_type", index, "ubyte")
                kind, index = "table", index + 1
            fields[key] = Field(key, index, kind.strip("[]"), kind.startswith("["), int(default or 0))
            index += 1
        return cls(name, fields)


class File:
    """The bytes of one FlatBuffer. ``name`` is its name in error messages."""

    __slots__ = ("_copied", "_copies", "_numbers", "_tables", "_vtables", "content", "name", "size", "unpack")

    def __init__(self, data: bytes | bytearray | memoryview | Content, name: str) -> None:
        self.content = data if isinstance(data, Content) else Content(data)
        self.unpack = self.content.unpack
        self.size = self.content.size
        self.name = name
        self._tables = self._numbers = self._copied = 0
        self._vtables: dict[tuple[int, Layout], dict[str, int]] = {}
        self._copies: dict[tuple[int, int], bytes] = {}

    def invalid(self, where: str, reason: str, hint: str = "") -> InvalidModel:
        """Return the error for this file. ``where``: the path of the field."""
        return InvalidModel(f"cannot read {self.name}", [Problem(where or "model", reason, hint)])

    def root(self, layout: Layout) -> Table:
        """Return the root table, whose offset is the first word of the file."""
        if self.size < 8:
            raise self.invalid("file", f"{self.size} bytes are too few for a model", DAMAGED)
        return self.table(self.unpack(_UINT, 0)[0], layout, "")

    def table(self, position: int, layout: Layout, path: str) -> Table:
        """Return the table at a position of the file."""
        try:
            vtable = position - self.unpack(_INT, position)[0]
        except struct.error:
            raise self.invalid(path, f"the table would start at byte {position} of {self.size}", DAMAGED) from None
        offsets = self._vtables.get((vtable, layout))
        if offsets is None:
            offsets = self._vtables[vtable, layout] = self._read_vtable(vtable, layout, path)
        return Table(self, position, layout, path, offsets)

    def _read_vtable(self, position: int, layout: Layout, path: str) -> dict[str, int]:
        """Return the offset of each present field."""
        size = self.unpack(_USHORT, position)[0] if 0 <= position <= self.size - 4 else 0
        if size < 4 or size % 2 or position + size > self.size:
            raise self.invalid(
                path, f"byte {position} holds no valid vtable (description of the table's fields)", DAMAGED
            )
        # Only known fields are read, because a vtable may claim to have 32,000 fields.
        count = 1 + max((field.index for field in layout.fields.values()), default=-1)
        offsets = self.numbers(position + 4, min(count, size // 2 - 2), "H")
        return {
            field.name: offsets[field.index]
            for field in layout.fields.values()
            if field.index < len(offsets) and offsets[field.index]
        }

    def numbers(self, start: int, count: int, code: str) -> tuple[Any, ...]:
        """Return numbers of one struct code at a position that the caller has checked."""
        format_string = f"<{count}{code}"
        return struct.unpack(format_string, self.content.read(start, struct.calcsize(format_string)))

    def array(self, start: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Return an array of a range that the caller has checked."""
        if not count:
            return np.empty(0, dtype)
        return np.frombuffer(self.content.read(start, count * dtype.itemsize), dtype, count)

    def copy(self, start: int, count: int, path: str) -> bytes:
        """Return a checked range as bytes; equal ranges share one copy."""
        content = self._copies.get((start, count))
        if content is None:
            self._copied += count
            if self._copied > MAX_COPIES * self.size + SLACK:
                raise self.invalid(
                    path, f"overlapping strings and options would expand to {self._copied} bytes", DAMAGED
                )
            content = self._copies[start, count] = bytes(self.content.read(start, count))
        return content

    def count_tables(self, count: int, path: str) -> None:
        """Add to the number of tables read so far. Raises InvalidModel above the limit."""
        self._tables += count
        limit = min(MAX_TABLES, self.size // 8 + SLACK)
        if self._tables > limit:
            raise self.invalid(path, f"more than {limit} tables in {self.size} bytes", DAMAGED)

    def count_numbers(self, count: int, path: str) -> None:
        """Add to the number of numbers read so far. Raises InvalidModel above the limit."""
        self._numbers += count
        limit = min(MAX_NUMBERS, self.size + SLACK)
        if self._numbers > limit:
            raise self.invalid(path, f"more than {limit} shapes, operands and scales in {self.size} bytes", DAMAGED)


class Table:
    """One table of the file, at ``path``, such as ``subgraphs[0].tensors[3]``."""

    __slots__ = ("_offsets", "_position", "file", "layout", "path")

    def __init__(self, file: File, position: int, layout: Layout, path: str, offsets: dict[str, int]) -> None:
        self.file = file
        self.layout = layout
        self.path = path
        self._position = position
        self._offsets = offsets

    @classmethod
    def empty(cls, layout: Layout) -> Table:
        """Return an empty table, in which every field is absent."""
        return cls(File(b"", "nothing"), 0, layout, layout.name, {})

    def invalid(self, name: str, reason: str, hint: str = "") -> InvalidModel:
        return self.file.invalid(self.at(name), reason, hint)

    def at(self, name: str) -> str:
        """Return the path of field ``name``."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        return name in self._offsets

    def value(self, name: str) -> Any:
        """Return the value of any field except tables.

        Scalars are Python numbers, strings are str, vectors are tuples, and vectors of ubyte are bytes. An absent
        scalar has the schema's default; an absent string is "" and an absent vector is empty.
        """
        field = self.layout.fields[name]
        if name not in self._offsets:
            return field.absent_value
        if not field.vector:
            return self.text(name) if field.kind == "string" else self._scalar(name)
        return self.blob(name) if field.kind == "ubyte" else self.numbers(name)

    def _scalar(self, name: str) -> Any:
        offset = self._offsets.get(name)
        if offset is None:
            return self.layout.fields[name].default
        try:
            return self.file.unpack(_STRUCTS[self.layout.fields[name].kind], self._position + offset)[0]
        except struct.error:
            raise self._out_of_file_error(name) from None

    def number(self, name: str) -> int:
        value: int = self._scalar(name)
        return value

    def flag(self, name: str) -> bool:
        return bool(self._scalar(name))

    def text(self, name: str) -> str:
        """Return a string.

        Bytes that are not UTF-8 become backslash escapes, because ONNX accepts only UTF-8.
        """
        return self.blob(name).decode("utf-8", "backslashreplace")

    def blob(self, name: str) -> bytes:
        start, count = self.vector(name, 1)
        return self.file.copy(start, count, self.path) if count else b""

    def numbers(self, name: str) -> tuple[Any, ...]:
        kind = self.layout.fields[name].kind
        start, count = self.vector(name, _STRUCTS[kind].size)
        self.file.count_numbers(count, self.path)
        return self.file.numbers(start, count, _CODES[kind])

    def array(self, name: str) -> Array:
        """Return a vector of numbers as a read-only array, without a limit on its length."""
        dtype = np.dtype("<" + _CODES[self.layout.fields[name].kind])
        start, count = self.vector(name, dtype.itemsize)
        return self.file.array(start, count, dtype)

    def table(self, name: str, layout: Layout) -> Table | None:
        offset = self._offsets.get(name)
        if offset is None:
            return None
        position, path = self._position + offset, self.at(name)
        self.file.count_tables(1, path)
        try:
            position += self.file.unpack(_UINT, position)[0]
        except struct.error:
            raise self._out_of_file_error(name) from None
        return self.file.table(position, layout, path)

    def tables(self, name: str, layout: Layout) -> list[Table]:
        start, count = self.vector(name, 4)
        file, path = self.file, self.at(name)
        file.count_tables(count, path)
        distances = file.numbers(start, count, "I")
        return [
            file.table(start + 4 * index + distance, layout, f"{path}[{index}]")
            for index, distance in enumerate(distances)
        ]

    def length(self, name: str) -> int:
        """Return the length of a vector of tables."""
        return self.vector(name, 4)[1]

    def item(self, name: str, index: int, layout: Layout) -> Table:
        """Return one table of a vector, which has at least ``index + 1`` elements."""
        path = f"{self.at(name)}[{index}]"
        self.file.count_tables(1, path)
        position = self.vector(name, 4)[0] + 4 * index
        return self.file.table(position + self.file.unpack(_UINT, position)[0], layout, path)

    def vector(self, name: str, width: int) -> tuple[int, int]:
        """Return the first byte and the length of a vector.

        ``width``: bytes per element. The result is (0, 0) if the vector is absent.
        """
        offset = self._offsets.get(name)
        if offset is None:
            return 0, 0
        start = self._position + offset
        try:
            start += 4 + self.file.unpack(_UINT, start)[0]
            count = self.file.unpack(_UINT, start - 4)[0]
        except struct.error:
            raise self._out_of_file_error(name) from None
        if start + count * width > self.file.size:
            reason = f"{count} elements of {width} bytes from byte {start} exceed the file of {self.file.size} bytes"
            raise self.invalid(name, reason, DAMAGED)
        return start, count

    def _out_of_file_error(self, name: str) -> InvalidModel:
        return self.invalid(name, f"the field lies outside the file of {self.file.size} bytes", DAMAGED)
