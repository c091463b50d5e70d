"""What a handler sees while it lowers one operator (``ctx``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.ops import Ops
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.binding.bound import Bound, label
from onnx_tflite_plugin.lowering.activation import applied
from onnx_tflite_plugin.lowering.emitter import Operand, own_value
from onnx_tflite_plugin.lowering.lookup import picked
from onnx_tflite_plugin.lowering.operands import Operands
from onnx_tflite_plugin.lowering.scope import Scope
from onnx_tflite_plugin.lowering.state import State
from onnx_tflite_plugin.lowering.values import FILE, STORED, Resource, integers
from onnx_tflite_plugin.quantization.plan import Arithmetic
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Array, Dims, Subgraph, Tensor


class Context(Operands):
    """One operator, its planned orders, and the means to emit. Slots: inputs 0, 1, ...; output ``k`` is ``out(k)``."""

    def __init__(self, scope: Scope, bound: Bound) -> None:
        super().__init__(scope, bound)
        self.ops = Ops(self._emitted)

    def _emitted(
        self,
        op_type: str,
        operands: Sequence[Operand],
        attributes: Mapping[str, Any],
        outputs: int | None,
        domain: str,
    ) -> Sequence[ir.Value]:
        """What ``ctx.ops`` calls. Raises TypeError for an operand that another model's conversion made."""
        for operand in operands:
            if isinstance(operand, ir.Value) and not self.scope.emitter.owns(operand):
                raise TypeError(f"{op_type}: operand {operand.name!r} is no value of this model, it was made elsewhere")
        return self.scope.emitter.emit(op_type, operands, attributes, outputs, domain)

    # --- operands -----------------------------------------------------------------------------

    def constant_value(self, array: Array) -> ir.Value:
        """A constant as a value."""
        return self.scope.emitter.constant(np.asarray(array))

    def known(self, value: Value) -> Array | None:
        """The value of a constant; ``None`` for what is computed, and for inputs."""
        constant = own_value(value).const_value
        return None if constant is None else np.asarray(constant.numpy())

    # --- quantization -------------------------------------------------------------------------

    @property
    def folds(self) -> bool:
        """Whether quantized and float16 constants are to be float32 in the file."""
        return self.scope.storage.fold

    @property
    def integers(self) -> bool:
        """Whether quantized operands are delivered, and expected back, as stored integers."""
        return self.quantized and self.arithmetic is not Arithmetic.FLOAT

    def raw(self, slot: int) -> ir.Value:
        """The operand's stored integers where it is quantized, the operand itself where it is not.

        Floats for a target that runs nothing on integers; ``dequantize`` and ``quantize`` then leave them alone.
        """
        form = STORED if self.target.moves_integers else self.arithmetic.form
        return self.fetch(slot, form)

    def scalar(self, number: float, slot: int = 0) -> Array:
        """A number in the dtype the slot is delivered in."""
        tensor = self.op[slot]
        if affine(tensor) is not None and self.arithmetic is Arithmetic.FLOAT:
            return np.asarray(number, np.float32)
        dtype = self.dtype(slot)
        return np.asarray(number, dtype) if dtype not in ("int4", "uint4", "int2") else integers(int(number), dtype)

    def looked_up(self, table: Array, indices: Value, dims: Dims | None) -> ir.Value:
        """The table's entry for each index."""
        return picked(self.scope.emitter, table, own_value(indices), dims)

    # --- what is told -------------------------------------------------------------------------

    def warn(self, text: str) -> None:
        """Tell whoever converts what they must know of the operator; the conversion goes on."""
        self.scope.emitter.warnings.append(f"{label(self.op)}: {text}")

    # --- results ------------------------------------------------------------------------------

    def activate(self, value: Value) -> ir.Value:
        """Return floats with the operator's fused activation applied. Raises TypeError unless that is declared ``inside``."""
        if not self.bound.declared.activates_inside:
            raise TypeError(
                "ctx.activate needs activation=FusedActivation(..., inside=True); the host applies any other"
            )
        return applied(self, own_value(value), self.bound.declared.activation)

    def wanted(self, k: int) -> bool:
        """Whether anything uses output ``k``; only where nothing does may a handler return None for it."""
        tensor = self.op.tensor(~k)
        return tensor is not None and tensor in self.scope.used

    def reshaped(self, value: Value, slot: int) -> ir.Value:
        """The same elements in the slot's planned shape: nothing where it has it, else a Reshape."""
        value, wanted = own_value(value), self._sizes(slot)
        if value.shape is not None and tuple(value.shape) == wanted and None not in wanted:
            return value
        if sum(d is None for d in wanted) > 1:
            operand = next((k for k, operand_value in enumerate(self.inputs) if operand_value is value), None)
            inferred = tuple(d if isinstance(d, int) else None for d in value.shape or ())
            with suppress(ValueError):
                before = inferred if operand is None else self._sizes(operand)
                return self.scope.values.reshape(value, before, wanted)
            raise Refused(f"its result has more than one unknown size {wanted}; give input shapes with --input-shape")
        allowzero = 1 if 0 in wanted and self.opset >= 14 else None
        return self.node("Reshape", value, [-1 if d is None else d for d in wanted], allowzero=allowzero)

    def _sizes(self, slot: int) -> Dims:
        """The shape of the slot's value: complex numbers are pairs along a last axis."""
        return self.shape(slot) + ((2,) if self.op[slot].dtype.startswith("complex") else ())

    # --- subgraphs and state ------------------------------------------------------------------

    def inline(
        self, subgraph: int, inputs: Sequence[Value | None], results: Sequence[Tensor] | None = None
    ) -> list[Value]:
        """Lower another TFLite subgraph in place, on these inputs in planned order and the file's dtypes."""
        given = [x if x is None or isinstance(x, Resource) else own_value(x) for x in inputs]
        return cast("list[Value]", self.scope.inline(subgraph, given, self.bound, results))

    def initialize(self, subgraph: int) -> None:
        """Run a subgraph at conversion time: what it assigns becomes the states' initial values."""
        with self.scope.states.setting_up():
            self.inline(subgraph, [])

    def graph(
        self, body: Callable[..., Sequence[Value]], inputs: Sequence[tuple[str, str, Dims | None]] = ()
    ) -> ir.Graph:
        """An inner ONNX graph for If and Loop. ``inputs``: (name, dtype, shape or None); ``body`` gets them as values.

        Outer values may be used inside: they are captured.
        """
        return self.scope.graph(body, inputs)

    def subgraph(self, index: int) -> Subgraph:
        """A subgraph as the file has it, but for tensors that are kept as floats. Raises LookupError where there is none."""
        return self.scope.model.graphs[index].subgraph

    def make_resource(self, key: str) -> Resource:
        return Resource(key)

    def resource(self, slot: int) -> Resource:
        """The token a resource operand stands for. Raises Refused where it is only known at run time."""
        resource = self.inputs[slot]
        if not isinstance(resource, Resource):
            raise Refused(f"its resource operand {slot} is not known at conversion time")
        return resource

    def assign(self, slot: int, value: Value) -> None:
        """The next value of a variable tensor operand, in the order and form in which the slot is delivered."""
        form = FILE if slot in self._stored else self.arithmetic.form
        self.scope.assign(self.op[slot], own_value(value), self.order(slot), form)

    def state(self, resource: Token) -> State:
        """The state behind a resource: ``get()`` its current value, ``set(value)`` the next."""
        return self.scope.states.state(resource.key)

    def states(self, *subgraphs: int) -> list[State]:
        """The states that subgraphs may touch, for control flow to carry through."""
        return self.scope.states.touched(self.scope.model, subgraphs)


if TYPE_CHECKING:
    from onnx_tflite_plugin.api.context import Context as Promised
    from onnx_tflite_plugin.api.context import Resource as Token

    def _keeps_the_promise(ctx: Context) -> Promised:
        """mypy holds this class against the protocol that handlers are written to."""
        return ctx
