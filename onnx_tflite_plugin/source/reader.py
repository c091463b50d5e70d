"""Read a ``Model`` from a path or from bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.source.buffers import Buffers
from onnx_tflite_plugin.source.content import FileContent, Member, Section, check_file
from onnx_tflite_plugin.source.flatbuffer import DAMAGED, REFUSED, File, Table
from onnx_tflite_plugin.source.formats import ACCEPTED, describe_format
from onnx_tflite_plugin.source.metadata import KEY, read_metadata
from onnx_tflite_plugin.source.model import Model, Signature, Subgraph
from onnx_tflite_plugin.source.opening import Source, open_content, resolve_source
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
    """Raise TypeError if ``source`` is neither a path nor the content of a model."""
    if isinstance(source, str | os.PathLike | bytes | bytearray | memoryview | Section | Member):
        return
    is_onnx = hasattr(source, "proto") or hasattr(source, "SerializeToString")
    hint = "; pass its content, source.read()" if hasattr(source, "read") else ""
    hint = "; it is an ONNX model, give the TFLite model" if is_onnx else hint
    raise TypeError(f"a model must be a path, bytes or a part of a bundle, not {type(source).__name__}{hint}")


def read(source: Source, name: str = "") -> Model:
    """Read a TFLite model from a path, from its bytes, or from a section of a file.

    ``name``: the name of the model in errors, if not that of the source.

    Constants of a file over 64 MiB are read on first use, which raises InvalidModel if the file has been truncated.
    Constants of a file over 2 GiB are mapped: do not truncate such a file while the model is in use.

    Raises:
        InvalidModel: the file is not a TFLite model, or its fields are inconsistent; one line names the field.
        OSError: the file cannot be opened.
    """
    content, source_name = open_content(source)
    return _read_model(File(content, name or source_name))


def check_format(source: Source) -> None:
    """Raise InvalidModel if a model does not begin like a TFLite model."""
    resolved = resolve_source(source)
    if isinstance(resolved, str | os.PathLike):  # only the first bytes are read
        name = os.fspath(resolved)
        _check_identifier(File(FileContent.open(check_file(Path(resolved)), name), name))
    else:
        _check_identifier(File(*open_content(resolved)))


def _check_identifier(file: File) -> None:
    """Raise InvalidModel if a file is not a TFLite model.

    The message describes the actual format.
    """
    if bytes(file.content.read(4, 4 if file.size >= 8 else 0)) != IDENTIFIER:
        hint = describe_format(file.content) or f"is it the right file, and complete? {ACCEPTED}"
        raise file.invalid("file", "not a TFLite file (no TFL3 identifier)", hint)


def _read_model(file: File) -> Model:
    # LiteRT checks the identifier too.
    _check_identifier(file)
    table = file.root(MODEL)
    version = table.number("version")
    if version != VERSION:
        reason = f"schema version {version} is not supported; LiteRT runs only version {VERSION}"
        raise table.invalid("version", reason, REFUSED)
    buffers = Buffers(table)
    codes = [read_code(code) for code in table.tables("operator_codes", OPERATOR_CODE)]
    if not table.has("subgraphs") or not table.length("subgraphs"):
        raise table.invalid("subgraphs", "the model has no subgraphs", REFUSED)
    subgraphs = tuple(
        read_subgraph(subgraph, index, codes, buffers)
        for index, subgraph in enumerate(table.tables("subgraphs", SUBGRAPH))
    )
    metadata = _read_metadata(table, buffers)
    return Model(
        subgraphs,
        tuple(_read_signature(signature, subgraphs) for signature in table.tables("signature_defs", SIGNATURE)),
        metadata,
        read_metadata(metadata[KEY], file.content) if KEY in metadata else None,
        table.text("description"),
        version,
        file.size,
        content=file.content,
    )


def _read_signature(table: Table, subgraphs: tuple[Subgraph, ...]) -> Signature:
    if not table.has("signature_key"):
        raise table.invalid("signature_key", "a signature must have a name", REFUSED)
    index = table.number("subgraph_index")
    if index >= len(subgraphs):
        reason = f"subgraph {index} does not exist; the model has {plural(len(subgraphs), 'subgraph')}"
        raise table.invalid("subgraph_index", reason, DAMAGED)
    tensor_count = len(subgraphs[index].tensors)
    inputs, outputs = (_read_names(table, name, tensor_count) for name in ("inputs", "outputs"))
    return Signature(table.text("signature_key"), index, inputs, outputs)


def _read_names(table: Table, name: str, tensor_count: int) -> dict[str, int]:
    """Return tensor indices by name, in the order of the file.

    Entries without a name are skipped, as in LiteRT.
    """
    names = {}
    for entry in table.tables(name, TENSOR_MAP):
        index = entry.number("tensor_index")
        if index >= tensor_count:
            subgraph = f"subgraph {table.number('subgraph_index')}"
            reason = f"tensor {index} does not exist; {subgraph} has {plural(tensor_count, 'tensor')}"
            raise entry.invalid("tensor_index", reason, DAMAGED)
        if entry.has("name"):
            names[entry.text("name")] = index
    return names


def _read_metadata(table: Table, buffers: Buffers) -> dict[str, bytes]:
    """Return name -> metadata buffer.

    As in LiteRT, entries without a name or with a nonexistent buffer are skipped.
    """
    metadata = {}
    for entry in table.tables("metadata", METADATA):
        buffer = entry.number("buffer")
        if entry.has("name") and buffer in buffers:
            metadata[entry.text("name")] = table.file.copy(*buffers.span(buffer, entry), entry.path)
    return metadata
