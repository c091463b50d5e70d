"""LSTM steps and sequences: each optional part in isolation and combined, with states over several runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.cases.control.loops import loop_case
from conformance.lstms import BATCH, CELLS, INPUTS, SEQUENCE, STEP, TIME, Lstm
from conformance.models import Net, Spec, constant, net, random_array, tensor

OUTPUTS = 13


def lstm(name: str, case: dict[str, Any] | None = None, **fields: Any) -> Case:
    """Return a case of one operator; keywords that are no fields of ``Lstm`` are options."""
    layer_fields = {key: value for key, value in fields.items() if key in Lstm.__dataclass_fields__}
    options = tuple((key, value) for key, value in fields.items() if key not in layer_fields)
    return Lstm(**layer_fields, options=options).case(name, **(case or {}))


PARTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "whose cells are bounded": {"cell_clip": 0.31},
    "without an input gate": {"coupled": True},
    "with peepholes": {"peephole": True},
    "with peepholes and no input gate": {"peephole": True, "coupled": True},
    "that projects": {"outputs": OUTPUTS},
    "that projects without a bias": {"outputs": OUTPUTS, "biased": False},
    "whose projections are bounded": {"outputs": OUTPUTS, "proj_clip": 0.23},
    "that normalizes": {"norm": True},
    "that normalizes, without an input gate": {"norm": True, "coupled": True},
}


def cases() -> Iterator[Case]:
    for op in (SEQUENCE, STEP):
        yield from floats(op)
        yield from hybrid(op)
        yield from integer(op)
        yield from refusal_cases(op)
    yield from sequences()
    yield from basic()
    yield replace(loop_case("float32 in a loop", [tensor(BATCH, CELLS)], inside), op=STEP)


def floats(op: str) -> Iterator[Case]:
    for name, part in PARTS.items():
        opsets: dict[str, Any] = {"opsets": EVERY_OPSET} if name in ("plain", "whose cells are bounded") else {}
        yield lstm(f"float32 {name}", opsets, op=op, **part)
    everything: dict[str, Any] = {
        "norm": True,
        "peephole": True,
        "outputs": OUTPUTS,
        "cell_clip": 0.47,
        "proj_clip": 0.4,
    }
    yield lstm("float32 with everything", op=op, **everything)
    yield lstm("float32 of 20 operands", op=op, short=True)
    yield lstm("float32 whose result has no shape in the file", op=op, shapeless=True, cell_clip=1.1)
    yield lstm("float32 whose states have one axis", op=op, flat=True, cell_clip=1.1)
    for activation in ("RELU", "RELU_N1_TO_1", "RELU6", "SIGN_BIT"):
        yield lstm(f"float32 with {activation}", op=op, fused_activation_function=activation)
    yield lstm("float32 that begins with float16", op=op, begun="float16")
    for name in ("plain", "without an input gate", "that projects"):
        yield lstm(f"float32 on float16 constants {name}", op=op, halved=True, **PARTS[name])
    yield lstm("float32 that normalizes next to nothing", {"span": (-1e-4, 1e-4)}, op=op, norm=True)
    yield lstm("float32 over fifty runs", {"runs": 50}, op=op)
    yield lstm("float32 that projects over fifty runs", {"runs": 50}, op=op, outputs=OUTPUTS, reach=0.5)
    for dtype in ("float32", "int8"):
        for flat in (False, True):
            name = f"{dtype}, every run anew" + (", whose states have one axis" if flat else "")
            yield lstm(name, {"options": {"state": "reset"}}, op=op, dtype=dtype, weights=dtype, flat=flat)
    yield lstm("float32 bounded, every run anew", {"options": {"state": "reset"}}, op=op, cell_clip=10.0)
    yield lstm("float32 with weights that are graph inputs", op=op, given=True)
    yield lstm("float32 with bounded cells and weights that are graph inputs", op=op, given=True, cell_clip=0.7)


def hybrid(op: str) -> Iterator[Case]:
    for weights in ("int8", "uint8"):
        for name in ("plain", "whose cells are bounded", "without an input gate", "with peepholes", "that projects"):
            if weights == "uint8" and name == "with peepholes":
                continue
            yield lstm(f"float32 on {weights} {name}", op=op, weights=weights, **PARTS[name])
    yield lstm("float32 on int8 that normalizes", op=op, weights="int8", norm=True)
    for activation in ("RELU_N1_TO_1", "RELU6"):
        yield lstm(f"float32 on int8 with {activation}", op=op, weights="int8", fused_activation_function=activation)
    yield lstm("float32 on int8, quantized with zero points", op=op, weights="int8", asymmetric_quantize_inputs=True)


def integer(op: str) -> Iterator[Case]:
    for name, part in PARTS.items():
        yield lstm(f"int8 {name}", op=op, dtype="int8", weights="int8", **part)
    for scale in (-15, -14, -13, -11, -10, -9):
        yield lstm(f"int8 with cells of scale 2^{scale}", op=op, dtype="int8", weights="int8", cells_scale=2.0**scale)
    nearly = 2.0**-11 * 1.0005
    yield lstm("int8 with cells of nearly a power of two", op=op, dtype="int8", weights="int8", cells_scale=nearly)
    yield lstm("int8 whose output reads its state otherwise", op=op, dtype="int8", weights="int8", read=(0.0093, 11))
    yield lstm("int8 over fifty runs", {"runs": 50}, op=op, dtype="int8", weights="int8")
    yield lstm(
        "int8 that projects from another zero point",
        op=op,
        dtype="int8",
        weights="int8",
        outputs=OUTPUTS,
        hidden=(0.0073, 31),
    )
    yield lstm("int8 with everything", op=op, dtype="int8", weights="int8", norm=True, peephole=True, cell_clip=0.47)
    size = (BATCH, 53, INPUTS) if op == SEQUENCE else (BATCH, INPUTS)
    still = [{"x0": random_array(*size, dtype="int8")}, *[{"x0": np.full(size, -5, np.int8)}] * 4]
    holding: dict[str, Any] = {"holds": True, "time": 53, "cells_scale": 2**-9}
    given = {"given": still, "runs": 5}
    yield lstm("int8 that holds what it has", given, op=op, dtype="int8", weights="int8", **holding)
    yield lstm("int8 whose states have one axis", op=op, dtype="int8", weights="int8", flat=True)
    for batch in (1, BATCH):
        large: dict[str, Any] = {"batch": batch, "cells": 37, "dtype": "int8", "weights": "int8"}
        yield lstm(f"int8 of 37 cells, {batch} at once", op=op, **large)
        yield lstm(f"int8 of 37 cells with peepholes, {batch} at once", op=op, peephole=True, **large)
        beyond = {"open": 16.0, "reach": 0.4, **large}
        yield lstm(f"int8 whose sums leave 16 bits, {batch} at once", op=op, **beyond)
    yield lstm("int8 of one sequence", op=op, dtype="int8", weights="int8", batch=1)
    whole: dict[str, Any] = {"op": op, "dtype": "int8", "weights": "int8"}
    for activation in ("NONE", "RELU", "SIGN_BIT"):
        ignored = {**whole, "fused_activation_function": activation}
        yield lstm(f"int8 with {activation}, for which the kernel takes a tanh", **ignored)
    unquantized = {"options": {"quantization": "float"}}
    yield lstm("int8 with RELU, converted without quantization", unquantized, fused_activation_function="RELU", **whole)


def sequences() -> Iterator[Case]:
    for dtype, weights in (("float32", "float32"), ("float32", "int8"), ("int8", "int8")):
        for clip in (0.0, 0.31):
            name = f"{dtype} on {weights}, time first" + (", with bounded cells" if clip else "")
            yield lstm(name, dtype=dtype, weights=weights, major=True, cell_clip=clip)
        yield lstm(f"{dtype} on {weights} of one sequence", dtype=dtype, weights=weights, batch=1)
        yield lstm(f"{dtype} on {weights} of one time step", dtype=dtype, weights=weights, time=1)
    for weights in ("float32", "int8"):
        yield clip_case(4.0, weights)
        yield clip_case(6.5, weights)
        yield lstm(f"float32 on {weights}, cells bounded at 10", weights=weights, cell_clip=10.0)
    yield clip_case(6.5, shuts=1.0)
    yield lstm("float32, time first, cells bounded at 10", major=True, cell_clip=10.0)
    yield clip_case(6.5, time=3)
    yield lstm("float32 without an input gate, cells bounded at 10", coupled=True, cell_clip=10.0)
    yield lstm("float32 with peepholes, cells bounded at 10", peephole=True, cell_clip=10.0)
    for clip in (0.0, 0.31, 10.0):
        bounded = f", cells bounded at {clip:g}" if clip else ""
        lengths = {"x0": random_array(BATCH, TIME, INPUTS)}
        yield lstm(f"float32 of unknown length{bounded}", {"given": lengths}, time=None, cell_clip=clip)
        for dtype in ("float32", "int8"):
            yield net(SEQUENCE, f"{dtype}, two on end{bounded}", two_layers(dtype, clip), dtype=dtype, transposes=2)


def inside(body: GraphBuilder, values: Sequence[TensorRef]) -> Sequence[TensorRef]:
    """Build a loop whose body is one time step and whose carried values are the step's states."""
    model = Net()
    model.graph = body
    return [Lstm(op=STEP, inputs=CELLS, options=(("cell_clip", 0.9),)).call(model, values[0])]


