"""What a plan pays for: each tensor that is wanted in an order in which nobody makes it, and what works in a dear order."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import pytest

from conformance.builder import GraphBuilder, ModelBuilder
from onnx_tflite_plugin.api import Along, Context, Handler, Implicit, Price, Terminate, Transparent, Value, handler
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.errors import HandlerError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout import solver
from onnx_tflite_plugin.layout.borders import REPEATED
from onnx_tflite_plugin.layout.order import permuted, source_order
from onnx_tflite_plugin.layout.plan import FLIP_COST, TRANSPOSE_COST, LayoutPlan, plan_layout, tensor_bytes
from onnx_tflite_plugin.layout.spread import Edges
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.dtypes import NAMES, PACKED
from onnx_tflite_plugin.source.model import Tensor
from onnx_tflite_plugin.targets import TARGETS

SHAPE = (2, 5, 7, 3)
FIRST = (0, 3, 1, 2)  # channels first
BYTES = 4 * prod(SHAPE)
MOVED = BYTES + TRANSPOSE_COST + FLIP_COST


def lowering(ctx: Context, *operands: Value) -> Value:
    raise NotImplementedError


def declared(code: str, **declarations: Any) -> Handler:
    return handler(f"CUSTOM.{code}", max_version=1, **declarations)(lowering)


IMAGE = Implicit({0: "n c h w", ~0: "n c h w"})
HANDLERS = {
    one.code: one
    for one in (
        declared("Image", layout=IMAGE, axes="n h w c -> n h w c"),
        declared("Any", layout=Transparent()),
        declared("Stays", layout=Terminate()),
        declared("Rows", layout=Transparent(), axes="n h w c -> n h w c", along=Along("Own", "h", price=Price())),
        declared("Both", layout=Transparent(), axes="n h w c -> n h w c", along=Along("Own", "h w", price=Price())),
        declared("Third", layout=Transparent(), axes="n h w c -> n h w c", along=Along("Own", "c", 5, price=Price())),
        declared("Line", layout=Implicit({0: "n c h w", ~0: "n c h w"}, squeezable=("h",)), axes="n h w c -> n h w c"),
    )
}


def bound(model: ModelBuilder, handlers: Mapping[str, Handler] = HANDLERS) -> BoundModel:
    target = TARGETS["generic"]
    return resolve(Host(packs="builtin", handlers=handlers).bind(read(model.build()), target, 18), target, 18)


def made(g: GraphBuilder, code: str, x: int, name: str, shape: tuple[int, ...] = SHAPE) -> int:
    y = g.tensor(name, shape)
    g.operator(f"CUSTOM.{code}", [x], [y])
    return y


def chain(*codes: str, shape: tuple[int, ...] = SHAPE) -> BoundModel:
    """Operators one behind the other, from ``x`` on; their results are ``a``, ``b``, ..."""
    model = ModelBuilder()
    g = model.main
    ref: int = g.input("x", shape)
    for k, code in enumerate(codes):
        ref = made(g, code, ref, chr(ord("a") + k), shape)
    g.output(ref)
    return bound(model)


def planned(
    model: BoundModel, *, first: str = "", free: str = "", prices: Any = None, local: bool = False
) -> LayoutPlan:
    """``first``: names of graph inputs and outputs that are channels first, ``free``: those that may be in any order."""
    tensors = {tensor.name: tensor for tensor in (*model.main.inputs, *model.main.outputs)}
    edges = Edges(
        {tensors[name]: permuted(tensors[name].dims, FIRST) for name in first},
        frozenset(tensors[name] for name in free),
    )
    return plan_layout(
        model, bytes_of=tensor_bytes, prices=prices or (lambda along, last, size: 0), edges=edges, local=local
    )


def copies(plan: LayoutPlan) -> list[tuple[str, str, list[str]]]:
    """The tensors that are transposed, with the first words of who makes and of those who want them."""
    return [
        (copy.tensor.name, words(copy.producer), [words(consumer) for consumer in copy.consumers])
        for copy in plan.copies
    ]


def words(label: str) -> str:
    return " ".join(label.split()[:2])


def test_a_tensor_in_another_order_costs_its_bytes_and_a_constant() -> None:
    plan = planned(chain("Image"))
    assert copies(plan) == [("x", "graph input", ["op 0"]), ("a", "op 0", ["graph output"])]
    assert [(copy.bytes, copy.start, copy.end) for copy in plan.copies] == [
        (BYTES, source_order(SHAPE), permuted(SHAPE, FIRST)),
        (BYTES, permuted(SHAPE, FIRST), source_order(SHAPE)),
    ]
    assert (plan.cost, plan.exact, plan.moved) == (2 * MOVED, True, 0)


def test_what_several_want_in_one_order_is_transposed_once() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", SHAPE)
    g.output(*(made(g, code, x, name) for code, name in (("Image", "a"), ("Stays", "b"), ("Image", "c"))))
    plan = planned(bound(model))
    assert copies(plan)[0] == ("x", "graph input", ["op 0", "op 2"])
    assert plan.cost == 3 * MOVED


@pytest.mark.parametrize("exact", [True, False])
def test_a_plan_is_as_exact_as_what_solved_it(monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    solve = solver.solve
    monkeypatch.setattr(solver, "solve", lambda problem: solve(problem)._replace(exact=exact))
    assert planned(chain("Image", "Any")).exact is exact


@pytest.mark.parametrize(
    ("codes", "local", "moved", "cost"),
    [
        (("Image", "Any", "Image"), False, 1, 2),
        (("Image", "Any", "Image"), True, 0, 4),
        (("Image", "Any", "Any", "Image"), False, 2, 2),
        (("Image", "Stays", "Image"), False, 0, 4),
        (("Any", "Stays"), False, 0, 0),
    ],
)
def test_operators_that_may_be_in_any_order_are_in_that_of_their_neighbours_but_in_a_local_plan(
    codes: tuple[str, ...], local: bool, moved: int, cost: int
) -> None:
    model = chain(*codes)
    plan = planned(model, local=local)
    assert (plan.moved, plan.cost, len(plan.copies)) == (moved, cost * MOVED, cost)
    assert (plan.exact, plan.method == "local") == (not local, local)
    for operator in model.operators():
        wanted = plan.order(operator, 0)
        assert wanted == plan.order(operator, ~0)
        first = "Image" in operator.op.code or ("Any" in operator.op.code and moved > 0)
        assert wanted == (permuted(SHAPE, FIRST) if first else source_order(SHAPE))


def test_an_edge_that_is_asked_for_in_another_order_is_in_that() -> None:
    model = chain("Image", "Any", "Stays")
    x, y = *model.main.inputs, *model.main.outputs
    plan = planned(model, first="xc")
    assert (plan.edge(x), plan.edge(y)) == (permuted(SHAPE, FIRST), permuted(SHAPE, FIRST))
    assert [name for name, *_ in copies(plan)] in (["a", "c"], ["b", "c"])
    assert plan.moved == (copies(plan)[0][0] == "b")


def test_an_edge_that_may_be_in_any_order_is_in_the_cheapest() -> None:
    model = chain("Image", "Stays", "Image")
    x, y = *model.main.inputs, *model.main.outputs
    plan = planned(model, free="xc")
    assert (plan.edge(x), plan.edge(y)) == (permuted(SHAPE, FIRST), permuted(SHAPE, FIRST))
    assert (plan.cost, plan.moved) == (2 * MOVED, 2)
    plan = planned(chain("Stays", "Image"), free="xb")
    assert copies(plan) == [("a", "op 0", ["op 1"])]
    assert plan.moved == 1


def test_an_edge_that_may_be_in_any_order_is_named_where_it_must_be_moved() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", SHAPE)
    g.output(made(g, "Image", x, "a"), made(g, "Stays", x, "b"))
    assert copies(planned(bound(model), free="xab")) == [("x", "graph input", ["op 0"])]


def test_what_a_loop_repeats_counts_as_often_as_it_is_taken_to_run() -> None:
    model = ModelBuilder()
    cond, body = model.subgraph("cond"), model.subgraph("body")
    below = cond.tensor("below", (), "bool")
    least = cond.tensor("least", ())
    axes = cond.constant("axes", np.arange(4, dtype=np.int32))
    cond.operator("REDUCE_MIN", [cond.input("taken", SHAPE), axes], [least])
    cond.operator("LESS", [least, cond.constant("most", np.float32(5))], [below])
    cond.output(below)
    body.output(
        made(body, "Stays", made(body, "Image", made(body, "Stays", body.input("given", SHAPE), "a"), "b"), "c")
    )
    g = model.main
    y = g.tensor("y", SHAPE)
    g.operator("WHILE", [g.input("x", SHAPE)], [y], {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    g.output(made(g, "Stays", made(g, "Image", y, "d"), "e"))
    assert planned(bound(model)).cost == 2 * MOVED + 2 * REPEATED * MOVED


def test_a_unit_that_moves_costs_little_and_none_is_left_out_where_that_costs_as_much_again() -> None:
    still = chain("Image", shape=(2, 1, 1, 3))
    assert (planned(still).cost, planned(still).copies) == (2 * FLIP_COST, ())
    line = planned(chain("Line", shape=(2, 1, 7, 3)))
    assert len(line.copies) == 2
    assert line.moved == 1
    assert line.cost == 2 * (4 * 42 + TRANSPOSE_COST + FLIP_COST)


@pytest.mark.parametrize(
    ("code", "shape", "asked"),
    [
        ("Rows", (2, 5, 7, 3), {False}),
        ("Rows", (2, 5, 1, 3), {False, True}),  # channels first, rows are innermost
        ("Both", (2, 5, 7, 3), {False, True}),
        ("Both", (2, 5, 1, 3), {False, True}),
        ("Both", (2, 5, 7, 1), {True}),
        ("Third", (2, 5, 7, 3), set()),
    ],
)
def test_the_price_of_an_order_goes_by_whether_the_axes_that_an_operator_works_along_are_innermost(
    code: str, shape: tuple[int, ...], asked: set[bool]
) -> None:
    """But for axes of size 1."""
    told: list[tuple[str, bool, int]] = []

    def prices(along: Along, last: bool, size: int) -> int:
        told.append((along.onnx, last, size))
        return 1

    planned(chain("Image", code, "Image", shape=shape), prices=prices)
    assert {last for _, last, _ in told} == asked
    assert {(onnx, size) for onnx, _, size in told} == ({("Own", 4 * prod(shape))} if asked else set())


@pytest.mark.parametrize(("price", "cost", "bought"), [(0, 2, 0), (1, 2, 0), (3, 4, 3)])
def test_an_order_that_is_dearer_than_two_transposes_is_not_taken_and_who_is_transposed_for_it_is_told(
    price: int, cost: int, bought: int
) -> None:
    def prices(along: Along, last: bool, size: int) -> int:
        return price * MOVED if last else 0

    plan = planned(chain("Image", "Both", "Any", "Image"), prices=prices)
    assert plan.cost == cost * MOVED + (price * MOVED if cost == 2 else 0)
    assert [(words(label), gain) for label, gain in plan.bought] == ([("op 1", bought * MOVED)] if bought else [])


def test_every_handler_whose_axes_do_not_fit_is_told() -> None:
    """What the file is at fault for, beside it."""
    bad = {
        "CUSTOM.Any": declared("Any", layout=Transparent(), axes="a b -> a b"),
        "CUSTOM.Image": declared("Image", layout=Implicit({0: "a c"}), axes="a b c d -> a b c d"),
    }
    model = ModelBuilder()
    g = model.main
    g.output(made(g, "Image", made(g, "Any", g.input("x", SHAPE), "a"), "b"))
    with pytest.raises(HandlerError) as caught:
        planned(bound(model, bad))
    assert [problem.where.split()[1] for problem in caught.value.problems] == ["0", "1"]


@pytest.mark.parametrize("dtype", [name for name in NAMES if name not in {*PACKED, "string", "resource", "variant"}])
def test_a_tensor_moves_the_bytes_of_its_elements(dtype: str) -> None:
    sizes = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
    size = sizes.get(dtype) or np.dtype(dtype).itemsize
    assert tensor_bytes(Tensor(0, 0, "x", dtype, (2, 5, 7), (2, 5, 7), None, None, False)) == 70 * size
    assert tensor_bytes(Tensor(0, 0, "x", dtype, (2, 1), (2, None), None, None, False)) == 2 * size
