"""Atomic writing of files, by renaming a temporary file.

The name of external weights contains their digest, so that they never replace the weights of an existing model. New
weights are renamed before the model that refers to them, and old weights are removed afterwards. The model at the path
therefore has its weights even if the process is killed. The next run removes leftovers of a killed process.
"""

from __future__ import annotations

import errno
import io
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32

from onnx_tflite_plugin.checked import describe

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

Writer = Callable[[BinaryIO], None]
"""Function that writes the content of a file."""
MAX_NAME_BYTES = 255  # limit of common file systems
_PREFIX_CHARACTERS = 60  # characters of a file's name in the name of its temporary file
_TEMPORARY_NAME_BYTES = 16  # additional bytes in names of temporary files
_JOURNAL = "weights"  # file in a temporary folder: names of the weights that its process adds and removes
_DIGEST_LENGTH = 16  # hex digits of a digest in a name


_TFLITE_SUFFIXES = (".tflite", ".lite", ".task", ".litertlm")
_OTHER_SUFFIXES = (".pb", ".h5", ".keras", ".pt", ".pth", ".mlmodel", ".engine")


class _OutputPathError(OSError):
    """An unusable output path. The message begins with the path."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class OutputIsFolder(_OutputPathError, IsADirectoryError):
    """A folder in place of the file to write."""


class MissingFolder(_OutputPathError, FileNotFoundError):
    """The folder of the file to write does not exist."""


def describe_wrong_suffix(path: str | Path) -> str:
    """Return why an ONNX model should not have the suffix of a path; empty if it may."""
    suffix = Path(path).suffix.lower()
    if suffix in _TFLITE_SUFFIXES:  # an unquoted *.tflite names a second source, which would be overwritten
        return f"{path}: the suffix {suffix} belongs to a TFLite model; name an .onnx file"
    if suffix in _OTHER_SUFFIXES:  # tools would take the ONNX model for that format
        return f"{path}: the suffix {suffix} belongs to another format; name an .onnx file"
    return ""


def resolve_output_path(path: str | Path) -> Path:
    """Return the path to write to: the target of a symbolic link, otherwise the path.

    Raises TypeError, IsADirectoryError and FileNotFoundError.
    """
    if not isinstance(path, str | os.PathLike):
        hint = "; write(file) writes to an open file" if hasattr(path, "write") else ""
        raise TypeError(f"path is {describe(path)}; give the path of the file to write{hint}")
    if not os.fspath(path):
        raise FileNotFoundError(errno.ENOENT, "the path is empty; name the file to write", "")
    resolved = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
    if resolved.is_dir():
        raise OutputIsFolder(errno.EISDIR, "this is a folder; name the file to write", str(path))
    if not resolved.parent.is_dir():
        raise MissingFolder(errno.ENOENT, "there is no such folder", str(resolved.parent))
    return resolved


def write(path: Path, content: bytes | Writer) -> None:
    """Write a file atomically. ``content``: bytes, or a function that writes them.

    If writing fails, the file keeps its old content. Raises OSError with the name of the file.
    """
    _remove_leftovers(path)
    with _name_errors(path):
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path) + f"{os.getpid()}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                _write_content(file, content)
            os.chmod(temporary, 0o666 & ~umask())
            os.replace(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


def write_model(path: Path, content: bytes | Writer) -> None:
    """Write a model with embedded weights; remove its previous external weights."""
    if not _previous_weights(path):
        write(path, content)
        return
    _remove_leftovers(path)
    with _temporary_folder(path) as folder:
        with (folder / path.name).open("wb") as file:
            _write_content(file, content)
        _publish(path, folder, None)


class CompleteWriter:
    """Writer of a binary file that writes all bytes, also to an unbuffered file.

    An unbuffered file writes as many bytes as fit, and returns their number.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._is_raw = file, isinstance(file, io.RawIOBase)

    def write(self, content: bytes) -> None:
        """Write all bytes. Raises OSError."""
        if not self._is_raw:
            self._file.write(content)
            return
        remaining = memoryview(content)
        while remaining:
            written: int | None = self._file.write(remaining)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, "the file does not block; give a blocking file")
            remaining = remaining[written:]


def _write_content(file: BinaryIO, content: bytes | Writer) -> None:
    if isinstance(content, bytes):
        file.write(content)
    else:
        content(file)


def write_external(model: ir.Model, path: Path) -> list[Path]:
    """Write a model and its external weights, ``<path>.<digest>.data``.

    Return the path of the model and the path of the weights.
    """
    import onnx
    import onnx_ir as ir

    from onnx_tflite_plugin.graph.serialized import remove_constant_infos

    _remove_leftovers(path)
    with _temporary_folder(path) as folder:
        ir.save(model, folder / path.name, external_data="weights.data")
        weights_name = _data_name(path.name, _digest(folder / "weights.data"))
        os.replace(folder / "weights.data", folder / weights_name)
        proto = onnx.load(folder / path.name, load_external_data=False)
        remove_constant_infos(proto.graph)
        for location in _locations(proto.graph):
            location.value = weights_name
        onnx.save(proto, folder / path.name)
        _publish(path, folder, weights_name)
    return [path, path.with_name(weights_name)]


