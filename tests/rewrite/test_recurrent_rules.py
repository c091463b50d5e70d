"""Rules for quantized and convolutional layers of unrolled and looped networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.builder import GraphBuilder, TensorRef
from conformance.cases.control.loops import call_like, loop
from conformance.models import Spec, constant, random_array, tensor
from conformance.weights import bias, product, weight
from onnx_tflite_plugin.verify import verify
from tests.helpers.passes_networks import BuildNetwork, Network, RewriteTrial, finish_model, session
from tests.rewrite.harness import Case, declines, graph, rule_test

# --- dequantize_int16 -------------------------------------------------------------------------


def convolution(net: Network, x: TensorRef, features: int) -> TensorRef:
    return net.conv(x, features, weights="int8", quantized_bias_type="INT32")


def convolutions(batch: int | None = 1, *, summed: bool = False) -> BuildNetwork:
    """Build two convolutions of an int16 image, with a residual sum if ``summed``."""

    def build(net: Network) -> TensorRef:
        x = convolution(net, net.input(tensor(batch, 7, 11, 3, dtype="int16")), 5)
        return net.like("ADD", x, convolution(net, x, 5)) if summed else convolution(net, x, 13)

    return build


def dense(rows: int, columns: int = 7, *, summed: bool = False) -> BuildNetwork:
    """Build a dense layer, or with ``summed`` the sum of two."""

    def build(net: Network) -> TensorRef:
        spec, products = tensor(rows, columns, dtype="int16"), []
        for seed in ("w", "v") if summed else ("w",):
            w = weight((5, columns), "int8", 0, seed=seed)
            products.append(
                net.call("FULLY_CONNECTED", [net.input(spec), w, None], product(spec, w, (rows, 5), columns))
            )
        return net.like("ADD", *products) if summed else products[0]

    return build


def cast_graph(nodes: str, opset: int = 21) -> Any:
    text = f"(int16[3,5] x, int32[3,5] ints, float[3,5] z) => (float[3,5] y) {{ {nodes} }}"
    per_column, int16_constant = np.full(5, 0.5, np.float32), np.arange(15, dtype=np.int16).reshape(3, 5)
    return graph(text, opset, s=np.float32(0.5), per_channel=per_column, stored=int16_constant)


CAST = "a = Cast <to = 1> (x) b = Mul (a, s) y = Tanh (b)"

test_int16_is_dequantized_by_one_node = rule_test(
    "dequantize_int16",
    Case("images", convolutions(), 2, fused={"Conv": 2}),
    Case("a dynamic batch", convolutions(None), 2, batch=2),
    Case("a residual connection", convolutions(summed=True), 2),
    Case("element-wise operators", dense(3, summed=True), 2),
    Case("enough columns", dense(3, 17)),
    Case("a graph", cast_graph(CAST)),
    declines("few columns", dense(3), "fewer than 16 consecutive elements"),
    declines("many rows", dense(2**16 + 1, 17), "more than 65536 elements"),
    declines("opset 20", cast_graph(CAST, 20)),
    declines("a scale per column", cast_graph(CAST.replace("(a, s)", "(a, per_channel)")), "several scales"),
    declines(
        "the Cast is read",
        cast_graph(CAST.replace("y = Tanh (b)", "c = Abs (a) d = Tanh (b) y = Add (c, d)")),
        "several",
    ),
    declines("a constant", cast_graph("a = Cast <to = 1> (stored) b = Mul (a, s) y = Add (b, z)")),
    declines("32 bits", cast_graph(CAST.replace("(x)", "(ints)"))),
)


def test_int16_scales_are_repeated_along_channels_only_where_needed() -> None:
    trial = RewriteTrial("dequantize_int16", convolutions())
    per_axis_nodes = [
        node for node in trial.nodes("DequantizeLinear") if len(trial.constant_values(node, 1).shape) == 1
    ]
    assert [(trial.constant_values(node, 1).shape, node.attribute[0].i) for node in per_axis_nodes] == [
        ((3,), 1),
        ((5,), 1),
    ]
    assert verify(trial.data, trial.after).ok
    trial = RewriteTrial("dequantize_int16", dense(3, summed=True))
    scalar_nodes = [node for node in trial.nodes("DequantizeLinear") if node.output[0] in trial.nodes("Add")[0].input]
    assert [trial.constant_values(node, 1).shape for node in scalar_nodes] == [(), ()]
    assert verify(trial.data, trial.after).ok


# --- merge_gate_convs and add_before_split ----------------------------------------------------


def layer(
    gates: int = 4, cells: int = 5, *, float16: bool = False, biased: bool = True, has_reader: bool = False
) -> BuildNetwork:
    """Build a convolutional recurrent layer.

    Each gate reads an input of three channels and the last output. ``float16``: constants of float16. ``has_reader``: the
    product of a gate with the input is used twice.
    """

    def build(net: Network) -> tuple[TensorRef, ...]:
        specs = [tensor(1, 7, 9, 3), tensor(1, 7, 9, cells)]
        return tuple(loop(net, [net.input(spec) for spec in specs], specs, body))

    def add_weight(graph: GraphBuilder, name: str, *shape: int) -> TensorRef:
        array = 0.3 * random_array(*shape, seed=name)
        if not float16:
            return graph.constant(name, array)
        float32_weight = graph.tensor(f"{name} of 32 bits", shape)
        graph.operator("DEQUANTIZE", [graph.constant(name, array.astype(np.float16))], [float32_weight])
        return float32_weight

    def convolve(graph: GraphBuilder, x: TensorRef, like: TensorRef, k: int, bias: bool) -> TensorRef:
        w = add_weight(graph, f"w{k} of {x.name}", cells, 3, 3, x.shape[-1])
        b = add_weight(graph, f"b{k}", cells) if bias else graph.constant(f"none{k}", np.zeros(cells, np.float32))
        return call_like(graph, "CONV_2D", [x, w, b], like, padding="SAME", stride_h=1, stride_w=1)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        x, hidden = values
        from_input = [convolve(graph, x, hidden, k, biased) for k in range(gates)]
        sums = [
            call_like(graph, "ADD", [from_input[k], convolve(graph, hidden, hidden, k, False)], hidden)
            for k in range(gates)
        ]
        result, *factors = [
            call_like(graph, "LOGISTIC" if k else "TANH", [value], hidden) for k, value in enumerate(sums)
        ]
        for value in factors:
            result = call_like(graph, "MUL", [result, value], hidden)
        return [x, call_like(graph, "ADD", [result, from_input[0]], hidden) if has_reader else result]

    return build


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        *(({"float16": float16, "biased": biased}, [2, 1, 1]) for float16 in (False, True) for biased in (False, True)),
        ({"has_reader": True}, [2, 5, 2]),
    ],
    ids=str,
)
def test_gates_of_one_image_become_one_convolution(options: dict[str, bool], counts: list[int]) -> None:
    trial = RewriteTrial("merge_gate_convs + add_before_split", layer(**options))
    assert trial.is_within(1e-6)
    (node,) = trial.nodes("Loop")
    (body,) = [a.g for a in node.attribute if a.name == "body"]
    operators = [inner_node.op_type for inner_node in body.node]
    assert [operators.count(op) for op in ("Conv", "Add", "Split")] == counts
    assert verify(trial.data, trial.after, inputs={"plan": np.array([True, True, True, False, False])}).ok


BRANCH = """
    (float[1,2,3,7] x, float[1,2,3,7] z, float[1,3,9,7] w, bool go) => (float[1,n,3,7] y) {
        y = If (go) <
            then_branch = gates () => (float[1,n,3,7] one) { NODES one = Sum (p, q, r) },
            else_branch = none () => (float[1,n,3,7] other) { other = Conv (x, a) }
        >
    }
