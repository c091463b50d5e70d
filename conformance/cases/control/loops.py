"""WHILE: iterations, carried values, changing shapes, layouts, states, nesting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from conformance.builder import GraphBuilder, TensorRef, quant
from conformance.case import Case
from conformance.cases.sequence.rnn_states import STATE, scale_into, weights
from conformance.cases.state.variables import Variable, VariableNet, with_variables
from conformance.models import Net, Spec, constant, net, random_array, tensor

PLAN = tensor(5, dtype="bool", name="plan")  # True for each iteration to run
RESET = {"state": "reset"}
PLANS = [{"plan": np.array([True] * k + [False] * (5 - k))} for k in (2, 0, 5, 1)]


def cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int32"):
        yield loop_case(f"{dtype}, cumulative sum", [tensor(2, 3, dtype=dtype)], double, dtype=dtype)
    x = tensor(2, 3)
    yield loop_case("unchanged values, captured by the body", [x, tensor(3), tensor(2, 1)], read_unchanged_values)
    yield loop_case("rotated values", [x, x, x], rotate_and_negate)
    yield loop_case("shifted values", [x, x, x], shift_values)
    yield loop_case(
        "unused carried value",
        [x, tensor(4)],
        lambda body, values: [add(body, values[0], values[0]), values[1]],
    )
    yield loop_case(
        "value replaced by a constant",
        [x],
        lambda body, values: [body.constant("fixed", random_array(2, 3))],
    )
    yield loop_case("value of growing shape", [tensor(1, 3)], append_rows, results=[tensor(None, 3)])
    yield net("WHILE", "scalar of unknown rank", unranked_before_loop, input_arrays=PLANS)
    yield net("WHILE", "image between convolutions", image_loop, input_arrays=PLANS, max_transposes=2)
    for dtype in ("float32", "int8"):
        build = partial(filter_in_loop, dtype)
        yield net(
            "WHILE", f"{dtype}, convolution in the body", build, dtype=dtype, input_arrays=PLANS, max_transposes=2
        )
    yield net("WHILE", "swapped images", swap_images, input_arrays=PLANS, max_transposes=4)
    yield net("WHILE", "variable assigned in the body", count_in_body, input_arrays=PLANS)
    yield net(
        "WHILE", "variable assigned in the body, reset in every run", count_in_body, input_arrays=PLANS, options=RESET
    )
    yield net("WHILE", "carried variable handle", variable_handle_carried, input_arrays=PLANS)
    yield net("WHILE", "variable only in the body", variable_only_in_body, input_arrays=PLANS)
    yield net("WHILE", "recurrent layer used only for its state", rnn_state_in_body, input_arrays=PLANS)
    yield net(
        "WHILE", "recurrent layer in the body, state from an operator", rnn_with_computed_state, input_arrays=PLANS
    )
    yield net("WHILE", "nested", nested_loops, input_arrays=PLANS[:2])
    start_runs = [{"n": np.float32(n)} for n in (0, 5, 20)]
    yield net("WHILE", "loop in the condition", partial(loop_in_condition, 1), input_arrays=start_runs)
    yield net("WHILE", "nested loops in conditions", partial(loop_in_condition, 2), input_arrays=start_runs)
    yield net("WHILE", "variable assigned in condition and body", count_condition_and_body, input_arrays=start_runs)


Body = Callable[[GraphBuilder, Sequence[TensorRef]], Sequence[TensorRef]]


def tensor_like(graph: GraphBuilder, ref: TensorRef, name: str) -> TensorRef:
    """Return a tensor with the shape, dtype and quantization of another one."""
    fields = graph.tensors[ref].fields
    return graph.tensor(
        name, ref.shape, ref.dtype, quantization=fields["quantization"], signature=fields["shape_signature"]
    )


def call_like(
    graph: GraphBuilder, code: str, inputs: Sequence[TensorRef], template: TensorRef, **options: object
) -> TensorRef:
    y = tensor_like(graph, template, f"{code}{len(graph.tensors)}")
    graph.operator(code, inputs, [y], options)
    return y


def add(graph: GraphBuilder, a: TensorRef, b: TensorRef) -> TensorRef:
    return call_like(graph, "ADD", [a, b], a)


def loop(
    model: Net,
    refs: Sequence[TensorRef],
    specs: Sequence[Spec],
    body: Body,
    results: Sequence[Spec] | None = None,
    plan: TensorRef | None = None,
) -> list[TensorRef]:
    """Add a WHILE whose number of iterations depends on a boolean vector, the plan.

    The plan is the first carried value. The loop ends if its first entry is False, and each iteration drops that entry.

    ``results``: specs of the carried values if their shapes change.
    """
    carried = [PLAN, *(results or specs)]
    cond_graph, body_graph = model.model.subgraph("cond"), model.model.subgraph("body")
    plan_in_condition, *_ = loop_inputs(cond_graph, carried)
    continues = cond_graph.tensor("go on", (), "bool")
    slice_operands = [cond_graph.constant(name, [value]) for name, value in (("begin", 0), ("end", 1), ("stride", 1))]
    cond_graph.operator("STRIDED_SLICE", [plan_in_condition, *slice_operands], [continues], {"shrink_axis_mask": 1})
    cond_graph.output(continues)
    plan_in_body, *values = loop_inputs(body_graph, carried)
    body_graph.output(drop_first_entry(body_graph, plan_in_body), *body(body_graph, values))
    plan = model.input(PLAN) if plan is None else plan
    outputs = [model.result(Spec(spec.shape, spec.dtype, spec.scale, spec.zero_point)) for spec in carried]
    options = {"cond_subgraph_index": cond_graph.index, "body_subgraph_index": body_graph.index}
    model.graph.operator("WHILE", [plan, *refs], outputs, options)
    return outputs[1:]


def loop_inputs(graph: GraphBuilder, carried: Sequence[Spec]) -> list[TensorRef]:
    """Add the carried values as inputs of the subgraph."""
    return [
        graph.input(f"v{k}", spec.shape, spec.dtype, quantization=spec.quantization) for k, spec in enumerate(carried)
    ]


def drop_first_entry(graph: GraphBuilder, plan: TensorRef) -> TensorRef:
    """Return the plan without its first entry, padded with False at the end."""
    remaining = graph.tensor("remaining", (4,), "bool")
    begin, end, stride = (graph.constant(name, [value]) for name, value in (("from", 1), ("to", 5), ("by", 1)))
    graph.operator("STRIDED_SLICE", [plan, begin, end, stride], [remaining])
    padded = graph.tensor("next", (5,), "bool")
    graph.operator("CONCATENATION", [remaining, graph.constant("stop", np.array([False]))], [padded], {"axis": 0})
    return padded


def loop_case(
    name: str, specs: Sequence[Spec], body: Body, results: Sequence[Spec] | None = None, **case_fields: object
) -> Case:
    def build(model: Net) -> None:
        refs = [model.input(spec) for spec in specs]
        model.output(*loop(model, refs, specs, body, results))

    return net("WHILE", name, build, **{"input_arrays": PLANS, **case_fields})


def double(body: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    return [add(body, values[0], values[0])]


def read_unchanged_values(body: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    x, row, column = values
    return [call_like(body, "MUL", [call_like(body, "ADD", [x, row], x), column], x), row, column]


def rotate_and_negate(body: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    a, b, c = values
    return [call_like(body, "NEG", [value], value) for value in (b, c, a)]


def shift_values(body: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    """Return ``(a + b, a, b)`` for the carried values ``(a, b, c)``.

    A kernel that copies the results in order overwrites values that it has yet to copy.
    """
    a, b, _ = values
    return [add(body, a, b), a, b]


def append_rows(body: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    longer = body.tensor("longer", (None, 3))
    body.operator("CONCATENATION", [values[0], values[0]], [longer], {"axis": 0})
    return [longer]


def unranked_before_loop(model: Net) -> None:
    """Build a loop that carries a scalar; only the loop's graphs store its rank."""
    x, scalar = tensor(2, 3), tensor()
    unranked = model.graph.tensor("scalar", None)
    model.graph.operator(
        "RESHAPE", [model.input(tensor(1)), model.add_operand(constant(np.zeros(0, np.int32)))], [unranked]
    )

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        return [call_like(graph, "ADD", values, values[0]), values[1]]

    model.output(*loop(model, [model.input(x), unranked], [x, scalar], body))