@contextmanager
def _name_errors(path: Path) -> Iterator[None]:
    """Raise an OSError again with the name of the file to write."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """Create a temporary folder for the files of one path."""
    with (
        _name_errors(path),
        tempfile.TemporaryDirectory(dir=path.parent, prefix=_prefix(path) + f"{os.getpid()}.") as folder,
    ):
        yield Path(folder)


def _publish(path: Path, folder: Path, data: str | None) -> None:
    """Rename the weights to their final name, then the model that refers to them.

    Removes the weights of the previous model at the path.
    """
    os.chmod(folder / path.name, 0o666 & ~umask())
    with _lock_folder(path.parent):
        new_data = data if data is not None and not _has_equal_size(folder / data, path.with_name(data)) else None
        journal = [*([new_data] if new_data else []), *_previous_weights(path)]
        (folder / _JOURNAL).write_bytes("\0".join(journal).encode(errors="surrogateescape"))
        try:
            if new_data:
                os.chmod(folder / new_data, 0o666 & ~umask())
                os.replace(folder / new_data, path.with_name(new_data))
            os.replace(folder / path.name, path)
        finally:
            _remove_unused(path, journal)


def _has_equal_size(new: Path, existing: Path) -> bool:
    """True if ``existing``, named by the digest of ``new``, has an equal size."""
    return existing.exists() and new.stat().st_size == existing.stat().st_size


def _remove_unused(path: Path, names: Iterable[str]) -> None:
    """Remove the weights that the model at a path does not refer to."""
    used = external_files(path)
    for name in names:
        if used is not None and name not in used and _is_weights(name, path):
            with suppress(OSError):  # on Windows, a file that another program has open cannot be removed
                path.with_name(name).unlink()


def _previous_weights(path: Path) -> list[str]:
    """Return the external weights that earlier conversions to this path wrote."""
    with suppress(OSError):
        if any(_is_weights(entry.name, path) for entry in path.parent.iterdir()):
            return sorted(name for name in external_files(path) or () if _is_weights(name, path))
    return []


def external_files(path: Path) -> set[str] | None:
    """Return the names of a model's external data files; None if it is unreadable."""
    import onnx

    try:
        return {location.value for location in _locations(onnx.load(path, load_external_data=False).graph)}
    except FileNotFoundError:
        return set()
    except Exception:
        return None


def _locations(graph: onnx.GraphProto) -> Iterator[onnx.StringStringEntryProto]:
    """Yield the entries that name an external data file, also in inner graphs."""
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    tensors = [*graph.initializer, *(attribute.t for attribute in attributes if attribute.HasField("t"))]
    for tensor in tensors:
        yield from (entry for entry in tensor.external_data if entry.key == "location")
    for attribute in attributes:
        for inner in (attribute.g, *attribute.graphs):
            yield from _locations(inner)


def _digest(file: Path) -> str:
    import hashlib  # takes 4 MB, and few models need it

    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:_DIGEST_LENGTH]


def _data_name(name: str, digest: str) -> str:
    """Return the name of a model's weights: ``model.onnx.<digest>.data``.

    A long name is truncated; the digest then covers the complete name too.
    """
    stem = _stem(name)
    if stem != name:  # names with a common prefix must not share weights
        import hashlib

        digest = hashlib.sha256(f"{digest}\n{name}".encode(errors="surrogateescape")).hexdigest()[:_DIGEST_LENGTH]
    return f"{stem}.{digest}.data"


def _stem(name: str) -> str:
    """Return the longest prefix of a name that fits in the name of its weights."""
    while len(os.fsencode(f"{name}.{'0' * _DIGEST_LENGTH}.data")) > MAX_NAME_BYTES - _TEMPORARY_NAME_BYTES:
        name = name[:-1]
    return name


def _is_weights(name: str, path: Path) -> bool:
    """True if this version or an earlier one gives this name to the weights of a path."""
    pattern = rf"{re.escape(_stem(path.name))}\.[0-9a-f]{{{_DIGEST_LENGTH}}}\.data"
    return name == f"{path.name}.data" or re.fullmatch(pattern, name) is not None


def _prefix(path: Path) -> str:
    """Return the prefix of temporary files for a path; a process id follows."""
    digest = crc32(f"{platform.node()}\n{path.name}".encode(errors="surrogateescape"))
    return f".{path.name[:_PREFIX_CHARACTERS]}.{digest:08x}."


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files for this path of processes that have ended."""
    prefix = _prefix(path)
    with suppress(OSError):
        for leftover in [entry for entry in path.parent.iterdir() if entry.name.startswith(prefix)]:
            process = leftover.name.removeprefix(prefix).partition(".")[0]
            if not process.isdecimal() or _is_running(int(process)):
                continue
            if leftover.is_dir() and not leftover.is_symlink():
                with _lock_folder(path.parent), suppress(FileNotFoundError):
                    names = (leftover / _JOURNAL).read_bytes().decode(errors="surrogateescape")
                    _remove_unused(path, names.split("\0"))
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against renames by other conversions, where locks are supported."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_running(process: int) -> bool:
    """True if a process with this id exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def umask() -> int:
    """Return the umask of the process: the permissions that new files lack."""
    current = os.umask(0)
    os.umask(current)
    return current
