"""Dynamically quantized products: models, targets, and fused operators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from conformance.builder import ModelBuilder, quant
from conformance.case import Case
from conformance.cases.fusions.dynamic import HYBRID, PATCHES, POINTWISE, cases
from conformance.cases.image.convolution import conv_case
from conformance.cases.matrix.fully_connected import dense_case
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import OnnxRuntime, verify
from op_handlers.kernels import hybrid

FUSIONS = {"CONV_2D_DYNAMIC", "FULLY_CONNECTED_DYNAMIC"}


def optimize_speed(case: Case) -> Case:
    return replace(case, options={"optimize": "speed"})


def convert_model(case: Case, **options: object) -> Conversion:
    return convert(case.build(), host=Host(packs="builtin"), **{**case.options, **options})


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.id)
def test_dynamic_cases_use_dynamic_quantization(case: Case) -> None:
    report = convert_model(case).report
    assert report.fused.keys() <= FUSIONS
    assert report.nodes["DynamicQuantizeLinear"] == 1
    assert not {"Conv", "Gemm"} & report.nodes.keys()


@pytest.mark.parametrize(
    "case",
    [case for case in cases() if "stride" not in case.name and "patches" not in case.name],
    ids=lambda case: case.id,
)
def test_onnx_runtime_fuses_the_dynamic_product(case: Case, tmp_path: Path) -> None:
    OnnxRuntime(convert_model(case).proto, optimized=tmp_path / "optimized.onnx")
    assert "DynamicQuantizeMatMul" in {node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node}


def test_pointwise_convolution_needs_no_patches() -> None:
    sizes = {**HYBRID, "out": 131, "kernel": (3, 5)}
    assert "Gather" in convert_model(conv_case("", **PATCHES)).report.nodes
    assert "Gather" in convert_model(conv_case("", **{**sizes, "shape": (1, 1, 7, 127)})).report.nodes
    for pointwise in (conv_case("", **POINTWISE), conv_case("", **{**sizes, "shape": (1, 1, 1, 127)})):
        assert not {"Gather", "Pad", "Reshape"} & convert_model(pointwise).report.nodes.keys()


def test_padding_is_fused_into_the_patches() -> None:
    """The PAD is fused first, because its result occurs in the pattern."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 11, 13, 31))
    padded = g.tensor("padded", (1, 15, 14, 31))
    g.operator("PAD", [x, g.constant("rows", np.array([[0, 0], [1, 3], [0, 1], [0, 0]], np.int32))], [padded])
    w = g.constant("w", np.ones((29, 3, 5, 31), np.int8), quantization=quant(0.1, 0))
    g.output(y := g.tensor("y", (1, 13, 10, 29)))
    g.operator("CONV_2D", [padded, w], [y], {"padding": "VALID", "stride_h": 1, "stride_w": 1})
    report = convert(model.build()).report
    assert report.fused == {"CONV_2D_PADDED": 1, "CONV_2D_DYNAMIC": 1}
    assert report.nodes["Pad"] == 1


@pytest.mark.parametrize("options", [{"weights": "fold"}, {"quantization": "float"}])
def test_float_weights_are_not_quantized(options: dict[str, str]) -> None:
    report = convert_model(conv_case("", **POINTWISE), optimize="speed", **options).report
    assert not report.fused
    assert not {"MatMulInteger", "DynamicQuantizeLinear", "Cast"} & report.nodes.keys()


@pytest.mark.parametrize("target", ["generic", "openvino", "tvm", "tensorrt"])
def test_only_target_onnxruntime_quantizes_dynamically(target: str) -> None:
    assert not convert_model(conv_case("", **POINTWISE), target=target).report.fused


@pytest.mark.parametrize(
    "case",
    [
        conv_case("few products", **{**POINTWISE, "shape": (1, 5, 7, 67)}),
        optimize_speed(conv_case("groups", **{**POINTWISE, "shape": (1, 26, 34, 66), "out": 74}, groups=2)),
        optimize_speed(conv_case("float weights", **{**POINTWISE, "weights": None, "per_axis": False})),
        optimize_speed(conv_case("uint8 weights", **{**POINTWISE, "weights": "uint8", "per_axis": False})),
        optimize_speed(conv_case("quantized activations", **{**POINTWISE, "weights": None}, dtype="int8")),
        conv_case("patches of few channels", **{**PATCHES, "shape": (1, 31, 37, 13)}),
        conv_case("few terms", **{**POINTWISE, "shape": (1, 31, 37, 61)}),
        conv_case("few features", **{**POINTWISE, "shape": (1, 31, 37, 67), "out": 23}),
        dense_case("one row of few weights", (1, 257), out=509, **HYBRID),
        dense_case("three rows of few weights", (3, 257), out=509, **HYBRID),
    ],
    ids=lambda case: case.name,
)
def test_product_without_gain_is_not_fused(case: Case) -> None:
    assert not FUSIONS & convert_model(case).report.fused.keys()


