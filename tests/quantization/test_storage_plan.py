"""Rules of the storage plan: dtypes of tensors, arithmetic of operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from conformance.builder import GraphBuilder, blockwise, quant
from onnx_tflite_plugin.api import (
    Arithmetic,
    Context,
    Dequantized,
    Handler,
    NotQuantizable,
    SameScale,
    Transparent,
    Value,
    builtin,
    handler,
)
from onnx_tflite_plugin.errors import HandlerError
from onnx_tflite_plugin.quantization.storage import WeightConversion
from tests.quantization.plan_models import QUANTIZATION, SHAPE, call, dense, int8_input, plan_model, storage_by_name


def test_only_weighted_operators_use_the_dtype_of_the_target() -> None:
    def weighted(g: GraphBuilder) -> None:
        g.output(dense(g, int8_input(g)))

    def unweighted(g: GraphBuilder) -> None:
        g.output(call(g, "ABS", int8_input(g), "y"))

    assert storage_by_name(*plan_model(weighted)) == {"x": "uint8", "w": "int8", "y": "uint8"}
    assert storage_by_name(*plan_model(unweighted)) == {"x": "int8", "y": "int8"}


def test_weighted_operator_decides_the_dtype_of_its_neighbors() -> None:
    def dense_and_abs(g: GraphBuilder) -> None:
        x = int8_input(g)
        g.output(dense(g, x))
        g.output(call(g, "ABS", x, "z"))

    assert storage_by_name(*plan_model(dense_and_abs)) == {"x": "uint8", "w": "int8", "y": "uint8", "z": "uint8"}


def test_file_slots_keep_the_files_dtype() -> None:
    def build(g: GraphBuilder) -> None:
        g.output(dense(g, call(g, "ABS", dense(g, int8_input(g), "inner"), "positive"), "y"))

    reads_file_values = replace(builtin("ABS"), quantization=Dequantized(as_in_file=(0,)))
    dtypes = storage_by_name(*plan_model(build, ABS=reads_file_values))
    assert (dtypes["inner"], dtypes["positive"], dtypes["y"]) == ("int8", "uint8", "uint8")


def test_bare_quantized_arithmetic_keeps_the_files_dtype() -> None:
    def negate(g: GraphBuilder) -> None:
        g.output(dense(g, call(g, "NEG", dense(g, int8_input(g), "inner"), "less"), "y"))

    model, plan = plan_model(negate)
    dtypes = storage_by_name(model, plan)
    assert (dtypes["inner"], dtypes["less"], dtypes["y"]) == ("int8", "int8", "uint8")
    assert [plan.arithmetic[bound] for bound in model.operators()] == [
        Arithmetic.FLOAT,
        Arithmetic.QUANTIZED_AS_IN_FILE,
        Arithmetic.FLOAT,
    ]


def test_computed_weights_are_stored_like_activations() -> None:
    def build(g: GraphBuilder) -> None:
        rows = g.input("rows", (3, 3), "int8", quantization=QUANTIZATION)
        y = g.tensor("y", SHAPE, "int8", quantization=QUANTIZATION)
        g.operator("FULLY_CONNECTED", [dense(g, int8_input(g), "inner"), rows, None], [y])
        g.output(y)

    assert storage_by_name(*plan_model(build)) == {
        "x": "uint8",
        "w": "int8",
        "inner": "uint8",
        "rows": "uint8",
        "y": "uint8",
    }


@pytest.mark.parametrize(("code", "is_supported"), [("NEG", False), ("TRANSPOSE", True)])
def test_unsupported_dtypes_are_moved_as_floats_but_not_computed_on(code: str, is_supported: bool) -> None:
    def build(g: GraphBuilder) -> None:
        x = g.input("x", (5, 5), "int8", quantization=quant(0.05))
        y = g.tensor("y", (5, 5), "int8", quantization=quant(0.05))
        g.operator(code, [x, *([g.constant("perm", np.array([1, 0], np.int32))] if code == "TRANSPOSE" else [])], [y])
        g.output(y)

    if is_supported:
        assert [*plan_model(build, "tensorrt")[1].arithmetic.values()] == [Arithmetic.FLOAT]
        return
    with pytest.raises(
        HandlerError, match=r"int8 values, for which target tensorrt has no kernel; convert with --quantization float$"
    ):
        plan_model(build, "tensorrt")


def test_quantized_values_are_rescaled_only_if_parameters_differ() -> None:
    def rectify(scale: float) -> Callable[[GraphBuilder], None]:
        def build(g: GraphBuilder) -> None:
            y = g.tensor("y", SHAPE, "int8", quantization=quant(scale, 3))
            g.operator("RELU", [dense(g, int8_input(g), "inner")], [y])
            g.output(y)

        return build

    for scale, arithmetic in ((0.05, Arithmetic.QUANTIZED), (0.06, Arithmetic.FLOAT)):
        _, plan = plan_model(rectify(scale))
        assert [*plan.arithmetic.values()][1] is arithmetic


@pytest.mark.parametrize(
    ("activations", "expected"),
    [
        ("int8", WeightConversion.DEQUANTIZED),
        ("int16", WeightConversion.MULTIPLIED),
        ("float32", WeightConversion.MULTIPLIED),
    ],
)
def test_weights_are_dequantized_like_their_activations(activations: str, expected: WeightConversion) -> None:
    def build(g: GraphBuilder) -> None:
        q = {"int8": QUANTIZATION, "int16": quant(0.01), "float32": None}[activations]
        w = g.constant("w", np.ones((3, 3), np.int8), quantization=quant(0.1))
        y = g.tensor("y", SHAPE, activations, quantization=q)
        g.operator("FULLY_CONNECTED", [g.input("x", SHAPE, activations, quantization=q), w, None], [y])
        g.output(y)

    model, plan = plan_model(build)
    (bound,) = model.operators()
    assert plan.weight_conversion(bound, bound.op[1]) is expected


def add_handler(slots: tuple[int, ...] | None) -> Handler:
    @handler("ADD", max_version=6, layout=Transparent(), quantization=SameScale(slots=slots))
    def lower(ctx: Context, x: Value, _other: Value) -> Value:
        return x

    return lower


def test_same_scale_compares_only_the_declared_slots() -> None:
    def build(g: GraphBuilder) -> None:
        addend = g.input("other", SHAPE, "int8", quantization=quant(0.5, 7))
        y = g.tensor("y", SHAPE, "int8", quantization=QUANTIZATION)
        g.operator("ADD", [int8_input(g), addend], [y])
        g.output(y)

    for slots, arithmetic in (((0, ~0), Arithmetic.QUANTIZED), (None, Arithmetic.FLOAT)):
        _, plan = plan_model(build, ADD=add_handler(slots))
        assert [*plan.arithmetic.values()] == [arithmetic]


@pytest.mark.parametrize(("scale", "is_accepted"), [(1 / 256, True), (1.0005 / 256, True), (1.005 / 256, False)])
def test_required_output_scale_has_a_tolerance_of_one_thousandth(scale: float, is_accepted: bool) -> None:
    def add_softmax(g: GraphBuilder) -> None:
        y = g.tensor("y", SHAPE, "int8", quantization=quant(scale, -128))
        g.operator("SOFTMAX", [int8_input(g)], [y], {"beta": 1.0})
        g.output(y)

    if is_accepted:
        assert plan_model(add_softmax)[1].arithmetic
        return
    with pytest.raises(HandlerError, match=r"the kernel requires scale 0\.00390625 and zero point -128"):
        plan_model(add_softmax)


@pytest.mark.parametrize(("code", "channel_axis"), [("CONV_2D", 0), ("DEPTHWISE_CONV_2D", 3)])
@pytest.mark.parametrize("axis", range(4))
def test_weights_need_a_scale_per_output_channel(code: str, channel_axis: int, axis: int) -> None:
    """Kernels use the scales for output channels, whatever axis the file names."""

    def convolve(g: GraphBuilder) -> None:
        x = g.input("x", (2, 5, 7, 3), "int8", quantization=QUANTIZATION)
        w = g.constant("w", np.ones((3, 3, 3, 3), np.int8), quantization=quant([0.1, 0.2, 0.3], axis=axis))
        y = g.tensor("y", (2, 3, 5, 3), "int8", quantization=QUANTIZATION)
        g.operator(code, [x, w, None], [y], {"padding": "VALID", "stride_w": 1, "stride_h": 1})
        g.output(y)

    if axis == channel_axis:
        assert plan_model(convolve)[1].arithmetic
        return
    with pytest.raises(
        HandlerError,
        match=f"per-channel scales along axis {axis}, but the kernel reads them as scales of axis {channel_axis}",
    ):
        plan_model(convolve)


@pytest.mark.parametrize("axis", [0, 1])
def test_output_channels_are_known_without_a_bias(axis: int) -> None:
    def multiply(g: GraphBuilder) -> None:
        w = g.constant("w", np.ones((3, 3), np.int8), quantization=quant([0.1, 0.2, 0.3], axis=axis))
        y = g.tensor("y", SHAPE, "int8", quantization=QUANTIZATION)
        g.operator("FULLY_CONNECTED", [int8_input(g), w], [y])
        g.output(y)

    without_bias = replace(builtin("FULLY_CONNECTED"), axes="n i, o i -> n o")
    if axis == 0:
        assert plan_model(multiply, FULLY_CONNECTED=without_bias)[1].arithmetic
        return
    with pytest.raises(
        HandlerError, match="per-channel scales along axis 1, but the kernel reads them as scales of axis 0"
    ):
        plan_model(multiply, FULLY_CONNECTED=without_bias)


def test_all_operators_with_wrong_scales_are_reported_together() -> None:
    def build(g: GraphBuilder) -> None:
        for name in ("one", "two"):
            y = g.tensor(name, SHAPE, "int8", quantization=quant(0.5, 3))
            g.operator("SOFTMAX", [int8_input(g, f"x of {name}")], [y], {"beta": 1.0})
            g.output(y)

    with pytest.raises(HandlerError) as caught:
        plan_model(build)
    assert [problem.where.split()[-1] for problem in caught.value.problems] == ["'one'", "'two'"]


def test_unsupported_or_disagreeing_quantized_operands_are_refused() -> None:
    def build(g: GraphBuilder) -> None:
        y = g.tensor("y", SHAPE, "int8", quantization=quant(0.5, 3))
        g.operator("ABS", [int8_input(g)], [y])
        g.output(y)

    with pytest.raises(
        HandlerError, match=r"'x' \(int8\) and 'y' \(int8\) are quantized, but the handler supports only floats"
    ):
        plan_model(build, ABS=replace(builtin("ABS"), quantization=NotQuantizable()))
    with pytest.raises(
        HandlerError, match="the quantized operands differ in scale or zero point, which the kernel refuses"
    ):
        plan_model(build, ABS=replace(builtin("ABS"), quantization=SameScale(unequal="refuse")))


def test_blockwise_scales_need_a_handler_that_declares_blocks() -> None:
    @handler("TANH", max_version=3, layout=Transparent(), quantization=Dequantized())
    def tanh(ctx: Context, x: Value) -> Value:
        return x

    def build(g: GraphBuilder) -> None:
        scales = g.constant("scales", np.ones((2, 1), np.float16))
        blocks = g.constant("blocks", np.ones((2, 32), "int4"), quantization=blockwise(scales, 32))
        y = g.tensor("y", (2, 32))
        g.operator("TANH", [blocks], [y])
        g.output(y)

    with pytest.raises(HandlerError, match="'blocks' has a scale per block, which the kernel does not read"):
        plan_model(build, TANH=tanh)
