"""Rules for operators on images, such as averages and normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from conformance.builder import TensorRef
from conformance.models import Spec, constant, random_array
from conformance.weights import bias, product, weight
from onnx_tflite_plugin.rewrite.images.conv_transpose_to_conv import Axis
from onnx_tflite_plugin.rewrite.images.scale_offset_to_conv import depthwise_constants
from onnx_tflite_plugin.rewrite.weights.int8_operands import int8_operands
from onnx_tflite_plugin.source.model import Array
from tests.helpers.passes_networks import BuildNetwork, Network, RewriteTrial, image
from tests.rewrite.harness import SCALE_AND_ZERO_POINT, Case, declines, graph, rule_test

pytestmark = pytest.mark.int8_products


# --- average_pool_to_conv ---------------------------------------------------------------------


def average(
    shape: Sequence[int | None], kernel: tuple[int, int], strides: tuple[int, int] = (1, 1), padding: str = "SAME",
    dtype: str = "int8", *, after_conv: bool = True,
) -> BuildNetwork:  # fmt: skip
    """Build an average.

    An int8 average follows a convolution, because graph inputs stay int8.
    """

    def build(net: Network) -> TensorRef:
        (_, *size, channels), (height, width) = shape, kernel
        results = [
            -(-(n or 0) // stride) if padding == "SAME" else ((n or 0) - taps) // stride + 1
            for n, taps, stride in zip(size, kernel, strides, strict=True)
        ]
        options = {"filter_height": height, "filter_width": width, "stride_h": strides[0], "stride_w": strides[1]}
        x = net.input(image(*shape, dtype=dtype))
        x = net.conv(x, channels or 0, (1, 1)) if dtype == "int8" and after_conv else x
        return net.like("AVERAGE_POOL_2D", x, shape=(1, *results, channels or 0), padding=padding, **options)

    return build


def average_graph(shape: str, options: str) -> Any:
    nodes = f"a = DequantizeLinear (x, s, p) b = AveragePool <{options}> (a) y = QuantizeLinear (b, s, p)"
    return graph(f"(uint8[{shape}] x) => (uint8[1,c,h,w] y) {{ {nodes} }}", **SCALE_AND_ZERO_POINT)


def average_without_a_rank() -> ir.Model:
    nodes = "a = DequantizeLinear (u, s, p) b = AveragePool <kernel_shape=[2,2]> (a) y = QuantizeLinear (b, s, p)"
    model = graph(
        f"(uint8[1,3,5,7] x) => (uint8[1,c,h,w] y) {{ u = elsewhere.Some (x) {nodes} }}", **SCALE_AND_ZERO_POINT
    )()
    operand = model.graph.node(1).inputs[0]
    assert operand is not None
    operand.dtype = ir.DataType.UINT8
    return model


UNPADDED = [
    ((1, 11, 17, 13), (2, 2), (2, 2), "VALID"), ((1, 11, 17, 13), (5, 2), (1, 3), "VALID"),
    ((1, 12, 18, 16), (2, 2), (2, 2), "SAME"), ((1, 12, 18, 16), (1, 2), (3, 2), "SAME"), ((3, 11, 17, 13), (2, 2), (2, 1), "VALID"),
]  # fmt: skip

PADDED = [
    ((1, 9, 11, 288), (3, 3)), ((1, 13, 17, 67), (3, 3), (2, 2)), ((1, 13, 12, 127), (3, 2), (1, 2)),
    ((1, 17, 19, 61), (2, 3), (3, 1)), ((3, 11, 13, 128), (3, 3)), ((1, 13, 11, 131), (4, 3)),
]  # fmt: skip

WINDOW_2X2, WINDOW_3X3 = "kernel_shape = [2, 2], strides = [2, 2]", "kernel_shape = [3, 3], pads = [1, 1, 1, 1]"

test_averages_become_a_convolution_or_a_product = rule_test(
    "average_pool_to_conv",
    *(
        Case(f"unpadded {case} {dtype}", average(*case, dtype=dtype), fused={"QLinearConv": 1 if dtype == "uint8" else 2})
        for case in UNPADDED for dtype in ("int8", "uint8")
    ),
    *(
        Case(f"padded {case} {dtype}", average(*case, dtype=dtype), fused={"QLinearMatMul": 1})
        for case in PADDED for dtype in ("int8", "uint8")
    ),
    Case("a dynamic batch, padded", average((None, 9, 11, 288), (3, 3)), batch=5),
    Case("a dynamic batch, unpadded", average((None, 12, 10, 13), (2, 2), (2, 2)), batch=5),
    Case("a graph, unpadded", average_graph("1,4,12,18", WINDOW_2X2)),
    Case("a graph, padded", average_graph("1,288,9,11", WINDOW_3X3)),
    declines("floats", average((1, 13, 17, 64), (3, 3), dtype="float32")),
    declines("int8 at the ends", average((1, 12, 18, 16), (1, 1), after_conv=False)),
    declines("a small image", average((1, 5, 7, 3), (3, 3)), "is not faster"),
    declines("a wide image", average((1, 5, 131, 67), (3, 3)), "is not faster"),
    declines("factors of more than 8 bits", average((1, 23, 29, 67), (5, 5)), "exceed 8 bits"),
    declines("large windows", average((1, 19, 23, 11), (17, 19), (2, 2), "VALID"), "more than 256 elements"),
    declines("a dynamic height", average((1, None, 17, 64), (2, 2), (2, 2), "VALID"), "dynamic"),
    declines("automatic pads", average_graph("1,4,12,18", f'{WINDOW_2X2}, auto_pad = "VALID"'), "pads"),
    declines("a rounded size", average_graph("1,4,12,18", f"{WINDOW_2X2}, ceil_mode = 1"), "rounded up"),
    declines("padding counts", average_graph("1,288,9,11", f"{WINDOW_3X3}, count_include_pad = 1"), "part of the average"),
    declines("dilation", average_graph("1,288,9,11", f"{WINDOW_3X3}, dilations = [2, 2]"), "dilated"),
    declines("an unknown rank", average_without_a_rank, "rank"),
)  # fmt: skip


# --- batch_norm_to_conv -----------------------------------------------------------------------


def normalize(net: Network, dtype: str = "int8", channels: int = 32, **mul_options: Any) -> TensorRef:
    """Build a scale and an offset per channel after a convolution.

    Some factors are zero, negative or very different.
    """
    x = net.conv(net.input(image(1, 7, 11, 5, dtype=dtype)), channels, (1, 1))
    spec = net.spec(x)
    low = {"int8": -128, "uint8": 0}.get(dtype, -1)
    factor, offset = (random_array(1, 1, 1, channels, dtype=dtype, seed=seed) for seed in ("factor", "offset"))
    factor[..., :3] = low + 91, low + 92, low + 255
    factor_quantization = {} if spec.scale is None else {"scale": 0.006, "zero_point": low + 91}
    input_scale = float(np.asarray(spec.scale or 1.0))
    y = Spec(spec.shape, dtype, spec.scale and input_scale * 1.5, spec.scale and low + 117)
    y = net.call("MUL", [x, constant(factor, **factor_quantization)], y, **mul_options)
    z = Spec(spec.shape, dtype, spec.scale and input_scale * 1.7, spec.scale and low + 131)
    offset_quantization = {} if spec.scale is None else {"scale": input_scale * 0.37, "zero_point": low + 91}
    return net.output_through_conv(net.call("ADD", [constant(offset, **offset_quantization), y], z))


def int8_constant(*shape: int, seed: str = "k") -> Spec:
    return constant(random_array(*shape, dtype="int8", seed=seed), None, 0.1, 3)


def scale_int8(factor: Spec | None, *, rows: int = 7, added: bool = True, has_reader: bool = False) -> BuildNetwork:
    """Build a factor (by default an input) and an offset per channel.

    ``has_reader``: the product is also an output.
    """

    def build(net: Network) -> tuple[TensorRef, ...]:
        x = net.conv(net.input(image(1, rows, 11, 3)), 16)
        y = net.like("MUL", x, net.input(image(1, 1, 1, 16)) if factor is None else factor)
        z = net.like("ADD", y, int8_constant(1, 1, 1, 16, seed="offset")) if added else y
        return net.output_through_conv(z), *([net.output_through_conv(y)] if has_reader else [])

    return build


PER_CHANNEL = int8_constant(1, 1, 1, 16)

test_quantized_scale_and_offset = rule_test(
    "batch_norm_to_conv",
    declines("floats", lambda net: normalize(net, "float32")),
    declines("an activation in between", lambda net: normalize(net, fused_activation_function="RELU")),
    declines("31 channels", lambda net: normalize(net, channels=31), "not a multiple of 16"),
    declines("a computed factor", scale_int8(None)),
    declines("a scale only", scale_int8(PER_CHANNEL, added=False)),
    declines("a factor per row", scale_int8(int8_constant(1, 16, 1, 1), rows=16), "not per channel"),
    declines("the product is read by others", scale_int8(PER_CHANNEL, has_reader=True)),
)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantized_scale_and_offset_round_once(dtype: str) -> None:
    trial = RewriteTrial("batch_norm_to_conv", lambda net: normalize(net, dtype))
    assert trial.count == 1
    assert trial.max_difference <= 1
    assert trial.ort_op_counts["QLinearConv"] == 3
    assert not {"QLinearMul", "QLinearAdd", "Mul", "Add"} & trial.ort_op_counts.keys()


@pytest.mark.parametrize(
    ("factor", "offset"), [(0.3, -7.0), (-1.7, 40.0), (0.0, 11.0), (1e-9, 3.0), (2.1, 0.0), (0.0, 0.0)]
)
def test_depthwise_weights_compute_factor_and_offset(factor: float, offset: float) -> None:
    x, scale = np.arange(-128, 128), 0.05
    weights, biases = depthwise_constants(np.full(1, factor), np.full(1, offset), scale)
    assert weights.integers is not None
    assert biases.integers is not None
    assert np.allclose(biases.scale, scale * weights.scale)
    sums = x.astype(np.int64) * weights.integers.reshape(()) + biases.integers
    assert np.abs(sums).max() < 2**25
    results = sums * biases.scale.astype(np.float64)
    assert np.allclose(results, factor * x * scale + offset, rtol=1e-6, atol=1e-2 * scale)


# --- fold_depthwise ---------------------------------------------------------------------------


def depthwise(
    channels: int = 8, kernel: tuple[int, int] = (3, 3), size: tuple[int | None, int] = (23, 32), features: int = 1,
    stride: int = 1, dtype: str = "int8", batch: int | None = 1, *, producer_op: str = "CONV_2D", **options: Any,
) -> BuildNetwork:  # fmt: skip
    """Build a depthwise convolution of ``producer_op``'s result, or of an image."""

    def build(net: Network) -> TensorRef:
        x = net.input(image(batch, *size, channels if producer_op == "" else 3, dtype=dtype))
        x = net.conv(x, channels, (1, 1), name="maker") if producer_op else x
        if producer_op == "MAX_POOL_2D":
            x = net.like(producer_op, x, filter_height=1, filter_width=1, stride_h=1, stride_w=1, padding="SAME")
        return net.conv(x, features * channels, kernel, stride, depthwise=True, name="deep", **options)

    return build


