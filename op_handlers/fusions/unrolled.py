"""Unrolled recurrent layers, as PyTorch exports them.

Each layer becomes one LSTM, GRU or RNN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product, starmap
from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    NotQuantizable,
    Operator,
    Region,
    Tensor,
    Terminate,
    Value,
    fusion,
    out,
)
from op_handlers.fusions.loops import emit_layer, reverse_time
from op_handlers.kernels.recurrent_cells import Cell, fused_activation
from op_handlers.kernels.unrolled_cells import Chain, UnrolledDataflow

JOIN_CODES = ("CONCATENATION", "PACK")


class AllOutputs(NamedTuple):
    """The outputs of all steps in one tensor.

    ``reversed_time``: the last step comes first. ``batch_first``: the batch is the first axis.
    """

    reversed_time: bool
    batch_first: bool


class StepOutput(NamedTuple):
    """The output of one step."""

    step: int


class FinalCells(NamedTuple):
    """The cell state of an LSTM after the last step."""


class Layer(NamedTuple):
    """A recurrent layer.

    ``rows``: indices of the input rows that the cell reads, [T, B] in time order. ``backwards``: the layer starts at
    the last time step.
    """

    cell: Cell
    rows: Array
    backwards: bool
    results: Sequence[AllOutputs | StepOutput | FinalCells]


def recurrent_layers(operators: Sequence[Operator]) -> Iterator[Region]:
    """Yield the region of each unrolled recurrent layer of a graph."""
    joins = [op for op in operators if op.code in JOIN_CODES]
    for chain in UnrolledDataflow(operators).chains():
        backwards = bool((np.diff(chain.rows[:, 0]) < 0).all())
        rows = chain.rows[::-1] if backwards else chain.rows
        results: dict[Tensor, AllOutputs | StepOutput | FinalCells] = dict(sequence_outputs(chain, joins))
        results |= {states[0]: StepOutput(k) for k, states in enumerate(chain.states)}
        results |= {cells: FinalCells() for cells in chain.states[-1][1:]}
        layer = Layer(chain.cell, rows, backwards, tuple(results.values()))
        yield Region((chain.x, *chain.initial_states), tuple(results), {"layer": layer})


def sequence_outputs(chain: Chain, joins: Sequence[Operator]) -> Iterator[tuple[Tensor, AllOutputs]]:
    """Yield the tensors that join the outputs of all steps, with their arrangement."""
    step_by_output = {states[0]: k for k, states in enumerate(chain.states)}
    steps, batch = chain.rows.shape
    row_numbers = np.arange(steps * batch).reshape(steps, batch)
    for op in joins:
        steps_of_operands = [step_by_output.get(tensor) for tensor in op.inputs if tensor is not None]
        axis = op.options.axis % op[out(0)].rank
        if (
            len(steps_of_operands) != steps
            or None in steps_of_operands
            or axis == op[out(0)].rank - 1
            or fused_activation(op) != "NONE"
        ):
            continue
        parts = [row_numbers[k].reshape(op[0].shape[:-1]) for k in steps_of_operands]
        positions = (np.stack if op.code == "PACK" else np.concatenate)(parts, axis).reshape(-1)
        for arrangement in starmap(AllOutputs, product((False, True), repeat=2)):
            ordered_rows = row_numbers[::-1] if arrangement.reversed_time else row_numbers
            if np.array_equal(positions, (ordered_rows.T if arrangement.batch_first else ordered_rows).reshape(-1)):
                yield op[out(0)], arrangement
                break


@fusion("UNROLLED_RECURRENT", regions=recurrent_layers, layout=Terminate(), quantization=NotQuantizable())
def unrolled_recurrent(ctx: Context, x: Value, *initial_values: Value) -> tuple[Value | None, ...]:
    """Emit a GRU, LSTM or RNN on the complete sequence.

    Slices of its output are the outputs of single steps.
    """
    ops, layer = ctx.ops, ctx.options.layer
    steps, batch = layer.rows.shape
    state_count = 2 if layer.cell.op_type == "LSTM" else 1
    initial_states = (
        [ops.Reshape(value, [1, batch, -1]) for value in initial_values] if initial_values else [None] * state_count
    )
    y, *final_states = emit_layer(
        ctx,
        [layer.cell],
        emit_sequence(ctx, x, layer.rows),
        initial_states,
        "reverse" if layer.backwards else "forward",
    )
    y = ops.Squeeze(y, [1])

    def emit_result(result: AllOutputs | StepOutput | FinalCells, tensor: Tensor) -> Value:
        if isinstance(result, FinalCells):
            value = final_states[1]
        elif isinstance(result, AllOutputs):
            value = reverse_time(ops, y) if result.reversed_time != layer.backwards else y
            value = ops.Transpose(value, perm=[1, 0, 2]) if result.batch_first else value
        elif result.step == steps - 1:
            value = final_states[0]
        else:
            step = steps - 1 - result.step if layer.backwards else result.step
            value = ops.Slice(y, [step], [step + 1], [0])
        return value if value.shape == tensor.shape else ops.Reshape(value, [*tensor.shape])

    return tuple(
        emit_result(result, ctx.op[out(k)]) if ctx.is_used(k) else None for k, result in enumerate(layer.results)
    )


def emit_sequence(ctx: Context, x: Value, rows: Array) -> Value:
    """Return the sequence (T, B, I) of input rows."""
    ops, tensor = ctx.ops, ctx.op[0]
    steps, batch = rows.shape
    all_rows, width = np.arange(prod(tensor.shape[:-1])), tensor.shape[-1]
    if np.array_equal(rows.reshape(-1), all_rows):
        return x if tensor.shape == (steps, batch, width) else ops.Reshape(x, [steps, batch, width])
    if np.array_equal(rows.T.reshape(-1), all_rows):
        batch_first = x if tensor.shape == (batch, steps, width) else ops.Reshape(x, [batch, steps, width])
        return ops.Transpose(batch_first, perm=[1, 0, 2])
    return ops.Gather(ops.Reshape(x, [-1, width]), rows, axis=0)
