"""Inconsistent files are refused by operator and field, or read as LiteRT does."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, quant
from conformance.models import Net, Spec, tensor
from onnx_tflite_plugin.api import Context, Transparent, Value, handler
from onnx_tflite_plugin.errors import ConversionError, InvalidModel
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.verify import verify
from tests.helpers.single_output import BuildGraph, build_model

Q = quant(0.05, 3)


def maximum_of_floats_in_int8(g: GraphBuilder) -> int:
    x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3), "int8", quantization=Q)
    g.operator("MAXIMUM", [x, x], [y])
    return y


def dequantize_to_int8(g: GraphBuilder) -> int:
    x = g.input("x", (2, 3), "int8", quantization=Q)
    y = g.tensor("y", (2, 3), "int8", quantization=Q)
    g.operator("DEQUANTIZE", [x], [y])
    return y


def relu_to_another_dtype(g: GraphBuilder) -> int:
    x = g.input("x", (2, 3), "int8", quantization=Q)
    y = g.tensor("y", (2, 3), "uint8", quantization=Q)
    g.operator("RELU", [x], [y])
    return y


def floor_of_nothing(g: GraphBuilder) -> int:
    g.input("x", (2, 3))
    g.operator("FLOOR", [None], [y := g.tensor("y", (2, 3))])
    return y


def floor_of_two(g: GraphBuilder) -> int:
    x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
    g.operator("FLOOR", [x, x], [y])
    return y


def abs_with_two_outputs(g: GraphBuilder) -> int:
    x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
    g.operator("ABS", [x], [y, g.tensor("z", (2, 3))])
    return y


def pool(rank: int) -> BuildGraph:
    def build(g: GraphBuilder) -> int:
        shape = (1, 2, 3, 5)[:rank]
        x, y = g.input("x", shape), g.tensor("y", shape)
        g.operator("MAX_POOL_2D", [x], [y], {"stride_w": 1, "stride_h": 1, "filter_width": 1, "filter_height": 1})
        return y

    return build


def tanh_by_axis(g: GraphBuilder) -> int:
    x = g.input("x", (2, 3), "int8", quantization=Q)
    y = g.tensor("y", (2, 3), "int8", quantization=quant([1 / 128, 1 / 64, 1 / 32], axis=1))
    g.operator("TANH", [x], [y])
    return y


def product_with_scales_by_axis(g: GraphBuilder) -> int:
    x = g.input("x", (2, 3), "int8", quantization=Q)
    w = g.input("w", (2, 3), "int8", quantization=quant([0.1, 0.2, 0.3], axis=1))
    g.operator("MUL", [x, w], [y := g.tensor("y", (2, 3), "int8", quantization=Q)])
    return y


def unary(code: str, scale: float, dtype: str = "int8") -> BuildGraph:
    """Return an operator whose operand and result have this scale."""

    def build(g: GraphBuilder) -> int:
        x, y = (g.tensor(name, (2, 3), dtype, quantization=quant(scale)) for name in "xy")
        g.inputs.append(x)
        g.operator(code, [x], [y])
        return y

    return build


def gather_float16(g: GraphBuilder) -> int:
    x, y = g.input("x", (5, 3), "uint8"), g.tensor("y", (2, 3), "float16")
    g.operator("GATHER", [x, g.constant("at", np.array([1, 4], np.int32))], [y])
    return y


def softmax_of(beta: float, dtype: str) -> BuildGraph:
    def softmax(g: GraphBuilder) -> int:
        x, y = (
            g.tensor(name, (2, 3), dtype, quantization=quantization)
            for name, quantization in (("x", quant(1e-3)), ("y", quant(1 / 32768)))
        )
        g.inputs.append(x)
        g.operator("SOFTMAX", [x], [y], {"beta": beta})
        return y

    return softmax


def convolution_with_bias_value(bias: int) -> BuildGraph:
    def convolution(g: GraphBuilder) -> int:
        x = g.input("x", (1, 2, 3, 5), "int16", quantization=quant(0.5))
        w = g.constant("w", np.ones((1, 1, 1, 5), np.int8), quantization=quant(0.5))
        b = g.constant("b", np.array([bias]), quantization=quant(0.25))
        y = g.tensor("y", (1, 2, 3, 1), "int16", quantization=quant(0.5))
        g.operator("CONV_2D", [x, w, b], [y], {"stride_w": 1, "stride_h": 1, "padding": "VALID"})
        return y

    return convolution


def convolution_with_bias_count(count: int) -> BuildGraph:
    """Return a convolution of two channels with a different number of biases."""

    def convolution(g: GraphBuilder) -> int:
        x, w = g.input("x", (1, 7, 5, 3)), g.constant("w", np.ones((2, 1, 1, 3), np.float32))
        b, y = g.constant("b", np.ones(count, np.float32)), g.tensor("y", (1, 7, 5, 2))
        g.operator("CONV_2D", [x, w, b], [y], {"stride_w": 1, "stride_h": 1, "padding": "VALID"})
        return y

    return convolution


def pad_by(rows: int) -> BuildGraph:
    """Return a PAD of two axes with a different number of paddings."""

    def pad(g: GraphBuilder) -> int:
        x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
        g.operator("PAD", [x, g.constant("p", np.zeros((rows, 2), np.int32))], [y])
        return y

    return pad


def branch(dtype: str, *, constant: bool = False) -> BuildGraph:
    """Return an IF whose second branch has an input of ``dtype``, or a constant."""

    def conditional(g: GraphBuilder) -> int:
        for name in ("then", "else"):
            inner = g.model.subgraph(name)
            is_second = name == "else"
            if is_second and constant:
                inner.inputs.append(a := inner.constant("a", np.ones((2, 3), np.float32)))
            else:
                a = inner.input("a", (2, 3), dtype if is_second else "float32")
            inner.operator("CAST" if is_second and dtype != "float32" else "ABS", [a], [b := inner.tensor("b", (2, 3))])
            inner.output(b)
        which, x, y = g.input("which", (), "bool"), g.input("x", (2, 3)), g.tensor("y", (2, 3))
        g.operator("IF", [which, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
        return y

    return conditional


def loop(rank: int) -> BuildGraph:
    """Return a loop whose body has an input of a different rank from the operand."""

    def loop_of_another_rank(g: GraphBuilder) -> int:
        for name, shape, dtype in (("condition", (), "bool"), ("body", (2, 3), "float32")):
            inner = g.model.subgraph(name)
            a = inner.input("a", (2,) * rank if name == "body" else (2, 3))
            code = "GREATER" if name == "condition" else "ABS"
            operands = [inner.constant("b", np.zeros((), np.float32))] * 2 if name == "condition" else [a]
            inner.operator(code, operands, [result := inner.tensor("made", shape, dtype)])
            inner.output(result)
        x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
        g.operator("WHILE", [x], [y], {"cond_subgraph_index": 1, "body_subgraph_index": 2})
        return y

    return loop_of_another_rank


def branch_with_variable(g: GraphBuilder) -> int:
    """Return an IF with a branch that returns a variable tensor."""
    for name in ("then", "else"):
        inner = g.model.subgraph(name)
        inner.input("a", (2, 3))
        inner.output(inner.tensor("kept", (2, 3), variable=True))
    which, x, y = g.input("which", (), "bool"), g.input("x", (2, 3)), g.tensor("y", (2, 3))
    g.operator("IF", [which, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
    return y


REFUSED: list[tuple[BuildGraph, str]] = [
    (loop(3), "subgraphs[2].inputs[0]: tensor 0 'a' has shape [2, 2, 2], but the operand of WHILE is [2, 3]"),
    (branch_with_variable, "subgraphs[1].outputs[0]: tensor 1 'kept' is a variable, which cannot be a result of IF"),
    (maximum_of_floats_in_int8, "operators[0].outputs[0]: tensor 1 'y' is quantized int8, but MAXIMUM has"),
    (dequantize_to_int8, "operators[0].outputs[0]: tensor 1 'y' is quantized int8, but DEQUANTIZE has"),
    (relu_to_another_dtype, "operators[0].outputs[0]: tensor 1 'y' is quantized uint8, but RELU has"),
    (floor_of_nothing, "operators[0].inputs[0]: the operand is absent, but FLOOR requires it"),
    (floor_of_two, "operators[0].inputs: 2 operands, but FLOOR requires 1"),
    (abs_with_two_outputs, "operators[0].outputs: 2 outputs, but ABS has 1"),
    (pool(3), "operators[0].inputs[0]: tensor 0 'x' of shape [1, 2, 3] has rank 3, but MAX_POOL_2D requires 4"),
    (tanh_by_axis, "operators[0].outputs[0]: tensor 1 'y' has 3 scales"),
    (product_with_scales_by_axis, "operators[0].inputs[1]: tensor 1 'w' has per-axis scales, but is not a weight"),
    (unary("SQRT", -0.0), "operators[0].inputs[0]: tensor 0 'x' has a scale of 0, but SQRT computes with the scale"),
    (unary("HARD_SWISH", 0.0), "operators[0].outputs[0]: tensor 1 'y' has a scale of 0, but HARD_SWISH computes"),
    (softmax_of(float("nan"), "float32"), "operators[0].SoftmaxOptions.beta: the value is nan"),
    (softmax_of(float("-inf"), "int16"), "operators[0].SoftmaxOptions.beta: the value is -inf"),
    (convolution_with_bias_value(2**47 + 2), f"operators[0].inputs[2]: tensor 2 'b' holds {2**47 + 2}, but sums"),
    (
        convolution_with_bias_count(1),
        "operators[0].inputs[2]: tensor 2 'b' has size 1 along o, but inputs[1] has size 2",
    ),
    (
        convolution_with_bias_count(3),
        "operators[0].inputs[2]: tensor 2 'b' has size 3 along o, but inputs[1] has size 2",
    ),
    (pad_by(1), "operators[0].inputs[1]: tensor 2 'p' of shape [1, 2] has fewer entries than the 2 axes"),
    (pad_by(3), "operators[0].inputs[1]: tensor 2 'p' of shape [3, 2] has more entries than the 2 axes"),
    (branch("int32"), "subgraphs[2].inputs[0]: tensor 0 'a' is int32, but the operand of IF is float32"),
    (branch("float32", constant=True), "subgraphs[2].inputs[0]: tensor 0 'a' is a constant"),
    (gather_float16, "operators[0].outputs[0]: tensor 1 'y' is float16, but GATHER returns uint8 for these operands"),
]


@pytest.mark.parametrize(("build", "text"), REFUSED, ids=[build.__name__ for build, _ in REFUSED])
def test_inconsistency_is_refused_with_operator_and_field(build: BuildGraph, text: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        otp.convert(build_model(build))
    assert text in str(caught.value)
    assert "please report" not in str(caught.value)


@pytest.mark.parametrize(
    "build",
    [
        softmax_of(float("-inf"), "float32"),
        convolution_with_bias_value(2**47),
        branch("float32"),
        unary("SQRT", 1e-38),
    ],
)
def test_values_and_dtypes_that_kernels_accept_convert(build: BuildGraph) -> None:
    assert otp.convert(build_model(build)).proto.graph.node


def test_operand_of_the_required_rank_is_accepted() -> None:
    assert verify(build_model(pool(4)), otp.convert(build_model(pool(4))).proto).ok


def scalar_size(g: GraphBuilder) -> int:
    x, y = g.input("x", (1, 5, 7, 3)), g.tensor("y", (1, 2, 2, 3))
    g.operator("RESIZE_BILINEAR", [x, g.constant("size", np.array(2, np.int32))], [y])
    return y


def test_built_in_failure_is_attributed_to_file_that_litert_refuses() -> None:
    with pytest.raises(InvalidModel, match=r"NumDimensions.size. != 1") as caught:
        otp.convert(build_model(scalar_size))
    assert "please report" not in str(caught.value)


@pytest.mark.parametrize(
    ("op", "dtype", "scale", "zero_point"),
    [
        ("SOFTMAX", "int8", 1 / 256, -127),
        ("SOFTMAX", "uint8", 1 / 256, 1),
        ("SOFTMAX", "int8", 1 / 250, -128),
        ("TANH", "int16", 1 / 30000, 0),
        ("LOGISTIC", "int16", 1 / 30000, 0),
    ],
)
def test_fixed_output_range_requires_the_kernels_scale_and_zero_point(
    op: str, dtype: str, scale: float, zero_point: int
) -> None:
    net, options = Net(), {"beta": 1.0} if op == "SOFTMAX" else {}
    net.output(net.call(op, [tensor(2, 7, dtype=dtype)], Spec((2, 7), dtype, scale, zero_point), **options))
    with pytest.raises(otp.ConversionError, match="the kernel requires scale"):
        otp.convert(net.build())


@pytest.mark.parametrize(("code", "shape"), [("ADD_N", (2, 3)), ("CONCATENATION", (4, 3)), ("PACK", (2, 2, 3))])
def test_absent_operand_of_a_variadic_operator_is_refused(code: str, shape: tuple[int, ...]) -> None:
    """LiteRT's kernels abort the process."""

    def join(g: GraphBuilder) -> int:
        x, y = g.input("x", (2, 3)), g.tensor("y", shape)
        g.operator(code, [x, None, x], [y], {} if code == "ADD_N" else {"axis": 0})
        return y

    with pytest.raises(
        InvalidModel, match=rf"operators\[0\].inputs\[1\]: the operand is absent, but {code} requires it"
    ):
        otp.convert(build_model(join))


def test_operand_may_be_absent_if_its_parameter_has_an_underscore() -> None:
    def lower_optional(ctx: Context, x: Value, _other: Value) -> Value:
        return ctx.ops.Abs(x)

    def lower_required(ctx: Context, x: Value, other: Value) -> Value:
        return ctx.ops.Add(x, other)

    def maximum_with_absent_operand(g: GraphBuilder) -> int:
        y = g.tensor("y", (2, 3))
        g.operator("MAXIMUM", [g.input("x", (2, 3)), None], [y])
        return y

    hosts = [
        Host(packs="builtin", handlers={"MAXIMUM": handler("MAXIMUM", max_version=1, layout=Transparent())(lower)})
        for lower in (lower_optional, lower_required)
    ]
    assert otp.convert(build_model(maximum_with_absent_operand), host=hosts[0]).report.nodes == {"Abs": 1}
    with pytest.raises(ConversionError, match="the operand is absent, but MAXIMUM requires it"):
        otp.convert(build_model(maximum_with_absent_operand), host=hosts[1])