def set_minus_128(weights: Array) -> Array:
    weights[0, 1, 1, 3] = -128
    return weights


FOLDED = {"QLinearConv": 2, "Transpose": 0}

test_columns_become_channels_of_a_dense_convolution = rule_test(
    "fold_depthwise",
    *(
        Case(text, build, fused=FOLDED)
        for text, build in (
            ("8", depthwise()), ("7", depthwise(7)), ("5", depthwise(5, (5, 3))), ("3", depthwise(3, (3, 5))), ("2", depthwise(2, (1, 3))),
            ("valid", depthwise(8, (2, 3), padding="VALID", size=(23, 34))),
            ("one scale", depthwise(per_axis=False, fused_activation_function="RELU6")),
        )
    ),
    Case("a dynamic batch", depthwise(batch=None), batch=5),
    Case("an image", depthwise(producer_op=""), fused={"Transpose": 0}),
    declines("9 channels", depthwise(9), "more than 8 channels"),
    declines("a stride", depthwise(stride=2, size=(46, 64)), "stride"),
    declines("two features per channel", depthwise(features=2)),
    declines("a small image", depthwise(size=(13, 32)), "fewer than 500 positions"),
    declines("an odd width", depthwise(size=(23, 31)), "is not divisible"),
    declines("a dynamic height", depthwise(size=(None, 32)), "dynamic"),
    declines("floats", depthwise(dtype="float32")),
    declines("uint8", depthwise(dtype="uint8"), "not symmetric int8"),
    declines("-128", depthwise(change=set_minus_128), "not symmetric int8"),
    declines("dilation", depthwise(dilation_h_factor=2), "dilated"),
    declines("after a pool", depthwise(producer_op="MAX_POOL_2D"), "channels last"),
)  # fmt: skip


