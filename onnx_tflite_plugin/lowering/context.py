"""The context of one operator, which a handler gets as ``ctx``.

It implements ``onnx_tflite_plugin.api.context.Context``. Input slots are 0, 1, ...; output ``k`` is ``out(k)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.behavior import Arithmetic
from onnx_tflite_plugin.api.ops import Ops
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.api.roles import ROLE, NamedArray
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.binding.bound import Bound, label
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.layout.tensor_layout import TensorLayout, physical_shape
from onnx_tflite_plugin.lowering.activation import apply_activation
from onnx_tflite_plugin.lowering.arrays import integer_array
from onnx_tflite_plugin.lowering.emitter import Operand
from onnx_tflite_plugin.lowering.ir_values import require_value
from onnx_tflite_plugin.lowering.lookup import gather_entries
from onnx_tflite_plugin.lowering.operands import Operands
from onnx_tflite_plugin.lowering.schemas import is_operator
from onnx_tflite_plugin.lowering.scope import Scope
from onnx_tflite_plugin.lowering.state import State
from onnx_tflite_plugin.lowering.values import FILE, STORED, Resource, ValueOrResource
from onnx_tflite_plugin.quantization.storage import Storage, data_slots, encoding_of
from onnx_tflite_plugin.renamed import CONTEXT, renamed_attributes
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Array, Dims, Operator, Options, Quantization, Subgraph, Tensor


class Context:
    """One operator while it is lowered.

    Handlers may use the attributes of the protocol. All others are for the host.
    """

    def __init__(self, scope: Scope, bound: Bound) -> None:
        self.op: Operator = bound.op
        self.options: Options = bound.op.options
        self.bound = bound
        self.scope = scope
        self.operands = Operands(scope, bound)
        self.ops = Ops(self._emit)

    @property
    def opset(self) -> int:
        return self.scope.emitter.opset

    @property
    def target(self) -> Target:
        return self.scope.target

    # --- nodes --------------------------------------------------------------------------------

    def node(self, op_type: str, *inputs: Operand, **attributes: Any) -> ir.Value:
        """Emit an ONNX operator with one output and return the output."""
        return self.scope.emitter.emit(op_type, inputs, attributes)[0]

    def _emit(
        self, op_type: str, inputs: Sequence[Operand], attributes: Mapping[str, Any], outputs: int | None, domain: str
    ) -> Sequence[ir.Value]:
        """Emit a node for ``ctx.ops``.

        Raises TypeError for an input that belongs to another conversion.
        """
        for value in inputs:
            if isinstance(value, ir.Value) and not self.scope.emitter.is_registered(value):
                raise TypeError(f"{op_type}: operand {value.name!r} belongs to another conversion, not to this model")
        return self.scope.emitter.emit(op_type, inputs, attributes, outputs, domain)

    # --- shapes and axes ----------------------------------------------------------------------

    def layout(self, slot: int) -> TensorLayout:
        """Return the planned layout of the slot."""
        return self.operands.layout(slot)

    def shape(self, slot: int) -> Dims:
        """Return the slot's shape in the planned axis order; None for a dynamic dimension."""
        return physical_shape(self.layout(slot))

    def axis(self, axis: int, slot: int = 0) -> int:
        """Return the position of a TFLite axis in the slot's planned order.

        A negative axis counts from the end. Raises Refusal for an axis that the slot does not have.
        """
        return self.operands.axis(axis, slot)

    def perm(self, slot: int = 0) -> tuple[int, ...]:
        """Return the TFLite axis of each axis in the planned order."""
        return self.operands.perm(slot)

    def permute_entries(self, entries: Sequence[Any], slot: int = 0) -> list[Any]:
        """Return ``entries``, one per TFLite axis, in the planned order of the slot."""
        return [entries[axis] for axis in self.perm(slot)]

    # --- operands -----------------------------------------------------------------------------

    @cached_property
    def inputs(self) -> tuple[ValueOrResource | None, ...]:
        """Return the operands as the handler gets them; None for an absent operand."""
        return tuple(self.operands.deliver(slot) for slot in range(len(self.op.inputs)))

    def constant(self, slot: int) -> Array | None:
        """Return a constant operand in planned order; None if it is not constant.

        Axis numbers and per-axis entries are remapped.
        """
        return self.operands.constant(slot)

    def require_constant(self, slot: int) -> Array:
        """Return a constant operand as :meth:`constant` does.

        Raises Refusal if it is absent or not constant.
        """
        constant = self.constant(slot)
        if constant is None:
            tensor = self.op.tensor(slot)
            problem = "is absent" if tensor is None else f"({tensor.name!r}) must be a constant"
            raise Refusal(f"operand {slot} {problem}")
        return constant

    def reinterpret_constant(self, slot: int, dtype: str, quantization: Quantization) -> ir.Value:
        """Return a constant as floats, with its bytes read as ``dtype``."""
        return self.operands.reinterpret_constant(slot, dtype, quantization)

    def constant_value(self, array: Array) -> ir.Value:
        """Return a constant as a value."""
        value = self.scope.emitter.constant(np.asarray(array))
        if isinstance(array, NamedArray) and ROLE not in value.meta:
            value.meta[ROLE] = array.role
        return value

    def constant_array(self, value: Value) -> Array | None:
        """Return the array of a constant value.

        Return None for computed values and for graph inputs.
        """
        constant = require_value(value).const_value
        return None if constant is None else np.asarray(constant.numpy())

    def scalar(self, number: float, slot: int = 0) -> Array:
        """Return a number in the dtype in which the handler gets the slot."""
        tensor = self.op[slot]
        if affine(tensor) is not None and self.operands.arithmetic is Arithmetic.FLOAT:
            return np.asarray(number, np.float32)
        dtype = self.dtype(slot)
        return (
            np.asarray(number, dtype) if dtype not in ("int4", "uint4", "int2") else integer_array(int(number), dtype)
        )

    def look_up(self, table: Array, indices: Value, dims: Dims | None) -> ir.Value:
        """Return the table's entry for each index."""
        return gather_entries(self.scope.emitter, table, require_value(indices), dims)

    # --- quantization -------------------------------------------------------------------------

    @cached_property
    def _data_slots(self) -> frozenset[int]:
        return frozenset(data_slots(self.bound))

    @property
    def is_quantized(self) -> bool:
        """True if any data operand is quantized."""
        return any(affine(self.op.tensor(slot)) is not None for slot in self._data_slots)

    @property
    def uses_integers(self) -> bool:
        """True if the handler gets and returns quantized values, rather than floats."""
        return self.is_quantized and self.operands.arithmetic is not Arithmetic.FLOAT

    @property
    def folds_weights(self) -> bool:
        """True if quantized and float16 constants are to be float32 in the ONNX file."""
        return self.scope.storage.fold

    def storage(self, slot: int) -> Storage:
        """Return the storage of the slot's quantized values in the handler."""
        return self.operands.storage(slot)

    def quantization(self, slot: int) -> Quantization | None:
        """Return the parameters of the slot's values; None if not quantized."""
        return None if affine(self.op.tensor(slot)) is None else self.storage(slot).quantization

    def dtype(self, slot: int) -> str:
        """Return the dtype of the slot's quantized values in the handler."""
        return self.storage(slot).dtype

    def quantized_values(self, slot: int) -> ir.Value:
        """Return an operand's quantized values; an unquantized operand unchanged.

        On a target without integer kernels the result is float, which ``dequantize`` and ``quantize`` return unchanged.
        """
        encoding = STORED if self.target.moves_integers else encoding_of(self.operands.arithmetic)
        return self.operands.fetch(slot, encoding)

    def quantize(self, value: Value, like: int) -> Value:
        """Return floats quantized like slot ``like``; unchanged if it is unquantized."""
        if affine(self.op[like]) is None or not self.target.moves_integers:
            return value
        return self.scope.conversions.quantize(require_value(value), self.storage(like), self.layout(like))

    def dequantize(self, value: Value, like: int) -> Value:
        """Return values dequantized like slot ``like``; unchanged if it is unquantized."""
        if affine(self.op[like]) is None or not self.target.moves_integers:
            return value
        return self.scope.conversions.dequantize(require_value(value), self.storage(like), self.layout(like))

    # --- results ------------------------------------------------------------------------------

    def activate(self, value: Value) -> ir.Value:
        """Return floats with the operator's fused activation applied.

        Raises TypeError if the handler does not declare ``FusedActivation(..., in_lowering=True)``.
        """
        if not self.bound.declared.activation_in_lowering:
            raise TypeError(
                "ctx.activate needs activation=FusedActivation(..., in_lowering=True); without it, the host applies the activation"
            )
        return apply_activation(self.scope, require_value(value), self.bound.declared.activation)

    def warn(self, text: str) -> None:
        """Add a warning about the operator to the report; the conversion goes on."""
        self.scope.emitter.warnings.append(f"{label(self.op)}: {text}")

    def explain(self, text: str) -> None:
        """Explain the nodes of the operator to readers of a readable graph."""
        self.scope.emitter.note = text

    def is_used(self, k: int) -> bool:
        """True if anything uses output ``k``; only an unused output may be None."""
        tensor = self.op.tensor(~k)
        return tensor is not None and tensor in self.scope.used_tensors

    def reshape_to_slot(self, value: Value, slot: int) -> ir.Value:
        """Return the value reshaped to the slot's planned shape."""
        value, slot_shape = require_value(value), self._sizes(slot)
        if value.shape is not None and tuple(value.shape) == slot_shape and None not in slot_shape:
            return value
        if sum(d is None for d in slot_shape) > 1:
            operand_slot = next((k for k, operand in enumerate(self.inputs) if operand is value), None)
            known_sizes = tuple(d if isinstance(d, int) else None for d in value.shape or ())
            with suppress(ValueError):
                value_shape = known_sizes if operand_slot is None else self._sizes(operand_slot)
                return self.scope.conversions.reshape(value, value_shape, slot_shape)
            raise Refusal(
                f"the result shape {slot_shape} has more than one dynamic dimension; give input shapes with --input-shape"
            )
        allowzero = 1 if 0 in slot_shape and self.opset >= 14 else None
        return self.node("Reshape", value, [-1 if d is None else d for d in slot_shape], allowzero=allowzero)

    def _sizes(self, slot: int) -> Dims:
        """Return the shape of the slot's value; complex numbers have a last axis of 2."""
        return self.shape(slot) + ((2,) if self.op[slot].dtype.startswith("complex") else ())

    # --- subgraphs ----------------------------------------------------------------------------

    def inline(
        self, subgraph: int, inputs: Sequence[Value | None], results: Sequence[Tensor] | None = None
    ) -> list[Value]:
        """Lower another TFLite subgraph in place.

        ``inputs``: in planned order and the file's dtypes.
        """
        values = [value if value is None or isinstance(value, Resource) else require_value(value) for value in inputs]
        return cast("list[Value]", self.scope.inline(subgraph, values, self.bound, results))

    def initialize(self, subgraph: int) -> None:
        """Run a subgraph at conversion to set the initial values of states."""
        with self.scope.states.initializing_states():
            self.inline(subgraph, [])

    def graph(
        self, body: Callable[..., Sequence[Value]], inputs: Sequence[tuple[str, str, Dims | None]] = ()
    ) -> ir.Graph:
        """Build an inner ONNX graph for If and Loop.

        ``inputs``: (name, dtype, shape or None) of each graph input. ``body``: function that gets the inputs as values
        and returns the outputs. The graph may use values of the outer graph.
        """
        return self.scope.graph(body, inputs)

    def subgraph(self, index: int) -> Subgraph:
        """Return a subgraph of the file; in a dequantized model, its tensors are float.

        Raises LookupError for an index that does not exist.
        """
        return self.scope.model.graphs[index].subgraph

    # --- states -------------------------------------------------------------------------------

    def make_resource(self, key: str) -> Resource:
        """Return the token of the resource with this key."""
        return Resource(key)

    def resource(self, slot: int) -> Resource:
        """Return the token of a resource operand.

        Raises Refusal if the operand is a runtime value.
        """
        resource = self.inputs[slot]
        if not isinstance(resource, Resource):
            raise Refusal(f"resource operand {slot} is a runtime value; a constant is required")
        return resource

    def assign(self, slot: int, value: Value) -> None:
        """Set the next value of a variable tensor operand.

        ``value``: in the layout and dtype in which the handler gets the slot.
        """
        encoding = (
            FILE if slot in self.bound.declared.quantization.file_slots else encoding_of(self.operands.arithmetic)
        )
        self.scope.assign(self.op[slot], require_value(value), self.layout(slot), encoding)

    def state(self, resource: Token) -> State:
        """Return the state of a resource.

        ``get()`` is its current value, ``set(value)`` sets the next one.
        """
        return self.scope.states.state(resource.key)

    def states(self, *subgraphs: int) -> list[State]:
        """Return the states that subgraphs may read or write, for If and Loop to carry."""
        return self.scope.states.states_of_subgraphs(self.scope.model, subgraphs)

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(CONTEXT, lambda _, name: _suggest_attribute(name))


def _suggest_attribute(name: str) -> str:
    """Return the remedy for an unknown attribute: an ONNX operator, or a similar name."""
    from onnx_tflite_plugin.api.context import Context as Protocol

    if is_operator(name):
        return f"; write ctx.ops.{name}(...)"
    return did_you_mean(name, (member for member in dir(Protocol) if not member.startswith("_")))


if TYPE_CHECKING:
    from onnx_tflite_plugin.api.context import Context as Protocol
    from onnx_tflite_plugin.api.context import Resource as Token

    def _implements_the_protocol(ctx: Context) -> Protocol:
        """Return ``ctx``, so that mypy checks this class against the protocol."""
        return ctx
