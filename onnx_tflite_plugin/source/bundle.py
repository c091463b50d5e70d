"""Bundles of several models: zip archives (``.task``) and LiteRT-LM bundles.

A ``.task`` of MediaPipe is a zip of ``.tflite`` files, other assets and possibly further ``.task`` files. A LiteRT-LM
bundle begins with ``LITERTLM`` and a version. The end of the header is stored at byte 24; a FlatBuffer begins at byte
32 (``litertlm_header_schema.fbs``).
"""

from __future__ import annotations

import io
import os
import shlex
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from onnx_tflite_plugin.checked import describe, did_you_mean, list_first, plural
from onnx_tflite_plugin.errors import InvalidModel, NoSuchPart, Problem
from onnx_tflite_plugin.source.content import Content, FileContent, Member, Section, check_file
from onnx_tflite_plugin.source.flatbuffer import DAMAGED, File, Layout
from onnx_tflite_plugin.source.streams import stream_of

ZIP, LITERT_LM = b"PK\x03\x04", b"LITERTLM"
IDENTIFIER = b"TFL3"  # identifies a model, which may be followed by a zip archive of its associated files
MODEL = "model"
MODEL_SUFFIXES = (".tflite", ".lite")
"""Suffixes of model files, which are models even if they are damaged."""
MAX_MEMBERS, MAX_DEPTH = 1000, 3

# Heuristic limit on the unpacked size of a bundle's compressed models: the larger of a number of bytes and a multiple
# of the bundle's size. Deflate compresses zeros a thousandfold, weights hardly at all.
UNPACKED_BYTES = 1 << 28
UNPACKED_RATIO = 32

_CHUNK = 1 << 20
_MAX_LISTED_MODELS = 8  # maximum number of models that a message names
_LOCAL_HEADER = struct.Struct("<26xHH")  # header of a zip member, with the lengths of its name and its extra field
_END = struct.Struct("<Q")

_HEADER = Layout.parse("LiteRTLMMetaData", "system_metadata:table; section_metadata:table")
_SECTIONS = Layout.parse("SectionMetadata", "objects:[table]")
_SECTION = Layout.parse("SectionObject", "items:[table]; begin_offset:ulong; end_offset:ulong; data_type:ubyte")
_ITEM = Layout.parse("KeyValuePair", "key:string; value:union")
_STRING_VALUE = 9  # type of StringValue in the union VData
_STRING = Layout.parse("StringValue", "value:string")
_KINDS = (
    "none",
    "binary data",
    "deprecated",
    MODEL,
    "SentencePiece tokenizer",
    "LLM metadata",
    "tokenizer (Hugging Face)",
    "weights of a model",
    "executor metadata",
)


def is_bundle(path: Path) -> bool:
    """True if a file begins like a bundle, or ends like a zip. Raises OSError."""
    with path.open("rb") as file:
        first_bytes = file.read(8)
    return has_bundle_signature(first_bytes) or (first_bytes[4:8] != IDENTIFIER and zipfile.is_zipfile(path))


