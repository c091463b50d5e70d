"""Channels are padded to whole blocks, and cut off only where necessary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from conformance.builder import TensorRef
from conformance.models import Spec, constant, random_array
from onnx_tflite_plugin.rewrite.channels import pad_channels
from onnx_tflite_plugin.rewrite.channels.padding import Convolution
from tests.helpers.passes_networks import Network, RewriteTrial, agrees, apply, image, parse_model
from tests.rewrite.harness import declines, rule_test

pytestmark = pytest.mark.int8_products


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the rule to small networks too."""
    monkeypatch.setattr(pad_channels, "MIN_MULTIPLICATIONS", 0)


def separable(net: Network, dtype: str = "float32", features: int = 29) -> TensorRef:
    """Build a pointwise, a depthwise and another pointwise convolution."""
    x = net.conv(net.input(image(1, 11, 13, 7, dtype=dtype)), features, (1, 1), name="wide")
    return net.conv(net.conv(x, features, (3, 5), depthwise=True, name="deep"), 32, (1, 1))


def branches(net: Network, dtype: str = "float32") -> TensorRef:
    """Build two branches of all operators that propagate padding, and their sum."""
    x = net.input(image(1, 11, 13, 7, dtype=dtype))
    a, b = (net.conv(x, 29, (1, 1), name=name, fused_activation_function="RELU6") for name in ("a", "b"))
    a = net.conv(a, 29, (3, 3), depthwise=True, name="deep")
    channel_means = net.like("MEAN", a, constant([1, 2]), shape=(1, 1, 1, 29), keep_dims=True)
    a = net.like("MUL", a, net.like("LEAKY_RELU", channel_means, alpha=0.3))
    a = net.like("ADD", a, b)
    a = net.like(
        "MAX_POOL_2D",
        a,
        shape=(1, 10, 12, 29),
        filter_height=2,
        filter_width=2,
        stride_h=1,
        stride_w=1,
        padding="VALID",
    )
    scale = {} if dtype == "float32" else {"scale": 0.01, "zero_point": 5}
    a = net.like("MUL", a, constant(random_array(1, 1, 1, 29, dtype=dtype, seed="k"), None, **scale))
    return net.conv(a, 32, (1, 1))


def join(net: Network, dtype: str = "float32") -> TensorRef:
    """Build a concatenation of two padded tensors and one that needs no padding."""
    x = net.input(image(1, 11, 13, 7, dtype=dtype))
    convolutions = [net.conv(x, n, (1, 1), name=f"part{n}") for n in (29, 32, 27)]
    first_spec = net.spec(convolutions[0])
    y = net.call("CONCATENATION", convolutions, first_spec.with_shape(1, 11, 13, 88).rescale(1.5), axis=3)
    return net.conv(net.conv(y, 88, (3, 3), depthwise=True), 32, (1, 1))


@pytest.mark.parametrize("build", [separable, branches, join], ids=lambda build: build.__name__)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_padding_does_not_change_results(build: Callable[..., TensorRef], dtype: str) -> None:
    trial = RewriteTrial("pad_channels", lambda net: build(net, dtype))
    assert trial.count == {separable: 1, branches: 2, join: 2}[build]
    assert trial.has_equal_outputs if dtype == "int8" else trial.is_within(1e-5)
    assert not {"Slice", "Gather"} & {node.op_type for node in trial.after.graph.node}
    for conv in trial.nodes("Conv"):
        assert trial.constant_values(conv, 1).shape[0] % 16 == 0
    if dtype == "int8":
        assert not {"Conv", "FusedConv"} & trial.ort_op_counts.keys()


def test_new_channels_have_zero_weights_in_producer_and_consumer() -> None:
    trial = RewriteTrial("pad_channels", separable)
    wide, deep, last = trial.nodes("Conv")
    assert [trial.constant_values(conv, 1).shape for conv in (wide, deep, last)] == [
        (32, 7, 1, 1),
        (32, 1, 3, 5),
        (32, 32, 1, 1),
    ]
    assert [a.i for a in deep.attribute if a.name == "group"] == [32]
    assert not trial.constant_values(wide, 1)[29:].any()
    assert not trial.constant_values(last, 1)[:, 29:].any()
    assert np.all(trial.constant_values(last, 1)[:, :29].any(axis=1))


