"""CALL_ONCE: subgraphs that assign initial values to variables."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.cases.state.variables import Variable, VariableNet, with_variables
from conformance.models import net, random_array, tensor


def cases() -> Iterator[Case]:
    yield net("CALL_ONCE", "initial values computed by operators", computed_initial_value)
    yield net("CALL_ONCE", "read-only variable", read_only_variable)
    yield net("CALL_ONCE", "two initializers", two_initializers)


@with_variables
def computed_initial_value(model: VariableNet) -> None:
    """Build a variable whose initial value is the reshaped sum of two constants."""
    spec = tensor(2, 3)
    initializer = model.model.subgraph("set up")
    addends = [initializer.constant(name, random_array(6, seed=name)) for name in ("a", "b")]
    flat, result = initializer.tensor("sum", (6,)), initializer.tensor("initial", (2, 3))
    initializer.operator("ADD", addends, [flat])
    initializer.operator("RESHAPE", [flat, initializer.constant("shape", [2, 3])], [result])
    Variable(initializer).assign(result)
    model.graph.operator("CALL_ONCE", [], [], {"init_subgraph_index": initializer.index})
    state = model.variable(spec)
    total = model.call("ADD", [model.read(state, spec), spec], spec)
    state.assign(total)
    model.output(total)


@with_variables
def read_only_variable(model: VariableNet) -> None:
    spec = tensor(2, 3)
    state = model.variable(spec, random_array(2, 3))
    model.output(model.call("ADD", [model.read(state, spec), spec], spec))


@with_variables
def two_initializers(model: VariableNet) -> None:
    """Build a model with two variables, each with its own CALL_ONCE."""
    spec = tensor(2, 3)
    states = [model.variable(spec, random_array(2, 3, seed=name), name) for name in ("first", "second")]
    a, b = (model.read(state, spec) for state in states)
    total = model.call("ADD", [a, spec], spec)
    states[0].assign(total)
    model.output(model.call("SUB", [total, b], spec))
