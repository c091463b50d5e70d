"""Locations of constants in the file, and limits on their decoded size."""

from __future__ import annotations

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.source.data import StoredData
from onnx_tflite_plugin.source.dtypes import size_in_file, size_in_memory
from onnx_tflite_plugin.source.flatbuffer import DAMAGED, REFUSED, Table
from onnx_tflite_plugin.source.schema import BUFFER, EXTERNAL_BUFFER, EXTERNAL_GROUP, SPARSITY
from onnx_tflite_plugin.source.sparsity import read_sparsity

Span = tuple[int, int]  # first byte and size

# Limit on the decoded size of a model's constants: the larger of 1 GiB and DECODED_RATIO times their stored size.
# Sparse weights with 99.6 % zeros pass. A small file that decodes to terabytes, by sparsity or by reading one buffer
# with a thousand shapes, is rejected.
DECODED_BYTES = 1 << 30
DECODED_RATIO = 256


def read_span(table: Table, inline: str, offset: str, size: str) -> Span:
    """Return the span of bytes in field ``inline`` or at ``offset``.

    In files over 2 GB, the bytes at ``offset`` follow the FlatBuffer. As in LiteRT, an offset above 1 counts as set,
    and is read only if ``inline`` is missing.
    """
    if table.has(inline) or table.number(offset) <= 1:
        return table.vector(inline, 1)
    start, length = table.number(offset), table.number(size)
    if start + length > table.file.size:
        reason = f"bytes {start} to {start + length} are outside the file of {table.file.size} bytes"
        raise table.invalid(offset, reason, DAMAGED)
    return start, length


class Buffers:
    """The model's buffers, and the constants that are decoded from them."""

    def __init__(self, model: Table) -> None:
        if not model.has("buffers"):
            raise model.invalid("buffers", "the model has no buffers, not even the empty first one", REFUSED)
        self._model = model
        self._count = model.length("buffers")
        self._spans: dict[int, Span] = {}
        self._constants: dict[tuple[Span, str, tuple[int, ...]], StoredData] = {}
        self._counted_spans: set[Span] = set()
        self._stored_bytes = self._decoded_bytes = 0

    def __contains__(self, index: int) -> bool:
        return index < self._count

    def span(self, index: int, user: Table) -> Span:
        """Return the span of buffer ``index``.

        ``user``: the table whose field ``buffer`` contains the index.
        """
        span = self._spans.get(index)
        if span is None:
            if index not in self:
                reason = f"buffer {index} does not exist; the model has {plural(self._count, 'buffer')}"
                raise user.invalid("buffer", reason, REFUSED)
            span = self._spans[index] = read_span(self._model.item("buffers", index, BUFFER), "data", "offset", "size")
        return span

    def constant(self, span: Span, tensor: Table, dtype: str, shape: tuple[int, ...]) -> StoredData:
        """Return the constant value of ``tensor``, which is decoded on first use.

        Tensors with equal span, dtype and shape share one object. Raises InvalidModel if there are too few bytes.
        Surplus bytes are ignored, as in LiteRT.
        """
        if tensor.has("sparsity"):
            return self._sparse(span, tensor, dtype, shape)
        data = self._constants.get((span, dtype, shape))
        if data is None:
            required = size_in_file(dtype, shape)
            if required > span[1]:
                reason = f"{span[1]} bytes, but {dtype} of shape {list(shape)} needs {required} bytes"
                raise tensor.invalid("buffer", reason, REFUSED)
            self._count_decoded(span, tensor, size_in_memory(dtype, shape, span[1]), span[1])
            data = StoredData(tensor.file, span, dtype, shape, tensor.at("buffer"), None)
            self._constants[span, dtype, shape] = data
        return data

    def _sparse(self, span: Span, tensor: Table, dtype: str, shape: tuple[int, ...]) -> StoredData:
        table = tensor.table("sparsity", SPARSITY)
        if table is None or dtype == "string":
            raise tensor.invalid("sparsity", "strings cannot be sparse", DAMAGED)
        sparsity = read_sparsity(table, shape)
        required = size_in_file(dtype, (sparsity.count,))
        if required > span[1]:
            reason = f"{span[1]} bytes, but {sparsity.count} sparse values of {dtype} need {required} bytes"
            raise tensor.invalid("buffer", reason, DAMAGED)
        self._count_decoded(span, tensor, size_in_memory(dtype, shape, span[1]), span[1] + sparsity.index_bytes)
        return StoredData(tensor.file, span, dtype, shape, tensor.at("buffer"), sparsity)

    def _count_decoded(self, span: Span, tensor: Table, decoded: int, stored: int) -> None:
        if span not in self._counted_spans:
            self._counted_spans.add(span)
            self._stored_bytes += stored
        self._decoded_bytes += decoded
        stored = min(self._stored_bytes, tensor.file.size)  # spans may overlap
        if self._decoded_bytes > max(DECODED_BYTES, DECODED_RATIO * stored):
            reason = f"constants stored in {stored} bytes would take {self._decoded_bytes} bytes in memory"
            limit = f"above 1 GiB, constants may take at most {DECODED_RATIO} times their stored size"
            raise tensor.invalid("buffer", reason, limit)

    def describe_external(self, tensor: Table) -> str:
        """Return a description of the external buffer of ``tensor`` for error messages."""
        buffer_id = tensor.number("external_buffer")
        groups = self._model.tables("external_buffer_groups", EXTERNAL_GROUP)
        for buffer in self._model.tables("external_buffers", EXTERNAL_BUFFER):
            group = buffer.number("group")
            if buffer.number("id") == buffer_id and group < len(groups):
                return f"external buffer {buffer_id}, in {groups[group].text('name')!r}"
        return f"external buffer {buffer_id}"
