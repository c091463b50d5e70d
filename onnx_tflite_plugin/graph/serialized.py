"""Finished models as protobuf."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from onnx_tflite_plugin.errors import InvalidOnnx

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

    Raises InvalidOnnx.
    """
    import onnx

    try:
        if isinstance(model, bytes):
            return onnx.load_model_from_string(model)
        return onnx.load_model(str(model), load_external_data=external)
    except Exception as error:
        description = "the model" if isinstance(model, bytes) else str(model)
        start = model[:8] if isinstance(model, bytes) else _read_start(model)
        reason = "it is a TFLite model" if start[4:] == b"TFL3" else error
        raise InvalidOnnx(f"{description} cannot be read as an ONNX model: {reason}") from error


def _read_start(path: Path) -> bytes:
    """Return the first 8 bytes of a file, or fewer if it is shorter or unreadable."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(8)
    return b""


def remove_constant_infos(graph: onnx.GraphProto) -> None:
    """Remove initializers from ``value_info``, also in inner graphs.

    An initializer is described by its dtype and shape. Tools that change an initializer (onnxruntime.quantization
    transposes weights) leave its entry stale, and shape inference then reports a contradiction.
    """
    constants = {tensor.name for tensor in graph.initializer}
    kept = [info for info in graph.value_info if info.name not in constants]
    if len(kept) < len(graph.value_info):  # avoid a copy if nothing changes
        del graph.value_info[:]
        graph.value_info.extend(kept)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                remove_constant_infos(attribute.g)
