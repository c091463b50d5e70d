"""LSTM steps and sequences: each optional feature in isolation and combined.

States are carried over several runs.
"""

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


def lstm(name: str, case_fields: dict[str, Any] | None = None, **fields: Any) -> Case:
    """Return a case of one operator.

    Keywords that are not fields of ``Lstm`` become options of the operator.
    """
    layer_fields = {key: value for key, value in fields.items() if key in Lstm.__dataclass_fields__}
    options = tuple((key, value) for key, value in fields.items() if key not in layer_fields)
    return Lstm(**layer_fields, options=options).case(name, **(case_fields or {}))


FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "with clipped cells": {"cell_clip": 0.31},
    "without an input gate": {"coupled": True},
    "with peepholes": {"peephole": True},
    "with peepholes, without an input gate": {"peephole": True, "coupled": True},
    "with a projection": {"projection_size": OUTPUTS},
    "with a projection without a bias": {"projection_size": OUTPUTS, "projection_bias": False},
    "with a clipped projection": {"projection_size": OUTPUTS, "proj_clip": 0.23},
    "with layer normalization": {"layer_norm": True},
    "with layer normalization, without an input gate": {"layer_norm": True, "coupled": True},
}


def cases() -> Iterator[Case]:
    for op in (SEQUENCE, STEP):
        yield from float_cases(op)
        yield from hybrid_cases(op)
        yield from int8_cases(op)
        yield from refusal_cases(op)
    yield from sequence_only_cases()
    yield from five_operand_cases()
    yield replace(loop_case("float32 in a loop", [tensor(BATCH, CELLS)], step_in_loop), op=STEP)


def float_cases(op: str) -> Iterator[Case]:
    for name, features in FEATURES.items():
        opsets: dict[str, Any] = {"opsets": EVERY_OPSET} if name in ("plain", "with clipped cells") else {}
        yield lstm(f"float32 {name}", opsets, op=op, **features)
    all_features: dict[str, Any] = {
        "layer_norm": True,
        "peephole": True,
        "projection_size": OUTPUTS,
        "cell_clip": 0.47,
        "proj_clip": 0.4,
    }
    yield lstm("float32 with all features", op=op, **all_features)
    yield lstm("float32 with 20 operands", op=op, omit_norm_operands=True)
    yield lstm("float32 with a result without stored rank", op=op, unranked_result=True, cell_clip=1.1)
    yield lstm("float32 with states of rank 1", op=op, flat_states=True, cell_clip=1.1)
    for activation in ("RELU", "RELU_N1_TO_1", "RELU6", "SIGN_BIT"):
        yield lstm(f"float32 with {activation}", op=op, fused_activation_function=activation)
    yield lstm("float32 with float16 initial states", op=op, initial_dtype="float16")
    for name in ("plain", "without an input gate", "with a projection"):
        yield lstm(f"float32 with float16 constants {name}", op=op, float16_constants=True, **FEATURES[name])
    yield lstm(
        "float32 with layer normalization of values near 0", {"input_range": (-1e-4, 1e-4)}, op=op, layer_norm=True
    )
    yield lstm("float32, 50 runs", {"runs": 50}, op=op)
    yield lstm("float32 with a projection, 50 runs", {"runs": 50}, op=op, projection_size=OUTPUTS, weight_factor=0.5)
    for dtype in ("float32", "int8"):
        for flat in (False, True):
            name = f"{dtype}, reset in every run" + (", states of rank 1" if flat else "")
            yield lstm(name, {"options": {"state": "reset"}}, op=op, dtype=dtype, weights=dtype, flat_states=flat)
    yield lstm("float32 clipped, reset in every run", {"options": {"state": "reset"}}, op=op, cell_clip=10.0)
    yield lstm("float32 with weights as graph inputs", op=op, weights_as_inputs=True)
    yield lstm("float32 with clipped cells and weights as graph inputs", op=op, weights_as_inputs=True, cell_clip=0.7)


