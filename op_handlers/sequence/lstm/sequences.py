"""A sequence through an LSTM: ONNX's LSTM where that is what it is, else a Scan of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, tanh

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Value
from op_handlers.kernels.recurrent import stack_directions, stack_initial_states, stack_values
from op_handlers.sequence.lstm.cell import FORGET, INPUT, OUTPUT, PROJECTION, PROJECTION_BIAS, Cell, Gate
from op_handlers.sequence.lstm.integers import IntegerCell

Starts = Sequence[tuple[Value, Value]]
"""The last output and the cells of each direction."""
Way = Callable[[Sequence[Cell], Value, Starts], Sequence[Sequence[Value]]]
"""From cells, one for each direction, and what they see: the outputs, the last output and the cells of each."""
ITS_OWN: Mapping[str, Sequence[str] | None] = {"TANH": None, "RELU": ("Sigmoid", "Relu", "Relu")}
"""ONNX's activations of gates, update and cells; ``None`` is its default."""
FAR = 5.0  # tanh is 1e-4 from 1 here: more than the sums of a gate are off, relative to its share
NONE = np.zeros(1, np.int64)
MOST_ADDED = 256.0  # of which the last bit is 3e-5
SHUT = 1e-6  # more than a share is off by itself: of a gate that is shut as far as this nothing is known


def way(cell: Cell) -> Way:
    """ONNX's LSTM is a plain float32 one; its ``clip`` bounds what the gates see, not the cells."""
    options, activation = cell.ctx.options, cell.ctx.options.fused_activation_function
    if isinstance(cell, IntegerCell) or activation not in ITS_OWN or cell.normalizes:
        return step_by_step
    if cell.projection is not None:
        return step_by_step if options.proj_clip or options.cell_clip or cancels(cell) else projected
    if not options.cell_clip:
        return at_once
    return unless_bounded if options.cell_clip > FAR and activation == "TANH" and not cell.peeps else step_by_step


def cancels(cell: Cell) -> bool:
    """Whether what ``projected`` takes out of the sums of a first step and adds to all is more than float32 holds beside them."""
    if cell.op.tensor(PROJECTION_BIAS) is None:
        return False
    back, added = cell.recurrent, cell.real(PROJECTION_BIAS)
    if not isinstance(back, np.ndarray) or not isinstance(added, np.ndarray):
        return False
    return float((np.abs(back) @ np.abs(added)).max(initial=0)) > MOST_ADDED


def at_once(layers: Sequence[Cell], x: Value, starts: Starts, shared: bool = False) -> Sequence[Sequence[Value]]:
    """LSTM of one direction or both. ``shared``: its matrices are somebody else's too."""
    ctx, ops, n = layers[0].ctx, layers[0].ops, len(layers)
    activations = ITS_OWN[ctx.options.fused_activation_function]
    matrices = stack_values if shared else stack_directions
    y, hidden, cells = ops.LSTM(
        x,
        matrices(ops, [of_all(cell, cell.matrix) for cell in layers]),
        matrices(ops, [recurrent(cell) for cell in layers]),
        stack_directions(ops, [biases(cell) for cell in layers]),
        None,
        stack_initial_states(ctx, [hidden for hidden, _ in starts]),
        stack_initial_states(ctx, [cells for _, cells in starts]),
        stack_directions(ops, [peepholes(cell) for cell in layers]) if layers[0].peeps else None,
        activations=None if activations is None else [*activations] * n,
        direction=None if n == 1 and not layers[0].reverse else "bidirectional" if n == 2 else "reverse",
        hidden_size=layers[0].cells,
        outputs=3,
    )
    if n == 1:
        return [(ops.Squeeze(y, [1]), ops.Squeeze(hidden, [0]), ops.Squeeze(cells, [0]))]
    parts = [ops.Split(value, [1] * n, axis=axis, outputs=n) for value, axis in ((y, 1), (hidden, 0), (cells, 0))]
    return [(ops.Squeeze(a, [1]), ops.Squeeze(b, [0]), ops.Squeeze(c, [0])) for a, b, c in zip(*parts, strict=True)]


