"""Encode constants as TFLite stores them: packed integers, strings, sparse data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from conformance.schema import BuilderError, Table, did_you_mean, enum

Array = npt.NDArray[Any]

PACKED_BITS = {"int4": 4, "uint4": 4, "int2": 2}
_INDEX_VECTORS = {"uint8": "Uint8Vector", "uint16": "Uint16Vector", "int32": "Int32Vector"}


def buffer_bytes(value: Array, dtype: str) -> bytes:
    """Return the bytes that a TFLite buffer stores for a constant."""
    if dtype == "string":
        return pack_strings(value)
    if dtype in PACKED_BITS:
        return pack_bits(value, PACKED_BITS[dtype])
    if value.dtype.byteorder == ">":
        value = value.astype(value.dtype.newbyteorder("<"))
    return np.ascontiguousarray(value).tobytes()


def pack_bits(value: Array, bits: int) -> bytes:
    """Pack several elements into each byte, the first into the lowest bits.

    The last byte is filled with zeros.
    """
    elements_per_byte = 8 // bits
    flat = value.astype(np.int8).reshape(-1).view(np.uint8) & np.uint8((1 << bits) - 1)
    elements = np.pad(flat, (0, -flat.size % elements_per_byte)).reshape(-1, elements_per_byte)
    shifts = np.arange(elements_per_byte, dtype=np.uint8) * np.uint8(bits)
    return np.bitwise_or.reduce(elements << shifts, axis=1).astype(np.uint8).tobytes() if flat.size else b""


def pack_strings(value: Array) -> bytes:
    """Return a TFLite string buffer.

    It has the number of strings, the offsets of each string and of the end, and then the bytes of all strings.
    """
    items = [item if isinstance(item, bytes) else str(item).encode() for item in value.reshape(-1)]
    offsets = 4 * (len(items) + 2) + np.cumsum([0, *(len(item) for item in items)], dtype=np.int64)
    return np.array([len(items), *offsets], "<i4").tobytes() + b"".join(items)


def sparse_storage(
    dense: Array,
    formats: Sequence[str],
    *,
    order: Sequence[int] | None = None,
    blocks: Sequence[tuple[int, int]] = (),
    index_dtype: str = "int32",
) -> tuple[Table, Array]:
    """Return TFLite's sparse storage of a dense array.

    The results are the ``SparsityParameters`` table and the stored values. ``formats``: "dense" or "csr" for each
    dimension in traversal order, with block dimensions last. ``order``: the traversal order, by default the order of the
    dimensions. ``blocks``: (dimension, size) of each block dimension. ``index_dtype``: dtype of the index vectors,
    "uint8", "uint16" or "int32". Raises BuilderError for invalid arguments.
    """
    levels = dense.ndim + len(blocks)
    order = tuple(range(levels)) if order is None else tuple(order)
    if sorted(order) != list(range(levels)) or len(formats) != levels or not set(formats) <= {"dense", "csr"}:
        raise BuilderError(
            f"sparse storage of {levels} dimensions needs a format (dense or csr) for each dimension, and an order of all dimensions"
        )
    if index_dtype not in _INDEX_VECTORS:
        raise BuilderError(f"sparse index vectors are {', '.join(_INDEX_VECTORS)}, not {index_dtype!r}")
    tree = np.transpose(_split_blocks(dense, blocks), order)
    nodes = tree.reshape(1, *tree.shape)  # axis 0: one entry per stored combination of the coordinates so far
    metadata = []
    for dimension_format in formats:
        size = nodes.shape[1]
        if dimension_format == "dense":
            metadata.append(Table("DimensionMetadata", {"format": "DENSE", "dense_size": size}))
            nodes = nodes.reshape(-1, *nodes.shape[2:])
            continue
        used = (nodes != 0).any(axis=tuple(range(2, nodes.ndim)))
        rows, columns = np.nonzero(used)
        segments = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        fields: dict[str, Any] = {"format": "SPARSE_CSR"}
        for name, values in (("array_segments", segments), ("array_indices", columns)):
            fields |= {
                name + "_type": _INDEX_VECTORS[index_dtype],
                name: Table(_INDEX_VECTORS[index_dtype], {"values": values}),
            }
        metadata.append(Table("DimensionMetadata", fields))
        nodes = nodes[rows, columns]
    parameters: dict[str, Any] = {"traversal_order": order, "dim_metadata": metadata}
    if blocks:
        parameters["block_map"] = [dimension for dimension, _ in blocks]
    return Table("SparsityParameters", parameters), nodes.reshape(-1)


def _split_blocks(dense: Array, blocks: Sequence[tuple[int, int]]) -> Array:
    """Return the array with each blocked dimension split into blocks.

    The axes within blocks come last.
    """
    for dimension, size in blocks:
        shape = dense.shape
        if shape[dimension] % size:
            raise BuilderError(
                f"dimension {dimension} of size {shape[dimension]} is not a multiple of the block size {size}"
            )
        split = dense.reshape(*shape[:dimension], shape[dimension] // size, size, *shape[dimension + 1 :])
        dense = np.moveaxis(split, dimension + 1, -1)
    return dense


def array_and_dtype(value: Any, dtype: str | None) -> tuple[Array, str]:
    """Return the value as an array, and the name of its dtype.

    Without ``dtype``, Python numbers become float32 or int32.
    """
    array = np.asarray(value)
    if dtype == "string" or (dtype is None and array.dtype.kind in "OSU"):
        return np.asarray(value, object), "string"
    if dtype is None and not isinstance(value, np.ndarray | np.generic):
        dtype = {"float64": "float32", "int64": "int32"}.get(array.dtype.name)
    if dtype is not None:
        array = array.astype(_numpy_dtype(dtype))
    name = array.dtype.name
    if name.upper() not in enum("TensorType"):
        raise BuilderError(
            f"TFLite has no tensor type for numpy's {name}: {did_you_mean(name.upper(), enum('TensorType'))}"
        )
    return array, name


def _numpy_dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        return cast("np.dtype[Any]", np.dtype(getattr(ml_dtypes, name)))
