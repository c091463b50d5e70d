"""LSTMs on sequences: ONNX's LSTM if it computes the same, else a Scan of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, tanh

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Value
from op_handlers.kernels.recurrent import stack_directions, stack_initial_states, stack_values
from op_handlers.sequence.lstm.cell import FORGET, INPUT, OUTPUT, PROJECTION, PROJECTION_BIAS, Cell, Gate

Starts = Sequence[tuple[Value, Value]]
"""Last output and cells of each direction."""
Emitter = Callable[[Sequence[Cell], Value, Starts], Sequence[Sequence[Value]]]
"""Function of one cell per direction, their input and initial states that returns outputs, last output and cells of each."""
ONNX_ACTIVATIONS: Mapping[str, Sequence[str] | None] = {"TANH": None, "RELU": ("Sigmoid", "Relu", "Relu")}
"""ONNX's activations of gates, update and cells; ``None`` is the default."""
SAFE_CELL = 5.0  # tanh(5) is 1e-4 below 1: more than the relative error of a gate's activation
NONE = np.zeros(1, np.int64)
MAX_ADDED = 256.0  # its last float32 bit is 3e-5
MIN_GATE = 1e-6  # more than a gate's error: nothing is known of the cells of a gate below it


def choose_emitter(cell: Cell) -> Emitter:
    """Return how to emit a cell's sequence: ONNX's LSTM is float32, and its ``clip`` bounds gate inputs, not cells.

    Quantized states are not reshaped for ONNX's LSTM: at opset 21, which 16-bit states need, ONNX Runtime moves Q and
    DQ past the reshapes and then does not load the model.
    """
    options, activation = cell.ctx.options, cell.ctx.options.fused_activation_function
    if cell.op[0].dtype == "int8" or activation not in ONNX_ACTIVATIONS or cell.normalizes:
        return emit_scans
    if cell.projection is not None:
        return emit_scans if options.proj_clip or options.cell_clip or loses_precision(cell) else emit_projected
    if not options.cell_clip:
        return emit_lstm
    return (
        emit_lstm_or_scan if options.cell_clip > SAFE_CELL and activation == "TANH" and not cell.peeps else emit_scans
    )


def loses_precision(cell: Cell) -> bool:
    """True if the bias that :func:`emit_projected` subtracts in the first step and adds to all exceeds float32 precision."""
    if cell.op.tensor(PROJECTION_BIAS) is None:
        return False
    back, added = cell.recurrent, cell.float_operand(PROJECTION_BIAS)
    if not isinstance(back, np.ndarray) or not isinstance(added, np.ndarray):
        return False
    return float((np.abs(back) @ np.abs(added)).max(initial=0)) > MAX_ADDED


def emit_lstm(layers: Sequence[Cell], x: Value, starts: Starts, shared: bool = False) -> Sequence[Sequence[Value]]:
    """Emit LSTM in one or both directions. ``shared``: other nodes use its matrices too."""
    ctx, ops, n = layers[0].ctx, layers[0].ops, len(layers)
    activations = ONNX_ACTIVATIONS[ctx.options.fused_activation_function]
    matrices = stack_values if shared else stack_directions
    y, hidden, cells = ops.LSTM(
        x,
        matrices(ops, [stack_gates(cell, cell.input_weights) for cell in layers]),
        matrices(ops, [recurrent_operand(cell) for cell in layers]),
        stack_directions(ops, [bias_operand(cell) for cell in layers]),
        None,
        stack_initial_states(ctx, [hidden for hidden, _ in starts]),
        stack_initial_states(ctx, [cells for _, cells in starts]),
        stack_directions(ops, [peephole_operand(cell) for cell in layers]) if layers[0].peeps else None,
        activations=None if activations is None else [*activations] * n,
        direction=None if n == 1 and not layers[0].reverse else "bidirectional" if n == 2 else "reverse",
        hidden_size=layers[0].cells,
        outputs=3,
    )
    if n == 1:
        return [(ops.Squeeze(y, [1]), ops.Squeeze(hidden, [0]), ops.Squeeze(cells, [0]))]
    parts = [ops.Split(value, [1] * n, axis=axis, outputs=n) for value, axis in ((y, 1), (hidden, 0), (cells, 0))]
    return [(ops.Squeeze(a, [1]), ops.Squeeze(b, [0]), ops.Squeeze(c, [0])) for a, b, c in zip(*parts, strict=True)]