def projected(layers: Sequence[Cell], x: Value, starts: Starts) -> Sequence[Sequence[Value]]:
    """LSTM of what is not projected yet, one for each direction, and the projection of all time steps at once.

    Its recurrent weights are those of the file times the projection's. What a sequence begins with is projected already, so
    that enters as an input of the first time step alone: x is widened by it, zeros behind.
    """
    return [widened(cell, x, *start) for cell, start in zip(layers, starts, strict=True)]


def widened(cell: Cell, x: Value, hidden: Value, cells: Value) -> Sequence[Value]:
    ctx, ops, n, projection = cell.ctx, cell.ops, cell.cells, cell.weights([PROJECTION])
    added = cell.real(PROJECTION_BIAS) if cell.op.tensor(PROJECTION_BIAS) is not None else None
    inward, back, bias = of_all(cell, cell.matrix), recurrent(cell), biases(cell)
    first = hidden if added is None else ops.Sub(hidden, added)
    constant = ctx.known(hidden)
    if added is not None or constant is None or constant.any():
        others = ops.Sub(ops.Slice(ops.Shape(x), [0], [1]), np.array([1], np.int64))
        before, after = (others, NONE) if cell.reverse else (NONE, others)
        pads = ops.Concat(before, NONE, NONE, after, NONE, NONE, axis=0)
        x = ops.Concat(x, ops.Pad(ops.Unsqueeze(first, [0]), pads), axis=2)
        inward = ops.Concat(inward, back, axis=1)
    if added is not None:
        seen = ops.Reshape(ops.MatMul(back, ops.Unsqueeze(added, [1])), [-1])
        bias = ops.Add(bias, ops.Concat(seen, np.zeros(4 * n, np.float32), axis=0))
    activations = ITS_OWN[ctx.options.fused_activation_function]
    y, _, cells = ops.LSTM(
        x,
        stack_values(ops, [inward]),
        stack_values(ops, [ops.MatMul(back, projection)]),
        stack_values(ops, [bias]),
        None,
        None,
        stack_initial_states(ctx, [cells]),
        stack_directions(ops, [peepholes(cell)]) if cell.peeps else None,
        activations=None if activations is None else [*activations],
        direction="reverse" if cell.reverse else None,
        hidden_size=n,
        outputs=3,
    )
    columns = projection.T.copy() if isinstance(projection, np.ndarray) else ops.Transpose(projection, perm=[1, 0])
    y = ops.MatMul(ops.Squeeze(y, [1]), columns)
    y = y if added is None else ops.Add(y, added)
    last = ops.Gather(y, np.array(0 if cell.reverse else -1, np.int64), axis=0)
    return y, last, ops.Squeeze(cells, [0])


def of_all(cell: Cell, part: Callable[[Gate], Value | Array], gates: Sequence[Gate] | None = None) -> Value | Array:
    """One operand of each gate, one below the other.

    What a forget gate leaves is a gate of the negated sums: 1 - sigmoid(x) is sigmoid(-x).
    """
    parts = [part(gate) for gate in (cell.gates if gates is None else gates)]
    if INPUT not in cell.gates:
        left = part(FORGET)
        parts.insert(0, -left if isinstance(left, np.ndarray) else cell.ops.Neg(left))
    return cell.joined(parts)


def recurrent(cell: Cell) -> Value | Array:
    return of_all(cell, lambda gate: cell.real(gate.recurrent))


def biases(cell: Cell) -> Value | Array:
    """Those of the input, and none of the last output."""
    bias, none = of_all(cell, lambda gate: cell.real(gate.bias)), np.zeros(4 * cell.cells, np.float32)
    return np.concatenate([bias, none]) if isinstance(bias, np.ndarray) else cell.ops.Concat(bias, none, axis=0)


def peepholes(cell: Cell) -> Value | Array:
    return of_all(cell, lambda gate: cell.real(gate.peephole or 0), [gate for gate in cell.gates if gate.peephole])