def test_int8_weights_stay_int8() -> None:
    def build(net: Network) -> TensorRef:
        x = net.conv(net.input(image(1, 5, 3, 7, dtype="float32")), 29, (1, 1), weights="int8")
        return net.conv(net.conv(x, 29, depthwise=True, weights="int8"), 32, (1, 1), weights="int8")

    trial = RewriteTrial("pad_channels", build)
    assert trial.count == 1
    assert trial.is_within(1e-5)
    assert [trial.constant_values(conv, 1).dtype.name for conv in trial.nodes("Conv")] == ["int8"] * 3
    assert (
        max(
            np.prod(initializer.dims)
            for initializer in trial.after.graph.initializer
            if initializer.data_type == onnx.TensorProto.FLOAT
        )
        == 32
    )


def test_weights_of_padded_channels_equal_the_zero_point() -> None:
    def build(net: Network) -> TensorRef:
        x = net.conv(net.input(image(1, 11, 13, 7, dtype="uint8")), 29, (1, 1), zero_point=128)
        return net.conv(x, 32, (1, 1))

    trial = RewriteTrial("pad_channels", build)
    assert trial.count == 1
    assert trial.has_equal_outputs
    assert np.all(trial.constant_values(trial.nodes("Conv")[1], 1)[:, 29:] == 119 - 128)


@pytest.mark.parametrize(("kernel", "count"), [((3, 1), 1), ((1, 1), 0)])
def test_large_output_is_sliced_if_its_kernel_is_not_pointwise(kernel: Sequence[int], count: int) -> None:
    trial = RewriteTrial("pad_channels", lambda net: net.conv(net.input(image(1, 97, 11, 8)), 7, kernel))
    assert trial.count == count
    assert trial.has_equal_outputs


@pytest.mark.parametrize(("features", "count"), [(8, 0), (12, 1), (18, 1), (20, 0), (16, 0), (7, 1)])
def test_int8_channels_are_padded_to_fast_path_sizes(features: int, count: int) -> None:
    trial = RewriteTrial("pad_channels", lambda net: net.conv(net.conv(net.input(image(1, 11, 13, 7)), features), 32))
    assert trial.count == count
    assert trial.has_equal_outputs


def test_small_tensor_is_sliced_for_consumers_that_need_its_size() -> None:
    def build(net: Network) -> tuple[TensorRef, TensorRef]:
        x = net.conv(net.input(image(1, 5, 7, 3, dtype="float32")), 29, (1, 1), name="cut")
        return net.like("SOFTMAX", x, beta=1.0), net.conv(net.conv(x, 29, depthwise=True), 32, (1, 1))

    trial = RewriteTrial("pad_channels", build)
    assert trial.count == 1
    assert trial.is_within(1e-6)
    [slice_node] = trial.nodes("Slice")
    assert slice_node.output[0] == "cut"
    assert trial.value_metadata("cut")["tensor"]
    assert trial.value_metadata(slice_node.input[0])["channels"] == "0:29,:3"


def test_padded_graph_output_is_sliced_and_keeps_its_name() -> None:
    trial = RewriteTrial("pad_channels", lambda net: net.conv(net.input(image(1, 5, 7, 3)), 13, name="out"))
    assert trial.count == 1
    assert trial.has_equal_outputs
    assert trial.after.graph.output[0].name == "out"


def test_channels_with_gaps_are_gathered_for_other_consumers() -> None:
    def build(net: Network) -> TensorRef:
        x = net.input(image(1, 3, 5, 7, dtype="float32"))
        convolutions = [net.conv(x, n, (1, 1), name=f"part{n}") for n in (29, 27)]
        y = net.call("CONCATENATION", convolutions, net.spec(convolutions[0]).with_shape(1, 3, 5, 56), axis=3)
        return net.like("SOFTMAX", y, beta=1.0)

    trial = RewriteTrial("pad_channels", build)
    assert trial.count == 2
    assert trial.is_within(1e-6)
    assert len(trial.nodes("Gather")) == 1


def wide_convolution(
    net: Network, features: int = 29, rows: int = 47, dtype: str = "float32", **options: Any
) -> TensorRef:
    return net.conv(net.input(image(1, rows, 11, 6, dtype=dtype)), features, (1, 1), **options)


def dense_kernel(net: Network) -> TensorRef:
    x = net.conv(net.conv(wide_convolution(net, 32), 4, (3, 3)), 4, depthwise=True)
    return net.conv(x, 32, (1, 1))


