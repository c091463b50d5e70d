"""Sharing of equal weights of several models in one file.

The signatures of a language model have most of their weights in common.
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

MIN_SAVED_BYTES = 1 << 20
"""Minimum number of bytes that sharing must save; otherwise each model keeps its weights."""
MIN_TENSOR_BYTES = 1 << 10
"""Minimum size of a shared tensor."""
_ALIGNMENT = 1 << 12  # runtimes can map aligned tensors into memory
_DIGEST_LENGTH = 16  # hex digits of a digest in a name


def share_weights(paths: Sequence[Path], stem: str) -> Path | None:
    """Move the weights of models in one folder into one file, and return its path.

    The file is ``<stem>.<digest>.data``; equal weights are stored once. Return None and change nothing if this saves
    little, or if a model has external weights already. Only one model is in memory at a time.
    """
    weights_by_model = [_weight_sizes(path) for path in paths]
    if len(paths) < 2 or None in weights_by_model:
        return None
    distinct_sizes = {digest: size for weights in weights_by_model for digest, size in weights or ()}
    total_bytes = sum(size for weights in weights_by_model for _, size in weights or ())
    if total_bytes - sum(distinct_sizes.values()) < MIN_SAVED_BYTES:
        return None
    folder = paths[0].parent
    earlier_files = {name for path in paths for name in _earlier_files(path, stem)}
    data, models = _move_weights(paths, stem)
    for path, model in models.items():
        files.write(path, model)
    _remove_unused(folder, earlier_files - {data.name})
    return data


def _weight_sizes(path: Path) -> list[tuple[bytes, int]] | None:
    """Return digest and size of each large weight; None if the weights are external."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    if any(tensor.external_data for tensor in model.graph.initializer):
        return None
    return [(_digest(tensor), len(tensor.raw_data)) for tensor in _shared_tensors(model)]


def _shared_tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the initializers of the main graph that are large enough to share."""
    return [tensor for tensor in model.graph.initializer if len(tensor.raw_data) >= MIN_TENSOR_BYTES]


def _digest(tensor: onnx.TensorProto) -> bytes:
    return hashlib.sha256(tensor.raw_data).digest()


def _move_weights(paths: Sequence[Path], stem: str) -> tuple[Path, dict[Path, bytes]]:
    """Write the weights to a file named by its digest.

    Return the path of the file, and the content of the models that refer to it.
    """
    descriptor, temporary_path = tempfile.mkstemp(dir=paths[0].parent, prefix=f".{stem[:60]}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            offsets = _Offsets(file)
            models = {path: _make_weights_external(path, offsets) for path in paths}
        weights_path = paths[0].with_name(f"{stem}.{offsets.digest}.data")
        os.chmod(temporary_path, 0o666 & ~files.umask())
        os.replace(temporary_path, weights_path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary_path)
        raise
    return weights_path, {path: _with_location(model, weights_path.name) for path, model in models.items()}


def _make_weights_external(path: Path, offsets: _Offsets) -> bytes:
    """Return a serialized model with references instead of weights.

    The result is serialized, because a protobuf object keeps the memory of cleared fields.
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    for tensor in _shared_tensors(model):
        _make_external(tensor, offsets.add(tensor))
    return bytes(model.SerializeToString())


def _with_location(model: bytes, name: str) -> bytes:
    """Return a serialized model whose external weights are in the file of this name."""
    import onnx

    proto = onnx.load_model_from_string(model)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            entry.value = name if entry.key == "location" else entry.value
    return bytes(proto.SerializeToString())


class _Offsets:
    """Digest of the content of weights -> offset in the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._offsets, self._file_digest = file, dict[bytes, int](), hashlib.sha256()

    def add(self, tensor: onnx.TensorProto) -> int:
        """Return the offset of a tensor; write the tensor if the file lacks it."""
        digest = _digest(tensor)
        if digest not in self._offsets:
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            self._offsets[digest] = self._file.tell()
            self._file.write(tensor.raw_data)
            self._file_digest.update(digest)
        return self._offsets[digest]

    @property
    def digest(self) -> str:
        """Return the digest of all weights, for the name of the file."""
        return self._file_digest.hexdigest()[:_DIGEST_LENGTH]


def _make_external(tensor: onnx.TensorProto, offset: int) -> None:
    """Replace the content of a tensor with a reference to a file with an empty name."""
    import onnx

    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", ""), ("offset", str(offset)), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)


def _earlier_files(path: Path, stem: str) -> list[str]:
    """Return the shared weights that earlier conversions with this stem wrote."""
    length = len(stem) + len(".data") + _DIGEST_LENGTH + 1
    names = (entry.name for entry in path.parent.glob("*.data"))
    return [name for name in names if name.startswith(f"{stem}.") and len(name) == length]


def _remove_unused(folder: Path, names: Iterable[str]) -> None:
    """Remove the files that no model of the folder refers to."""
    used = [files.external_files(path) for path in folder.glob("*.onnx")]
    for name in names:
        if all(external is not None and name not in external for external in used):
            with suppress(OSError):
                (folder / name).unlink()
