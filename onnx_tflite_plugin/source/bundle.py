"""Files that hold several models: zip archives (MediaPipe's ``.task``) and LiteRT-LM bundles.

A ``.task`` is a zip of ``.tflite`` files, other assets and possibly further ``.task`` files. A LiteRT-LM bundle begins
with ``LITERTLM``, a version, the end of its header at byte 24 and a FlatBuffer at byte 32 (``litertlm_header_schema.fbs``).
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from onnx_tflite_plugin.errors import InvalidModel, Problem
from onnx_tflite_plugin.source.flatbuffer import DAMAGED, File, Layout

ZIP, LITERT_LM = b"PK\x03\x04", b"LITERTLM"
IDENTIFIER = b"TFL3"  # of a model, behind which its own associated files may be a zip archive
MODEL = "model"
MOST_MEMBERS, MOST_BYTES, DEEPEST = 1000, 1 << 32, 3

_HEADER = Layout.parse("LiteRTLMMetaData", "system_metadata:table; section_metadata:table")
_SECTIONS = Layout.parse("SectionMetadata", "objects:[table]")
_SECTION = Layout.parse("SectionObject", "items:[table]; begin_offset:ulong; end_offset:ulong; data_type:ubyte")
_ITEM = Layout.parse("KeyValuePair", "key:string; value:union")
_STRING_VALUE = 9  # of the union VData
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


class Member(NamedTuple):
    """One part of a bundle; ``content`` is that of a model, and empty for anything else."""

    name: str
    kind: str
    size: int
    content: bytes = b""


def is_bundle(path: Path) -> bool:
    """Whether a file is a bundle, by its first bytes, or by its end: a zip archive is found from there. Raises OSError."""
    with path.open("rb") as file:
        start = file.read(8)
    return starts_bundle(start) or (start[4:8] != IDENTIFIER and zipfile.is_zipfile(path))


def starts_bundle(start: bytes) -> bool:
    return start.startswith((ZIP, LITERT_LM))


def members(content: bytes, name: str) -> list[Member]:
    """The parts of a bundle, in its order. Raises InvalidModel where it is damaged or larger than bundles are."""
    if content.startswith(LITERT_LM):
        return list(_sections(content, name))
    try:
        return list(_zipped(content, name, ""))
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError) as error:
        raise _invalid(name, "bundle", f"it is a zip archive that cannot be read: {error}") from error


def _zipped(content: bytes, name: str, prefix: str, depth: int = 1) -> Iterator[Member]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > MOST_MEMBERS or sum(entry.file_size for entry in entries) > MOST_BYTES:
            raise _invalid(name, "bundle", f"it unpacks to more than {MOST_MEMBERS} files or {MOST_BYTES >> 30} GiB")
        for entry in entries:
            path = prefix + entry.filename
            with archive.open(entry) as stream:
                start = stream.read(8)
                if start.startswith(ZIP) and depth < DEEPEST:
                    yield from _zipped(start + stream.read(), name, path + "/", depth + 1)
                elif start[4:8] == IDENTIFIER:
                    yield Member(path, MODEL, entry.file_size, start + stream.read())
                else:
                    yield Member(path, Path(path).suffix.lstrip(".") or "file", entry.file_size)


def _sections(content: bytes, name: str) -> Iterator[Member]:
    if len(content) < 40:
        raise _invalid(name, "header", "the file ends before its header")
    (end,) = struct.unpack_from("<Q", content, 24)
    if not 40 <= end <= len(content):
        raise _invalid(name, "header", f"it would end at byte {end} of {len(content)}")
    sections = File(memoryview(content)[32:end], name).root(_HEADER).table("section_metadata", _SECTIONS)
    for k, section in enumerate(sections.tables("objects", _SECTION) if sections is not None else ()):
        start, stop, which = (section.number(field) for field in ("begin_offset", "end_offset", "data_type"))
        if not start <= stop <= len(content):
            raise _invalid(name, section.path, f"bytes {start} to {stop} are outside the file's {len(content)}")
        kind = _KINDS[which] if which < len(_KINDS) else f"data of type {which}"
        named = ""
        for item in section.tables("items", _ITEM):
            value = item.table("value", _STRING) if item.number("value_type") == _STRING_VALUE else None
            if item.text("key") == "model_type" and value is not None:
                named = value.text("value")
        model = content[start:stop] if kind == MODEL else b""
        yield Member(f"section {k}" + (f" {named}" if named else ""), kind, stop - start, model)


def _invalid(name: str, where: str, reason: str) -> InvalidModel:
    return InvalidModel(f"cannot read {name}", [Problem(where, reason, DAMAGED)])
