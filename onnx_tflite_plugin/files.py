"""Files written whole or not at all: to a temporary file beside their place, then renamed.

Weights in a file of their own have a name that follows from their bytes, so they never replace those that an existing
model reads. They are renamed before the model that names them, and the old ones are removed after it: whenever the
process is killed, the model at the path finds its weights. The next run removes what a killed process left.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from platform import node
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

LONGEST_NAME = 255  # bytes that common file systems take
_SHOWN = 60  # characters of a file's name in that of its temporary one
_ROOM = 16  # bytes that names of temporary files are longer
_JOURNAL = "weights"  # in a temporary folder: the weights that its process adds and removes
_DIGEST = 16  # hex digits of a name that follows from bytes


def place_of(path: str | Path) -> Path:
    """Return where a file of this path is to be written: a symbolic link stays, and what it points to is replaced.

    Raises IsADirectoryError and FileNotFoundError.
    """
    place = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
    if place.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory; name the file to write", str(path))
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(place.parent))
    return place


def write(path: Path, content: bytes) -> None:
    """Write one file. An OSError names it, and leaves what was there."""
    _sweep(path)
    with _named(path):
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path) + f"{os.getpid()}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


def write_model(path: Path, content: bytes) -> None:
    """Write a model that holds its weights, and remove the weights of the one that it replaces."""
    if not _weights_of(path):
        write(path, content)
        return
    _sweep(path)
    with _folder(path) as folder:
        (folder / path.name).write_bytes(content)
        _publish(path, folder, None)


def write_external(model: ir.Model, path: Path) -> list[Path]:
    """Write a model with its weights in a file of their own, ``<path>.<digest>.data``. Returns both, the model first."""
    import onnx
    import onnx_ir as ir

    from onnx_tflite_plugin.graph.serialized import remove_constant_infos

    _sweep(path)
    with _folder(path) as folder:
        ir.save(model, folder / path.name, external_data="weights.data")
        data = _data_name(path.name, _digest(folder / "weights.data"))
        os.replace(folder / "weights.data", folder / data)
        proto = onnx.load(folder / path.name, load_external_data=False)
        remove_constant_infos(proto.graph)
        for location in _locations(proto.graph):
            location.value = data
        onnx.save(proto, folder / path.name)
        _publish(path, folder, data)
    return [path, path.with_name(data)]


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let an OSError name the file that could not be written, not its temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """Make a temporary folder for the files of one path."""
    with _named(path), tempfile.TemporaryDirectory(dir=path.parent, prefix=_prefix(path) + f"{os.getpid()}.") as folder:
        yield Path(folder)


def _publish(path: Path, folder: Path, data: str | None) -> None:
    """Rename the weights, then the model that names them, and remove the weights of the model that it replaces."""
    os.chmod(folder / path.name, 0o666 & ~_umask())
    with _locked(path.parent):
        new = data if data is not None and not _same_size(folder / data, path.with_name(data)) else None
        changed = [*([new] if new else []), *_weights_of(path)]
        (folder / _JOURNAL).write_bytes("\0".join(changed).encode(errors="surrogateescape"))
        try:
            if new:
                os.chmod(folder / new, 0o666 & ~_umask())
                os.replace(folder / new, path.with_name(new))
            os.replace(folder / path.name, path)
        finally:
            _remove_unused(path, changed)


def _same_size(one: Path, other: Path) -> bool:
    """True if the second is there already; its name follows from its bytes."""
    return other.exists() and one.stat().st_size == other.stat().st_size


def _remove_unused(path: Path, names: Iterable[str]) -> None:
    """Remove those of these weights that the model at a path does not name."""
    used = _named_by(path)
    for name in names:
        if used is not None and name not in used and _is_weights(name, path):
            with suppress(OSError):  # Windows: another program reads them
                path.with_name(name).unlink()


def _weights_of(path: Path) -> list[str]:
    """Return the weights of a model at a path that an earlier conversion to this path wrote."""
    with suppress(OSError):
        if any(_is_weights(entry.name, path) for entry in path.parent.iterdir()):
            return sorted(name for name in _named_by(path) or () if _is_weights(name, path))
    return []


def _named_by(path: Path) -> set[str] | None:
    """Return the files that a model names as its weights; ``None`` if it cannot be read."""
    import onnx

    try:
        return {location.value for location in _locations(onnx.load(path, load_external_data=False).graph)}
    except FileNotFoundError:
        return set()
    except Exception:
        return None


def _locations(graph: onnx.GraphProto) -> Iterator[onnx.StringStringEntryProto]:
    """Yield the entries that name a file of weights, of inner graphs too."""
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    tensors = [*graph.initializer, *(attribute.t for attribute in attributes if attribute.HasField("t"))]
    for tensor in tensors:
        yield from (entry for entry in tensor.external_data if entry.key == "location")
    for attribute in attributes:
        for inner in (attribute.g, *attribute.graphs):
            yield from _locations(inner)


def _digest(file: Path) -> str:
    import hashlib  # 4 MB, and few models need it

    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:_DIGEST]


def _data_name(name: str, digest: str) -> str:
    """Return ``model.onnx.<digest>.data``; of a long name as much as fits, with a digest of its own."""
    stem = _stem(name)
    if stem != name:  # names that begin alike share no weights
        import hashlib

        digest = hashlib.sha256(f"{digest}\n{name}".encode(errors="surrogateescape")).hexdigest()[:_DIGEST]
    return f"{stem}.{digest}.data"


def _stem(name: str) -> str:
    """Return as much of a model's name as fits into the name of its weights."""
    while len(os.fsencode(f"{name}.{'0' * _DIGEST}.data")) > LONGEST_NAME - _ROOM:
        name = name[:-1]
    return name


def _is_weights(name: str, path: Path) -> bool:
    """True for a name that conversions to this path give weights, those of earlier versions too."""
    pattern = rf"{re.escape(_stem(path.name))}\.[0-9a-f]{{{_DIGEST}}}\.data"
    return name == f"{path.name}.data" or re.fullmatch(pattern, name) is not None


def _prefix(path: Path) -> str:
    """How the names of temporary files for one path on one machine begin; a process's number follows."""
    which = crc32(f"{node()}\n{path.name}".encode(errors="surrogateescape"))
    return f".{path.name[:_SHOWN]}.{which:08x}."


def _sweep(path: Path) -> None:
    """Remove what processes that are no more have left of this path."""
    prefix = _prefix(path)
    with suppress(OSError):
        for left in [entry for entry in path.parent.iterdir() if entry.name.startswith(prefix)]:
            number = left.name.removeprefix(prefix).partition(".")[0]
            if not number.isdecimal() or _runs(int(number)):
                continue
            if left.is_dir() and not left.is_symlink():
                with _locked(path.parent), suppress(FileNotFoundError):
                    names = (left / _JOURNAL).read_bytes().decode(errors="surrogateescape")
                    _remove_unused(path, names.split("\0"))
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other conversions from renaming files of this folder, where the system has such locks."""
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


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
