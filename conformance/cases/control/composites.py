"""STABLEHLO_COMPOSITE: its decomposition is inlined, or called as a function.

A decomposition is called if its inputs or outputs differ from the operands or results of the composite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import Case
from conformance.models import Net, Spec, constant, net, random_array, tensor

OP = "STABLEHLO_COMPOSITE"
IMAGE = (2, 5, 7, 3)
Body = Callable[[GraphBuilder, list[TensorRef]], list[TensorRef]]


def cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16", "int32"):
        x = tensor(*IMAGE, dtype=dtype)
        yield composite_case(f"{dtype}, sum", [x, x], [x], add_operands, dtype=dtype)
    yield net(OP, "int8 between convolutions", composite_between_convs, dtype="int8", max_transposes=2)
    yield net(OP, "two calls of one decomposition", two_calls)
    yield net(OP, "nested", nested_composite)
    x, y = tensor(2, 3), tensor(3)
    yield composite_case("two results", [x, y], [x, x], lambda body, v: [*add_operands(body, v), negate(body, v[0])])
    yield composite_case("constant operand", [x, constant(random_array(3))], [x], add_operands)
    yield composite_case("operand as result", [x, y], [x, x], lambda body, v: [v[0], *add_operands(body, v)])
    yield composite_case(
        "constant result",
        [x, y],
        [x, x],
        lambda body, v: [body.constant("fixed", random_array(2, 3)), *add_operands(body, v)],
    )
    yield composite_case("dynamic shape", [tensor(None, 3), y], [tensor(None, 3)], add_operands)
    yield composite_case("decomposition of dynamic shape", [x, y], [x], add_operands, inner_specs=[tensor(None, 3), y])
    yield composite_case("unused operand", [x, y], [x], lambda body, v: [negate(body, v[0])])


def negate(body: GraphBuilder, x: TensorRef) -> TensorRef:
    y = body.tensor("negated", x.shape, x.dtype)
    body.operator("NEG", [x], [y])
    return y


def add_operands(body: GraphBuilder, values: list[TensorRef]) -> list[TensorRef]:
    """Add the two operands; the result is like the first."""
    fields = body.tensors[values[0]].fields
    y = body.tensor(
        "sum",
        values[0].shape,
        values[0].dtype,
        quantization=fields["quantization"],
        signature=fields["shape_signature"],
    )
    body.operator("ADD", values, [y])
    return [y]


def add_decomposition(model: Net, specs: list[Spec], body: Body) -> int:
    """Add a decomposition; return the index of its subgraph."""
    graph = model.model.subgraph("decomposition")
    values = [
        graph.input(f"v{k}", spec.shape, spec.dtype, quantization=spec.quantization) for k, spec in enumerate(specs)
    ]
    graph.output(*body(graph, values))
    return graph.index


def call_composite(model: Net, index: int, refs: list[TensorRef], outputs: list[Spec]) -> list[TensorRef]:
    results = [model.result(spec) for spec in outputs]
    options = {"decomposition_subgraph_index": index, "composite_attributes": {"epsilon": 1e-6, "axes": [1, 2]}}
    model.graph.operator("COMPOSITE.test.thing", refs, results, options)
    return results


def composite_case(
    name: str,
    specs: list[Spec],
    outputs: list[Spec],
    body: Body,
    *,
    inner_specs: list[Spec] | None = None,
    dtype: str = "float32",
) -> Case:
    """Return a case of one composite.

    ``inner_specs``: inputs of the decomposition, by default like ``specs``.
    """

    def build(model: Net) -> None:
        index = add_decomposition(model, inner_specs or specs, body)
        model.output(*call_composite(model, index, [model.add_operand(spec) for spec in specs], outputs))

    return net(OP, name, build, dtype=dtype)


def composite_between_convs(model: Net) -> None:
    """Build a composite between convolutions.

    The composite is inlined, and so needs no Transpose and no DequantizeLinear.
    """
    x = tensor(*IMAGE, dtype="int8")
    index = add_decomposition(model, [x, x], add_operands)
    ref = model.input_through_conv(x)
    model.output(model.output_through_conv(call_composite(model, index, [ref, ref], [x])[0]))


def two_calls(model: Net) -> None:
    """Build two calls of one decomposition, whose tensor names must not collide."""
    x = tensor(2, 3)
    index = add_decomposition(model, [x, x], add_operands)
    ref = model.input(x)
    (y,) = call_composite(model, index, [ref, ref], [x])
    model.output(*call_composite(model, index, [y, ref], [x]))


def nested_composite(model: Net) -> None:
    """Build a composite whose decomposition contains another composite."""
    x = tensor(2, 3)
    innermost = add_decomposition(model, [x, x], add_operands)

    def body(graph: GraphBuilder, values: list[TensorRef]) -> list[TensorRef]:
        y = graph.tensor("inner", (2, 3))
        graph.operator(
            "COMPOSITE.test.inner",
            [values[0], graph.constant("one", np.ones((2, 3), np.float32))],
            [y],
            {"decomposition_subgraph_index": innermost, "composite_attributes": {"depth": 2}},
        )
        return add_operands(graph, [y, values[1]])

    index = add_decomposition(model, [x, x], body)
    model.output(*call_composite(model, index, [model.input(x), model.input(x)], [x]))
