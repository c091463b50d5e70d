"""Values of constant tensors, decoded on first use."""

from __future__ import annotations

import math
import weakref

import numpy as np

from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source.dtypes import PACKED, numpy_dtype, size_in_file
from onnx_tflite_plugin.source.flatbuffer import DAMAGED, File
from onnx_tflite_plugin.source.model import Array, Data
from onnx_tflite_plugin.source.sparsity import Sparsity

_MIN_WEAKLY_CACHED_BYTES = 1 << 16
"""Arrays of at least this many bytes are cached only while they are used.

Original and rewritten weights are then not in memory at the same time.
"""


class StoredData(Data):
    """A constant stored in a file, decoded on first use.

    ``span``: first byte and size of the stored bytes. ``shape``: the shape of the decoded array. ``where`` is the
    tensor's path for errors. ``array`` raises InvalidModel if the bytes are inconsistent (strings, sparse
    coordinates). The number of bytes was checked against dtype and shape when the model was read.
    """

    def __init__(
        self,
        file: File,
        span: tuple[int, int],
        dtype: str,
        shape: tuple[int, ...],
        where: str,
        sparsity: Sparsity | None,
    ) -> None:
        self._file = file
        self._start, self._size = span
        self._dtype = dtype
        self._shape = shape
        self._where = where
        self._sparsity = sparsity
        self._cached: Array | None = None
        self._weak: weakref.ref[Array] | None = None

    @property
    def span(self) -> tuple[int, int]:
        """Return the first byte and the size of the stored bytes."""
        return self._start, self._size

    @property
    def sparse_bytes(self) -> int | None:
        """Return the stored bytes of a sparse constant; None for a dense constant."""
        if self._sparsity is None:
            return None
        return size_in_file(self._dtype, (self._sparsity.count,)) + self._sparsity.index_bytes

    @property
    def array(self) -> Array:
        if self._cached is not None:
            return self._cached
        stored = None if self._weak is None else self._weak()
        if stored is None:
            stored = self._read()
            if stored.nbytes < _MIN_WEAKLY_CACHED_BYTES:
                self._cached = stored
            else:  # users may keep only a view of the array, and a view keeps its base alive
                self._weak = weakref.ref(stored if stored.base is None else stored.base)
            return stored
        array = stored.reshape(self._shape)
        array.flags.writeable = False
        return array

    def _read(self) -> Array:
        if self._sparsity is not None:
            array = self._sparsity.dense(self._read_values(self._sparsity.count), self._shape)
        else:
            array = self._read_values(math.prod(self._shape)).reshape(self._shape)
        array.flags.writeable = False
        return array

    def _read_values(self, count: int) -> Array:
        """Return ``count`` elements in stored order."""
        if self._dtype == "string":
            return self._read_strings(count)
        if self._dtype in PACKED:
            return self._unpack_elements(count)
        dtype = numpy_dtype(self._dtype)
        if self._dtype == "bool":
            # C++ treats every nonzero byte as true; numpy requires 0 or 1.
            stored = self._bytes(count)
            return stored != 0 if (stored > 1).any() else stored.view(dtype)
        return self._file.array(self._start, count, dtype)

    def _bytes(self, count: int) -> Array:
        return self._file.array(self._start, count, np.dtype(np.uint8))

    def _unpack_elements(self, count: int) -> Array:
        """Return elements of 2 or 4 bits; the first is in the lowest bits of its byte."""
        bits = PACKED[self._dtype]
        per_byte = 8 // bits
        packed = self._bytes(-(-count // per_byte))
        unpacked = np.empty((packed.size, per_byte), np.uint8)
        for position in range(per_byte):
            # Shift the element to the top of the byte, so that the right shift below extends the sign of signed dtypes.
            unpacked[:, position] = packed << (8 - bits - bits * position)
        values = unpacked.reshape(-1)[:count].view(np.uint8 if self._dtype.startswith("u") else np.int8)
        return (values >> (8 - bits)).astype(numpy_dtype(self._dtype))

    def _read_strings(self, count: int) -> Array:
        """Return the strings of LiteRT's string buffer (``string_util.h``).

        The buffer consists of an int32 count, count + 1 int32 offsets, and the bytes.
        """
        header = self._file.array(self._start, self._size // 4, np.dtype("<i4"))
        if count != (int(header[0]) if header.size else 0):
            raise self._error(f"{header[0] if header.size else 'no'} strings, but the shape holds {count} elements")
        if not count:
            return np.empty(0, object)
        if header.size < count + 2:
            raise self._error(f"{self._size} bytes cannot hold the offsets of {count} strings")
        offsets = header[1 : count + 2].astype(np.int64)
        # Increasing offsets also imply that the strings together fit the buffer.
        if offsets[0] < 4 * (count + 2) or (np.diff(offsets) < 0).any() or offsets[-1] > self._size:
            raise self._error(f"string offsets do not increase within the buffer's {self._size} bytes")
        stored = bytes(self._file.content.read(self._start, self._size))
        bounds = offsets.tolist()
        result = np.empty(count, object)
        for index in range(count):
            result[index] = stored[bounds[index] : bounds[index + 1]]
        return result

    def _error(self, reason: str) -> InvalidModel:
        return self._file.invalid(self._where, reason, DAMAGED)
