"""LSTMs on sequences, emitted as ONNX's LSTM or as a Scan of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, tanh

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Value
from op_handlers.kernels.recurrent import stack_directions, stack_initial_states, stack_values
from op_handlers.sequence.lstm.cell import FORGET, INPUT, OUTPUT, PROJECTION, PROJECTION_BIAS, Cell, Gate

InitialStates = Sequence[tuple[Value, Value]]
"""Output and cells before the first step, per direction."""
Emitter = Callable[[Sequence[Cell], Value, InitialStates], Sequence[Sequence[Value]]]
"""Function that emits a sequence, given the cell of each direction, the input and the initial states.

The function returns all outputs, the last output and the last cells of each direction.
"""
ONNX_ACTIVATIONS: Mapping[str, Sequence[str] | None] = {"TANH": None, "RELU": ("Sigmoid", "Relu", "Relu")}
"""ONNX's activations of gates, update and cells; ``None`` is the default."""
SAFE_CELL = 5.0  # tanh(5) is 1 - 1e-4, which differs from 1 by more than the rounding errors of a gate
ZERO = np.zeros(1, np.int64)
MAX_BIAS_SUM = 256.0  # in float32, the last bit of this number is 3e-5
MIN_GATE = 1e-6  # larger than the error of a gate; the output of a smaller gate reveals nothing about its cell


def choose_emitter(cell: Cell) -> Emitter:
    """Return the function that emits a cell's sequence.

    ONNX's LSTM requires float32, and its ``clip`` bounds gate inputs, not cells.

    For int8, ONNX's LSTM would need reshaped states. At opset 21, which 16-bit states need, ONNX Runtime moves
    QuantizeLinear and DequantizeLinear past the reshapes and then does not load the model.
    """
    options, activation = cell.ctx.options, cell.ctx.options.fused_activation_function
    if cell.op[0].dtype == "int8" or activation not in ONNX_ACTIVATIONS or cell.normalizes:
        return emit_scans
    if cell.projection is not None:
        return emit_scans if options.proj_clip or options.cell_clip or loses_precision(cell) else emit_projected
    if not options.cell_clip:
        return emit_lstm
    return (
        emit_lstm_or_scan
        if options.cell_clip > SAFE_CELL and activation == "TANH" and not cell.has_peepholes
        else emit_scans
    )


def loses_precision(cell: Cell) -> bool:
    """True if the projection bias is too large for :func:`emit_projected`.

    That function subtracts the bias and adds it again, which loses precision if the bias is large.
    """
    if cell.op.tensor(PROJECTION_BIAS) is None:
        return False
    recurrent, bias = cell.recurrent, cell.float_operand(PROJECTION_BIAS)
    if not isinstance(recurrent, np.ndarray) or not isinstance(bias, np.ndarray):
        return False
    return float((np.abs(recurrent) @ np.abs(bias)).max(initial=0)) > MAX_BIAS_SUM


def emit_lstm(
    layers: Sequence[Cell], x: Value, initial_states: InitialStates, shared: bool = False
) -> Sequence[Sequence[Value]]:
    """Emit LSTM in one or both directions.

    ``layers``: the cell of each direction. ``shared``: other nodes also use the weights.
    """
    ctx, ops, direction_count = layers[0].ctx, layers[0].ops, len(layers)
    activations = ONNX_ACTIVATIONS[ctx.options.fused_activation_function]
    stack_matrices = stack_values if shared else stack_directions
    y, hidden, cells = ops.LSTM(
        x,
        stack_matrices(ops, [stack_gates(cell, cell.input_weights) for cell in layers]),
        stack_matrices(ops, [recurrent_operand(cell) for cell in layers]),
        stack_directions(ops, [bias_operand(cell) for cell in layers]),
        None,
        stack_initial_states(ctx, [hidden for hidden, _ in initial_states]),
        stack_initial_states(ctx, [cells for _, cells in initial_states]),
        stack_directions(ops, [peephole_operand(cell) for cell in layers]) if layers[0].has_peepholes else None,
        activations=None if activations is None else [*activations] * direction_count,
        direction="bidirectional" if direction_count == 2 else "reverse" if layers[0].reverse else None,
        hidden_size=layers[0].cell_count,
        outputs=3,
    )
    if direction_count == 1:
        return [(ops.Squeeze(y, [1]), ops.Squeeze(hidden, [0]), ops.Squeeze(cells, [0]))]
    by_direction = [
        ops.Split(value, [1] * direction_count, axis=axis, outputs=direction_count)
        for value, axis in ((y, 1), (hidden, 0), (cells, 0))
    ]
    return [
        (ops.Squeeze(all_outputs, [1]), ops.Squeeze(last_output, [0]), ops.Squeeze(last_cells, [0]))
        for all_outputs, last_output, last_cells in zip(*by_direction, strict=True)
    ]


