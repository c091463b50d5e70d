"""Activation operators: clamps, slopes of either sign, and lookup tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case, Tolerance
from conformance.models import (
    PLACEMENTS,
    Net,
    Spec,
    between_convolutions,
    binary,
    constant,
    in_bfloat16,
    in_isolation,
    net,
    opsets,
    random_array,
    random_constant,
    tensor,
    unary,
)

IMAGE = (2, 5, 7, 3)
EIGHT_BIT_DTYPES = ("int8", "uint8")
QUANTIZABLE = ("float32", "int8", "uint8", "int16")
WIDE_RANGE = (-10.0, 10.0)  # includes values beyond the bounds of every activation
# int16 kernels use fixed point for scales close to a power of two, and tables otherwise; the products in TANH may wrap.
INT16_SCALES = {
    "2^-13": 2.0**-13,
    "2^-12": 2.0**-12,
    "nearly 2^-12": 2.0**-12 * 1.0005,
    "about 2^-12": 2.0**-12 * 1.001,
    "2^-11": 2.0**-11,
    "0.0003": 0.0003,
    "1.7": 1.7,
}
EDGE_VALUES = (-88.0, -6.0, -1.0, -1e-6, -0.0, 0.0, 1e-6, 0.5, 1.0, 6.0)


def cases() -> Iterator[Case]:
    yield from activation_cases()
    yield from output_range_cases()
    yield from clamp_cases()
    yield from leaky_relu_cases()
    yield from prelu_cases()
    yield from lookup_cases()


def activation_cases() -> Iterator[Case]:
    """Yield cases of RELU and RELU6.

    Integers are clamped, and also rescaled if the output has another scale.
    """
    for op in ("RELU", "RELU6"):
        for dtype in QUANTIZABLE:
            x = tensor(*IMAGE, dtype=dtype)
            for place in PLACEMENTS:
                yield unary(
                    op,
                    dtype,
                    x,
                    place=place,
                    input_range=WIDE_RANGE,
                    opsets=EVERY_OPSET if dtype != "int16" else (None, 26),
                )
            if dtype != "float32":
                scaled = x.rescale(0.5, 0 if dtype == "int16" else int(np.asarray(x.zero_point)) - 30)
                for place in PLACEMENTS:
                    yield unary(op, f"{dtype} to a different scale", x, scaled, place)
        full_range = tensor(*IMAGE, dtype="int8", scale=6 / 255, zero_point=-128)
        yield unary(
            op, "int8 with the range of the activation", tensor(*IMAGE, dtype="int8"), full_range, between_convolutions
        )


def output_range_cases() -> Iterator[Case]:
    """Yield cases of LOGISTIC and HARD_SWISH.

    LOGISTIC requires a fixed output scale and zero point; HARD_SWISH rescales.
    """
    fixed = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
    for dtype in QUANTIZABLE:
        x = tensor(*IMAGE, dtype=dtype)
        y = x if dtype == "float32" else tensor(*IMAGE, dtype=dtype, scale=fixed[dtype][0], zero_point=fixed[dtype][1])
        for place in PLACEMENTS:
            yield unary(
                "LOGISTIC",
                dtype,
                x,
                y,
                place,
                input_range=WIDE_RANGE,
                opsets=EVERY_OPSET if dtype != "int16" else (None, 26),
            )
    half = tensor(*IMAGE, dtype="float16")
    for op in ("LOGISTIC", "RELU", "RELU6", "HARD_SWISH"):
        yield unary(op, "float16", half, input_range=WIDE_RANGE)
    x = tensor(*IMAGE, dtype="int8")
    yield unary("LOGISTIC", "int8 to a different scale, which only XNNPACK takes", x, x)
    for dtype in ("float32", "int8", "uint8"):
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            yield unary(
                "HARD_SWISH",
                dtype,
                x,
                x.rescale(0.55, None if dtype == "float32" else int(np.asarray(x.zero_point)) - 110),
                place,
                input_range=WIDE_RANGE,
                opsets=EVERY_OPSET,
            )
    yield from hard_swish_cases()
    yield unary(
        "HARD_SWISH",
        "int16",
        tensor(*IMAGE, dtype="int16"),
        kernel_refusal="Only float32, uint8 and int8 are supported",
    )


def hard_swish_cases() -> Iterator[Case]:
    """Yield cases of HARD_SWISH of every 8-bit value.

    The kernel's 16-bit fixed-point rounding affects one result in a hundred.
    """
    for dtype, low in (("int8", -128), ("uint8", 0)):
        all_values = np.arange(low, low + 256).astype(dtype)
        for scale, zero_point, output_scale, output_zero_point in (
            (0.0163, 4, 0.0083, -83),
            (0.0471, -128, 0.0469, -120),
            (0.0008, 31, 0.0007, 0),
            (0.9, -5, 0.51, -128),
        ):
            x = tensor(256, dtype=dtype, scale=scale, zero_point=zero_point + low + 128)
            y = x.rescale(output_scale / scale, output_zero_point + low + 128)
            case = unary("HARD_SWISH", f"{dtype} of scale {scale:g}", x, y, input_arrays={"x0": all_values}, runs=1)
            yield replace(
                case, tolerance=Tolerance(steps=0), tolerance_reason="the table holds the results of the kernel"
            )
        for name, scale, output_scale in (("to a scale of 2", 0.0008, 2.0), ("of a scale of 1e-07", 1e-7, 1e-8)):
            x = tensor(256, dtype=dtype, scale=scale, zero_point=low + 159)
            y = x.rescale(output_scale / scale, low + 127)
            case = unary("HARD_SWISH", f"{dtype} {name}", x, y, input_arrays={"x0": all_values}, runs=1)
            yield replace(
                case,
                tolerance=Tolerance(steps=0),
                tolerance_reason="for large shifts, the kernel's 16-bit rounding mask is -1, which rounds up",
            )
    x = tensor(256, dtype="int8", scale=0.9)
    refusal = "too small for the scale of the operand, 0.9"
    yield unary("HARD_SWISH", "int8 to a much smaller scale", x, x.rescale(1 / 256), refusal=refusal)


def extreme_value_case(op: str, *further_values: float, name: str = "", **case_fields: Any) -> Case:
    """Return a case with large and tiny numbers and signed zeros."""
    values = np.array([*EDGE_VALUES, *further_values], np.float32)
    return unary(op, f"float32 edges{name}", tensor(len(values)), input_arrays={"x0": values}, runs=1, **case_fields)


def rescaled_result(x: Spec, factor: float, shift: int) -> Spec:
    """Return a spec like ``x`` with another scale.

    The zero point differs too if the dtype allows it.
    """
    return x.rescale(factor, 0 if x.dtype == "int16" else int(np.asarray(x.zero_point)) + shift)


def clamp_cases() -> Iterator[Case]:
    """Yield cases of RELU_N1_TO_1 and RELU_0_TO_1, whose bounds every dtype contains."""
    for op in ("RELU_N1_TO_1", "RELU_0_TO_1"):
        for dtype in ("float32", *EIGHT_BIT_DTYPES):
            x = tensor(*IMAGE, dtype=dtype)
            for place in PLACEMENTS:
                yield unary(op, dtype, x, place=place, input_range=WIDE_RANGE, opsets=opsets(place=place))
                if dtype != "float32":
                    yield unary(op, f"{dtype} to a different scale", x, rescaled_result(x, 0.5, -30), place)
        nearly_full_range = tensor(*IMAGE, dtype="int8", scale=1 / 127, zero_point=0)
        yield unary(op, "int8 with nearly the range of the activation", tensor(*IMAGE, dtype="int8"), nearly_full_range)
        yield unary(op, "int16", tensor(*IMAGE, dtype="int16"), kernel_refusal="Only float32, uint8, int8 supported")


def leaky_relu_cases() -> Iterator[Case]:
    """Yield cases with alpha of either sign and above 1.

    For a negative alpha or one above 1, max(x, alpha * x) would be wrong.
    """
    for dtype in ("float32", *EIGHT_BIT_DTYPES, "int16"):
        x = tensor(*IMAGE, dtype=dtype)
        for alpha in (0.2, 1.7, -0.3):
            y, options = rescaled_result(x, 1.9, 17), {"alpha": alpha}
            yield unary("LEAKY_RELU", f"{dtype}, alpha {alpha}", x, y, options=options, opsets=opsets(dtype))
        for place in PLACEMENTS:
            yield unary("LEAKY_RELU", dtype, x, place=place, options={"alpha": 0.1})
    yield extreme_value_case("LEAKY_RELU", np.inf, -np.inf, np.nan, options={"alpha": 0.1})


def prelu_cases() -> Iterator[Case]:
    """Yield cases of PRELU with slopes of various shapes.

    TFLite aligns the last axes of slopes and operand. Between convolutions, the last axis is the second axis in ONNX.
    """
    for dtype in ("float32", *EIGHT_BIT_DTYPES, "int16"):
        x, y = tensor(*IMAGE, dtype=dtype), rescaled_result(tensor(*IMAGE, dtype=dtype), 1.3, 9)
        for shape in ((3,), (1, 1, 3), (7, 1), (5, 7, 3), (1,), (2, 1, 1, 3)):
            slopes = slope(dtype, *shape)
            for place in PLACEMENTS:
                tested_opsets = opsets(dtype, place) if shape == (3,) else (None,)
                yield binary("PRELU", f"{dtype}, slopes {shape}", x, slopes, y, place, opsets=tested_opsets)
    for shape in ((1, 1, 3), (5, 7, 3)):
        x = tensor(*IMAGE)
        yield binary("PRELU", f"slopes {shape} as an input", x, tensor(*shape), x, between_convolutions)
    yield binary("PRELU", "scalar slope", tensor(), tensor(), tensor())
    for place in PLACEMENTS:
        shared_slope, tested_opsets = constant(np.full((1, 1, 3), 0.25, np.float32)), opsets(place=place)
        yield binary(
            "PRELU", "one slope for all channels", tensor(*IMAGE), shared_slope, place=place, opsets=tested_opsets
        )
        image = tensor(2, 3, 7, 3)
        yield binary("PRELU", "equal numbers of rows and channels", image, slope("float32", 3, 1, 1), place=place)
    for size in (1, 3):
        x = tensor(2, 11, size)
        yield binary("PRELU", f"rank 3, {size} slopes", x, slope("float32", 1, size), opsets=EVERY_OPSET)
    x = tensor(None, 5, 7, 3)
    yield binary(
        "PRELU",
        "dynamic batch",
        x,
        slope("float32", 3),
        x,
        input_arrays=[{"x0": random_array(n, 5, 7, 3)} for n in (1, 3)],
    )
    operands = [tensor(2, 5, 7, 3, dtype="int16"), constant(random_array(3, dtype="int16"), None, 0.001)]
    yield in_isolation(
        "PRELU",
        "int16 by int16 slopes, of which the kernel reads bytes",
        operands,
        operands[0],
        refusal="no kernel for dtypes int16, int16",
    )
    yield net(
        "PRELU", "steep slopes without negative inputs", build_steep_slopes, max_transposes=2, input_range=(0.0, 3.0)
    )
    yield net("PRELU", "float32 between integers", build_float_between_quantized, dtype="int8")


def slope(dtype: str, *shape: int) -> Spec:
    """Return constant slopes of both signs, some of them above 1.

    The slopes have their own scale and zero point, and are int8 for int16 inputs.
    """
    if dtype == "float32":
        return constant(random_array(*shape, seed="slope", low=-0.7, high=1.8))
    slope_dtype = "int8" if dtype == "int16" else dtype
    return random_constant(
        tensor(*shape, dtype=slope_dtype, scale=0.011, zero_point=90 if slope_dtype == "uint8" else -21), "slope"
    )


def build_steep_slopes(model: Net) -> None:
    """Build a PRELU with slopes of up to 100000.

    Adding and subtracting x * slope would lose digits of positive inputs.
    """
    image = tensor(1, 5, 7, 16)
    x = model.input_through_conv(image)
    slopes = constant(np.geomspace(1e-3, 1e5, 16).astype(np.float32))
    model.output(model.output_through_conv(model.call("PRELU", [x, slopes], image)))


def build_float_between_quantized(model: Net) -> None:
    """Build a float PRELU between DEQUANTIZE and QUANTIZE.

    The runtime must not fuse them into a quantized operator.
    """
    quantized, floats = tensor(2, 5, 7, 16, dtype="int8"), tensor(2, 5, 7, 16)
    x = model.call("DEQUANTIZE", [model.input_through_conv(quantized)], floats)
    y = model.call("PRELU", [x, slope("float32", 16)], floats)
    model.output(model.output_through_conv(model.call("QUANTIZE", [y], replace(quantized, name=""))))


# --- lookup tables of integers ----------------------------------------------------------------


def lookup_cases() -> Iterator[Case]:
    """Yield cases of functions whose kernels look up 8-bit integers in a table."""
    output_parameters = {"ELU": (1.0, 0), "GELU": (1.0, -90), "TANH": (1 / 128 / 0.047, 5)}
    for op, dtypes in (("ELU", ("int8",)), ("GELU", EIGHT_BIT_DTYPES), ("TANH", EIGHT_BIT_DTYPES)):
        for options in [{"approximate": False}, {"approximate": True}] if op == "GELU" else [{}]:
            name = ", approximate" if options.get("approximate") else ""
            for dtype in ("float32", *dtypes):
                x = tensor(*IMAGE, dtype=dtype)
                for place in PLACEMENTS:
                    y = rescaled_result(x, *output_parameters[op])
                    yield unary(
                        op,
                        dtype + name,
                        x,
                        y,
                        place,
                        options=options,
                        input_range=WIDE_RANGE,
                        opsets=opsets(place=place),
                    )
                yield unary(
                    op,
                    f"{dtype}{name}, different scale",
                    x,
                    rescaled_result(x, 0.63, 31),
                    options=options,
                    input_range=WIDE_RANGE,
                )
            non_finite = () if op == "GELU" else (np.inf, -np.inf, np.nan)
            yield extreme_value_case(op, *non_finite, name=name, options=options)
            if op != "ELU":
                x = tensor(*IMAGE, dtype="float16")
                yield unary(op, f"float16{name}", x, options=options, input_range=WIDE_RANGE, opsets=EVERY_OPSET)
    yield unary("ELU", "uint8", tensor(*IMAGE, dtype="uint8"), kernel_refusal="Only float32 and int8 is supported")
    yield from int16_cases()


def int16_cases() -> Iterator[Case]:
    """Yield cases of TANH, LOGISTIC and GELU on int16 and on bfloat16."""
    x = tensor(*IMAGE, dtype="int16")
    required_output = replace(x, scale=1 / 32768)
    for place in PLACEMENTS:
        yield unary("TANH", "int16", x, required_output, place, opsets=(None, 26))
    all_values = np.arange(-32768, 32768).astype(np.int16).reshape(256, 256)
    # Float arithmetic differs by two steps at the first of these scales; 32-bit integers overflow at the second.
    inexact_scales = {"4.1815e-5": 4.1815e-5, "40": 40.0}
    for op, scales in (("TANH", {**INT16_SCALES, "40": 40.0}), ("LOGISTIC", {**INT16_SCALES, **inexact_scales})):
        for name, scale in scales.items():
            x_of_scale = tensor(256, 256, dtype="int16", scale=scale)
            run_options: dict[str, Any] = {"input_arrays": {"x0": all_values}, "runs": 1}
            yield unary(
                op,
                f"every int16 from a scale of {name}",
                x_of_scale,
                replace(x_of_scale, scale=1 / 32768),
                **run_options,
            )
    yield unary("TANH", "int16 to a different scale", x, x, kernel_refusal="output_scale_log2_rounded")
    for op in ("TANH", "LOGISTIC"):
        yield in_bfloat16(op, [tensor(*IMAGE)], tensor(*IMAGE), input_range=WIDE_RANGE)
    arrays = {"x0": np.array([-200, -90, -20, 20, 88, 90, 200, np.inf, -np.inf], np.float32)}
    yield in_bfloat16("LOGISTIC", [tensor(9)], tensor(9), name="bfloat16 far from zero", input_arrays=arrays)
    for approximate in (False, True):
        options = {"approximate": approximate}
        name = "int16" + ", approximate" * approximate
        for place in PLACEMENTS:
            yield unary("GELU", name, x, place=place, options=options, opsets=(None, 26))
        yield unary("GELU", f"{name}, different scale", x.rescale(10.0), x.rescale(4.0), options=options)
        x_with_zero_point, y_with_zero_point = (
            replace(x, scale=1 / 128, zero_point=255),
            replace(x, scale=0.0012, zero_point=7),
        )
        yield unary("GELU", f"{name} with zero points", x_with_zero_point, y_with_zero_point, options=options)
    arrays = {"x0": np.array([1.6e38, 1.8e38, 3e38, -3e38, 2.0], np.float32)}
    reason = "ONNX Runtime computes 2 * x first, which is infinite from 1.7e38 on"
    yield unary(
        "GELU",
        "float32 beyond 1.7e38, approximate",
        tensor(5),
        options={"approximate": True},
        input_arrays=arrays,
        known_failure=reason,
    )
