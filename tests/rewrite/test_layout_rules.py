"""Rules that keep float images in the blocked layout, or save its Transposes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.cases import builtin_cases
from conformance.models import constant, random_array, tensor
from onnx_tflite_plugin.verify import verify
from op_handlers.kernels import hybrid
from tests.helpers.passes_networks import (
    BuildNetwork,
    Network,
    RewriteTrial,
    build_model,
    finish_model,
    float_input,
    image,
    op_counts_after_optimization,
)
from tests.rewrite.harness import Case, declines, graph, rule_test

# --- squeeze_excite_blocks --------------------------------------------------------------------


def squeeze_excite(
    net: Network, channels: int = 32, dtype: str = "float32", batch: int | None = 1, size: tuple[int, int] = (5, 7), *,
    swap: bool = False, dense: bool = False, is_output: bool = False, weights: str | None = None, silu: bool = False,
) -> TensorRef:  # fmt: skip
    """Build squeeze-and-excitation before a convolution.

    ``dense``: a dense layer computes the scale. ``silu``: the image is activated by x * sigmoid(x), and its mean is
    reshaped to an image, as EfficientNet does.
    """
    x = net.input(image(batch, *size, 3, dtype=dtype))
    x = net.conv(x, channels, (3, 3), weights=weights, fused_activation_function="NONE" if silu else "RELU")
    if silu:
        x = net.like("MUL", x, net.like("LOGISTIC", x))
        mean = net.like("MEAN", x, constant([1, 2]), shape=(batch, channels), keep_dims=False)
        mean = net.like("RESHAPE", mean, constant([-1, 1, 1, channels]), shape=(batch, 1, 1, channels))
    else:
        mean = net.like("MEAN", x, constant([1, 2]), shape=(batch, 1, 1, channels), keep_dims=True)
    scale = net.like("LOGISTIC", mean if dense else net.conv(mean, channels, (1, 1)))
    product = net.like("MUL", *((scale, x) if swap else (x, scale)), shape=(batch, *size, channels))
    return product if is_output else net.conv(product, 16, (1, 1))


@pytest.mark.needs("onnxruntime", "1.25", "a product by channel in the blocked layout")
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("batch", [1, None, 3])
@pytest.mark.parametrize(("channels", "silu"), [(16, False), (20, False), (48, False), (48, True)])
def test_scaled_image_stays_in_blocked_layout(channels: int, batch: int | None, swap: bool, silu: bool) -> None:
    def build(net: Network) -> TensorRef:
        return squeeze_excite(net, channels, batch=batch, swap=swap, silu=silu)

    trial = RewriteTrial("squeeze_excite_blocks", build, batch=3)
    assert trial.count == 1
    assert trial.has_equal_outputs
    before = op_counts_after_optimization(finish_model(trial.before))
    assert trial.ort_op_counts["ReorderInput"] < before["ReorderInput"]
    assert trial.ort_op_counts["ReorderOutput"] < before["ReorderOutput"]
    assert trial.ort_op_counts["Upsample"] == 1


def test_weights_dequantized_at_load_time_count_as_float(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is so large that activations are not quantized."""
    monkeypatch.setattr(hybrid, "MAX_LAYERS", 0)
    monkeypatch.setattr(hybrid, "MAX_ELEMENTS", 0)
    trial = RewriteTrial("squeeze_excite_blocks", lambda net: squeeze_excite(net, batch=None, weights="int8"), batch=2)
    assert trial.nodes("Cast")
    assert trial.count == 1
    assert trial.has_equal_outputs


def squeeze_excite_graph(inputs: str, nodes: str, images: int = 1) -> Any:
    return graph(
        f"({inputs}) => (float[{images},16,5,7] y) {{ {nodes} g = Conv (m, v) h = Sigmoid (g) b = Mul (a, h) y = Conv (b, v) }}",
        w=random_array(16, 3, 1, 1), v=random_array(16, 16, 1, 1), s=np.float32(0.05), p=np.uint8(120),
    )  # fmt: skip


SCALE_OF_IMAGE, SCALE_INPUTS = "a = Conv (x, w) m = GlobalAveragePool (a)", "float[{},3,5,7] x, float[1,16,1,1] m"