def split_part(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Return the bundle and the part in ``BUNDLE#PART``; "" for a plain path."""
    text = os.fspath(path)
    if not os.path.lexists(text):
        for position, character in enumerate(text):
            if character == "#" and os.path.isfile(text[:position]):
                return Path(text[:position]), text[position + 1 :]
    return Path(text), ""


def format_part(bundle: Path, name: str) -> str:
    """Return ``BUNDLE#PART`` as an argument of a shell command, quoted if necessary."""
    text = f"{bundle}#{name}"
    safe = text.replace("#", "")  # a # inside a word needs no quotes
    return text if shlex.quote(safe) == safe else shlex.quote(text)


def find_model(path: str | os.PathLike[str]) -> Member | None:
    """Return the model that ``BUNDLE#PART`` names, or the only model of a bundle.

    PART is the name of a model, or a text that only one name contains. The result is None if the path is not a bundle,
    or the bundle has no models. Raises NoSuchPart, InvalidModel and OSError.
    """
    file, part = split_part(path)
    if not (file.is_file() and is_bundle(file)):
        if part:
            raise NoSuchPart(f"{file} is not a bundle, so it has no part {part!r}; name the file without '#'")
        return None
    models = [member for member in members(file, os.fspath(file)) if member.kind == MODEL]
    matches = [model for model in models if model.name == part] or [model for model in models if part in model.name]
    if len(matches) == 1:
        return matches[0]
    if not models:
        return None
    names = [model.name for model in models]
    model_list = f"{plural(len(names), 'model')}: {list_first([*map(repr, names)], _MAX_LISTED_MODELS)}"
    if part:
        problem = "is part of several names" if matches else f"is none of these names{did_you_mean(part, names)}"
        raise NoSuchPart(f"{file} holds {model_list}; {part!r} {problem}")
    raise NoSuchPart(f"{file} holds {model_list}; name one of them, such as {format_part(file, names[0])}")


def has_bundle_signature(first_bytes: bytes) -> bool:
    """True if the first bytes identify a zip archive or a LiteRT-LM bundle."""
    return first_bytes.startswith((ZIP, LITERT_LM))


def bundle_parts(path: str | os.PathLike[str]) -> list[Member]:
    """Return the parts of a bundle, in file order.

    Raises InvalidModel if the file is not a bundle, and OSError.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is {describe(path)}; give the path of a .task or .litertlm file")
    if not is_bundle(check_file(Path(path))):
        raise _invalid_bundle(
            os.fspath(path), "bundle", "it is neither a LiteRT-LM bundle nor a zip archive of models", ""
        )
    return members(Path(path), os.fspath(path))


def members(source: Path | bytes, name: str) -> list[Member]:
    """Return the members of a bundle, in file order.

    Raises InvalidModel if the bundle is damaged or exceeds the unpacked limit. A model is read only when its ``load``
    is called. An uncompressed model is returned as a section of the file.
    """
    content = Content(source) if isinstance(source, bytes) else FileContent.open(source, name)
    if bytes(content.read(0, min(8, content.size))) == LITERT_LM:
        return list(_list_sections(content, name))
    limits = _Limits(name, MAX_MEMBERS, max(UNPACKED_BYTES, UNPACKED_RATIO * content.size))
    with _archive_errors(name):
        return list(_Archive(content, name, limits).members(""))


@contextmanager
def _archive_errors(name: str) -> Iterator[None]:
    """Raise InvalidModel for errors that zipfile raises if an archive is damaged."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        OSError,
        EOFError,
        RuntimeError,
        NotImplementedError,
        struct.error,
    ) as error:
        raise _invalid_bundle(name, "bundle", f"the zip archive cannot be read: {error}") from error


@dataclass
class _Limits:
    """Number of members and of unpacked bytes that a bundle may still have."""

    name: str
    members: int
    unpacked_bytes: int

    def count_members(self, count: int) -> None:
        self.members -= count
        if self.members < 0:
            raise _invalid_bundle(self.name, "bundle", f"the bundle holds more than {MAX_MEMBERS} files")

    def count_unpacked(self, entry: zipfile.ZipInfo, path: str) -> None:
        self.unpacked_bytes -= entry.file_size
        if self.unpacked_bytes < 0:
            limit = f"{UNPACKED_BYTES >> 20} MiB or {UNPACKED_RATIO} times the bundle's size, whichever is larger"
            reason = f"unpacking {path!r} ({entry.file_size} bytes) would exceed the limit: {limit}"
            raise _invalid_bundle(
                self.name, "bundle", reason, "unpack the archive and convert the extracted .tflite file"
            )


