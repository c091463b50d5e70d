"""Dtypes without a kernel in runtimes, by ONNX operator, and the wider dtype to compute in instead.

Narrowing the result is exact: it is one of the operands, or it wraps around like the narrow dtype. If runtimes
differ by reduction (``ScatterElements/add``), the key includes the attribute ``reduction``.
"""

from __future__ import annotations

from collections.abc import Mapping

_SMALL_INTEGERS = dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32")
_BYTES = dict.fromkeys(("int8", "uint8"), "int32")
_NUMBERS = {**dict.fromkeys(("int8", "uint8", "int16"), "int32"), "bfloat16": "float32"}
_BRAIN = {"bfloat16": "float32"}
_HALVES = dict.fromkeys(("float16", "bfloat16"), "float32")
_PADDED = {"int16": "int32", "uint16": "int32", **_BRAIN}
_EXTREMES = {**_BYTES, **_PADDED}
_REDUCED = {"int16": "int32", "bool": "uint8"}
_PLACED = {"bool": "uint8"}
_FLAGS = {"bool": "int32"}

WIDER: Mapping[str, Mapping[str, str]] = {
    # Missing in ONNX Runtime since 1.22; most are also missing in the standard at opset 13.
    **dict.fromkeys(("Floor", "Ceil", "Neg", "Round", "Tanh"), _BRAIN),
    **dict.fromkeys(("Sin", "Cos"), _HALVES),
    **dict.fromkeys(("Add", "Mul"), _SMALL_INTEGERS),
    **dict.fromkeys(("Max", "Min"), _EXTREMES),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _NUMBERS),
    "Where": {"bool": "uint8", "int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", **_BRAIN},
    # 64 channels of 32x32: 44 us with two Casts, 38 us without, 239 us as an equivalent Transpose.
    "SpaceToDepth": dict.fromkeys(("int8", "uint8"), "float32"),
    "DepthToSpace": {"int8": "float32"},
    "TopK": dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32"),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _REDUCED),
    **dict.fromkeys(("ArgMax", "ArgMin"), _PLACED),
    "Unique": dict.fromkeys(("uint8", "int16", "uint16", "int32", "uint32", "bool"), "int64"),
    "Pad": _PADDED,
    **dict.fromkeys(("ScatterElements/add", "ScatterElements/mul"), _HALVES),
    **dict.fromkeys(("ScatterElements/max", "ScatterElements/min"), _FLAGS),
}
