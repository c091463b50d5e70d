"""Operators that nobody converts, kept as nodes of a domain of their own for a runtime that has kernels for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api.declarations import Handler, Terminate
from onnx_tflite_plugin.api.quantization import Raw
from onnx_tflite_plugin.codes import COMPOSITE, CUSTOM
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Operator, Options

DOMAINS = {CUSTOM: "tflite.custom", COMPOSITE: "tflite.composite", "": "tflite"}
"""The domain of kept nodes, by how the operator's code begins; what follows it is their name."""


def spelled(code: str) -> tuple[str, str]:
    """Domain and name of the node that an operator is kept as."""
    prefix = next(prefix for prefix in DOMAINS if code.startswith(prefix))
    return DOMAINS[prefix], code.removeprefix(prefix)


def keeper(op: Operator) -> Handler | None:
    """The handler that writes the operator as a node, operands and results as the file has them.

    ``None`` for one without results or with resources, of which ONNX has none.
    """
    tensors = [tensor for tensor in (*op.inputs, *op.outputs) if tensor is not None]
    if not any(op.outputs) or any(tensor.dtype in HANDLES for tensor in tensors):
        return None
    return Handler(op.code, _lower, op.version, Terminate(), quantization=Raw())


def _lower(ctx: Any, *inputs: Any) -> Any:
    """A node of the same name, with the operator's options as attributes."""
    op: Operator = ctx.op
    domain, name = spelled(op.code)
    types = [None if t is None else (t.dtype, t.dims if t.has_rank else None) for t in op.outputs]
    return tuple(ctx.scope.emitter.foreign(domain, name, inputs, _attributes(op), types))


def _attributes(op: Operator) -> dict[str, Any]:
    """Options by name; custom ones that are no map of what attributes can hold as ``custom_options``, the bytes."""
    inner = [value for value in op.options.values() if isinstance(value, Options)]  # a composite's own attributes
    options = {name: value for fields in (op.options, *inner) for name, value in fields.items() if value not in inner}
    given = {name: value for name, value in options.items() if _plain(value)}
    if op.custom_options and len(given) < max(len(options), 1):
        given["custom_options"] = np.frombuffer(op.custom_options, np.uint8)
    return given


def _plain(value: Any) -> bool:
    """What an ONNX attribute can hold."""
    if isinstance(value, list | tuple):
        return bool(value) and (
            all(isinstance(item, int | float) for item in value) or all(isinstance(item, str) for item in value)
        )
    return isinstance(value, bool | int | float | str)
