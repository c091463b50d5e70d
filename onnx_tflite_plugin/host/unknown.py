"""Operators that nobody converts, kept as nodes of a domain of their own for a runtime that has kernels for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnx_tflite_plugin.api.declarations import Handler, Raw, Terminate
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.flexbuffer import attributes
from onnx_tflite_plugin.source.model import Operator

DOMAIN = "tflite"


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
    name = op.code.rpartition(".")[2] if op.code.startswith(("CUSTOM.", "COMPOSITE.")) else op.code
    types = [None if t is None else (t.dtype, t.dims if t.has_rank else None) for t in op.outputs]
    return tuple(ctx.scope.emitter.foreign(DOMAIN, name, inputs, _attributes(op), types))


def _attributes(op: Operator) -> dict[str, Any]:
    """Options by name; those of a custom operator that are no FlexBuffer as ``custom_options``, the bytes."""
    given: dict[str, Any] = {name: value for name, value in op.options.items() if _plain(value)}
    if op.custom_options:
        try:
            decoded: Mapping[str, Any] = attributes(op.custom_options, op.code)
        except ValueError:
            decoded = {}
        plain = {name: value for name, value in decoded.items() if _plain(value)}
        if plain and len(plain) == len(decoded):
            given |= plain
        else:
            given["custom_options"] = np.frombuffer(op.custom_options, np.uint8)
    return given


def _plain(value: Any) -> bool:
    """What an ONNX attribute can hold."""
    if isinstance(value, list | tuple):
        return bool(value) and (
            all(isinstance(item, int | float) for item in value) or all(isinstance(item, str) for item in value)
        )
    return isinstance(value, bool | int | float | str)
