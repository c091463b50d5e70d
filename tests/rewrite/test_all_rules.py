"""All rules of a target: order, source operators of nodes, and exact results.

Only rules for speed change results.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, TensorRef
from conformance.cases.control.loops import call_like, loop
from conformance.cases.fusions import normalization
from conformance.models import Spec, constant, random_array, tensor
from conformance.weights import bias, product, weight
from onnx_tflite_plugin.cli.summary import summary
from onnx_tflite_plugin.rewrite.channels import pad_channels, split_single_feature_conv
from onnx_tflite_plugin.rewrite.tokens import bound_masked_scores
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.targets import target_named
from onnx_tflite_plugin.verify import OnnxRuntime, verify
from onnx_tflite_plugin.verify.runtimes.structure import entry, read
from onnx_tflite_plugin.verify.submodels.points import CutPoints
from tests.helpers.passes_networks import PREFIX, RULES, Network, build_model, image

EXAMPLES = Path(__file__).parents[2] / "examples"
LARGE_MODEL_RULES = {"tie_tables", "block_products", "share_repeated"}  # for large tables and language models only
ORDER = [name for name in target_named("onnxruntime").passes if name not in LARGE_MODEL_RULES]
COUNTS = {"merge_gate_convs": 2}


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply rules to small networks too."""
    monkeypatch.setattr(pad_channels, "MIN_MULTIPLICATIONS", 0)
    monkeypatch.setattr(split_single_feature_conv, "MIN_MULTIPLICATIONS", 0)
    monkeypatch.setattr(bound_masked_scores, "MIN_ELEMENTS", 0)


def build_all(net: Network) -> tuple[TensorRef, ...]:
    """Build a network in which every pass applies."""
    return (*build_all_but_int16(net), int16_activation(net))


def build_all_but_int16(net: Network) -> tuple[TensorRef, ...]:
    """Build a network in which every pass applies, except the 16-bit passes."""
    large_layers = (
        quantized_layers(net),
        float_layers(net),
        single_feature_conv(net),
        uint8_weights(net),
        tiny_weights(net),
        factor_per_channel(net),
        clip_sum(net),
    )
    return (
        *large_layers,
        dense_with_sum(net),
        dense_per_step(net),
        adjacent_overflow(net),
        int8_dense_per_step(net),
        *halves_with_one_activation(net),
        *convolutional_loop(net),
        few_channels(net),
        tanh_and_row(net),
        factor_per_color(net),
        *split_rows(net),
        *adjacent_slices(net),
        batched_dense(net),
        lookup_between_convs(net),
        residual_norm(net),
        masked_weights(net),
    )


def adjacent_slices(net: Network) -> list[TensorRef]:
    """Build two slices that together cover a tensor."""
    x = net.input(image(1, 10, dtype="float32"))
    slices = [net.call("SLICE", [x, constant([0, begin]), constant([1, 5])], tensor(1, 5)) for begin in (0, 5)]
    return [net.like("NEG", slice_value) for slice_value in slices]


def residual_norm(net: Network) -> TensorRef:
    """Build the normalized sum of two inputs."""
    x, residual = (net.input(tensor(*normalization.IMAGE)) for _ in range(2))
    return normalization.keras(net, net.like("ADD", x, residual))


def masked_weights(net: Network) -> TensorRef:
    """Build causal attention weights of three tokens."""
    mask = np.where(np.eye(3), 0, -100).astype(np.float32)
    scores = net.like("ADD", net.input(tensor(1, 2, 3, 3)), constant(mask))
    return net.like("NEG", net.call("SOFTMAX", [scores], tensor(1, 2, 3, 3), beta=1.0))


def batched_dense(net: Network) -> TensorRef:
    """Build a dense layer over a batch of rows."""
    x, weights = net.input(image(3, 5, 7, dtype="float32")), constant(random_array(11, 7, seed="kept"))
    return net.call("FULLY_CONNECTED", [x, weights], tensor(3, 5, 11), keep_num_dims=True)


def clip_sum(net: Network) -> TensorRef:
    """Build a clipped sum of convolutions."""
    x = net.conv(net.input(image(1, 5, 7, 16, dtype="float32")), 16, (1, 1))
    return net.conv(net.like("ADD", x, net.conv(x, 16, (1, 1)), fused_activation_function="RELU6"), 16, (1, 1))


def tiny_weights(net: Network) -> TensorRef:
    """Build a dense layer with tiny weights."""
    weights = random_array(7, 11, dtype="float32", seed="decayed")
    weights[3] = 3e-40
    return net.call(
        "FULLY_CONNECTED", [net.input(image(5, 11, dtype="float32")), constant(weights), None], tensor(5, 7)
    )