def hybrid_cases(op: str) -> Iterator[Case]:
    for weights in ("int8", "uint8"):
        for name in ("plain", "with clipped cells", "without an input gate", "with peepholes", "with a projection"):
            if weights == "uint8" and name == "with peepholes":
                continue
            yield lstm(f"float32 with {weights} weights {name}", op=op, weights=weights, **FEATURES[name])
    yield lstm("float32 with int8 weights and layer normalization", op=op, weights="int8", layer_norm=True)
    for activation in ("RELU_N1_TO_1", "RELU6"):
        yield lstm(
            f"float32 with int8 weights and {activation}", op=op, weights="int8", fused_activation_function=activation
        )
    yield lstm(
        "float32 with int8 weights, asymmetric activations", op=op, weights="int8", asymmetric_quantize_inputs=True
    )


def int8_cases(op: str) -> Iterator[Case]:
    for name, features in FEATURES.items():
        yield lstm(f"int8 {name}", op=op, dtype="int8", weights="int8", **features)
    for exponent in (-15, -14, -13, -11, -10, -9):
        yield lstm(
            f"int8 with a cell scale of 2^{exponent}", op=op, dtype="int8", weights="int8", cells_scale=2.0**exponent
        )
    near_power_of_two = 2.0**-11 * 1.0005
    yield lstm(
        "int8 with a cell scale near a power of two", op=op, dtype="int8", weights="int8", cells_scale=near_power_of_two
    )
    yield lstm(
        "int8 with different output and state quantization",
        op=op,
        dtype="int8",
        weights="int8",
        output_quantization=(0.0093, 11),
    )
    yield lstm("int8, 50 runs", {"runs": 50}, op=op, dtype="int8", weights="int8")
    yield lstm(
        "int8 with a projection and a different hidden zero point",
        op=op,
        dtype="int8",
        weights="int8",
        projection_size=OUTPUTS,
        hidden_quantization=(0.0073, 31),
    )
    yield lstm(
        "int8 with all features", op=op, dtype="int8", weights="int8", layer_norm=True, peephole=True, cell_clip=0.47
    )
    size = (BATCH, 53, INPUTS) if op == SEQUENCE else (BATCH, INPUTS)
    # From the second run on, the input is 0: its zero point is -5.
    inputs_of_runs = [{"x0": random_array(*size, dtype="int8")}, *[{"x0": np.full(size, -5, np.int8)}] * 4]
    constant_cells: dict[str, Any] = {"hold_cells": True, "time": 53, "cells_scale": 2**-9}
    runs = {"input_arrays": inputs_of_runs, "runs": 5}
    yield lstm("int8 with constant cell states", runs, op=op, dtype="int8", weights="int8", **constant_cells)
    yield lstm("int8 with states of rank 1", op=op, dtype="int8", weights="int8", flat_states=True)
    for batch in (1, BATCH):
        large: dict[str, Any] = {"batch": batch, "cells": 37, "dtype": "int8", "weights": "int8"}
        yield lstm(f"int8 with 37 cells, batch of {batch}", op=op, **large)
        yield lstm(f"int8 with 37 cells and peepholes, batch of {batch}", op=op, peephole=True, **large)
        large_biases = {"gate_bias": 16.0, "weight_factor": 0.4, **large}
        yield lstm(f"int8 with gate sums beyond 16 bits, batch of {batch}", op=op, **large_biases)
    yield lstm("int8, batch of 1", op=op, dtype="int8", weights="int8", batch=1)
    int8_fields: dict[str, Any] = {"op": op, "dtype": "int8", "weights": "int8"}
    for activation in ("NONE", "RELU", "SIGN_BIT"):
        ignored_activation = {**int8_fields, "fused_activation_function": activation}
        yield lstm(f"int8 with {activation}, for which the kernel uses TANH", **ignored_activation)
    as_float = {"options": {"quantization": "float"}}
    yield lstm(
        "int8 with RELU, converted without quantization", as_float, fused_activation_function="RELU", **int8_fields
    )


