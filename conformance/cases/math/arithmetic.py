"""Binary arithmetic: broadcasting, different scales, fused activations, division, powers, extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
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
)
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)
BYTES = ("int8", "uint8")
REAL = ("float32", "int8", "uint8", "int16")
FUSED = ("RELU", "RELU6", "RELU_N1_TO_1")
LARGE = np.array([1, 2**32 - 65536, 5, -(2**33) - 1, 2**33 + 7, -3, 2**40, -(2**40) + 1, 2**62, 0, -(2**62)])


def cases() -> Iterator[Case]:
    for op in ("ADD", "SUB", "MUL"):
        yield from arithmetic_cases(op)
    yield from multiplication_cases()
    yield from shapeless_result_cases()
    yield from power_of_two_scale_cases()
    yield from tie_cases()
    yield from broadcast_cases()
    yield from division_cases()
    yield from power_cases()
    yield from squared_difference_cases()
    yield from maximum_cases()
    yield from minimum_cases()


def shapeless_result_cases() -> Iterator[Case]:
    """Yield results without a stored shape, as old converters write them; the shape is the broadcast of the operands."""

    def broadcast_model(shape: tuple[int | None, ...]) -> Callable[[Net], None]:
        def build(model: Net) -> None:
            x, y = model.input(tensor(*shape)), model.input(tensor(*shape[-2:]))
            results = [model.graph.tensor(name, None, "float32") for name in ("sum", "product", "shown")]
            model.graph.operator("ADD", [y, x], [results[0]], {"fused_activation_function": "RELU6"})
            model.graph.operator("MUL", [results[0], y], [results[1]], {"fused_activation_function": "NONE"})
            model.graph.operator("TANH", [results[1]], [results[2]])
            model.graph.output(results[2])

        return build

    yield net("ADD", "results without stored shape", broadcast_model(IMAGE))
    given = {"x0": random_array(2, 11, 7, 3), "x1": random_array(7, 3)}
    yield net(
        "ADD", "results without stored shape, dynamic dimension", broadcast_model((2, None, 7, 3)), input_arrays=given
    )


def quantized_operands(op: str, dtype: str) -> tuple[Spec, Spec, Spec]:
    """Return three specs with different quantization parameters."""
    x = tensor(*IMAGE, dtype=dtype)
    shift = 0 if dtype == "int16" else 11
    y = x.rescale(0.6, int(np.asarray(x.zero_point)) + shift)
    widest = {"ADD": 1.5, "SUB": 1.5, "MUL": 3.0}[op] * (30 if dtype == "int16" and op == "MUL" else 1)
    return x, y, x.rescale(widest, int(np.asarray(x.zero_point)) - shift)


def arithmetic_cases(op: str) -> Iterator[Case]:
    for dtype in REAL:
        x, y, z = quantized_operands(op, dtype)
        for place in PLACEMENTS:
            yield binary(op, dtype, x, y, z, place, opsets=EVERY_OPSET if dtype != "int16" else (None, 26))
        for activation in (*FUSED, "TANH", "SIGN_BIT"):
            # The output's zero point is not at an end of its dtype, so the activation clips.
            out = z.rescale(0.7)
            place = PLACEMENTS[activation in FUSED]
            options = {"fused_activation_function": activation}
            name = f"{dtype} with {activation}" + ("" if activation in FUSED else ", which the kernel ignores")
            yield place(op, name, [x, y], out, options=options, input_range=(-3.0, 3.0))
    x, edges = tensor(11, dtype="int64"), {"x0": LARGE, "x1": np.ones_like(LARGE)}
    if op != "SUB":
        for activation in FUSED:
            options = {"fused_activation_function": activation}
            yield binary(op, f"int64 beyond 32 bits with {activation}", x, x, input_arrays=edges, options=options)
    for dtype in ("int32", "int64"):
        yield binary(op, dtype, tensor(*IMAGE, dtype=dtype), tensor(7, 3, dtype=dtype))
        if dtype == "int32" or op != "SUB":
            options = {"fused_activation_function": "RELU6"}
            yield binary(
                op, f"{dtype} with RELU6", tensor(*IMAGE, dtype=dtype), tensor(7, 3, dtype=dtype), options=options
            )
    for dtype in ("int32", "float16"):
        image, row = tensor(*IMAGE, dtype=dtype), constant(random_array(7, 3, dtype=dtype))
        yield binary(op, f"{dtype} and a constant", image, row)
        yield binary(op, f"{dtype}, leading constant", row, image)
    limits = np.iinfo(np.int32)
    edge = {"x0": np.array([limits.max, limits.min, 46341, -5], np.int32), "x1": np.array([1, 1, 46341, 7], np.int32)}
    yield binary(op, "int32 that wraps around", tensor(4, dtype="int32"), tensor(4, dtype="int32"), input_arrays=edge)
    for dtype in ("float32", "int8", "uint8"):
        x, y, z = quantized_operands(op, dtype)
        for shape in ((3,), (7, 1)):
            part = random_constant(y.with_shape(*shape), op)
            yield binary(op, f"{dtype} and a constant {shape}", x, part, z, between_convolutions)
            yield binary(op, f"{dtype}, leading constant {shape}", part, x, z, between_convolutions)
    x, _, z = quantized_operands(op, "int8")
    yield (
        in_isolation(op, "int8 tensor with itself" + "", [x, x], z)
        if op != "SUB"
        else binary(op, "int8 from a scalar", constant(3, "int8", 0.1, 1), x, z)
    )


def multiplication_cases() -> Iterator[Case]:
    """Yield the dtypes and operands that only MUL accepts."""
    whole = tensor(3, 5, dtype="uint32")
    options = {"fused_activation_function": "RELU_N1_TO_1"}
    text = "the -1 of a fused RELU_N1_TO_1 as the highest integer"
    yield in_isolation("MUL", "uint32 with RELU_N1_TO_1", [whole, whole], whole, options=options, refusal=text)
    pairs, refuses = tensor(3, 5, dtype="complex64"), "Activation is not allowed for COMPLEX64"
    for activation in (*FUSED, "TANH", "SIGN_BIT"):
        options = {"fused_activation_function": activation}
        text = f"LiteRT refuses a fused {activation}"
        name = f"complex64 with {activation}"
        yield in_isolation("MUL", name, [pairs, pairs], pairs, options=options, refusal=text, kernel_refusal=refuses)
        if activation != "RELU_N1_TO_1":
            yield in_isolation("MUL", f"uint32 with {activation}", [whole, whole], whole, options=options)
    for dtype in ("uint32", "complex64"):
        yield binary("MUL", dtype, tensor(*IMAGE, dtype=dtype), tensor(7, 3, dtype=dtype))
        yield binary(
            "MUL",
            f"{dtype} and a constant",
            constant(random_array(3, dtype="float32").astype(dtype)),
            tensor(5, 1, 3, dtype=dtype),
        )


def power_of_two_scale_cases() -> Iterator[Case]:
    """Yield an option of the first int16 files; results are equal up to one more rounding."""
    for op in ("ADD", "SUB"):
        y = tensor(*IMAGE, dtype="int16", scale=2.0**-11)
        yield binary(
            op, "int16 of scales that are powers of two", y.rescale(0.25), y, y, options={"pot_scale_int16": True}
        )


def tie_cases() -> Iterator[Case]:
    """Yield an image and a constant, as in ``x / 127.5 - 1``; every result is a tie."""
    for op, sign, point in (("ADD", 1, 0), ("SUB", -1, 128)):
        for dtype, least in (("int8", -128), ("uint8", 0)):
            x = tensor(256, dtype=dtype, scale=2 / 255, zero_point=least)
            ones = constant(least + 255, dtype, 1 / 255, least)
            y = tensor(256, dtype=dtype, scale=2 / 255, zero_point=least + point)
            yield in_isolation(
                op,
                f"{dtype} and a constant, halves round up",
                [x, ones],
                y,
                dtype=dtype,
                input_arrays={"x0": np.arange(least, least + 256).astype(dtype)},
                reference=round_half_up_reference(sign, least, point),
                tolerance=Tolerance(steps=0),
                tolerance_reason="XNNPACK rounds each half up",
            )


def round_half_up_reference(sign: int, least: int, point: int) -> Callable[[Sequence[Any]], list[Any]]:
    def round_half(arrays: Sequence[Any]) -> list[Any]:
        steps = np.floor(arrays[0].astype(np.int64) - least + sign * 127.5 + 0.5)
        return [np.clip(steps + least + point, least, least + 255).astype(arrays[0].dtype)]

    return round_half


def broadcast_cases() -> Iterator[Case]:
    """Yield lower ranks, which TFLite aligns from the right; with channels first, ONNX would align other axes."""
    for dtype in ("float32", "int8", "uint8"):
        x, y, z = quantized_operands("ADD", dtype)
        for shape in ((), (1,), (7, 3), (5, 1, 1), (5, 1, 3), (2, 1, 1, 3), (1, 5, 7, 1)):
            yield binary(
                "ADD",
                f"{dtype} and a constant {shape}",
                x,
                random_constant(y.with_shape(*shape), "b"),
                z,
                between_convolutions,
            )
        for shape in ((3,), (5, 1, 3), (7, 1)):
            yield binary("ADD", f"{dtype} and an input {shape}", x, y.with_shape(*shape), z, between_convolutions)
            yield binary("SUB", f"{dtype} from an input {shape}", y.with_shape(*shape), x, z, between_convolutions)
        yield binary(
            "ADD",
            f"{dtype}, both broadcast",
            x.with_shape(2, 1, 7, 3),
            y.with_shape(1, 5, 7, 1),
            z,
            between_convolutions,
        )
    for dtype in ("float32", "int32"):
        yield binary("MUL", f"{dtype} of rank 5 and 2", tensor(2, 3, 5, 1, 7, dtype=dtype), tensor(3, 1, dtype=dtype))
        yield binary("ADD", f"{dtype} of rank 0", tensor(dtype=dtype), tensor(dtype=dtype))
        yield binary("ADD", f"{dtype}, empty", tensor(0, 3, dtype=dtype), tensor(3, dtype=dtype))
    yield binary(
        "ADD",
        "float32 of dynamic batch",
        tensor(None, 5, 7, 3),
        random_constant(tensor(5, 1, 3)),
        tensor(None, 5, 7, 3),
        input_arrays=[{"x0": random_array(n, 5, 7, 3)} for n in (1, 3)],
    )


def integers_between(dtype: str, low: int, high: int, *shape: int, seed: str = "") -> Array:
    return random_array(*shape, dtype=dtype, low=low, high=high, seed=seed)


def division_cases() -> Iterator[Case]:
    """Yield integer division, which truncates toward zero; the kernel refuses division by 0."""
    above: dict[str, Any] = {"input_range": (0.5, 3.0)}
    for place in PLACEMENTS:
        yield binary("DIV", "float32", tensor(*IMAGE), tensor(*IMAGE), place=place, opsets=opsets(place=place), **above)
        for activation in FUSED:
            options = {"fused_activation_function": activation}
            yield binary("DIV", f"float32 with {activation}", tensor(*IMAGE), DIVISOR, place=place, options=options)
    for activation in ("TANH", "SIGN_BIT"):
        name, options = (
            f"float32 with {activation}, which the kernel ignores",
            {"fused_activation_function": activation},
        )
        yield binary("DIV", name, tensor(*IMAGE), DIVISOR, options=options)
    for shape in ((3,), (7, 1), (5, 1, 3), ()):
        part = constant(random_array(*shape, low=0.3, high=2.0))
        yield binary("DIV", f"float32 by a constant {shape}", tensor(*IMAGE), part, place=between_convolutions)
        yield binary("DIV", f"a constant {shape} by float32", part, tensor(*IMAGE), place=between_convolutions, **above)
    zeros = {"x0": np.array([1, -1, 0, 2, np.inf], np.float32), "x1": np.array([0, 0, 0, -0.0, np.inf], np.float32)}
    yield binary("DIV", "float32 by zero", tensor(5), tensor(5), input_arrays=zeros)
    yield from quotient_cases()
    signs = {"x0": np.array([7, -7, 7, -7, 0, 46341], np.int32), "x1": np.array([2, 2, -2, -2, -3, 1], np.int32)}
    yield binary(
        "DIV", "int32", tensor(6, dtype="int32"), tensor(6, dtype="int32"), input_arrays=signs, opsets=EVERY_OPSET
    )
    part = constant(np.array([[3], [-4], [7], [1], [2], [-9], [5]], np.int32))
    options = {"fused_activation_function": "RELU6"}
    yield binary("DIV", "int32 by a constant, with RELU6", tensor(*IMAGE, dtype="int32"), part, options=options)


DIVISOR = constant(random_array(*IMAGE, low=0.3, high=2.0))


def quotient_cases() -> Iterator[Case]:
    """Yield dividends that are not close to 0, because the kernel is inaccurate for quotients below one step."""
    settings = {"int8": (0.021, -5, 0.09), "uint8": (0.021, 12, 0.09), "int16": (1e-4, 0, 8e-4)}
    for dtype, (scale, point, result) in settings.items():
        x = tensor(*IMAGE, dtype=dtype)
        y = tensor(*IMAGE, dtype=dtype, scale=scale, zero_point=point)
        z = tensor(*IMAGE, dtype=dtype, scale=result)
        part = replace(y.with_shape(7, 3), value=away_from_zero_point(y.with_shape(7, 3)))
        for place in PLACEMENTS:
            wide = x.with_shape(2, 5, 7, 5) if place is between_convolutions else x
            given = {"x0": away_from_zero_point(wide)}
            yield binary(
                "DIV", f"{dtype} by a constant", x, part, z, place, input_arrays=given, opsets=opsets(dtype, place)
            )
        given = {"x0": away_from_zero_point(x), "x1": away_from_zero_point(y)}
        yield binary("DIV", dtype, x, y, z, input_arrays=given, opsets=opsets(dtype))
        yield binary("DIV", f"{dtype} out of range", x, y, z.rescale(0.01), input_arrays=given)
        for activation in FUSED:
            options = {"fused_activation_function": activation}
            yield binary("DIV", f"{dtype} with {activation}", x, y, z.rescale(0.3), options=options, input_arrays=given)
        for activation in ("TANH", "SIGN_BIT"):
            name, options = (
                f"{dtype} with {activation}, which the kernel ignores",
                {"fused_activation_function": activation},
            )
            yield binary("DIV", name, x, y, z, options=options, input_arrays=given)
    x = tensor(3, dtype="int8", scale=0.05, zero_point=0)
    given = {"x0": np.array([1, -1, 2], np.int8), "x1": np.array([120, 121, 122], np.int8)}
    reason = "the kernel shifts quotients below about 0.3 steps by more than 31 bits (reference/div.h)"
    yield binary("DIV", "int8 quotients near 0", x, x, x.rescale(2.0), input_arrays=given, known_failure=reason)


def away_from_zero_point(x: Spec) -> Array:
    """Return integers that are not close to the zero point."""
    shape, point = tuple(size or 1 for size in x.shape), int(np.asarray(x.zero_point))
    values = random_array(*shape, dtype=x.dtype, seed="away").astype(np.int32)
    near = np.abs(values - point) < (2000 if x.dtype == "int16" else 20)
    return np.where(near, values + (4000 if x.dtype == "int16" else 40), values).astype(x.dtype)


def power_cases() -> Iterator[Case]:
    base: dict[str, Any] = {"input_range": (0.1, 3.0)}
    for place in PLACEMENTS:
        yield binary("POW", "float32", tensor(*IMAGE), tensor(*IMAGE), place=place, opsets=opsets(place=place), **base)
        for exponent in (2.0, 3.0, 0.5, -1.0, 0.0, 2.3):
            yield binary("POW", f"float32 to {exponent}", tensor(*IMAGE), constant(exponent), place=place, **base)
        column = constant([[0.5], [2.0], [3.0], [1.0], [0.1], [9.0], [0.3]])
        yield binary("POW", "a constant to float32", column, tensor(*IMAGE), place=place)
    signs = [np.array(row, np.float32) for row in ([-2, -2, 0, 0, -8, np.inf], [3, 0.5, 0, -1, -3, -2])]
    given = dict(zip(("x0", "x1"), signs, strict=True))
    yield binary("POW", "float32 of negative numbers and zeros", tensor(6), tensor(6), input_arrays=given)
    whole = {"x0": integers_between("int32", -9, 9, 7, 3), "x1": integers_between("int32", 0, 9, 7, 3)}
    x = tensor(7, 3, dtype="int32")
    yield binary("POW", "int32", x, x, input_arrays=whole, opsets=EVERY_OPSET)
    for exponent in (0, 1, 2, 3, 7):
        part = constant(np.asarray(exponent, np.int32))
        given = {"x0": integers_between("int32", -15, 15, 7, 3)}
        yield binary("POW", f"int32 to {exponent}", x, part, input_arrays=given)
    wide = {"x0": integers_between("int32", -(2**31), 2**31 - 1, 7, 3)}
    for exponent in (2, 11):
        part = constant(np.asarray([exponent], np.int32))
        yield binary("POW", f"int32 to {exponent}, which wraps", x, part, input_arrays=wide)
    x = tensor(7, dtype="int8")
    yield binary("POW", "int8", x, x, kernel_refusal="Unsupported data type")


def squared_difference_cases() -> Iterator[Case]:
    op = "SQUARED_DIFFERENCE"
    for dtype in ("float32", "int8"):
        x, y, z = operands_of_scales(dtype, 3.0)
        for place in PLACEMENTS:
            yield binary(op, dtype, x, y, z, place, opsets=opsets(place=place))
            for shape in ((3,), (7, 1)):
                yield binary(op, f"{dtype} from a constant {shape}", random_constant(y.with_shape(*shape)), x, z, place)
        yield binary(op, f"{dtype} from an input (5, 1, 3)", x, y.with_shape(5, 1, 3), z, between_convolutions)
    for first, second in ((0.019, 0.013), (0.0007, 0.021), (0.033, 0.00001)):
        yield binary(
            op,
            f"int8 of scales {first:g} and {second:g}",
            tensor(*IMAGE, dtype="int8", scale=first, zero_point=-7),
            tensor(5, 7, 1, dtype="int8", scale=second, zero_point=11),
            tensor(*IMAGE, dtype="int8", scale=max(first, second) * 4.3, zero_point=-128),
            tolerance=Tolerance(steps=0),
            tolerance_reason="the kernel rounds the operand of the smaller scale to 1/64 of the other's",
        )
    edge = {"x0": np.array([5, -5, 46341, -(2**31)], np.int32), "x1": np.array([7, 7, 0, 1], np.int32)}
    yield binary(op, "int32, wrapping around", tensor(4, dtype="int32"), tensor(4, dtype="int32"), input_arrays=edge)
    yield binary(op, "int32 of rank 5 and 2", tensor(2, 3, 5, 1, 7, dtype="int32"), tensor(3, 1, dtype="int32"))
    x = tensor(*IMAGE, dtype="uint8")
    yield binary(op, "uint8", x, x, kernel_refusal="SquaredDifference only supports FLOAT32 and INT32 now")


def operands_of_scales(dtype: str, widest: float) -> tuple[Spec, Spec, Spec]:
    """Return three specs with different quantization parameters."""
    x = tensor(*IMAGE, dtype=dtype)
    point = int(np.asarray(x.zero_point))
    return x, x.rescale(0.6, point + 11), x.rescale(widest, point - 110)


def maximum_cases() -> Iterator[Case]:
    for dtype in REAL:
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            yield binary("MAXIMUM", dtype, x, x, x, place, opsets=EVERY_OPSET if dtype != "int16" else (None, 26))
        yield binary(
            "MAXIMUM", f"{dtype} and a constant", x, random_constant(x.with_shape(7, 1)), x, between_convolutions
        )
    for dtype in ("int8", "uint8"):
        x, y, z = quantized_operands("ADD", dtype)
        for place in PLACEMENTS:
            yield binary("MAXIMUM", f"{dtype} of different scales, which the kernel ignores", x, y, z, place)
            yield binary(
                "MAXIMUM", f"{dtype} and a constant of different scale", x, random_constant(y.with_shape(3)), z, place
            )
        yield binary(
            "MAXIMUM", f"{dtype} without scale", tensor(*IMAGE, dtype=dtype, scale=0), tensor(3, dtype=dtype, scale=0)
        )
    for dtype in ("int32", "int64"):
        yield binary("MAXIMUM", dtype, tensor(*IMAGE, dtype=dtype), tensor(5, 1, 1, dtype=dtype))


def minimum_cases() -> Iterator[Case]:
    """Yield extremes, which compare quantized values regardless of scales."""
    for dtype in ("float32", *BYTES, "int16"):
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            yield binary("MINIMUM", dtype, x, x, x, place, opsets=opsets(dtype, place))
        for shape in ((), (7, 1), (5, 1, 1)):
            part = random_constant(x.with_shape(*shape))
            yield binary("MINIMUM", f"{dtype} and a constant {shape}", x, part, x, between_convolutions)
    for dtype in BYTES:
        x, y, z = operands_of_scales(dtype, 1.5)
        for place in PLACEMENTS:
            yield binary("MINIMUM", f"{dtype} of different scales, which the kernel ignores", x, y, z, place)
    for op in ("MINIMUM", "MAXIMUM"):
        x = tensor(*IMAGE, dtype="int16")
        for place in PLACEMENTS:
            y, z = x.rescale(0.6), x.rescale(1.5)
            yield binary(op, "int16 of different scales, which the kernel ignores", x, y, z, place)
        for dtype in (*BYTES, "int16", "int32", "int64"):
            x = tensor(*IMAGE, dtype=dtype, scale=0)
            yield binary(op, f"{dtype} without scale, ignored", x, x.with_shape(5, 1, 1), opsets=EVERY_OPSET)
        x = tensor(11, dtype="int64")
        yield binary(
            op, "int64 beyond 32 bits", x, x, input_arrays={"x0": LARGE, "x1": LARGE[::-1].copy()}, opsets=EVERY_OPSET
        )
        half = tensor(*IMAGE, dtype="float16")
        yield binary(op, "float16", half, half.with_shape(7, 1), opsets=EVERY_OPSET)
        yield in_bfloat16(op, [tensor(*IMAGE), tensor(*IMAGE)], tensor(*IMAGE))
    infinite = {"x0": np.array([np.inf, -np.inf, 0.0, 2], np.float32), "x1": np.array([1, 1, -0.0, np.inf], np.float32)}
    yield binary("MINIMUM", "float32 of infinity", tensor(4), tensor(4), input_arrays=infinite)
