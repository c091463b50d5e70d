"""Context of a lowering: the operator, its layouts, and methods that emit ONNX.

Slots are numbered as described in ``declarations``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from onnx_tflite_plugin.api.ops import Ops
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.api.values import Graph, Value
from onnx_tflite_plugin.source.model import Array, Dims, Operator, Options, Quantization, Subgraph, Tensor


class State(Protocol):
    """A state that the model keeps between runs.

    ``initial``: the value before the first run, or None if the file does not define it. A state that is never read is
    not a graph input.
    """

    initial: Array | None

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def dims(self) -> Dims: ...
    @property
    def has_value(self) -> bool:
        """True if the state has been assigned a value."""

    def declare(self, dtype: str, dims: Dims) -> None:
        """Declare dtype and shape, in the planned layout of the state.

        Raises Refusal if an earlier declaration differs.
        """

    def get(self) -> Value:
        """Return the current value, in the planned layout of the state."""

    def set(self, value: Value) -> None:
        """Set the value for later operators and for the next run.

        During ``ctx.initialize``, set the initial value.
        """


class Resource(Protocol):
    """Handle that stands for a TFLite resource tensor during the conversion."""

    @property
    def key(self) -> str: ...


class Context(Protocol):
    """Context of one operator during its lowering."""

    @property
    def op(self) -> Operator:
        """Return the operator as stored in the file.

        ``op[k]`` is input ``k``, and ``op[out(0)]`` is output 0, as tensors.
        """

    @property
    def options(self) -> Options: ...
    @property
    def opset(self) -> int: ...
    @property
    def target(self) -> Target: ...
    @property
    def ops(self) -> Ops:
        """Return ONNX operators as methods: ``ctx.ops.Conv(x, w, strides=[2, 2])``.

        See :class:`Ops`.
        """

    # shapes and layouts
    def shape(self, slot: int) -> Dims:
        """Return the slot's shape in its planned layout, which may omit axes of size 1."""

    def axis(self, axis: int, slot: int = 0) -> int:
        """Return the position of a TFLite axis in the slot's planned layout.

        ``axis`` may be negative.
        """

    def perm(self, slot: int = 0) -> tuple[int, ...]:
        """Return the TFLite axis at each position of the slot's planned layout."""

    def permute_entries(self, entries: Sequence[Any], slot: int = 0) -> list[Any]:
        """Return ``entries``, one per TFLite axis, in the order of the planned layout."""

    # operands
    def constant(self, slot: int) -> Array | None:
        """Return an operand in its planned layout if it is constant, otherwise None.

        Axis numbers, and operands with one entry per axis, are remapped to the planned layout.
        """

    def require_constant(self, slot: int) -> Array:
        """Return a constant operand, as ``constant`` does.

        Raises Refusal if the operand is a runtime value or absent.
        """

    def reinterpret_constant(self, slot: int, dtype: str, quantization: Quantization) -> Value:
        """Return a constant as floats, if the kernel reads its bytes as another dtype.

        ``dtype``: a dtype of equal size, such as int8 for uint8. ``quantization``: the parameters that the kernel uses; an
        axis of them is an axis in the TFLite file. The model stores the constant like other weights of this dtype.
        """

    def constant_value(self, array: Array) -> Value:
        """Return an array as a constant value, which the lowering may return as a result."""

    def constant_array(self, value: Value) -> Array | None:
        """Return the array if the value is constant at conversion, otherwise None."""

    def scalar(self, number: float, slot: int = 0) -> Array:
        """Return a number as an array, in the dtype in which the lowering gets the slot."""

    # quantization
    @property
    def folds_weights(self) -> bool:
        """True with ``--weights fold``: quantized and float16 weights become float32."""

    @property
    def is_quantized(self) -> bool:
        """True if any data operand is quantized."""

    @property
    def uses_integers(self) -> bool:
        """True if the lowering gets quantized values and must return quantized values."""

    def quantization(self, slot: int) -> Quantization | None:
        """Return the quantization parameters of the slot's values; None if not quantized.

        The parameters apply to the quantized values as the ONNX model stores them.
        """

    def dtype(self, slot: int) -> str:
        """Return the dtype in which the ONNX model stores the slot's quantized values."""

    def quantized_values(self, slot: int) -> Value:
        """Return the quantized values of an operand.

        If the target has no integer kernels, return its float values, which ``dequantize`` returns unchanged. An
        operand that is not quantized is returned unchanged.
        """

    def quantize(self, value: Value, like: int) -> Value:
        """Quantize floats with the parameters of slot ``like``.

        Return the floats unchanged if the slot is not quantized.
        """

    def dequantize(self, value: Value, like: int) -> Value:
        """Dequantize values with the parameters of slot ``like``.

        Return the values unchanged if the slot is not quantized.
        """

    def look_up(self, table: Array, indices: Value, dims: Dims | None) -> Value:
        """Return the table entry for each index; negative indices count from the end.

        ``dims``: the shape of the indices in planned layout; ``None`` if unknown.
        """

    # texts
    def warn(self, text: str) -> None:
        """Warn the user about the operator and continue the conversion."""

    def explain(self, text: str) -> None:
        """Add an explanation to the operator's nodes, which a readable graph shows.

        Call this method before the first node is emitted.
        """

    # results
    def activate(self, value: Value) -> Value:
        """Apply the operator's fused activation to floats, and return the result.

        Only lowerings that declare ``FusedActivation(..., in_lowering=True)`` call this method.
        """

    def is_used(self, k: int) -> bool:
        """True if output ``k`` is used; only an unused output may be returned as None."""

    def reshape_to_slot(self, value: Value, slot: int) -> Value:
        """Return the value reshaped to the slot's planned shape."""

    # subgraphs and states
    def inline(
        self, subgraph: int, inputs: Sequence[Value | None], results: Sequence[Tensor] | None = None
    ) -> list[Value]:
        """Emit the nodes of another subgraph here, and return the values of its outputs.

        ``inputs``: values or resources for the subgraph's inputs. ``results``: tensors of the subgraph whose values are
        returned in place of its outputs; operators that none of these tensors needs are skipped. All values are in planned
        layout and in the dtypes of the file.
        """

    def graph(self, body: Callable[..., Sequence[Value]], inputs: Sequence[tuple[str, str, Dims | None]] = ()) -> Graph:
        """Return an inner graph for If, Loop or Scan.

        ``inputs``: (name, dtype, shape) of each graph input. ``body`` gets the inputs as values, emits the nodes and
        returns the outputs. ``body`` may use values of the outer graph.
        """

    def subgraph(self, index: int) -> Subgraph:
        """Return a subgraph as stored in the file, for handlers that read its operators."""

    def initialize(self, subgraph: int) -> None:
        """Run a subgraph at conversion time, to set the initial values of states."""

    def make_resource(self, key: str) -> Resource:
        """Return the handle of the resource with this state key."""

    def resource(self, slot: int) -> Resource:
        """Return the handle of a resource operand."""

    def state(self, resource: Resource) -> State:
        """Return the state of a resource."""

    def assign(self, slot: int, value: Value) -> None:
        """Set the value of a variable tensor operand, for later reads and the next run.

        ``value`` must have the layout and dtype in which the lowering gets the slot.
        """

    def states(self, *subgraphs: int) -> Sequence[State]:
        """Return the states that subgraphs may access, to be carried through control flow."""
