"""What a handler is given: the operator, its planned orders, and the means to emit. Slots as in ``declarations``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from onnx_tflite_plugin.api.ops import Ops
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.api.values import Graph, Value
from onnx_tflite_plugin.source.model import Array, Dims, Operator, Options, Quantization, Subgraph, Tensor


class State(Protocol):
    """Something the model remembers between runs.

    ``initial``: its value before the first run, where one is known. A state that is never got is no input of the graph.
    """

    initial: Array | None

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def dims(self) -> Dims: ...
    @property
    def known(self) -> bool:
        """Whether anything has given it a value yet."""

    def declare(self, dtype: str, dims: Dims) -> None:
        """Say what it holds, in planned order; the first to do so decides."""

    def get(self) -> Value:
        """The current value, in the order the plan keeps the state in."""

    def set(self, value: Value) -> None:
        """The next value; the initial one inside ``ctx.initialize``."""


class Resource(Protocol):
    """A compile-time token in place of a TFLite resource tensor."""

    @property
    def key(self) -> str: ...


class Context(Protocol):
    """One operator being lowered."""

    @property
    def op(self) -> Operator:
        """The operator as the file has it: ``op[k]`` is a tensor, ``op[out(0)]`` an output."""

    @property
    def options(self) -> Options: ...
    @property
    def opset(self) -> int: ...
    @property
    def target(self) -> Target: ...
    @property
    def ops(self) -> Ops:
        """ONNX operators as methods: ``ctx.ops.Conv(x, w, b, strides=[2, 2])``; see :class:`Ops`."""

    # shapes and orders
    def shape(self, slot: int) -> Dims:
        """The slot's shape in its planned order, which may leave out axes of size 1."""

    def axis(self, axis: int, slot: int = 0) -> int:
        """Where a TFLite axis (negative: from the end) lies in the planned order."""

    def perm(self, slot: int = 0) -> tuple[int, ...]:
        """Physical axis → TFLite axis."""

    def by_axis(self, entries: Sequence[Any], slot: int = 0) -> list[Any]:
        """One entry per TFLite axis, in planned order."""

    # operands
    def constant(self, slot: int) -> Array | None:
        """A constant operand in planned order, with axis numbers and per-axis rows remapped; else None."""

    def required(self, slot: int) -> Array:
        """As ``constant``, of an operand that must be one. Raises Refused where it is known at run time only, or absent."""

    def constant_value(self, array: Array) -> Value:
        """A constant as a value, to return as a result."""

    def known(self, value: Value) -> Array | None:
        """What a value is, where that is known at conversion time: it is a constant."""

    def scalar(self, number: float, slot: int = 0) -> Array:
        """A number in the dtype the slot is delivered in."""

    # quantization
    @property
    def folds(self) -> bool:
        """Whether quantized and float16 constants are to be float32 in the file (``--weights fold``)."""

    @property
    def quantized(self) -> bool:
        """Whether any data operand is quantized."""

    @property
    def integers(self) -> bool:
        """Whether quantized operands are delivered, and expected back, as stored integers."""

    def quantization(self, slot: int) -> Quantization | None:
        """Parameters of the slot's integers as they are delivered."""

    def dtype(self, slot: int) -> str:
        """Dtype of the slot's integers as they are delivered."""

    def raw(self, slot: int) -> Value:
        """The stored integers of a quantized operand, or its floats where the target runs nothing on integers.

        ``dequantize`` then leaves them alone. Any other operand itself.
        """

    def quantize(self, value: Value, like: int) -> Value:
        """Floats to a slot's integers; the value itself where the slot is not quantized."""

    def dequantize(self, value: Value, like: int) -> Value:
        """A slot's integers to floats; the value itself where the slot is not quantized."""

    def looked_up(self, table: Array, indices: Value, dims: Dims | None) -> Value:
        """The table's entry for each index; negative ones count from its end.

        ``dims``: the shape of the indices in the planned order; ``None`` where it is not known.
        """

    # what is told
    def warn(self, text: str) -> None:
        """Tell whoever converts what they must know of the operator; the conversion goes on."""

    # results
    def activate(self, value: Value) -> Value:
        """Return floats with the operator's fused activation applied, for a lowering that declares to do so ``inside``."""

    def wanted(self, k: int) -> bool:
        """Whether anything uses output ``k``; return None for it only where nothing does."""

    def reshaped(self, value: Value, slot: int) -> Value:
        """The same elements in the slot's planned shape."""

    # subgraphs and state
    def inline(
        self, subgraph: int, inputs: Sequence[Value | None], results: Sequence[Tensor] | None = None
    ) -> list[Value]:
        """Lower another subgraph here, on inputs in planned order; its results likewise. A resource passes as it is.

        ``results``: tensors of the subgraph that are wanted in place of its outputs; what none of them needs is left out.
        """

    def graph(self, body: Callable[..., Sequence[Value]], inputs: Sequence[tuple[str, str, Dims | None]] = ()) -> Graph:
        """An inner graph for If and Loop; ``inputs`` are (name, dtype, shape), ``body`` gets them as values."""

    def subgraph(self, index: int) -> Subgraph:
        """A subgraph as the file has it, for operators that a handler knows by what they are."""

    def initialize(self, subgraph: int) -> None:
        """Run a subgraph at conversion time; what it assigns becomes the states' initial values."""

    def make_resource(self, key: str) -> Resource: ...
    def resource(self, slot: int) -> Resource:
        """The token a resource operand stands for."""

    def state(self, resource: Resource) -> State: ...
    def assign(self, slot: int, value: Value) -> None:
        """The next value of a variable tensor operand, in the order and form in which the slot is delivered."""

    def states(self, *subgraphs: int) -> Sequence[State]:
        """The states that subgraphs may touch, for control flow to carry through."""
