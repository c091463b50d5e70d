"""Recurrent layers that are unrolled step by step, as PyTorch exports them, fused into one LSTM, GRU or RNN each."""

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
from op_handlers.kernels.unrolled_cells import Chain, Unrolled

JOINS = ("CONCATENATION", "PACK")


class AllOutputs(NamedTuple):
    """Outputs of all steps in one tensor: last step first if ``reversed_time``, batch first if ``by_batch``."""

    reversed_time: bool
    by_batch: bool


class StepOutput(NamedTuple):
    """Output of one step."""

    step: int


class FinalCells(NamedTuple):
    """Cell state of an LSTM after its last step."""


class Layer(NamedTuple):
    """Cell and its input rows, [T, B] in time order; ``backwards``: processing starts at the last time step."""

    cell: Cell
    places: Array
    backwards: bool
    results: Sequence[AllOutputs | StepOutput | FinalCells]


def recurrent_layers(operators: Sequence[Operator]) -> Iterator[Region]:
    """Yield every recurrent layer of a graph."""
    joined = [op for op in operators if op.code in JOINS]
    for chain in Unrolled(operators).chains():
        backwards = bool((np.diff(chain.places[:, 0]) < 0).all())
        places = chain.places[::-1] if backwards else chain.places
        results: dict[Tensor, AllOutputs | StepOutput | FinalCells] = dict(sequence_outputs(chain, joined))
        results |= {states[0]: StepOutput(k) for k, states in enumerate(chain.states)}
        results |= {cells: FinalCells() for cells in chain.states[-1][1:]}
        layer = Layer(chain.cell, places, backwards, tuple(results.values()))
        yield Region((chain.x, *chain.starts), tuple(results), {"layer": layer})


def sequence_outputs(chain: Chain, joined: Sequence[Operator]) -> Iterator[tuple[Tensor, AllOutputs]]:
    """Yield tensors that hold exactly the outputs of all steps."""
    step_of = {states[0]: k for k, states in enumerate(chain.states)}
    steps, batch = chain.places.shape
    numbers = np.arange(steps * batch).reshape(steps, batch)
    for op in joined:
        steps_of_operands = [step_of.get(tensor) for tensor in op.inputs if tensor is not None]
        axis = op.options.axis % op[out(0)].rank
        if (
            len(steps_of_operands) != steps
            or None in steps_of_operands
            or axis == op[out(0)].rank - 1
            or fused_activation(op) != "NONE"
        ):
            continue
        parts = [numbers[k].reshape(op[0].shape[:-1]) for k in steps_of_operands]
        positions = (np.stack if op.code == "PACK" else np.concatenate)(parts, axis).reshape(-1)
        for every in starmap(AllOutputs, product((False, True), repeat=2)):
            rows = numbers[::-1] if every.reversed_time else numbers
            if np.array_equal(positions, (rows.T if every.by_batch else rows).reshape(-1)):
                yield op[out(0)], every
                break


@fusion("UNROLLED_RECURRENT", regions=recurrent_layers, layout=Terminate(), quantization=NotQuantizable())
def unrolled_recurrent(ctx: Context, x: Value, *starts: Value) -> tuple[Value | None, ...]:
    """Emit a GRU, LSTM or RNN on the whole sequence; outputs of single steps are sliced from it."""
    ops, layer = ctx.ops, ctx.options.layer
    steps, batch = layer.places.shape
    states = 2 if layer.cell.op_type == "LSTM" else 1
    initial_states = [ops.Reshape(start, [1, batch, -1]) for start in starts] if starts else [None] * states
    y, *last = emit_layer(
        ctx,
        [layer.cell],
        emit_sequence(ctx, x, layer.places),
        initial_states,
        "reverse" if layer.backwards else "forward",
    )
    y = ops.Squeeze(y, [1])

    def emit_result(result: AllOutputs | StepOutput | FinalCells, tensor: Tensor) -> Value:
        if isinstance(result, FinalCells):
            value = last[1]
        elif isinstance(result, AllOutputs):
            value = reverse_time(ops, y) if result.reversed_time != layer.backwards else y
            value = ops.Transpose(value, perm=[1, 0, 2]) if result.by_batch else value
        elif result.step == steps - 1:
            value = last[0]
        else:
            at = steps - 1 - result.step if layer.backwards else result.step
            value = ops.Slice(y, [at], [at + 1], [0])
        return value if value.shape == tensor.shape else ops.Reshape(value, [*tensor.shape])

    return tuple(
        emit_result(result, ctx.op[out(k)]) if ctx.is_used(k) else None for k, result in enumerate(layer.results)
    )


def emit_sequence(ctx: Context, x: Value, places: Array) -> Value:
    """Return the rows of each step and batch, (T, B, I)."""
    ops, tensor = ctx.ops, ctx.op[0]
    steps, batch = places.shape
    every, width = np.arange(prod(tensor.shape[:-1])), tensor.shape[-1]
    if np.array_equal(places.reshape(-1), every):
        return x if tensor.shape == (steps, batch, width) else ops.Reshape(x, [steps, batch, width])
    if np.array_equal(places.T.reshape(-1), every):
        by_batch = x if tensor.shape == (batch, steps, width) else ops.Reshape(x, [batch, steps, width])
        return ops.Transpose(by_batch, perm=[1, 0, 2])
    return ops.Gather(ops.Reshape(x, [-1, width]), places, axis=0)