class _Archive:
    """A zip archive. ``name``: the name of the bundle in errors."""

    def __init__(self, content: Content, name: str, limits: _Limits, depth: int = 1) -> None:
        self._content, self._name, self._limits, self._depth = content, name, limits, depth
        self._zip = zipfile.ZipFile(stream_of(content))

    def members(self, prefix: str) -> Iterator[Member]:
        """Yield the members. Names of members in a nested archive begin with its name."""
        entries = [entry for entry in self._zip.infolist() if not entry.is_dir()]
        self._limits.count_members(len(entries))
        for entry in entries:
            path = prefix + entry.filename
            is_named_model = Path(path).suffix.lower() in MODEL_SUFFIXES
            try:
                with self._zip.open(entry) as stream:
                    start = stream.read(8)
            except (zipfile.BadZipFile, zlib.error, EOFError):
                if not is_named_model:
                    raise
                start = b""  # damaged; load() raises the reason
            if start.startswith(ZIP) and self._depth < MAX_DEPTH:
                yield from self._open_nested(entry, path).members(path + "/")
            elif start[4:8] == IDENTIFIER or is_named_model:
                self._check_size(entry, path)
                yield Member(path, MODEL, entry.file_size, partial(self._load_member, entry, path))
            else:
                yield Member(path, Path(path).suffix.lstrip(".") or "file", entry.file_size)

    def _open_nested(self, entry: zipfile.ZipInfo, path: str) -> _Archive:
        """Open a nested archive. A compressed archive is unpacked once."""
        self._check_size(entry, path)
        member = self._load_member(entry, path)
        content = member.open() if isinstance(member, Section) else Content(member)
        return _Archive(content, self._name, self._limits, self._depth + 1)

    def _check_size(self, entry: zipfile.ZipInfo, path: str) -> None:
        """Raise BadZipFile for an inconsistent size, InvalidModel above the limit."""
        if entry.compress_type != zipfile.ZIP_STORED:
            self._limits.count_unpacked(entry, path)
        elif entry.file_size != entry.compress_size:
            raise zipfile.BadZipFile(
                f"{path!r} has {entry.file_size} bytes, but {entry.compress_size} bytes are stored without compression"
            )

    def _load_member(self, entry: zipfile.ZipInfo, path: str) -> bytes | Section:
        """Return an uncompressed member as a section, a compressed one as bytes."""
        full_name = f"{self._name}: {path}"
        with _archive_errors(full_name):
            if entry.compress_type == zipfile.ZIP_STORED:
                return Section(self._content, self._data_offset(entry), entry.file_size, full_name, entry.CRC)
            unpacked = io.BytesIO()
            with self._zip.open(entry) as stream:
                while chunk := stream.read(_CHUNK):
                    unpacked.write(chunk)
            return unpacked.getvalue()

    def _data_offset(self, entry: zipfile.ZipInfo) -> int:
        """Return the position of the first data byte of a member."""
        name_length, extra_length = self._content.unpack(_LOCAL_HEADER, entry.header_offset)
        start = int(entry.header_offset + _LOCAL_HEADER.size + name_length + extra_length)
        if start + entry.file_size > self._content.size:
            raise zipfile.BadZipFile(f"{entry.filename!r} exceeds the archive")
        return start


def _list_sections(content: Content, name: str) -> Iterator[Member]:
    """Yield the sections of a LiteRT-LM bundle."""
    size = content.size
    if size < 40:
        raise _invalid_bundle(name, "header", "the file ends before its header")
    (end,) = content.unpack(_END, 24)
    if not 40 <= end <= size:
        raise _invalid_bundle(name, "header", f"the header would end at byte {end} of {size}")
    header = File(content.part(32, end - 32, name), name).root(_HEADER).table("section_metadata", _SECTIONS)
    for k, section in enumerate(header.tables("objects", _SECTION) if header is not None else ()):
        start, stop, data_type = (section.number(field) for field in ("begin_offset", "end_offset", "data_type"))
        if not start <= stop <= size:
            raise _invalid_bundle(name, section.path, f"bytes {start} to {stop} are outside the file of {size} bytes")
        kind = _KINDS[data_type] if data_type < len(_KINDS) else f"data of type {data_type}"
        model_type = ""
        for item in section.tables("items", _ITEM):
            value = item.table("value", _STRING) if item.number("value_type") == _STRING_VALUE else None
            if item.text("key") == "model_type" and value is not None:
                model_type = value.text("value")
        section_name = f"section {k}" + (f" {model_type}" if model_type else "")
        load = partial(Section, content, start, stop - start, f"{name}: {section_name}")
        yield Member(section_name, kind, stop - start, load)


def _invalid_bundle(name: str, where: str, reason: str, hint: str = DAMAGED) -> InvalidModel:
    return InvalidModel(f"cannot read {name}", [Problem(where, reason, hint)])
