"""More of elementwise arithmetic: quotients, powers, roots, differences, extremes, magnitudes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    BOTH,
    Net,
    Placed,
    Spec,
    alone,
    between_convolutions,
    binary,
    constant,
    drawn,
    filled,
    net,
    tensor,
    unary,
)
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)
BYTES = ("int8", "uint8")
FUSED = ("RELU", "RELU6", "RELU_N1_TO_1")


def cases() -> Iterator[Case]:
    yield from divided()
    yield from powers()
    yield from differences()
    yield from minimum()
    yield from magnitudes()
    yield from exponentials()
    yield from logarithms()
    yield from roots()


def opsets(dtype: str = "float32", place: Placed = alone) -> tuple[int | None, ...]:
    """Every opset that can, of an operator alone; between convolutions what matters is the order."""
    return (None,) if place is between_convolutions else (None, 26) if dtype == "int16" else EVERY_OPSET


def numbered(dtype: str, low: int, high: int, *shape: int, seed: str = "") -> Array:
    return drawn(*shape, dtype=dtype, low=low, high=high, seed=seed)


# --- two operands -----------------------------------------------------------------------------


def divided() -> Iterator[Case]:
    """Integer quotients are cut towards zero; the kernel refuses to divide them by 0."""
    above: dict[str, Any] = {"span": (0.5, 3.0)}
    for place in BOTH:
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
        part = constant(drawn(*shape, low=0.3, high=2.0))
        yield binary("DIV", f"float32 by a constant {shape}", tensor(*IMAGE), part, place=between_convolutions)
        yield binary("DIV", f"a constant {shape} by float32", part, tensor(*IMAGE), place=between_convolutions, **above)
    zeros = {"x0": np.array([1, -1, 0, 2, np.inf], np.float32), "x1": np.array([0, 0, 0, -0.0, np.inf], np.float32)}
    yield binary("DIV", "float32 by zero", tensor(5), tensor(5), given=zeros)
    yield from quantized_quotients()
    signs = {"x0": np.array([7, -7, 7, -7, 0, 46341], np.int32), "x1": np.array([2, 2, -2, -2, -3, 1], np.int32)}
    yield binary("DIV", "int32", tensor(6, dtype="int32"), tensor(6, dtype="int32"), given=signs, opsets=EVERY_OPSET)
    part = constant(np.array([[3], [-4], [7], [1], [2], [-9], [5]], np.int32))
    options = {"fused_activation_function": "RELU6"}
    yield binary("DIV", "int32 by a constant, with RELU6", tensor(*IMAGE, dtype="int32"), part, options=options)


DIVISOR = constant(drawn(*IMAGE, low=0.3, high=2.0))


def quantized_quotients() -> Iterator[Case]:
    """Dividends are away from 0: the kernel makes noise of quotients far below one step."""
    settings = {"int8": (0.021, -5, 0.09), "uint8": (0.021, 12, 0.09), "int16": (1e-4, 0, 8e-4)}
    for dtype, (scale, point, made) in settings.items():
        x = tensor(*IMAGE, dtype=dtype)
        y = tensor(*IMAGE, dtype=dtype, scale=scale, zero_point=point)
        z = tensor(*IMAGE, dtype=dtype, scale=made)
        part = replace(y.shaped(7, 3), value=away(y.shaped(7, 3)))
        for place in BOTH:
            wide = x.shaped(2, 5, 7, 5) if place is between_convolutions else x
            given = {"x0": away(wide)}
            yield binary("DIV", f"{dtype} by a constant", x, part, z, place, given=given, opsets=opsets(dtype, place))
        given = {"x0": away(x), "x1": away(y)}
        yield binary("DIV", dtype, x, y, z, given=given, opsets=opsets(dtype))
        yield binary("DIV", f"{dtype} out of range", x, y, z.scaled(0.01), given=given)
        for activation in FUSED:
            options = {"fused_activation_function": activation}
            yield binary("DIV", f"{dtype} with {activation}", x, y, z.scaled(0.3), options=options, given=given)
        name, options = f"{dtype} with TANH, which the kernel ignores", {"fused_activation_function": "TANH"}
        yield binary("DIV", name, x, y, z, options=options, given=given)
    x = tensor(3, dtype="int8", scale=0.05, zero_point=0)
    given = {"x0": np.array([1, -1, 2], np.int8), "x1": np.array([120, 121, 122], np.int8)}
    known = "the kernel shifts quotients below about 0.3 steps by more than 31 bits (reference/div.h)"
    yield binary("DIV", "int8 quotients near 0", x, x, x.scaled(2.0), given=given, known=known)


def away(x: Spec) -> Array:
    """Integers of which none is near the zero point."""
    shape, point = tuple(size or 1 for size in x.shape), int(np.asarray(x.zero_point))
    values = drawn(*shape, dtype=x.dtype, seed="away").astype(np.int32)
    near = np.abs(values - point) < (2000 if x.dtype == "int16" else 20)
    return np.where(near, values + (4000 if x.dtype == "int16" else 40), values).astype(x.dtype)


def powers() -> Iterator[Case]:
    base: dict[str, Any] = {"span": (0.1, 3.0)}
    for place in BOTH:
        yield binary("POW", "float32", tensor(*IMAGE), tensor(*IMAGE), place=place, opsets=opsets(place=place), **base)
        for exponent in (2.0, 3.0, 0.5, -1.0, 0.0, 2.3):
            yield binary("POW", f"float32 to {exponent}", tensor(*IMAGE), constant(exponent), place=place, **base)
        column = constant([[0.5], [2.0], [3.0], [1.0], [0.1], [9.0], [0.3]])
        yield binary("POW", "a constant to float32", column, tensor(*IMAGE), place=place)
    signs = [np.array(row, np.float32) for row in ([-2, -2, 0, 0, -8, np.inf], [3, 0.5, 0, -1, -3, -2])]
    given = dict(zip(("x0", "x1"), signs, strict=True))
    yield binary("POW", "float32 of negative numbers and zeros", tensor(6), tensor(6), given=given)
    yield unary("SQUARE", "float32", tensor(*IMAGE), opsets=EVERY_OPSET)
    yield unary("SQUARE", "float32", tensor(*IMAGE), place=between_convolutions)
    whole = {"x0": numbered("int32", -9, 9, 7, 3), "x1": numbered("int32", 0, 9, 7, 3)}
    x = tensor(7, 3, dtype="int32")
    yield binary("POW", "int32", x, x, given=whole, opsets=EVERY_OPSET)
    for exponent in (0, 1, 2, 3, 7):
        part = constant(np.asarray(exponent, np.int32))
        given = {"x0": numbered("int32", -15, 15, 7, 3)}
        yield binary("POW", f"int32 to {exponent}", x, part, given=given)
    x = tensor(7, dtype="int8")
    yield binary("POW", "int8", x, x, kernel_refuses="Unsupported data type")


def differences() -> Iterator[Case]:
    op = "SQUARED_DIFFERENCE"
    for dtype in ("float32", "int8"):
        x, y, z = parameters(dtype, 3.0)
        for place in BOTH:
            yield binary(op, dtype, x, y, z, place, opsets=opsets(place=place))
            for shape in ((3,), (7, 1)):
                yield binary(op, f"{dtype} from a constant {shape}", filled(y.shaped(*shape)), x, z, place)
        yield binary(op, f"{dtype} from an input (5, 1, 3)", x, y.shaped(5, 1, 3), z, between_convolutions)
    edge = {"x0": np.array([5, -5, 46341, -(2**31)], np.int32), "x1": np.array([7, 7, 0, 1], np.int32)}
    yield binary(op, "int32, wrapping around", tensor(4, dtype="int32"), tensor(4, dtype="int32"), given=edge)
    yield binary(op, "int32 of rank 5 and 2", tensor(2, 3, 5, 1, 7, dtype="int32"), tensor(3, 1, dtype="int32"))
    x = tensor(*IMAGE, dtype="uint8")
    yield binary(op, "uint8", x, x, kernel_refuses="SquaredDifference only supports FLOAT32 and INT32 now")


def parameters(dtype: str, widest: float) -> tuple[Spec, Spec, Spec]:
    """Three tensors of which no two have the same parameters."""
    x = tensor(*IMAGE, dtype=dtype)
    point = int(np.asarray(x.zero_point))
    return x, x.scaled(0.6, point + 11), x.scaled(widest, point - 110)


def minimum() -> Iterator[Case]:
    """Stored numbers are compared, whatever the scales."""
    for dtype in ("float32", *BYTES, "int16"):
        x = tensor(*IMAGE, dtype=dtype)
        for place in BOTH:
            yield binary("MINIMUM", dtype, x, x, x, place, opsets=opsets(dtype, place))
        for shape in ((), (7, 1), (5, 1, 1)):
            part = filled(x.shaped(*shape))
            yield binary("MINIMUM", f"{dtype} and a constant {shape}", x, part, x, between_convolutions)
    for dtype in BYTES:
        x, y, z = parameters(dtype, 1.5)
        for place in BOTH:
            yield binary("MINIMUM", f"{dtype} of different scales, which the kernel ignores", x, y, z, place)
    for op in ("MINIMUM", "MAXIMUM"):
        x = tensor(*IMAGE, dtype="int16")
        for place in BOTH:
            y, z = x.scaled(0.6), x.scaled(1.5)
            yield binary(op, "int16 of different scales, which the kernel ignores", x, y, z, place)
        for dtype in (*BYTES, "int16", "int32", "int64"):
            x = tensor(*IMAGE, dtype=dtype, scale=0)
            yield binary(op, f"{dtype} of no scale", x, x.shaped(5, 1, 1), opsets=EVERY_OPSET)
        half = tensor(*IMAGE, dtype="float16")
        yield binary(op, "float16", half, half.shaped(7, 1), opsets=EVERY_OPSET)
        yield net(op, "bfloat16", bfloat16(op), dtype="bfloat16", opsets=EVERY_OPSET)
    infinite = {"x0": np.array([np.inf, -np.inf, 0.0, 2], np.float32), "x1": np.array([1, 1, -0.0, np.inf], np.float32)}
    yield binary("MINIMUM", "float32 of infinity", tensor(4), tensor(4), given=infinite)


def bfloat16(op: str) -> Callable[[Net], None]:
    """From and to float32, for nothing hands such numbers to ONNX Runtime."""

    def draw(model: Net) -> None:
        narrow = tensor(*IMAGE, dtype="bfloat16")
        x, y = (model.call("CAST", [tensor(*IMAGE)], narrow) for _ in range(2))
        model.output(model.call("CAST", [model.call(op, [x, y], narrow)], tensor(*IMAGE)))

    return draw


# --- one operand ------------------------------------------------------------------------------


def magnitudes() -> Iterator[Case]:
    for dtype in ("float32", "int8", "int16"):
        x = tensor(*IMAGE, dtype=dtype)
        point = 0 if dtype == "int16" else -37
        for place in BOTH:
            yield unary("ABS", dtype, x, place=place, opsets=opsets(dtype, place))
            if dtype != "float32":
                yield unary("ABS", f"{dtype} to another scale", x, x.scaled(0.7, point), place)
    for dtype in ("int16", "int32"):
        given = {"x0": np.array([0, 1, -1, 32767, -32767], dtype)}
        yield unary("ABS", f"{dtype} of no scale", tensor(5, dtype=dtype, scale=0), given=given, opsets=EVERY_OPSET)
    yield unary("ABS", "uint8", tensor(*IMAGE, dtype="uint8"), kernel_refuses="UINT8 is unsupported by op Abs")


def exponentials() -> Iterator[Case]:
    for place in BOTH:
        yield unary("EXP", "float32", tensor(*IMAGE), place=place, span=(-9.0, 3.0), opsets=opsets(place=place))
        x = tensor(*IMAGE, dtype="int8", scale=0.021, zero_point=17)
        yield unary("EXP", "int8", x, replace(x, scale=0.05, zero_point=-100), place, opsets=opsets(place=place))
        x = tensor(*IMAGE, dtype="int16")
        yield unary("EXP", "int16", x, x, place, opsets=(None, 26))
    x = tensor(None, None, 3, dtype="int16")
    given = [{"x0": drawn(n, 5, 3, dtype="int16")} for n in (1, 4)]
    yield unary("EXP", "int16 of unknown size", x, x, given=given)
    yield unary("EXP", "int16 of rank 0", x.shaped(), x.shaped())
    yield unary("EXP", "int16 of nothing", x.shaped(0, 3), x.shaped(0, 3))
    x = x.shaped(*IMAGE)
    yield unary("EXP", "int16 of small numbers", x, x.scaled(0.3), given={"x0": numbered("int16", -3000, 3000, *IMAGE)})
    ends = {"x0": np.array([-np.inf, -200, -0.0, 1e-6, 88, 89, np.inf, np.nan], np.float32)}
    yield unary("EXP", "float32 edges", tensor(8), given=ends)


def logarithms() -> Iterator[Case]:
    """Integers that stand for 0 or less give the dtype's lowest, whatever it stands for."""
    for place in BOTH:
        yield unary("LOG", "float32", tensor(*IMAGE), place=place, span=(0.01, 9.0), opsets=opsets(place=place))
        for dtype, made in (("int8", (0.021, 17)), ("int16", (0.0002, 0))):
            x = tensor(*IMAGE, dtype=dtype)
            yield unary(
                "LOG", dtype, x, replace(x, scale=made[0], zero_point=made[1]), place, opsets=opsets(dtype, place)
            )
    x = tensor(256, dtype="int8", scale=0.01, zero_point=100)
    given = {"x0": np.arange(-128, 128).astype(np.int8)}
    yield unary("LOG", "int8, mostly of negative numbers", x, replace(x, scale=0.05, zero_point=-3), given=given)
    yield unary("LOG", "int8, coarse results", x, replace(x, scale=7.0, zero_point=0), given=given)
    x = tensor(256, dtype="int16", scale=1e-3)
    given = {"x0": np.arange(-100, 156, dtype=np.int16)}
    yield unary("LOG", "int16 near zero, where the kernel's table is coarse", x, replace(x, scale=3e-4), given=given)
    ends = {"x0": np.array([0, -0.0, 1e-30, 1, np.inf, -1, np.nan], np.float32)}
    yield unary("LOG", "float32 edges", tensor(7), given=ends)
    yield unary("LOG", "uint8", tensor(7, dtype="uint8"), kernel_refuses="UINT8 is unsupported by op Log")


