"""Read the tensors of one subgraph: shapes, dtypes and stored values."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from onnx_tflite_plugin.source.buffers import Buffers
from onnx_tflite_plugin.source.data import StoredData
from onnx_tflite_plugin.source.dtypes import FLOATS, HANDLES, NAMES, bits
from onnx_tflite_plugin.source.flatbuffer import DAMAGED, REFUSED, Table
from onnx_tflite_plugin.source.model import AnyQuantization, Dims, Quantization, Tensor
from onnx_tflite_plugin.source.quantization import read_quantization
from onnx_tflite_plugin.source.schema import QUANTIZATION, VARIANT

# Limit of numpy; LiteRT's kernels support at most 8 axes.
MAX_RANK = 64


def read_tensors(
    tables: Sequence[Table], subgraph: int, inputs: Collection[int], computed: Collection[int], buffers: Buffers
) -> tuple[Tensor, ...]:
    """Return all tensors of a subgraph.

    ``inputs`` and ``computed``: the indices of tensors that get their values at runtime.
    """
    # Shape [] is a scalar, or an unknown rank if has_rank is false. Files older than has_rank never set it. In these
    # files, a computed tensor of shape [] may be either, because converters left out unknown shapes.
    stores_ranks = any(table.flag("has_rank") for table in tables)
    runtime_tensors = {*inputs, *computed}
    tensors = []
    for index, table in enumerate(tables):
        number = table.number("type")
        if not 0 <= number < len(NAMES):
            raise table.invalid("type", f"{number} is not an element type of the schema", REFUSED)
        dtype = NAMES[number]
        shape = _read_shape(table, dtype)
        dims = _read_dims(table, shape)
        if dtype in HANDLES and table.number("buffer") and buffers.span(table.number("buffer"), table)[1]:
            raise table.invalid("buffer", f"a {dtype} tensor cannot hold stored data", DAMAGED)
        dtype, shape, dims = _read_tensor_list(table, dtype) or (dtype, shape, dims)
        is_variable = table.flag("is_variable")
        data = _read_data(table, dtype, shape, buffers)
        if data is not None and is_variable:
            raise table.invalid("buffer", "the tensor is a variable, but has a data buffer", REFUSED)
        if data is None and 0 in dims and None not in dims and not is_variable and index not in runtime_tensors:
            # A tensor without elements needs no stored data, and is a constant if nothing computes it.
            data = buffers.constant((0, 0), table, dtype, shape) if dtype not in HANDLES else None
        if data is not None:
            dims = shape  # LiteRT never resizes stored tensors
        predates_has_rank = not stores_ranks and index not in computed
        has_rank = bool(shape) or data is not None or predates_has_rank or table.flag("has_rank")
        tensors.append(
            Tensor(subgraph, index, table.text("name"), dtype, shape, dims, data, None, is_variable, has_rank=has_rank)
        )
    parameters = [
        read_quantization(table.table("quantization", QUANTIZATION), tensor.dtype, tensor.shape, tensors)
        for table, tensor in zip(tables, tensors, strict=True)
    ]
    return tuple(
        _attach_quantization(tensor, quantization) for tensor, quantization in zip(tensors, parameters, strict=True)
    )


def _attach_quantization(tensor: Tensor, quantization: AnyQuantization | None) -> Tensor:
    """Return the tensor with its quantization, which is ignored for a float tensor."""
    if quantization is None:
        return tensor
    if isinstance(quantization, Quantization) and tensor.dtype in FLOATS:
        return replace(tensor, ignored_quantization=quantization)
    return replace(tensor, quantization=quantization)


def _read_shape(table: Table, dtype: str) -> tuple[int, ...]:
    shape: tuple[int, ...] = table.numbers("shape")
    if len(shape) > MAX_RANK:
        raise table.invalid("shape", f"{len(shape)} axes, more than {MAX_RANK}", DAMAGED)
    if shape and min(shape) < 0:
        raise table.invalid(
            "shape", f"{list(shape)} has a negative size", "dynamic dimensions belong in shape_signature"
        )
    # An axis of size 0 counts as 1, as in numpy.
    elements = math.prod(shape) or math.prod(filter(None, shape))
    if elements * max(bits(dtype), 8) >= 1 << 63:
        raise table.invalid("shape", f"{list(shape)} has too many elements", REFUSED)
    return shape


def _read_dims(table: Table, shape: tuple[int, ...]) -> Dims:
    """Return the shape with None for dynamic dimensions of the shape signature."""
    signature: tuple[int, ...] = table.numbers("shape_signature")
    if len(signature) != len(shape) or not shape or min(signature) >= 0:
        return shape
    return tuple(None if signature_size < 0 else size for size, signature_size in zip(shape, signature, strict=True))


def _read_tensor_list(table: Table, dtype: str) -> tuple[str, tuple[int, ...], Dims] | None:
    """Return dtype, shape and dims of a list: a variant with one element type.

    The list is represented as an array with an additional dynamic first axis. Dynamic dimensions are -1 or 0 in the
    file. Return None for other tensors.
    """
    elements = table.tables("variant_tensors", VARIANT) if dtype == "variant" else ()
    if len(elements) != 1 or not elements[0].flag("has_rank"):
        return None
    number, sizes = elements[0].number("type"), elements[0].numbers("shape")
    if not 0 <= number < len(NAMES) or NAMES[number] in HANDLES or len(sizes) >= MAX_RANK:
        return None
    dims = (None, *(size if size > 0 else None for size in sizes))
    return NAMES[number], tuple(size or 1 for size in dims), dims


def _read_data(table: Table, dtype: str, shape: tuple[int, ...], buffers: Buffers) -> StoredData | None:
    """Return the stored value; None for a tensor with buffer 0 or an empty buffer."""
    if table.number("external_buffer"):
        reason = f"the data is in {buffers.describe_external(table)}, which is not supported"
        raise table.invalid("external_buffer", reason, "store the weights inside the model file")
    buffer = table.number("buffer")
    span = buffers.span(buffer, table) if buffer else (0, 0)
    return buffers.constant(span, table, dtype, shape) if span[1] else None
