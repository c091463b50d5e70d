"""Cases of TensorFlow's select operators, with results of TensorFlow's kernels (``python -m tools.tensorflow_cases``).

LiteRT's package has no kernel for them. Each case is converted with static and with dynamic shapes.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
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
class Stored:
    """One operator with its operands and TensorFlow's results. ``constant``: the operands that are constants."""

    op: str
    name: str
    node: bytes
    constant: tuple[bool, ...]
    operands: tuple[Array, ...]
    results: tuple[Array, ...]

    @property
    def options(self) -> bytes:
        """Return the operator's options in a file: a FlexBuffer vector of its name and its NodeDef."""
        return select_options(self.op, self.node)


def select_options(name: str, node: bytes) -> bytes:
    """Return the options of a select operator in the format of TensorFlow's converter."""
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String(name)
        builder._WriteBlob(node, append_zero=True, type_=flexbuffers.Type.STRING)  # its String takes text alone
    return bytes(builder.Finish())


DTYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bool": 10, "float16": 19}
"""Numbers of TensorFlow's DataType."""


def node(op: str, attributes: Mapping[str, Any] | None = None, name: str = "op") -> bytes:
    """Return a NodeDef message; attributes are numbers, booleans, lists of integers, texts, or names of dtypes."""
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
    if isinstance(value, str) and value in DTYPES:  # no attribute that is a text has the name of a dtype
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
def stored_cases() -> tuple[Stored, ...]:
    """Return all stored cases."""
    with (files("conformance") / "cases/custom/select/tensorflow.npz").open("rb") as file:
        members = np.load(file)
        index, data = json.loads(members["index"].tobytes()), members["data"].tobytes()
    at = 0

    def arrays(described: Sequence[Any]) -> tuple[Array, ...]:
        nonlocal at
        found = []
        for dtype, shape in described:
            count = int(np.prod(shape, dtype=np.int64))
            found.append(np.frombuffer(data, dtype, count, at).reshape(shape))
            at += found[-1].nbytes
        return tuple(found)

    return tuple(
        Stored(
            each["op"],
            each["name"],
            base64.b64decode(each["node"]),
            tuple(each["constant"]),
            arrays(each["operands"]),
            arrays(each["results"]),
        )
        for each in index["cases"]
    )


def tensorflow_cases(
    *operators: str, fixed_alone: Sequence[str] = (), dtypes: Sequence[str] = (), **given: Any
) -> Iterator[Case]:
    """Yield the stored cases of operators. ``fixed_alone``: cases that need static shapes, by "operator, name".

    ``dtypes``: those of the first operand, all by default.
    """
    for one in stored_cases():
        if one.op not in operators or (dtypes and one.operands[0].dtype.name not in dtypes):
            continue
        yield case(one, one.name, known=True, **given)
        if f"{one.op}, {one.name}" not in fixed_alone and not all(one.constant):
            yield case(one, f"{one.name}, dynamic sizes", known=False, **given)


def case(one: Stored, name: str, *, known: bool, **given: Any) -> Case:
    """Return a case of the operator in isolation; ``known``: the file has static shapes."""
    run_time = [array for array, constant in zip(one.operands, one.constant, strict=True) if not constant]
    inputs = {f"x{k}": array for k, array in enumerate(run_time)}
    dtype = (run_time or one.operands)[0].dtype.name
    return net(
        PREFIX + one.op,
        name,
        partial(build_model, one=one, known=known),
        given=inputs,
        reference=lambda arrays: one.results,
        **{"dtype": dtype, "runs": 1, "sizes": (), **given},
    )


def build_model(model: Net, one: Stored, known: bool) -> None:
    def spec(array: Array, value: Array | None = None) -> Spec:
        shape = array.shape if known or value is not None else (None,) * array.ndim
        return Spec(shape, array.dtype.name, value=value)

    operands = [spec(a, a if c else None) for a, c in zip(one.operands, one.constant, strict=True)]
    refs = [model.place(operand) for operand in operands]
    results = [model.result(spec(array)) for array in one.results]
    model.graph.operator(PREFIX + one.op, refs, results, custom_options=one.options)
    model.output(*results)