def sequence_only_cases() -> Iterator[Case]:
    for dtype, weights in (("float32", "float32"), ("float32", "int8"), ("int8", "int8")):
        for clip in (0.0, 0.31):
            name = f"{dtype} with {weights} weights, time first" + (", with clipped cells" if clip else "")
            yield lstm(name, dtype=dtype, weights=weights, time_major=True, cell_clip=clip)
        yield lstm(f"{dtype} with {weights} weights, batch of 1", dtype=dtype, weights=weights, batch=1)
        yield lstm(f"{dtype} with {weights} weights, one time step", dtype=dtype, weights=weights, time=1)
    for weights in ("float32", "int8"):
        yield clip_case(4.0, weights)
        yield clip_case(6.5, weights)
        yield lstm(f"float32 with {weights} weights, cells clipped at 10", weights=weights, cell_clip=10.0)
    yield clip_case(6.5, output_gate_closing=1.0)
    yield lstm("float32, time first, cells clipped at 10", time_major=True, cell_clip=10.0)
    yield clip_case(6.5, time=3)
    yield lstm("float32 without an input gate, cells clipped at 10", coupled=True, cell_clip=10.0)
    yield lstm("float32 with peepholes, cells clipped at 10", peephole=True, cell_clip=10.0)
    for clip in (0.0, 0.31, 10.0):
        bounded = f", cells clipped at {clip:g}" if clip else ""
        arrays = {"x0": random_array(BATCH, TIME, INPUTS)}
        yield lstm(f"float32 of dynamic length{bounded}", {"input_arrays": arrays}, time=None, cell_clip=clip)
        for dtype in ("float32", "int8"):
            yield net(SEQUENCE, f"{dtype}, two layers{bounded}", two_layers(dtype, clip), dtype=dtype, max_transposes=2)


def step_in_loop(body: GraphBuilder, values: Sequence[TensorRef]) -> Sequence[TensorRef]:
    """Build a loop body that is one LSTM step.

    The states are variable tensors of the body.
    """
    model = Net()
    model.graph = body
    return [Lstm(op=STEP, inputs=CELLS, options=(("cell_clip", 0.9),)).call(model, values[0])]


