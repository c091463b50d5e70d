"""Builder of the operators that replace an operator (``rewrite`` of a handler)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onnx_tflite_plugin.api.declarations import Handler, Instance, Replacement
from onnx_tflite_plugin.source.model import Array, ArrayData, Dims, Operator, Options, Tensor

NOT_IN_THE_FILE = -1
"""Subgraph index of the tensors that a rewrite creates, because the file does not contain them."""


class Rewriter:
    """Builder of the replacement operators, in order.

    ``call`` adds an intermediate operator, and ``finish`` adds the last one.
    """

    def __init__(self, at: Instance) -> None:
        self.op: Operator = at.op
        self.replacements: list[Replacement] = []
        self._tensor_count = 0

    def constant(self, array: Array) -> Tensor:
        """Return a constant tensor, to pass as an operand."""
        return replace(self._new_tensor(array.dtype.name, array.shape), data=ArrayData(array))

    def call(self, handler: Handler, inputs: Sequence[Tensor | None], dtype: str, dims: Dims, **options: Any) -> Tensor:
        """Append an operator that ``handler`` lowers, and return its result.

        The result has the dtype ``dtype`` and the shape ``dims``. ``options`` become the options of the operator.
        """
        result = self._new_tensor(dtype, dims)
        self._append(handler, inputs, [result], options)
        return result

    def finish(self, handler: Handler, inputs: Sequence[Tensor | None], **options: Any) -> Sequence[Replacement]:
        """Append the operator that computes the results, and return all replacements."""
        self._append(handler, inputs, self.op.outputs, options)
        return self.replacements

    def _new_tensor(self, dtype: str, dims: Dims) -> Tensor:
        name = next((tensor.name for tensor in self.op.outputs if tensor is not None), "")
        self._tensor_count += 1
        shape = tuple(1 if size is None else size for size in dims)
        return Tensor(NOT_IN_THE_FILE, self._tensor_count, f"{name}/{self._tensor_count}", dtype, shape, tuple(dims))

    def _append(
        self,
        handler: Handler,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor | None],
        options: dict[str, Any],
    ) -> None:
        op = replace(
            self.op,
            code=handler.code,
            builtin=handler.code,
            version=1,
            options=Options(handler.code, options),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            intermediates=(),
            custom_options=b"",
            mutating=(),
        )
        self.replacements.append(Replacement(handler, op))
