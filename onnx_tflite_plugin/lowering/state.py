"""States of a TFLite model, as additional graph inputs and outputs.

A resource variable or a variable tensor becomes the input ``<name>`` and the output ``<name>:next``. If every run
starts from the initial values, a constant replaces the input, and there is no output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.budget import spend_budget
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.states import overwritten_variables, state_slot, state_users
from onnx_tflite_plugin.graph.constants import NotConstant, evaluate_constant
from onnx_tflite_plugin.graph.model_metadata import CarriedState
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.layout.tensor_layout import physical_shape
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.ir_values import onnx_dtype, require_value, set_type
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.renamed import STATE, renamed_attributes
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Array, Dims, Tensor, agree


@dataclass(eq=False)
class State:
    """One state while the graph is emitted.

    ``get()`` returns the current value, ``set(value)`` sets the next one. ``reset``: every run starts from the initial
    value. ``initializing``: :meth:`set` sets the initial value.
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
        """Set the dtype and shape. Raises Refusal if an earlier declaration differs."""
        if not self.dtype:
            self.dtype, self.dims = dtype, dims
        elif dtype != self.dtype or not agree(dims, self.dims):
            uses = " and ".join(
                f"{dtype} of shape {list(dims)}" for dtype, dims in ((self.dtype, self.dims), (dtype, dims))
            )
            raise Refusal(f"the state {self.name!r} is used as {uses}: in ONNX a state has one dtype and shape")

    def get(self) -> ir.Value:
        """Return the current value in planned layout and storage.

        Raises LookupError for an undeclared state.
        """
        if self.current is None:
            if not self.dtype:
                raise LookupError(f"state {self.name!r} is read before its dtype and shape are declared")
            if self.reset:
                self.current = self.emitter.constant(self.initial_value, self.name)
            else:
                self.input = self.emitter.register(set_type(ir.Value(name=self.name), self.dtype, self.dims))
                self.current = self.input
        return self.current

    @property
    def initial_value(self) -> Array:
        """Return the value before the first run.

        All elements are 0 if no operator sets the initial value; LiteRT refuses to read such a state.
        """
        if self.initial is None:
            spend_budget(prod(d or 1 for d in self.dims), 8, f"the initial value of the state {self.name!r}")
        initial = np.zeros([d or 1 for d in self.dims]) if self.initial is None else self.initial
        return np.asarray(initial, onnx_dtype(self.dtype).numpy())

    def set(self, value: Value) -> None:
        """Set the next value, or the initial value while CALL_ONCE runs.

        Raises Refusal if the initial value is not constant, or if an operator has already used the state.
        """
        if self.initializing and self.current is not None:
            fact = f"the operator sets the initial value of the state {self.name!r} after operators that use it"
            raise Refusal(f"{fact}; LiteRT sets the state at this operator, and only in the first run")
        if self.initializing:
            try:
                self.initial = evaluate_constant(
                    require_value(value), self.emitter.domains, "the initial value of a state"
                )
            except NotConstant as error:
                raise Refusal(f"the initial value of the state {self.name!r} is not constant: {error}") from error
            return
        self.get()  # a state has an input even if every run assigns it before reading it
        self.current = require_value(value)

    @property
    def has_value(self) -> bool:
        """True if the state has a value."""
        return self.initial is not None or self.current is not None

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(STATE)