def image_loop(model: Net) -> None:
    """Build a loop that carries an image.

    The loop should use the layout of the convolutions around it.
    """
    spec = tensor(2, 5, 7, 3)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        row = graph.constant("row", random_array(7, 1))
        return [call_like(graph, "ADD", [values[0], row], values[0])]

    (result,) = loop(model, [model.input_through_conv(spec)], [spec], body)
    model.output(model.output_through_conv(result))


def filter_in_loop(dtype: str, model: Net) -> None:
    """Build a loop of convolutions.

    The carried image should have the layout of the convolution.
    """
    spec = tensor(2, 5, 7, 3, dtype=dtype)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        weights = random_array(3, 1, 1, 3, dtype=dtype, seed="filter", low=-0.5, high=0.5)
        if dtype == "int8":
            weights = random_array(3, 1, 1, 3, dtype=dtype, seed="filter", low=-127, high=127)
        kernel = graph.constant("filter", weights, quantization=quant(0.004) if dtype == "int8" else None)
        strides = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
        bias = graph.constant("bias", np.zeros(3, "int32" if dtype == "int8" else "float32"))
        return [call_like(graph, "CONV_2D", [values[0], kernel, bias], values[0], **strides)]

    (result,) = loop(model, [model.input(spec)], [spec], body)
    model.output(result)


