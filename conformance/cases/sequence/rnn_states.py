"""RNN whose state is written by another operator in each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import Case
from conformance.models import Net, net, random_array, tensor

STATE = tensor(3, 5)
RUNS = 4


def cases() -> Iterator[Case]:
    runs = {"runs": RUNS}
    yield net("RNN", "state from an operator", recurrent_layer(scale_into), **runs)
    yield net("RNN", "state from an operator after its last use", recurrent_layer(scale_into, is_late=True), **runs)
    yield net("RNN", "state from a loop", recurrent_layer(loop_into), **runs)


Writer = Callable[[GraphBuilder, TensorRef, TensorRef], None]


def scale_into(graph: GraphBuilder, x: TensorRef, state: TensorRef) -> None:
    """Add an operator that computes the state from x."""
    graph.operator("MUL", [x, graph.constant("scale", np.float32(0.7))], [state])


def loop_into(graph: GraphBuilder, x: TensorRef, state: TensorRef) -> None:
    """Add a loop of three iterations whose second result is the state."""
    counter = tensor()
    cond, body = graph.model.subgraph("cond"), graph.model.subgraph("body")
    (count, _), continues = add_loop_inputs(cond), cond.tensor("more", (), "bool")
    cond.operator("LESS", [count, cond.constant("end", np.float32(3))], [continues])
    cond.output(continues)
    (count, value), next_count, next_value = (
        add_loop_inputs(body),
        body.tensor("next", ()),
        body.tensor("scaled", STATE.shape),
    )
    body.operator("ADD", [count, body.constant("one", np.float32(1))], [next_count])
    body.operator("MUL", [value, body.constant("scale", np.float32(0.7))], [next_value])
    body.output(next_count, next_value)
    start, result = graph.constant("start", np.float32(0)), graph.tensor("counted", counter.shape)
    options = {"cond_subgraph_index": cond.index, "body_subgraph_index": body.index}
    graph.operator("WHILE", [start, x], [result, state], options)


def add_loop_inputs(graph: GraphBuilder) -> Sequence[TensorRef]:
    """Add the two inputs of the loop's condition or body."""
    return graph.input("count", ()), graph.input("value", STATE.shape)


def recurrent_layer(write: Writer, *, is_late: bool = False) -> Callable[[Net], None]:
    """Return a builder of an RNN; ``write`` computes its state from a graph input.

    ``is_late``: the state is written after its last reader, so that the next run uses the value.
    """

    def build(model: Net) -> None:
        x, start = model.input(tensor(3, 7)), model.input(STATE)
        state = model.graph.tensor("hidden", STATE.shape, variable=True)
        if not is_late:
            write(model.graph, start, state)
        y, total = model.result(STATE), model.result(STATE)
        model.graph.operator("RNN", [x, *weights(model.graph, 7), state], [y], {"fused_activation_function": "TANH"})
        model.graph.operator("ADD", [y, state], [total])
        if is_late:
            write(model.graph, start, state)
        model.output(total)

    return build


def weights(graph: GraphBuilder, size: int) -> list[TensorRef]:
    """Return weights, recurrent weights and bias of a layer."""
    shapes = {"weights": (5, size), "recurrent": (5, 5), "bias": (5,)}
    return [graph.constant(name, 0.4 * random_array(*shape, seed=name)) for name, shape in shapes.items()]