def emit_projected(layers: Sequence[Cell], x: Value, initial_states: InitialStates) -> Sequence[Sequence[Value]]:
    """Emit one LSTM per direction, followed by one projection for all time steps.

    The recurrent weights of the file are multiplied by the projection weights. The initial state is already projected, so
    it becomes an additional input of the first time step. It is concatenated to x, with zeros for the other steps.
    """
    return [
        emit_projected_lstm(cell, x, *initial_state) for cell, initial_state in zip(layers, initial_states, strict=True)
    ]


def emit_projected_lstm(cell: Cell, x: Value, hidden: Value, cells: Value) -> Sequence[Value]:
    """Emit the LSTM and the projection of one direction."""
    ctx, ops, cell_count, projection = cell.ctx, cell.ops, cell.cell_count, cell.weights([PROJECTION])
    projection_bias = cell.float_operand(PROJECTION_BIAS) if cell.op.tensor(PROJECTION_BIAS) is not None else None
    input_matrix = stack_gates(cell, cell.input_weights)
    recurrent_matrix, bias = recurrent_operand(cell), bias_operand(cell)
    first_input = hidden if projection_bias is None else ops.Sub(hidden, projection_bias)
    constant_hidden = ctx.constant_array(hidden)
    if projection_bias is not None or constant_hidden is None or constant_hidden.any():
        later_steps = ops.Sub(ops.Slice(ops.Shape(x), [0], [1]), np.array([1], np.int64))
        steps_before, steps_after = (later_steps, ZERO) if cell.reverse else (ZERO, later_steps)
        pads = ops.Concat(steps_before, ZERO, ZERO, steps_after, ZERO, ZERO, axis=0)
        x = ops.Concat(x, ops.Pad(ops.Unsqueeze(first_input, [0]), pads), axis=2)
        input_matrix = ops.Concat(input_matrix, recurrent_matrix, axis=1)
    if projection_bias is not None:
        bias_products = ops.Reshape(ops.MatMul(recurrent_matrix, ops.Unsqueeze(projection_bias, [1])), [-1])
        bias = ops.Add(bias, ops.Concat(bias_products, np.zeros(4 * cell_count, np.float32), axis=0))
    activations = ONNX_ACTIVATIONS[ctx.options.fused_activation_function]
    y, _, cells = ops.LSTM(
        x,
        stack_values(ops, [input_matrix]),
        stack_values(ops, [ops.MatMul(recurrent_matrix, projection)]),
        stack_values(ops, [bias]),
        None,
        None,
        stack_initial_states(ctx, [cells]),
        stack_directions(ops, [peephole_operand(cell)]) if cell.has_peepholes else None,
        activations=None if activations is None else [*activations],
        direction="reverse" if cell.reverse else None,
        hidden_size=cell_count,
        outputs=3,
    )
    transposed = projection.T.copy() if isinstance(projection, np.ndarray) else ops.Transpose(projection, perm=[1, 0])
    y = ops.MatMul(ops.Squeeze(y, [1]), transposed)
    y = y if projection_bias is None else ops.Add(y, projection_bias)
    last_output = ops.Gather(y, np.array(0 if cell.reverse else -1, np.int64), axis=0)
    return y, last_output, ops.Squeeze(cells, [0])


def stack_gates(
    cell: Cell, operand: Callable[[Gate], Value | Array], gates: Sequence[Gate] | None = None
) -> Value | Array:
    """Return the concatenated operands of all gates.

    A missing input gate gets the negated operand of the forget gate, because 1 - sigmoid(x) is sigmoid(-x).
    """
    operands = [operand(gate) for gate in (cell.gates if gates is None else gates)]
    if INPUT not in cell.gates:
        forget_operand = operand(FORGET)
        operands.insert(0, -forget_operand if isinstance(forget_operand, np.ndarray) else cell.ops.Neg(forget_operand))
    return cell.concatenate(operands)


def recurrent_operand(cell: Cell) -> Value | Array:
    return stack_gates(cell, lambda gate: cell.float_operand(gate.recurrent))


def bias_operand(cell: Cell) -> Value | Array:
    """Return the input biases, and zeros for the recurrent biases."""
    bias = stack_gates(cell, lambda gate: cell.float_operand(gate.bias))
    recurrent_bias = np.zeros(4 * cell.cell_count, np.float32)
    if isinstance(bias, np.ndarray):
        return np.concatenate([bias, recurrent_bias])
    return cell.ops.Concat(bias, recurrent_bias, axis=0)


def peephole_operand(cell: Cell) -> Value | Array:
    return stack_gates(
        cell, lambda gate: cell.float_operand(gate.peephole or 0), [gate for gate in cell.gates if gate.peephole]
    )