def swap_images(model: Net) -> None:
    """Build a loop that swaps two images, one of them from a convolution.

    Both images should have the same layout.
    """
    spec = tensor(2, 5, 7, 3)
    refs = [model.input_through_conv(spec), model.input(spec)]
    sum_image, copied_image = loop(model, refs, [spec, spec], lambda graph, values: [add(graph, *values), values[0]])
    model.output(model.output_through_conv(sum_image), model.output_through_conv(copied_image))


def add_to_variable(graph: GraphBuilder, handle: TensorRef, value: TensorRef) -> None:
    """Add a value to a variable."""
    total = tensor_like(graph, value, "old value")
    graph.operator("READ_VARIABLE", [handle], [total])
    graph.operator("ASSIGN_VARIABLE", [handle, add(graph, total, value)], [])


@with_variables
def count_in_body(model: VariableNet) -> None:
    """Build a body that adds to a variable, whose value is kept for the next run.

    The variable is also read after the loop.
    """
    spec = tensor(3)
    state = model.variable(spec, np.zeros(3))
    before = model.read(state, spec)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        add_to_variable(graph, Variable(graph).handle, values[0])
        return [values[0]]

    (result,) = loop(model, [model.input(spec)], [spec], body)
    model.output(before, result, model.read(state, spec))


def variable_only_in_body(model: Net) -> None:
    """Build a body that assigns a variable and reads it; nothing else uses it."""
    spec = tensor(3)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        handle = Variable(graph).handle
        graph.operator("ASSIGN_VARIABLE", [handle, add(graph, values[0], values[0])], [])
        y = tensor_like(graph, values[0], "value read")
        graph.operator("READ_VARIABLE", [handle], [y])
        return [y]

    model.output(*loop(model, [model.input(spec)], [spec], body))


def rnn_state_in_body(model: Net) -> None:
    """Build an RNN whose result is unused; only its state has an effect."""
    spec = tensor(3, 5)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        (x,) = values
        weights, recurrent = (graph.constant(name, 0.3 * random_array(5, 5, seed=name)) for name in ("x", "h"))
        state = graph.tensor("hidden", (3, 5), variable=True)
        operands = [x, weights, recurrent, graph.constant("bias", random_array(5, seed="bias")), state]
        call_like(graph, "RNN", operands, x, fused_activation_function="TANH")
        return [add(graph, x, state)]

    model.output(*loop(model, [model.input(spec)], [spec], body))