def emit_projected(layers: Sequence[Cell], x: Value, starts: Starts) -> Sequence[Sequence[Value]]:
    """Emit one LSTM per direction on outputs before projection, and the projection of all time steps at once.

    Recurrent weights are the file's times the projection's. The initial state is already projected, so it becomes an
    input of the first time step only: x is concatenated with it, followed by zeros.
    """
    return [emit_projected_lstm(cell, x, *start) for cell, start in zip(layers, starts, strict=True)]


def emit_projected_lstm(cell: Cell, x: Value, hidden: Value, cells: Value) -> Sequence[Value]:
    """Emit the LSTM and the projection of one direction."""
    ctx, ops, n, projection = cell.ctx, cell.ops, cell.cells, cell.weights([PROJECTION])
    added = cell.float_operand(PROJECTION_BIAS) if cell.op.tensor(PROJECTION_BIAS) is not None else None
    inward, back, bias = stack_gates(cell, cell.input_weights), recurrent_operand(cell), bias_operand(cell)
    first = hidden if added is None else ops.Sub(hidden, added)
    constant = ctx.constant_array(hidden)
    if added is not None or constant is None or constant.any():
        others = ops.Sub(ops.Slice(ops.Shape(x), [0], [1]), np.array([1], np.int64))
        before, after = (others, NONE) if cell.reverse else (NONE, others)
        pads = ops.Concat(before, NONE, NONE, after, NONE, NONE, axis=0)
        x = ops.Concat(x, ops.Pad(ops.Unsqueeze(first, [0]), pads), axis=2)
        inward = ops.Concat(inward, back, axis=1)
    if added is not None:
        seen = ops.Reshape(ops.MatMul(back, ops.Unsqueeze(added, [1])), [-1])
        bias = ops.Add(bias, ops.Concat(seen, np.zeros(4 * n, np.float32), axis=0))
    activations = ONNX_ACTIVATIONS[ctx.options.fused_activation_function]
    y, _, cells = ops.LSTM(
        x,
        stack_values(ops, [inward]),
        stack_values(ops, [ops.MatMul(back, projection)]),
        stack_values(ops, [bias]),
        None,
        None,
        stack_initial_states(ctx, [cells]),
        stack_directions(ops, [peephole_operand(cell)]) if cell.peeps else None,
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


def stack_gates(
    cell: Cell, part: Callable[[Gate], Value | Array], gates: Sequence[Gate] | None = None
) -> Value | Array:
    """Concatenate one operand per gate.

    A missing input gate is computed from the negated forget gate's sums: 1 - sigmoid(x) is sigmoid(-x).
    """
    parts = [part(gate) for gate in (cell.gates if gates is None else gates)]
    if INPUT not in cell.gates:
        left = part(FORGET)
        parts.insert(0, -left if isinstance(left, np.ndarray) else cell.ops.Neg(left))
    return cell.concatenate(parts)


def recurrent_operand(cell: Cell) -> Value | Array:
    return stack_gates(cell, lambda gate: cell.float_operand(gate.recurrent))


def bias_operand(cell: Cell) -> Value | Array:
    """Return the input's biases, and zeros for the recurrent ones."""
    bias, none = stack_gates(cell, lambda gate: cell.float_operand(gate.bias)), np.zeros(4 * cell.cells, np.float32)
    return np.concatenate([bias, none]) if isinstance(bias, np.ndarray) else cell.ops.Concat(bias, none, axis=0)


def peephole_operand(cell: Cell) -> Value | Array:
    return stack_gates(
        cell, lambda gate: cell.float_operand(gate.peephole or 0), [gate for gate in cell.gates if gate.peephole]
    )


def emit_lstm_or_scan(layers: Sequence[Cell], x: Value, starts: Starts) -> Sequence[Sequence[Value]]:
    """Emit LSTM without a clip, or a Scan where a cell may exceed 5, which is rare: the bound is usually 10.

    Only a Scan on targets that have no If.
    """
    ops, ctx, n = layers[0].ops, layers[0].ctx, len(layers)
    room = max_initial_cell(layers[0])
    if room > 0 and all(is_initial_below(ctx, cells, room) for _, cells in starts):
        return emit_lstm(layers, x, starts)
    if "If" in ctx.target.lacks:
        return emit_scans(layers, x, starts)
    unbounded = emit_lstm(layers, x, starts, shared=True)
    if 2 * room > float(ctx.options.cell_clip):
        are_safe = [ops.Less(ops.ReduceMax(ops.Abs(cells), keepdims=0), room) for _, cells in starts]
    else:
        are_safe = [
            is_unclipped(cell, x, hidden, y)
            for cell, (hidden, _), (y, *_) in zip(layers, starts, unbounded, strict=True)
        ]
    exact = ctx.graph(lambda: [value for outputs in emit_scans(layers, x, starts) for value in outputs])
    either = ops.If(
        are_safe[0] if n == 1 else ops.And(*are_safe),
        then_branch=ctx.graph(lambda: [value for outputs in unbounded for value in outputs]),
        else_branch=exact,
        outputs=3 * n,
    )
    return [either[3 * k : 3 * k + 3] for k in range(n)]


def max_initial_cell(cell: Cell) -> float:
    """Return the magnitude below which initial cells cannot reach the bound: each time step adds at most 1."""
    time = cell.op[0].dims[0 if cell.ctx.options.time_major else 1]
    return float(cell.ctx.options.cell_clip) - (inf if time is None else time)


def is_initial_below(ctx: Context, cells: Value, most: float) -> bool:
    """True if cells are constant initial values below ``most``."""
    constant = ctx.constant_array(cells)
    return constant is not None and bool(np.abs(constant).max(initial=0) < most)


def is_unclipped(cell: Cell, x: Value, hidden: Value, y: Value) -> Value:
    """Emit a condition that no cell of the sequence came near its bound.

    An output is its gate times the tanh of the cell, and all gates can be computed at once from the outputs.
    """
    ops = cell.ops
    first = ops.Unsqueeze(hidden, [0])
    before = (
        ops.Concat(ops.Slice(y, [1], [2**31 - 1], [0]), first, axis=0)
        if cell.reverse
        else ops.Concat(first, ops.Slice(y, [0], [-1], [0]), axis=0)
    )
    of_input, of_output = (cell.slice_gate(joined, OUTPUT) for joined in (cell.all_input_weights(), cell.recurrent))
    seen = cell.emit_gemm(x, of_input, cell.float_operand(OUTPUT.bias), 1)
    sums = ops.Add(seen, cell.emit_gemm(before, of_output, None, 1))
    most = ops.Mul(ops.Sigmoid(sums), tanh(SAFE_CELL))
    return ops.Less(ops.ReduceMax(ops.Sub(ops.Abs(y), most), keepdims=0), -MIN_GATE)


def emit_scans(layers: Sequence[Cell], x: Value, starts: Starts) -> Sequence[Sequence[Value]]:
    return [emit_scan(cell, x, *start) for cell, start in zip(layers, starts, strict=True)]


def emit_scan(cell: Cell, x: Value, hidden: Value, cells: Value) -> Sequence[Value]:
    """Emit a Scan over time, after a product of all time steps' inputs."""

    def body(hidden: Value, cells: Value, products: Value) -> list[Value]:
        hidden, cells = cell.emit_step(hidden, cells, products)
        return [cell.convert_state(hidden), cells, hidden]

    sizes = (cell.outputs, cell.cells, len(cell.gates) * cell.cells)
    names = ("hidden", "cells", "products")
    types = [(name, dtype, (None, size)) for name, dtype, size in zip(names, cell.states_of, sizes, strict=True)]
    inner, back = cell.ctx.graph(body, types), [1] if cell.reverse else None
    hidden, cells, y = cell.ops.Scan(
        hidden,
        cells,
        cell.emit_products(x),
        body=inner,
        num_scan_inputs=1,
        scan_input_directions=back,
        scan_output_directions=back,
        outputs=3,
    )
    return y, hidden, cells
