"""Weights selected at load time give equal results with every dtype."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.cases.fusions.dynamic import HYBRID
from conformance.cases.image.convolution import conv_case
from conformance.models import random_array
from onnx_tflite_plugin.rewrite.weights.assign_dtypes import check_overflow
from onnx_tflite_plugin.rewrite.weights.dtypes import PROBE
from onnx_tflite_plugin.rewrite.weights.int8_operands import int8_operands
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.runtimes.processor import multiplies_exactly
from tests.helpers.passes_networks import Network, build_model, image, numpy_dtype_name

pytestmark = pytest.mark.int8_products

PRECISE_CONFIG = {"session.x64quantprecision": "1"}


def full_range(*shape: int) -> Array:
    """Return weights from -127 to 127, as converters write them."""
    return np.maximum(random_array(*shape, dtype="int8"), -127)


def convolutions(net: Network) -> Any:
    """Build convolutions of each kind and a dense layer, with full-range weights."""
    x = net.conv(net.input(image(1, 11, 13, 3)), 17, name="first")
    x = net.conv(x, 17, depthwise=True, name="depthwise")
    x = net.conv(x, 34, depthwise=True, name="multiplied")
    return net.conv(x, 23, kernel=(1, 1), name="pointwise")


def dense() -> bytes:
    """Return a model with two products that share a weight."""
    model = ModelBuilder()
    g = model.main
    x, y = (
        g.input("x", (5, 7), "int8", quantization=quant(0.5, 3)),
        g.input("y", (3, 7), "int8", quantization=quant(0.25, -5)),
    )
    w = g.constant("w", full_range(11, 7), quantization=quant(0.01, 0))
    for name, operand, rows in (("one", x, 5), ("two", y, 3)):
        out = g.tensor(name, (rows, 11), "int8", quantization=quant(0.5, 1))
        g.operator("FULLY_CONNECTED", [operand, w, None], [out])
        g.output(out)
    return model.build()


def loop_model() -> bytes:
    """Return a WHILE whose body has a dense layer with an outer weight."""
    model = ModelBuilder()
    g = model.main
    quantization = quant(0.5, 3)
    x, n = g.input("x", (3, 7), "int8", quantization=quantization), g.input("n", (), "int32")
    condition, body = model.subgraph("condition"), model.subgraph("body")
    remaining, _ = (
        condition.input("remaining", (), "int32"),
        condition.input("state", (3, 7), "int8", quantization=quantization),
    )
    condition.output(is_positive := condition.tensor("is_positive", (), "bool"))
    condition.operator("GREATER", [remaining, condition.constant("zero", np.int32(0))], [is_positive])
    remaining, state = (
        body.input("remaining", (), "int32"),
        body.input("state", (3, 7), "int8", quantization=quantization),
    )
    decremented, rescaled = (
        body.tensor("decremented", (), "int32"),
        body.tensor("rescaled", (3, 7), "int8", quantization=quantization),
    )
    body.operator("SUB", [remaining, body.constant("one", np.int32(1))], [decremented])
    w = body.constant("w", full_range(7, 7), quantization=quant(0.004, 0))
    body.operator("FULLY_CONNECTED", [state, w, None], [rescaled])
    body.output(decremented, rescaled)
    outputs = g.tensor("remaining", (), "int32"), g.tensor("end", (3, 7), "int8", quantization=quantization)
    g.operator("WHILE", [n, x], outputs, {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    g.output(outputs[1])
    return model.build()


def dynamic() -> bytes:
    """Return a dense layer with int8 weights, large enough for dynamic quantization."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (17, 1031))
    w = g.constant("w", full_range(1033, 1031), quantization=quant(0.01, 0))
    g.output(y := g.tensor("y", (17, 1033)))
    g.operator("FULLY_CONNECTED", [x, w, None], [y])
    return model.build()


NETWORKS = {"convolutions": lambda: build_model(convolutions), "dense": dense, "loop": loop_model, "dynamic": dynamic}
for_each_network = pytest.mark.parametrize("network", NETWORKS)


