"""Stored sizes of constants: dtype -> bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from onnx_tflite_plugin.source.data import StoredData
from onnx_tflite_plugin.source.dtypes import bits, size_in_file
from onnx_tflite_plugin.source.model import Tensor


@dataclass(frozen=True)
class ConstantSize:
    """Number and stored bytes of the sparse or the dense constants of one dtype."""

    dtype: str
    sparse: bool
    count: int
    bytes: int


def constant_sizes(tensors: Iterable[Tensor]) -> list[ConstantSize]:
    """Return the sizes of the constants among ``tensors``, most bytes first.

    Strings and handles are omitted, because their elements have no fixed size.
    """
    sizes: dict[tuple[str, bool], ConstantSize] = {}
    for tensor in tensors:
        if not tensor.is_constant or not tensor.is_static or not bits(tensor.dtype):
            continue
        sparse_bytes = tensor.data.sparse_bytes if isinstance(tensor.data, StoredData) else None
        stored_bytes = size_in_file(tensor.dtype, tensor.shape) if sparse_bytes is None else sparse_bytes
        key = tensor.dtype, sparse_bytes is not None
        size = sizes.get(key, ConstantSize(*key, 0, 0))
        sizes[key] = replace(size, count=size.count + 1, bytes=size.bytes + stored_bytes)
    return sorted(sizes.values(), key=lambda size: (-size.bytes, size.dtype))


def file_constants(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the constants that are stored in the file, each once.

    Results of constant folding are omitted.
    """
    return [*{id(tensor.data): tensor for tensor in tensors if isinstance(tensor.data, StoredData)}.values()]
