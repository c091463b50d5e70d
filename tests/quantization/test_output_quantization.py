"""``output_quantization``: outputs whose behavior differs from the operator's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from conformance.builder import quant
from conformance.models import Net, tensor
from onnx_tflite_plugin.api import (
    Attribute,
    Behavior,
    Context,
    Dequantized,
    FixedOutputRange,
    Handler,
    NotQuantizable,
    Raw,
    SameScale,
    handler,
    out,
)
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array

CODE = "CUSTOM.Largest"
SHARES = FixedOutputRange({"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)})
SCALE, ZERO = 0.05, {"int8": 7, "uint8": 131, "int16": 0}
SHARE_PARAMETERS = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}


def largest(behavior: Behavior, second: Any = SHARES) -> Handler:
    """Return each row's maximum, and each element's share of the sum of squares."""

    @handler(
        CODE,
        max_version=1,
        layout=Attribute(),
        axes="r c -> r 1, r c",
        quantization=behavior,
        output_quantization={out(1): second},
    )
    def lower(ctx: Context, x: Any) -> tuple[Any, Any]:
        squares = ctx.ops.Mul(real := ctx.dequantize(x, 0), real) if ctx.uses_integers else ctx.ops.Mul(x, x)
        shares = ctx.ops.Div(squares, ctx.ops.ReduceSum(squares, [ctx.axis(1)], keepdims=1))
        return ctx.ops.ReduceMax(x, [ctx.axis(1)], keepdims=1), shares

    return lower


def convert_model(
    declared: Handler, dtype: str, share_parameters: tuple[float, int] | None = None, **options: Any
) -> Conversion:
    model = Net()
    x = tensor(3, 7, dtype=dtype, scale=SCALE, zero_point=ZERO[dtype])
    scale, zero_point = share_parameters or SHARE_PARAMETERS[dtype]
    g = model.graph
    inputs = model.input(x)
    outputs = [
        g.tensor("largest", (3, 1), dtype, quantization=quant(SCALE, ZERO[dtype])),
        g.tensor("shares", (3, 7), dtype, quantization=quant(scale, zero_point)),
    ]
    g.operator(CODE, [inputs], outputs)
    g.output(*outputs)
    return convert(model.build(), host=Host(packs="builtin", handlers={CODE: declared}), **options)


def reference(x: Array, dtype: str) -> tuple[Array, Array]:
    squares = ((x.astype(np.float64) - ZERO[dtype]) * SCALE) ** 2
    scale, zero_point = SHARE_PARAMETERS[dtype]
    shares = np.rint(squares / squares.sum(1, keepdims=True) / scale) + zero_point
    limits = np.iinfo(dtype)
    return x.max(1, keepdims=True), np.clip(shares, limits.min, limits.max)


@pytest.mark.parametrize("target", ["onnxruntime", "generic"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("behavior", [Raw(shift_safe=True), Raw(), SameScale(), Dequantized()], ids=str)
def test_output_behavior_overrides_the_operators(behavior: Behavior, dtype: str, target: str) -> None:
    proto = convert_model(largest(behavior), dtype, target=target).proto
    x = np.random.default_rng(5).integers(-100, 101, (3, 7)).astype(dtype)
    values, shares = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x0": x})
    expected = reference(x, dtype)
    np.testing.assert_array_equal(values, expected[0])
    assert np.abs(shares.astype(int) - expected[1]).max() <= 1
    assert np.ptp(shares.astype(int)) > 50


@pytest.mark.parametrize("behavior", [Raw(shift_safe=True), SameScale()], ids=str)
def test_other_outputs_use_quantized_operands(behavior: Behavior) -> None:
    graph = convert_model(largest(behavior), "int8").proto.graph
    (reduction,) = (node for node in graph.node if node.op_type == "ReduceMax")
    producers = {name: node.op_type for node in graph.node for name in node.output}
    assert producers.get(reduction.input[0]) != "DequantizeLinear"


def test_all_outputs_are_float_if_quantization_is_dropped() -> None:
    nodes = [
        n.op_type for n in convert_model(largest(Raw(shift_safe=True)), "int8", quantization="float").proto.graph.node
    ]
    assert not {"QuantizeLinear", "DequantizeLinear"}.intersection(nodes)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (SHARES, "the kernel requires scale 0.00390625 and zero point -128, the file has 0.1 and 3"),
        (Raw(), "output_quantization"),
    ],
)
def test_misfitting_output_parameters_are_reported(second: Any, reason: str) -> None:
    with pytest.raises((ConversionError, TypeError), match=reason):
        convert_model(largest(Raw(shift_safe=True), second), "int8", share_parameters=(0.1, 3))


@pytest.mark.parametrize("slot", [0, 2])
def test_declaration_for_an_input_slot_is_reported(slot: int) -> None:
    @handler(CODE, max_version=1, layout=Attribute(), quantization=NotQuantizable(), output_quantization={slot: SHARES})
    def lower(ctx: Context, x: Any) -> tuple[Any, Any]:
        return x, x

    with pytest.raises(ConversionError, match=f"no output in slot {slot}: outputs are out.0., out.1."):
        convert_model(lower, "int8")
