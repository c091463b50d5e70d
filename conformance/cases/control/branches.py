"""IF and STABLEHLO_CASE: passed values, different shapes, states, nesting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.cases.control.loops import (
    add_to_variable,
    append_rows,
    call_like,
    double,
    loop,
    loop_inputs,
    tensor_like,
)
from conformance.cases.state.variables import Variable, VariableNet, with_variables
from conformance.lstms import STEP, Lstm
from conformance.models import Net, Spec, constant, net, random_array, tensor

Branch = Callable[[GraphBuilder, Sequence[TensorRef]], Sequence[TensorRef]]
CONDITION = Spec((), "bool", name="condition")
INDEX = Spec((), "int32", name="index")
CONDITION_RUNS = [{"condition": np.array(condition)} for condition in (True, False, False, True)]
INDEX_RUNS = [{"index": np.array(index, np.int32)} for index in (0, 1, 2, 3, -1, 1)]
X = tensor(2, 3)


def cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16", "int32", "int64", "bool"):
        yield if_case(
            f"{dtype}, identity or sum",
            [tensor(2, 3, dtype=dtype)],
            [pass_through, arithmetic_branch(dtype)],
            dtype=dtype,
        )
    yield if_case("float32, condition of rank 1", [X], [double, negate], selector=Spec((1,), "bool", name="condition"))
    yield if_case("every opset", [X], [double, negate], opsets=EVERY_OPSET)
    yield from shared_cases("IF", if_case, 2)
    for dtype in ("float32", "int8", "uint8", "int16", "int32", "int64"):
        yield switch_case(
            f"{dtype}, three branches",
            [tensor(2, 3, dtype=dtype)],
            [pass_through, arithmetic_branch(dtype), quadruple],
            dtype=dtype,
        )
    yield switch_case("every opset", [X], [double, negate, pass_through], opsets=EVERY_OPSET)
    yield switch_case("single branch", [X], [double])
    yield switch_case("index of rank 1", [X], [double, negate], selector=Spec((1,), "int32", name="index"))
    yield from shared_cases("STABLEHLO_CASE", switch_case, 3)
    yield switch_case(
        "int8, different quantization parameters inside",
        [tensor(2, 3, dtype="int8")],
        [rescale, pass_through],
        dtype="int8",
        refusal="different quantization parameters inside and outside",
    )


def shared_cases(op: str, make_case: Callable[..., Case], branch_count: int) -> Iterator[Case]:
    """Yield the cases that IF and STABLEHLO_CASE share.

    ``branch_count``: number of branches.
    """
    doubling_branches: list[Branch] = [double] * (branch_count - 1)
    yield make_case("swapped results", [X, X], [negate_and_swap, *[pass_through] * (branch_count - 1)])
    yield make_case(
        "unused operand in one branch",
        [X, tensor(2, 3)],
        [double_first, *[negate_second] * (branch_count - 1)],
        results=[X],
    )
    yield make_case("constant branch", [X], [fixed_value, *doubling_branches])
    yield make_case(
        "different shape in each branch",
        [tensor(1, 3)],
        [append_rows, *[pass_through] * (branch_count - 1)],
        results=[tensor(None, 3)],
    )
    yield net(op, "image between convolutions", image_branches(op, branch_count), max_transposes=2, **runs_of(op))
    yield net(op, "convolution in a branch", conv_branches(op, branch_count, "float32"), **runs_of(op))
    yield net(op, "int8 convolution in a branch", conv_branches(op, branch_count, "int8"), dtype="int8", **runs_of(op))
    if op == "IF":
        yield net(op, "nested", nested(op, branch_count), **runs_of(op))
        yield net(
            op, "variable assigned in a branch without results", assign_in_branch(op, branch_count, 0), **runs_of(op)
        )
    # The kernel of STABLEHLO_CASE treats every subgraph of the file as a branch, even the one that contains it.
    refused_by_kernel = {"kernel_refusal": "num_inputs != subgraph->inputs().size()"} if op == "STABLEHLO_CASE" else {}
    yield net(
        op, "variable assigned in one branch", assign_in_branch(op, branch_count), **runs_of(op), **refused_by_kernel
    )
    reset = {"options": {"state": "reset"}}
    yield net(
        op,
        "variable assigned in one branch, reset in every run",
        assign_in_branch(op, branch_count),
        **runs_of(op),
        **refused_by_kernel,
        **reset,
    )
    yield net(op, "loop in a branch", loop_in_branch(op, branch_count), **runs_of(op), **refused_by_kernel)
    yield net(op, "operator inside a loop", branch_in_loop(op, branch_count), **runs_of(op), **refused_by_kernel)
    yield net(op, "stateful cell in a branch", stateful_cell(op, branch_count), **runs_of(op))


# --- operators with their branches ------------------------------------------------------------


def runs_of(op: str) -> dict[str, Any]:
    runs = CONDITION_RUNS if op == "IF" else INDEX_RUNS
    return {"input_arrays": runs, "runs": len(runs)}


def add_branches(
    model: Net,
    op: str,
    selector: TensorRef,
    refs: Sequence[TensorRef],
    specs: Sequence[Spec],
    branches: Sequence[Branch],
    results: Sequence[Spec] | None = None,
) -> list[TensorRef]:
    """Add an operator to the current subgraph, with a subgraph per branch."""
    graphs = [model.model.subgraph(f"branch {k}") for k in range(len(branches))]
    for graph, branch in zip(graphs, branches, strict=True):
        graph.output(*branch(graph, loop_inputs(graph, specs)))
    outputs = [model.result(Spec(spec.shape, spec.dtype, spec.scale, spec.zero_point)) for spec in results or specs]
    options: dict[str, Any] = {"branch_subgraph_indices": [graph.index for graph in graphs]}
    if op == "IF":
        options = {"then_subgraph_index": graphs[0].index, "else_subgraph_index": graphs[1].index}
    model.graph.operator(op, [selector, *refs], outputs, options)
    return outputs


def selector_spec(op: str) -> Spec:
    return CONDITION if op == "IF" else INDEX


def branch_case(
    op: str,
    name: str,
    specs: Sequence[Spec],
    branches: Sequence[Branch],
    results: Sequence[Spec] | None = None,
    selector: Spec | None = None,
    **case_fields: Any,
) -> Case:
    """Return a case of one operator, with runs that select each branch.

    ``specs``: operands of the branches. ``results``: by default like ``specs``. ``selector``: by default a scalar.
    """
    selector_input = selector or selector_spec(op)

    def build(model: Net) -> None:
        selector_ref = model.input(selector_input)
        model.output(
            *add_branches(model, op, selector_ref, [model.input(spec) for spec in specs], specs, branches, results)
        )

    runs = runs_of(op)
    runs["input_arrays"] = [
        {key: value.reshape(selector_input.shape) for key, value in run.items()} for run in runs["input_arrays"]
    ]
    return net(op, name, build, **{**runs, **case_fields})


def if_case(name: str, specs: Sequence[Spec], branches: Sequence[Branch], **case_fields: Any) -> Case:
    return branch_case("IF", name, specs, branches, **case_fields)


def switch_case(name: str, specs: Sequence[Spec], branches: Sequence[Branch], **case_fields: Any) -> Case:
    return branch_case("STABLEHLO_CASE", name, specs, branches, **case_fields)


# --- branches ---------------------------------------------------------------------------------


def pass_through(_graph: GraphBuilder, values: Sequence[TensorRef]) -> Sequence[TensorRef]:
    return values


def arithmetic_branch(dtype: str) -> Branch:
    """Return a branch that doubles numbers and inverts booleans."""
    return invert if dtype == "bool" else double


def invert(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    return [call_like(graph, "LOGICAL_NOT", values, values[0])]


def negate(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    return [call_like(graph, "NEG", values, values[0])]


def quadruple(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    return double(graph, double(graph, values))


def rescale(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    spec = tensor(2, 3, dtype="int8", scale=0.1)
    y = graph.tensor("rescaled", (2, 3), "int8", quantization=spec.quantization)
    graph.operator("ADD", [values[0], values[0]], [y])
    return [y]


def negate_and_swap(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    return [call_like(graph, "NEG", [values[1]], values[1]), values[0]]


def double_first(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    return double(graph, values[:1])


def negate_second(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    return negate(graph, values[1:])


def fixed_value(graph: GraphBuilder, _values: Sequence[TensorRef]) -> list[TensorRef]:
    return [graph.constant("fixed", random_array(2, 3))]


# --- models -----------------------------------------------------------------------------------


def image_branches(op: str, branch_count: int) -> Callable[[Net], None]:
    """Return a builder of branches on an image between convolutions.

    The branches should use the layout of the convolutions.
    """
    spec = tensor(2, 5, 7, 3)

    def add_row(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        return [call_like(graph, "ADD", [values[0], graph.constant("row", random_array(7, 1))], values[0])]

    def build(model: Net) -> None:
        selector = model.input(selector_spec(op))
        (result,) = add_branches(
            model,
            op,
            selector,
            [model.input_through_conv(spec)],
            [spec],
            [add_row, *[pass_through] * (branch_count - 1)],
        )
        model.output(model.output_through_conv(result))

    return build


def conv_branches(op: str, branch_count: int, dtype: str) -> Callable[[Net], None]:
    """Return a builder of a model with a convolution in a branch."""
    spec = tensor(2, 5, 7, 3, dtype=dtype)

    def convolve(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        weights = random_array(3, 2, 2, 3, dtype=dtype, seed="w")
        quantization = constant(weights, None, None if dtype == "float32" else 0.0041).quantization
        bias = graph.constant("b", np.zeros(3, "float32" if dtype == "float32" else "int32"))
        operands = [values[0], graph.constant("w", weights, quantization=quantization), bias]
        y = tensor_like(graph, values[0], "convolved")
        graph.operator("CONV_2D", operands, [y], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
        return [y]

    def build(model: Net) -> None:
        selector, x = model.input(selector_spec(op)), model.input(spec)
        model.output(*add_branches(model, op, selector, [x], [spec], [convolve, *[pass_through] * (branch_count - 1)]))

    return build


def assign_in_branch(op: str, branch_count: int, size: int = 3) -> Callable[[Net], None]:
    """Return a builder of a model with a branch that adds to a variable.

    The variable is read before and after the operator.

    ``size``: number of elements of the branch results; with 0, only the variable shows which branch ran.
    """
    spec, result_spec = tensor(3), tensor(size)

    def add_to_state(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        add_to_variable(graph, Variable(graph).handle, values[0])
        return take_first(graph, values)

    def take_first(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        begin, sizes = (graph.constant(name, np.array([k], np.int32)) for name, k in (("begin", 0), ("size", size)))
        y = graph.tensor("shortened", (size,))
        graph.operator("SLICE", [values[0], begin, sizes], [y])
        return [y]

    @with_variables
    def build(model: VariableNet) -> None:
        state = model.variable(spec, np.zeros(3))
        selector, before = model.input(selector_spec(op)), model.read(state, spec)
        branches: list[Branch] = [
            add_to_state,
            *[lambda graph, values: take_first(graph, negate(graph, values))] * (branch_count - 1),
        ]
        (result,) = add_branches(model, op, selector, [model.input(spec)], [spec], branches, [result_spec])
        model.output(before, result, model.read(state, spec))

    return build


def nested(op: str, branch_count: int) -> Callable[[Net], None]:
    """Return a builder of nested operators with the same condition.

    All branches of the outer operator but the last contain the inner operator, whose branches differ.
    """

    def build(model: Net) -> None:
        specs = [selector_spec(op), X]

        def double_x(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
            return double(graph, values[1:])

        def nested_operator(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
            branch_net = Net()
            branch_net.model, branch_net.graph = model.model, graph
            return add_branches(
                branch_net, op, values[0], values, specs, [double_x, *[negate_second] * (branch_count - 1)], [X]
            )

        selector = model.input(specs[0])
        refs = [selector, model.input(X)]
        model.output(
            *add_branches(model, op, selector, refs, specs, [*[nested_operator] * (branch_count - 1), double_x], [X])
        )

    return build


def loop_in_branch(op: str, branch_count: int) -> Callable[[Net], None]:
    """Return a builder of a model with a loop of three iterations in the first branch."""

    def build(model: Net) -> None:
        def repeat_doubling(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
            branch_net = Net()
            branch_net.model, branch_net.graph = model.model, graph
            plan = graph.constant("plan", np.array([True, True, True, False, False]))
            return loop(branch_net, values, [X], double, plan=plan)

        selector = model.input(selector_spec(op))
        model.output(
            *add_branches(model, op, selector, [model.input(X)], [X], [repeat_doubling, *[negate] * (branch_count - 1)])
        )

    return build


def branch_in_loop(op: str, branch_count: int) -> Callable[[Net], None]:
    """Return a builder of a model with the operator in the body of a loop.

    The condition is a carried value that does not change.
    """

    def build(model: Net) -> None:
        selector = selector_spec(op)

        def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
            branch_net = Net()
            branch_net.model, branch_net.graph = model.model, graph
            (result,) = add_branches(
                branch_net, op, values[0], values[1:], [X], [double, *[negate] * (branch_count - 1)]
            )
            return [values[0], result]

        refs = [model.input(selector), model.input(X)]
        plan = model.add_operand(constant(np.array([True, True, True, False, False])))
        model.output(loop(model, refs, [selector, X], body, plan=plan)[1])

    return build


def stateful_cell(op: str, branch_count: int) -> Callable[[Net], None]:
    """Return a builder of a model with an LSTM step in a branch.

    The states of the LSTM are variable tensors.
    """

    def build(model: Net) -> None:
        spec = tensor(3, 11)

        def run_lstm(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
            branch_net = Net()
            branch_net.model, branch_net.graph = model.model, graph
            return [Lstm(op=STEP, inputs=11).call(branch_net, values[0])]

        selector = model.input(selector_spec(op))
        model.output(
            *add_branches(model, op, selector, [model.input(spec)], [spec], [run_lstm, *[negate] * (branch_count - 1)])
        )

    return build
