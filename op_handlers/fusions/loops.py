"""Loops that spell out a recurrent layer, as Keras 3 leaves them: a WHILE of GATHER, a cell, and a write into an array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Call,
    Context,
    Decline,
    Match,
    NotQuantizable,
    Operator,
    Subgraph,
    Tensor,
    Terminate,
    Value,
    fusion,
    operands,
)
from op_handlers.kernels.recurrent import begun
from op_handlers.kernels.spelled_cells import Body, Cell, Matrix

CARRIED = operands(" ".join(f"value{k}" for k in range(8)))
LOOPS = tuple(Call("WHILE", *CARRIED[:n]) for n in range(4, len(CARRIED) + 1))


@dataclass(frozen=True)
class Layer:
    """A recurrent layer: its cell, the slots of sequence and states among the values carried, and what each result is.

    ``results``: the number that a counter ends with, or "carried", "every" (output of each time step), "last", "hidden", "cells".
    """

    cell: Cell
    sequence: int
    hidden: int
    cells: int | None
    results: tuple[int | str, ...]


def layer(match: Match) -> Mapping[str, Any] | Decline:
    """What the loop is, where it is exactly a layer; nobody expects it of others."""
    loop = match.calls[next(pattern for pattern in LOOPS if pattern in match.calls)]
    graphs, options = match.graphs, loop.options
    recognized = Loop(loop, graphs[options.cond_subgraph_index], graphs[options.body_subgraph_index]).layer()
    return Decline("") if recognized is None else {"layer": recognized}


class Loop:
    """A WHILE that counts from 0 by one to a constant, and what its body does with the values carried."""

    def __init__(self, op: Operator, cond: Subgraph, body: Subgraph) -> None:
        self.op, self.cond, self.graph, self.body = op, cond, body, Body(body)
        self.counters = [k for k in range(len(body.outputs)) if self._counts(k)]
        self.forwarded = [k for k, tensor in enumerate(body.outputs) if tensor is body.inputs[k]]

    def _counts(self, k: int) -> bool:
        start = self.op.constant(k)
        if start is None or start.shape != () or start.dtype.kind != "i" or start.item() != 0:
            return False
        value = self.graph.inputs[k]
        steps = [b for a, b in self.body.pairs(self.graph.outputs[k], "ADD") if a is value and b.constant]
        return any(step.array.size == 1 and step.array.item() == 1 for step in steps)

    def trips(self) -> int | None:
        """How often it runs, where its condition compares nothing but counters with constants."""
        condition, waiting, bounds = Body(self.cond), list(self.cond.outputs), []
        while waiting:
            tensor = waiting.pop()
            both = condition.made(tensor, "LOGICAL_AND")
            if both is not None:
                waiting += [both[0], both[1]]
                continue
            less = condition.made(tensor, "LESS")
            bound = None if less is None else less.constant(1)
            if (
                less is None
                or bound is None
                or bound.size != 1
                or less[0] not in [self.cond.inputs[k] for k in self.counters]
            ):
                return None
            bounds.append(int(bound.item()))
        return min(bounds, default=None)

    def layer(self) -> Layer | None:
        trips = self.trips()
        if not trips or trips < 1:
            return None
        others = [k for k in range(len(self.graph.outputs)) if k not in self.counters and k not in self.forwarded]
        for sequence, x in self._read(trips):
            for cell, hidden, cells in self._cells(x, others):
                results = tuple(self._result(k, trips, hidden, cells) for k in range(len(self.graph.outputs)))
                if None not in results:
                    return Layer(cell, sequence, hidden, cells, results)  # type: ignore[arg-type]
        return None

    def _read(self, trips: int) -> Iterator[tuple[int, Tensor]]:
        """Sequences of as many time steps, of which the body reads the one that a counter tells."""
        for op in self.graph.operators:
            if op.code != "GATHER" or op.options.axis or op.options.batch_dims or not self._is_counter(op[1]):
                continue
            for k in self.forwarded:
                value = self.graph.inputs[k]
                if value is op[0] and value.rank == 3 and value.dims[0] == trips and value.dtype == "float32":
                    yield k, op[~0]

    def _is_counter(self, tensor: Tensor) -> bool:
        return any(tensor is self.graph.inputs[k] for k in self.counters)

    def _cells(self, x: Tensor, slots: Sequence[int]) -> Iterator[tuple[Cell, int, int | None]]:
        """Cells that two of these slots carry, or one."""
        before, after = self.graph.inputs, self.graph.outputs
        for h in slots:
            for c in slots:
                cell = self.body.lstm(x, after[h], before[h], after[c], before[c]) if c != h else None
                if cell is not None:
                    yield cell, h, c
            plain = self.body.gru(x, after[h], before[h]) or self.body.plain(x, after[h], before[h])
            if plain is not None:
                yield plain, h, None

    def _result(self, k: int, trips: int, hidden: int, cells: int | None) -> int | str | None:
        if k in self.counters:
            return trips
        if k in self.forwarded:
            return "carried"
        if k in (hidden, cells):
            return "hidden" if k == hidden else "cells"
        array, before, output = self.graph.outputs[k], self.graph.inputs[k], self.graph.outputs[hidden]
        if self._is_row(array, output):
            return "last"
        return "every" if array.dims[:1] == (trips,) and self._writes(array, before, output) else None

    def _is_row(self, tensor: Tensor, output: Tensor) -> bool:
        """Whether a tensor is the output with an axis of size 1 in front."""
        return self.body.of(tensor, "RESHAPE") is output and tensor.shape == (1, *output.shape)

    def _writes(self, array: Tensor, before: Tensor, output: Tensor) -> bool:
        """Whether the body puts the output in the place of the array's row that a counter tells."""
        op = self.body.made(array, "CONCATENATION")
        if op is None or op.options.axis or len(op.inputs) != 3 or not self._is_row(op[1], output):
            return False
        head, tail = (self.body.made(op[slot], "SLICE") for slot in (0, 2))
        if head is None or tail is None or head[0] is not before or tail[0] is not before:
            return False
        begin, sizes = head.constant(1), tail.constant(2)
        whole = [*before.shape[1:]]
        if (
            begin is None
            or begin.any()
            or sizes is None
            or any(n not in (-1, size) for n, size in zip(sizes[1:], whole, strict=True))
        ):
            return False
        return sizes[0] == -1 and self._place(head[2], whole, 0) and self._place(tail[1], whole, 1)

    def _place(self, tensor: Tensor, whole: Sequence[int], more: int) -> bool:
        """Whether this is ``[counter + more, ...]``: all of the other axes as a size, or their beginning."""
        op = self.body.made(tensor, "CONCATENATION")
        rest = None if op is None else op.constant(1)
        row = None if op is None else self.body.of(op[0], "RESHAPE")
        if row is None or rest is None or len(rest) != len(whole):
            return False
        if more:
            return not rest.any() and any(row is self.graph.outputs[k] for k in self.counters)
        return self._is_counter(row) and all(n in (-1, size) for n, size in zip(rest, whole, strict=True))


