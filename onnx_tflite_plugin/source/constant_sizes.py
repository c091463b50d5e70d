"""Stored sizes of a file's constants: dtype -> bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from onnx_tflite_plugin.source.data import StoredData
from onnx_tflite_plugin.source.dtypes import bits, size_in_file
from onnx_tflite_plugin.source.model import Model, Tensor


@dataclass(frozen=True)
class ConstantSize:
    """Number and stored bytes of the sparse or the dense constants of one dtype."""

    dtype: str
    sparse: bool
    count: int
    bytes: int


def constant_sizes(model: Model) -> list[ConstantSize]:
    """Return the sizes of the constants that operators use, most bytes first.

    A constant that several tensors share is counted once. Strings and handles are omitted, because their elements have no
    fixed size.
    """
    sizes: dict[tuple[str, bool], ConstantSize] = {}
    counted = set()
    for tensor in _operands(model):
        if not isinstance(tensor.data, StoredData) or not tensor.is_static or not bits(tensor.dtype):
            continue
        identity = tensor.data.span if tensor.data.span[1] else tensor.data, tensor.dtype
        if identity in counted:
            continue
        counted.add(identity)
        sparse_bytes = tensor.data.sparse_bytes
        stored_bytes = size_in_file(tensor.dtype, tensor.shape) if sparse_bytes is None else sparse_bytes
        key = tensor.dtype, sparse_bytes is not None
        size = sizes.get(key, ConstantSize(*key, 0, 0))
        sizes[key] = replace(size, count=size.count + 1, bytes=size.bytes + stored_bytes)
    return sorted(sizes.values(), key=lambda size: (-size.bytes, size.dtype))


def _operands(model: Model) -> Iterator[Tensor]:
    """Yield the operands of all operators, and their blockwise scales."""
    for graph in model.subgraphs:
        for op in graph.operators:
            for tensor in op.inputs:
                if tensor is not None:
                    yield tensor
                    if tensor.blocks is not None:
                        yield tensor.blocks.scales
