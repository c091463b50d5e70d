"""Resource variables: initial values by CALL_ONCE, and values for the next run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import Case
from conformance.models import Net, Spec, constant, net, random_array, tensor


def cases() -> Iterator[Case]:
    for dtype in ("float32", "int32", "int64", "int8", "uint8", "int16"):
        yield net("READ_VARIABLE", f"{dtype}, cumulative sum", running_sum(dtype), dtype=dtype)
        yield net("ASSIGN_VARIABLE", f"{dtype}, previous input", previous_input(dtype), dtype=dtype, runs=4)
    reset = {"options": {"state": "reset"}}
    for dtype in ("float32", "int8"):
        yield net("READ_VARIABLE", f"{dtype}, reset in every run", running_sum(dtype), dtype=dtype, **reset)
    yield net("ASSIGN_VARIABLE", "two assignments in a run, reset in every run", assign_twice, **reset)
    yield net("READ_VARIABLE", "image between convolutions", accumulate_image("float32"), max_transposes=2)
    yield net(
        "READ_VARIABLE", "int8 image between convolutions", accumulate_image("int8"), dtype="int8", max_transposes=4
    )
    yield net("ASSIGN_VARIABLE", "image between convolutions", accumulate_image("float32"), max_transposes=2)
    yield net("READ_VARIABLE", "image reduced to its maxima", image_maxima, max_transposes=1)
    yield net("READ_VARIABLE", "before and after an assignment", before_and_after)
    yield net("ASSIGN_VARIABLE", "two assignments in a run", assign_twice)
    yield net("ASSIGN_VARIABLE", "constant for the next run", constant_state)
    yield net("ASSIGN_VARIABLE", "before any read", assign_before_read)
    yield net("VAR_HANDLE", "two variables", two_variables)
    yield net("VAR_HANDLE", "one name in two containers", equal_names_in_containers)
    yield net("ASSIGN_VARIABLE", "write-only image", write_only_image)
    yield net(
        "READ_VARIABLE", "variable without an assignment", read_unassigned, refusal="is read before it is assigned"
    )


IMAGE = (2, 5, 7, 3)


class Variable:
    """Variable of one subgraph: handle, reads and writes."""

    def __init__(self, graph: GraphBuilder, name: str = "state", container: str = "") -> None:
        self.graph = graph
        self.handle = graph.tensor(f"{name}:handle", (1,), "resource")
        graph.operator("VAR_HANDLE", [], [self.handle], {"shared_name": name, "container": container})

    def assign(self, value: TensorRef) -> None:
        self.graph.operator("ASSIGN_VARIABLE", [self.handle, value], [])


class VariableNet(Net):
    """Model with variables."""

    def variable(self, spec: Spec, initial: object | None = None, name: str = "state", container: str = "") -> Variable:
        """Add a variable to the main graph; CALL_ONCE assigns ``initial``."""
        if initial is not None:
            initializer = self.model.subgraph(f"set up {container}{name}")
            value = np.asarray(initial, spec.dtype)
            stored = initializer.constant("initial", value, quantization=spec.quantization)
            Variable(initializer, name, container).assign(stored)
            self.graph.operator("CALL_ONCE", [], [], {"init_subgraph_index": initializer.index})
        return Variable(self.graph, name, container)

    def read(self, variable: Variable, spec: Spec) -> TensorRef:
        result = self.result(spec)
        self.graph.operator("READ_VARIABLE", [variable.handle], [result])
        return result


def with_variables(build: Callable[[VariableNet], None]) -> Callable[[Net], None]:
    def build_with_variables(model: Net) -> None:
        inner_model = VariableNet()
        inner_model.model, inner_model.graph = model.model, model.graph
        build(inner_model)

    return build_with_variables


def running_sum(dtype: str) -> Callable[[Net], None]:
    @with_variables
    def build(model: VariableNet) -> None:
        x = tensor(3, 5, dtype=dtype)
        state = model.variable(x, random_array(3, 5, dtype=dtype, seed="initial"))
        total = model.call("ADD", [model.read(state, x), x], x)
        state.assign(total)
        model.output(total)

    return build


def previous_input(dtype: str) -> Callable[[Net], None]:
    @with_variables
    def build(model: VariableNet) -> None:
        spec = tensor(2, 3, dtype=dtype)
        x = model.input(spec)
        state = model.variable(spec, random_array(2, 3, dtype=dtype, seed="initial"))
        value = model.read(state, spec)
        state.assign(x)
        model.output(value)

    return build


def accumulate_image(dtype: str) -> Callable[[Net], None]:
    """Return a builder of a sum of an image and a variable, between convolutions."""

    @with_variables
    def build(model: VariableNet) -> None:
        image = tensor(*IMAGE, dtype=dtype)
        x = model.input_through_conv(image)
        state = model.variable(image, random_array(*IMAGE, dtype=dtype, seed="initial"))
        value = model.read(state, image)
        total = model.call("ADD", [value, x], image)
        state.assign(total)
        model.output(model.output_through_conv(total))

    return build


@with_variables
def image_maxima(model: VariableNet) -> None:
    """Build a variable that should have the layout of the convolution that writes it.

    No convolution reads the variable.
    """
    image = tensor(*IMAGE)
    x = model.input_through_conv(image)
    state = model.variable(image, random_array(*IMAGE, seed="initial"))
    negated = model.call("NEG", [model.read(state, image)], image)
    state.assign(x)
    model.output(model.call("REDUCE_MAX", [negated, constant([1, 2])], tensor(IMAGE[0], IMAGE[-1]), keep_dims=False))


@with_variables
def write_only_image(model: VariableNet) -> None:
    image = tensor(*IMAGE)
    x = model.input_through_conv(image)
    model.variable(image).assign(x)
    model.output(model.call("ABS", [x], image))


@with_variables
def read_unassigned(model: VariableNet) -> None:
    spec = tensor(3)
    model.output(model.call("ADD", [model.read(model.variable(spec), spec), spec], spec))


@with_variables
def before_and_after(model: VariableNet) -> None:
    spec = tensor(4)
    x = model.input(spec)
    state = model.variable(spec, np.zeros(4))
    old = model.read(state, spec)
    state.assign(x)
    model.output(old, model.read(state, spec))


@with_variables
def constant_state(model: VariableNet) -> None:
    spec = tensor(3, 5)
    x = model.input(spec)
    state = model.variable(spec, random_array(3, 5, seed="initial"))
    old = model.read(state, spec)
    state.assign(model.graph.constant("left", random_array(3, 5, seed="left")))
    model.output(model.call("ADD", [x, old], spec))


@with_variables
def assign_twice(model: VariableNet) -> None:
    spec = tensor(4)
    x = model.input(spec)
    state = model.variable(spec, np.zeros(4))
    old = model.read(state, spec)
    state.assign(x)
    state.assign(model.call("NEG", [x], spec))
    model.output(old)


@with_variables
def assign_before_read(model: VariableNet) -> None:
    spec = tensor(4)
    x = model.input(spec)
    state = model.variable(spec)
    state.assign(x)
    model.output(model.call("NEG", [model.read(state, spec)], spec))


@with_variables
def two_variables(model: VariableNet) -> None:
    """Build two variables that are swapped, one negated."""
    spec = tensor(4)
    x = model.input(spec)
    first, second = (model.variable(spec, np.full(4, start), name) for name, start in (("first", 1), ("second", 5)))
    a, b = model.read(first, spec), model.read(second, spec)
    first.assign(model.call("ADD", [b, x], spec))
    second.assign(model.call("NEG", [a], spec))
    model.output(model.call("SUB", [a, b], spec))


@with_variables
def equal_names_in_containers(model: VariableNet) -> None:
    spec = tensor(4)
    x = model.input(spec)
    states = [
        model.variable(spec, np.full(4, start), "state", container) for container, start in (("here", 1), ("there", 5))
    ]
    a, b = (model.read(state, spec) for state in states)
    states[0].assign(x)
    model.output(a, b)
