"""Equal weights of several models, in one file.

The signatures of a language model share most of their weights.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from onnx_tflite_plugin import files

if TYPE_CHECKING:
    import onnx

LEAST_SAVED = 1 << 20
"""Bytes that sharing must save; smaller models stay in one file each."""
LEAST_BYTES = 1 << 10
"""Bytes of a tensor that is worth a reference."""
_ALIGNMENT = 1 << 12  # so that runtimes map tensors into memory
_DIGEST = 16  # hex digits of a digest in a name


def share_weights(paths: Sequence[Path], stem: str) -> Path | None:
    """Move the weights of several models of one folder into ``<stem>.<digest>.data``, equal ones once.

    Return its path.
    Return None, and changes nothing, if that saves little, or if a model has external weights already. One model is in memory at a
    time.
    """
    weights_by_model = [_weight_sizes(path) for path in paths]
    if len(paths) < 2 or None in weights_by_model:
        return None
    distinct = {digest: size for weights in weights_by_model for digest, size in weights or ()}
    if sum(size for weights in weights_by_model for _, size in weights or ()) - sum(distinct.values()) < LEAST_SAVED:
        return None
    folder = paths[0].parent
    replaced = {name for path in paths for name in _earlier_files(path, stem)}
    data, models = _move_weights(paths, stem)
    for path, model in models.items():
        files.write(path, model)
    _remove_unused(folder, replaced - {data.name})
    return data


def _weight_sizes(path: Path) -> list[tuple[bytes, int]] | None:
    """Return digest and size of each large weight of a model.

    Return None if the model has external weights.
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    if any(tensor.external_data for tensor in model.graph.initializer):
        return None
    return [(_digest(tensor), len(tensor.raw_data)) for tensor in _large(model)]


def _large(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the large initializers of the main graph."""
    return [tensor for tensor in model.graph.initializer if len(tensor.raw_data) >= LEAST_BYTES]


def _digest(tensor: onnx.TensorProto) -> bytes:
    return hashlib.sha256(tensor.raw_data).digest()


def _move_weights(paths: Sequence[Path], stem: str) -> tuple[Path, dict[Path, bytes]]:
    """Write the weights to a file named by its digest.

    Return the path of the file, and the content of the models that refer to it.
    """
    descriptor, temporary = tempfile.mkstemp(dir=paths[0].parent, prefix=f".{stem[:60]}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            offsets = _Offsets(file)
            models = {path: _make_weights_external(path, offsets) for path in paths}
        data = paths[0].with_name(f"{stem}.{offsets.digest}.data")
        os.chmod(temporary, 0o666 & ~files.umask())
        os.replace(temporary, data)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    return data, {path: _with_location(model, data.name) for path, model in models.items()}


def _make_weights_external(path: Path, offsets: _Offsets) -> bytes:
    """Return a serialized model with references instead of weights.

    The result is not a protobuf object, because such an object keeps the memory of cleared fields.
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    for tensor in _large(model):
        _make_external(tensor, offsets.add(tensor))
    return bytes(model.SerializeToString())


def _with_location(model: bytes, name: str) -> bytes:
    """Return a model that refers to a file of this name."""
    import onnx

    proto = onnx.load_model_from_string(model)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            entry.value = name if entry.key == "location" else entry.value
    return bytes(proto.SerializeToString())


class _Offsets:
    """Offsets of weights in a file, by content."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._offsets, self._total = file, dict[bytes, int](), hashlib.sha256()

    def add(self, tensor: onnx.TensorProto) -> int:
        """Return the offset of a weight, and write the weight if the file lacks it."""
        digest = _digest(tensor)
        if digest not in self._offsets:
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            self._offsets[digest] = self._file.tell()
            self._file.write(tensor.raw_data)
            self._total.update(digest)
        return self._offsets[digest]

    @property
    def digest(self) -> str:
        """The digest of all weights, for the file's name."""
        return self._total.hexdigest()[:_DIGEST]


def _make_external(tensor: onnx.TensorProto, offset: int) -> None:
    """Replace the content of a tensor by a reference to a file without a name yet."""
    import onnx

    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", ""), ("offset", str(offset)), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)


def _earlier_files(path: Path, stem: str) -> list[str]:
    """Return the files of shared weights that earlier conversions of this name wrote."""
    length = len(stem) + len(".data") + _DIGEST + 1
    names = (entry.name for entry in path.parent.glob("*.data"))
    return [name for name in names if name.startswith(f"{stem}.") and len(name) == length]


def _remove_unused(folder: Path, names: Iterable[str]) -> None:
    """Remove the files that no model of the folder refers to."""
    used = [files.external_files(path) for path in folder.glob("*.onnx")]
    for name in names:
        if all(names_in_model is not None and name not in names_in_model for names_in_model in used):
            with suppress(OSError):
                (folder / name).unlink()
