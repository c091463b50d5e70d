"""Stored sizes of constants, by dtype."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from onnx_tflite_plugin.source.data import StoredData
from onnx_tflite_plugin.source.dtypes import bits, size_in_file
from onnx_tflite_plugin.source.model import Tensor


@dataclass(frozen=True)
class ConstantSize:
    """Number and stored bytes of the constants of one dtype that are all sparse or all dense."""

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
        sparse = tensor.data.sparse_bytes if isinstance(tensor.data, StoredData) else None
        stored = size_in_file(tensor.dtype, tensor.shape) if sparse is None else sparse
        key = tensor.dtype, sparse is not None
        size = sizes.get(key, ConstantSize(*key, 0, 0))
        sizes[key] = replace(size, count=size.count + 1, bytes=size.bytes + stored)
    return sorted(sizes.values(), key=lambda size: (-size.bytes, size.dtype))


def file_constants(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the constants that are stored in the file, each once.

    Results of constant folding are omitted.
    """
    return [*{id(tensor.data): tensor for tensor in tensors if isinstance(tensor.data, StoredData)}.values()]