class LoadedModel:
    """A model loaded in ONNX Runtime, and the optimized graph."""

    def __init__(self, proto: onnx.ModelProto, folder: Path, config: dict[str, str] | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        options.optimized_model_filepath = str(folder / "optimized.onnx")
        for key, value in (config or {}).items():
            options.add_session_config_entry(key, value)
        self.session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.optimized = ir.from_proto(onnx.load(folder / "optimized.onnx"))

    @property
    def operators(self) -> Counter[str]:
        return Counter(node.op_type for node in self.optimized.graph.all_nodes())

    @property
    def dtypes(self) -> Counter[str]:
        """Return the number of constant matrices and kernels by dtype."""
        graphs = [self.optimized.graph, *self.optimized.graph.subgraphs()]
        constants = {value for graph in graphs for value in graph.initializers.values()}
        return Counter(
            value.const_value.dtype.name
            for value in constants
            if value.const_value and len(value.const_value.shape) > 1
        )

    def run(self) -> list[list[Array]]:
        results = []
        for seed in "abc":
            feeds = {
                info.name: np.asarray(2, np.int32)
                if not info.shape
                else random_array(*info.shape, dtype=numpy_dtype_name(info.type), seed=seed)
                for info in self.session.get_inputs()
            }
            results.append(self.session.run(None, feeds))
        return results


def are_equal(first: Sequence[Sequence[Array]], second: Sequence[Sequence[Array]]) -> bool:
    assert all(array.min() < array.max() for run in first for array in run)
    return all(
        np.array_equal(first_array, second_array)
        for first_run, second_run in zip(first, second, strict=True)
        for first_array, second_array in zip(first_run, second_run, strict=True)
    )


def convert_model(network: str, option: str) -> otp.Conversion:
    return otp.convert(NETWORKS[network](), weights_dtype=option)


@for_each_network
def test_auto_selects_the_weights_that_are_exact_on_this_processor(network: str, tmp_path: Path) -> None:
    models = {
        option: LoadedModel(convert_model(network, option).proto, tmp_path) for option in ("auto", "uint8", "int8")
    }
    expected = models["int8" if multiplies_exactly() else "uint8"]
    assert models["auto"].operators == expected.operators
    assert "If" not in models["auto"].operators
    assert models["auto"].dtypes.keys() == expected.dtypes.keys()
    assert models["int8"].dtypes.keys() != models["uint8"].dtypes.keys()
    assert are_equal(models["auto"].run(), models["uint8"].run())
    assert are_equal(models["auto"].run(), models["int8"].run()) or not multiplies_exactly()


@for_each_network
def test_auto_with_swapped_branches_equals_the_other_weights_dtype(network: str, tmp_path: Path) -> None:
    model = ir.from_proto(convert_model(network, "auto").proto)
    for node in model.graph.all_nodes():
        if node.op_type == "If" and node.inputs[0] is not None and node.inputs[0].name == PROBE:
            then_branch, else_branch = (node.attributes[name].as_graph() for name in ("then_branch", "else_branch"))
            node.attributes["then_branch"] = ir.AttrGraph("then_branch", else_branch)
            node.attributes["else_branch"] = ir.AttrGraph("else_branch", then_branch)
    swapped = LoadedModel(ir.to_proto(model), tmp_path)
    expected = LoadedModel(convert_model(network, "uint8" if multiplies_exactly() else "int8").proto, tmp_path)
    assert swapped.operators == expected.operators
    assert swapped.dtypes.keys() == expected.dtypes.keys()
    assert are_equal(swapped.run(), expected.run())


@for_each_network
def test_auto_gives_equal_results_with_x64quantprecision(network: str, tmp_path: Path) -> None:
    proto = convert_model(network, "auto").proto
    assert are_equal(LoadedModel(proto, tmp_path, PRECISE_CONFIG).run(), LoadedModel(proto, tmp_path).run())


@for_each_network
def test_weights_dtypes_are_counted_in_report_and_metadata(network: str) -> None:
    auto, uint8, int8 = (convert_model(network, option) for option in ("auto", "uint8", "int8"))
    assert (
        auto.report.weights["chosen"]
        == uint8.report.weights["uint8"]
        == int8.report.weights["int8, processor-dependent"]
    )
    metadata = {item.key: item.value for item in auto.proto.metadata_props}["onnx_tflite_plugin.weights"]
    assert '"chosen"' in metadata
    assert auto.report.nodes["If"] == 1
    assert "If" not in uint8.report.nodes | int8.report.nodes


def if_nodes(conversion: otp.Conversion) -> list[ir.Node]:
    return [node for node in conversion.model.graph.all_nodes() if node.op_type == "If"]


def test_one_if_selects_all_weights_of_a_graph_and_names_them_by_consumer() -> None:
    conversion = convert_model("convolutions", "auto")
    (if_node,) = if_nodes(conversion)
    assert len(if_node.outputs) == conversion.report.weights["chosen"] > 2
    for value in if_node.outputs:
        (user,) = (use.node for use in value.uses())
        assert str(value.name).startswith(str(user.name).rpartition("/")[0] + "/")


def test_weights_used_in_a_loop_body_are_selected_in_the_body() -> None:
    """ONNX Runtime fuses a product only with DequantizeLinear in the same graph."""
    (if_node,) = if_nodes(convert_model("loop", "auto"))
    (user,) = (use.node for use in if_node.outputs[0].uses())
    assert if_node.graph is user.graph


@pytest.mark.parametrize("option", ["auto", "int8"])
def test_weights_do_not_share_initializers(option: str) -> None:
    model = ir.from_proto(convert_model("dense", option).proto)
    operands = [
        value
        for node in model.graph.all_nodes()
        if node.op_type == "DequantizeLinear" and node.inputs[0].name in model.graph.initializers
        for value in node.inputs
        if node.inputs[0].dtype == ir.DataType.INT8
    ]
    assert len(operands) == 6  # integers, scale and zero point of two products
    assert len(set(operands)) == 6


def test_weight_of_minus_128_is_always_uint8() -> None:
    """The sum of two products -128 * -128 overflows on ARM64."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (5, 7), "int8", quantization=quant(0.5, 3))
    kernel = np.zeros((11, 7), np.int8)
    kernel[3, 2] = -128
    g.output(y := g.tensor("y", (5, 11), "int8", quantization=quant(0.5, 1)))
    g.operator("FULLY_CONNECTED", [x, g.constant("w", kernel, quantization=quant(0.01, 0)), None], [y])
    assert otp.convert(model.build()).report.weights == {"uint8": 1}
    assert otp.convert(model.build()).report.as_dict()["weights"] == {"uint8": 1}
    assert otp.convert(model.build(), weights_dtype="int8").report.weights == {"int8, processor-dependent": 1}


def test_if_selects_the_whole_dynamically_quantized_product() -> None:
    """The dtype of its operand differs between the branches."""
    model = convert_model("dynamic", "auto").model
    (if_node,) = (node for node in model.graph.all_nodes() if node.op_type == "If")
    branches = [if_node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    assert all(any(node.op_type == "MatMulInteger" for node in branch) for branch in branches)
    assert if_node.outputs[0].dtype == ir.DataType.INT32


def test_no_product_overflows_with_optimize_speed() -> None:
    for data in (conv_case("", **HYBRID).build(), build_model(convolutions)):
        model = otp.convert(data, optimize="speed").model
        check_overflow(model)
        assert all(operand.exact or operand.on_exact_branch for operand in int8_operands(model))


def test_large_weight_shared_by_products_is_stored_once_as_uint8() -> None:
    """Copies would make the file grow with the number of time steps."""
    model = ModelBuilder()
    g = model.main
    w = g.constant("w", full_range(1031, 521), quantization=quant(0.01, 0))
    for k in range(4):
        x = g.input(f"x{k}", (3, 521), "int8", quantization=quant(0.5, 3))
        g.output(y := g.tensor(f"y{k}", (3, 1031), "int8", quantization=quant(0.5, 1)))
        g.operator("FULLY_CONNECTED", [x, w, None], [y])
    conversion = otp.convert(model.build())
    assert conversion.report.weights == {"uint8": 4}
    assert len(conversion.proto.SerializeToString()) < 1.1 * 1031 * 521