def test_folded_products_do_not_overflow() -> None:
    trial = RewriteTrial("fold_depthwise", depthwise(7))
    producer_conv, dense = trial.nodes("Conv")
    assert trial.constant_values(dense, 1).shape[:2] == (4 * trial.constant_values(producer_conv, 1).shape[0],) * 2
    assert all(
        operand.exact for operand in int8_operands(ir.from_proto(trial.after)) if operand.node.name == dense.name
    )


# --- conv_transpose_to_conv -------------------------------------------------------------------


def enlarge(net: Network, kernel: Sequence[int], stride: Sequence[int], padding: str, dtype: str = "int8") -> TensorRef:
    """Build TRANSPOSE_CONV between convolutions."""
    x = net.conv(net.input(image(1, 5, 7, 3, dtype=dtype)), 16, (1, 1))
    spec, axes = net.spec(x), zip((5, 7), kernel, stride, strict=True)
    result_sizes = [n * s if padding == "SAME" else (n - 1) * s + max(k, s) for n, k, s in axes]
    w = weight((11, *kernel, 16), dtype, 0 if dtype == "int8" else None)
    y = product(spec, w, (1, *result_sizes, 11), 16 * 2)
    b = bias(spec, w, 11, "float32" if spec.scale is None else "int32", 16)
    options = {"padding": padding, "stride_h": stride[0], "stride_w": stride[1]}
    return net.conv(net.call("TRANSPOSE_CONV", [constant([1, *result_sizes, 11]), w, x, b], y, **options), 17, (1, 1))


