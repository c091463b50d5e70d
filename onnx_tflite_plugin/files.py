"""Files written whole or not at all: beside their place, then renamed. What a killed process left there is removed."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from platform import node
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    import onnx_ir as ir

LONGEST_NAME = 255  # bytes that common file systems take
_SHOWN = 60  # characters of a file's name in that of its temporary one
_ROOM = 16  # bytes that names of temporary files are longer


def place_of(path: str | Path) -> Path:
    """Where a file of this path is to be written: a symbolic link stays, and what it points to is replaced.

    Raises IsADirectoryError and FileNotFoundError.
    """
    place = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
    if place.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory; name the file to write", str(path))
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(place.parent))
    return place


def write(path: Path, content: bytes) -> None:
    """One file."""
    _sweep(path)
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


def write_external(model: ir.Model, path: Path) -> list[Path]:
    """A model with its weights in a file of their own, ``<path>.data``."""
    import onnx
    import onnx_ir as ir

    from onnx_tflite_plugin.graph.serialized import without_constants_infos

    _sweep(path)
    data = _data_name(path.name)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_prefix(path) + f"{os.getpid()}.") as folder:
        ir.save(model, Path(folder) / path.name, external_data=data)
        proto = onnx.load(Path(folder) / path.name, load_external_data=False)
        without_constants_infos(proto.graph)
        onnx.save(proto, Path(folder) / path.name)
        written = [path.with_name(data), path]
        for file in written:
            os.replace(Path(folder) / file.name, file)
    return written[::-1]


def _data_name(name: str) -> str:
    """``model.onnx.data``; of a name that leaves no room for the suffix, as much as fits."""
    while len(os.fsencode(f"{name}.data")) > LONGEST_NAME - _ROOM:
        name = name[:-1]
    return f"{name}.data"


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
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


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