test_squeeze_and_excitation_scale_is_repeated = rule_test(
    "squeeze_excite_blocks",
    Case("floats", squeeze_excite_graph("float[1,3,5,7] x", SCALE_OF_IMAGE)),
    Case("a scale that is an input", squeeze_excite_graph(SCALE_INPUTS.format(1), "a = Conv (x, w)")),
    declines("several images", squeeze_excite_graph(SCALE_INPUTS.format(5), "a = Conv (x, w)", 5), "batch sizes"),
    declines(
        "dequantized",
        squeeze_excite_graph("uint8[1,3,5,7] q", f"x = DequantizeLinear (q, s, p) {SCALE_OF_IMAGE}"),
        "quantized",
    ),
    declines("integers", lambda net: squeeze_excite(net, dtype="int8")),
    declines("12 channels", lambda net: squeeze_excite(net, channels=12), "below 16"),
    declines("29 channels", lambda net: squeeze_excite(net, channels=29), "not a multiple of 4"),
    declines("a single pixel", lambda net: squeeze_excite(net, size=(1, 1))),
    declines(
        "a scale without a convolution", lambda net: squeeze_excite(net, dense=True), "does not come from a convolution"
    ),
    declines(
        "no convolution after it", lambda net: squeeze_excite(net, is_output=True), "no convolution reads the product"
    ),
)


def test_image_reshaped_later_keeps_its_batch() -> None:
    passes = otp.convert(build_model(lambda net: squeeze_excite(net, batch=None))).report.passes
    assert {"squeeze_excite_blocks", "image_channels_to_width"} <= passes.keys()


# --- lookup_channels_last -----------------------------------------------------------------------


def look_up(
    net: Network, batch: int | None = 1, channels: int = 16, size: tuple[int, int] = (5, 7), *,
    conv_before: bool = True, conv_after: bool = True, added: bool = False,
) -> TensorRef:  # fmt: skip
    """Build HARD_SWISH between 8-bit convolutions.

    ``added``: its operand is a sum. ``conv_before`` and ``conv_after``: with this convolution.
    """
    x = net.input(image(batch, *size, channels, dtype="int8"))
    x = net.conv(x, channels, (3, 3)) if conv_before else x
    x = net.like("ADD", x, net.conv(x, channels, (1, 1))) if added else x
    y = net.like("HARD_SWISH", x)
    return net.conv(y, 7, (1, 1)) if conv_after else y


test_lookup_between_convolutions_is_channels_last = rule_test(
    "lookup_channels_last",
    Case("an image", look_up),
    Case("a sum", lambda net: look_up(net, added=True)),
    Case("a dynamic batch", lambda net: look_up(net, batch=None), batch=3),
    Case("several images", lambda net: look_up(net, batch=3)),
    declines("no convolution before it", lambda net: look_up(net, conv_before=False), "computes the image"),
    declines("no convolution after it", lambda net: look_up(net, conv_after=False), "reads the image"),
    declines("a single pixel", lambda net: look_up(net, size=(1, 1))),
    declines("one channel", lambda net: look_up(net, channels=1)),
)


@pytest.mark.parametrize("batch", [1, None])
def test_lookup_transposes_cancel_in_onnx_runtime(batch: int | None) -> None:
    trial = RewriteTrial("lookup_channels_last", lambda net: look_up(net, batch=batch), batch=3)
    assert trial.ort_op_counts["Transpose"] < op_counts_after_optimization(finish_model(trial.before))["Transpose"]


# --- image_channels_to_width ------------------------------------------------------------------


def first_conv(
    *shape: int | None, kernel: tuple[int, int] = (3, 5), features: int = 16, **options: Any
) -> BuildNetwork:
    return lambda net: net.conv(float_input(net, *shape), features, kernel, **options)


def two_convs(net: Network) -> tuple[TensorRef, TensorRef]:
    x = float_input(net, 1, 11, 13, 3)
    return net.conv(x, 8, (3, 5), name="tall"), net.conv(x, 16, (1, 3), stride=2, name="flat")


def conv_of_float16(net: Network) -> TensorRef:
    shape, x = (7, 3, 5, 3), float_input(net, 1, 11, 13, 3)
    w = net.call("DEQUANTIZE", [constant(random_array(*shape, seed="w").astype(np.float16))], tensor(*shape))
    y = replace(tensor(1, 11, 13, 7), name="")
    return net.call("CONV_2D", [x, w, constant(random_array(7, seed="b"))], y, padding="SAME", stride_h=1, stride_w=1)


def conv_and_transpose(net: Network) -> tuple[TensorRef, TensorRef]:
    x = float_input(net, 1, 11, 13, 3)
    return net.conv(x, 8), net.like("TRANSPOSE", x, constant([0, 3, 1, 2]), shape=(1, 3, 11, 13))


def plane_graph(nodes: str) -> Any:
    return graph(
        f"(float[1,11,13,3] x) => (float[1,5,h,w] y) {{ a = Transpose <perm = [0, 3, 1, 2]> (x) {nodes} y = Relu (b) }}",
        w=random_array(5, 3, 3, 3), k=np.ones((5, 3, 3, 3), np.int8), s=np.float32(0.05),
    )  # fmt: skip


