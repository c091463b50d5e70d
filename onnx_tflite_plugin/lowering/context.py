"""What a handler sees while it lowers one operator (``ctx``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Dequantized
from onnx_tflite_plugin.api.ops import Ops
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.layout.order import axes, physical, source_order
from onnx_tflite_plugin.lowering.emitter import Operand, own_value
from onnx_tflite_plugin.lowering.lookup import picked
from onnx_tflite_plugin.lowering.values import FILE, FLOAT, STORED, Held, Resource, integers
from onnx_tflite_plugin.quantization.plan import Arithmetic, Form, Storage, Weights, data_slots
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Array, Dims, Operator, Options, Quantization, Tensor
from onnx_tflite_plugin.targets.base import Target

if TYPE_CHECKING:
    from onnx_tflite_plugin.binding.bound import Bound
    from onnx_tflite_plugin.layout.order import Order
    from onnx_tflite_plugin.lowering.scope import Scope
    from onnx_tflite_plugin.lowering.state import State


class Context:
    """One operator, its planned orders, and the means to emit. Slots: inputs 0, 1, ...; output ``k`` is ``out(k)``."""

    def __init__(self, scope: Scope, bound: Bound) -> None:
        self.op: Operator = bound.op
        self.options: Options = bound.op.options
        self.bound = bound
        self.scope = scope
        self.ops = Ops(self._emitted)
        self.arithmetic: Arithmetic = scope.storage.arithmetic[bound]

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
        """Where a TFLite axis of the slot (negative counts from the end) lies in the planned order."""
        return self.perm(slot).index(axis % max(self.op[slot].rank, 1))

    def perm(self, slot: int = 0) -> tuple[int, ...]:
        """Physical axis → TFLite axis."""
        return axes(self.order(slot))

    def by_axis(self, held: Sequence[Any], slot: int = 0) -> list[Any]:
        """What holds one entry per TFLite axis of the slot, in planned order."""
        return [held[axis] for axis in self.perm(slot)]

    # --- operands -----------------------------------------------------------------------------

    @cached_property
    def inputs(self) -> tuple[Held | None, ...]:
        """The operands as the handler gets them, ``None`` where absent."""
        return tuple(self._input(slot) for slot in range(len(self.op.inputs)))

    def constant(self, slot: int) -> Array | None:
        """A constant operand in planned order, axis numbers and what is indexed by axis remapped; else ``None``."""
        held = self.op.constant(slot)
        if held is None:
            return None
        if slot in self.bound.declared.holds_axes:
            return np.asarray([self.axis(int(a), self._data_slot) for a in held.reshape(-1)], np.int64).reshape(
                held.shape
            )
        of = self._indexed.get(slot)
        if of is not None:
            return np.take(held, self.perm(of), axis=0) if held.ndim else held
        from onnx_tflite_plugin.lowering.values import arranged

        return arranged(held, self.order(slot))

    def required(self, slot: int) -> Array:
        """A constant operand as :meth:`constant` has it. Raises Refused where it is none."""
        constant = self.constant(slot)
        if constant is None:
            tensor = self.op.tensor(slot)
            named = "is absent" if tensor is None else f"({tensor.name!r}) must be a constant"
            raise Refused(f"its operand {slot} {named}")
        return constant

    def constant_value(self, array: Array) -> ir.Value:
        """A constant as a value."""
        return self.scope.emitter.constant(np.asarray(array))

    def known(self, value: Value) -> Array | None:
        """The value of a constant; ``None`` for what is computed, and for inputs."""
        constant = own_value(value).const_value
        return None if constant is None else np.asarray(constant.numpy())

    @cached_property
    def _indexed(self) -> dict[int, int]:
        return dict(self.bound.declared.indexed_by_axis)

    @cached_property
    def _data_slot(self) -> int:
        """The slot whose axes are meant where axis numbers are held: the first data input."""
        apart = {*self.bound.declared.holds_axes, *self._indexed}
        for slot in range(len(self.op.inputs)):
            if slot not in apart and self.op.tensor(slot) is not None:
                return slot
        raise LookupError("holds_axes and indexed_by_axis leave no operand whose axes could be meant")

    def _input(self, slot: int) -> Held | None:
        tensor = self.op.tensor(slot)
        if tensor is None:
            return None
        resource = self.scope.values.resource(tensor)
        if resource is not None:
            return resource
        if slot in self.bound.declared.holds_axes or slot in self._indexed:
            return self._remapped(slot, tensor)
        if slot in self._biases and tensor.dtype in ("int32", "int64"):
            return self._bias(slot, tensor)
        if slot in self._stored:
            return self.scope.values.get(tensor, self.order(slot), FILE)
        form = self.arithmetic.form if slot in self._data_slots else STORED
        dims = self.bound.declared.reshapes.get(slot)
        return self.aligned(self.fetch(slot, form), slot) if dims is None else self._reshaped_input(slot, form, dims)

    def _reshaped_input(self, slot: int, form: Form, dims: Dims) -> ir.Value:
        """An operand in another shape, reshaped before it is dequantized."""
        integers = form is FLOAT and affine(self.op[slot]) is not None and self.target.moves_integers
        value = self.scope.values.get(self.op[slot], self.order(slot), STORED if integers else form)
        value = self.node("Reshape", value, [-1 if size is None else size for size in dims])
        return own_value(self.dequantize(value, slot)) if integers else value

    @cached_property
    def _data_slots(self) -> frozenset[int]:
        return frozenset(data_slots(self.bound))

    def fetch(self, slot: int, form: Form) -> ir.Value:
        """The operand in its planned order and a form."""
        tensor = self.op[slot]
        if form is STORED and affine(tensor) is not None:
            return self._alike(tensor, slot)
        return self.scope.values.get(tensor, self.order(slot), form, weights=self._weights(tensor))

    def _weights(self, tensor: Tensor) -> Weights:
        return self.scope.storage.weights(self.bound, tensor) if tensor.constant else Weights.DEQUANTIZED

    def _alike(self, tensor: Tensor, slot: int) -> ir.Value:
        """Stored integers, in the storage that the operator's quantized output has (all its operands are kept alike)."""
        values, storage = self.scope.values, self.scope.storage
        made = next((t for t in self.op.outputs if affine(t) is not None), None)
        if (
            made is None
            or storage.storage(made).shift == storage.storage(tensor).shift
            or self.arithmetic.form is not STORED
        ):
            return values.get(tensor, self.order(slot), STORED)
        own, other = storage.storage(tensor), storage.storage(made)
        assert own.quantization is not None
        moved = tuple(z + other.shift - own.shift for z in own.quantization.zero_point)
        wanted = Storage(other.dtype, other.shift, Quantization(own.quantization.scale, moved, own.quantization.axis))
        order = self.order(slot)
        return values.quantize(values.get(tensor, order, FLOAT), wanted, order)

    def aligned(self, value: ir.Value, slot: int) -> ir.Value:
        """Insert axes of size 1 so that a lower rank broadcasts in the planned order."""
        free = self.scope.layout.freedoms[self.bound]
        frame = free.frame
        if not free.aligned or frame is None or slot not in frame.slots:
            return value
        held = {letter for group in frame.slots[slot].groups for letter in group}
        letters = list(dict.fromkeys(part.letter for part in self.scope.layout.frames[self.bound]))
        start = next((i for i, letter in enumerate(letters) if letter in held), len(letters))
        missing = [i - start for i, letter in enumerate(letters) if i > start and letter not in held]
        if not missing:
            return value
        if value.const_value is not None:
            return self.scope.emitter.constant(np.expand_dims(value.const_value.numpy(), tuple(missing)))
        rank = len(letters) - start
        return self.node("Unsqueeze", value, [axis for axis in range(rank) if axis in missing])

    def _remapped(self, slot: int, tensor: Tensor) -> ir.Value:
        """Axis numbers, or rows per axis, in planned order; at run time by a Gather."""
        constant = self.constant(slot)
        if constant is not None:
            return self.scope.emitter.constant(constant, f"{self.scope.values.name(tensor)}")
        value = self.scope.values.get(tensor)
        if slot in self._indexed:
            perm = self.perm(self._indexed[slot])
            return value if perm == tuple(range(len(perm))) else self.node("Gather", value, list(perm), axis=0)
        perm = self.perm(self._data_slot)
        if perm == tuple(range(len(perm))):
            return value
        return self.node("Gather", np.argsort(perm).astype(np.int64), value, axis=0)

    # --- quantization -------------------------------------------------------------------------

    @cached_property
    def _biases(self) -> dict[int, tuple[int, int]]:
        behaviour = self.bound.declared.quantization
        return (
            dict(behaviour.bias) if isinstance(behaviour, Dequantized) and self.arithmetic is Arithmetic.FLOAT else {}
        )

    @cached_property
    def _stored(self) -> tuple[int, ...]:
        behaviour = self.bound.declared.quantization
        return behaviour.stored if isinstance(behaviour, Dequantized) else ()

    def _bias(self, slot: int, tensor: Tensor) -> ir.Value:
        """An int32 bias has scale input x weight per channel; what the file says of it is not used (the kernels do not)."""
        first, second = (affine(self.op[of]) for of in self._biases[slot])
        if first is None or second is None:
            raise Refused(f"its bias is {tensor.dtype}, but its input or weight is not quantized")
        scale = [first.scale[0] * s for s in second.scale]
        values = self.scope.values
        real_weights = self._weights(self.op[self._biases[slot][1]]) is not Weights.DEQUANTIZED
        if tensor.constant and (tensor.dtype == "int64" or real_weights or self.target.float_biases):
            real = tensor.array.astype(np.float64) * np.asarray(scale)
            return self.scope.emitter.constant(real.astype(np.float32), values.name(tensor))
        if tensor.dtype == "int64" or self.target.float_biases:
            real = self.node("Cast", values.get(tensor), to="float32")
            return self.node("Mul", real, np.asarray(scale, np.float32))
        storage = Storage("int32", 0, Quantization(tuple(scale), (0,) * len(scale), 0))
        return values.dequantize(values.get(tensor), storage, source_order(tensor.dims))

    @property
    def folds(self) -> bool:
        """Whether constants of narrow dtypes are to be real numbers in the file."""
        return self.scope.storage.fold

    @property
    def quantized(self) -> bool:
        """Whether any data operand is quantized."""
        return any(affine(self.op.tensor(slot)) is not None for slot in data_slots(self.bound))

    @property
    def integers(self) -> bool:
        """Whether quantized operands are delivered, and expected back, as stored integers."""
        return self.quantized and self.arithmetic is not Arithmetic.FLOAT

    def quantization(self, slot: int) -> Quantization | None:
        """The slot's parameters as its integers are delivered; ``None`` where it is not quantized."""
        tensor = self.op.tensor(slot)
        if affine(tensor) is None or tensor is None:
            return None
        return affine(tensor) if self.arithmetic is Arithmetic.FILE else self.scope.storage.storage(tensor).quantization

    def dtype(self, slot: int) -> str:
        """The dtype of the slot's integers as delivered and returned."""
        tensor = self.op[slot]
        return tensor.dtype if self.arithmetic is Arithmetic.FILE else self.scope.storage.storage(tensor).dtype

    @property
    def shifts(self) -> tuple[int, int]:
        """What the storage adds to the file's integers of input 0 and of output 0."""
        if self.arithmetic is Arithmetic.FILE:
            return 0, 0
        storage = self.scope.storage
        return storage.storage(self.op[0]).shift, storage.storage(self.op[~0]).shift

    def raw(self, slot: int) -> ir.Value:
        """The operand's stored integers where it is quantized, the operand itself where it is not.

        Real numbers for a target that runs nothing on integers; ``dequantize`` and ``quantize`` then leave them alone.
        """
        form = STORED if self.target.moves_integers else self.arithmetic.form
        return self.scope.values.get(self.op[slot], self.order(slot), form)

    def quantize(self, value: Value, like: int) -> Value:
        """Real numbers to the integers of a slot; the value itself where the slot is not quantized."""
        tensor = self.op[like]
        if affine(tensor) is None or not self.target.moves_integers:
            return value
        return self.scope.values.quantize(own_value(value), self.scope.storage.storage(tensor), self.order(like))

    def dequantize(self, value: Value, like: int) -> Value:
        """Integers of a slot to real numbers; the value itself where the slot is not quantized."""
        tensor = self.op[like]
        if affine(tensor) is None or not self.target.moves_integers:
            return value
        return self.scope.values.dequantize(own_value(value), self.scope.storage.storage(tensor), self.order(like))

    def scalar(self, number: float, slot: int = 0) -> Array:
        """A number in the dtype the slot is delivered in."""
        tensor = self.op[slot]
        if affine(tensor) is not None and self.arithmetic is Arithmetic.FLOAT:
            return np.asarray(number, np.float32)
        dtype = self.dtype(slot)
        if dtype == "bfloat16":
            import ml_dtypes

            return np.asarray(number).astype(ml_dtypes.bfloat16)
        return np.asarray(number, dtype) if dtype not in ("int4", "uint4", "int2") else integers(int(number), dtype)

    def looked_up(self, table: Array, indices: Value, dims: Dims | None) -> ir.Value:
        """The table's entry for each index."""
        return picked(self.scope.emitter, table, own_value(indices), dims)

    # --- results ------------------------------------------------------------------------------

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
            operand = next((k for k, held in enumerate(self.inputs) if held is value), None)
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

    def inline(self, subgraph: int, inputs: Sequence[Value | None]) -> list[Value]:
        """Lower another TFLite subgraph in place, on these inputs in source order and the file's dtypes."""
        given = [x if x is None or isinstance(x, Resource) else own_value(x) for x in inputs]
        return cast("list[Value]", self.scope.inline(subgraph, given, self.bound))

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

    def subgraph_operators(self, subgraph: int) -> tuple[Operator, ...]:
        """A subgraph's operators as the file has them. Raises LookupError where there is no such subgraph."""
        return self.scope.model.source.subgraphs[subgraph].operators

    def subgraph_inputs(self, subgraph: int) -> tuple[Tensor, ...]:
        return self.scope.model.graphs[subgraph].inputs

    def subgraph_outputs(self, subgraph: int) -> tuple[Tensor, ...]:
        return self.scope.model.graphs[subgraph].outputs

    def make_resource(self, key: str) -> Resource:
        return Resource(key)

    def resource(self, slot: int) -> Resource:
        """The token a resource operand stands for. Raises Refused where it is only known at run time."""
        held = self.inputs[slot]
        if not isinstance(held, Resource):
            raise Refused(f"its resource operand {slot} is not known at conversion time")
        return held

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