def emit_lstm_or_scan(layers: Sequence[Cell], x: Value, initial_states: InitialStates) -> Sequence[Sequence[Value]]:
    """Emit LSTM without clip, and a Scan for the rare case that a cell is clipped.

    An If selects the Scan at runtime if a cell reaches the bound. Targets without If get a Scan.
    """
    ops, ctx, direction_count = layers[0].ops, layers[0].ctx, len(layers)
    safe_initial_cell = max_initial_cell(layers[0])
    if safe_initial_cell > 0 and all(is_initial_below(ctx, cells, safe_initial_cell) for _, cells in initial_states):
        return emit_lstm(layers, x, initial_states)
    if "If" in ctx.target.missing_operators:
        return emit_scans(layers, x, initial_states)
    unclipped = emit_lstm(layers, x, initial_states, shared=True)
    if 2 * safe_initial_cell > float(ctx.options.cell_clip):  # the sequence is short: check only the initial cells
        are_safe = [
            ops.Less(ops.ReduceMax(ops.Abs(cells), keepdims=0), safe_initial_cell) for _, cells in initial_states
        ]
    else:
        are_safe = [
            is_unclipped(cell, x, hidden, y)
            for cell, (hidden, _), (y, *_) in zip(layers, initial_states, unclipped, strict=True)
        ]
    scan_branch = ctx.graph(lambda: [value for outputs in emit_scans(layers, x, initial_states) for value in outputs])
    results = ops.If(
        are_safe[0] if direction_count == 1 else ops.And(*are_safe),
        then_branch=ctx.graph(lambda: [value for outputs in unclipped for value in outputs]),
        else_branch=scan_branch,
        outputs=3 * direction_count,
    )
    return [results[3 * k : 3 * k + 3] for k in range(direction_count)]


def max_initial_cell(cell: Cell) -> float:
    """Return the magnitude below which initial cells cannot reach the bound.

    Each time step adds at most 1.
    """
    step_count = cell.op[0].dims[0 if cell.ctx.options.time_major else 1]
    return float(cell.ctx.options.cell_clip) - (inf if step_count is None else step_count)


def is_initial_below(ctx: Context, cells: Value, limit: float) -> bool:
    """True if cells are constant initial values below ``limit``."""
    constant = ctx.constant_array(cells)
    return constant is not None and bool(np.abs(constant).max(initial=0) < limit)


def is_unclipped(cell: Cell, x: Value, hidden: Value, y: Value) -> Value:
    """Emit the condition that every cell of the sequence stays below ``SAFE_CELL``.

    An output is gate * tanh(cell), so a cell is below ``SAFE_CELL`` if ``|output| < gate * tanh(SAFE_CELL)``. The output
    gates of all time steps are computed at once from the outputs.
    """
    ops = cell.ops
    initial_output = ops.Unsqueeze(hidden, [0])
    previous_outputs = (
        ops.Concat(ops.Slice(y, [1], [2**31 - 1], [0]), initial_output, axis=0)
        if cell.reverse
        else ops.Concat(initial_output, ops.Slice(y, [0], [-1], [0]), axis=0)
    )
    input_matrix, recurrent_matrix = (
        cell.slice_gate(matrices, OUTPUT) for matrices in (cell.all_input_weights(), cell.recurrent)
    )
    products = cell.emit_gemm(x, input_matrix, cell.float_operand(OUTPUT.bias), 1)
    sums = ops.Add(products, cell.emit_gemm(previous_outputs, recurrent_matrix, None, 1))
    max_output = ops.Mul(ops.Sigmoid(sums), tanh(SAFE_CELL))
    return ops.Less(ops.ReduceMax(ops.Sub(ops.Abs(y), max_output), keepdims=0), -MIN_GATE)


def emit_scans(layers: Sequence[Cell], x: Value, initial_states: InitialStates) -> Sequence[Sequence[Value]]:
    return [emit_scan(cell, x, *initial_state) for cell, initial_state in zip(layers, initial_states, strict=True)]


def emit_scan(cell: Cell, x: Value, hidden: Value, cells: Value) -> Sequence[Value]:
    """Emit the products of the inputs of all time steps, then a Scan over time."""

    def body(hidden: Value, cells: Value, products: Value) -> list[Value]:
        hidden, cells = cell.emit_step(hidden, cells, products)
        return [cell.convert_state(hidden), cells, hidden]

    sizes = (cell.output_size, cell.cell_count, len(cell.gates) * cell.cell_count)
    names = ("hidden", "cells", "products")
    parameters = [
        (name, dtype, (None, size)) for name, dtype, size in zip(names, cell.state_dtypes, sizes, strict=True)
    ]
    scan_body, directions = cell.ctx.graph(body, parameters), [1] if cell.reverse else None
    hidden, cells, y = cell.ops.Scan(
        hidden,
        cells,
        cell.emit_products(x),
        body=scan_body,
        num_scan_inputs=1,
        scan_input_directions=directions,
        scan_output_directions=directions,
        outputs=3,
    )
    return y, hidden, cells
