"""Elementwise operators: broadcasting in every order, scales that differ, activations fused and alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import BOTH, Spec, alone, between_convolutions, binary, constant, drawn, filled, tensor, unary

IMAGE = (2, 5, 7, 3)
QUANTIZED = ("int8", "uint8", "int16")
REAL = ("float32", *QUANTIZED)
FUSED = ("RELU", "RELU6", "RELU_N1_TO_1")
WIDE = (-10.0, 10.0)  # both sides of every activation's bounds


def cases() -> Iterator[Case]:
    for op in ("ADD", "SUB", "MUL"):
        yield from arithmetic(op)
    yield from multiplied()
    yield from bare()
    yield from powers_of_two()
    yield from broadcast()
    yield from maximum()
    yield from negated()
    yield from floored()
    yield from activations()
    yield from ranges()


def operands(op: str, dtype: str) -> tuple[Spec, Spec, Spec]:
    """Three tensors of which no two have the same parameters."""
    x = tensor(*IMAGE, dtype=dtype)
    shift = 0 if dtype == "int16" else 11
    y = x.scaled(0.6, int(np.asarray(x.zero_point)) + shift)
    widest = {"ADD": 1.5, "SUB": 1.5, "MUL": 3.0}[op] * (30 if dtype == "int16" and op == "MUL" else 1)
    return x, y, x.scaled(widest, int(np.asarray(x.zero_point)) - shift)


def arithmetic(op: str) -> Iterator[Case]:
    for dtype in REAL:
        x, y, z = operands(op, dtype)
        for place in BOTH:
            yield binary(op, dtype, x, y, z, place, opsets=EVERY_OPSET if dtype != "int16" else (None, 26))
        for activation in (*FUSED, "TANH", "SIGN_BIT"):
            # The output's zero point is not at an end of its dtype: the activation cuts inside.
            out = z.scaled(0.7)
            place = BOTH[activation in FUSED]
            options = {"fused_activation_function": activation}
            name = f"{dtype} with {activation}" + ("" if activation in FUSED else ", which the kernel ignores")
            yield place(op, name, [x, y], out, options=options, span=(-3.0, 3.0))
    for dtype in ("int32", "int64"):
        yield binary(op, dtype, tensor(*IMAGE, dtype=dtype), tensor(7, 3, dtype=dtype))
        if dtype == "int32" or op != "SUB":
            options = {"fused_activation_function": "RELU6"}
            yield binary(
                op, f"{dtype} with RELU6", tensor(*IMAGE, dtype=dtype), tensor(7, 3, dtype=dtype), options=options
            )
    for dtype in ("int32", "float16"):
        image, row = tensor(*IMAGE, dtype=dtype), constant(drawn(7, 3, dtype=dtype))
        yield binary(op, f"{dtype} and a constant", image, row)
        yield binary(op, f"{dtype}, a constant first", row, image)
    limits = np.iinfo(np.int32)
    edge = {"x0": np.array([limits.max, limits.min, 46341, -5], np.int32), "x1": np.array([1, 1, 46341, 7], np.int32)}
    yield binary(op, "int32 that wraps around", tensor(4, dtype="int32"), tensor(4, dtype="int32"), given=edge)
    for dtype in ("float32", "int8", "uint8"):
        x, y, z = operands(op, dtype)
        for shape in ((3,), (7, 1)):
            part = filled(y.shaped(*shape), op)
            yield binary(op, f"{dtype} and a constant {shape}", x, part, z, between_convolutions)
            yield binary(op, f"{dtype}, a constant {shape} first", part, x, z, between_convolutions)
    x, _, z = operands(op, "int8")
    yield (
        alone(op, "int8 of one tensor with itself" + "", [x, x], z)
        if op != "SUB"
        else binary(op, "int8 from a scalar", constant(3, "int8", 0.1, 1), x, z)
    )


def multiplied() -> Iterator[Case]:
    """What only MUL takes."""
    for dtype in ("uint32", "complex64"):
        yield binary("MUL", dtype, tensor(*IMAGE, dtype=dtype), tensor(7, 3, dtype=dtype))
        yield binary(
            "MUL",
            f"{dtype} and a constant",
            constant(drawn(3, dtype="float32").astype(dtype)),
            tensor(5, 1, 3, dtype=dtype),
        )


def bare() -> Iterator[Case]:
    """int16 without a scale is plain integers, which wrap around; SUB's kernel crashes on it."""
    for op in ("ADD", "MUL"):
        x = tensor(4, 3, dtype="int16", scale=0)
        yield binary(op, "int16 without scale", x, x)
        yield binary(op, "int16 without scale, broadcast", x, x.shaped(3))