"""
PRODUCTS, SUMS = "p = Conv (x, a) q = Conv (x, b) r = Conv (x, c)", "p = Add (f, i) q = Add (g, j) r = Add (h, k)"
PRODUCTS_OF_X = "f = Conv (x, a) g = Conv (x, b) h = Conv (x, c)"


def branch(nodes: str) -> Any:
    """Build a branch with kernels ``a`` to ``e`` and a bias ``v``.

    ``d`` has one feature, ``e`` has groups.
    """
    kernels = {name: random_array(3, 2, 1, 1, seed=name) for name in "abc"}
    other_constants = {
        "d": random_array(1, 2, 1, 1),
        "e": random_array(4, 1, 1, 1),
        "v": random_array(3),
        "n": np.full(3, 3),
    }
    return graph(BRANCH.replace("NODES", nodes), **kernels, **other_constants)


FEW_CONVOLUTIONS = "fewer than 3 convolutions"

test_merged_convolutions_differ_only_in_constants = rule_test(
    "merge_gate_convs + add_before_split",
    Case("one image", branch(PRODUCTS)),
    Case("sums", branch(f"{PRODUCTS_OF_X} i = Conv (z, b) j = Conv (z, c) k = Conv (z, a) {SUMS}"), 3),
    Case("a single feature", branch(f"{PRODUCTS_OF_X} i = Conv (z, b) j = Conv (z, c) k = Conv (z, d) {SUMS}"), 2),
    Case("parts along another axis", branch(f"{PRODUCTS_OF_X} i, j, k = Split <axis = 2> (w, n) {SUMS}")),
    declines("another image", branch(PRODUCTS.replace("Conv (x, c)", "Conv (z, c)")), FEW_CONVOLUTIONS),
    declines("a bias", branch(PRODUCTS.replace("Conv (x, c)", "Conv (x, c, v)")), FEW_CONVOLUTIONS),
    declines("dilation", branch(PRODUCTS.replace("Conv (x, c)", "Conv <dilations = [2, 2]> (x, c)")), FEW_CONVOLUTIONS),
    declines("groups", branch(" ".join(f"{name} = Conv <group = 2> (x, e)" for name in "pqr"))),
    declines("two gates", layer(gates=2), FEW_CONVOLUTIONS),
    declines("whole blocks", layer(cells=8), "saves no block of channels"),
    declines("two blocks", layer(cells=16), "saves no block of channels"),
)

# --- merge_step_gemms -------------------------------------------------------------------------

FEATURES, INPUTS, IN_ORDER = 7, 5, (0, 1, 2, 3)


def steps(
    rows: Sequence[int],
    dtype: str,
    *,
    batch: int | None = 3,
    biased: Sequence[int] = (),
    other_weights: Sequence[int] = (),
) -> BuildNetwork:
    """Build one dense layer per row; each result has its own scale."""

    def build(net: Network) -> tuple[TensorRef, ...]:
        spec = tensor(4, batch, INPUTS, dtype=dtype)
        x, row_spec = net.input(spec), spec.with_shape(batch, INPUTS)
        shared_weights, results = net.add_operand(weight((FEATURES, INPUTS), "int8", 0)), []
        for k in rows:
            row_value = net.call("GATHER", [x, constant(k)], row_spec, axis=0)
            w = weight((FEATURES, INPUTS), "int8", 0, seed="other" if k in other_weights else "w")
            y = product(spec, w, (batch, FEATURES), INPUTS)
            assert isinstance(y.scale, float)
            assert isinstance(y.zero_point, int)
            y = replace(y, scale=y.scale * (1 + k / 5), zero_point=y.zero_point + (3 * k if dtype == "int8" else 0))
            b = bias(spec, w, FEATURES, "int32" if dtype == "int8" else "int64", INPUTS) if k in biased else None
            results.append(
                net.like(
                    "RELU",
                    net.call("FULLY_CONNECTED", [row_value, w if k in other_weights else shared_weights, b], y),
                )
            )
        return tuple(results)

    return build


def rows_graph(
    rows: int = 3, depth: int = 5, zero_points: str = "ppp", weights: type = np.int8, bias_element: int | None = None
) -> Any:
    """Return uint8 rows multiplied by 127, quantized with these zero points.

    ``bias_element``: one element of a bias.
    """
    dtypes, zero = {"p": "uint8", "q": "int8"}, "p" if weights is np.uint8 else "zero"
    operands = "w" if bias_element is None else "w, b"
    nodes = f"w = DequantizeLinear (k, s, {zero}) b = DequantizeLinear (biases, t, none) " + "".join(
        f"""g{row} = Gather (x, k{row}) d{row} = DequantizeLinear (g{row}, s, p)
            m{row} = Gemm <transB = 1> (d{row}, {operands}) y{row} = QuantizeLinear (m{row}, s, {point}) """
        for row, point in enumerate(zero_points)
    )
    results = ", ".join(f"{dtypes[point]}[2,7] y{row}" for row, point in enumerate(zero_points))
    stored = {"k": np.full((7, depth), 127, weights), "s": np.float32(0.5), "p": np.uint8(3), "q": np.int8(3),
              "t": np.float32(0.25), "zero": np.int8(0), "none": np.int32(0),
              "biases": np.array([0, 0, bias_element or 0, 0, 0, 0, 0], np.int32)}  # fmt: skip
    stored |= {f"k{row}": np.array(row) for row in range(rows)}
    return graph(f"(uint8[{rows},2,{depth}] x) => ({results}) {{ {nodes} }}", **stored)


INEXACT = "exceed the integers that float32 represents exactly"

test_products_of_rows_are_merged = rule_test(
    "merge_step_gemms",
    *(
        Case(f"{rows} {dtype} {biased}", steps(rows, dtype, biased=biased), nodes={"Gemm": 1})
        for rows in (IN_ORDER, (2, 0, 3, 1)) for dtype in ("int8", "int16") for biased in ((), (0,), IN_ORDER)
    ),
    *(
        declines(f"{text} {dtype}", steps(rows, dtype, **options), reason)
        for text, rows, options, reason in (
            ("a row is left out", (0, 1, 3), {}, "a row is not multiplied"),
            ("other weights", IN_ORDER, {"other_weights": (2,)}, "a row is not multiplied"),
            ("a dynamic size", IN_ORDER, {"batch": None}, "dynamic"),
        ) for dtype in ("int8", "int16")
    ),
    Case("three rows", rows_graph()),
    Case("sums below 2**24", rows_graph(depth=517)),
    Case("sums of 2**24 with the bias", rows_graph(depth=517, bias_element=34171)),
    declines("sums beyond", rows_graph(depth=519), INEXACT),
    declines("sums beyond with the bias", rows_graph(depth=517, bias_element=34172), INEXACT),
    declines("sums beyond with a negative bias", rows_graph(depth=517, bias_element=-34172), INEXACT),
    declines("two rows", rows_graph(2, zero_points="pp"), "fewer than 3 rows"),
    declines("uint8 weights", rows_graph(weights=np.uint8), "not symmetric int8"),
    declines("a result of int8", rows_graph(zero_points="ppq"), "a row is not multiplied"),
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_split_outputs_keep_the_tensors_of_the_merged_products(dtype: str) -> None:
    before, after = (RewriteTrial(rule, steps(IN_ORDER, dtype)) for rule in ("merge_reshapes", "merge_step_gemms"))
    names = [*after.nodes("Split")[0].output]
    assert [node.output[0] for node in before.nodes("QuantizeLinear") if node.output[0] in names] == names
    assert [after.value_metadata(name) for name in names] == [before.value_metadata(name) for name in names]
    assert verify(after.data, after.after).ok


# --- tanh_to_sigmoid --------------------------------------------------------------------------


def tanh(scale: float, zero_point: int = -18, dtype: str = "int8", result_scale: float = 1 / 128) -> BuildNetwork:
    """Build TANH of a graph input with these parameters."""
    output_zero_point = {"int8": 0, "uint8": 128, "int16": 0}[dtype]
    output_scale = 1 / 32768 if dtype == "int16" else result_scale

    def build(net: Network) -> TensorRef:
        x = tensor(1, 256, dtype=dtype, scale=scale, zero_point=0 if dtype == "int16" else zero_point)
        return net.call("TANH", [net.input(x)], Spec((1, 256), dtype, output_scale, output_zero_point))

    return build


SCALE_NEAR_HALF = float(np.arctanh(64.5 / 128 * (1 + 1e-7)) / (127 + 18))
"""A scale for which the result of the largest integer is just above a half."""

test_declines_tanh_of_other_parameters = rule_test(
    "tanh_to_sigmoid",
    declines("a result near a half", tanh(SCALE_NEAR_HALF), "close to halfway"),
    declines("another scale", tanh(0.02, result_scale=1 / 100), "1/128"),
    declines("16 bits", tanh(1 / 4096, dtype="int16")),
    declines("floats", lambda net: net.like("TANH", net.input(tensor(1, 7)))),
)


@pytest.mark.parametrize(
    ("scale", "zero_point", "dtype"),
    [(0.022615, -18, "int8"), (0.1, 0, "int8"), (0.0137, 110, "uint8"), (1e3, 0, "int8")],
)
def test_sigmoid_equals_tanh_for_all_256_values(scale: float, zero_point: int, dtype: str) -> None:
    trial = RewriteTrial("tanh_to_sigmoid", tanh(scale, zero_point, dtype))
    assert trial.count == 1
    assert trial.ort_op_counts["QLinearSigmoid"] == 1
    x = np.arange(256, dtype=np.uint8).reshape(1, 256).view(dtype)
    [before], [after] = (session(finish_model(proto)).run(None, {"x0": x}) for proto in (trial.before, trial.after))
    np.testing.assert_array_equal(before, after)
    assert len(np.unique(after)) > 2
    assert verify(trial.data, trial.after).ok
