"""CALL_ONCE: initial values of variables, which it computes before the first run."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.cases.state.variables import Variable, VariableNet, with_variables
from conformance.models import net, random_array, tensor


def cases() -> Iterator[Case]:
    yield net("CALL_ONCE", "initial values computed by operators", computed_initial_value)
    yield net("CALL_ONCE", "read-only variable", only_read)
    yield net("CALL_ONCE", "two initializers", two_calls)


@with_variables
def computed_initial_value(model: VariableNet) -> None:
    """Build a variable whose initial value is the reshaped sum of two constants."""
    spec = tensor(2, 3)
    setup = model.model.subgraph("set up")
    parts = [setup.constant(name, random_array(6, seed=name)) for name in ("a", "b")]
    flat, result = setup.tensor("sum", (6,)), setup.tensor("made", (2, 3))
    setup.operator("ADD", parts, [flat])
    setup.operator("RESHAPE", [flat, setup.constant("shape", [2, 3])], [result])
    Variable(setup).assign(result)
    model.graph.operator("CALL_ONCE", [], [], {"init_subgraph_index": setup.index})
    state = model.variable(spec)
    total = model.call("ADD", [model.read(state, spec), spec], spec)
    state.assign(total)
    model.output(total)


@with_variables
def only_read(model: VariableNet) -> None:
    spec = tensor(2, 3)
    state = model.variable(spec, random_array(2, 3))
    model.output(model.call("ADD", [model.read(state, spec), spec], spec))


@with_variables
def two_calls(model: VariableNet) -> None:
    spec = tensor(2, 3)
    states = [model.variable(spec, random_array(2, 3, seed=name), name) for name in ("first", "second")]
    a, b = (model.read(state, spec) for state in states)
    total = model.call("ADD", [a, spec], spec)
    states[0].assign(total)
    model.output(model.call("SUB", [total, b], spec))