def dense_with_sum(net: Network) -> TensorRef:
    """Build a dense layer and an input that is added to its result."""
    weights = constant(random_array(7, 11, dtype="float32", seed="summed"))
    rows = net.call("FULLY_CONNECTED", [net.input(image(5, 11, dtype="float32")), weights, None], tensor(5, 7))
    return net.like("ADD", rows, net.input(image(5, 7, dtype="float32")))


def dense_per_step(net: Network) -> TensorRef:
    """Build one dense layer per time step, for two steps."""
    x, weights = (
        net.input(image(2, 1, 11, dtype="float32")),
        constant(random_array(7, 11, dtype="float32", seed="steps")),
    )
    steps = [net.call("GATHER", [x, constant(k)], tensor(1, 11), axis=0) for k in range(2)]
    return net.like("MUL", *(net.call("FULLY_CONNECTED", [step, weights, None], tensor(1, 7)) for step in steps))


def int8_dense_per_step(net: Network) -> TensorRef:
    """Build one int8 dense layer per time step, for three consecutive steps."""
    spec, weights = image(3, 1, 11, dtype="int8"), weight((7, 11), "int8", 0)
    x, placed_weights, result = net.input(spec), net.add_operand(weights), product(spec, weights, (1, 7), 11)
    steps = [net.call("GATHER", [x, constant(k)], spec.with_shape(1, 11), axis=0) for k in range(3)]
    rows = [net.call("FULLY_CONNECTED", [step, placed_weights, None], result) for step in steps]
    return net.call("PACK", rows, result.with_shape(3, 1, 7), axis=0, values_count=3)


def int16_activation(net: Network) -> TensorRef:
    """Build a 16-bit activation."""
    return net.call(
        "LOGISTIC", [net.input(image(5, 7, dtype="int16"))], tensor(5, 7, dtype="int16", scale=1 / 32768, zero_point=0)
    )


def halves_with_one_activation(net: Network) -> list[TensorRef]:
    """Build two halves of a row with the same activation."""
    half_specs = [tensor(1, 5)] * 2
    halves = net.call_multi_output(
        "SPLIT", [constant(1), net.input(image(1, 10, dtype="float32"))], *half_specs, num_splits=2
    )
    return [net.like("TANH", half) for half in halves]


def convolutional_loop(net: Network) -> Sequence[TensorRef]:
    """Build a loop with three sums of two convolutions and a reshaped condition."""
    spec = tensor(2, 5, 7, 3)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        zero_bias, (x,) = graph.constant("none", random_array(3)), values
        activated = call_like(graph, "TANH", [x], x)
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
        sums = []
        for k in range(3):
            weights = [graph.constant(f"w{name}{k}", random_array(3, 1, 1, 3, seed=f"{name}{k}")) for name in "xy"]
            convolved = [
                call_like(graph, "CONV_2D", [y, w, zero_bias], x, **options)
                for y, w in zip((x, activated), weights, strict=True)
            ]
            sums.append(call_like(graph, "ADD", convolved, x))
        first, second, third = sums
        return [call_like(graph, "MUL", [call_like(graph, "MUL", [first, second], x), third], x)]

    return loop(net, [net.input(spec)], [spec], body)


def factor_per_channel(net: Network) -> TensorRef:
    """Build a multiplication by one factor per channel."""
    factor = constant(random_array(1, 1, 1, 3, dtype="uint8", low=40, high=99), None, 0.015, 3)
    return net.like("MUL", net.input(image(1, 23, 29, 3, dtype="uint8")), factor)


def uint8_weights(net: Network) -> TensorRef:
    """Build an average, and uint8 weights of which one does not fit symmetric int8."""
    x = net.conv(net.input(image(1, 15, 17, 16, dtype="uint8")), 16, (1, 1), beyond_int8=[(3, 0, 0, 7)])
    x = net.conv(x, 96, (1, 1), beyond_int8=[(3, 0, 0, 7)])
    window = {"filter_height": 3, "filter_width": 2, "stride_h": 3, "stride_w": 2, "padding": "VALID"}
    return net.like("AVERAGE_POOL_2D", x, shape=(1, 5, 8, 96), **window)