@pytest.mark.parametrize(
    "case",
    [
        ((2, 2), (2, 2), "VALID"), ((2, 2), (2, 2), "SAME"), ((3, 3), (2, 2), "SAME"), ((4, 4), (2, 2), "SAME"),
        ((4, 6), (2, 3), "VALID"), ((5, 2), (3, 2), "SAME"), ((1, 3), (2, 3), "VALID"), ((7, 5), (2, 3), "SAME"),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_transposed_convolution_computes_several_positions_at_once(case: tuple[Any, ...], dtype: str) -> None:
    trial = RewriteTrial("conv_transpose_to_conv", lambda net: enlarge(net, *case, dtype))
    assert trial.count == 1
    assert trial.max_difference <= 1
    different_shares = [np.count_nonzero(first != second) / first.size for first, second in trial.outputs]
    assert max(different_shares) < 0.01  # sums of float32 on the other side of a half
    assert trial.ort_op_counts["QLinearConv"] == 3
    assert "ConvTranspose" not in trial.ort_op_counts


def transpose_graph(option: str) -> Any:
    nodes = f"""a = DequantizeLinear (x, s, p) w = DequantizeLinear (k, s, zero)
        b = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]{option}> (a, w) y = QuantizeLinear (b, s, p)"""
    stored = {"zero": np.int8(0), "k": np.ones((4, 3, 2, 2), np.int8), **SCALE_AND_ZERO_POINT}
    return graph(f"(uint8[1,4,5,7] x) => (uint8[1,c,h,w] y) {{ {nodes} }}", **stored)


test_transposed_convolutions = rule_test(
    "conv_transpose_to_conv",
    Case("a graph", transpose_graph("")),
    declines("floats", lambda net: enlarge(net, (2, 2), (2, 2), "SAME", "float32"), "not quantized"),
    declines("a result that no stride divides", lambda net: enlarge(net, (3, 3), (2, 2), "VALID"), "not a multiple"),
    declines("automatic pads", transpose_graph(', auto_pad = "VALID"'), "pads"),
    declines("a shape for pads", transpose_graph(", output_shape = [10, 14]"), "pads"),
    declines("groups", transpose_graph(", group = 2"), "grouped"),
)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads"), [(5, 3, 2, (0, 0)), (5, 2, 1, (2, 0)), (5, 2, 2, (0, 2))]
)
def test_axis_that_pads_cannot_express_is_declined(size: int, kernel: int, stride: int, pads: tuple[int, int]) -> None:
    assert Axis.of(size, kernel, stride, pads, 0) is None


def test_phases_of_an_axis_cover_each_weight() -> None:
    axis = Axis.of(5, 3, 2, (0, 1), 0)
    assert axis == Axis(
        stride=2, pad_begin=0, kernel_size=3, block_count=5, first_offset=0, last_offset=1, end_padding=0
    )
    assert axis is not None
    assert axis.weight_indices().tolist() == [[2, 0], [-1, 1]]