def unless_bounded(layers: Sequence[Cell], x: Value, starts: Starts) -> Sequence[Sequence[Value]]:
    """LSTM as if nothing bounded the cells, and Scan instead where any may have gone beyond 5: seldom, the bound is 10."""
    ops, ctx, n = layers[0].ops, layers[0].ctx, len(layers)
    room = left(layers[0])
    if room > 0 and all(smaller(ctx, cells, room) for _, cells in starts):
        return at_once(layers, x, starts)
    unbounded = at_once(layers, x, starts, shared=True)
    if 2 * room > float(ctx.options.cell_clip):
        near = [ops.Less(ops.ReduceMax(ops.Abs(cells), keepdims=0), room) for _, cells in starts]
    else:
        near = [
            far_from(cell, x, hidden, y) for cell, (hidden, _), (y, *_) in zip(layers, starts, unbounded, strict=True)
        ]
    exact = ctx.graph(lambda: [value for outputs in step_by_step(layers, x, starts) for value in outputs])
    either = ops.If(
        near[0] if n == 1 else ops.And(*near),
        then_branch=ctx.graph(lambda: [value for outputs in unbounded for value in outputs]),
        else_branch=exact,
        outputs=3 * n,
    )
    return [either[3 * k : 3 * k + 3] for k in range(n)]


def left(cell: Cell) -> float:
    """How large cells may be that a sequence cannot bring to their bound: each time step adds up to 1 to what is kept of them."""
    time = cell.op[0].dims[0 if cell.ctx.options.time_major else 1]
    return float(cell.ctx.options.cell_clip) - (inf if time is None else time)


def smaller(ctx: Context, cells: Value, most: float) -> bool:
    """Whether cells are known to be, because every run begins with them."""
    constant = ctx.known(cells)
    return constant is not None and bool(np.abs(constant).max(initial=0) < most)


def far_from(cell: Cell, x: Value, hidden: Value, y: Value) -> Value:
    """Whether no cell of a sequence has come near its bound.

    An output is its gate's share of the tanh of the cell, and those shares can be had at once when all outputs are known.
    """
    ops = cell.ops
    first = ops.Unsqueeze(hidden, [0])
    before = (
        ops.Concat(ops.Slice(y, [1], [2**31 - 1], [0]), first, axis=0)
        if cell.reverse
        else ops.Concat(first, ops.Slice(y, [0], [-1], [0]), axis=0)
    )
    of_input, of_output = (cell.part(joined, OUTPUT) for joined in (cell.inward(), cell.recurrent))
    seen = cell.multiplied(x, of_input, cell.real(OUTPUT.bias), 1)
    sums = ops.Add(seen, cell.multiplied(before, of_output, None, 1))
    most = ops.Mul(ops.Sigmoid(sums), tanh(FAR))
    return ops.Less(ops.ReduceMax(ops.Sub(ops.Abs(y), most), keepdims=0), -SHUT)


def step_by_step(layers: Sequence[Cell], x: Value, starts: Starts) -> Sequence[Sequence[Value]]:
    return [scanned(cell, x, *start) for cell, start in zip(layers, starts, strict=True)]


def scanned(cell: Cell, x: Value, hidden: Value, cells: Value) -> Sequence[Value]:
    """Scan over time of what is left when all products with the input are made at once."""

    def body(hidden: Value, cells: Value, products: Value) -> list[Value]:
        hidden, cells = cell.step(hidden, cells, products)
        return [cell.carried(hidden), cells, hidden]

    sizes = (cell.outputs, cell.cells, len(cell.gates) * cell.cells)
    names = ("hidden", "cells", "products")
    types = [(name, dtype, (None, size)) for name, dtype, size in zip(names, cell.states_of, sizes, strict=True)]
    inner, back = cell.ctx.graph(body, types), [1] if cell.reverse else None
    hidden, cells, y = cell.ops.Scan(
        hidden,
        cells,
        cell.products(x),
        body=inner,
        num_scan_inputs=1,
        scan_input_directions=back,
        scan_output_directions=back,
        outputs=3,
    )
    return y, hidden, cells