def float_layers(net: Network) -> TensorRef:
    """Build normalization, a padded residual and squeeze-and-excitation.

    Batch normalization precedes an activation; the residual connection has appended zero channels.
    """
    x = net.conv(
        net.input(image(1, 5, 7, 3, dtype="float32")), 16, (1, 1), fused_activation_function="RELU", name="before"
    )
    y = net.like("MUL", x, constant(random_array(1, 1, 1, 16, dtype="float32", seed="scale")))
    y = net.like(
        "ADD", y, constant(random_array(1, 1, 1, 16, dtype="float32", seed="offset")), fused_activation_function="RELU"
    )
    padded = net.like("PAD", x, constant([[0, 0], [0, 0], [0, 0], [0, 16]]), shape=(1, 5, 7, 32))
    x = net.conv(net.like("ADD", net.conv(y, 32, (1, 1)), padded), 16, (1, 1), fused_activation_function="RELU")
    mean = net.like("MEAN", x, constant([1, 2]), shape=(1, 1, 1, 16), keep_dims=True)
    scaled_image = net.like("MUL", x, net.like("LOGISTIC", net.conv(mean, 16, (1, 1))))
    return net.conv(scaled_image, 16, (1, 1))


def lookup_between_convs(net: Network) -> TensorRef:
    """Build HARD_SWISH between 8-bit convolutions."""
    x = net.conv(net.input(image(1, 5, 7, 16, dtype="int8")), 16, (1, 1))
    return net.conv(net.like("HARD_SWISH", x), 16, (1, 1))


def single_feature_conv(net: Network) -> TensorRef:
    """Build a convolution with one output channel."""
    return net.conv(net.input(image(1, 67, 71, 16, dtype="float32")), 1, (3, 3), name="mask")


def quantized_layers(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 15, 32, 1)), 13, (3, 3), 2, name="folded")
    x = net.conv(x, 13, (3, 3), depthwise=True, name="deep")
    x = net.conv(x, 32, (1, 1), name="wide")
    x = net.like("MUL", x, constant(random_array(1, 1, 1, 32, dtype="int8", low=40, high=99), None, 0.015, 3))
    x = net.like("ADD", x, constant(random_array(1, 1, 1, 32, dtype="int8"), None, 0.3, 3))
    w = weight((11, 2, 2, 32), "int8", 0)
    y = product(net.spec(x), w, (1, 16, 32, 11), 32)
    b = bias(net.spec(x), w, 11, "int32", 32)
    y = net.call("TRANSPOSE_CONV", [constant([1, 16, 32, 11]), w, x, b], y, padding="SAME", stride_h=2, stride_w=2)
    return net.conv(y, 16, (1, 1), name="last")


def adjacent_overflow(net: Network) -> TensorRef:
    """Build a convolution whose adjacent weights overflow."""
    x = net.conv(net.input(image(1, 16, 32, 7)), 16, (1, 1))
    return net.conv(x, 16, (1, 1), change=overflowing)


def split_rows(net: Network) -> list[TensorRef]:
    """Build rows that are split into two columns each."""
    rows = net.call_multi_output("SPLIT", [constant(0), net.input(tensor(3, 10))], *[tensor(1, 10)] * 3, num_splits=3)
    return [
        net.like("ABS", column)
        for row in rows
        for column in net.call_multi_output("SPLIT", [constant(1), row], *[tensor(1, 5)] * 2, num_splits=2)
    ]


def tanh_and_row(net: Network) -> TensorRef:
    """Build an 8-bit TANH whose single row is added to several rows."""
    x = net.call("TANH", [net.input(tensor(1, 7, dtype="int8", scale=0.03))], Spec((1, 7), "int8", 1 / 128, 0))
    row = net.like("RESHAPE", x, constant([7]), shape=(7,))
    return net.like("ADD", row, net.like("RELU", net.input(tensor(5, 7, dtype="int8"))), shape=(5, 7))


def factor_per_color(net: Network) -> TensorRef:
    """Build a multiplication by one factor per color."""
    return net.like(
        "MUL", net.input(image(1, 7, 11, 3, dtype="float32")), constant(random_array(3, dtype="float32"), None)
    )


def few_channels(net: Network) -> TensorRef:
    """Build a depthwise convolution of few channels."""
    return net.conv(net.input(image(1, 23, 32, 8)), 8, (3, 3), depthwise=True)


def overflowing(weights: Array) -> Array:
    """Return small weights, except for two adjacent ones that overflow."""
    small_weights = weights.astype(int) // 5
    small_weights[3, 0, 0, :2] = 90
    return small_weights


def test_optimize_speed_runs_all_passes_in_order_and_reports_them(tmp_path: Path) -> None:
    data = build_model(build_all)
    conversion = otp.convert(data, optimize="speed", verify=True)
    assert list(conversion.report.passes.items()) == [(name, COUNTS.get(name, 1)) for name in ORDER]
    assert conversion.report.nodes == dict(
        Counter(node.op_type for node in conversion.model.graph.all_nodes()).most_common()
    )
    path = tmp_path / "m.onnx"
    [summary_row] = [row for row in summary(conversion, conversion.save(path), 1.0) if row.label == "rewritten"]
    assert [line for line in summary_row.lines if line.endswith(": 1 place")] == [
        f"{RULES[name].summary}: 1 place" for name in ORDER if name not in COUNTS
    ]


