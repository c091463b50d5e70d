"""Recurrent operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Dequantized,
    Implicit,
    Operator,
    Quantization,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.lstm import (
    ACTIVATIONS,
    CELLS,
    FORGET,
    GATES,
    HIDDEN,
    INPUT,
    OUTPUT,
    PROJECTION,
    UPDATE,
    Cell,
    Gate,
    gates_of,
    normalizes,
)
from op_handlers.lstm_integers import IntegerCell, whole

PAIRS = {("float32", "float32"), ("float32", "int8"), ("float32", "uint8"), ("int8", "int8")}


def products(op: Operator, _target: object = None) -> Dequantized:
    """Biases count in steps of input times weight, unless they come after a normalization."""
    weights = tuple(slot for gate in GATES for slot in (gate.weights, gate.recurrent))
    biases = {} if normalizes(op) else {gate.bias: (0, gate.weights) for gate in gates_of(op)}
    stored = [slot for slot, tensor in enumerate(op.inputs) if tensor is not None and (tensor.constant or slot == CELLS)]
    return Dequantized(bias=biases, weights=(*weights, PROJECTION), stored=tuple(stored) if op[0].dtype == "int8" else ())


def sequence_axes(op: Operator) -> str:
    steps = "t b i -> t b o" if op.options.time_major else "b t i -> b t o"
    return steps if op[out(0)].rank == 3 else steps.partition(">")[0] + "> _"


def time_first(op: Operator) -> Implicit:
    return Implicit({0: "t b i", out(0): "t b o"} if op[out(0)].rank == 3 else {0: "t b i"})


def newest(op: Operator) -> int:
    """LayerNormalization is of opset 17."""
    return 17 if normalizes(op) else 13


def stepwise(op: Operator, rank: int) -> Decline | None:
    """What the kernels refuse, or read as something else than it is."""
    x, weights = op[0], [op[slot] for gate in gates_of(op) for slot in (gate.weights, gate.recurrent)]
    if len(op.inputs) not in (20, 24) or x.rank != rank:
        return Decline(
            f"it has {len(op.inputs)} operands, the first of rank {x.rank}; LiteRT takes 20 or 24, of rank {rank}"
        )
    if any((x.dtype, w.dtype) not in PAIRS for w in weights):
        found = ", ".join(sorted({w.dtype for w in weights}))
        return Decline(f"it multiplies {x.dtype} by {found}, for which there is no kernel")
    if any(w.rank != 2 for w in weights):
        return Decline("its recurrent weights are diagonal matrices, which is not implemented; give them in full")
    if any(isinstance(w.quantization, Quantization) and w.quantization.per_axis for w in weights):
        return Decline("its weights have a scale per row, where LiteRT reads one for all; quantize with one scale")
    if not (op[HIDDEN].is_variable and op[CELLS].is_variable):
        return Decline("its states are no variable tensors, which LiteRT insists on")
    if x.dtype == "int8":
        return whole(op)
    activation = op.options.fused_activation_function
    return None if activation in ACTIVATIONS else Decline(f"activation {activation} in its cells is not implemented")


@handler(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    max_version=4,
    layout=time_first,
    axes=sequence_axes,
    quantization=products,
    min_opset=newest,
    accepts=lambda op: stepwise(op, 3),
)
def unidirectional_sequence_lstm(ctx: Context, *inputs: Any) -> Any:
    """LSTM where it says all of it, else a Scan of explicit steps."""
    cell = made(ctx, inputs)
    hidden, cells = cell.states()
    run = at_once if plain(ctx) else step_by_step
    y, hidden, cells = run(cell, inputs[0], hidden, cells)
    cell.keep(hidden, cells)
    turned = ctx.op[out(0)].rank != 3 and not ctx.options.time_major
    return ctx.ops.Transpose(y, perm=[1, 0, 2]) if turned else y


def made(ctx: Context, inputs: Sequence[Any]) -> Cell:
    """The cell of an operator's arithmetic."""
    return IntegerCell(ctx, inputs) if ctx.op[0].dtype == "int8" else Cell(ctx, inputs)


def plain(ctx: Context) -> bool:
    """Whether ONNX has it as one operator, which bounds what the gates see and not the cells."""
    if ctx.op[0].dtype != "float32":
        return False
    usual = ctx.options.fused_activation_function == "TANH" and not ctx.options.cell_clip
    return usual and ctx.op.tensor(PROJECTION) is None and not normalizes(ctx.op)


def at_once(cell: Cell, x: Value, hidden: Value, cells: Value) -> tuple[Value, Value, Value]:
    """LSTM, whose gates come in the order input, output, forget, update.

    What a forget gate leaves is a gate of the negated sums: 1 - sigmoid(x) is sigmoid(-x).
    """
    ops, order = cell.ops, (INPUT, OUTPUT, FORGET, UPDATE)

    def stacked(field: str, gates: Sequence[Gate] = order) -> Any:
        """One operand of each gate, below a direction of 1."""
        parts = []
        for gate in gates:
            part = cell.real(getattr(gate if gate in cell.gates else FORGET, field))
            if gate not in cell.gates:
                part = -part if isinstance(part, np.ndarray) else ops.Neg(part)
            parts.append(part)
        whole = cell.joined(parts)
        return whole[None] if isinstance(whole, np.ndarray) else ops.Unsqueeze(whole, [0])

    bias = stacked("bias")
    none = np.zeros((1, 4 * cell.cells), np.float32)
    bias = np.concatenate([bias, none], 1) if isinstance(bias, np.ndarray) else ops.Concat(bias, none, axis=1)
    seen = stacked("peephole", order[:3]) if cell.op.tensor(OUTPUT.peephole or 0) is not None else None
    start = ops.Unsqueeze(hidden, [0]), ops.Unsqueeze(cells, [0])
    operands = (stacked("weights"), stacked("recurrent"), bias, None, *start, seen)
    y, hidden, cells = ops.LSTM(x, *operands, hidden_size=cell.cells, outputs=3)
    return ops.Squeeze(y, [1]), ops.Squeeze(hidden, [0]), ops.Squeeze(cells, [0])


def step_by_step(cell: Cell, x: Value, hidden: Value, cells: Value) -> tuple[Value, Value, Value]:
    """Scan over time of what is left when all products with the input are made at once."""

    def body(hidden: Value, cells: Value, products: Value) -> list[Value]:
        hidden, cells = cell.step(hidden, cells, products)
        return [hidden, cells, hidden]

    sizes = (cell.outputs, cell.cells, len(cell.gates) * cell.cells)
    types = [(name, "float32", (None, size)) for name, size in zip(("hidden", "cells", "products"), sizes, strict=True)]
    inner = cell.ctx.graph(body, types)
    hidden, cells, y = cell.ops.Scan(hidden, cells, cell.products(x), body=inner, num_scan_inputs=1, outputs=3)
    return y, hidden, cells


def full(op: Operator) -> Decline | None:
    if op.options.kernel_type != "FULL":
        return Decline(f"its kernel type {op.options.kernel_type} is not implemented")
    return stepwise(op, 2)


@handler("LSTM", max_version=4, layout=Terminate(), quantization=products, min_opset=newest, accepts=full)
def lstm(ctx: Context, *inputs: Any) -> Any:
    """One step."""
    cell = made(ctx, inputs)
    hidden, cells = cell.states()
    hidden, cells = cell.step(hidden, cells, cell.products(inputs[0]))
    cell.keep(hidden, cells)
    return hidden