def powers_of_two() -> Iterator[Case]:
    """An option of the first int16 files; the arithmetic is the same up to one more rounding."""
    for op in ("ADD", "SUB"):
        y = tensor(*IMAGE, dtype="int16", scale=2.0**-11)
        yield binary(
            op, "int16 of scales that are powers of two", y.scaled(0.25), y, y, options={"pot_scale_int16": True}
        )


def broadcast() -> Iterator[Case]:
    """Lower ranks are aligned from the right in TFLite's axes; channels first, that is not where ONNX aligns them."""
    for dtype in ("float32", "int8", "uint8"):
        x, y, z = operands("ADD", dtype)
        for shape in ((), (1,), (7, 3), (5, 1, 1), (5, 1, 3), (2, 1, 1, 3), (1, 5, 7, 1)):
            yield binary(
                "ADD", f"{dtype} and a constant {shape}", x, filled(y.shaped(*shape), "b"), z, between_convolutions
            )
        for shape in ((3,), (5, 1, 3), (7, 1)):
            yield binary("ADD", f"{dtype} and an input {shape}", x, y.shaped(*shape), z, between_convolutions)
            yield binary("SUB", f"{dtype} from an input {shape}", y.shaped(*shape), x, z, between_convolutions)
        yield binary(
            "ADD", f"{dtype}, both broadcast", x.shaped(2, 1, 7, 3), y.shaped(1, 5, 7, 1), z, between_convolutions
        )
    for dtype in ("float32", "int32"):
        yield binary("MUL", f"{dtype} of rank 5 and 2", tensor(2, 3, 5, 1, 7, dtype=dtype), tensor(3, 1, dtype=dtype))
        yield binary("ADD", f"{dtype} of rank 0", tensor(dtype=dtype), tensor(dtype=dtype))
        yield binary("ADD", f"{dtype} and nothing", tensor(0, 3, dtype=dtype), tensor(3, dtype=dtype))
    yield binary(
        "ADD",
        "float32 of unknown batch",
        tensor(None, 5, 7, 3),
        filled(tensor(5, 1, 3)),
        tensor(None, 5, 7, 3),
        given=[{"x0": drawn(n, 5, 7, 3)} for n in (1, 3)],
    )


def maximum() -> Iterator[Case]:
    for dtype in REAL:
        x = tensor(*IMAGE, dtype=dtype)
        for place in BOTH:
            yield binary("MAXIMUM", dtype, x, x, x, place, opsets=EVERY_OPSET if dtype != "int16" else (None, 26))
        yield binary("MAXIMUM", f"{dtype} and a constant", x, filled(x.shaped(7, 1)), x, between_convolutions)
    for dtype in ("int8", "uint8"):
        x, y, z = operands("ADD", dtype)
        for place in BOTH:
            yield binary("MAXIMUM", f"{dtype} of different scales, which the kernel ignores", x, y, z, place)
            yield binary("MAXIMUM", f"{dtype} and a constant of another scale", x, filled(y.shaped(3)), z, place)
        yield binary(
            "MAXIMUM", f"{dtype} without scale", tensor(*IMAGE, dtype=dtype, scale=0), tensor(3, dtype=dtype, scale=0)
        )
    for dtype in ("int32", "int64"):
        yield binary("MAXIMUM", dtype, tensor(*IMAGE, dtype=dtype), tensor(5, 1, 1, dtype=dtype))


