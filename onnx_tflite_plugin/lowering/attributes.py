"""Attributes of ONNX nodes from Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnx_tflite_plugin.checked import describe, did_you_mean
from onnx_tflite_plugin.lowering.ir_values import onnx_dtype
from onnx_tflite_plugin.lowering.schemas import schema_attributes


def make_attribute(name: str, value: Any, schema: onnx.defs.OpSchema | None) -> ir.Attr:
    """Return an attribute of the schema's type; without a schema, of the value's type."""
    kind = _attribute_type(value) if schema is None else schema_attributes(schema)[name]
    if kind == ir.AttributeType.INT:
        value = int(_parse_dtype(value)) if isinstance(value, str) else int(value)
    elif kind == ir.AttributeType.INTS:
        value = [int(v) for v in value]
    elif kind == ir.AttributeType.FLOAT:
        value = float(value)
    elif kind == ir.AttributeType.FLOATS:
        value = [float(v) for v in value]
    elif kind == ir.AttributeType.TENSOR and isinstance(value, np.ndarray):
        value = ir.Tensor(value)
    return ir.Attr(name, kind, value)


def _parse_dtype(name: str) -> ir.DataType:
    """Return the ONNX dtype of a name; raise TypeError for an unknown name."""
    try:
        return onnx_dtype(name)
    except KeyError:
        known = (dtype.numpy().name for dtype in ir.DataType if dtype not in _WITHOUT_ARRAY)
        raise TypeError(f"{name!r} is not a dtype{did_you_mean(name, known)}") from None


_WITHOUT_ARRAY = (ir.DataType.UNDEFINED, ir.DataType.STRING)


def _attribute_type(value: Any) -> ir.AttributeType:
    """Return the attribute type of a value.

    Raises TypeError for a value that cannot be an attribute.
    """
    if isinstance(value, ir.Graph):
        return ir.AttributeType.GRAPH
    if isinstance(value, str):
        return ir.AttributeType.STRING
    if isinstance(value, np.ndarray) and value.ndim != 1:
        return ir.AttributeType.TENSOR
    array = np.asarray(value)
    kinds = {
        ("i", 0): ir.AttributeType.INT,
        ("b", 0): ir.AttributeType.INT,
        ("f", 0): ir.AttributeType.FLOAT,
        ("i", 1): ir.AttributeType.INTS,
        ("f", 1): ir.AttributeType.FLOATS,
        ("U", 1): ir.AttributeType.STRINGS,
    }
    if (array.dtype.kind, array.ndim) not in kinds:
        raise TypeError(f"{describe(value)} cannot be an attribute: pass numbers, text, lists of them, or an array")
    return kinds[array.dtype.kind, array.ndim]