class States:
    """States of one conversion by key, in the order of their first use in the file.

    ``reset``: every run starts from the initial values, and final values are discarded.
    """

    def __init__(self, emitter: Emitter, layout: LayoutPlan, storage: StoragePlan, reset: bool = False) -> None:
        self.emitter, self.layout, self.storage, self.reset = emitter, layout, storage, reset
        self.by_key: dict[str, State] = {}
        self._initializing = False

    def state(self, key: str, name: str = "") -> State:
        """Return the state of a key, created on first use. ``name``: the key by default."""
        if key not in self.by_key:
            self.by_key[key] = State(key, self.emitter.names.unique(name or key or "state"), self.emitter, self.reset)
        self.by_key[key].initializing = self._initializing
        return self.by_key[key]

    @contextmanager
    def initializing_states(self) -> Iterator[None]:
        """Make ``State.set`` set initial values inside the context."""
        self._initializing = True
        try:
            yield
        finally:
            self._initializing = False
            for state in self.by_key.values():
                state.initializing = False

    def states_of_subgraphs(self, model: BoundModel, subgraphs: Iterable[int]) -> list[State]:
        """Return the states that the subgraphs or their callees may read or write.

        Declares the dtype and shape of these states. A resource that is an input of a subgraph may be any state used so
        far, so all of these are returned. Variable tensors are reset, because LiteRT allocates the tensors of a called
        subgraph at each run (Eval, kernels/while.cc).
        """
        states: dict[str, State] = {}
        for key, bound in _state_users_recursively(model, subgraphs, set()):
            if key is None:
                states.update(self.by_key)
                continue
            states[key] = self.state(key)
            slot = state_slot(bound)
            dtype = self.storage.storage(bound.op[slot]).dtype
            states[key].declare(dtype, physical_shape(self.layout.layout(bound, slot)))
        for tensor in _variable_tensors(model, subgraphs):
            state = self.variable_state(tensor, tensor.name)
            state.current = self.emitter.constant(np.asarray(state.initial), tensor.name)
            states[state.key] = state
        return list(states.values())

    def variable_state(self, tensor: Tensor, name: str) -> State:
        """Return the state of a variable tensor.

        The initial value is the tensor's constant data (``Handler.evaluate``), else 0, or the zero point for int8
        (ResetVariableTensor, core/subgraph.cc). Raises Refusal for complex dtypes.
        """
        if tensor.dtype.startswith("complex"):
            raise Refusal(
                f"the variable tensor {tensor.name!r} has dtype {tensor.dtype}; complex states are not supported"
            )
        state = self.state(f"variable {tensor.subgraph}:{tensor.index}", name)
        state.declare(tensor.dtype, tensor.dims)
        if tensor.data is not None:
            state.initial = tensor.array
        if state.initial is None:
            quantization = affine(tensor) if tensor.dtype == "int8" else None
            spend_budget(
                prod(tensor.shape), 8, f"the initial value of the state {name!r}, of shape {list(tensor.shape)},"
            )
            state.initial = np.full(
                tensor.shape, quantization.zero_point[0] if quantization else 0, onnx_dtype(tensor.dtype).numpy()
            )
        return state

    def interface(
        self, graph_outputs: Collection[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value], list[CarriedState]]:
        """Return graph inputs, graph outputs, initializers and metadata of the states."""
        inputs, initializers, metadata = [], [], []
        outputs: dict[ir.Value, None] = {}
        for state in self.by_key.values():
            if state.input is None:
                continue
            next_value = state.get()
            # The output needs a name of its own, but its value may be a graph input, another output or a constant.
            if next_value.producer() is None or next_value in outputs or next_value in graph_outputs:
                next_value = self.emitter.emit("Identity", [next_value], {})[0]
            next_value.name = self.emitter.names.unique(f"{state.name}:next")
            set_type(next_value, state.dtype, state.dims)
            state.input.const_value = ir.Tensor(state.initial_value, name=state.name)
            inputs.append(state.input)
            outputs[next_value] = None
            initializers.append(state.input)
            shape = tuple(d if d is not None else -1 for d in state.dims)
            metadata.append(CarriedState(str(state.input.name), next_value.name, state.dtype, shape))
        return inputs, [*outputs], initializers, metadata


def _state_users_recursively(
    model: BoundModel, subgraphs: Iterable[int], seen: set[int]
) -> Iterator[tuple[str | None, Bound]]:
    """Yield (key of the state, user) for the subgraphs and all subgraphs they call."""
    for index in subgraphs:
        if index in seen:
            continue
        seen.add(index)
        yield from state_users(model.graphs[index])
        for bound in model.graphs[index].operators:
            yield from _state_users_recursively(model, bound.declared.subgraphs, seen)


def _variable_tensors(model: BoundModel, subgraphs: Iterable[int]) -> dict[Tensor, None]:
    """Return the variable tensors that subgraphs may read before they compute them.

    Subgraphs that the given subgraphs call are included.
    """
    pending, seen = [*subgraphs], set[int]()
    variables: dict[Tensor, None] = {}
    while pending:
        index = pending.pop()
        if index in seen or not 0 <= index < len(model.graphs):
            continue
        seen.add(index)
        operators = model.graphs[index].operators
        overwritten = overwritten_variables(operators)
        for bound in operators:
            variables.update(
                dict.fromkeys(t for t in bound.op.inputs if t is not None and t.is_variable and t not in overwritten)
            )
            pending.extend(bound.declared.subgraphs)
    return variables