def roots() -> Iterator[Case]:
    """The kernels refuse to take the root of negative integers, so the operands are at or above their zero point."""
    least = {"int8": -128, "int16": 0}
    for op, ratio in (("SQRT", 0.6), ("RSQRT", 0.25)):
        for place in BOTH:
            yield unary(op, "float32", tensor(*IMAGE), place=place, span=(0.01, 4.0), opsets=opsets(place=place))
        ends = {"x0": np.array([0, -0.0, 1e-30, 4, np.inf, -1, np.nan], np.float32)}
        yield unary(op, "float32 edges", tensor(7), given=ends)
        for dtype in ("int8", "int16"):
            x = tensor(*IMAGE, dtype=dtype, zero_point=least[dtype])
            for factor in (1.0, 0.37, 1 / ratio):
                shift = 20 if dtype == "int8" and factor < 1 / ratio else 0
                y = x.scaled(ratio * factor, least[dtype] + shift)
                for place in BOTH:
                    given = positive(x.shaped(2, 5, 7, 5) if place is between_convolutions else x)
                    exact = CUT if op == "SQRT" else {}
                    name = f"{dtype}, output scale {factor:g}"
                    yield unary(op, name, x, y, place, opsets=opsets(dtype, place), given=given, **exact)
        yield unary(op, "uint8", tensor(*IMAGE, dtype="uint8"), kernel_refuses="UINT8 is unsupported by op")
    x = tensor(256, dtype="int16", scale=1e-3, zero_point=0)
    near = {"x0": np.arange(256, dtype=np.int16)}
    yield unary("RSQRT", "int16 near zero, where the kernel's table is coarse", x, replace(x, scale=2e-3), given=near)


CUT = {"tolerance": Tolerance(steps=0), "why": "the kernel cuts off where others round, half a step on average"}


def positive(x: Spec) -> list[dict[str, Array]]:
    low, high = (-128, 127) if x.dtype == "int8" else (0, 32767)
    shape = tuple(size or 1 for size in x.shape)
    return [{"x0": numbered(x.dtype, low, high, *shape, seed=seed)} for seed in "abc"]
