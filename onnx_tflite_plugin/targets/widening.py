"""Dtypes for which runtimes lack a kernel, by ONNX operator.

Each dtype is mapped to the wider dtype to compute in. Narrowing the result is exact: the result is one of the operands,
or it wraps around like the narrow dtype. If runtimes differ by reduction (``ScatterElements/add``), the key includes the
attribute ``reduction``.
"""

from __future__ import annotations

from collections.abc import Mapping

_SMALL_INTEGERS = dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32")
_INT8_DTYPES = dict.fromkeys(("int8", "uint8"), "int32")
_COMPARISON = {**dict.fromkeys(("int8", "uint8", "int16"), "int32"), "bfloat16": "float32"}
_BFLOAT16 = {"bfloat16": "float32"}
_FLOAT16 = dict.fromkeys(("float16", "bfloat16"), "float32")
_PAD = {"int16": "int32", "uint16": "int32", **_BFLOAT16}
_MAX_MIN = {**_INT8_DTYPES, **_PAD}
_REDUCE_MAX_MIN = {"int16": "int32", "bool": "uint8"}
_ARG_MAX_MIN = {"bool": "uint8"}
_SCATTER_MAX_MIN = {"bool": "int32"}

WIDER: Mapping[str, Mapping[str, str]] = {
    # ONNX Runtime 1.22 and later versions lack these kernels; ONNX lacks most of them at opset 13.
    **dict.fromkeys(("Floor", "Ceil", "Neg", "Round", "Tanh"), _BFLOAT16),
    **dict.fromkeys(("Sin", "Cos"), _FLOAT16),
    **dict.fromkeys(("Add", "Mul"), _SMALL_INTEGERS),
    **dict.fromkeys(("Max", "Min"), _MAX_MIN),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _COMPARISON),
    "Where": {"bool": "uint8", "int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", **_BFLOAT16},
    # 64 channels of 32x32: 44 us with two Casts, 38 us without, 239 us as an equivalent Transpose.
    "SpaceToDepth": dict.fromkeys(("int8", "uint8"), "float32"),
    "DepthToSpace": {"int8": "float32"},
    "TopK": dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32"),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _REDUCE_MAX_MIN),
    **dict.fromkeys(("ArgMax", "ArgMin"), _ARG_MAX_MIN),
    "Unique": dict.fromkeys(("uint8", "int16", "uint16", "int32", "uint32", "bool"), "int64"),
    "Pad": _PAD,
    **dict.fromkeys(("ScatterElements/add", "ScatterElements/mul"), _FLOAT16),
    **dict.fromkeys(("ScatterElements/max", "ScatterElements/min"), _SCATTER_MAX_MIN),
}