def rnn_with_computed_state(model: Net) -> None:
    """Build a body that computes a state, which only an RNN reads."""

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        (x,) = values
        state = graph.tensor("hidden", STATE.shape, variable=True)
        scale_into(graph, x, state)
        y = graph.tensor("y", STATE.shape)
        graph.operator("RNN", [x, *weights(graph, 5), state], [y], {"fused_activation_function": "TANH"})
        return [y]

    model.output(*loop(model, [model.input(STATE)], [STATE], body))


@with_variables
def variable_handle_carried(model: VariableNet) -> None:
    """Build a loop that carries the handle of a variable, as TensorFlow writes it."""
    spec = tensor(3)
    state = model.variable(spec, np.zeros(3))

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        handle, x = values
        add_to_variable(graph, handle, x)
        return [handle, x]

    _, result = loop(model, [state.handle, model.input(spec)], [Spec((1,), "resource"), spec], body)
    model.output(result, model.read(state, spec))


def nested_loops(model: Net) -> None:
    """Build a loop whose body is a loop of two iterations."""
    spec = tensor(2, 3)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        x, plan = values
        inner_net = Net()
        inner_net.model, inner_net.graph = model.model, graph
        (inner_result,) = loop(inner_net, [x], [spec], double, plan=plan)
        return [inner_result, plan]

    inner_plan = Spec((5,), "bool", name="inner")
    refs = [model.input(spec), model.add_operand(constant(np.array([True, True, False, False, False])))]
    result, _ = loop(model, refs, [spec, inner_plan], body)
    model.output(result)


def loop_in_condition(depth: int, model: Net) -> None:
    """Build a loop whose condition runs an inner loop.

    Each iteration adds 1 to n and doubles x. The condition passes n to an inner loop, and requires that its result is
    below 12.5. The innermost loop adds 3 until the result is 10 or more.

    ``depth``: the number of loops nested in conditions.
    """
    specs = [tensor(name="n"), tensor(2, 3)]
    subgraphs = add_counting_subgraphs(model, specs, 1.0, depth)
    results = [model.result(Spec(spec.shape)) for spec in specs]
    model.graph.operator("WHILE", [model.input(spec) for spec in specs], results, subgraphs)
    model.output(*results)


def add_counting_subgraphs(
    model: Net, specs: Sequence[Spec], step: float, depth: int, adds_to_variable: bool = False
) -> dict[str, int]:
    """Add the condition and body of a loop that counts; return the options of WHILE.

    Each iteration adds ``step`` to the counter and doubles the other carried values.

    ``adds_to_variable``: condition and body add the counter to a variable.
    """
    cond, body = model.model.subgraph(f"cond{depth}"), model.model.subgraph(f"body{depth}")
    counter, *_ = loop_inputs(cond, specs)
    if adds_to_variable:
        add_to_variable(cond, Variable(cond).handle, counter)
    if depth:
        inner_result = tensor_like(cond, counter, "inner result")
        cond.operator("WHILE", [counter], [inner_result], add_counting_subgraphs(model, specs[:1], 3.0, depth - 1))
        counter = inner_result
    continues, end = cond.tensor("more", (), "bool"), cond.constant("end", np.float32(12.5 if depth else 10))
    cond.operator("LESS", [counter, end], [continues])
    cond.output(continues)
    counter, *values = loop_inputs(body, specs)
    if adds_to_variable:
        add_to_variable(body, Variable(body).handle, counter)
    next_counter = add(body, counter, body.constant("step", np.float32(step)))
    body.output(next_counter, *(add(body, value, value) for value in values))
    return {"cond_subgraph_index": cond.index, "body_subgraph_index": body.index}


@with_variables
def count_condition_and_body(model: VariableNet) -> None:
    """Build a loop whose condition and body add its counter to a variable.

    Any additional evaluation of the condition would change the variable.
    """
    spec = tensor(name="n")
    state = model.variable(Spec(()), np.float32(0))
    before = model.read(state, Spec(()))
    subgraphs, result = add_counting_subgraphs(model, [spec], 1.0, 1, adds_to_variable=True), model.result(Spec(()))
    model.graph.operator("WHILE", [model.input(spec)], [result], subgraphs)
    model.output(before, result, model.read(state, Spec(())))
