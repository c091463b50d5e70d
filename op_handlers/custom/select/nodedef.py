"""The attributes of a select operator.

The file stores a FlexBuffer vector of the operator's name and its NodeDef. This protobuf message is defined in
tensorflow/core/framework: node_def.proto, attr_value.proto and tensor_shape.proto. It is parsed here, because importing
TensorFlow or a protobuf runtime would take longer than a conversion. The size of the message is limited, because a file
may contain arbitrary bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from onnx_tflite_plugin.api import Operator, Refusal

PREFIX = "CUSTOM.Flex"
MAX_BYTES = 1 << 20
"""Maximum bytes of one NodeDef; an operator without functions needs a few hundred."""
MAX_FIELDS = 1 << 14
"""Maximum fields of one NodeDef, including list elements."""

DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 20: "resource", 21: "variant",
    22: "uint32", 23: "uint64",
}  # fmt: skip
"""Names of TensorFlow's DataType numbers (types.proto)."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class NodeDef(NamedTuple):
    """The name of an operator, and attribute name -> value.

    Attributes are numbers, bytes, names of dtypes, or tuples for shapes and lists. TensorFlow omits attributes that
    have their default value.
    """

    op: str
    attributes: Mapping[str, Any]

    def integer(self, name: str, default: int = 0) -> int:
        value: int = self._of_type(name, default, int)
        return value

    def real(self, name: str, default: float = 0.0) -> float:
        value: float = self._of_type(name, default, float)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value: bool = self._of_type(name, default, bool)
        return value

    def text(self, name: str, default: str = "") -> str:
        value: bytes = self._of_type(name, default.encode(), bytes)
        return value.decode("utf-8", "replace")

    def dtype(self, name: str, default: str = "") -> str:
        value: str = self._of_type(name, default, str)
        return value

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        values: tuple[int, ...] = self._of_type(name, default, tuple)
        if not all(type(value) is int for value in values):
            raise Refusal(f"attribute {name!r} of the NodeDef is not a list of integers")
        return values

    def _of_type(self, name: str, default: Any, value_type: type) -> Any:
        value = self.attributes.get(name, default)
        if type(value) is not value_type:
            raise Refusal(
                f"attribute {name!r} of the NodeDef is {type(value).__name__}, expected {value_type.__name__}"
            )
        return value


def node_of(op: Operator) -> NodeDef:
    """Return the NodeDef of a select operator.

    Raises Refusal if it is missing or belongs to another operator.
    """
    try:
        node = parse_options(op.custom_options)
    except ValueError as error:
        raise Refusal(f"the options hold no valid NodeDef: {error}; export the model again") from error
    if not node.op or not op.code.endswith(f"Flex{node.op}"):
        raise Refusal(f"the options hold the NodeDef of {node.op!r}: the file is damaged; export the model again")
    return node


@lru_cache(256)
def parse_options(options: bytes) -> NodeDef:
    """Return the NodeDef in an operator's options.

    Raises ValueError if the options are damaged.
    """
    if len(options) > MAX_BYTES:
        raise ValueError(f"the options have {len(options)} bytes; at most {MAX_BYTES} are supported")
    from flatbuffers import flexbuffers

    try:
        flexbuffer = flexbuffers.GetRoot(options)
        if flexbuffer.IsMap or not flexbuffer.IsVector or len(flexbuffer.AsVector) != 2:
            raise ValueError("the FlexBuffer is not a vector of two elements")
        node_item = flexbuffer.AsVector[1]
        data = bytes(node_item.AsBlob if node_item.IsBlob else node_item.AsStringBytes)
    except ValueError:
        raise
    except Exception as error:  # the package does not check bounds: struct.error, IndexError, TypeError and more
        raise ValueError(f"the FlexBuffer is damaged ({type(error).__name__})") from error
    return parse_node(data)


