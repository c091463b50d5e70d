"""Single operators of the math family, drawn: shapes with sizes 0 and 1, options, dtypes, parameters at a dtype's ends.

``python tests/test_math_drawn.py 2000 7`` tries 2000, from seed 7, instead of the few that the test does.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from drawing import Draw, Family, broadcast, main, numbers, pick, quantized, shape, told, trials

from conformance.case import Case
from conformance.models import Spec, alone, constant

FEW = 80


def fixed(spec: Spec, scale: float, point: int) -> Spec:
    return spec if spec.scale is None else replace(spec, scale=scale, zero_point=point)


# --- families ---------------------------------------------------------------------------------


def of_two(draw: Draw) -> Case:
    op = pick(
        draw, "ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD", "POW"
    )
    dtypes = {
        "POW": ("float32", "int32"),
        "FLOOR_DIV": ("float32", "int32", "int16", "int8"),
        "FLOOR_MOD": ("float32", "int32", "int64", "int16", "int8"),
        "DIV": ("float32", "int32"),  # of uint8 the kernel shifts by more than 31 bits for some scales
    }
    dtype = pick(draw, *dtypes.get(op, ("float32", "int32", "int64", "int8", "uint8", "int16")))
    whole = shape(draw)
    bare = op.startswith("FLOOR")
    x, y = (quantized(draw, sizes, dtype) for sizes in (whole, broadcast(draw, whole)))
    if bare:
        x, y = (replace(spec, scale=None) for spec in (x, y))
    if op in ("MAXIMUM", "MINIMUM"):
        y = replace(y, scale=x.scale, zero_point=x.zero_point)
    z = x if op in ("MAXIMUM", "MINIMUM") or bare else quantized(draw, whole, dtype)
    if op == "MUL" and dtype == "int16":  # larger products than the result's steps leave the kernel's 32 bits
        z = replace(z, scale=float(np.asarray(x.scale)) * float(np.asarray(y.scale)))
    given = {"x0": numbers(draw, x), "x1": numbers(draw, y)}
    if op in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        point = 0 if y.scale is None else int(np.asarray(y.zero_point))
        given["x1"] = np.where(given["x1"] == point, np.asarray(point + (1 if point <= 0 else -1), dtype), given["x1"])
    if op == "POW":
        given["x1"] = np.abs(given["x1"]) % 4
    if draw.random() < 0.3:
        y = replace(y, value=given.pop("x1"))
    options: dict[str, Any] = {}
    if op in ("ADD", "SUB", "MUL", "DIV"):
        options["fused_activation_function"] = pick(draw, "NONE", "RELU", "RELU6", "RELU_N1_TO_1")
    return alone(op, "drawn", [x, y], replace(z, shape=whole), options=options or None, given=given)


def of_one(draw: Draw) -> Case:
    floats, short = ("float32",), ("float32", "int8", "int16")
    op, dtypes = pick(
        draw,
        ("ABS", ("float32", "int8", "int16", "int32")),
        ("NEG", ("float32", "int8", "int16", "int32", "int64")),
        *((name, floats) for name in ("CEIL", "FLOOR", "ROUND", "SIN", "COS", "SQUARE", "ELU", "SIGN")),
        ("SIGN", ("int32",)),
        ("EXP", short),
        *(
            (name, ("float32", "int8", "uint8", "int16"))
            for name in ("RELU", "RELU6", "LEAKY_RELU", "TANH", "LOGISTIC")
        ),
        ("HARD_SWISH", ("float32", "int8", "uint8")),
    )
    dtype = pick(draw, *dtypes)
    x = quantized(draw, shape(draw), dtype)
    y = quantized(draw, x.shape, dtype)  # type: ignore[arg-type]
    if op == "TANH":
        y = fixed(y, *{"int8": (1 / 128, 0), "uint8": (1 / 128, 128)}.get(dtype, (1 / 32768, 0)))
    if op == "LOGISTIC":
        y = fixed(y, *{"int8": (1 / 256, -128), "uint8": (1 / 256, 0)}.get(dtype, (1 / 32768, 0)))
    if op == "NEG":
        y = x
    options = {"alpha": float(draw.uniform(-1, 2))} if op == "LEAKY_RELU" else None
    return alone(op, "drawn", [x], replace(y, shape=x.shape), options=options, given={"x0": numbers(draw, x)})


def reduced(draw: Draw) -> Case:
    op, dtypes = pick(
        draw,
        ("SUM", ("float32", "int32", "int64", "int8", "uint8", "int16")),
        ("MEAN", ("float32", "int32", "int64", "int8", "uint8", "int16")),
        ("REDUCE_PROD", ("float32", "int32", "int64", "int8", "int16")),
        ("REDUCE_MAX", ("float32", "int32", "int64", "int8", "uint8", "int16", "bool")),
        ("REDUCE_MIN", ("float32", "int32", "int64", "int8", "uint8", "int16", "bool")),
        ("REDUCE_ANY", ("bool",)),
        ("REDUCE_ALL", ("bool",)),
    )
    dtype = pick(draw, *dtypes)
    x = quantized(draw, shape(draw, 1), dtype)
    rank = len(x.shape)
    over = [int(axis) for axis in draw.choice(rank, int(draw.integers(0, rank + 1)), replace=False)]
    keep = bool(draw.integers(2))
    sizes = tuple(1 if k in over else size for k, size in enumerate(x.shape) if keep or k not in over)
    same = op in ("REDUCE_MAX", "REDUCE_MIN") or not over
    y = replace(x if same else quantized(draw, (), dtype), shape=sizes)
    held = [axis - rank if draw.random() < 0.3 else axis for axis in over]
    operands = [x, constant(np.asarray(held, np.int32))]
    given = {"x0": numbers(draw, x, ends=op not in ("SUM", "MEAN") or dtype != "int64")}
    return alone(op, "drawn", operands, y, options={"keep_dims": keep}, given=given)


def compared(draw: Draw) -> Case:
    op = pick(draw, "EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
    dtype = pick(draw, "float32", "int32", "int64", "int8", "uint8")
    whole = shape(draw)
    x, y = (quantized(draw, sizes, dtype) for sizes in (whole, broadcast(draw, whole)))
    given = {"x0": numbers(draw, x), "x1": numbers(draw, y)}
    return alone(op, "drawn", [x, y], Spec(whole, "bool"), given=given)


def along(draw: Draw) -> Case:
    op = pick(draw, "ARG_MAX", "ARG_MIN", "CUMSUM", "SOFTMAX", "LOG_SOFTMAX")
    if op == "CUMSUM":
        x = Spec(shape(draw, 1), pick(draw, "float32", "int32", "int64"))
        axis = int(draw.integers(-len(x.shape), len(x.shape)))
        options: dict[str, Any] = {"exclusive": bool(draw.integers(2)), "reverse": bool(draw.integers(2))}
        return alone(op, "drawn", [x, constant(axis)], x, options=options, given={"x0": numbers(draw, x)})
    if op.startswith("ARG"):
        x = quantized(draw, shape(draw, 1), pick(draw, "float32", "int32", "int8", "uint8", "bool"))
        axis = int(draw.integers(-len(x.shape), len(x.shape)))
        output = pick(draw, "int32", "int64")
        sizes = tuple(size for k, size in enumerate(x.shape) if k != axis % len(x.shape))
        given = {"x0": numbers(draw, x)}
        options = {"output_type": output.upper()}
        return alone(op, "drawn", [x, constant(axis)], Spec(sizes, output), options=options, given=given)
    dtype = pick(draw, "float32", "int8", "uint8")
    x = quantized(draw, tuple(size or 4 for size in shape(draw, 1)), dtype)  # LiteRT crashes on no elements
    parameters = {
        "SOFTMAX": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0)},
        "LOG_SOFTMAX": {"int8": (1 / 16, 127), "uint8": (1 / 16, 255)},
    }
    y = fixed(x, *parameters[op].get(dtype, (1.0, 0)))
    beta = {"beta": float(draw.uniform(0.3, 2))} if op == "SOFTMAX" else None
    return alone(op, "drawn", [x], y, options=beta, given={"x0": numbers(draw, x)})


def bits(draw: Draw) -> Case:
    op = pick(draw, "RIGHT_SHIFT", "BITWISE_XOR", "BITCAST")
    dtype = pick(draw, "int8", "uint8", "int16", "uint16", "int32", "uint32")
    x = Spec(shape(draw), dtype)
    if op == "BITCAST":
        y = replace(x, dtype=dtype[1:] if dtype[0] == "u" else f"u{dtype}")
        return alone(op, "drawn", [x], y, given={"x0": numbers(draw, x)})
    y = Spec(broadcast(draw, x.shape), dtype)  # type: ignore[arg-type]
    return alone(op, "drawn", [x, y], x, given={"x0": numbers(draw, x), "x1": numbers(draw, y)})


FAMILIES: tuple[Family, ...] = (of_two, of_one, reduced, compared, along, bits)


def test_drawn_operators_give_the_kernels_numbers() -> None:
    wrong = [told(case, found) for case, found in islice(trials(FAMILIES, 1), FEW) if found]
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    main(FAMILIES)
