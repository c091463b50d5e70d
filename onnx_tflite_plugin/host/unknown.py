"""Unsupported operators, kept as nodes of a separate domain."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api.declarations import Handler
from onnx_tflite_plugin.api.layouts import Terminate
from onnx_tflite_plugin.api.quantization import Raw
from onnx_tflite_plugin.codes import COMPOSITE, CUSTOM
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Operator, Options

DOMAINS = {CUSTOM: "tflite.custom", COMPOSITE: "tflite.composite", "": "tflite"}
"""Domain of kept nodes by the prefix of the operator's code; the rest of the code is the node's name."""


def domain_and_name(code: str) -> tuple[str, str]:
    """Return domain and name of the node for a kept operator."""
    prefix = next(prefix for prefix in DOMAINS if code.startswith(prefix))
    return DOMAINS[prefix], code.removeprefix(prefix)


def placeholder_handler(op: Operator) -> Handler | None:
    """Return a handler that emits the operator as a node.

    Operands and results are as in the file. Return ``None`` for an operator without results, or with resources, which
    ONNX lacks.
    """
    tensors = [tensor for tensor in (*op.inputs, *op.outputs) if tensor is not None]
    if not any(op.outputs) or any(tensor.dtype in HANDLES for tensor in tensors):
        return None
    return Handler(op.code, _lower, op.version, Terminate(), quantization=Raw())


def _lower(ctx: Any, *inputs: Any) -> Any:
    """Emit a node of the operator's name, with its options as attributes."""
    op: Operator = ctx.op
    domain, name = domain_and_name(op.code)
    types = [None if t is None else (t.dtype, t.dims if t.has_rank else None) for t in op.outputs]
    return tuple(ctx.scope.emitter.emit_foreign(domain, name, inputs, _attributes(op), types))


def _attributes(op: Operator) -> dict[str, Any]:
    """Return the options that can be attributes.

    If some cannot, the bytes of ``custom_options`` are included.
    """
    composite_options = [value for value in op.options.values() if isinstance(value, Options)]
    options = {
        name: value
        for fields in (op.options, *composite_options)
        for name, value in fields.items()
        if value not in composite_options
    }
    attributes = {name: value for name, value in options.items() if _is_attribute_value(value)}
    if op.custom_options and len(attributes) < max(len(options), 1):
        attributes["custom_options"] = np.frombuffer(op.custom_options, np.uint8)
    return attributes


def _is_attribute_value(value: Any) -> bool:
    """True if the value can be an ONNX attribute."""
    if isinstance(value, list | tuple):
        return bool(value) and (
            all(isinstance(item, int | float) for item in value) or all(isinstance(item, str) for item in value)
        )
    return isinstance(value, bool | int | float | str)