def negated() -> Iterator[Case]:
    for dtype in ("float32", "float16", "int8", "int16", "int32", "int64"):
        yield unary("NEG", dtype, tensor(*IMAGE, dtype=dtype), opsets=EVERY_OPSET if dtype != "int16" else (None, 26))
    yield unary("NEG", "float32", tensor(*IMAGE), place=between_convolutions)
    x = tensor(*IMAGE, dtype="int8")
    for place in BOTH:
        yield unary("NEG", "int8 with a zero point, which the kernel ignores", x, place=place)
        yield unary("NEG", "int8 of another scale, which the kernel ignores", x, x.scaled(3, 40), place=place)
    edge = {"x0": np.array([-128, 127, 0, -1], np.int8)}
    yield unary("NEG", "int8 whose least value stays", tensor(4, dtype="int8", zero_point=0), given=edge)
    yield unary("NEG", "uint8", tensor(*IMAGE, dtype="uint8"), kernel_refuses="Neg only currently supports")


def floored() -> Iterator[Case]:
    """Downwards, also below zero: not cut off, not rounded; signed zeros and infinities stay."""
    edges = np.array([-2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 0.999, 1.5, 2.5, -8388609.0, np.inf, -np.inf], np.float32)
    yield unary("FLOOR", "float32 at its edges", tensor(12), given={"x0": edges}, opsets=EVERY_OPSET)
    yield unary("FLOOR", "float32", tensor(2, 5, 7, 3), place=between_convolutions)
    yield unary("FLOOR", "float16", tensor(2, 5, 7, 3, dtype="float16"), span=(-9.0, 9.0), opsets=EVERY_OPSET)


def activations() -> Iterator[Case]:
    """Alone: with the same parameters a clamp of integers, with others a rescaling too."""
    for op in ("RELU", "RELU6"):
        for dtype in REAL:
            x = tensor(*IMAGE, dtype=dtype)
            for place in BOTH:
                yield unary(
                    op, dtype, x, place=place, span=WIDE, opsets=EVERY_OPSET if dtype != "int16" else (None, 26)
                )
            if dtype != "float32":
                scaled = x.scaled(0.5, 0 if dtype == "int16" else int(np.asarray(x.zero_point)) - 30)
                for place in BOTH:
                    yield unary(op, f"{dtype} to another scale", x, scaled, place)
        ends = tensor(*IMAGE, dtype="int8", scale=6 / 255, zero_point=-128)
        yield unary(
            op, "int8 whose range is the activation's", tensor(*IMAGE, dtype="int8"), ends, between_convolutions
        )


def ranges() -> Iterator[Case]:
    """LOGISTIC insists on its output's parameters; HARD_SWISH rescales."""
    fixed = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
    for dtype in REAL:
        x = tensor(*IMAGE, dtype=dtype)
        y = x if dtype == "float32" else tensor(*IMAGE, dtype=dtype, scale=fixed[dtype][0], zero_point=fixed[dtype][1])
        for place in BOTH:
            yield unary(
                "LOGISTIC", dtype, x, y, place, span=WIDE, opsets=EVERY_OPSET if dtype != "int16" else (None, 26)
            )
    half = tensor(*IMAGE, dtype="float16")
    for op in ("LOGISTIC", "RELU", "RELU6", "HARD_SWISH"):
        yield unary(op, "float16", half, span=WIDE)
    x = tensor(*IMAGE, dtype="int8")
    yield unary("LOGISTIC", "int8 to another scale, which only XNNPACK takes", x, x)
    for dtype in ("float32", "int8", "uint8"):
        x = tensor(*IMAGE, dtype=dtype)
        for place in BOTH:
            yield unary(
                "HARD_SWISH",
                dtype,
                x,
                x.scaled(0.55, None if dtype == "float32" else int(np.asarray(x.zero_point)) - 110),
                place,
                span=WIDE,
                opsets=EVERY_OPSET,
            )
    yield unary(
        "HARD_SWISH",
        "int16",
        tensor(*IMAGE, dtype="int16"),
        kernel_refuses="Only float32, uint8 and int8 are supported",
    )
