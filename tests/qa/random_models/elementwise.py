"""Random elementwise operators of one and two operands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Spec, in_bfloat16
from tests.qa.random_models.draw import FUSED, QUANTIZED, Draw, case_generator, operator, scale, weight_operand

ARITHMETIC = ("ADD", "SUB", "MUL", "DIV")


@case_generator(*ARITHMETIC, "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")
def binary(draw: Draw, op: str) -> Case:
    dtype = draw.dtype(op, "complex64")
    shape = draw.shape()
    x, y = (draw.spec(operand_shape, dtype) for operand_shape in (shape, draw.broadcast(shape)))
    z = draw.spec(shape, dtype)
    if op in ("MAXIMUM", "MINIMUM"):
        y, z = replace(y, scale=x.scale, zero_point=x.zero_point), x
    if op == "MUL" and dtype == "int16":  # a smaller scale would overflow the kernel's 32 bits
        z = replace(z, scale=scale(x) * scale(y) * 10 ** draw.random.uniform(0, 3))
    has_specials = op not in ("DIV", "SQUARED_DIFFERENCE") or dtype == "float32"
    a, b = (draw.data(spec, specials=has_specials) for spec in (x, y))
    if op == "DIV" and dtype != "float32":
        zero_point = 0 if y.scale is None else int(np.asarray(y.zero_point))
        if y.scale is not None:
            # The kernels shift by more than 31 bits for quotients of less than 0.3 steps (reference/div.h).
            near_zero = np.clip(zero_point + b.array.astype(int) % 9 - 4, np.iinfo(dtype).min, np.iinfo(dtype).max)
            b = replace(b, array=near_zero.astype(dtype))
            z = replace(z, scale=scale(x) / scale(y) * float(draw.random.uniform(0.05, 0.8)))
        b = replace(
            b,
            array=np.where(
                b.array == zero_point, np.asarray(zero_point + (1 if zero_point <= 0 else -1), dtype), b.array
            ),
        )
    if op in ("ADD", "MUL", "MAXIMUM", "MINIMUM", "SUB") and draw.chance(0.3):
        a, b = b, a
    options = {"fused_activation_function": draw.pick(*FUSED)} if op in ARITHMETIC and dtype != "float16" else {}
    in_isolation = op == "DIV" and dtype != "float32"  # after a convolution, a divisor could be 0
    return operator(draw, op, [a, b], z.with_shape(*shape), in_isolation=in_isolation, **options)


@case_generator("FLOOR_DIV", "FLOOR_MOD", "POW", "ATAN2")
def binary_unquantized(draw: Draw, op: str) -> Case:
    dtype = draw.dtype(op)
    shape = draw.shape()
    y_shape = shape if op == "ATAN2" else draw.broadcast(shape)
    x, y = draw.data(Spec(shape, dtype), specials=op != "POW"), draw.data(Spec(y_shape, dtype))
    if op == "POW":
        y = replace(y, array=np.abs(y.array) % 4)
        x = replace(x, array=x.array if dtype == "float32" else x.array % 50 - 20)
    if op.startswith("FLOOR"):
        y = replace(y, array=np.where(y.array == 0, np.asarray(3, dtype), y.array))
    return operator(draw, op, [x, y], Spec(shape, dtype), same_shape=op == "ATAN2")


REQUIRED_PARAMETERS: dict[str, dict[str, tuple[float, int]]] = {
    "TANH": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)},
    "LOGISTIC": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
}
"""Quantization parameters that the kernels require of results."""

UNARY = (
    "ABS", "NEG", "CEIL", "FLOOR", "ROUND", "SIN", "COS", "SQUARE", "ELU", "SIGN", "EXP", "LOG", "SQRT", "RSQRT",
    "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "LEAKY_RELU", "TANH", "LOGISTIC", "HARD_SWISH", "GELU",
    "ZEROS_LIKE", "LOGICAL_NOT", "REAL", "IMAG", "COMPLEX_ABS",
)  # fmt: skip


@case_generator(*UNARY)
def unary_operator(draw: Draw, op: str) -> Case:
    if op in ("CEIL", "FLOOR", "ROUND", "NEG", "TANH", "LOGISTIC") and draw.chance(0.1):
        x = Spec(draw.shape(1))
        return replace(in_bfloat16(op, [x], x), input_arrays={"x0": draw.random_array(x)}, opsets=(None,), runs=1)
    dtype = draw.dtype(op)
    x = draw.data(draw.spec(draw.shape(), dtype), specials=op not in ("SIN", "COS"), constant_probability=0)
    y = draw.spec(x.spec.shape, dtype)  # type: ignore[arg-type]
    if dtype in REQUIRED_PARAMETERS.get(op, {}):
        required = REQUIRED_PARAMETERS[op][dtype]
        y = replace(y, scale=required[0], zero_point=required[1])
    if op == "NEG":
        y = x.spec
    if (
        op in ("SQRT", "RSQRT", "LOG") and dtype in QUANTIZED
    ):  # the kernels refuse negative values, or their results are undefined
        low = int(np.asarray(x.spec.zero_point)) + (1 if op == "LOG" else 0)
        x = replace(x, array=np.maximum(x.array, min(low, np.iinfo(dtype).max)).astype(dtype))
    if dtype == "complex64":
        y = Spec(x.spec.shape, "float32")
    options: dict[str, Any] = {"alpha": float(draw.random.uniform(-1, 2))} if op == "LEAKY_RELU" else {}
    if op == "GELU":
        options = {"approximate": draw.chance(0.5)}
    return operator(draw, op, [x], y, **options)


@case_generator("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
def compare(draw: Draw, op: str) -> Case:
    dtype = draw.dtype(op)
    shape = draw.shape()
    x, y = (
        draw.data(draw.spec(operand_shape, dtype), specials=True) for operand_shape in (shape, draw.broadcast(shape))
    )
    if draw.chance(0.4) and y.array.size:  # some equal elements
        y = replace(y, array=np.resize(x.array.reshape(-1) if x.array.size else y.array, y.array.shape))
        y = replace(y, spec=replace(y.spec, scale=x.spec.scale, zero_point=x.spec.zero_point))
    return operator(draw, op, [x, y], Spec(shape, "bool"))


@case_generator("LOGICAL_AND", "LOGICAL_OR", "BITWISE_XOR", "RIGHT_SHIFT")
def bitwise(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(draw.shape(), draw.dtype(op)))
    y = draw.data(Spec(draw.broadcast(x.array.shape), x.spec.dtype))
    if op == "RIGHT_SHIFT":  # a shift by the bit width or more is undefined in C
        bits = np.iinfo(y.spec.dtype).bits
        y = replace(y, array=(np.abs(y.array.astype(np.int64)) % bits).astype(y.spec.dtype))
    return operator(draw, op, [x, y], x.spec)


@case_generator("STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", "STABLEHLO_AND")
def same_shape_binary(draw: Draw, op: str) -> Case:
    dtype = draw.dtype(op)
    shape = draw.shape()
    x, y, z = (draw.spec(shape, dtype) if draw.chance(0.3) else Spec(shape, dtype) for _ in range(3))
    return operator(draw, op, [draw.data(x, specials=True), draw.data(y)], z, same_shape=True)


@case_generator("STABLEHLO_SHIFT_LEFT")
def shift(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(draw.shape(), draw.dtype(op)))
    amounts = draw.random.integers(0, np.iinfo(x.spec.dtype).bits, x.array.shape).astype(x.spec.dtype)
    return operator(draw, op, [x, replace(x, array=amounts)], x.spec, same_shape=True)


@case_generator("ADD_N")
def add_several(draw: Draw, op: str) -> Case:
    x = Spec(draw.shape(), draw.dtype(op))
    return operator(draw, op, [draw.data(x) for _ in range(draw.between(1, 5))], x, same_shape=True)


@case_generator("PRELU")
def prelu(draw: Draw, op: str) -> Case:
    dtype = draw.dtype(op)
    x = draw.data(draw.spec(draw.shape(1), dtype), constant_probability=0)
    slopes = draw.data(
        draw.spec(draw.broadcast(x.array.shape), "int8" if dtype == "int16" else dtype), constant_probability=0.8
    )
    if draw.chance(0.3) and slopes.array.size:
        slopes = replace(slopes, array=np.full_like(slopes.array, slopes.array.reshape(-1)[0]))
    return operator(draw, op, [x, slopes], draw.spec(x.array.shape, dtype))


@case_generator("SELECT", "SELECT_V2")
def select_values(draw: Draw, op: str) -> Case:
    dtype = draw.pick(draw.dtype(op), "complex64") if draw.chance(0.1) else draw.dtype(op)
    x = draw.spec(draw.shape(), dtype)
    shape = tuple(size or 0 for size in x.shape)
    if op == "SELECT":
        condition = shape[:1] if draw.chance(0.3) and shape else () if draw.chance(0.15) else shape
        a, b = x, x
    else:
        condition, a, b = (draw.broadcast(shape) for _ in range(3))
        result_shape = np.broadcast_shapes(condition, a, b)
        a, b, shape = x.with_shape(*a), x.with_shape(*b), result_shape
    operands = [draw.data(Spec(condition, "bool")), draw.data(a, specials=True), draw.data(b)]
    return operator(draw, op, operands, x.with_shape(*shape), same_shape=op == "SELECT")


@case_generator("CAST")
def cast(draw: Draw, op: str) -> Case:
    dtypes = ("float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool")
    before, after = draw.pick(*dtypes, "complex64"), draw.pick(*dtypes, "complex64")
    x = draw.data(draw.spec(draw.shape(), before) if draw.chance(0.3) else Spec(draw.shape(), before), specials=True)
    if "float" in before and "int" in after:
        x = replace(x, array=(x.array * 10 ** draw.random.uniform(0, 4)).astype(before))
    y = draw.spec(x.array.shape, after) if draw.chance(0.3) else Spec(x.array.shape, after)
    if "float" in before and after[0] == "u":
        x = replace(x, array=np.abs(x.array))  # the cast of a negative number is undefined in C
    return operator(draw, op, [x], y)


@case_generator("QUANTIZE")
def quantize(draw: Draw, op: str) -> Case:
    before, after = draw.pick("float32", *QUANTIZED), draw.pick(*QUANTIZED)
    # Beyond 32 bits, the kernel's conversion to int16 is undefined in C.
    x = draw.data(draw.spec(draw.shape(), before), specials=after != "int16", constant_probability=0)
    return operator(draw, op, [x], draw.spec(x.array.shape, after))


@case_generator("DEQUANTIZE")
def dequantize(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(), draw.pick(*QUANTIZED, "float16")), constant_probability=0.2)
    if x.spec.dtype in ("int8", "uint8") and len(x.array.shape) > 1 and draw.chance(0.3):
        axis = draw.between(0, x.array.ndim - 1)
        scales = draw.random.uniform(0.01, 0.3, x.array.shape[axis]).astype(np.float32).tolist()
        if scales:
            zero_points = [0] * len(scales)
            x = weight_operand(replace(x.spec, scale=scales, zero_point=zero_points, axis=axis, value=x.array))
    return operator(draw, op, [x], Spec(x.array.shape))


@case_generator("FAKE_QUANT")
def fake_quantize(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(draw.shape()), specials=True, constant_probability=0)
    low, high = -float(draw.random.uniform(0, 6)), float(draw.random.uniform(0.1, 6))
    low = 0.0 if draw.chance(0.2) else low
    return operator(draw, op, [x], x.spec, min=low, max=high, num_bits=draw.between(2, 16))


@case_generator("BUCKETIZE")
def bucketize(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(draw.shape(), draw.dtype(op)), specials=True, constant_probability=0)
    boundaries = sorted(draw.random.normal(0, 4, draw.between(1, 6)).round(1).tolist())
    return operator(draw, op, [x], Spec(x.array.shape, "int32"), boundaries=boundaries)
