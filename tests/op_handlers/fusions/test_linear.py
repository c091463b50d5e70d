"""The search for recurrent layers takes linear time."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.builder import GraphBuilder, ModelBuilder
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Subgraph, Tensor
from op_handlers.kernels.recurrent_cells import MAX_PRODUCTS, Dataflow, Sums
from op_handlers.kernels.unrolled_cells import UnrolledDataflow

SIZE = (3, 8)


class Counted(UnrolledDataflow):
    """Counts how often sums are requested."""

    requests = 0

    def sums(self, tensor: Tensor) -> Sums | None:
        self.requests += 1
        return super().sums(tensor)


def graph(model: ModelBuilder) -> Subgraph:
    return read(model.build()).main


def chain(g: GraphBuilder, code: str, count: int) -> None:
    """Return a chain of operators of one code.

    Binary operators use the previous result twice.
    """
    x = g.input("x", SIZE)
    for k in range(count):
        y = g.tensor(f"y{k}", SIZE)
        g.operator(code, [x] if code in ("TANH", "RELU") else [x, x], [y])
        x = y
    g.output(x)


@pytest.mark.parametrize("code", ["TANH", "RELU", "ADD", "MUL"])
def test_long_chain_requests_few_sums_per_tensor(code: str) -> None:
    model = ModelBuilder()
    chain(model.main, code, 400)
    cells = Counted(graph(model).operators)
    assert not list(cells.chains())
    assert cells.requests < 400 * 20


def test_nested_sums_are_read_once_each() -> None:
    """Without a cache the first sum would be read 2**60 times."""
    model = ModelBuilder()
    chain(model.main, "ADD", 60)
    main = graph(model)
    assert Dataflow(main.operators).sums(main.outputs[0]) is None


def test_sums_of_too_many_products_are_not_cells() -> None:
    model = ModelBuilder()
    g = model.main
    w, total = g.constant("w", np.eye(8, dtype=np.float32)), None
    for k in range(MAX_PRODUCTS + 1):
        product = g.tensor(f"product{k}", SIZE)
        g.operator("FULLY_CONNECTED", [g.input(f"x{k}", SIZE), w, None], [product])
        if total is not None:
            g.operator("ADD", [total, product], [sum_ := g.tensor(f"sum{k}", SIZE)])
        total = product if total is None else sum_
    main = graph(model)
    *_, two, three = (op for op in main.operators if op.code == "ADD")
    cells = UnrolledDataflow(main.operators)
    sums = cells.sums(two[~0])
    assert sums is not None
    assert len(sums.products) == MAX_PRODUCTS
    assert cells.sums(three[~0]) is None
