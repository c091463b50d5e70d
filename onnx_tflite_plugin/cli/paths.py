"""Checks of files that a command reads and writes, before it does any work."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from onnx_tflite_plugin.cli.failures import UsageProblem

_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


class FilePath(click.Path):
    """Argument or option that takes a path.

    Refuses an empty text, which would mean the current folder, and a web address.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = os.fspath(value)
        if not text:
            self.fail("the path is empty; a shell variable may be unset", param, ctx)
        if isinstance(param, click.Option) and len(text) > 1 and text[:1] == "-":
            remedy = f"write ./{text} if the path begins with '-'"
            self.fail(f"a path is missing before {text!r}, which looks like an option; {remedy}", param, ctx)
        if str(text).startswith(("http://", "https://")):
            self.fail(f"{text} is an address, not a file; download the file first", param, ctx)
        return super().convert(value, param, ctx)


class OutputPath(FilePath):
    """Path of a file or folder to write.

    Sets ``MISSING_FOLDER`` in ``ctx.meta`` if the text ends with a slash, but no such folder exists.
    """

    MISSING_FOLDER = "onnx_tflite_plugin.missing_folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        if ctx is not None and str(value).endswith(_SEPARATORS) and not path.is_dir():
            ctx.meta[self.MISSING_FOLDER] = True
        return path


def check_readable(source: Path) -> Path:
    """Return the path of the file to open: the bundle for ``BUNDLE#PART``.

    Raises UsageProblem if the file cannot be opened.
    """
    path = bundle_of(source)
    if path.is_dir():
        raise UsageProblem(f"{path} is a folder, not a file")
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would block
            raise UsageProblem(f"{path} is not a regular file; write the model to a file first")
        path.open("rb").close()
    except FileNotFoundError:
        raise UsageProblem(f"{path}: there is no such file{missing_file_remedy(path)}") from None
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}") from None
    return path


def missing_file_remedy(path: Path) -> str:
    """Return a remedy for a missing file.

    Names a similar file, the missing folder, or the folder at which relative paths begin.
    """
    folder = path.parent
    if not folder.is_dir():
        return f"; there is no folder {folder} either"
    with suppress(OSError):
        if similar_name := _similar_name(path, sorted(folder.iterdir())):
            return f"; did you mean {similar_name!r}?"
    return "" if path.is_absolute() else f"; relative paths begin at {Path.cwd()}"


def _similar_name(path: Path, entries: Sequence[Path]) -> str:
    """Return the most similar name in the folder of a path; empty if none is."""
    stems = {entry.stem: entry.name for entry in entries if entry.suffix == path.suffix}
    if similar := get_close_matches(path.stem, stems, 1):
        return stems[similar[0]]
    suffixes = {entry.suffix: entry.name for entry in entries if entry.stem == path.stem and entry.suffix}
    wanted = get_close_matches(path.suffix, suffixes, 1) if path.suffix else sorted(suffixes, key=_suffix_rank)
    return suffixes[wanted[0]] if wanted else ""


def _suffix_rank(suffix: str) -> int:
    """Return a sort key: TFLite models first, then bundles, then other files."""
    known_suffixes = (".tflite", ".lite", ".task", ".litertlm")
    return known_suffixes.index(suffix) if suffix in known_suffixes else len(known_suffixes)


def join_command(words: Sequence[str]) -> str:
    """Return words as a shell command, with the bytes of names that cannot be printed."""
    return " ".join(_quote_word(word) for word in words)


def _quote_word(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    escaped = (
        chr(byte) if chr(byte).isascii() and chr(byte).isprintable() and chr(byte) not in "'\\" else f"\\x{byte:02x}"
        for byte in os.fsencode(word)
    )
    return f"$'{''.join(escaped)}'"


def bundle_of(source: Path) -> Path:
    """Return the bundle of ``BUNDLE#PART``, otherwise the path itself."""
    if "#" not in str(source):
        return source
    from onnx_tflite_plugin.source.bundle import split_part

    return split_part(source)[0]


def check_writable(path: Path, *, sources: tuple[Path, ...] = ()) -> Path:
    """Return the path if a file can be written to it.

    Raises UsageProblem if the folder does not exist or is not writable, or if the path is a TFLite model or one of
    ``sources``.
    """
    folder = path.parent
    if path.is_dir():
        raise UsageProblem(f"{path} is a folder; name the file to write")
    if path.exists() and not path.is_file():
        raise UsageProblem(f"{path} is not a regular file")
    if path.exists() and any(path.samefile(source) for source in sources):
        raise UsageProblem(f"{path} is the model itself; choose a different output file")
    if path.is_file() and os.access(path, os.R_OK) and _is_tflite(path):
        raise UsageProblem(f"{path} is a TFLite model, which would be replaced; choose a different output file")
    if not folder.is_dir():
        raise UsageProblem(
            f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}; create it first"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageProblem(f"the folder {folder} cannot be written to; name a file in another folder")
    return path


def check_pair(tflite: Path, onnx: Path) -> None:
    """Raise UsageProblem if a file cannot be opened, or if the two files are swapped."""
    tflite = check_readable(tflite)
    check_readable(onnx)
    if _is_tflite(onnx) and not _is_tflite(tflite):
        raise UsageProblem(f"{onnx} is a TFLite model; give the TFLite model first and the ONNX model second")
    if _is_onnx(tflite):
        raise UsageProblem(f"{tflite} is an ONNX model; give the TFLite model as the first argument")


def _is_tflite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8)[4:] == b"TFL3"


def _is_onnx(path: Path) -> bool:
    from onnx_tflite_plugin.source.content import Content
    from onnx_tflite_plugin.source.formats import describe_format

    with path.open("rb") as file:
        return describe_format(Content(file.read(64))).startswith("it is an ONNX model")
