"""Finished models as protobuf."""

from __future__ import annotations

import errno
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from onnx_tflite_plugin.errors import InvalidOnnx
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs
from onnx_tflite_plugin.source.content import Content, missing_file
from onnx_tflite_plugin.source.formats import describe_format

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


class Converted(Protocol):
    """A conversion, or any other object with the model as protobuf."""

    @property
    def proto(self) -> onnx.ModelProto: ...


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Return the model as protobuf. Raises EncodeError above 2 GiB."""
    import onnx_ir

    proto = onnx_ir.to_proto(model)
    remove_constant_infos(proto.graph)
    return proto


def read_onnx(model: bytes | Path, *, external: bool = True) -> onnx.ModelProto:
    """Read a model from a file or from bytes. ``external``: load external weights too.

    Raises InvalidOnnx; FileNotFoundError and IsADirectoryError for a path.
    """
    import onnx

    if not isinstance(model, bytes):
        check_exists(model)
    try:
        proto = (
            onnx.load_model_from_string(model)
            if isinstance(model, bytes)
            else onnx.load_model(str(model), load_external_data=external)
        )
        if proto.HasField("graph"):
            return proto
        reason = "it has no graph"
    except Exception as error:
        reason = (
            f"it is damaged or of another format ({error})" if type(error).__name__ == "DecodeError" else str(error)
        )
    name = "the model" if isinstance(model, bytes) else str(model)
    raise InvalidOnnx(f"{name} is not an ONNX model: {describe_other_format(model) or reason}")


def check_exists(path: Path) -> None:
    """Raise FileNotFoundError or IsADirectoryError if a path is not a file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder, not a model", str(path))
    if not path.exists():
        raise missing_file(path)


def describe_other_format(model: bytes | Path) -> str:
    """Return the format of a file, such as ``it is empty``; "" for an ONNX model."""
    start = model[:64] if isinstance(model, bytes) else _read_start(model)
    if start is None:
        return ""
    if start[4:8] == b"TFL3":
        return "it is a TFLite model"
    description = re.split("[:;,]", describe_format(Content(start)))[0]
    return "" if description.startswith("it is an ONNX model") else description


def _read_start(path: Path) -> bytes | None:
    """Return up to the first 64 bytes of a file; None if it is unreadable."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(64)
    return None


def remove_constant_infos(graph: onnx.GraphProto) -> None:
    """Remove initializers from ``value_info``, also in inner graphs.

    An initializer is described by its dtype and shape. Tools that change an initializer (onnxruntime.quantization
    transposes weights) leave its entry stale, and shape inference then reports a contradiction.
    """
    constants = {tensor.name for tensor in graph.initializer}
    remaining = [info for info in graph.value_info if info.name not in constants]
    if len(remaining) < len(graph.value_info):  # avoid a copy if nothing changes
        del graph.value_info[:]
        graph.value_info.extend(remaining)
    for node in graph.node:
        for subgraph in node_subgraphs(node):
            remove_constant_infos(subgraph)
