"""Cost of a plan: transposed tensors, reshapes of unit axes, slow layouts."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import pytest

from conformance.builder import GraphBuilder, ModelBuilder
from onnx_tflite_plugin.api import AxisPrice, Context, Handler, Implicit, Price, Terminate, Transparent, Value, handler
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.errors import HandlerError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout import solver
from onnx_tflite_plugin.layout.boundaries import LOOP_ITERATIONS
from onnx_tflite_plugin.layout.dataflow import RESHAPE_COST, TRANSPOSE_COST, tensor_bytes
from onnx_tflite_plugin.layout.plan import LayoutPlan, plan_layout
from onnx_tflite_plugin.layout.propagation import InterfaceLayouts
from onnx_tflite_plugin.layout.tensor_layout import layout_of_permutation, source_layout
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.dtypes import NAMES, PACKED
from onnx_tflite_plugin.source.model import Tensor
from onnx_tflite_plugin.targets import TARGETS

SHAPE = (2, 5, 7, 3)
CHANNELS_FIRST = (0, 3, 1, 2)
BYTES = 4 * prod(SHAPE)
COPY_COST = BYTES + TRANSPOSE_COST + RESHAPE_COST


def lowering(ctx: Context, *operands: Value) -> Value:
    raise NotImplementedError


def declare(code: str, **declarations: Any) -> Handler:
    return handler(f"CUSTOM.{code}", max_version=1, **declarations)(lowering)


IMAGE = Implicit({0: "n c h w", ~0: "n c h w"})
HANDLERS = {
    declared.code: declared
    for declared in (
        declare("Image", layout=IMAGE, axes="n h w c -> n h w c"),
        declare("Transparent", layout=Transparent()),
        declare("SourceOnly", layout=Terminate()),
        declare(
            "PricedRows",
            layout=Transparent(),
            axes="n h w c -> n h w c",
            axis_price=AxisPrice("Own", "h", price=Price()),
        ),
        declare(
            "PricedImage",
            layout=Transparent(),
            axes="n h w c -> n h w c",
            axis_price=AxisPrice("Own", "h w", price=Price()),
        ),
        declare(
            "PricedAbsentSlot",
            layout=Transparent(),
            axes="n h w c -> n h w c",
            axis_price=AxisPrice("Own", "c", 5, price=Price()),
        ),
        declare("Row", layout=Implicit({0: "n c h w", ~0: "n c h w"}, squeezable=("h",)), axes="n h w c -> n h w c"),
    )
}


def bind_model(model: ModelBuilder, handlers: Mapping[str, Handler] = HANDLERS) -> BoundModel:
    target = TARGETS["generic"]
    return resolve(Host(packs="builtin", handlers=handlers).bind(read(model.build()), target, 18), target, 18)


def add_operator(g: GraphBuilder, code: str, x: int, name: str, shape: tuple[int, ...] = SHAPE) -> int:
    y = g.tensor(name, shape)
    g.operator(f"CUSTOM.{code}", [x], [y])
    return y


def chain(*codes: str, shape: tuple[int, ...] = SHAPE) -> BoundModel:
    """Return a chain of operators on ``x``; their results are ``a``, ``b``, ..."""
    model = ModelBuilder()
    g = model.main
    tensor: int = g.input("x", shape)
    for k, code in enumerate(codes):
        tensor = add_operator(g, code, tensor, chr(ord("a") + k), shape)
    g.output(tensor)
    return bind_model(model)


def make_plan(
    model: BoundModel, *, channels_first: str = "", free_layout: str = "", prices: Any = None, local: bool = False
) -> LayoutPlan:
    """Return the layout plan of a model.

    ``channels_first`` lists the graph inputs and outputs that are channels first, ``free_layout`` those without a required
    layout; each name is one letter.
    """
    tensors = {tensor.name: tensor for tensor in (*model.main.inputs, *model.main.outputs)}
    interface = InterfaceLayouts(
        {tensors[name]: layout_of_permutation(tensors[name].dims, CHANNELS_FIRST) for name in channels_first},
        frozenset(tensors[name] for name in free_layout),
    )
    return plan_layout(
        model,
        bytes_of=tensor_bytes,
        prices=prices or (lambda axis_price, is_innermost, size: 0),
        interface=interface,
        local=local,
    )


def transposed_tensors(plan: LayoutPlan) -> list[tuple[str, str, list[str]]]:
    """Return name, producer and consumers of each transposed tensor."""
    return [
        (
            transpose.tensor.name,
            first_words(transpose.producer),
            [first_words(consumer) for consumer in transpose.consumers],
        )
        for transpose in plan.transposes
    ]


def first_words(label: str) -> str:
    return " ".join(label.split()[:2])


def test_transpose_costs_bytes_and_a_constant() -> None:
    plan = make_plan(chain("Image"))
    assert transposed_tensors(plan) == [("x", "graph input", ["op 0"]), ("a", "op 0", ["graph output"])]
    assert [(transpose.bytes, transpose.start, transpose.end) for transpose in plan.transposes] == [
        (BYTES, source_layout(SHAPE), layout_of_permutation(SHAPE, CHANNELS_FIRST)),
        (BYTES, layout_of_permutation(SHAPE, CHANNELS_FIRST), source_layout(SHAPE)),
    ]
    assert (plan.cost, plan.exact, plan.differences) == (2 * COPY_COST, True, 0)


def test_consumers_of_one_layout_share_a_transpose() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", SHAPE)
    g.output(*(add_operator(g, code, x, name) for code, name in (("Image", "a"), ("SourceOnly", "b"), ("Image", "c"))))
    plan = make_plan(bind_model(model))
    assert transposed_tensors(plan)[0] == ("x", "graph input", ["op 0", "op 2"])
    assert plan.cost == 3 * COPY_COST


@pytest.mark.parametrize("exact", [True, False])
def test_plan_is_exact_if_the_solution_is(monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    solve = solver.solve
    monkeypatch.setattr(solver, "solve", lambda problem: solve(problem)._replace(exact=exact))
    assert make_plan(chain("Image", "Transparent")).exact is exact


@pytest.mark.parametrize(
    ("codes", "local", "differences", "cost"),
    [
        (("Image", "Transparent", "Image"), False, 1, 2),
        (("Image", "Transparent", "Image"), True, 0, 4),
        (("Image", "Transparent", "Transparent", "Image"), False, 2, 2),
        (("Image", "SourceOnly", "Image"), False, 0, 4),
        (("Transparent", "SourceOnly"), False, 0, 0),
    ],
)
def test_transparent_operators_follow_neighbors_except_in_local_plan(
    codes: tuple[str, ...], local: bool, differences: int, cost: int
) -> None:
    model = chain(*codes)
    plan = make_plan(model, local=local)
    assert (plan.differences, plan.cost, len(plan.transposes)) == (differences, cost * COPY_COST, cost)
    assert (plan.exact, plan.method == "local") == (not local, local)
    for operator in model.operators():
        layout = plan.layout(operator, 0)
        assert layout == plan.layout(operator, ~0)
        is_channels_first = "Image" in operator.op.code or ("Transparent" in operator.op.code and differences > 0)
        assert layout == (layout_of_permutation(SHAPE, CHANNELS_FIRST) if is_channels_first else source_layout(SHAPE))


def test_requested_interface_layout_is_used() -> None:
    model = chain("Image", "Transparent", "SourceOnly")
    x, y = *model.main.inputs, *model.main.outputs
    plan = make_plan(model, channels_first="xc")
    assert (plan.interface_layout(x), plan.interface_layout(y)) == (
        layout_of_permutation(SHAPE, CHANNELS_FIRST),
        layout_of_permutation(SHAPE, CHANNELS_FIRST),
    )
    assert [name for name, *_ in transposed_tensors(plan)] in (["a", "c"], ["b", "c"])
    assert plan.differences == (transposed_tensors(plan)[0][0] == "b")


def test_free_interface_layout_is_the_cheapest() -> None:
    model = chain("Image", "SourceOnly", "Image")
    x, y = *model.main.inputs, *model.main.outputs
    plan = make_plan(model, free_layout="xc")
    assert (plan.interface_layout(x), plan.interface_layout(y)) == (
        layout_of_permutation(SHAPE, CHANNELS_FIRST),
        layout_of_permutation(SHAPE, CHANNELS_FIRST),
    )
    assert (plan.cost, plan.differences) == (2 * COPY_COST, 2)
    plan = make_plan(chain("SourceOnly", "Image"), free_layout="xb")
    assert transposed_tensors(plan) == [("a", "op 0", ["op 1"])]
    assert plan.differences == 1


def test_transposes_of_free_graph_inputs_and_outputs_are_named() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", SHAPE)
    g.output(add_operator(g, "Image", x, "a"), add_operator(g, "SourceOnly", x, "b"))
    assert transposed_tensors(make_plan(bind_model(model), free_layout="xab")) == [("x", "graph input", ["op 0"])]


def test_transposes_in_loops_count_per_assumed_iteration() -> None:
    model = ModelBuilder()
    cond, body = model.subgraph("cond"), model.subgraph("body")
    below = cond.tensor("below", (), "bool")
    minimum = cond.tensor("least", ())
    axes = cond.constant("axes", np.arange(4, dtype=np.int32))
    cond.operator("REDUCE_MIN", [cond.input("condition input", SHAPE), axes], [minimum])
    cond.operator("LESS", [minimum, cond.constant("most", np.float32(5))], [below])
    cond.output(below)
    body.output(
        add_operator(
            body,
            "SourceOnly",
            add_operator(body, "Image", add_operator(body, "SourceOnly", body.input("body input", SHAPE), "a"), "b"),
            "c",
        )
    )
    g = model.main
    y = g.tensor("y", SHAPE)
    g.operator("WHILE", [g.input("x", SHAPE)], [y], {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    g.output(add_operator(g, "SourceOnly", add_operator(g, "Image", y, "d"), "e"))
    assert make_plan(bind_model(model)).cost == 2 * COPY_COST + 2 * LOOP_ITERATIONS * COPY_COST


def test_unit_axes_are_kept_if_removing_them_saves_nothing() -> None:
    image = chain("Image", shape=(2, 1, 1, 3))
    assert (make_plan(image).cost, make_plan(image).transposes) == (2 * RESHAPE_COST, ())
    row_plan = make_plan(chain("Row", shape=(2, 1, 7, 3)))
    assert len(row_plan.transposes) == 2
    assert row_plan.differences == 1
    assert row_plan.cost == 2 * (4 * 42 + TRANSPOSE_COST + RESHAPE_COST)


@pytest.mark.parametrize(
    ("code", "shape", "expected"),
    [
        ("PricedRows", (2, 5, 7, 3), {False}),
        ("PricedRows", (2, 5, 1, 3), {False, True}),  # channels first, rows are innermost
        ("PricedImage", (2, 5, 7, 3), {False, True}),
        ("PricedImage", (2, 5, 1, 3), {False, True}),
        ("PricedImage", (2, 5, 7, 1), {True}),
        ("PricedAbsentSlot", (2, 5, 7, 3), set()),
    ],
)
def test_price_depends_on_whether_the_declared_axes_are_innermost(
    code: str, shape: tuple[int, ...], expected: set[bool]
) -> None:
    """Axes of size 1 do not count."""
    requests: list[tuple[str, bool, int]] = []

    def prices(axis_price: AxisPrice, is_innermost: bool, size: int) -> int:
        requests.append((axis_price.price_key, is_innermost, size))
        return 1

    make_plan(chain("Image", code, "Image", shape=shape), prices=prices)
    assert {is_innermost for _, is_innermost, _ in requests} == expected
    assert {(onnx, size) for onnx, _, size in requests} == ({("Own", 4 * prod(shape))} if expected else set())


@pytest.mark.parametrize(("price", "cost", "saving"), [(0, 2, 0), (1, 2, 0), (3, 4, 3)])
def test_expensive_layout_is_avoided_and_reported(price: int, cost: int, saving: int) -> None:
    def prices(axis_price: AxisPrice, is_innermost: bool, size: int) -> int:
        return price * COPY_COST if is_innermost else 0

    plan = make_plan(chain("Image", "PricedImage", "Transparent", "Image"), prices=prices)
    assert plan.cost == cost * COPY_COST + (price * COPY_COST if cost == 2 else 0)
    assert [(first_words(label), bytes_saved) for label, bytes_saved in plan.chosen_for_speed] == (
        [("op 1", saving * COPY_COST)] if saving else []
    )


def test_all_handlers_with_misfitting_axes_are_reported() -> None:
    """A defect of the file is reported as well."""
    handlers = {
        "CUSTOM.Transparent": declare("Transparent", layout=Transparent(), axes="a b -> a b"),
        "CUSTOM.Image": declare("Image", layout=Implicit({0: "a c"}), axes=lambda at: "a b c d -> a b c d"),
    }
    model = ModelBuilder()
    g = model.main
    g.output(add_operator(g, "Image", add_operator(g, "Transparent", g.input("x", SHAPE), "a"), "b"))
    with pytest.raises(HandlerError) as caught:
        make_plan(bind_model(model, handlers))
    assert [problem.where.split()[1] for problem in caught.value.problems] == ["0", "1"]


@pytest.mark.parametrize("dtype", [name for name in NAMES if name not in {*PACKED, "string", "resource", "variant"}])
def test_tensor_bytes_are_elements_times_item_size(dtype: str) -> None:
    sizes = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
    size = sizes.get(dtype) or np.dtype(dtype).itemsize
    assert tensor_bytes(Tensor(0, 0, "x", dtype, (2, 5, 7), (2, 5, 7), None, None, False)) == 70 * size
    assert tensor_bytes(Tensor(0, 0, "x", dtype, (2, 1), (2, None), None, None, False)) == 2 * size