def test_tensors_padded_at_other_channels_are_not_added_directly() -> None:
    def build(net: Network) -> TensorRef:
        x = net.input(image(1, 3, 5, 7, dtype="float32"))
        convolutions = [net.conv(x, n, (1, 1), name=f"part{n}") for n in (29, 27, 56)]
        y = net.call("CONCATENATION", convolutions[:2], net.spec(convolutions[2]).with_shape(1, 3, 5, 56), axis=3)
        return net.conv(net.like("ADD", y, net.conv(convolutions[2], 56, depthwise=True)), 32, (1, 1))

    trial = RewriteTrial("pad_channels", build)
    assert trial.count == 3
    assert trial.is_within(1e-5)
    assert {"Gather", "Slice"} <= {node.op_type for node in trial.after.graph.node}


def test_small_padded_graph_output_keeps_its_shape() -> None:
    trial = RewriteTrial("pad_channels", lambda net: wide_convolution(net, rows=3), io_layout="onnx")
    assert trial.count == 1
    assert trial.is_within(1e-6)
    assert trial.after.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 29


def test_large_graph_output_is_not_padded() -> None:
    assert RewriteTrial("pad_channels", wide_convolution, io_layout="onnx").count == 0


def concatenated_rows(net: Network) -> TensorRef:
    x = net.input(image(1, 47, 11, 6, dtype="float32"))
    convolutions = [net.conv(x, 29, (1, 1), name=name) for name in ("upper", "lower")]
    return net.conv(net.call("CONCATENATION", convolutions, Spec((1, 94, 11, 29)), axis=1), 32)


NO_GAIN, IS_SLICED = "fast path, or padding would waste too much", "would have to be cropped"

test_declines_padding_without_gain = rule_test(
    "pad_channels",
    declines("blocks", lambda net: separable(net, features=32), NO_GAIN),
    declines("no reader that works on blocks", lambda net: net.conv(wide_convolution(net, 28), 32), IS_SLICED),
    declines("a large tensor that is needed without padding", lambda net: net.like("SOFTMAX", wide_convolution(net), beta=1.0), IS_SLICED),
    declines("a large graph output", wide_convolution, IS_SLICED),
    declines("a dense kernel that grows by more than a third", dense_kernel, NO_GAIN),
    declines("weights with a zero point", lambda net: separable(net, "uint8"), NO_GAIN),
    declines("groups", lambda net: net.conv(wide_convolution(net, 27, groups=3), 27, depthwise=True), NO_GAIN),
    declines("two features per channel", lambda net: net.conv(net.conv(wide_convolution(net), 58, depthwise=True), 32, (1, 1)), IS_SLICED),
    declines("a concatenation of rows", concatenated_rows, IS_SLICED),
    declines("an operator with a nonzero result for zeros", lambda net: net.conv(net.like("EXP", wide_convolution(net)), 32), IS_SLICED),
    declines(
        "another tensor that is not padded",
        lambda net: net.conv(net.like("ADD", wide_convolution(net), net.input(Spec((1, 47, 11, 29)))), 32), IS_SLICED,
    ),
)  # fmt: skip


def test_added_channels_have_a_positive_scale() -> None:
    """Some runtimes reject a scale of 0."""
    trial = RewriteTrial("pad_channels", lambda net: separable(net, "int8"))
    assert trial.count == 1
    stored = {
        initializer.name: onnx.numpy_helper.to_array(initializer) for initializer in trial.after.graph.initializer
    }
    scales = [stored[node.input[1]] for node in trial.after.graph.node if node.op_type == "DequantizeLinear"]
    assert max(scale.size for scale in scales) > 29
    assert all((scale > 0).all() for scale in scales)


@pytest.mark.parametrize(
    ("scale_count", "zero_point", "is_accepted"),
    [(7, 0, True), (1, 5, True), (7, 5, False)],
    ids=["scales", "a zero point", "zero points"],
)
def test_per_channel_nonzero_zero_points_are_rejected(scale_count: int, zero_point: int, is_accepted: bool) -> None:
    per_channel = (lambda array: array) if scale_count > 1 else (lambda array: array[0])
    stored = {
        "w": random_array(7, 3, 1, 1, dtype="int8"),
        "s": per_channel(np.linspace(0.5, 1, 7, dtype=np.float32)),
        "z": per_channel(np.full(7, zero_point, np.int8)),
    }
    axis = "<axis = 0>" if scale_count > 1 else ""
    nodes = f"d = DequantizeLinear {axis} (w, s, z) y = Conv (x, d)"
    model = parse_model(f"(float[1,3,5,5] x) => (float[1,7,5,5] y) {{ {nodes} }}", **stored)
    convolution = Convolution.of(model.graph.node(1))
    assert (convolution is not None) == is_accepted
    assert convolution is None or convolution.symmetric == (zero_point == 0)


