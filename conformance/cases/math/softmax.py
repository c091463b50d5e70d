"""SOFTMAX and LOG_SOFTMAX in every layout, with beta and fixed output ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Placement,
    Spec,
    between_convolutions,
    in_isolation,
    random_array,
    tensor,
    unary,
)


def cases() -> Iterator[Case]:
    yield from softmax_cases()
    yield from log_softmax_cases()
    yield from unit_axis_cases()
    for op in ("SOFTMAX", "LOG_SOFTMAX"):
        for dtype in ("int8", "uint8"):
            yield dynamic_size_case(op, dtype)


IMAGE = (2, 5, 7, 3)
SOFTMAX_OUTPUT = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
LOG_SOFTMAX_OUTPUT = {"int8": (1 / 16, 127), "uint8": (1 / 16, 255)}


def softmax_cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16"):
        x = tensor(*IMAGE, dtype=dtype)
        opsets = EVERY_OPSET if dtype != "int16" else (None, 26)
        for place in PLACEMENTS:
            yield unary("SOFTMAX", dtype, x, required_output(x), place, options={"beta": 1.0}, opsets=opsets)
            yield unary("SOFTMAX", f"{dtype}, beta 0.3", x, required_output(x), place, options={"beta": 0.3})
        for shape in ((11,), (3, 11), (2, 3, 11)):
            y = x.with_shape(*shape)
            yield unary("SOFTMAX", f"{dtype} of rank {len(shape)}", y, required_output(y), options={"beta": 1.0})
    for beta in (1.0, 0.3):
        yield unary("SOFTMAX", f"float16, beta {beta}", tensor(*IMAGE, dtype="float16"), options={"beta": beta})
    yield unary(
        "SOFTMAX", "beta 2.5 on large numbers", tensor(*IMAGE), options={"beta": 2.5}, input_range=(-80.0, 80.0)
    )
    yield from int16_softmax_cases()
    image = tensor(1, 17, 23, 64)
    yield unary("SOFTMAX", "many channels", image, place=between_convolutions, options={"beta": 1.0})
    x = tensor(*IMAGE, dtype="int8")
    yield unary("SOFTMAX", "int8 to int16", x, Spec(IMAGE, "int16", 1 / 65536, -32768), options={"beta": 1.0})
    yield unary(
        "SOFTMAX", "int8 to a different scale", x, x, options={"beta": 1.0}, kernel_refusal="output->params.zero_point"
    )


def dynamic_size_case(op: str, dtype: str) -> Case:
    """Return a case whose axis has a dynamic size, including 1."""
    x = tensor(3, None, dtype=dtype)
    scale, zero_point = {"SOFTMAX": SOFTMAX_OUTPUT, "LOG_SOFTMAX": LOG_SOFTMAX_OUTPUT}[op][dtype]
    arrays = [{"x0": random_array(3, size, dtype=dtype)} for size in (5, 1, 11)]
    options = {"beta": 1.0} if op == "SOFTMAX" else None
    y = replace(x, scale=scale, zero_point=zero_point)
    return unary(op, f"{dtype}, dynamic axis", x, y, options=options, input_arrays=arrays, opsets=EVERY_OPSET)


def int16_softmax_cases() -> Iterator[Case]:
    """Yield cases with int16, for which the kernel uses tables.

    Dominant classes are next to tiny probabilities, and sums have every magnitude.
    """

    def int16_case(
        name: str, scale: float, *shape: int | None, place: Placement = in_isolation, **keywords: Any
    ) -> Case:
        x = tensor(*shape, dtype="int16", scale=scale)
        return unary("SOFTMAX", f"int16, {name}", x, required_output(x), place, options={"beta": 1.0}, **keywords)

    yield int16_case("101 classes, one dominant", 0.01, 7, 101)
    yield int16_case("1009 similar classes", 1e-6, 3, 1009)
    yield int16_case("a scale whose product wraps around", 7.0, 5, 11)
    rows = np.array([[32767, -32768], [-32768, 32767], [0, 0], [0, 1], [-1, -30000]], np.int16)
    yield int16_case("rows of two with a dominant value", 0.01, 5, 2, input_arrays={"x0": rows})
    yield int16_case("rows of one", 0.01, 5, 1)
    counts = np.arange(1, 70)[:, None]
    logits = np.where(np.arange(71) < counts, counts - 35, -30000).astype(np.int16)
    yield int16_case("sums on both sides of powers of two", 0.003, 69, 71, input_arrays={"x0": logits})
    for place in PLACEMENTS:
        yield int16_case("channels, one dominant", 0.02, 2, 5, 7, 13, place=place)
    arrays = [{"x0": random_array(n, 11, dtype="int16")} for n in (1, 4)]
    yield int16_case("dynamic shape", 0.001, None, 11, input_arrays=arrays)


def required_output(x: Spec) -> Spec:
    """Return the output spec that the kernel requires."""
    return Spec(x.shape, x.dtype, *SOFTMAX_OUTPUT[x.dtype]) if x.dtype in SOFTMAX_OUTPUT else x


def rank_cases(op: str, output_parameters: dict[str, tuple[float, int]]) -> Iterator[Case]:
    """Yield cases of every dtype and rank.

    Outputs have the quantization parameters that the kernel requires.
    """
    for dtype in ("float32", *output_parameters):
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            opsets = (None,) if place is between_convolutions else EVERY_OPSET
            yield unary(op, dtype, x, with_output_parameters(x, output_parameters), place, opsets=opsets)
        for shape in ((11,), (3, 11), (2, 3, 11), (2, 3, 5, 1), (2, 3, 1, 2, 5)):
            y = x.with_shape(*shape)
            yield unary(op, f"{dtype} of shape {shape}", y, with_output_parameters(y, output_parameters))
    x = tensor(*IMAGE, dtype="int8")
    yield unary(op, "int8 to a different scale", x, x, kernel_refusal="output->params.scale")
    runs = [{"x0": random_array(n, 7, seed=op)} for n in (1, 4)]
    yield unary(op, "float32 of dynamic shape", tensor(None, 7), tensor(None, 7), input_arrays=runs, opsets=EVERY_OPSET)


def with_output_parameters(x: Spec, output_parameters: dict[str, tuple[float, int]]) -> Spec:
    return Spec(x.shape, x.dtype, *output_parameters[x.dtype]) if x.dtype in output_parameters else x


def log_softmax_cases() -> Iterator[Case]:
    yield from rank_cases("LOG_SOFTMAX", LOG_SOFTMAX_OUTPUT)
    yield unary("LOG_SOFTMAX", "large numbers", tensor(*IMAGE), input_range=(-300.0, 300.0))
    equal_logits = {"x0": np.full((3, 5), 1e4, np.float32)}
    yield unary("LOG_SOFTMAX", "equal large numbers", tensor(3, 5), input_arrays=equal_logits)


def unit_axis_cases() -> Iterator[Case]:
    """Yield cases with axes of size 1, where the result is 1."""
    for op in ("SOFTMAX", "LOG_SOFTMAX"):
        for dtype in ("float32", "int8", "uint8", "int16") if op == "SOFTMAX" else ("float32", "int8", "uint8"):
            x = tensor(2, 5, 7, 1, dtype=dtype)
            scale, zero_point = {
                **SOFTMAX_OUTPUT,
                **({} if op == "SOFTMAX" else LOG_SOFTMAX_OUTPUT),
            }.get(dtype, (None, 0))
            for place in PLACEMENTS:
                options = {"beta": 1.0} if op == "SOFTMAX" else None
                yield unary(
                    op,
                    f"{dtype} of one element",
                    x,
                    replace(x, scale=scale, zero_point=zero_point),
                    place,
                    options=options,
                )
