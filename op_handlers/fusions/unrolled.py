"""Recurrent layers that are spelled out step by step, as PyTorch exports them: one LSTM, GRU or RNN each."""

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
from op_handlers.fusions.loops import node, turned
from op_handlers.kernels.recurrent_cells import Cell, fused_activation
from op_handlers.kernels.unrolled_cells import Chain, Unrolled

JOINS = ("CONCATENATION", "PACK")


class Every(NamedTuple):
    """The outputs of all steps in one tensor, the last first where ``turned``, and batch by batch where ``by_batch``."""

    turned: bool
    by_batch: bool


class One(NamedTuple):
    """The output of a step."""

    step: int


class Cells(NamedTuple):
    """The cells of an LSTM behind its last step."""


class Layer(NamedTuple):
    """A cell over rows of a sequence, (T, B) of them in the order of time; ``backwards``: it begins with the last."""

    cell: Cell
    places: Array
    backwards: bool
    results: Sequence[Every | One | Cells]


def layers(operators: Sequence[Operator]) -> Iterator[Region]:
    """Every layer of a graph."""
    joined = [op for op in operators if op.code in JOINS]
    for chain in Unrolled(operators).chains():
        backwards = bool((np.diff(chain.places[:, 0]) < 0).all())
        places = chain.places[::-1] if backwards else chain.places
        results: dict[Tensor, Every | One | Cells] = dict(together(chain, joined))
        results |= {states[0]: One(k) for k, states in enumerate(chain.states)}
        results |= {cells: Cells() for cells in chain.states[-1][1:]}
        layer = Layer(chain.cell, places, backwards, tuple(results.values()))
        yield Region((chain.x, *chain.starts), tuple(results), {"layer": layer})


def together(chain: Chain, joined: Sequence[Operator]) -> Iterator[tuple[Tensor, Every]]:
    """Tensors that hold the outputs of all steps and nothing else."""
    step_of = {states[0]: k for k, states in enumerate(chain.states)}
    steps, batch = chain.places.shape
    numbers = np.arange(steps * batch).reshape(steps, batch)
    for op in joined:
        given = [step_of.get(tensor) for tensor in op.inputs if tensor is not None]
        axis = op.options.axis % op[out(0)].rank
        if len(given) != steps or None in given or axis == op[out(0)].rank - 1 or fused_activation(op) != "NONE":
            continue
        parts = [numbers[k].reshape(op[0].shape[:-1]) for k in given]
        made = (np.stack if op.code == "PACK" else np.concatenate)(parts, axis).reshape(-1)
        for every in starmap(Every, product((False, True), repeat=2)):
            rows = numbers[::-1] if every.turned else numbers
            if np.array_equal(made, (rows.T if every.by_batch else rows).reshape(-1)):
                yield op[out(0)], every
                break


@fusion("UNROLLED_RECURRENT", regions=layers, layout=Terminate(), quantization=NotQuantizable())
def unrolled_recurrent(ctx: Context, x: Value, *starts: Value) -> tuple[Value | None, ...]:
    """GRU, LSTM or RNN over the whole sequence; its outputs are cut again for who takes one step's."""
    ops, layer = ctx.ops, ctx.options.layer
    steps, batch = layer.places.shape
    states = 2 if layer.cell.op_type == "LSTM" else 1
    begins = [ops.Reshape(start, [1, batch, -1]) for start in starts] if starts else [None] * states
    y, *last = node(
        ctx, [layer.cell], sequence(ctx, x, layer.places), begins, "reverse" if layer.backwards else "forward"
    )
    y = ops.Squeeze(y, [1])

    def given(result: Every | One | Cells, tensor: Tensor) -> Value:
        if isinstance(result, Cells):
            value = last[1]
        elif isinstance(result, Every):
            value = turned(ops, y) if result.turned != layer.backwards else y
            value = ops.Transpose(value, perm=[1, 0, 2]) if result.by_batch else value
        elif result.step == steps - 1:
            value = last[0]
        else:
            at = steps - 1 - result.step if layer.backwards else result.step
            value = ops.Slice(y, [at], [at + 1], [0])
        return value if value.shape == tensor.shape else ops.Reshape(value, [*tensor.shape])

    return tuple(given(result, ctx.op[out(k)]) if ctx.wanted(k) else None for k, result in enumerate(layer.results))


def sequence(ctx: Context, x: Value, places: Array) -> Value:
    """The rows of each step and batch, (T, B, I)."""
    ops, tensor = ctx.ops, ctx.op[0]
    steps, batch = places.shape
    every, width = np.arange(prod(tensor.shape[:-1])), tensor.shape[-1]
    if np.array_equal(places.reshape(-1), every):
        return x if tensor.shape == (steps, batch, width) else ops.Reshape(x, [steps, batch, width])
    if np.array_equal(places.T.reshape(-1), every):
        by_batch = x if tensor.shape == (batch, steps, width) else ops.Reshape(x, [batch, steps, width])
        return ops.Transpose(by_batch, perm=[1, 0, 2])
    return ops.Gather(ops.Reshape(x, [-1, width]), places, axis=0)