def clip_case(clip: float, weights: str = "float32", output_gate_closing: float = 0.0, time: int = TIME) -> Case:
    """Return a case whose cells reach the bound within ten steps and then decrease."""
    positive = np.full((BATCH, time, INPUTS), 2.0, np.float32)
    rising_runs = -(-2 * TIME // time)
    runs = [{"x0": x} for x in (*[positive] * rising_runs, -positive, -positive, -positive)]
    steps = "" if time == TIME else f", {time} time steps per run"
    name = f"float32 with {weights} weights, cells clipped at {clip:g} and at the limit" + (
        ", output gate closed" if output_gate_closing else steps
    )
    case_fields = {"input_arrays": runs, "runs": len(runs)}
    return lstm(
        name,
        case_fields,
        weights=weights,
        gate_bias=7.0,
        cell_clip=clip,
        output_gate_closing=output_gate_closing,
        time=time,
    )


def two_layers(dtype: str, clip: float) -> Callable[[Net], None]:
    """Return two consecutive layers without a Transpose between them."""
    weights = "int8" if dtype == "int8" else "float32"

    def build(model: Net) -> None:
        options = (("cell_clip", clip),)
        first = Lstm(dtype=dtype, weights=weights, options=options).call(model, name="first ")
        second = replace(Lstm(dtype=dtype, weights=weights, options=options), inputs=CELLS)
        model.output(second.call(model, first, "second "))

    return build


# --- five operands ----------------------------------------------------------------------------


def five_operand_cases() -> Iterator[Case]:
    for dtype in ("float32", "uint8"):
        for variable in (True, False):
            name = f"{dtype} with five operands, states as " + ("variables" if variable else "graph inputs")
            yield net(STEP, name, five_operand_lstm(dtype, variable), dtype=dtype)
        for activation in ("NONE", "RELU"):
            name = f"{dtype} with five operands and {activation}, for which the kernel uses TANH"
            yield net(STEP, name, five_operand_lstm(dtype, True, activation=activation), dtype=dtype)
    yield net(STEP, "float32 with five operands and four results", five_operand_lstm("float32", True, output_count=4))
    yield net(
        STEP,
        "uint8 with five operands and cell output",
        five_operand_lstm("uint8", True, output_count=2),
        dtype="uint8",
        runs=1,
    )
    refusal = "the kernel assumes 0.0078125 and 128"
    yield net(
        STEP,
        "uint8 with an unsupported scale",
        five_operand_lstm("uint8", True, scale=0.01),
        dtype="uint8",
        refusal=refusal,
    )


def five_operand_lstm(
    dtype: str, variable: bool, output_count: int = 1, scale: float = 1 / 128, activation: str = "TANH"
) -> Callable[[Net], None]:
    """Return a builder of an LSTM with ``kernel_type`` BASIC.

    One matrix holds the weights of all gates. ``output_count``: number of results that are graph outputs.
    """
    is_uint8, width = dtype == "uint8", INPUTS + CELLS

    def spec(size: int) -> Spec:
        return tensor(BATCH, size, dtype=dtype, scale=scale if is_uint8 else None, zero_point=128)

    def build(model: Net) -> None:
        cell = tensor(BATCH, CELLS, dtype="int16", scale=2**-11) if is_uint8 else spec(CELLS)
        x = model.input(spec(INPUTS))
        hidden, cells = (
            model.graph.tensor(name, (BATCH, CELLS), state.dtype, quantization=state.quantization, variable=True)
            if variable
            else model.input(state)
            for name, state in (("hidden", spec(CELLS)), ("cells", cell))
        )
        shape = (4 * CELLS, width)
        weights = (
            constant(random_array(*shape, dtype="uint8"), None, 0.0127, 119)
            if is_uint8
            else constant(random_array(*shape))
        )
        bias = (
            constant((random_array(4 * CELLS) * 5000).astype("int32"), None, 0.0127 / 128)
            if is_uint8
            else constant(random_array(4 * CELLS))
        )
        refs = [x, hidden, model.add_operand(weights), model.add_operand(bias), cells]
        gate_sums = tensor(BATCH, 4 * CELLS, dtype="int16", scale=2**-12) if is_uint8 else spec(4 * CELLS)
        results = [model.result(like) for like in (spec(CELLS), cell, spec(width), gate_sums)]
        model.graph.operator(STEP, refs, results, {"kernel_type": "BASIC", "fused_activation_function": activation})
        model.output(*results[:output_count])

    return build


# --- refusals ----------------------------------------------------------------------------------


def refusal_cases(op: str) -> Iterator[Case]:
    yield lstm("float32 without an activation", {"refusal": "activation NONE"}, op=op, fused_activation_function="NONE")
    refusal = {"refusal": "not variable tensors"}
    yield lstm("float32 with states as graph inputs", refusal, op=op, variable=False)
    refusal = {"refusal": "nonzero zero points"}
    yield lstm("float32 with nonzero weight zero points", refusal, op=op, weights="int8", weight_zero_point=3)
    refusal = {"refusal": "one scale per row"}
    yield lstm("float32 with int8 weights, one scale per row", refusal, op=op, weights="int8", scale_per_row=True)
    yield lstm(
        "int8 with 8-bit gates",
        {"refusal": "confuses the gates' scales"},
        op=op,
        dtype="int8",
        weights="int8",
        intermediates=12,
    )
    refusal = {"refusal": "is not a power of two"}
    yield lstm(
        "int8 with a cell scale that is no power of two",
        refusal,
        op=op,
        dtype="int8",
        weights="int8",
        cells_scale=0.0003,
    )
    refusal = {"refusal": "not between 2^-15 and 2^-9"}
    yield lstm("int8 with a cell scale of 2^-8", refusal, op=op, dtype="int8", weights="int8", cells_scale=2.0**-8)
    refusal = {"refusal": "exceed 32 bits after rescaling"}
    yield lstm(
        "int8 with excessively large weight scales", refusal, op=op, dtype="int8", weights="int8", weight_factor=1e7
    )
    refusal = {"refusal": "confuses cell states"}
    yield lstm(
        "int8 with peepholes and a projection",
        refusal,
        op=op,
        dtype="int8",
        weights="int8",
        peephole=True,
        projection_size=OUTPUTS,
    )
    if op == SEQUENCE:
        yield lstm("float32 with diagonal matrices", {"refusal": "diagonal"}, diagonal_weights=True)
