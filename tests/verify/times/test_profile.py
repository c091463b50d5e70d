"""``bench --profile``: time per operator, fused operators in one row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.cases.control.loops import cases
from conformance.models import Net, constant, random_array, tensor
from conformance.weights import block_weights
from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT
from onnx_tflite_plugin.verify.times import profile
from onnx_tflite_plugin.verify.times.bench import Benchmark, bench
from onnx_tflite_plugin.verify.times.isolation import isolated_times, smallest_model
from onnx_tflite_plugin.verify.times.nodes import _subtract_overhead, _time_run, label_nodes, node_times
from onnx_tflite_plugin.verify.times.profile import KindTime, OperatorTime, by_code, format_names
from tests.helpers.command import Run
from tests.helpers.passes_networks import build_model, image

EXAMPLES = Path(__file__).parents[3] / "examples"
INT8 = EXAMPLES / "digits_int8.tflite"
CHANNELS = 32


def conv(net: Net, x: int, spec_size: int, features: int, seed: str) -> int:
    """Add a 3 x 3 convolution of CHANNELS channels."""
    w = constant(random_array(features, 3, 3, CHANNELS, seed=seed), "float32")
    shape = tensor(1, spec_size, spec_size, features)
    return net.call(
        "CONV_2D", [x, w, constant(random_array(features, seed=seed))], shape, padding="SAME", stride_w=1, stride_h=1
    )


def network() -> bytes:
    """Return a network of convolutions, HARD_SWISH, a sum and a RESHAPE.

    0: large convolution, 1: HARD_SWISH, 2, 3: convolutions, 4: their sum, 5: convolution, 6: RESHAPE.
    """
    net = Net()
    x = net.input(tensor(1, 29, 29, CHANNELS))
    wide = net.call("HARD_SWISH", [conv(net, x, 29, CHANNELS, "a")], tensor(1, 29, 29, CHANNELS))
    left, right = (conv(net, wide, 29, CHANNELS, seed) for seed in "bc")
    total = net.call("ADD", [left, right], tensor(1, 29, 29, CHANNELS))
    last = conv(net, total, 29, CHANNELS, "d")
    net.output(net.call("RESHAPE", [last, constant([1, -1])], tensor(1, 29 * 29 * CHANNELS)))
    return net.build()


@pytest.fixture(scope="module")
def profiled_network() -> tuple[bytes, Benchmark]:
    """Return a model and its profiled benchmark."""
    data = network()
    return data, bench(data, otp.convert(data), rounds=3, profiled=True)


def test_each_operator_is_in_exactly_one_row(profiled_network: tuple[bytes, Benchmark]) -> None:
    data, benchmark = profiled_network
    operators = structure.read(data).main.operators
    assert sorted(k for row in benchmark.operators for k in row.operators) == [op.index for op in operators]
    assert all(
        operators[k].code == code
        for row in benchmark.operators
        for k, code in zip(row.operators, row.codes, strict=True)
    )


@pytest.mark.needs("onnxruntime", "1.25", "fusing HardSwish with a convolution")
def test_operators_fused_by_onnx_runtime_share_a_row(profiled_network: tuple[bytes, Benchmark]) -> None:
    rows = {row.operators: row for row in profiled_network[1].operators}
    (first,) = (row for operators, row in rows.items() if 0 in operators)
    assert first.codes == ("CONV_2D", "HARD_SWISH")
    assert first.nodes.count("Conv") == 1
    (total,) = (row for operators, row in rows.items() if "ADD" in row.codes)
    assert "CONV_2D" in total.codes
    assert sum(row.nodes.count("Conv") for row in rows.values()) == 4


def test_rows_are_sorted_by_loss(profiled_network: tuple[bytes, Benchmark]) -> None:
    losses = [row.loss for row in profiled_network[1].operators]
    assert losses == sorted(losses, reverse=True)
    assert [kind.loss for kind in by_code(profiled_network[1].operators)] == sorted(
        (kind.loss for kind in by_code(profiled_network[1].operators)), reverse=True
    )


def test_negative_losses_are_sorted_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        profile, "isolated_times", lambda data, groups, *arguments: [1.0 + k for k in range(len(groups))]
    )
    losses = [row.loss for row in bench(INT8, otp.convert(INT8), rounds=3, profiled=True).operators]
    assert all(loss < 0 for loss in losses)
    assert losses == sorted(losses, reverse=True)


def test_larger_convolution_takes_longer_in_both_runtimes() -> None:
    """With most of the multiplications, the first convolution takes most of the time."""
    net = Net()
    x = net.input(tensor(1, 31, 31, CHANNELS))
    many = conv(net, x, 31, 64, "many")
    pooled = net.call(
        "MAX_POOL_2D", [many], tensor(1, 1, 1, 64), padding="VALID", stride_w=1, stride_h=1, filter_width=31,
        filter_height=31,
    )  # fmt: skip
    w = constant(random_array(3, 64, seed="few"))
    flat = net.call("RESHAPE", [pooled, constant([1, 64])], tensor(1, 64))
    net.output(net.call("FULLY_CONNECTED", [flat, w, None], tensor(1, 3)))
    data = net.build()
    rows = bench(data, otp.convert(data), rounds=3, profiled=True).operators
    by_operator = {k: row for row in rows for k in row.operators}
    assert by_operator[0].litert is not None
    assert by_operator[3].litert is not None
    assert by_operator[0].litert > 10 * by_operator[3].litert
    assert by_operator[0].onnxruntime > 10 * by_operator[3].onnxruntime


def test_computed_weights_are_grouped_with_their_reader() -> None:
    """Kernels prepack constant weights; computed ones are transposed in each run."""
    net = Net()
    x = net.input(tensor(1, 7, 11, CHANNELS))
    halves = net.call("DEQUANTIZE", [constant(random_array(5, 3, 3, CHANNELS), "float16")], tensor(5, 3, 3, CHANNELS))
    result = net.call(
        "CONV_2D", [x, halves, constant(random_array(5))], tensor(1, 7, 11, 5), padding="SAME", stride_w=1, stride_h=1
    )
    net.output(result)
    graph = structure.read(net.build()).main
    groups = [[operator] for operator in graph.operators]
    tensors = {graph.inputs[0].index: np.ones((1, 7, 11, CHANNELS), np.float32)}
    dequantize, conv_2d = isolated_times(net.build(), groups, graph, tensors, 3)
    assert dequantize is None
    assert conv_2d is not None


def test_submodel_includes_scale_tensors_of_its_weights() -> None:
    """LiteRT does not check that scale tensors exist, and crashes without them."""
    net = Net()
    x = net.input(tensor(2, 96))
    magnitudes = net.call("ABS", [x], tensor(2, 96))
    net.output(net.call("FULLY_CONNECTED", [magnitudes, block_weights(net, (7, 96), 32), None], tensor(2, 7)))
    data = net.build()
    graph = structure.read(data).main
    submodel = cut_file(data, graph, [int(magnitudes)], [graph.outputs[0].index])
    array = random_array(2, 96)
    (expected,) = LiteRT(data, "builtin").run([array])
    (result,) = LiteRT(submodel, "builtin").run([np.abs(array)])
    assert expected.min() < expected.max()
    np.testing.assert_array_equal(result, expected)


def test_operators_that_cannot_be_isolated_have_no_litert_time() -> None:
    """An operator that reads only constants has no inputs to feed."""
    data = network()
    graph = structure.read(data).main
    assert isolated_times(data, [graph.operators[:1]], graph, {}, 3) == [None]


def test_smallest_model_runs() -> None:
    (result,) = LiteRT(smallest_model(), "builtin").run([np.array([-3], np.float32)])
    assert result.tolist() == [0]


def test_subtracts_profiling_overhead_in_proportion_to_operands() -> None:
    assert list(_subtract_overhead([7.0, 4.0, 1.0], [3, 1, 1], 7.0)) == [4.0, 3.0, 0.0]
    assert list(_subtract_overhead([1.0, 2.0], [1, 1], 5.0)) == [1.0, 2.0]


@pytest.mark.parametrize("source", ["digits", "loop"])
def test_labeling_nodes_keeps_results(source: str) -> None:
    proto = otp.convert(INT8 if source == "digits" else capturing_loop()).proto
    renamed = label_nodes(proto)
    onnx.checker.check_model(renamed, full_check=True)
    feeds = inputs(proto)
    assert any(node.name.startswith("op0#") for node in renamed.graph.node)
    for actual, expected in zip(OnnxRuntime(renamed).run(feeds), OnnxRuntime(proto).run(feeds), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_inner_graph_is_timed_with_its_node() -> None:
    proto = otp.convert(capturing_loop()).proto
    times = node_times(proto, inputs(proto), 5)
    assert [node.op_type for node in times if node.op_type == "Loop"] == ["Loop"]
    assert len(times) <= len(proto.graph.node)
    assert sum(node.seconds for node in times) > 0


def test_load_time_branches_are_timed_with_their_operator() -> None:
    data = build_model(lambda net: net.conv(net.input(image(1, 13, 32, 3)), 32, (3, 3), 2))
    proto = otp.convert(data).proto
    assert "If" in {node.op_type for node in proto.graph.node}
    times = node_times(proto, {"x0": random_array(1, 13, 32, 3, dtype="int8")}, 5)
    assert {node.operator for node in times if node.op_type in ("QLinearConv", "Reshape")} == {0}


def capturing_loop() -> bytes:
    """Return a loop that accumulates and captures outer values."""
    return next(case for case in cases() if "captured" in case.name).build()


def inputs(proto: onnx.ModelProto) -> Mapping[str, Array]:
    dtypes = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_}
    return {
        info.name: np.ones(
            [dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim], dtypes[info.type.tensor_type.elem_type]
        )
        for info in proto.graph.input
    }


def test_kinds_are_listed_with_their_count() -> None:
    rows = [OperatorTime((k,), ("CONV_2D", "ADD", "ADD"), "", ("Conv",), 1.0 + k, 2.0) for k in range(2)]
    assert by_code([*rows, OperatorTime((5,), ("ADD",), "", (), None, 7.0)]) == [
        KindTime(("ADD",), 1, 0.0, 7.0), KindTime(("CONV_2D", "2 ADD"), 2, 3.0, 4.0),
    ]  # fmt: skip
    assert format_names(("b", "a", "b")) == ["2 b", "a"]


def test_rejects_a_model_without_origin_metadata() -> None:
    proto = otp.convert(INT8).proto
    for node in proto.graph.node:
        del node.metadata_props[:]
    with pytest.raises(VerificationError, match="does not record from which operators"):
        bench(INT8, proto, rounds=3, profiled=True)


def test_command_prints_kinds_and_the_worst_rows(run: Run) -> None:
    code, out, _ = run("bench", INT8, "--rounds", 3, "--profile")
    assert not code
    kinds, worst, note = (block.splitlines() for block in out.strip().split("\n\n")[1:])
    assert note[-1].endswith("the sum of its times differs from the time of a run")
    assert kinds[0].split()[:2] == ["operators", "count"]
    assert kinds[-1].split()[0] == "all"
    assert len(worst) in range(2, 8)  # five operators and a line, or up to six operators
    result = json.loads(run("bench", INT8, "--rounds", 3, "--profile", "--json").out)
    assert {"operators", "codes", "nodes", "litert", "onnxruntime"} <= result["operators"][0].keys()


def test_time_run_returns_processor_time() -> None:
    proto = otp.convert(INT8).proto
    [graph_input] = proto.graph.input
    feeds = {graph_input.name: np.zeros((1, 8, 8, 1), np.int8)}
    assert 0 < _time_run(proto, feeds, 3) < 1
