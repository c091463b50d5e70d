"""Check and write large models without a copy of their weights.

A ``ModelProto`` holds a copy of every weight, and its serialized form holds another copy. Here, large initializers of
the main graph are removed before the rest is serialized, and each is encoded while it is written. The file has the same
bytes as without streaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from onnx_tflite_plugin.graph.serialized import to_proto

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

STREAMED_BYTES = 16 << 20
"""Minimum weight bytes to check and write a model without a copy. For smaller models, one protobuf for all uses is faster."""
INLINE_BYTES = 1 << 10
"""Largest initializer that is kept in the protobuf; shape inference reads shapes and axes, which are smaller."""
_Message = TypeVar("_Message", "onnx.ModelProto", "onnx.GraphProto", "onnx.TensorProto")
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # field numbers in onnx.proto


class Output(Protocol):
    """A file, or another object that writes all bytes it is given."""

    def write(self, content: bytes, /) -> object: ...


def proto_to_check(model: ir.Model) -> onnx.ModelProto:
    """Return the model with large initializers as graph inputs, for ONNX's checker."""
    import onnx

    with _without_weights(model) as weights:
        proto = to_proto(model)
    graph, input_names = proto.graph, {info.name for info in proto.graph.input}
    inline = [tensor for tensor in graph.initializer if tensor.name not in weights]
    external = [tensor for tensor in graph.initializer if tensor.name in weights and tensor.name not in input_names]
    infos = [onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in external]
    del graph.initializer[:]
    graph.initializer.extend(inline)
    graph.input.extend(infos)
    return proto


def write_streamed(model: ir.Model, file: Output) -> None:
    """Write the model, one weight in memory at a time. Raises ValueError above 2 GiB."""
    with _without_weights(model) as weights:
        proto = to_proto(model)
    initializers = list(proto.graph.initializer)
    del proto.graph.initializer[:]
    before_weights, after_weights = _split(proto.graph, _INITIALIZER)
    split_tensors = [_split(tensor, _RAW_DATA) if tensor.name in weights else None for tensor in initializers]
    sizes = [
        tensor.ByteSize() if fields is None else _tensor_size(fields, weights[tensor.name].nbytes)
        for tensor, fields in zip(initializers, split_tensors, strict=True)
    ]
    total = len(before_weights) + len(after_weights) + sum(1 + len(_varint(size)) + size for size in sizes)
    if total >= 1 << 31:
        raise ValueError(f"the graph has {total} bytes, but protobuf allows less than 2 GiB")
    before_graph, after_graph = _split(proto, _GRAPH)
    file.write(before_graph + _tag(_GRAPH) + _varint(total) + before_weights)
    for tensor, fields, size in zip(initializers, split_tensors, sizes, strict=True):
        file.write(_tag(_INITIALIZER) + _varint(size))
        if fields is None:
            file.write(tensor.SerializeToString())
        else:
            _write_tensor(file, fields, weights[tensor.name])
    file.write(after_weights + after_graph)


@contextmanager
def _without_weights(model: ir.Model) -> Iterator[dict[str, ir.TensorProtocol]]:
    """Replace large initializers of the main graph, and yield them by name."""
    import onnx_ir as ir

    weights: dict[str, ir.TensorProtocol] = {}
    values = model.graph.initializers
    for name, value in values.items():
        tensor = value.const_value
        if tensor is not None and tensor.dtype != ir.DataType.STRING and tensor.nbytes > INLINE_BYTES:
            weights[name] = tensor
            value.const_value = ir.ExternalTensor(
                "weights", None, None, tensor.dtype, shape=ir.Shape(list(tensor.shape.numpy())), name=name
            )
    try:
        yield weights
    finally:
        for name, tensor in weights.items():
            values[name].const_value = tensor


def _split(message: _Message, number: int) -> tuple[bytes, bytes]:
    """Return the serialized fields of a message before and after field ``number``.

    References to external data are left out.
    """
    fields = [field for field, _ in message.ListFields()]
    references = {"external_data", "data_location"}
    before = {field.name for field in fields if field.number < number} - references
    after = {field.name for field in fields if field.number > number} - references

    def serialize(field_names: Set[str]) -> bytes:
        copy = type(message)()
        copy.CopyFrom(message)
        for field in fields:
            if field.name not in field_names:
                copy.ClearField(field.name)
        content: bytes = copy.SerializeToString()
        return content

    return serialize(before), serialize(after)


def _tensor_size(fields: tuple[bytes, bytes], nbytes: int) -> int:
    """Return the serialized size of a tensor: ``nbytes`` of data between ``fields``."""
    before, after = fields
    return len(before) + 1 + len(_varint(nbytes)) + nbytes + len(after)


def _write_tensor(file: Output, fields: tuple[bytes, bytes], tensor: ir.TensorProtocol) -> None:
    """Write a tensor: its data between the serialized ``fields`` before and after."""
    data = tensor.tobytes()
    if len(data) != tensor.nbytes:
        raise ValueError(f"weight {tensor.name!r} has {len(data)} bytes, not {tensor.nbytes}")
    before, after = fields
    file.write(before + _tag(_RAW_DATA) + _varint(len(data)))
    file.write(data)
    file.write(after)


def _tag(number: int) -> bytes:
    """Return the key of a length-delimited field below number 16."""
    return bytes([number << 3 | 2])


def _varint(number: int) -> bytes:
    """Return a number in protobuf's variable-length encoding."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
