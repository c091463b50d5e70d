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

    ``initial``: the value before the first run, if known. A state that is never read is not a graph input.
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
        """Declare dtype and shape in planned layout; the first declaration wins."""

    def get(self) -> Value:
        """Return the current value, in the planned layout of the state."""

    def set(self, value: Value) -> None:
        """Set the next value; inside ``ctx.initialize``, the initial value."""


class Resource(Protocol):
    """A handle of a TFLite resource tensor, which exists only during the conversion."""

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
        """Return the position of a TFLite axis in the planned layout.

        ``axis`` may be negative.
        """

    def perm(self, slot: int = 0) -> tuple[int, ...]:
        """Return the permutation: the TFLite axis of each physical axis."""

    def permute_entries(self, entries: Sequence[Any], slot: int = 0) -> list[Any]:
        """Return one entry per TFLite axis, permuted to planned layout."""

    # operands
    def constant(self, slot: int) -> Array | None:
        """Return an operand in planned layout if it is constant, otherwise None.

        Axis numbers and entries per axis are remapped to the layout.
        """

    def require_constant(self, slot: int) -> Array:
        """Return an operand that must be constant, as ``constant`` does.

        Raises Refusal if it is a runtime value or absent.
        """

    def constant_value(self, array: Array) -> Value:
        """Return a constant as a value, to use as a result."""

    def constant_array(self, value: Value) -> Array | None:
        """Return the array of a value that is constant at conversion; otherwise None."""

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
        """True if operands are quantized values, and results must be quantized too."""

    def quantization(self, slot: int) -> Quantization | None:
        """Return the quantization parameters of the values that the lowering gets."""

    def dtype(self, slot: int) -> str:
        """Return the dtype of the slot's quantized values that the lowering gets."""

    def quantized_values(self, slot: int) -> Value:
        """Return the quantized values of an operand.

        If the target has no integer kernels, return its float values, which ``dequantize`` returns unchanged. An
        operand that is not quantized is returned unchanged.
        """

    def quantize(self, value: Value, like: int) -> Value:
        """Quantize floats like a slot; return them unchanged if it is not quantized."""

    def dequantize(self, value: Value, like: int) -> Value:
        """Dequantize values like a slot; return them unchanged if it is not quantized."""

    def look_up(self, table: Array, indices: Value, dims: Dims | None) -> Value:
        """Return the table entry for each index; negative indices count from the end.

        ``dims``: the shape of the indices in planned layout; ``None`` if unknown.
        """

    # texts
    def warn(self, text: str) -> None:
        """Warn the user about the operator and continue the conversion."""

    def explain(self, text: str) -> None:
        """Explain in a readable graph why the operator becomes these nodes.

        Call this method before the first node is emitted.
        """

    # results
    def activate(self, value: Value) -> Value:
        """Return floats with the operator's fused activation applied.

        For a lowering declared with ``FusedActivation(..., in_lowering=True)``.
        """

    def is_used(self, k: int) -> bool:
        """True if output ``k`` is used; only an unused output may be returned as None."""

    def reshape_to_slot(self, value: Value, slot: int) -> Value:
        """Return the value reshaped to the slot's planned shape."""

    # subgraphs and states
    def inline(
        self, subgraph: int, inputs: Sequence[Value | None], results: Sequence[Tensor] | None = None
    ) -> list[Value]:
        """Lower another subgraph here. Inputs and results are in planned layout.

        Resources are passed unchanged.
        ``results``: tensors of the subgraph to return instead of its outputs; operators that none of them needs are skipped.
        """

    def graph(self, body: Callable[..., Sequence[Value]], inputs: Sequence[tuple[str, str, Dims | None]] = ()) -> Graph:
        """Return an inner graph for If and Loop.

        ``inputs``: name, dtype and shape of the values that are passed to ``body``.
        """

    def subgraph(self, index: int) -> Subgraph:
        """Return a subgraph as stored in the file, for handlers that read its operators."""

    def initialize(self, subgraph: int) -> None:
        """Run a subgraph at conversion time, to set the initial values of states."""

    def make_resource(self, key: str) -> Resource: ...
    def resource(self, slot: int) -> Resource:
        """Return the handle of a resource operand."""

    def state(self, resource: Resource) -> State: ...
    def assign(self, slot: int, value: Value) -> None:
        """Set the next value of a variable tensor operand.

        ``value``: in the layout and dtype in which the handler receives the slot.
        """

    def states(self, *subgraphs: int) -> Sequence[State]:
        """Return the states that subgraphs may access, to be carried through control flow."""