@fusion(
    "WHILE_RECURRENT", pattern=LOOPS, inputs=CARRIED, where=layer, layout=Terminate(), quantization=NotQuantizable()
)
def while_recurrent(ctx: Context, *carried: Value) -> tuple[Value, ...]:
    """GRU, LSTM or RNN over the whole sequence."""
    found: Layer = ctx.options.layer
    cell, ops = found.cell, ctx.ops
    states = [found.hidden] if found.cells is None else [found.hidden, found.cells]
    starts = [None if is_zero(ctx, slot) else begun(ctx, [carried[slot]]) for slot in states]
    y, *last = ops.named(cell.op_type)(
        carried[found.sequence],
        stored(ctx, cell.inward),
        stored(ctx, cell.recurrent),
        cell.bias[np.newaxis],
        None,
        *starts,
        hidden_size=cell.recurrent.stored.shape[1],
        **({"linear_before_reset": 1} if cell.after else {}),
        **({"activations": [cell.activation]} if cell.activation else {}),
        outputs=1 + len(states),
    )
    kinds = {
        "every": lambda: ops.Squeeze(y, [1]),
        "last": lambda: last[0],
        "hidden": lambda: ops.Squeeze(last[0], [0]),
        "cells": lambda: ops.Squeeze(last[1], [0]),
    }
    results: list[Value] = []
    for k, result in enumerate(found.results):
        if isinstance(result, int):
            results.append(ops.Identity(np.asarray(result, ctx.op[~k].dtype)))
        else:
            results.append(carried[k] if result == "carried" else kinds[result]())
    return tuple(results)


def is_zero(ctx: Context, slot: int) -> bool:
    held = ctx.op.constant(slot)
    return held is not None and not held.any()


def stored(ctx: Context, matrix: Matrix) -> Value | Array:
    """A weight of one direction, as small as in the file; what makes it float32 is computed once, as the model loads."""
    held = matrix.stored[np.newaxis]
    if held.dtype == np.float32:
        return held
    value = ctx.ops.Cast(held, to="float32")
    return value if matrix.scales is None else ctx.ops.Mul(value, matrix.scales[np.newaxis, :, np.newaxis])
