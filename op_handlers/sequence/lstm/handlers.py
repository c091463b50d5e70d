"""Recurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import tanh
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Dequantized,
    Implicit,
    Instance,
    Operator,
    Quantization,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.sequence.lstm.basic import basic, five, side_by_side
from op_handlers.sequence.lstm.cell import (
    ACTIVATIONS,
    CELLS,
    FORGET,
    GATES,
    HIDDEN,
    INPUT,
    OUTPUT,
    PROJECTION,
    Cell,
    Gate,
    gates_of,
    normalizes,
)
from op_handlers.sequence.lstm.integers import IntegerCell, whole

PAIRS = {("float32", "float32"), ("float32", "int8"), ("float32", "uint8"), ("int8", "int8")}


def products(at: Instance) -> Dequantized:
    """Biases count in steps of input times weight, unless they come after a normalization."""
    op = at.op
    weights = tuple(slot for gate in GATES for slot in (gate.weights, gate.recurrent))
    biases = {} if normalizes(op) else {gate.bias: (0, gate.weights) for gate in gates_of(op)}
    stored = [
        slot for slot, tensor in enumerate(op.inputs) if tensor is not None and (tensor.constant or slot == CELLS)
    ]
    return Dequantized(
        bias=biases, weights=(*weights, PROJECTION), stored=tuple(stored) if op[0].dtype == "int8" else ()
    )


def sequence_axes(at: Instance) -> str:
    steps = "t b i -> t b o" if at.op.options.time_major else "b t i -> b t o"
    return steps if at.op[out(0)].rank == 3 else steps.partition(">")[0] + "> _"


def time_first(at: Instance) -> Implicit:
    return Implicit({0: "t b i", out(0): "t b o"} if at.op[out(0)].rank == 3 else {0: "t b i"})


def newest(at: Instance) -> int:
    """LayerNormalization is of opset 17, and ReduceMean along operands of 18."""
    if not normalizes(at.op):
        return 13
    return 18 if at.op[0].dtype == "int8" else 17


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
    scales = [w.quantization for w in weights if isinstance(w.quantization, Quantization)]
    if any(scale.per_axis for scale in scales):
        return Decline("its weights have a scale per row, where LiteRT reads one for all; quantize with one scale")
    if any(any(scale.zero_point) for scale in scales):
        return Decline("its weights have zero points other than 0, which LiteRT does not read; quantize symmetrically")
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
    accepts=lambda at: stepwise(at.op, 3),
)
def unidirectional_sequence_lstm(ctx: Context, *inputs: Any) -> Any:
    """LSTM where that bounds no cells, projects and normalizes nothing; else a Scan of steps spelled out."""
    cell = made(ctx, inputs)
    run = way(ctx)
    y, *states = run(cell, inputs[0], *cell.states())
    cell.keep(*states)
    turned = ctx.op[out(0)].rank != 3 and not ctx.options.time_major
    return ctx.ops.Transpose(y, perm=[1, 0, 2]) if turned else y


def made(ctx: Context, inputs: Sequence[Any]) -> Cell:
    """The cell of an operator's arithmetic."""
    return IntegerCell(ctx, inputs) if ctx.op[0].dtype == "int8" else Cell(ctx, inputs)


def way(ctx: Context) -> Callable[..., Sequence[Value]]:
    """ONNX's LSTM is a plain one of real numbers; its ``clip`` bounds what the gates see, not the cells."""
    usual = ctx.op[0].dtype == "float32" and ctx.options.fused_activation_function == "TANH"
    if not usual or ctx.op.tensor(PROJECTION) is not None or normalizes(ctx.op):
        return step_by_step
    if not ctx.options.cell_clip:
        return at_once
    peeps = ctx.op.tensor(OUTPUT.peephole or 0) is not None
    return unless_bounded if ctx.options.cell_clip > FAR and not peeps else step_by_step


