"""One operator being lowered, as it was planned: its slots' orders, and what it computes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.layout.order import Order, axes, physical
from onnx_tflite_plugin.lowering.emitter import Operand
from onnx_tflite_plugin.lowering.scope import Scope
from onnx_tflite_plugin.quantization.plan import Arithmetic, Storage, data_slots, file_storage, shifted_storage
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Dims, Operator, Options, Quantization, Tensor
from onnx_tflite_plugin.targets.base import Target


class Planned:
    """Slots: inputs 0, 1, ...; output ``k`` is ``out(k)``."""

    def __init__(self, scope: Scope, bound: Bound) -> None:
        self.op: Operator = bound.op
        self.options: Options = bound.op.options
        self.bound = bound
        self.scope = scope
        self.arithmetic: Arithmetic = scope.storage.arithmetic[bound]

    def node(self, op_type: str, *operands: Operand, **attributes: Any) -> ir.Value:
        """The one value of an ONNX operator."""
        return self.scope.emitter.emit(op_type, operands, attributes)[0]

    @property
    def opset(self) -> int:
        return self.scope.emitter.opset

    @property
    def target(self) -> Target:
        return self.scope.target

    # --- shapes and orders --------------------------------------------------------------------

    def order(self, slot: int) -> Order:
        return self.scope.layout.order(self.bound, slot)

    def shape(self, slot: int) -> Dims:
        """The slot's shape in its planned order; ``None`` for unknown sizes."""
        return physical(self.order(slot))

    def axis(self, axis: int, slot: int = 0) -> int:
        """Where a TFLite axis of the slot (negative counts from the end) lies in the planned order.

        Raises Refused for an axis that the slot does not have.
        """
        rank = max(self.op[slot].rank, 1)
        if not -rank <= axis < rank:
            raise Refused(f"it has no axis {axis}: {self.op[slot].name!r} has rank {self.op[slot].rank}")
        return self.perm(slot).index(axis % rank) if self.op[slot].rank else 0

    def perm(self, slot: int = 0) -> tuple[int, ...]:
        """Physical axis → TFLite axis."""
        return axes(self.order(slot))

    def by_axis(self, entries: Sequence[Any], slot: int = 0) -> list[Any]:
        """One entry per TFLite axis of the slot, in planned order."""
        return [entries[axis] for axis in self.perm(slot)]

    @cached_property
    def _indexed(self) -> dict[int, int]:
        return dict(self.bound.declared.indexed_by_axis)

    @cached_property
    def _data_slot(self) -> int:
        """The slot whose axes are meant where an operand holds axis numbers: the first data input."""
        apart = {*self.bound.declared.holds_axes, *self._indexed}
        for slot in range(len(self.op.inputs)):
            if slot not in apart and self.op.tensor(slot) is not None:
                return slot
        raise LookupError("holds_axes and indexed_by_axis leave no operand whose axes could be meant")

    @cached_property
    def _data_slots(self) -> frozenset[int]:
        return frozenset(data_slots(self.bound))

    # --- quantization -------------------------------------------------------------------------

    @property
    def quantized(self) -> bool:
        """Whether any data operand is quantized."""
        return any(affine(self.op.tensor(slot)) is not None for slot in self._data_slots)

    def quantization(self, slot: int) -> Quantization | None:
        """The slot's parameters as its integers are delivered; ``None`` where it is not quantized."""
        return None if affine(self.op.tensor(slot)) is None else self.delivered(slot).quantization

    def dtype(self, slot: int) -> str:
        """The dtype of the slot's integers as delivered and returned."""
        return self.delivered(slot).dtype

    def as_in_file(self, slot: int) -> bool:
        """Whether the slot's integers are the file's, whatever the storage plan makes of the tensor."""
        return self.arithmetic is Arithmetic.FILE and slot not in self.bound.declared.output_quantization

    def delivered(self, slot: int) -> Storage:
        """How the slot's integers are kept where the handler takes or returns them.

        What is computed on stored integers has its operands and results as its first quantized output is kept: those of a
        subgraph's interface and of variables, and what bare integers are read of, are kept otherwise than those beside them.
        """
        tensor, result = self.op[slot], self._integer_result
        if self.as_in_file(slot):
            return file_storage(tensor)
        own = self.scope.storage.storage(tensor)
        apart = self.bound.declared.output_quantization
        if slot in apart or result is None or affine(tensor) is None or tensor.dtype != result.dtype:
            return own
        kept = self.scope.storage.storage(result)
        return own if own.shift == kept.shift else shifted_storage(tensor, kept.dtype, kept.shift)

    @cached_property
    def _integer_result(self) -> Tensor | None:
        """The first quantized output without a behaviour of its own, where the operator computes on stored integers."""
        if self.arithmetic is not Arithmetic.STORED:
            return None
        apart = self.bound.declared.output_quantization
        return next((t for k, t in enumerate(self.op.outputs) if affine(t) is not None and ~k not in apart), None)

    @property
    def shifts(self) -> tuple[int, int]:
        """What is added to the file's integers of input 0 and of output 0 where the handler takes and returns them."""
        return self.delivered(0).shift, self.delivered(~0).shift