def images(layers: int) -> bytes:
    """Return a chain of convolutions with a dynamic batch."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (None, 13, 17, 71))
    w = g.constant("w", random_weights(71), quantization=quant([0.002] * 71, [0] * 71, axis=0))
    bias = g.constant("bias", np.zeros(71, np.float32))
    for k in range(layers):
        y = g.tensor(f"y{k}", (None, 13, 17, 71))
        g.operator("CONV_2D", [x, w, bias], [y], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
        x = y
    g.output(x)
    return model.build()


def random_weights(channels: int) -> Array:
    return np.random.default_rng(0).integers(-127, 128, (channels, 1, 1, channels)).astype(np.int8)


def test_deep_network_of_dynamic_batch_shares_one_scale() -> None:
    assert convert(images(25)).report.fused == {"CONV_2D_DYNAMIC": 25}
    assert verify(images(25), convert(images(25)).proto).ok


def test_shallow_network_of_dynamic_batch_has_a_scale_per_image() -> None:
    report = convert(images(2)).report
    assert report.fused == {"CONV_2D_ROUNDED": 2}
    assert report.traits == {"rounds_activations": 2}


ROUNDED = conv_case("", weights="int8", per_axis=True)


@pytest.mark.parametrize("options", [{"weights": "fold"}, {"quantization": "float"}, {"optimize": "speed"}])
def test_activations_are_rounded_by_default_but_not_for_speed(options: dict[str, str]) -> None:
    report = convert_model(ROUNDED).report
    assert report.fused == report.fused_single == {"CONV_2D_ROUNDED": 1}
    assert not convert_model(ROUNDED, **options).report.fused


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("weights", ["int8", "uint8"])
def test_rows_are_rounded_with_a_zero_point_as_in_litert(weights: str, asymmetric: bool) -> None:
    """LiteRT's builtin kernel follows the option.

    XNNPACK runs layers with int8 weights, and always uses a zero point.
    """
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (3, 101)), g.tensor("y", (3, 7))
    w = g.constant("w", random_weights(101)[:7, 0, 0].view(weights), quantization=quant(0.01, 0))
    g.operator("FULLY_CONNECTED", [x, w], [y], {"asymmetric_quantize_inputs": asymmetric})
    g.output(y)
    verification = verify(model.build(), convert(model.build()).proto, tolerance=1e-6)
    assert verification.ok, verification


def network(layers: int, units: int) -> bytes:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, units))
    w = g.constant("w", np.ones((units, units), np.int8), quantization=quant(0.1, 0))
    for k in range(layers):
        y = g.tensor(f"y{k}", (1, units))
        g.operator("FULLY_CONNECTED", [x, w], [y])
        x = y
    g.output(x)
    return model.build()


def test_deep_large_networks_are_not_rounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert convert(network(29, 7)).report.fused == {"FULLY_CONNECTED_ROUNDED": 29}
    monkeypatch.setattr(hybrid, "MAX_ELEMENTS", 24 * 7)
    assert convert(network(24, 7)).report.fused == {"FULLY_CONNECTED_ROUNDED": 24}
    report = convert(network(25, 7)).report
    assert not report.fused
    assert "25 layers round their activations" in report.fusions_declined[0]


def test_large_activations_are_rounded_only_for_many_products() -> None:
    deep = conv_case("", op="DEPTHWISE_CONV_2D", shape=(1, 131, 127, 4), out=4, weights="int8", per_axis=True)
    assert not convert_model(deep).report.fused
    large_case = conv_case("", shape=(1, 131, 127, 4), out=11, weights="int8", per_axis=True)
    assert convert_model(large_case).report.fused == {"CONV_2D_ROUNDED": 1}
