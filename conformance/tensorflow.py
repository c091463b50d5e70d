"""Cases of select operators, with stored results of TensorFlow's kernels.

LiteRT's package has no kernels for select operators. ``python -m tools.tensorflow_cases`` stores TensorFlow's results.
Each case is converted with static and with dynamic shapes.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Net, Spec, net
from onnx_tflite_plugin.source.model import Array

PREFIX = "CUSTOM.Flex"


@dataclass(frozen=True, eq=False)
class StoredCase:
    """One operator with its operands and TensorFlow's results.

    ``node``: the serialized NodeDef. ``constant``: for each operand, True if it is a constant.
    """

    op: str
    name: str
    node: bytes
    constant: tuple[bool, ...]
    operands: tuple[Array, ...]
    results: tuple[Array, ...]

    @property
    def options(self) -> bytes:
        """Return the operator's options as stored in a file.

        They are a FlexBuffer vector with the operator's name and its NodeDef.
        """
        return select_options(self.op, self.node)


def select_options(name: str, node: bytes) -> bytes:
    """Return the options of a select operator in the format of TensorFlow's converter."""
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String(name)
        builder._WriteBlob(node, append_zero=True, type_=flexbuffers.Type.STRING)  # String accepts text only
    return bytes(builder.Finish())


DTYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bool": 10, "float16": 19}
"""Dtype -> number in TensorFlow's DataType."""


def node(op: str, attributes: Mapping[str, Any] | None = None, name: str = "op") -> bytes:
    """Return a serialized NodeDef.

    ``attributes``: name -> number, boolean, list of integers, text or name of a dtype.
    """
    entries = [
        _field(5, _field(1, key.encode()) + _field(2, _attribute(value))) for key, value in (attributes or {}).items()
    ]
    return _field(1, name.encode()) + _field(2, op.encode()) + b"".join(entries)


def _attribute(value: Any) -> bytes:
    if isinstance(value, bool):
        return _varint(5 << 3) + _varint(int(value))
    if isinstance(value, int):
        return _varint(3 << 3) + _varint(value % (1 << 64))
    if isinstance(value, float):
        return _varint(4 << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, str) and value in DTYPES:  # no text attribute has the name of a dtype
        return _varint(6 << 3) + _varint(DTYPES[value])
    if isinstance(value, str):
        return _field(2, value.encode())
    return _field(1, _field(3, b"".join(_varint(n % (1 << 64)) for n in value)))


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    return bytes([*result, value])


@cache
def stored_cases() -> tuple[StoredCase, ...]:
    """Return all stored cases, in the order of the file."""
    with (files("conformance") / "cases/custom/select/tensorflow.npz").open("rb") as file:
        members = np.load(file)
        index, data = json.loads(members["index"].tobytes()), members["data"].tobytes()
    offset = 0

    def arrays(descriptions: Sequence[Any]) -> tuple[Array, ...]:
        nonlocal offset
        loaded = []
        for dtype, shape in descriptions:
            count = int(np.prod(shape, dtype=np.int64))
            loaded.append(np.frombuffer(data, dtype, count, offset).reshape(shape))
            offset += loaded[-1].nbytes
        return tuple(loaded)

    return tuple(
        StoredCase(
            entry["op"],
            entry["name"],
            base64.b64decode(entry["node"]),
            tuple(entry["constant"]),
            arrays(entry["operands"]),
            arrays(entry["results"]),
        )
        for entry in index["cases"]
    )


def tensorflow_cases(
    *operators: str,
    static_only: Sequence[str] = (),
    static_axes: Collection[int] = (),
    dtypes: Sequence[str] = (),
    **options: Any,
) -> Iterator[Case]:
    """Yield the stored cases of operators, with static and with dynamic shapes.

    ``static_only``: "operator, name" of cases to yield only with static shapes. ``static_axes``: axes of all tensors
    whose sizes are never dynamic; negative axes count from the last. ``dtypes``: yield only cases whose first operand
    has one of these dtypes; by default all. ``options``: fields of the cases.
    """
    for stored in stored_cases():
        if stored.op not in operators or (dtypes and stored.operands[0].dtype.name not in dtypes):
            continue
        yield case(stored, stored.name, static=True, **options)
        if f"{stored.op}, {stored.name}" not in static_only and not all(stored.constant):
            yield case(stored, f"{stored.name}, dynamic sizes", static=False, static_axes=static_axes, **options)


def case(stored: StoredCase, name: str, *, static: bool, static_axes: Collection[int] = (), **options: Any) -> Case:
    """Return a case of the operator in isolation, with static or dynamic shapes."""
    runtime_operands = [array for array, constant in zip(stored.operands, stored.constant, strict=True) if not constant]
    inputs = {f"x{k}": array for k, array in enumerate(runtime_operands)}
    dtype = (runtime_operands or stored.operands)[0].dtype.name
    return net(
        PREFIX + stored.op,
        name,
        partial(build_model, stored=stored, static=static, static_axes=static_axes),
        input_arrays=inputs,
        reference=lambda arrays: stored.results,
        **{"dtype": dtype, "runs": 1, "dynamic_sizes": (), **options},
    )


def build_model(model: Net, stored: StoredCase, static: bool, static_axes: Collection[int]) -> None:
    """Build the model of a stored case: one operator on constants and graph inputs."""

    def spec(array: Array, value: Array | None = None) -> Spec:
        is_static = static or value is not None
        axes = range(array.ndim) if is_static else {axis % array.ndim for axis in static_axes if axis < array.ndim}
        shape = tuple(size if axis in axes else None for axis, size in enumerate(array.shape))
        return Spec(shape, array.dtype.name, value=value)

    operands = [spec(a, a if c else None) for a, c in zip(stored.operands, stored.constant, strict=True)]
    refs = [model.add_operand(operand) for operand in operands]
    results = [model.result(spec(array)) for array in stored.results]
    model.graph.operator(PREFIX + stored.op, refs, results, custom_options=stored.options)
    model.output(*results)