def parse_node(data: bytes) -> NodeDef:
    """Return the NodeDef in a protobuf message.

    Raises ValueError if the message is damaged or larger than the limit.
    """
    budget = _Budget(MAX_FIELDS)
    op, attributes = "", {}
    for field_number, value in _iterate_fields(data, budget):
        if field_number == 2 and isinstance(value, bytes):
            op = value.decode("utf-8", "replace")
        elif field_number == 5 and isinstance(value, bytes):
            entry = dict(_iterate_fields(value, budget))
            key, content = entry.get(1, b""), entry.get(2, b"")
            if isinstance(key, bytes) and isinstance(content, bytes):
                attributes[key.decode("utf-8", "replace")] = _parse_attribute(content, budget)
    return NodeDef(op, attributes)


class _Budget:
    """Number of fields that may still be read."""

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining

    def spend(self) -> None:
        self.remaining -= 1
        if self.remaining < 0:
            raise ValueError(f"more than {MAX_FIELDS} fields")


def _iterate_fields(data: bytes, budget: _Budget) -> Iterator[tuple[int, int | bytes]]:
    """Yield field number and value of each field.

    A varint is yielded as an unsigned integer, any other value as bytes.
    """
    offset = 0
    while offset < len(data):
        budget.spend()
        tag, offset = _read_varint(data, offset)
        wire_type = tag & 7
        if wire_type == VARINT:
            value, offset = _read_varint(data, offset)
            yield tag >> 3, value
            continue
        if wire_type == BYTES:
            size, offset = _read_varint(data, offset)
        elif wire_type in (FIXED64, FIXED32):
            size = 8 if wire_type == FIXED64 else 4
        else:
            raise ValueError(f"a field has wire type {wire_type}")
        if size > len(data) - offset:
            raise ValueError("a field extends beyond its message")
        yield tag >> 3, data[offset : offset + size]
        offset += size


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(data):
            raise ValueError("a number extends beyond its message")
        byte = data[offset]
        value, offset = value | (byte & 127) << shift, offset + 1
        if byte < 128:
            return value & (1 << 64) - 1, offset
    raise ValueError("a number has more than 10 bytes")


def _parse_attribute(data: bytes, budget: _Budget) -> Any:
    """Return the value in an AttrValue; None for tensors, functions and placeholders."""
    fields = list(_iterate_fields(data, budget))
    if not fields:
        return None
    field_number, value = fields[-1]  # if there are several, the last one applies
    if field_number == 1 and isinstance(value, bytes):
        return _parse_list(value, budget)
    return _parse_value(field_number, value, budget)


def _parse_value(field_number: int, value: int | bytes, budget: _Budget) -> Any:
    """Return the value of a field of AttrValue or ListValue, with the field's type."""
    if isinstance(value, bytes):
        if field_number == 2:
            return value
        if field_number == 4 and len(value) == 4:
            return float(struct.unpack("<f", value)[0])
        return _parse_shape(value, budget) if field_number == 7 else None
    if field_number == 3:
        return _to_signed(value)
    if field_number == 5:
        return bool(value)
    return DTYPES.get(value, f"dtype {value}") if field_number == 6 else None


def _parse_list(data: bytes, budget: _Budget) -> tuple[Any, ...]:
    """Return the elements of a ListValue; numbers may be packed into one field."""
    items: list[Any] = []
    for field_number, value in _iterate_fields(data, budget):
        if field_number in (3, 5, 6) and isinstance(value, bytes):
            offset = 0
            while offset < len(value):
                budget.spend()
                element, offset = _read_varint(value, offset)
                items.append(_parse_value(field_number, element, budget))
        elif field_number == 4 and isinstance(value, bytes) and len(value) % 4 == 0:
            for (element,) in struct.iter_unpack("<f", value):
                budget.spend()
                items.append(float(element))
        else:
            items.append(_parse_value(field_number, value, budget))
    return tuple(items)


def _parse_shape(data: bytes, budget: _Budget) -> tuple[int, ...] | None:
    """Return the sizes in a TensorShapeProto, or None for an unknown rank.

    Dynamic dimensions are -1.
    """
    sizes: list[int] = []
    for field_number, value in _iterate_fields(data, budget):
        if field_number == 3 and value:
            return None
        if field_number == 2 and isinstance(value, bytes):
            size = dict(_iterate_fields(value, budget)).get(1, 0)
            sizes.append(_to_signed(size) if isinstance(size, int) else 0)
    return tuple(sizes)


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
