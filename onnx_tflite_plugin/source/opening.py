"""Open a model: a path, bytes, or a part of a bundle."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from onnx_tflite_plugin.source.content import Content, FileContent, Member, Section, check_file

READ_AT_ONCE_BYTES = 1 << 26
"""Maximum bytes of a file that is read at once."""

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | Section | Member
"""A model as a path, as bytes, or as a part of a bundle. A path may name a part: ``BUNDLE#PART``."""


def resolve_source(source: Source) -> str | os.PathLike[str] | bytes | bytearray | memoryview | Section:
    """Return the content of a part of a bundle, or ``source`` itself.

    Raises NoSuchPart and InvalidModel.
    """
    if isinstance(source, Member):
        return source.load()
    if not isinstance(source, str | os.PathLike) or _is_model_file(source):
        return source
    from onnx_tflite_plugin.source.bundle import find_model  # imports zipfile

    model = find_model(source)
    return source if model is None else model.load()


def _is_model_file(path: str | os.PathLike[str]) -> bool:
    """True if a readable file has the identifier of a TFLite model."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return file.read(8)[4:] == b"TFL3"
    except OSError:
        return False


def open_content(source: Source) -> tuple[Content, str]:
    """Return the content of a model and its name in errors.

    Raises InvalidModel and OSError.
    """
    source = resolve_source(source)
    if isinstance(source, Section):
        content, name = source.open(), source.name
    elif isinstance(source, str | os.PathLike):
        name = os.fspath(source)
        content = FileContent.open(check_file(Path(source)), name)
    else:
        return Content(source), "the given bytes"
    return (Content(content.read(0, content.size)) if content.size <= READ_AT_ONCE_BYTES else content), name


def read_bytes(source: Source) -> bytes:
    """Return all bytes of a model.

    Raises InvalidModel for a damaged section, and OSError.
    """
    source = resolve_source(source)
    if isinstance(source, Section):
        return source.read()
    return Path(source).read_bytes() if isinstance(source, str | os.PathLike) else bytes(source)
