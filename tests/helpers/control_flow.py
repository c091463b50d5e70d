"""TFLite models with loops and branches, for tests of verification."""

from __future__ import annotations

import numpy as np

from conformance.builder import ModelBuilder


def count_to_three_million() -> bytes:
    """Return a model that counts from its input to three million."""
    model = ModelBuilder()
    g, below, more = model.main, model.subgraph("below"), model.subgraph("more")
    for graph, code, dtype, number in ((below, "LESS", "bool", 3e6), (more, "ADD", "float32", 1.0)):
        x, y = graph.input("x", ()), graph.tensor("y", (), dtype)
        graph.operator(code, [x, graph.constant("n", np.array(number, np.float32))], [y])
        graph.output(y)
    y = g.tensor("y", ())
    options = {"cond_subgraph_index": below.index, "body_subgraph_index": more.index}
    g.operator("WHILE", [g.input("x", ())], [y], options)
    g.output(y)
    return model.build()


def add_branches(model: ModelBuilder) -> None:
    """Add the subgraphs of an IF: TANH of [1, 5], otherwise NEG."""
    for name, code in (("then", "TANH"), ("else", "NEG")):
        body = model.subgraph(name)
        x, y = body.input("v", (1, 5)), body.tensor("r", (1, 5))
        body.operator(code, [x], [y])
        body.output(y)