def test_result_with_per_channel_scale_is_not_padded() -> None:
    trial = RewriteTrial("pad_channels", lambda net: separable(net, "int8"))
    assert trial.count == 1
    proto = trial.before
    [quantize] = [node for node in proto.graph.node if node.op_type == "QuantizeLinear" and node.output[0] == "wide"]
    stored = {initializer.name: onnx.numpy_helper.to_array(initializer) for initializer in proto.graph.initializer}
    for node in [quantize, *(node for node in proto.graph.node if node.input[0] == "wide")]:
        for slot in (1, 2):
            name = f"{node.input[slot]}/each"
            if name not in {initializer.name for initializer in proto.graph.initializer}:
                repeated = np.repeat(stored[node.input[slot]], 29)
                proto.graph.initializer.append(onnx.numpy_helper.from_array(repeated, name))
            node.input[slot] = name
        node.attribute.append(onnx.helper.make_attribute("axis", 1))
    assert apply("pad_channels", ir.from_proto(proto)) == 0


@pytest.mark.parametrize(
    ("features", "expected"),
    [(29, 32), (11, 16), (728, 736), (44, 48), (56, 64), (19, 24), (22, 24), (8, 8), (40, 40), (96, 96)],
)
def test_round_up_prefers_16_unless_8_wastes_much_less(features: int, expected: int) -> None:
    assert pad_channels.round_up(features) == expected


def test_convolution_with_few_multiplications_is_not_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pad_channels, "MIN_MULTIPLICATIONS", 29 * 7 * 11 * 13 + 1)
    assert RewriteTrial("pad_channels", separable).count == 0
    monkeypatch.setattr(pad_channels, "MIN_MULTIPLICATIONS", 29 * 7 * 11 * 13)
    assert RewriteTrial("pad_channels", separable).count == 1


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Conv (x, one) b = Mul (a, per_channel) y = Conv (b, w)",
        "a = Conv (x, one) b = Mul (a, single) y = Conv (b, last)",
        "a = Conv (x, few) m, i = MaxPool <kernel_shape = [2, 2]> (a) y = Conv (m, w)",
        "a = Conv (x, few) m = Reshape (x, open) b = Concat <axis = 1> (a, m) y = Relu (b)",
    ],
    ids=["one feature for many", "one feature", "MaxPool indices", "beside a dynamic number of channels"],
)
def test_padding_never_reaches_a_graph_output(nodes: str) -> None:
    shapes = {"one": 1, "few": 7}
    stored = {name: random_array(size, 4, 1, 1) for name, size in shapes.items()} | {
        "per_channel": random_array(1, 7, 1, 1),
        "single": random_array(1, 1, 1, 1),
        "w": random_array(3, 7, 1, 1),
        "last": random_array(3, 1, 1, 1),
        "open": np.array([1, -1, 5, 7]),
    }
    indices_output = "int64[1,c,h,w] i" if "i =" in nodes else ""
    graph = f"(float[1,4,5,7] x) => (float[1,n,h,w] y{', ' + indices_output if indices_output else ''}) {{ {nodes} }}"
    model = parse_model(graph, **stored)
    if "open" in nodes:
        model.graph[1].outputs[0].shape = ir.Shape([1, None, 5, 7])
    assert agrees("pad_channels", model)


def test_first_convolution_may_grow_by_more_than_a_third() -> None:
    def build(net: Network) -> TensorRef:
        return net.conv(
            net.conv(net.conv(net.input(image(1, 47, 11, 3, dtype="float32")), 4), 4, depthwise=True), 32, (1, 1)
        )

    assert RewriteTrial("pad_channels", build).count == 1


def test_one_feature_is_padded_to_a_block() -> None:
    stored = {"one": random_array(1, 4, 1, 1), "single": random_array(1, 1, 1, 1), "last": random_array(3, 1, 1, 1)}
    nodes = "a = Conv (x, one) b = Mul (a, single) y = Conv (b, last)"
    model = parse_model(f"(float[1,4,5,7] x) => (float[1,3,5,7] y) {{ {nodes} }}", **stored)
    assert apply("pad_channels", model) == 2
    assert len(model.graph[0].inputs[1].const_value.numpy()) == 8
