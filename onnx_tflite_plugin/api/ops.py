"""ONNX operators as methods. ``ops.pyi``, generated from ONNX's schemas by tools/ops_stub.py, lists them for editors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from onnx_tflite_plugin.api.values import Value

Emit = Callable[..., Sequence[Value]]


class Ops:
    """ONNX operators as methods: ``ctx.ops.Conv(x, w, b, strides=[2, 2])``.

    Operands are values, numpy arrays, Python numbers or lists (int64, float32), or None where an optional one is left
    out. Attributes that are None are left out. Returns one value, or a tuple with ``outputs=n`` or where the operator
    has several fixed outputs. Each is written as in the newest opset: an operand that used to be an attribute becomes
    one where the model's opset is older, and the other way round.
    """

    def __init__(self, emit: Emit, domain: str = "") -> None:
        self._emit = emit
        self._domain = domain

    def domain(self, name: str) -> Ops:
        """Operators of another domain, ``com.microsoft`` for one: of those that ONNX has no schema of, nothing is checked."""
        return Ops(self._emit, name)

    def named(self, op_type: str) -> Callable[..., Any]:
        """The operator of that name, where it depends on something."""
        return partial(self._one_or_several, op_type)

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return self.named(op_type)

    def _one_or_several(self, op_type: str, *operands: Any, outputs: int | None = None, **attributes: Any) -> Any:
        values = self._emit(op_type, operands, attributes, outputs, self._domain)
        return values[0] if len(values) == 1 and outputs is None else tuple(values)