def test_exact_passes_run_by_default() -> None:
    report = otp.convert(build_model(build_all), verify=True).report
    assert report.passes.keys() == {name for name in ORDER if RULES[name].exact}


@pytest.mark.parametrize("options", [{"optimize": "none"}, {"optimize": "speed", "target": "generic"}], ids=str)
def test_no_pass_runs_with_optimize_none_or_for_generic_target(options: dict[str, str]) -> None:
    conversion = otp.convert(build_model(build_all), **options)
    assert not conversion.report.passes
    assert len([node for node in conversion.proto.graph.node if node.op_type == "ConvTranspose"]) == 1


@pytest.mark.parametrize("opset", [13, 21, pytest.param(26, marks=pytest.mark.needs("onnx", "1.21", "opset 26"))])
def test_passes_work_at_every_opset(opset: int) -> None:
    is_old = opset < 21  # no 16-bit QuantizeLinear; LayerNormalization is decomposed
    conversion = otp.convert(
        build_model(build_all_but_int16 if is_old else build_all), optimize="speed", opset=opset, verify=True
    )
    assert conversion.report.passes.keys() == {*ORDER} - ({"dequantize_int16", "sum_before_norm"} if is_old else set())


def test_every_node_keeps_its_source_operator_in_metadata() -> None:
    conversion = otp.convert(build_model(build_all), optimize="speed")
    for node in conversion.proto.graph.node:
        metadata = {p.key.removeprefix(PREFIX): p.value for p in node.metadata_props}
        assert node.name
        assert not metadata or {"operators", "handler", "pack"} <= metadata.keys()
    without_metadata = [node.op_type for node in conversion.proto.graph.node if not node.metadata_props]
    nodes_before_rules = otp.convert(build_model(build_all), optimize="none").proto.graph.node
    assert without_metadata == [node.op_type for node in nodes_before_rules if not node.metadata_props]


@pytest.mark.parametrize("name", ["folded", "wide", "last"])
def test_verify_finds_first_diverging_tensor_after_rewrites(name: str) -> None:
    data = build_model(quantized_layers)
    proto = otp.convert(data).proto
    producers = {output: node for node in proto.graph.node for output in node.output}
    node = producers[name]
    while node.op_type not in ("Conv", "Slice"):
        node = producers[node.input[0]]
    if node.op_type == "Slice":
        node = producers[producers[node.input[0]].input[0]]
    weights_name = producers[node.input[2]].input[0]
    [weights] = [initializer for initializer in proto.graph.initializer if initializer.name == weights_name]
    weights.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weights)[::-1], weights_name))
    verification = verify(data, proto)
    assert verification.diverging is not None
    assert verification.diverging.tensor.name == name


@pytest.mark.parametrize(
    ("example", "passes"), [("digits_float.tflite", {}), ("digits_int8.tflite", {"fold_width": 1})]
)
def test_trained_network_verifies_with_optimize_speed(example: str, passes: dict[str, int]) -> None:
    assert otp.convert(EXAMPLES / example, optimize="speed", verify=True).report.passes == passes


def test_importing_targets_does_not_import_onnx_ir() -> None:
    code = "import sys, onnx_tflite_plugin.targets; sys.exit('onnx_ir' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_conversion_imports_only_passes_for_operators_in_the_model(tmp_path: Path) -> None:
    path = tmp_path / "mask.tflite"
    path.write_bytes(build_model(single_feature_conv))
    code = (
        "import sys, onnx_tflite_plugin as otp; otp.convert(sys.argv[1]);"
        "print(*(name.rpartition('.')[2] for name in sys.modules if name.startswith('onnx_tflite_plugin.rewrite.')))"
    )
    process = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    operators = {"Conv", "Reshape", "Transpose"}  # the Reshape is written by a rule
    other_rules = {"unroll_loops", "fold_captures"}  # of an option, and of other targets
    expected = {
        rule.module or name for name, rule in RULES.items() if rule.operators <= operators and name not in other_rules
    }
    assert set(process.stdout.split()) & {rule.module or name for name, rule in RULES.items()} == expected


def test_values_name_their_tensor_after_all_rules() -> None:
    data = build_model(quantized_layers)
    conversion = otp.convert(data)
    assert conversion.report.passes
    submodels = CutPoints(entry(read(data)), OnnxRuntime(conversion.proto)).submodels
    assert max(len(submodel.operators) for submodel in submodels) <= 3, [submodel.tensor.name for submodel in submodels]
