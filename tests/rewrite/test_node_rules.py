"""Rules that save nodes in small networks, such as Splits and Reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from conformance.builder import TensorRef
from conformance.models import Spec, constant, random_array, tensor
from conformance.weights import product, weight
from onnx_tflite_plugin.graph.value_metadata import read_tensor, write_tensor
from tests.helpers.passes_networks import BuildNetwork, Network, RewriteTrial, apply
from tests.rewrite.harness import Case, declines, graph, rule_test

# --- activations_before_split and columns_before_rows -----------------------------------------

GATES = ("LOGISTIC", "LOGISTIC", "TANH", "LOGISTIC")
PARAMETERS = {"int16": (1 / 32768, 0), "int8": (1 / 256, -128), "float32": (None, 0)}


def gates(
    operators: Sequence[str] = GATES,
    dtype: str = "int16",
    cells: int = 5,
    rows: int | None = 1,
    *,
    has_reader: bool = False,
) -> BuildNetwork:
    """Build a dense layer of several gates and one operator per gate.

    ``has_reader``: the first gate has another consumer.
    """

    def spec(op: str) -> Spec:
        scale, zero_point = (1 / 128, 0) if dtype == "int8" and op == "TANH" else PARAMETERS[dtype]
        return tensor(rows, cells, dtype=dtype, scale=scale, zero_point=zero_point)

    def build(net: Network) -> tuple[TensorRef, ...]:
        x_spec, width = tensor(rows, 7, dtype=dtype), cells * len(operators)
        w = weight((width, 7), "float32" if dtype == "float32" else "int8", None if dtype == "float32" else 0)
        sums_spec = product(x_spec, w, (rows, width), 7)
        sums, count = net.call("FULLY_CONNECTED", [net.input(x_spec), w, None], sums_spec), len(operators)
        gate_rows = net.call_multi_output(
            "SPLIT", [constant(1), sums], *[sums_spec.with_shape(rows, cells)] * count, num_splits=count
        )
        results = [net.call(op, [gate_sums], spec(op)) for op, gate_sums in zip(operators, gate_rows, strict=True)]
        return (*results, *([net.like("NEG", results[0])] if has_reader else []))

    return build


def split_graph(nodes: str, factor: Sequence[int] = ()) -> Any:
    stored = {"n": np.full(3, 5), "f": np.full(factor, 0.3, np.float32)}
    return graph(f"(float[1,15] x) => (float[1,5] y) {{ a, b, c = Split <axis = 1> (x, n) {nodes} }}", **stored)


SCALED_PARTS = "d = Mul (a, f) e = Mul (b, f) g = Mul (c, f) h = Sub (d, e) y = Sub (h, g)"

test_operator_on_most_parts_moves_before_the_split = rule_test(
    "activations_before_split",
    *(
        Case(" ".join(ops), gates(ops), nodes={"Sigmoid": 1, "Slice": ops.count("TANH")})
        for ops in (GATES, ("TANH", "LOGISTIC", "LOGISTIC", "LOGISTIC"), ("LOGISTIC", "LOGISTIC"))
    ),
    Case("a result that others read", gates(("LOGISTIC",) * 3, has_reader=True)),
    Case(
        "an unused part",
        split_graph("d = Sigmoid (a) e = Sigmoid (b) y = Sub (d, e)"),
        nodes={"Sigmoid": 1, "Slice": 0},
    ),
    Case("one factor", split_graph(SCALED_PARTS)),
    declines("a factor per element", split_graph(SCALED_PARTS, (5,)), "too few outputs of the Split"),
    declines("other operators", gates(("LOGISTIC", "TANH", "TANH")), "too few outputs of the Split"),
    declines("int8, which is one kernel", gates(dtype="int8"), "too few outputs of the Split"),
    declines("one node of floats", gates(dtype="float32"), "too few outputs of the Split"),
    declines("a large tensor", gates(cells=257), "more than 1024 elements"),
    declines("a dynamic size", gates(rows=None), "dynamic"),
)


def grid(
    widths: Sequence[Sequence[int]] = ((7, 2, 3),) * 5,
    axis: int = 1,
    dtype: str = "float32",
    *,
    has_reader: bool = False,
) -> BuildNetwork:
    """Build a Split into rows, each split into columns of its ``widths``.

    ``has_reader``: one row has another consumer.
    """

    def build(net: Network) -> tuple[TensorRef, ...]:
        count, width = len(widths), sum(widths[0])
        spec = tensor(*((count, width) if axis else (count * width, 1)), dtype=dtype)
        row = spec.with_shape(*((1, width) if axis else (width, 1)))
        rows = net.call_multi_output("SPLIT", [constant(0), net.input(spec)], *[row] * count, num_splits=count)
        results = [net.like("NEG", rows[2])] if has_reader else []
        for row_value, lengths in zip(rows, widths, strict=True):
            columns = [spec.with_shape(*((1, n) if axis else (n, 1))) for n in lengths]
            operands = [row_value, constant([*lengths]), constant(axis)]
            column_values = net.call_multi_output("SPLIT_V", operands, *columns, num_splits=len(lengths))
            results += [net.like("LEAKY_RELU", column, alpha=0.5) for column in column_values]
        return tuple(results)

    return build


test_columns_are_split_before_rows = rule_test(
    "columns_before_rows",
    Case("floats", grid(), nodes={"Split": 4}),
    Case("int8", grid(dtype="int8"), nodes={"Split": 4}),
    declines("other columns", grid(((7, 2, 3),) * 4 + ((3, 2, 7),)), "columns differ"),
    declines("few rows", grid(((7, 2, 3),) * 3), "as many columns"),
    declines("one axis", grid(axis=0), "along axis 0"),
    declines("a row has another reader", grid(has_reader=True), "a part of the Split is not split again"),
)

# --- add_to_gemm ------------------------------------------------------------------------------


def multiply(net: Network, x: TensorRef, features: int, seed: str, *, biased: bool = False) -> TensorRef:
    rows, columns = net.spec(x).shape
    bias = [constant(random_array(features, seed="bias"))] if biased else []
    weights = constant(random_array(features, columns or 0, seed=seed))
    return net.call("FULLY_CONNECTED", [x, weights, *bias], tensor(rows, features))


def unroll(net: Network) -> TensorRef:
    """Build two time steps: products with input and last output, and a bias."""
    bias, hidden = constant(random_array(7)), net.input(tensor(3, 7))
    for step in range(2):
        x = net.input(tensor(3, 5))
        recurrent_sums = multiply(net, hidden, 7, "output") if step else None
        input_sums = multiply(net, x, 7, "input")
        recurrent_sums = multiply(net, hidden, 7, "output") if recurrent_sums is None else recurrent_sums
        sums = net.call("ADD", [net.call("ADD", [input_sums, recurrent_sums], tensor(3, 7)), bias], tensor(3, 7))
        hidden = net.call("TANH", [sums], tensor(3, 7))
    return hidden


def add_to_product(
    rows: int | None = 3, addend_rows: int | None = 3, dtype: str = "float32", *, has_reshape: bool = False, biased: bool = False,
    has_reader: bool = False,
) -> BuildNetwork:  # fmt: skip
    """Build a product of ``rows`` plus a tensor.

    ``has_reshape``: a RESHAPE is in between. ``has_reader``: the product is also an output.
    """

    def build(net: Network) -> tuple[TensorRef, ...]:
        x = net.input(tensor(rows, 5, dtype=dtype))
        x = x if dtype == "float32" else net.call("DEQUANTIZE", [x], tensor(rows, 5))
        product_rows = multiply(net, x, 7, "w", biased=biased)
        operand = net.call("RESHAPE", [product_rows, constant([7])], tensor(7)) if has_reshape else product_rows
        sum_spec = tensor(*(max(n, m) if n and m else None for n, m in ((rows, addend_rows),)), 7)
        return net.call("ADD", [net.input(tensor(addend_rows, 7)), operand], sum_spec), *(
            [net.like("TANH", product_rows)] if has_reader else []
        )

    return build


ONE_GEMM = {"Gemm": 1, "Add": 0, "Reshape": 0}

test_addition_becomes_the_bias_of_a_product = rule_test(
    "add_to_gemm",
    Case("time steps", unroll, 4, tolerance=1e-6, nodes={"Gemm": 4, "Add": 0}),
    Case("a Reshape in between", add_to_product(1, 1, has_reshape=True), tolerance=1e-6, nodes=ONE_GEMM),
    Case("one row for a dynamic number of them", add_to_product(None, 1), tolerance=1e-6, nodes=ONE_GEMM, batch=3),
    declines("two dynamic sizes", add_to_product(None, None), "no operand is a float matrix product"),
    declines("the product is read by others", add_to_product(has_reader=True), "no operand is a float matrix product"),
    declines("the product is broadcast", add_to_product(1, 3), "no operand is a float matrix product"),
    declines("a bias", add_to_product(biased=True), "without a bias"),
    declines("dequantized rows", add_to_product(dtype="int8"), "no operand is a float matrix product"),
)


def test_added_products_keep_order_and_metadata_of_time_steps() -> None:
    trial = RewriteTrial("add_to_gemm", unroll)
    assert [node.op_type for node in trial.after.graph.node] == ["Gemm", "Gemm", "Tanh"] * 2
    with_bias, recurrent = trial.nodes("Gemm")[2:]
    assert recurrent.input[2] == with_bias.output[0]
    assert recurrent.input[0] == trial.nodes("Tanh")[0].output[0]
    assert not trial.value_metadata(with_bias.output[0])  # it is not a tensor of the file
    assert trial.value_metadata(recurrent.output[0])


# --- Reshapes ---------------------------------------------------------------------------------


def dense(net: Network, batch: int | None = 1) -> TensorRef:
    """Build a product over a batch of rows, with Reshapes around it."""
    x, operands = net.input(tensor(batch, 5, 7)), [constant(random_array(12, 7)), constant(random_array(12))]
    return net.call("FULLY_CONNECTED", [x, *operands], tensor(batch, 5, 12), keep_num_dims=True)


def heads(
    net: Network, batch: int | None = 1, *, has_reader: bool = False, has_shape_input: bool = False
) -> tuple[TensorRef, ...]:
    """Build a product split into heads.

    ``has_reader``: the product has another consumer. ``has_shape_input``: the shape is a graph input.
    """
    rows = dense(net, batch)
    shape = net.input(tensor(4, dtype="int32", scale=0)) if has_shape_input else constant([-1, 5, 3, 4])
    result = tensor(*[None] * 4) if has_shape_input else tensor(batch, 5, 3, 4)
    return net.call("RESHAPE", [rows, shape], result), *([net.like("ABS", rows)] if has_reader else [])


def reshape_graph(nodes: str) -> Any:
    shapes = {"flat": [15], "rows": [-1, 5], "deep": [3, 5, 1], "kept": [0, 1], "wide": np.array([1])}
    return graph(f"(float[3,5] x) => (float[n,m] y) {{ a = Reshape (x, flat) {nodes} }}", **shapes)


test_consecutive_reshapes_become_the_last_one = rule_test(
    "merge_reshapes",
    Case("heads", heads, nodes={"Reshape": 2}),
    Case("a dynamic batch", lambda net: heads(net, None), nodes={"Reshape": 2}, batch=2),
    Case("the shape in between is read", lambda net: heads(net, has_reader=True), nodes={"Reshape": 3}),
    Case("a chain", reshape_graph("u = Unsqueeze (a, wide) b = Reshape (u, deep) y = Relu (b)"), nodes={"Reshape": 1}),
    Case("the shape before", reshape_graph("b = Reshape (a, rows) y = Abs (b)"), nodes={"Reshape": 0}),
    Case("the shape before, of an output", reshape_graph("y = Reshape (a, rows)"), nodes={"Reshape": 1}),
    Case("one more axis", reshape_graph("b = Reshape (a, deep) y = Abs (b)"), nodes={"Reshape": 1}),
    declines("a size of the operand", reshape_graph("b = Reshape (a, kept) y = Abs (b)"), "copies an input dimension"),
    declines("a computed shape", lambda net: heads(net, has_shape_input=True), "not constant"),
    declines("a product in between", dense),
)


@pytest.mark.parametrize(
    ("sizes", "expected"), [([5, 7], ["1,2"]), ([-1, 7], ["1,2"]), ([7, 5], []), ([1, 5, 7], [])], ids=str
)
def test_merged_reshape_keeps_its_tensor_without_the_leading_axis(sizes: list[int], expected: list[str]) -> None:
    nodes = "a = Relu (x) b = Reshape (a, original) c = Reshape (b, flat) y = Abs (c)"
    text = f"(float[35] x) => (float[{','.join('mnk'[: len(sizes)])}] y) {{ {nodes} }}"
    model = graph(text, original=np.array([1, 5, 7]), flat=np.array(sizes))()
    write_tensor(model.graph[1].outputs[0].metadata_props, 0, 3)
    model.graph[1].outputs[0].shape = ir.Shape([1, 5, 7])
    assert apply("merge_reshapes", model)
    values = (read_tensor("", node.outputs[0].metadata_props) for node in model.graph)
    assert [(metadata.tensor, ",".join(map(str, metadata.order or ()))) for metadata in values if metadata] == [
        (3, text) for text in expected
    ]


def drop_axes(
    shape: tuple[int, ...],
    result: tuple[int, ...],
    addend: tuple[int, ...],
    dtype: str = "float32",
    *,
    has_reader: bool = False,
) -> BuildNetwork:
    """Build a tensor that is reshaped to ``result`` and added to an input.

    ``has_reader``: the reshaped tensor is also an output.
    """

    def build(net: Network) -> tuple[TensorRef, ...]:
        activated = net.like("RELU", net.input(tensor(*shape, dtype=dtype)))
        reshaped = net.like("RESHAPE", activated, constant([*result]), shape=result)
        sums = net.like("ADD", reshaped, net.input(tensor(*addend, dtype=dtype)), shape=max(addend, result, key=len))
        return (sums, reshaped) if has_reader else (sums,)

    return build


def drop_graph(nodes: str, x_type: str = "float[1,1]", more_outputs: str = "", scale: Sequence[int] = ()) -> Any:
    stored = {"flat": np.array([1]), "s": np.full(scale, 0.5, np.float32), "p": np.full(scale, 7, np.uint8)}
    return graph(
        f"({x_type} x, float[5,7] z) => (float[5,7] y{more_outputs}) {{ a = Reshape (x, flat) {nodes} }}", **stored
    )


DEQUANTIZED = "b = DequantizeLinear <axis = 0> (a, s, p) y = Add (z, b)"
DTYPES = ("float32", "int8")

test_unit_axes_are_not_dropped_before_broadcasts = rule_test(
    "drop_unit_axes",
    *(
        Case(f"{shape} + {addend} {dtype}", drop_axes(shape, (7,), addend, dtype), nodes={"Reshape": 0})
        for shape, addend in (((1, 7), (1, 7)), ((1, 7), (5, 7)), ((1, 1, 7), (3, 5, 7))) for dtype in DTYPES
    ),
    Case("a graph", drop_graph("y = Add (z, a)")),
    Case("dequantized with one scale", drop_graph(DEQUANTIZED, "uint8[1,1]")),
    declines("a scale along an axis", drop_graph(DEQUANTIZED, "uint8[1,1]", scale=(1,)), "more axes"),
    declines("PRelu, which broadcasts one way", drop_graph("y = PRelu (z, a)"), "more axes"),
    declines("another domain", drop_graph("y = elsewhere.Add (z, a)"), "more axes"),
    declines("another reader", drop_graph("y = Add (z, a) w = Neg (a)", more_outputs=", float[1] w"), "more axes"),
    declines("another reader, dequantized", drop_graph(f"{DEQUANTIZED} w = Neg (b)", "uint8[1,1]", ", float[1] w"), "more axes"),
    *(
        declines(f"{shapes} {dtype}", drop_axes(*shapes, dtype), reason)
        for shapes, reason in (
            (((1, 1, 7), (7,), (5, 7)), "more axes"), (((1, 7), (7,), (7,)), "more axes"), (((3, 1, 7), (21,), (1, 21)), ""),
            (((3, 7), (21,), (1, 21)), ""),
        ) for dtype in DTYPES
    ),
    *(declines(f"an output {dtype}", drop_axes((1, 7), (7,), (1, 7), dtype, has_reader=True), "") for dtype in DTYPES),
)  # fmt: skip


def pack_products(axis: int, count: int = 3, rows: int | None = 2, *, has_reader: bool = False) -> BuildNetwork:
    """Build products of an input, stacked along a new axis.

    ``has_reader``: one product has a second EXPAND_DIMS.
    """

    def build(net: Network) -> tuple[TensorRef, ...]:
        x, product_spec, shape = net.input(tensor(rows, 5)), tensor(rows, 5), [rows, 5]
        products = [net.call("MUL", [x, constant(random_array(5, seed=str(k)))], product_spec) for k in range(count)]
        y = net.call("PACK", products, tensor(*shape[:axis], count, *shape[axis:]), axis=axis, values_count=count)
        unsqueezed = tensor(*shape[:axis], 1, *shape[axis:])
        return (y, *([net.call("EXPAND_DIMS", [products[0], constant(axis)], unsqueezed)] if has_reader else []))

    return build


test_stacked_parts_are_reshaped_once = rule_test(
    "reshape_after_concat",
    *(
        Case(f"axis {axis} {has_reader}", pack_products(axis, has_reader=has_reader), nodes={"Unsqueeze": int(has_reader)})
        for axis in (0, 1) for has_reader in (False, True)
    ),
    declines("the last axis", pack_products(2), "is the last axis"),
    declines("two parts", pack_products(0, count=2), "fewer than 3 operands"),
    declines("a dynamic size", pack_products(0, rows=None), "dynamic"),
)  # fmt: skip
