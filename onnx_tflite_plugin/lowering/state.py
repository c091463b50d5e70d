"""States: what a TFLite model remembers between runs, as extra graph inputs and outputs.

A resource variable or a variable tensor becomes the input ``<name>`` and the output ``<name>:next``. Where every run is
to begin anew it is neither: a constant, its initial value, stands where the input would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.budget import spend
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.states import held_slot, users
from onnx_tflite_plugin.graph.metadata import CarriedState
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.layout.tensor_layout import physical_shape
from onnx_tflite_plugin.lowering.emitter import Emitter, dtype_of, own_value, typed
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Array, Dims, Tensor, agree

if TYPE_CHECKING:
    import onnx


@dataclass(eq=False)
class State:
    """One state while the graph is emitted: ``get()`` its current value, ``set(value)`` the next.

    ``reset``: every run begins with the first value, and there is no input.
    """

    key: str
    name: str
    emitter: Emitter
    reset: bool = False
    dtype: str = ""
    dims: Dims = ()
    initial: Array | None = None
    input: ir.Value | None = None
    current: ir.Value | None = None
    initializing: bool = False

    def declare(self, dtype: str, dims: Dims) -> None:
        """What the state holds; the first to say so decides. Raises Refused where another says otherwise."""
        if not self.dtype:
            self.dtype, self.dims = dtype, dims
        elif dtype != self.dtype or not agree(dims, self.dims):
            told = " and ".join(
                f"{kind} of shape {list(sizes)}" for kind, sizes in ((self.dtype, self.dims), (dtype, dims))
            )
            raise Refused(f"the state {self.name!r} is {told}: a state of ONNX has one dtype and shape")

    def get(self) -> ir.Value:
        """The current value, in planned order and storage. Raises LookupError for an undeclared state."""
        if self.current is None:
            if not self.dtype:
                raise LookupError(f"state {self.name!r} is read before anything tells its dtype and shape")
            if self.reset:
                self.current = self.emitter.constant(self.first, self.name)
            else:
                self.input = self.emitter.own(typed(ir.Value(name=self.name), self.dtype, self.dims))
                self.current = self.input
        return self.current

    @property
    def first(self) -> Array:
        """The value before the first run; 0 where none is known, which LiteRT refuses to read."""
        if self.initial is None:
            spend(prod(d or 1 for d in self.dims), 8, f"the initial value of the state {self.name!r}")
        initial = np.zeros([d or 1 for d in self.dims]) if self.initial is None else self.initial
        return np.asarray(initial, dtype_of(self.dtype).numpy())

    def set(self, value: Value) -> None:
        """The next value; while CALL_ONCE runs, the initial one. Raises Refused where it had another before."""
        if self.initializing and self.current is not None:
            text = f"it gives the state {self.name!r} its first value behind operators that have it"
            raise Refused(f"{text}, so that LiteRT's first run alone takes it there")
        if self.initializing:
            try:
                self.initial = constant_of(own_value(value), self.emitter.domains)
            except Unknown as unknown:
                raise Refused(f"it gives the state {self.name!r} a first value, and {unknown}") from unknown
            return
        self.get()  # a state has an input even where every run assigns it first
        self.current = own_value(value)

    @property
    def known(self) -> bool:
        """Whether anything has given it a value yet."""
        return self.initial is not None or self.current is not None


class Unknown(LookupError):
    """A value depends on an input, so that conversion cannot compute it."""


def constant_of(value: ir.Value, opsets: Mapping[str, int]) -> Array:
    """The value of what was computed from constants alone, by the reference evaluator of ONNX; ``opsets`` by domain.

    Raises Unknown where it depends on an input.
    """
    if value.const_value is not None:
        return np.asarray(value.const_value.numpy())
    nodes, constants = _made_of(value)
    import onnx
    from onnx.reference import ReferenceEvaluator

    protos = [ir.to_proto(node) for node in nodes]
    tensors = [ir.to_proto(v.const_value) for v in constants.values() if v.const_value is not None]
    output = onnx.helper.make_empty_tensor_value_info(value.name or "")
    graph = onnx.helper.make_graph(protos, "constant", [], [output], tensors)
    imports = [onnx.helper.make_opsetid(domain, opsets[domain]) for domain in {node.domain for node in nodes}]
    model = onnx.helper.make_model(graph, opset_imports=imports)
    _spend_on(onnx.shape_inference.infer_shapes(model, data_prop=True))
    (result,) = ReferenceEvaluator(model).run(None, {})
    return np.asarray(result)


def _made_of(value: ir.Value) -> tuple[list[ir.Node], dict[str, ir.Value]]:
    """The nodes that compute a value, in an order they can run in, and the constants they use.

    Raises Unknown where it depends on an input.
    """
    nodes: dict[ir.Node, bool] = {}  # whether its operands are told
    constants: dict[str, ir.Value] = {}
    order: list[ir.Node] = []
    waiting = [value]
    while waiting:
        needed = waiting[-1]
        node = needed.producer()
        if needed.const_value is not None:
            constants[needed.name or ""] = needed
            waiting.pop()
        elif node is None:
            raise Unknown(f"{needed.name!r} is not known at conversion time")
        elif node not in nodes:
            nodes[node] = True
            waiting.extend(operand for operand in node.inputs if operand is not None)
        else:
            waiting.pop()
            if nodes[node]:
                nodes[node] = False
                order.append(node)
    return order, constants


def _spend_on(model: onnx.ModelProto) -> None:
    """Take what evaluating it makes out of the budget, as far as shape inference tells sizes."""
    for info in (*model.graph.value_info, *model.graph.output):
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        spend(prod(dims), 8, f"the initial value of a state, with {info.name!r} of shape {dims},")


class States:
    """All states of one conversion, by key, in the order the file first mentions them.

    ``reset``: every run begins with the initial values, and what it leaves is forgotten.
    """

    def __init__(self, emitter: Emitter, layout: LayoutPlan, storage: StoragePlan, reset: bool = False) -> None:
        self.emitter, self.layout, self.storage, self.reset = emitter, layout, storage, reset
        self.by_key: dict[str, State] = {}
        self._initializing = False

    def state(self, key: str, name: str = "") -> State:
        """The state of a key, made on first mention; its name is the key's unless given."""
        if key not in self.by_key:
            self.by_key[key] = State(key, self.emitter.names.unique(name or key or "state"), self.emitter, self.reset)
        self.by_key[key].initializing = self._initializing
        return self.by_key[key]

    @contextmanager
    def setting_up(self) -> Iterator[None]:
        """While inside, states take initial values."""
        self._initializing = True
        try:
            yield
        finally:
            self._initializing = False
            for state in self.by_key.values():
                state.initializing = False

    def touched(self, model: BoundModel, subgraphs: Iterable[int]) -> list[State]:
        """States that the subgraphs, or those they call, may read or write, declared so that they can be carried.

        A resource that is handed in from outside may be any state mentioned so far. Variable tensors start again: what
        an operator calls is allocated anew at each of its runs (Eval, kernels/while.cc).
        """
        states: dict[str, State] = {}
        for key, bound in _users(model, subgraphs, set()):
            if key is None:
                states.update(self.by_key)
                continue
            states[key] = self.state(key)
            slot = held_slot(bound)
            dtype = self.storage.storage(bound.op[slot]).dtype
            states[key].declare(dtype, physical_shape(self.layout.layout(bound, slot)))
        for tensor in _variables(model, subgraphs):
            state = self.variable(tensor, tensor.name)
            state.current = self.emitter.constant(np.asarray(state.initial), tensor.name)
            states[state.key] = state
        return list(states.values())

    def variable(self, tensor: Tensor, name: str) -> State:
        """The state behind a variable tensor: before the first run what is known of it (``Handler.evaluate``).

        Else all bytes are 0, int8 its zero point (ResetVariableTensor, core/subgraph.cc). Raises Refused for complex numbers.
        """
        if tensor.dtype.startswith("complex"):
            raise Refused(f"the variable tensor {tensor.name!r} keeps {tensor.dtype}, which is not implemented")
        state = self.state(f"variable {tensor.subgraph}:{tensor.index}", name)
        state.declare(tensor.dtype, tensor.dims)
        if tensor.data is not None:
            state.initial = tensor.array
        if state.initial is None:
            quantization = affine(tensor) if tensor.dtype == "int8" else None
            spend(prod(tensor.shape), 8, f"the initial value of the state {name!r}, of shape {list(tensor.shape)},")
            state.initial = np.full(
                tensor.shape, quantization.zero_point[0] if quantization else 0, dtype_of(tensor.dtype).numpy()
            )
        return state

    def interface(
        self, graph_outputs: Collection[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value], list[CarriedState]]:
        """State inputs, state outputs, default initializers, and which of them belong together."""
        inputs, initializers, carried = [], [], []
        outputs: dict[ir.Value, None] = {}
        for state in self.by_key.values():
            if state.input is None:
                continue
            following = state.get()
            # What is given has a name of its own: an input of the graph, a state as it was, a constant.
            if following.producer() is None or following in outputs or following in graph_outputs:
                following = self.emitter.emit("Identity", [following], {})[0]
            following.name = self.emitter.names.unique(f"{state.name}:next")
            typed(following, state.dtype, state.dims)
            state.input.const_value = ir.Tensor(state.first, name=state.name)
            inputs.append(state.input)
            outputs[following] = None
            initializers.append(state.input)
            shape = tuple(d if d is not None else -1 for d in state.dims)
            carried.append(CarriedState(str(state.input.name), following.name, state.dtype, shape))
        return inputs, [*outputs], initializers, carried


def _users(model: BoundModel, subgraphs: Iterable[int], seen: set[int]) -> Iterator[tuple[str | None, Bound]]:
    """(key of the state, operator) for every operator that reads or writes one, called subgraphs included."""
    for index in subgraphs:
        if index in seen:
            continue
        seen.add(index)
        yield from users(model.graphs[index])
        for bound in model.graphs[index].operators:
            yield from _users(model, bound.declared.subgraphs, seen)


def _variables(model: BoundModel, subgraphs: Iterable[int]) -> dict[Tensor, None]:
    """The variable tensors that the subgraphs, or those they call, may read or write."""
    waiting, seen = [*subgraphs], set[int]()
    variables: dict[Tensor, None] = {}
    while waiting:
        index = waiting.pop()
        if index in seen or not 0 <= index < len(model.graphs):
            continue
        seen.add(index)
        for bound in model.graphs[index].operators:
            variables.update(dict.fromkeys(t for t in bound.op.inputs if t is not None and t.is_variable))
            waiting.extend(bound.declared.subgraphs)
    return variables
