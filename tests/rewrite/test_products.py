"""Overflow of 16-bit sums in int8 products: criterion, and model search."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnx_tflite_plugin.rewrite.weights.assign_dtypes import check_overflow
from onnx_tflite_plugin.rewrite.weights.dtypes import PROBE
from onnx_tflite_plugin.rewrite.weights.int8_operands import int8_operands, overflows
from tests.helpers.passes_networks import parse_model
from tests.rewrite.product_models import (
    I32,
    assign_weight_dtypes,
    build_float_product,
    build_model,
    dequantize,
    only_int8_operand,
    saturates,
    tensor_proto,
)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.integers(1, 9), st.integers(1, 3), st.data())
def test_overflows_matches_saturating_addition(depth: int, rows: int, data: st.DataObject) -> None:
    weight = st.one_of(st.integers(-127, 127), st.sampled_from([-127, -65, -64, -63, -1, 0, 1, 63, 64, 65, 127]))
    weights = np.array(data.draw(st.lists(weight, min_size=depth * rows, max_size=depth * rows)), np.int8)
    assert overflows(weights.reshape(rows, depth)) == saturates(weights.reshape(rows, depth))


@pytest.mark.parametrize("pair", [(64, 65), (-64, -65), (127, 2)])
def test_adjacent_weights_overflow_from_a_sum_of_129(pair: tuple[int, int]) -> None:
    assert overflows(np.array([pair], np.int8))
    assert not overflows(np.array([pair], np.int8) - np.sign(np.array([[0, pair[1]]], np.int8)))
    assert not overflows(np.array([[pair[0], 0, pair[1], 0]], np.int8))


def test_overflow_is_found_in_the_last_row() -> None:
    weights = np.ones((70_001, 3), np.int8)
    assert not overflows(weights)
    weights[-1, :2] = 65
    assert overflows(weights)


@pytest.mark.parametrize(
    ("shape", "pair", "exact"),
    [
        ((5, 3, 2, 2), [(0, 0, 0, 0), (0, 1, 0, 0)], False),  # channels 0 and 1 at one kernel position
        ((5, 3, 2, 2), [(0, 1, 0, 0), (0, 2, 0, 0)], True),  # channels 1 and 2: not a pair
        ((5, 3, 2, 2), [(0, 2, 0, 0), (0, 0, 0, 1)], False),  # the last channel, and the first of the next position
        ((5, 3, 2, 2), [(0, 0, 0, 0), (0, 0, 0, 1)], True),  # one channel at two positions
        ((5, 1, 3), [(2, 0, 0), (2, 0, 1)], False),
        ((5, 2, 3, 2, 2), [(1, 0, 1, 1, 0), (1, 1, 1, 1, 0)], False),
    ],
)
def test_conv_weights_are_paired_along_channels_per_kernel_position(
    shape: tuple[int, ...], pair: list[tuple[int, ...]], exact: bool
) -> None:
    weights = np.zeros(shape, np.int8)
    for index in pair:
        weights[index] = 65
    product_model = build_float_product("Conv", weights, [1, shape[1], *[7] * (len(shape) - 2)])
    assert only_int8_operand(product_model).exact == exact


def test_depthwise_convolution_is_exact_without_minus_128() -> None:
    weights = np.full((7, 1, 3, 3), 127, np.int8)
    assert only_int8_operand(build_float_product("Conv", weights, [1, 7, 11, 11], group=7)).exact
    two_outputs_per_channel = np.full((14, 1, 3, 3), 127, np.int8)
    assert not only_int8_operand(build_float_product("Conv", two_outputs_per_channel, [1, 7, 11, 11], group=7)).exact
    weights[3, 0, 1, 1] = -128
    assert not only_int8_operand(build_float_product("Conv", weights, [1, 7, 11, 11], group=7)).exact


@pytest.mark.parametrize(
    ("op_type", "attributes", "summed_axis"),
    [("MatMul", {}, 0), ("Gemm", {}, 0), ("Gemm", {"transB": 1}, 1)],
)
def test_matrix_weights_are_paired_along_the_summed_axis(
    op_type: str, attributes: dict[str, int], summed_axis: int
) -> None:
    for axis in (0, 1):
        weights = np.zeros((4, 4), np.int8)
        weights[:2, 0] = 65
        weights = weights if axis == 0 else weights.T
        product_model = build_float_product(op_type, weights, [5, 4], **attributes)
        assert only_int8_operand(product_model).exact == (axis != summed_axis)


def test_any_two_transposed_weights_may_be_adjacent() -> None:
    nodes = [
        dequantize("x", "a"), dequantize("w", "b"),
        helper.make_node("Transpose", ["b"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["a", "t"], ["y"]),
    ]  # fmt: skip
    weights = np.zeros((3, 4), np.int8)
    weights[0, 0], weights[2, 3] = 65, 64
    assert not only_int8_operand(build_model(nodes, weights, [5, 4])).exact
    weights[0, 0] = 64
    assert only_int8_operand(build_model(nodes, weights, [5, 4])).exact


def test_computed_int8_operand_is_not_exact() -> None:
    assert not only_int8_operand(build_float_product("MatMul", None, [5, 3])).exact
    assert not only_int8_operand(
        build_model([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], None, [5, 3], I32)
    ).exact


def test_product_of_two_int8_operands_becomes_uint8() -> None:
    """ARM64 without dotprod wraps -128 times -128, twice."""
    nodes = [helper.make_node("MatMulInteger", ["w", "other"], ["y"])]
    product_model = build_model(nodes, None, [5, 3], I32, [tensor_proto("other", np.full((2, 3), -128, np.int8))])
    assert {operand.slot for operand in int8_operands(product_model)} == {0, 1}
    assign_weight_dtypes(product_model, "auto")
    check_overflow(product_model)
    inputs = [{"x": np.zeros((5, 3), np.uint8), "w": np.full((3, 2), value, np.int8)} for value in (-128, 127)]
    for feeds, expected in zip(inputs, (2 * 128 * 128, -2 * 127 * 128), strict=True):
        (sums,) = ReferenceEvaluator(ir.to_proto(product_model)).run(None, feeds)
        assert (sums == expected).all()


def test_weights_transposed_for_two_products_are_selected_once() -> None:
    nodes = [
        dequantize("w", "b"), helper.make_node("Transpose", ["b"], ["t"], perm=[1, 0]),
        dequantize("x", "a"), dequantize("v", "c"), helper.make_node("MatMul", ["a", "c"], ["ac"]),
        helper.make_node("MatMul", ["a", "t"], ["at"]), helper.make_node("MatMul", ["at", "b"], ["atb"]),
        helper.make_node("MatMul", ["a", "t"], ["again"]), helper.make_node("Sum", ["ac", "atb", "again"], ["y"]),
    ]  # fmt: skip
    matrix = np.array([[127, 5, -127], [127, 127, 3], [-7, 127, 127]], np.int8)
    more_constants = [tensor_proto("v", matrix[::-1].copy()), tensor_proto("zero_v", np.int8(0))]

    def build_unassigned() -> ir.Model:
        unassigned_model = build_model(nodes, matrix, [5, 3], more_constants=more_constants)
        unassigned_model.graph.opset_imports[""], unassigned_model.ir_version = (
            19,
            9,
        )  # the evaluator supports no older versions
        return unassigned_model

    feeds = {"x": np.arange(15, dtype=np.uint8).reshape(5, 3)}
    expected = ReferenceEvaluator(ir.to_proto(build_unassigned())).run(None, feeds)
    for option in ("auto", "uint8"):
        assigned_model = build_unassigned()
        assert sum(assign_weight_dtypes(assigned_model, option).values()) == 4
        check_overflow(assigned_model)
        proto = ir.to_proto(assigned_model)
        if_outputs = [len(node.output) for node in proto.graph.node if node.op_type == "If"]
        assert if_outputs == ([3] if option == "auto" else [])
        assert np.array_equal(ReferenceEvaluator(proto).run(None, feeds), expected)


@pytest.mark.parametrize(("slot", "transposed"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_gemm_operands_are_paired_along_the_shared_axis(slot: int, transposed: int) -> None:
    overflowing_rows = np.array([[100, 100], [0, 0]], np.int8)  # two neighbors overflow along its rows
    for array, exact in ((overflowing_rows, False), (overflowing_rows.T, True)):
        weights = array if transposed == slot else array.T
        nodes = f"c = DequantizeLinear (k, s) y = Gemm <{('transA', 'transB')[slot]} = {transposed}> ({('c, x', 'x, c')[slot]})"
        model = parse_model(f"(float[2,2] x) => (float[2,2] y) {{ {nodes} }}", k=weights, s=np.float32(1))
        assert [operand.exact for operand in int8_operands(model)] == [exact]


def test_empty_weights_do_not_overflow() -> None:
    nodes = "c = DequantizeLinear (k, s) y = MatMul (x, c)"
    model = parse_model(f"(float[3,0] x) => (float[3,5] y) {{ {nodes} }}", k=np.zeros((0, 5), np.int8), s=np.float32(1))
    assert [operand.exact for operand in int8_operands(model)] == [True]


def test_product_of_blockwise_weights_is_not_an_integer_product() -> None:
    nodes = "c = DequantizeLinear <axis = 0, block_size = 2> (k, s) y = MatMul (x, c)"
    stored = {"k": np.full((4, 5), 127, np.int8), "s": np.ones((2, 5), np.float32)}
    assert [*int8_operands(parse_model(f"(float[3,4] x) => (float[3,5] y) {{ {nodes} }}", **stored))] == []


def test_qlinear_conv_weights_and_zero_point_become_uint8() -> None:
    nodes = "y = QLinearConv (x, s, p, k, s, zero, wide, p)"
    stored = {
        "k": np.full((5, 3, 1, 1), 100, np.int8), "zero": np.int8(3), "p": np.uint8(7), "s": np.float32(0.05),
        "wide": np.float32(9),
    }  # fmt: skip
    model = parse_model(f"(uint8[1,3,2,2] x) => (uint8[1,5,2,2] y) {{ {nodes} }}", **stored)
    assert assign_weight_dtypes(model, "uint8") == {"uint8": 1}
    [conv] = model.graph
    assert [value.dtype.name for value in conv.inputs] == [
        "UINT8", "FLOAT", "UINT8", "UINT8", "FLOAT", "UINT8", "FLOAT", "UINT8",
    ]  # fmt: skip
    assert [int(conv.inputs[slot].const_value.numpy().max()) for slot in (2, 3, 5)] == [7, 228, 131]


def test_group_of_two_channels_may_overflow() -> None:
    nodes = "c = DequantizeLinear (k, s) y = Conv <group = 2> (x, c)"
    stored = {"k": np.full((2, 2, 1, 1), 100, np.int8), "s": np.float32(1)}
    model = parse_model(f"(float[1,4,3,5] x) => (float[1,2,3,5] y) {{ {nodes} }}", **stored)
    assert [operand.exact for operand in int8_operands(model)] == [False]


def if_output_counts(model: ir.Model) -> list[int]:
    """Return the number of values of each ``If``."""
    check_overflow(model)
    return [len(node.outputs) for node in model.graph if node.op_type == "If"]


def test_transposed_weight_of_two_products_has_one_if_output() -> None:
    nodes = "c = DequantizeLinear (k, s) t = Transpose (c) a = MatMul (x, t) b = MatMul (t, z) y = Add (a, b)"
    stored = {"k": np.full((2, 2), 100, np.int8), "s": np.float32(1)}
    model = parse_model(f"(float[2,2] x, float[2,2] z) => (float[2,2] y) {{ {nodes} }}", **stored)
    assert assign_weight_dtypes(model, "auto") == {"chosen": 2}
    assert if_output_counts(model) == [1]


def test_two_constant_operands_are_selected_by_one_if() -> None:
    nodes = "c = DequantizeLinear (k, s) d = DequantizeLinear (l, s) a = MatMul (c, d) y = Add (a, x)"
    stored = {"k": np.full((2, 2), 100, np.int8), "l": np.full((2, 2), 101, np.int8), "s": np.float32(1)}
    model = parse_model(f"(float[2,2] x) => (float[2,2] y) {{ {nodes} }}", **stored)
    assert assign_weight_dtypes(model, "auto") == {"chosen": 2}
    assert if_output_counts(model) == [2]


@pytest.mark.parametrize("opset", [21, 23])
@pytest.mark.parametrize("option", ["auto", "uint8"])
def test_written_values_have_dtype_and_shape(option: str, opset: int) -> None:
    nodes = (
        "c = DequantizeLinear (k, s) a = MatMul (x, c) b = MatMulInteger (u, k) d = Cast <to = 1> (b) y = Add (a, d)"
    )
    stored = {"k": np.full((2, 2), 100, np.int8), "s": np.float32(1)}
    model = parse_model(f"(float[2,2] x, uint8[2,2] u) => (float[2,2] y) {{ {nodes} }}", opset, **stored)
    assign_weight_dtypes(model, option)
    check_overflow(model)
    operators = ("DequantizeLinear", "If", "MatMulInteger")
    values = [value for node in model.graph if node.op_type in operators for value in node.outputs]
    assert [value.name for value in values if value.dtype is None] == []
    names_without_shape = [value.name for value in values if value.shape is None]
    assert all((name or "").startswith(PROBE) for name in names_without_shape)


def test_unused_optional_outputs_are_removed() -> None:
    nodes = "y, places = MaxPool <kernel_shape = [2, 2]> (x)"
    model = parse_model(f"(float[1,1,3,5] x) => (float[1,1,2,4] y) {{ {nodes} }}")
    assign_weight_dtypes(model, "auto")
    assert [len(node.outputs) for node in model.graph] == [1]


def test_repeated_split_and_concat_is_traced_in_linear_time() -> None:
    """Linear attention in chunks has such paths: 2 ** 60 from product to operand."""
    rearrangements = " ".join(
        f"a{k}, b{k} = Split <axis = 1> (x{k}) x{k + 1} = Concat <axis = 1> (b{k}, a{k})" for k in range(60)
    )
    stored = {"k": np.full((3, 4), 127, np.int8), "s": np.float32(1)}
    model = parse_model(
        f"(float[2,3] x) => (float[2,4] y) {{ x0 = DequantizeLinear (k, s) {rearrangements} y = MatMul (x, x60) }}",
        17,
        **stored,
    )
    assert [(operand.is_rearranged, operand.stored.name) for operand in int8_operands(model)] == [(True, "k")]
