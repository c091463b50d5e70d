"""Float arithmetic between quantized parts, as in partly quantized networks: float32 weights must stay float."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, net, random_array, tensor

OUTLIER = 40.0  # factor of the outlier; with one 8-bit scale, the other weights would be one or two steps
IMAGE, VOLUME = (2, 5, 7, 3), (1, 2, 5, 7, 3)
STRIDES: dict[str, int] = {"stride_h": 1, "stride_w": 1}
PRODUCTS: dict[str, tuple[Sequence[int], Sequence[int], Sequence[int], dict[str, Any]]] = {
    # operator: the shapes of operand, weights and result, and options
    "CONV_2D": (IMAGE, (4, 1, 1, 3), (2, 5, 7, 4), STRIDES),
    "DEPTHWISE_CONV_2D": (IMAGE, (1, 3, 3, 6), (2, 5, 7, 6), {**STRIDES, "depth_multiplier": 2}),
    "CONV_3D": (VOLUME, (1, 1, 3, 3, 4), (1, 2, 5, 7, 4), {**STRIDES, "stride_d": 1}),
    "FULLY_CONNECTED": ((11, 13), (5, 13), (11, 5), {}),
    "TRANSPOSE_CONV": (IMAGE, (4, 2, 2, 3), (2, 10, 14, 4), {"stride_h": 2, "stride_w": 2}),
}


def cases() -> Iterator[Case]:
    for op in PRODUCTS:
        for dtype in ("int8", "uint8", "int16"):
            yield between(op, dtype, opsets=EVERY_OPSET if dtype == "int8" else (None,))
        if op not in ("CONV_2D", "DEPTHWISE_CONV_2D"):  # which require a bias
            yield between(op, "int8", biased=False)
        yield between(op, "int8", stored="float16")
    for op in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        for activation in ("RELU", "RELU6"):
            yield between(op, "int8", activation)


def between(
    op: str, dtype: str, activation: str = "NONE", *, biased: bool = True, stored: str = "float32", **case: Any
) -> Case:
    name = f"on floats between {dtype}, {activation}{'' if biased else ', no bias'}, weights of {stored}"
    return net(op, name, layer_model(op, dtype, activation, biased, stored), dtype=dtype, **case)


def layer_model(op: str, dtype: str, activation: str, biased: bool, stored: str) -> Callable[[Net], None]:
    """Return a network of DEQUANTIZE, a product and QUANTIZE."""
    shape, weights, result, options = PRODUCTS[op]
    features = result[-1]
    if op in ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"):
        options = {**options, "fused_activation_function": activation}
    values = 0.1 * random_array(*weights, seed=op)
    values.reshape(-1)[0] = 0.1 * OUTLIER

    def build(model: Net) -> None:
        x = tensor(*shape, dtype=dtype)
        floats = model.call("DEQUANTIZE", [x], Spec(x.shape))
        w = constant(values, stored)
        held = w if stored == "float32" else model.call("DEQUANTIZE", [w], replace(w, dtype="float32", value=None))
        b = constant(random_array(features, seed="bias")) if biased else None
        operands = [constant(list(result)), held, floats] if op == "TRANSPOSE_CONV" else [floats, held]
        y = model.call(op, [*operands, b], Spec(tuple(result)), **options)
        model.output(model.call("QUANTIZE", [y], x.with_shape(*result).rescale(1.7)))

    return build
