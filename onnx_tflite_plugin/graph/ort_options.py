"""Options of an ONNX Runtime session, chosen by the metadata of a converted model."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from onnx_tflite_plugin.graph.model_metadata import read_activations

ONE_THREAD_BYTES = 2**20
"""Maximum bytes of intermediate tensors for which one thread is used.

Models of 0.1 to 0.8 MiB (keyword spotting, wake words at 96 pixels: 0.1 to 0.4 ms) are as fast with one thread as with two
spinning threads. With two threads that do not spin, they take 1.3 to 1.5 times as long as with one thread.
"""
NO_REUSE_BYTES = 2**26
"""Maximum bytes of intermediate tensors that are all kept in memory at once.

ONNX Runtime then takes 0.91 to 0.95 of the time for transformers and networks of many small nodes, and the same time for
other models (Intel Xeon, Sapphire Rapids, ONNX Runtime 1.32).
"""
_METADATA, _KEY, _VALUE = 14, 1, 2
"""Numbers of fields: ModelProto.metadata_props, StringStringEntryProto.key and value."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def choose_options(package: Any, model: str | bytes) -> Any:
    """Return session options for a model (a path or its content).

    Threads do not spin, small models use one thread, and models with few activations do not reuse memory. ``package``:
    the module onnxruntime.
    """
    options = package.SessionOptions()
    options.log_severity_level = 3  # otherwise ONNX Runtime warns of every state's default value
    size = read_activations(stored_metadata(model))
    if size is not None and size <= ONE_THREAD_BYTES:
        options.intra_op_num_threads = 1
    else:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_mem_reuse = size is None or size > NO_REUSE_BYTES
    return options


def stored_metadata(model: str | bytes) -> dict[str, str]:
    """Return a model's metadata without reading its graph; empty for a malformed file."""
    try:
        with io.BytesIO(model) if isinstance(model, bytes) else Path(model).open("rb") as stream:
            entries = [dict(_fields(io.BytesIO(entry))) for number, entry in _fields(stream) if number == _METADATA]
        return {entry[_KEY].decode(): entry[_VALUE].decode() for entry in entries}
    except (EOFError, KeyError, ValueError):
        return {}


def _fields(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the metadata fields of a protobuf message."""
    while (tag := _varint(stream, optional=True)) is not None:
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _varint(stream)
        elif kind in (_FIXED64, _FIXED32):
            stream.seek(8 if kind == _FIXED64 else 4, io.SEEK_CUR)
        elif kind == _BYTES:
            size = _varint(stream) or 0
            if number in (_KEY, _VALUE, _METADATA):
                content = stream.read(size)
                if len(content) < size:
                    raise EOFError
                yield number, content
            else:
                stream.seek(size, io.SEEK_CUR)
        else:
            raise ValueError(f"field {number} has the unknown kind {kind}")


def _varint(stream: BinaryIO, *, optional: bool = False) -> int | None:
    """Return the next variable-length number. Raises EOFError inside a number.

    ``optional``: return None at the end of the stream.
    """
    value = 0
    for shift in range(0, 70, 7):
        byte = stream.read(1)
        if not byte:
            if optional and not shift:
                return None
            raise EOFError
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise ValueError("a variable-length number has more than 64 bits")
