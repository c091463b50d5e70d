"""Float layers between DEQUANTIZE and QUANTIZE: their weights must stay float.

Partly quantized networks contain such layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, net, random_array, tensor

OUTLIER = 40.0  # factor of one weight; quantized to 8 bits with one scale, the other weights would be 0, 1 or 2
IMAGE, VOLUME = (2, 5, 7, 3), (1, 2, 5, 7, 3)
STRIDES: dict[str, int] = {"stride_h": 1, "stride_w": 1}
LAYERS: dict[str, tuple[Sequence[int], Sequence[int], Sequence[int], dict[str, Any]]] = {
    # operator: shapes of operand, weights and result; options
    "CONV_2D": (IMAGE, (4, 1, 1, 3), (2, 5, 7, 4), STRIDES),
    "DEPTHWISE_CONV_2D": (IMAGE, (1, 3, 3, 6), (2, 5, 7, 6), {**STRIDES, "depth_multiplier": 2}),
    "CONV_3D": (VOLUME, (1, 1, 3, 3, 4), (1, 2, 5, 7, 4), {**STRIDES, "stride_d": 1}),
    "FULLY_CONNECTED": ((11, 13), (5, 13), (11, 5), {}),
    "TRANSPOSE_CONV": (IMAGE, (4, 2, 2, 3), (2, 10, 14, 4), {"stride_h": 2, "stride_w": 2}),
}


def cases() -> Iterator[Case]:
    for op in LAYERS:
        for dtype in ("int8", "uint8", "int16"):
            yield float_layer_case(op, dtype, opsets=EVERY_OPSET if dtype == "int8" else (None,))
        if op not in ("CONV_2D", "DEPTHWISE_CONV_2D"):  # these kernels require a bias
            yield float_layer_case(op, "int8", biased=False)
        yield float_layer_case(op, "int8", weight_dtype="float16")
    for op in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        for activation in ("RELU", "RELU6"):
            yield float_layer_case(op, "int8", activation)


def float_layer_case(
    op: str,
    dtype: str,
    activation: str = "NONE",
    *,
    biased: bool = True,
    weight_dtype: str = "float32",
    **case_fields: Any,
) -> Case:
    description = f"{'' if activation == 'NONE' else f', {activation}'}{'' if biased else ', no bias'}"
    name = f"float32 between {dtype}{description}, {weight_dtype} weights"
    return net(op, name, layer_model(op, dtype, activation, biased, weight_dtype), dtype=dtype, **case_fields)


def layer_model(op: str, dtype: str, activation: str, biased: bool, weight_dtype: str) -> Callable[[Net], None]:
    """Return a builder of DEQUANTIZE, a float layer with float weights, and QUANTIZE."""
    shape, weight_shape, result, options = LAYERS[op]
    channels = result[-1]
    if op in ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"):
        options = {**options, "fused_activation_function": activation}
    weights = 0.1 * random_array(*weight_shape, seed=op)
    weights.reshape(-1)[0] = 0.1 * OUTLIER

    def build(model: Net) -> None:
        x = tensor(*shape, dtype=dtype)
        floats = model.call("DEQUANTIZE", [x], Spec(x.shape))
        w = constant(weights, weight_dtype)
        float_spec = replace(w, dtype="float32", value=None)
        float_weights = w if weight_dtype == "float32" else model.call("DEQUANTIZE", [w], float_spec)
        b = constant(random_array(channels, seed="bias")) if biased else None
        operands = (
            [constant(list(result)), float_weights, floats] if op == "TRANSPOSE_CONV" else [floats, float_weights]
        )
        y = model.call(op, [*operands, b], Spec(tuple(result)), **options)
        model.output(model.call("QUANTIZE", [y], x.with_shape(*result).rescale(1.7)))

    return build
