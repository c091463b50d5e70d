"""QUANTIZE and DEQUANTIZE: every pair of dtypes, rounding, per-axis scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Net,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    net,
    random_array,
    tensor,
    unary,
)
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)
EXACT_SHIFT = {
    "tolerance": Tolerance(of_range=0, steps=0),
    "tolerance_reason": "equal scales: only the zero point changes, which is exact",
}


def cases() -> Iterator[Case]:
    yield from quantize_cases()
    yield from requantize_cases()
    yield from dequantize_cases()


def opsets(dtype: str) -> tuple[int | None, ...]:
    return (None, 26) if dtype in ("int16", "int4", "uint4") else EVERY_OPSET


def quantize_cases() -> Iterator[Case]:
    """Yield cases of QUANTIZE of floats, among them halves and values beyond 32 bits.

    Some results are 4-bit integers, or have per-axis scales.
    """
    x = tensor(*IMAGE)
    for dtype in ("int8", "uint8", "int16"):
        y = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            yield unary("QUANTIZE", f"float32 to {dtype}", x, y, place, dtype=dtype, opsets=opsets(dtype))
        yield unary("QUANTIZE", f"float32 out of the range of {dtype}", x, y, dtype=dtype, input_range=(-20.0, 20.0))
    halves = {"x0": np.array([0.5, 1.5, 2.5, -0.5, -1.5, 100.5, -127.5], np.float32)}
    yield unary(
        "QUANTIZE",
        "halves, which the kernel sets round differently",
        tensor(7),
        tensor(7, dtype="int8", scale=1.0, zero_point=0),
        input_arrays=halves,
        dtype="int8",
    )
    beyond_32_bits = {"x0": np.array([3e9, np.inf, -3e9, -np.inf], np.float32)}
    reason = "the conversion is undefined in C beyond 32 bits: x86 returns the lowest integer, ARM saturates as ONNX does (AffineQuantize)"
    yield unary(
        "QUANTIZE",
        "float32 beyond 32 bits to int16",
        tensor(4),
        tensor(4, dtype="int16", scale=1.0),
        input_arrays=beyond_32_bits,
        dtype="int16",
        known_failure=reason,
    )
    for dtype in ("int8", "uint8"):
        y = tensor(4, dtype=dtype, scale=1.0)
        yield unary(
            "QUANTIZE", f"float32 beyond 32 bits to {dtype}", tensor(4), y, input_arrays=beyond_32_bits, dtype=dtype
        )
    for dtype in ("int4", "uint4"):
        # ONNX Runtime cannot return 4-bit tensors, so a DEQUANTIZE follows.
        yield net("QUANTIZE", f"float32 to {dtype}", quantize_and_dequantize(dtype), dtype=dtype, opsets=opsets(dtype))
        build_after_relu = quantize_and_dequantize(
            dtype, "RELU"
        )  # ONNX Runtime drops a Relu before 4-bit QuantizeLinear
        yield net("QUANTIZE", f"float32 after RELU to {dtype}", build_after_relu, dtype=dtype, opsets=opsets(dtype))
    for axis in range(4):
        scales = random_array(IMAGE[axis], seed="scale", low=0.01, high=0.05).tolist()
        zero_points = random_array(IMAGE[axis], dtype="int8", seed="zero").tolist()
        yield unary(
            "QUANTIZE",
            f"float32 to int8 with scales along axis {axis}",
            x,
            Spec(IMAGE, "int8", scales, zero_points, axis),
            dtype="int8",
        )


def quantize_and_dequantize(dtype: str, preceding_op: str = "") -> Callable[[Net], None]:
    """Return a builder of QUANTIZE and DEQUANTIZE, optionally after another operator."""

    def build(model: Net) -> None:
        x = model.call(preceding_op, [tensor(4, 6)], tensor(4, 6)) if preceding_op else tensor(4, 6)
        quantized = model.call("QUANTIZE", [x], tensor(4, 6, dtype=dtype, scale=0.3, zero_point=2))
        model.output(model.call("DEQUANTIZE", [quantized], tensor(4, 6)))

    return build


def requantize_cases() -> Iterator[Case]:
    """Yield cases of QUANTIZE of integers, whose results are rounded half up."""
    pairs = [
        ("uint8", "int8"),
        ("int8", "uint8"),
        ("int8", "int8"),
        ("uint8", "uint8"),
        ("int8", "int16"),
        ("int16", "int8"),
        ("uint8", "int16"),
    ]
    for before, after in pairs:
        x = tensor(*IMAGE, dtype=before)
        y = tensor(*IMAGE, dtype=after).rescale(1.7)
        for place in PLACEMENTS:
            yield unary(
                "QUANTIZE",
                f"{before} to {after}",
                x,
                y,
                place,
                dtype=after,
                opsets=opsets(after if after == "int16" else before),
            )
    for before, after, zero_point in (("uint8", "int8", -6), ("int8", "uint8", 123)):
        x = tensor(*IMAGE, dtype=before)
        for place in PLACEMENTS:
            yield unary(
                "QUANTIZE",
                f"{before} to {after} of the same scale",
                x,
                tensor(*IMAGE, dtype=after, zero_point=zero_point),
                place,
                dtype=after,
                **EXACT_SHIFT,
            )
    yield unary(
        "QUANTIZE",
        "int16 to int16",
        tensor(*IMAGE, dtype="int16"),
        tensor(*IMAGE, dtype="int16").rescale(1.7),
        dtype="int16",
    )
    for dtype, ratio in (("int8", 0.5), ("int8", 0.75), ("uint8", 1.5), ("int16", 0.5)):
        x = tensor(256, dtype=dtype, scale=0.5 * ratio, zero_point=3 * (dtype != "int16"))
        y = tensor(256, dtype=dtype, scale=0.5, zero_point=5 * (dtype != "int16"))
        all_values = np.arange(256) - (0 if dtype == "uint8" else 128)
        yield unary(
            "QUANTIZE",
            f"{dtype} to {dtype}, multiples of {ratio:g} steps, halves round up",
            x,
            y,
            dtype=dtype,
            input_arrays={"x0": all_values.astype(dtype)},
            reference=round_half_up_reference(x, y),
            tolerance=Tolerance(steps=0),
            tolerance_reason="XNNPACK's kernel rounds half up; so does the builtin kernel where XNNPACK has none",
        )
    int32_image = tensor(*IMAGE, dtype="int32", scale=0.02)
    yield unary("QUANTIZE", "int32 to int8", int32_image, tensor(*IMAGE, dtype="int8"), dtype="int8")
    yield unary("QUANTIZE", "int16 to int32", tensor(*IMAGE, dtype="int16"), int32_image, dtype="int32")
    all_values = np.arange(-32768, 32768).astype(np.int16)
    for scale, zero_point in ((0.02, 0), (0.0006, -7), (0.000075, 3)):
        x, y = tensor(65536, dtype="int16"), tensor(65536, dtype="int32", scale=scale, zero_point=zero_point)
        yield unary(
            "QUANTIZE", f"every int16 to int32 of scale {scale:g}", x, y, dtype="int32", input_arrays={"x0": all_values}
        )


def round_half_up_reference(x: Spec, y: Spec) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that computes the expected outputs with halves rounded up."""

    def requantize(arrays: Sequence[Any]) -> list[Any]:
        steps = (arrays[0].astype(np.float64) - x.zero_point) * float(np.asarray(x.scale)) / float(np.asarray(y.scale))
        limits = np.iinfo(y.dtype)
        return [np.clip(np.floor(steps + 0.5) + y.zero_point, limits.min, limits.max).astype(y.dtype)]

    return requantize


