"""ONNX operators as methods.

``ops.pyi``, generated from ONNX's schemas by tools/ops_stub.py, lists them for editors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from onnx_tflite_plugin.api.values import Value

Emit = Callable[..., Sequence[Value]]


class Ops:
    """ONNX operators as methods: ``ctx.ops.Conv(x, w, b, strides=[2, 2])``.

    Operands are values, numpy arrays, Python numbers or lists (int64, float32), or None for an absent optional operand.
    Attributes that are None are omitted. A method returns one value, or a tuple of values if the operator has several
    fixed outputs or ``outputs=n`` is passed. Write each operator with the signature of its newest opset. Operands that are
    attributes in the model's opset become attributes, and vice versa.
    """

    def __init__(self, emit: Emit, domain: str = "") -> None:
        self._emit = emit
        self._domain = domain

    def domain(self, name: str) -> Ops:
        """Return operators of another domain, such as ``com.microsoft``.

        Operators without a schema in ONNX are not checked.
        """
        return Ops(self._emit, name)

    def named(self, op_type: str) -> Callable[..., Any]:
        """Return the operator named ``op_type``, for names that are computed in Python."""
        return partial(self._emit_operator, op_type)

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return self.named(op_type)

    def _emit_operator(self, op_type: str, *operands: Any, outputs: int | None = None, **attributes: Any) -> Any:
        values = self._emit(op_type, operands, attributes, outputs, self._domain)
        return values[0] if len(values) == 1 and outputs is None else tuple(values)