ONE_RESHAPE = {"Transpose": 1, "Reshape": 1}
SIZE = (1, 41, 37, 3)

test_image_of_few_channels_is_not_transposed = rule_test(
    "image_channels_to_width",
    *(
        Case(text, first_conv(*shape, **options), tolerance=1e-6, nodes=ONE_RESHAPE)
        for text, shape, options in (
            ("an image", SIZE, {}), ("a stride", SIZE, {"stride": 2}), ("no padding", SIZE, {"padding": "VALID"}),
            ("even sizes", (1, 42, 38, 3), {"kernel": (3, 3), "stride": 2}), ("one tap", SIZE, {"kernel": (1, 1)}),
            ("two channels", (1, 41, 37, 2), {}), ("13 channels", (1, 41, 37, 13), {}), ("7 features", SIZE, {"features": 7}),
            ("dilated rows", SIZE, {"dilation_h_factor": 3}), ("several images", (5, 41, 37, 3), {}),
            ("an activation", SIZE, {"fused_activation_function": "RELU6"}),
        )
    ),
    Case("a dynamic batch", first_conv(None, 11, 13, 3, features=8), tolerance=1e-6, batch=7),
    Case("a dynamic height", first_conv(None, None, 13, 3, features=8), tolerance=1e-6, batch=7),
    Case("two convolutions of one plane", two_convs, tolerance=1e-6, nodes={"Reshape": 1, "Transpose": 2}),
    Case("weights of float16", conv_of_float16, tolerance=1e-6),
    Case("a graph", plane_graph("b = Conv (a, w)")),
    declines("one channel", first_conv(1, 41, 37, 1)),
    declines("16 channels", first_conv(1, 41, 37, 16), "16 or more"),
    declines("dilated columns", first_conv(*SIZE, dilation_w_factor=2), "dilated"),
    declines("a dynamic width", first_conv(1, 41, None, 3), "width is dynamic"),
    declines("a depthwise convolution", first_conv(*SIZE, features=3, depthwise=True), "grouped"),
    declines("integers", lambda net: net.conv(net.input(image(*SIZE)), 16)),
    declines("planes that are an output", conv_and_transpose),
    declines("automatic pads", plane_graph('b = Conv <auto_pad = "SAME_UPPER"> (a, w)'), "pads"),
    declines("quantized weights", plane_graph("v = DequantizeLinear (k, s) b = Conv (a, v)"), "quantized"),
    declines("another reader", plane_graph("c = Abs (a) b = Conv (a, w)"), "other than a convolution"),
)  # fmt: skip


# --- pad_to_conv and split_single_feature_conv ------------------------------------------------


def residual(
    net: Network, pads: tuple[int, int] = (0, 16), channels: int = 16, dtype: str = "float32",
    row_pads: tuple[int, int] = (0, 0), *, summed: bool = True,
) -> TensorRef:  # fmt: skip
    """Build a tensor with padded channels, and its sum with a convolution."""
    x = net.conv(net.input(image(1, 5, 7, 3, dtype=dtype)), channels, (1, 1), fused_activation_function="RELU")
    shape = (1, 5 + sum(row_pads), 7, channels + sum(pads))
    padded = net.like("PAD", x, constant([[0, 0], [*row_pads], [0, 0], [*pads]]), shape=shape)
    if not summed:
        return net.like("SOFTMAX", padded, beta=1.0)
    conv = net.conv(net.input(image(1, 5 + sum(row_pads), 7, 3, dtype=dtype)), shape[3], (1, 1))
    return net.like("ADD", conv, padded, fused_activation_function="RELU")


def pad_graph(
    pad: str = "Pad (x, pads)", addend: str = "Conv (z, w)", kind: str = "float", channels: tuple[int, int] = (0, 8)
) -> Any:
    dtype, (before, after) = {"float": np.float32, "double": np.float64}[kind], channels
    features = 8 + before + after
    return graph(
        f"({kind}[1,8,5,7] x, {kind}[1,3,5,7] z) => ({kind}[1,{features},5,7] y) {{ p = {pad} c = {addend} y = Add (c, p) }}",
        pads=np.array([0, before, 0, 0, 0, after, 0, 0]), axes=np.array([0, 1, 3, 2]), w=np.ones((features, 3, 1, 1), dtype),
        one=np.ones((), dtype), zero=np.zeros((), dtype),
    )  # fmt: skip


