"""Tests of weights selected at load time: ONNX Runtime's graph, and that every form gives the same quantized values."""

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
from conformance.cases.image.convolution import conv
from conformance.models import random_array
from onnx_tflite_plugin.rewrite.weights.assign_dtypes import check_overflow
from onnx_tflite_plugin.rewrite.weights.dtypes import PROBE
from onnx_tflite_plugin.rewrite.weights.products import products
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.runtimes.processor import multiplies_exactly
from tests.helpers.passes_networks import Network, build_model, dtype, image

pytestmark = pytest.mark.int8_products

PRECISE = {"session.x64quantprecision": "1"}


def full_range(*shape: int) -> Array:
    """Weights of -127 to 127, as converters write them."""
    return np.maximum(random_array(*shape, dtype="int8"), -127)


def convolutions(net: Network) -> Any:
    """Full-range weights in convolutions of each kind, and a dense layer."""
    x = net.conv(net.input(image(1, 11, 13, 3)), 17, name="first")
    x = net.conv(x, 17, deep=True, name="depthwise")
    x = net.conv(x, 34, deep=True, name="multiplied")
    return net.conv(x, 23, kernel=(1, 1), name="pointwise")


def dense() -> bytes:
    """Two products of one weight."""
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
    """A dense layer inside the body of a WHILE, its weight from outside."""
    model = ModelBuilder()
    g = model.main
    own_scale = quant(0.5, 3)
    x, n = g.input("x", (3, 7), "int8", quantization=own_scale), g.input("n", (), "int32")
    condition, body = model.subgraph("condition"), model.subgraph("body")
    left, _ = condition.input("left", (), "int32"), condition.input("state", (3, 7), "int8", quantization=own_scale)
    condition.output(more := condition.tensor("more", (), "bool"))
    condition.operator("GREATER", [left, condition.constant("zero", np.int32(0))], [more])
    left, state = body.input("left", (), "int32"), body.input("state", (3, 7), "int8", quantization=own_scale)
    fewer, rescaled = body.tensor("fewer", (), "int32"), body.tensor("made", (3, 7), "int8", quantization=own_scale)
    body.operator("SUB", [left, body.constant("one", np.int32(1))], [fewer])
    w = body.constant("w", full_range(7, 7), quantization=quant(0.004, 0))
    body.operator("FULLY_CONNECTED", [state, w, None], [rescaled])
    body.output(fewer, rescaled)
    ends = g.tensor("left", (), "int32"), g.tensor("end", (3, 7), "int8", quantization=own_scale)
    g.operator("WHILE", [n, x], ends, {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    g.output(ends[1])
    return model.build()


def dynamic() -> bytes:
    """A dense layer of float32 by int8, large enough to quantize its activations."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (17, 1031))
    w = g.constant("w", full_range(1033, 1031), quantization=quant(0.01, 0))
    g.output(y := g.tensor("y", (17, 1033)))
    g.operator("FULLY_CONNECTED", [x, w, None], [y])
    return model.build()


NETWORKS = {"convolutions": lambda: build_model(convolutions), "dense": dense, "looped": loop_model, "dynamic": dynamic}
each = pytest.mark.parametrize("network", NETWORKS)


class Loaded:
    """A model in ONNX Runtime, and the graph it made of it."""

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
        """Constant matrices and kernels by dtype."""
        graphs = [self.optimized.graph, *self.optimized.graph.subgraphs()]
        stored = {value for graph in graphs for value in graph.initializers.values()}
        return Counter(
            value.const_value.dtype.name for value in stored if value.const_value and len(value.const_value.shape) > 1
        )

    def run(self) -> list[list[Array]]:
        results = []
        for seed in "abc":
            feeds = {
                given.name: np.asarray(2, np.int32)
                if not given.shape
                else random_array(*given.shape, dtype=dtype(given.type), seed=seed)
                for given in self.session.get_inputs()
            }
            results.append(self.session.run(None, feeds))
        return results


def same(first: Sequence[Sequence[Array]], second: Sequence[Sequence[Array]]) -> bool:
    assert all(array.min() < array.max() for run in first for array in run)
    return all(
        np.array_equal(a, b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True)
    )


def convert_model(network: str, form: str) -> otp.Conversion:
    return otp.convert(NETWORKS[network](), weights_dtype=form)


@each
def test_the_choice_is_the_form_that_is_exact_here(network: str, tmp_path: Path) -> None:
    forms = {form: Loaded(convert_model(network, form).proto, tmp_path) for form in ("auto", "uint8", "int8")}
    chosen = forms["int8" if multiplies_exactly() else "uint8"]
    assert forms["auto"].operators == chosen.operators
    assert "If" not in forms["auto"].operators
    assert forms["auto"].dtypes.keys() == chosen.dtypes.keys()
    assert forms["int8"].dtypes.keys() != forms["uint8"].dtypes.keys()
    assert same(forms["auto"].run(), forms["uint8"].run())
    assert same(forms["auto"].run(), forms["int8"].run()) or not multiplies_exactly()


@each
def test_with_its_branches_swapped_it_is_the_other_form(network: str, tmp_path: Path) -> None:
    model = ir.from_proto(convert_model(network, "auto").proto)
    for node in model.graph.all_nodes():
        if node.op_type == "If" and node.inputs[0] is not None and node.inputs[0].name == PROBE:
            then, other = (node.attributes[name].as_graph() for name in ("then_branch", "else_branch"))
            node.attributes["then_branch"] = ir.AttrGraph("then_branch", other)
            node.attributes["else_branch"] = ir.AttrGraph("else_branch", then)
    swapped = Loaded(ir.to_proto(model), tmp_path)
    other_form = Loaded(convert_model(network, "uint8" if multiplies_exactly() else "int8").proto, tmp_path)
    assert swapped.operators == other_form.operators
    assert swapped.dtypes.keys() == other_form.dtypes.keys()
    assert same(swapped.run(), other_form.run())


@each
def test_it_loads_with_quantized_precision_and_agrees(network: str, tmp_path: Path) -> None:
    proto = convert_model(network, "auto").proto
    assert same(Loaded(proto, tmp_path, PRECISE).run(), Loaded(proto, tmp_path).run())


@each
def test_the_forms_are_counted_and_kept_in_the_metadata(network: str) -> None:
    auto, uint8, int8 = (convert_model(network, form) for form in ("auto", "uint8", "int8"))
    assert (
        auto.report.weights["chosen"]
        == uint8.report.weights["uint8"]
        == int8.report.weights["int8, processor-dependent"]
    )
    kept = {item.key: item.value for item in auto.proto.metadata_props}["onnx_tflite_plugin.weights"]
    assert '"chosen"' in kept
    assert auto.report.nodes["If"] == 1
    assert "If" not in uint8.report.nodes | int8.report.nodes


def choices(conversion: otp.Conversion) -> list[ir.Node]:
    return [node for node in conversion.model.graph.all_nodes() if node.op_type == "If"]


def test_the_weights_of_a_graph_are_chosen_by_one_node_and_named_after_who_takes_them() -> None:
    conversion = convert_model("convolutions", "auto")
    (choice,) = choices(conversion)
    assert len(choice.outputs) == conversion.report.weights["chosen"] > 2
    for value in choice.outputs:
        (user,) = (use.node for use in value.uses())
        assert str(value.name).startswith(str(user.name).rpartition("/")[0] + "/")


def test_weights_in_a_body_are_chosen_there() -> None:
    """ONNX Runtime takes a product for a quantized one where what dequantizes its operands is of the same graph."""
    (choice,) = choices(convert_model("looped", "auto"))
    (user,) = (use.node for use in choice.outputs[0].uses())
    assert choice.graph is user.graph


@pytest.mark.parametrize("form", ["auto", "int8"])
def test_no_two_weights_share_an_initializer(form: str) -> None:
    model = ir.from_proto(convert_model("dense", form).proto)
    parts = [
        value
        for node in model.graph.all_nodes()
        if node.op_type == "DequantizeLinear" and node.inputs[0].name in model.graph.initializers
        for value in node.inputs
        if node.inputs[0].dtype == ir.DataType.INT8
    ]
    assert len(parts) == 6  # integers, scale and zero point of two products
    assert len(set(parts)) == 6


def test_a_weight_of_the_least_int8_is_uint8_everywhere() -> None:
    """ARM64 wraps a product of -128 and 0 - 256."""
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


def test_the_hybrid_product_itself_is_chosen() -> None:
    """Its operand's dtype differs from branch to branch."""
    model = convert_model("dynamic", "auto").model
    (choice,) = (node for node in model.graph.all_nodes() if node.op_type == "If")
    branches = [choice.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    assert all(any(node.op_type == "MatMulInteger" for node in branch) for branch in branches)
    assert choice.outputs[0].dtype == ir.DataType.INT32


def test_under_speed_patches_and_rearranged_convolutions_keep_the_rule() -> None:
    for data in (conv("", **HYBRID).build(), build_model(convolutions)):
        model = otp.convert(data, optimize="speed").model
        check_overflow(model)
        assert all(product.exact or product.guarded for product in products(model))


def test_a_large_weight_that_products_share_is_stored_once_as_uint8() -> None:
    """Copies would let a cell that is decomposed grow with its time steps."""
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
