"""Files that a command reads and writes, checked for path collisions before any work."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.cli.paths import check_writable

_MAX_LISTED = 3  # maximum number of outputs that a note lists by name

Stamp = tuple[int, int, int] | None
"""Values that change when a file is replaced; ``None`` for a file that does not exist."""


class _File(NamedTuple):
    """A file that a command reads or writes.

    ``path``: as the user gave it. ``description``: an input's role, or what is written to an output. ``folder``: the
    nearest existing folder. ``segments``: the path segments below that folder.
    """

    path: Path
    description: str
    is_output: bool
    folder: Path
    segments: tuple[str, ...]

    @classmethod
    def at(cls, path: Path, description: str, *, is_output: bool) -> _File:
        real_path = Path(os.path.realpath(path))
        folder = next(parent for parent in real_path.parents if parent.is_dir())
        return cls(path, description, is_output, folder, real_path.relative_to(folder).parts)

    def key(self) -> object:
        """Return a key; paths with equal keys may refer to the same file.

        Such paths may differ in case or Unicode normalization.
        """
        stat = os.stat(self.folder)
        folder = (stat.st_dev, stat.st_ino) if stat.st_ino else str(self.folder)
        return folder, tuple(map(_fold_case, self.segments))

    def is_same(self, other: _File) -> bool:
        """True if the two files, which have equal keys, are one file on disk."""
        pairs = zip(self.segments, other.segments, strict=True)
        return all(name == alias or _is_alias(self.folder, name, alias) for name, alias in pairs)


class CommandFiles:
    """All files that a command reads or writes, collected before any work is done.

    No two outputs may share a path, and no output may replace an input.
    """

    def __init__(self) -> None:
        self._files: dict[object, list[_File]] = {}
        self._inputs: dict[tuple[int, int], _File] = {}
        self._stamps: dict[Path, Stamp] = {}

    def register_input(self, path: Path, description: str) -> None:
        """Register a file to read. ``description``: its role, such as "the model itself"."""
        file = _File.at(path, description, is_output=False)
        self._files.setdefault(file.key(), []).append(file)
        if (stat := _stat(path)) is not None and stat.st_ino:
            self._inputs[stat.st_dev, stat.st_ino] = file

    def register_models(self, tflite: Path, onnx: Path, data: Any = None) -> None:
        """Register both models, and the data of ``--inputs`` if it is a path."""
        self.register_input(tflite, "the TFLite model")
        self.register_input(onnx, "the ONNX model")
        self.register_data(data)

    def register_data(self, data: Any) -> None:
        """Register the data of ``--inputs`` if it is a path."""
        if isinstance(data, Path):
            self.register_input(data, "the data of --inputs")

    def register_output(self, path: Path, description: str, remedy: str) -> Path:
        """Register a file to write. ``description``: what is written to the file, for messages.

        Raises UsageProblem with ``remedy`` if another file has this path.
        """
        file = _File.at(path, description, is_output=True)
        candidates = self._files.setdefault(file.key(), [])
        stat = _stat(path)
        same_input = None if stat is None else self._inputs.get((stat.st_dev, stat.st_ino))
        colliding_file = same_input or next((candidate for candidate in candidates if file.is_same(candidate)), None)
        if colliding_file is not None:
            raise UsageProblem(_collision_message(colliding_file, file, remedy))
        candidates.append(file)
        self._stamps[path] = _stamp(path)
        return path

    def prepare(self, *, folders: bool) -> None:
        """Check that every output can be written. Raises UsageProblem if it cannot.

        ``folders``: create missing folders first.
        """
        for path in self._stamps:
            if folders:
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                except FileExistsError:
                    raise UsageProblem(
                        f"{path.parent} is a file, but the models need a folder; choose a different folder"
                    ) from None
                except OSError as error:
                    raise UsageProblem(f"the folder {path.parent} cannot be created: {error.strerror}") from None
            check_writable(path)

    def note(self) -> str:
        """Return a sentence about the outputs that were written."""
        if not self._stamps:
            return "nothing was written"
        if len(self._stamps) > _MAX_LISTED:
            written = sum(_stamp(path) != initial_stamp for path, initial_stamp in self._stamps.items())
            return f"{written} of {plural(len(self._stamps), 'file')} were written"
        return "; ".join(self._describe_each())

    def _describe_each(self) -> Iterator[str]:
        for path, initial_stamp in self._stamps.items():
            if _stamp(path) != initial_stamp:
                yield f"{path} was written"
            else:
                yield f"{path} was not written" if initial_stamp is None else f"the existing {path} is unchanged"


def _fold_case(text: str) -> str:
    if text.isascii():
        return text.lower()
    import unicodedata

    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


def _is_alias(folder: Path, name: str, alias: str) -> bool:
    """True if the folder's file system treats two names as one file.

    Creates a temporary file to find out.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=f".{name}") as probe:
            return os.path.lexists(probe.name.removesuffix(name) + alias)
    except OSError:  # unknown: refuse rather than overwrite
        return True


def _collision_message(first: _File, second: _File, remedy: str) -> str:
    if not first.is_output:
        return f"{second.path} is {first.description}; choose a different output file"
    if first.path == second.path:
        return f"{first.description} and {second.description} would both be written to {first.path}; {remedy}"
    return (
        f"{first.description} would be written to {first.path} and {second.description} to {second.path}, "
        f"which is the same file; {remedy}"
    )


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _stamp(path: Path) -> Stamp:
    stat = _stat(path)
    return None if stat is None else (stat.st_ino, stat.st_mtime_ns, stat.st_size)