test_zero_channels_are_computed_by_a_convolution = rule_test(
    "pad_to_conv",
    *(
        Case(str(pads), lambda net, pads=pads: residual(net, pads), tolerance=1e-6, nodes={"Pad": 0, "Conv": 3})
        for pads in ((0, 16), (16, 0), (4, 12), (0, 8))
    ),
    Case("a graph", pad_graph()),
    declines("no sum", lambda net: residual(net, summed=False)),
    declines("rows too", lambda net: residual(net, row_pads=(1, 0)), "height"),
    declines("integers", lambda net: residual(net, dtype="int8"), "not float"),
    declines("29 channels", lambda net: residual(net, channels=29), "not a multiple of 4"),
    declines("256 channels", lambda net: residual(net, channels=256), "more than 128 channels"),
    declines("nothing to append", lambda net: residual(net, (0, 0))),
    declines("channels cut off before", pad_graph(channels=(-4, 16)), "cut off"),
    declines("channels cut off after", pad_graph(channels=(16, -4)), "cut off"),
    declines("ones", pad_graph("Pad (x, pads, one)"), "padding value is not zero"),
    declines("other axes", pad_graph("Pad (x, pads, zero, axes)"), "not an image with pads for all four axes"),
    declines("reflected", pad_graph('Pad <mode = "reflect"> (x, pads)'), "padding mode is not constant"),
    declines(
        "no convolution in the sum",
        pad_graph(addend="Concat <axis = 1> (x, x)"),
        "no operand of the sum is a convolution",
    ),
    declines("64 bits", pad_graph(kind="double"), "not float"),
)


def feature(
    *shape: int, kernel: tuple[int, int] = (3, 5), dtype: str = "float32", features: int = 1, **options: Any
) -> BuildNetwork:
    return lambda net: net.conv(net.input(image(*shape, dtype=dtype)), features, kernel, **options)


def feature_graph(axes: str) -> Any:
    weights = np.ones((1, 16, *[5] * len(axes.split(","))), np.float32)
    return graph(
        f"(float[1,16,{axes}] x) => (float[1,1,{','.join('hw'[: weights.ndim - 2])}] y) {{ y = Conv (x, w) }}",
        w=weights,
    )


test_single_output_channel_is_computed_per_input_channel = rule_test(
    "split_single_feature_conv",
    *(
        Case(text, feature(*shape, **options), tolerance=1e-5, nodes={"Conv": 2})
        for text, shape, options in (
            ("16 channels", (1, 41, 37, 16), {}), ("24 channels", (1, 41, 37, 24), {}), ("a stride", (1, 83, 79, 16), {"stride": 2}),
            ("dilation", (1, 41, 37, 16), {"dilation_h_factor": 2, "dilation_w_factor": 3}), ("several images", (3, 41, 37, 16), {}),
            ("an activation", (1, 41, 37, 16), {"fused_activation_function": "RELU6"}),
        )
    ),
    Case("a graph of images", feature_graph("41,37")),
    declines("a sequence", feature_graph("1517"), "not 2-D"),
    declines("two features", feature(1, 41, 37, 16, features=2)),
    declines("one tap", feature(1, 41, 37, 96, kernel=(1, 1)), "1 x 1"),
    declines("3 channels", feature(1, 97, 89, 3), "not a multiple of 8"),
    declines("18 channels", feature(1, 41, 37, 18), "not a multiple of 8"),
    declines("a small image", feature(1, 7, 11, 16), "fewer than 100000"),
    declines("integers", feature(1, 41, 37, 16, dtype="int8"), "quantized"),
)  # fmt: skip


# --- reshape_before_if ------------------------------------------------------------------------

BRANCH_CASES = {case.id: case for case in builtin_cases() if case.op in ("IF", "STABLEHLO_CASE")}


@pytest.mark.parametrize("target", ["onnxruntime", "generic"])
@pytest.mark.parametrize("name", ["IF-image_between_convolutions", "STABLEHLO_CASE-image_between_convolutions"])
def test_reshape_separates_a_convolution_from_an_inner_graph(name: str, target: str) -> None:
    data = BRANCH_CASES[name].build()
    model = otp.convert(data, target=target).model
    [if_node] = [node for node in model.graph if node.op_type == "If"]
    outer_values = {value for node in model.graph for value in node.outputs}
    branches = [attribute.as_graph() for attribute in if_node.attributes.values()]
    captured = {
        value for branch in branches for node in branch.all_nodes() for value in node.inputs if value in outer_values
    }
    producer_types = {
        producer_node.op_type
        for value in captured
        if value is not None and (producer_node := value.producer()) is not None
    }
    assert "Reshape" in producer_types
    assert "Conv" not in producer_types
    assert verify(data, otp.convert(data, target=target).proto).ok