def clip_case(clip: float, weights: str = "float32", shuts: float = 0.0, time: int = TIME) -> Case:
    """Return a case whose cells reach the bound within ten steps and then decrease."""
    up = np.full((BATCH, time, INPUTS), 2.0, np.float32)
    rising = -(-2 * TIME // time)
    runs = [{"x0": x} for x in (*[up] * rising, -up, -up, -up)]
    steps = "" if time == TIME else f" in steps of {time}"
    name = f"float32 on {weights}, cells bounded at {clip:g} that reach it" + (" unseen" if shuts else steps)
    more = {"given": runs, "runs": len(runs)}
    return lstm(name, more, weights=weights, open=7.0, cell_clip=clip, shuts=shuts, time=time)


def two_layers(dtype: str, clip: float) -> Callable[[Net], None]:
    """Return two consecutive layers, between which nothing must be transposed."""
    weights = "int8" if dtype == "int8" else "float32"

    def draw(model: Net) -> None:
        options = (("cell_clip", clip),)
        first = Lstm(dtype=dtype, weights=weights, options=options).call(model, name="first ")
        second = replace(Lstm(dtype=dtype, weights=weights, options=options), inputs=CELLS)
        model.output(second.call(model, first, "second "))

    return draw


# --- five operands ----------------------------------------------------------------------------


def basic() -> Iterator[Case]:
    for dtype in ("float32", "uint8"):
        for variable in (True, False):
            name = f"{dtype} of five operands, states " + ("kept" if variable else "handed in")
            yield net(STEP, name, five(dtype, variable), dtype=dtype)
        for activation in ("NONE", "RELU"):
            name = f"{dtype} of five operands with {activation}, for which the kernel takes a tanh"
            yield net(STEP, name, five(dtype, True, activation=activation), dtype=dtype)
    yield net(STEP, "float32 of five operands, all four results", five("float32", True, wanted=4))
    yield net(STEP, "uint8 of five operands, cells too", five("uint8", True, wanted=2), dtype="uint8", runs=1)
    odd = "the kernel assumes 0.0078125 and 128"
    yield net(STEP, "uint8 of another scale", five("uint8", True, scale=0.01), dtype="uint8", refused=odd)


def five(
    dtype: str, variable: bool, wanted: int = 1, scale: float = 1 / 128, activation: str = "TANH"
) -> Callable[[Net], None]:
    small, both = dtype == "uint8", INPUTS + CELLS

    def spec(size: int) -> Spec:
        return tensor(BATCH, size, dtype=dtype, scale=scale if small else None, zero_point=128)

    def draw(model: Net) -> None:
        cell = tensor(BATCH, CELLS, dtype="int16", scale=2**-11) if small else spec(CELLS)
        x = model.input(spec(INPUTS))
        operands = [
            model.graph.tensor(name, (BATCH, CELLS), like.dtype, quantization=like.quantization, variable=True)
            if variable
            else model.input(like)
            for name, like in (("hidden", spec(CELLS)), ("cells", cell))
        ]
        shape = (4 * CELLS, both)
        weights = (
            constant(random_array(*shape, dtype="uint8"), None, 0.0127, 119)
            if small
            else constant(random_array(*shape))
        )
        bias = (
            constant((random_array(4 * CELLS) * 5000).astype("int32"), None, 0.0127 / 128)
            if small
            else constant(random_array(4 * CELLS))
        )
        refs = [x, operands[0], model.place(weights), model.place(bias), operands[1]]
        sums = tensor(BATCH, 4 * CELLS, dtype="int16", scale=2**-12) if small else spec(4 * CELLS)
        results = [model.result(like) for like in (spec(CELLS), cell, spec(both), sums)]
        model.graph.operator(STEP, refs, results, {"kernel_type": "BASIC", "fused_activation_function": activation})
        model.output(*results[:wanted])

    return draw


# --- what is refused --------------------------------------------------------------------------


def refusal_cases(op: str) -> Iterator[Case]:
    yield lstm("float32 without an activation", {"refused": "activation NONE"}, op=op, fused_activation_function="NONE")
    kept = {"refused": "not variable tensors"}
    yield lstm("float32 whose states are handed in", kept, op=op, variable=False)
    uneven = {"refused": "nonzero zero points"}
    yield lstm("float32 with zero points", uneven, op=op, weights="int8", point=3)
    rows = {"refused": "one scale per row"}
    yield lstm("float32 with scales per row", rows, op=op, weights="int8", per_row=True)
    yield lstm(
        "int8 with 8 bit gates",
        {"refused": "confuses the gates' scales"},
        op=op,
        dtype="int8",
        weights="int8",
        intermediates=12,
    )
    odd = {"refused": "is not a power of two"}
    yield lstm("int8 with odd cells", odd, op=op, dtype="int8", weights="int8", cells_scale=0.0003)
    coarse = {"refused": "is not between 2^-15 and 2^-9"}
    yield lstm("int8 with coarse cells", coarse, op=op, dtype="int8", weights="int8", cells_scale=2.0**-8)
    huge = {"refused": "exceed 32 bits after rescaling"}
    yield lstm("int8 with scales beyond measure", huge, op=op, dtype="int8", weights="int8", reach=1e7)
    mixed = {"refused": "confuses cell states"}
    yield lstm(
        "int8 that peeps and projects", mixed, op=op, dtype="int8", weights="int8", peephole=True, outputs=OUTPUTS
    )
    if op == SEQUENCE:
        yield lstm("float32 with diagonal matrices", {"refused": "diagonal"}, diagonal=True)
