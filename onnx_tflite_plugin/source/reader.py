"""From a file's bytes to a ``Model``."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import Any

from onnx_tflite_plugin.errors import InvalidModel, Problem
from onnx_tflite_plugin.source.buffers import Buffers
from onnx_tflite_plugin.source.flatbuffer import DAMAGED, REFUSED, File, Table
from onnx_tflite_plugin.source.formats import described
from onnx_tflite_plugin.source.metadata import KEY, read_metadata
from onnx_tflite_plugin.source.model import Model, Signature, Subgraph
from onnx_tflite_plugin.source.schema import (
    IDENTIFIER,
    METADATA,
    MODEL,
    OPERATOR_CODE,
    SIGNATURE,
    SUBGRAPH,
    TENSOR_MAP,
    VERSION,
)
from onnx_tflite_plugin.source.subgraphs import read_code, read_subgraph


def check_source(source: Any) -> None:
    """Raises TypeError for what is neither a path nor the content of a model."""
    if isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        return
    hint = "; give its content, source.read()" if hasattr(source, "read") else ""
    raise TypeError(f"a model is given by path or content, not as {type(source).__name__}{hint}")


def read(source: str | Path | bytes) -> Model:
    """Read a TFLite model from a path or from its bytes.

    A file is mapped, not loaded: constants are views into it, so it must not be cut short while the model is in use.

    Raises:
        InvalidModel: it is not a TFLite model, or a field contradicts the rest; one line names the field.
        OSError: the file cannot be opened.
    """
    if isinstance(source, str | Path):
        return _read_model(File(_map(Path(source)), str(source)))
    return _read_model(File(source, "the given bytes"))


def _map(path: Path) -> bytes | mmap.mmap:
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for, and /dev/zero read without end
        reason, hint = (
            ("it is a directory", "") if path.is_dir() else ("it is no regular file", "write it to one first")
        )
        where = Problem("file", reason, hint)
        raise InvalidModel(f"cannot read {path}", [where])
    with path.open("rb") as stream:
        try:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # empty, or a file system that cannot map
            return stream.read()


def _read_model(file: File) -> Model:
    # LiteRT asks for the identifier too, whatever the file's name.
    if file.view[4:8] != IDENTIFIER:
        hint = described(file.view) or "is it the right file, and complete?"
        raise file.invalid("file", "not a TFLite file (no TFL3 identifier)", hint)
    table = file.root(MODEL)
    version = table.number("version")
    if version != VERSION:
        reason = f"schema version {version}, and LiteRT runs only version {VERSION}"
        raise table.invalid("version", reason, REFUSED)
    buffers = Buffers(table)
    codes = [read_code(code) for code in table.tables("operator_codes", OPERATOR_CODE)]
    if not table.has("subgraphs") or not table.length("subgraphs"):
        raise table.invalid("subgraphs", "the model has none", REFUSED)
    subgraphs = tuple(
        read_subgraph(subgraph, index, codes, buffers)
        for index, subgraph in enumerate(table.tables("subgraphs", SUBGRAPH))
    )
    metadata = _read_metadata(table, buffers)
    return Model(
        subgraphs,
        tuple(_read_signature(signature, subgraphs) for signature in table.tables("signature_defs", SIGNATURE)),
        metadata,
        read_metadata(metadata[KEY], file.view) if KEY in metadata else None,
        table.text("description"),
        version,
        file.size,
    )


def _read_signature(table: Table, subgraphs: tuple[Subgraph, ...]) -> Signature:
    if not table.has("signature_key"):
        raise table.invalid("signature_key", "a signature must have a name", REFUSED)
    index = table.number("subgraph_index")
    if index >= len(subgraphs):
        reason = f"subgraph {index} does not exist; the model has {len(subgraphs)}"
        raise table.invalid("subgraph_index", reason, DAMAGED)
    tensors = len(subgraphs[index].tensors)
    inputs, outputs = (_read_names(table, name, tensors) for name in ("inputs", "outputs"))
    return Signature(table.text("signature_key"), index, inputs, outputs)


def _read_names(table: Table, name: str, tensors: int) -> dict[str, int]:
    """Name → tensor, in the file's order. An entry without a name is passed over, as in LiteRT."""
    names = {}
    for entry in table.tables(name, TENSOR_MAP):
        index = entry.number("tensor_index")
        if index >= tensors:
            reason = f"tensor {index} does not exist; subgraph {table.number('subgraph_index')} has {tensors}"
            raise entry.invalid("tensor_index", reason, DAMAGED)
        if entry.has("name"):
            names[entry.text("name")] = index
    return names


def _read_metadata(table: Table, buffers: Buffers) -> dict[str, bytes]:
    """Name → contents. LiteRT passes over entries without a name or with a buffer that is not there, and so do we."""
    metadata = {}
    for entry in table.tables("metadata", METADATA):
        buffer = entry.number("buffer")
        if entry.has("name") and buffer in buffers:
            metadata[entry.text("name")] = table.file.copy(*buffers.span(buffer, entry), entry.path)
    return metadata
