"""Single operators of the math family, drawn: shapes with sizes 0 and 1, options, dtypes, parameters at a dtype's ends.

``python tests/test_math_drawn.py 2000`` tries more than the few that the test does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Spec, alone, constant
from conformance.runner import mismatches
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRTError

Draw = np.random.Generator
FEW = 80
SIZES = (2, 3, 5, 7, 1, 0)
BYTES = ("int8", "uint8")


def shape(draw: Draw, least: int = 0) -> tuple[int, ...]:
    """Distinct primes, now and then 1 or 0."""
    rank = int(draw.integers(least, 5))
    sizes = list(draw.permutation(SIZES[:4]))[:rank]
    return tuple(int(draw.choice([0, 1])) if draw.random() < 0.15 else int(size) for size in sizes)


def broadcast(draw: Draw, whole: tuple[int, ...]) -> tuple[int, ...]:
    kept = whole[int(draw.integers(0, len(whole) + 1)) :]
    return tuple(1 if draw.random() < 0.3 else size for size in kept)


def quantized(draw: Draw, sizes: tuple[int, ...], dtype: str) -> Spec:
    """Zero points at the ends of the dtype as well."""
    if dtype not in ("int8", "uint8", "int16"):
        return Spec(sizes, dtype)
    limits = np.iinfo(dtype)
    points = [0] if dtype == "int16" else [limits.min, limits.max, (limits.min + limits.max) // 2 + 7]
    return Spec(sizes, dtype, float(np.float32(10 ** draw.uniform(-3, -0.5))), int(draw.choice(points)))


def numbers(draw: Draw, spec: Spec, ends: bool = True) -> Array:
    if spec.dtype == "bool":
        return draw.integers(0, 2, spec.shape).astype(bool)
    if "float" in spec.dtype:
        return np.asarray(draw.normal(0, 3, spec.shape).astype(spec.dtype))
    limits = np.iinfo(spec.dtype)
    low, high = (limits.min, limits.max) if limits.bits < 32 or (ends and draw.random() < 0.2) else (-100, 100)
    return np.asarray(draw.integers(max(low, limits.min), high, spec.shape, endpoint=True).astype(spec.dtype))


def fixed(spec: Spec, scale: float, point: int) -> Spec:
    return spec if spec.scale is None else replace(spec, scale=scale, zero_point=point)


def pick(draw: Draw, *choices: Any) -> Any:
    return choices[int(draw.integers(len(choices)))]


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


FAMILIES: tuple[Callable[[Draw], Case], ...] = (of_two, of_one, reduced, compared, along, bits)
HOST = Host(packs="builtin")


def trials(seed: int) -> Iterator[tuple[Case, list[str]]]:
    """Cases that LiteRT runs, each with what is wrong with its conversion."""
    draw = np.random.default_rng(seed)
    while True:
        case = replace(pick(draw, *FAMILIES)(draw), runs=1)
        try:
            yield case, mismatches(case, HOST)
        except LiteRTError:
            continue
        except ConversionError as error:
            yield case, [f"refused: {error}"]


def told(case: Case, wrong: list[str]) -> str:
    inputs = {name: (array.dtype.name, array.shape) for name, array in dict(case.given or {}).items()}  # type: ignore[arg-type]
    return f"{case.op} {inputs}: {'; '.join(wrong)}"


def test_drawn_operators_give_the_kernels_numbers() -> None:
    wrong = [told(case, found) for case, found in islice(trials(1), FEW) if found]
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    for number, (case, found) in enumerate(islice(trials(int(sys.argv[2])), int(sys.argv[1]))):
        if found:
            print(number, told(case, found), flush=True)