def at_once(cell: Cell, x: Value, hidden: Value, cells: Value, shared: bool = False) -> Sequence[Value]:
    """LSTM. ``shared``: its matrices are somebody else's too.

    What a forget gate leaves is a gate of the negated sums: 1 - sigmoid(x) is sigmoid(-x).
    """
    ops = cell.ops

    def of_all(field: str, gates: Sequence[Gate] = cell.gates, shared: bool = False) -> Any:
        """One operand of each gate, in a direction of 1."""
        parts = [cell.real(getattr(gate, field)) for gate in gates]
        if INPUT not in cell.gates:
            left = cell.real(getattr(FORGET, field))
            parts.insert(0, -left if isinstance(left, np.ndarray) else ops.Neg(left))
        held = cell.joined(parts)
        return held[None] if isinstance(held, np.ndarray) and not shared else ops.Unsqueeze(held, [0])

    bias, none = of_all("bias"), np.zeros((1, 4 * cell.cells), np.float32)
    peeps = cell.op.tensor(OUTPUT.peephole or 0) is not None
    y, hidden, cells = ops.LSTM(
        x,
        of_all("weights", shared=shared),
        of_all("recurrent", shared=shared),
        np.concatenate([bias, none], 1) if isinstance(bias, np.ndarray) else ops.Concat(bias, none, axis=1),
        None,
        ops.Unsqueeze(hidden, [0]),
        ops.Unsqueeze(cells, [0]),
        of_all("peephole", [gate for gate in cell.gates if gate.peephole]) if peeps else None,
        hidden_size=cell.cells,
        outputs=3,
    )
    return ops.Squeeze(y, [1]), ops.Squeeze(hidden, [0]), ops.Squeeze(cells, [0])


FAR = 5.0  # tanh is 1e-4 from 1 here: more than the sums of a gate are off, relative to its share
SHUT = 1e-6  # more than a share is off by itself: of a gate that is shut as far as this nothing is known


def unless_bounded(cell: Cell, x: Value, hidden: Value, cells: Value) -> Sequence[Value]:
    """LSTM as if nothing bounded the cells, and Scan instead where any may have gone beyond 5: seldom, the bound is 10.

    An output is its gate's share of the tanh of the cell, and those shares can be had at once when all outputs are known.
    """
    ops = cell.ops
    found = at_once(cell, x, hidden, cells, shared=True)
    before = ops.Concat(ops.Unsqueeze(hidden, [0]), ops.Slice(found[0], [0], [-1], [0]), axis=0)
    matrices = (cell.weights([gate.weights for gate in cell.gates]), cell.recurrent)
    of_input, of_output = (cell.part(joined, OUTPUT) for joined in matrices)
    seen = cell.multiplied(x, [OUTPUT.weights], cell.real(OUTPUT.bias), of_input)
    sums = ops.Add(seen, cell.multiplied(before, [OUTPUT.recurrent], None, of_output))
    most = ops.Mul(ops.Sigmoid(sums), tanh(FAR))
    near = ops.Less(ops.ReduceMax(ops.Sub(ops.Abs(found[0]), most), keepdims=0), -SHUT)
    exact = cell.ctx.graph(lambda: step_by_step(cell, x, hidden, cells))
    return ops.If(near, then_branch=cell.ctx.graph(lambda: found), else_branch=exact, outputs=3)  # type: ignore[no-any-return]


def step_by_step(cell: Cell, x: Value, hidden: Value, cells: Value) -> Sequence[Value]:
    """Scan over time of what is left when all products with the input are made at once."""

    def body(hidden: Value, cells: Value, products: Value) -> list[Value]:
        hidden, cells = cell.step(hidden, cells, products)
        return [hidden, cells, hidden]

    sizes = (cell.outputs, cell.cells, len(cell.gates) * cell.cells)
    types = [(name, "float32", (None, size)) for name, size in zip(("hidden", "cells", "products"), sizes, strict=True)]
    inner = cell.ctx.graph(body, types)
    hidden, cells, y = cell.ops.Scan(hidden, cells, cell.products(x), body=inner, num_scan_inputs=1, outputs=3)
    return y, hidden, cells


def one_step(at: Instance) -> Decline | None:
    op = at.op
    kinds = {"FULL": lambda: stepwise(op, 2), "BASIC": lambda: five(op)}
    kind = op.options.kernel_type
    return kinds[kind]() if kind in kinds else Decline(f"kernel type {kind} is not known")


@handler(
    "LSTM",
    max_version=4,
    layout=Terminate(),
    quantization=lambda at: side_by_side(at.op) if at.op.options.kernel_type == "BASIC" else products(at),
    min_opset=newest,
    accepts=one_step,
)
def lstm(ctx: Context, *inputs: Any) -> Any:
    """One step spelled out: Gemm, Split, Sigmoid and Tanh."""
    if ctx.options.kernel_type == "BASIC":
        return basic(ctx, inputs)
    cell = made(ctx, inputs)
    hidden, cells = cell.states()
    hidden, cells = cell.step(hidden, cells, cell.products(inputs[0]))
    cell.keep(hidden, cells)
    return hidden