def dequantize_cases() -> Iterator[Case]:
    """Yield cases of DEQUANTIZE of graph inputs and of constants.

    Some of the constants are used channels first.
    """
    y = tensor(*IMAGE)
    for dtype in ("int8", "uint8", "int16"):
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            yield unary("DEQUANTIZE", dtype, x, y, place, opsets=opsets(dtype))
    for dtype in ("int4", "uint4"):
        yield net("DEQUANTIZE", dtype, quantize_and_dequantize(dtype), dtype=dtype, opsets=opsets(dtype))
    yield unary("DEQUANTIZE", "float16", tensor(*IMAGE, dtype="float16"), y, opsets=EVERY_OPSET)
    for axis in range(4):
        scales = random_array(IMAGE[axis], seed="scale", low=0.01, high=0.05).tolist()
        zero_points = random_array(IMAGE[axis], dtype="int8", seed="zero").tolist()
        yield unary(
            "DEQUANTIZE",
            f"int8 with scales along axis {axis}",
            Spec(IMAGE, "int8", scales, zero_points, axis),
            y,
            dtype="int8",
        )
        quantized = constant(random_array(*IMAGE, dtype="int8"), None, scales, zero_points, axis)
        yield net(
            "DEQUANTIZE",
            f"an int8 constant with scales along axis {axis}, between convolutions",
            add_to_image(quantized),
            dtype="int8",
            max_transposes=2,
        )
    yield net(
        "DEQUANTIZE",
        "a float16 constant between convolutions",
        add_to_image(constant(random_array(*IMAGE, dtype="float16"))),
        dtype="float16",
        max_transposes=2,
    )
    yield net(
        "DEQUANTIZE",
        "an int4 constant between convolutions",
        add_to_image(constant(random_array(*IMAGE, dtype="int4"), None, 0.2, 1)),
        dtype="int4",
        opsets=(None, 21, 26),
        max_transposes=2,
    )
    yield in_isolation(
        "DEQUANTIZE",
        "constant output",
        [constant(random_array(5, 3, dtype="int8"), None, 0.1, 4)],
        tensor(5, 3),
        dtype="int8",
    )
    yield between_convolutions("DEQUANTIZE", "int8 as graph output", [tensor(*IMAGE, dtype="int8")], tensor(*IMAGE))


def add_to_image(quantized: Spec) -> Callable[[Net], None]:
    """Return a builder of the sum of a dequantized constant and an image.

    There are convolutions before and after the sum.

    The case fails if the constant or its per-axis scales are not transposed with the image.
    """

    def build(model: Net) -> None:
        image = tensor(*IMAGE)
        x = model.input_through_conv(image)
        addend = model.call("DEQUANTIZE", [quantized], image)
        model.output(model.output_through_conv(model.call("ADD", [x, addend], image)))

    return build
