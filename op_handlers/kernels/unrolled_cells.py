"""Recurrent layers that a graph spells out step by step, each on its rows of one sequence, as PyTorch exports them.

Of a tensor only the rows along its last axis count here, numbered through all its other axes: reshapes, slices,
transpositions and reversals move rows, and products and sums are made of each row alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Tensor
from op_handlers.kernels.moved_rows import moved
from op_handlers.kernels.spelled_cells import DEFAULTS, Body, Cell, Matrix, Sums, is_one

IDLE = Sums({}, np.empty(0))
"""A gate that would only multiply zeros: an LSTM's forget gate, a GRU's reset gate before the product."""


STEPWISE = ("ADD", "MUL", "SUB", "LOGISTIC", "TANH", "RELU")
"""Operators between the sums of a cell and its states."""
FURTHEST = 4
"""Operators that may lie between a state and the nearest sums of its cell: a sum, a product and a gate, and one to spare."""


class Rows(NamedTuple):
    """Rows of a tensor that no operator merely moves, by their numbers."""

    tensor: Tensor
    places: tuple[int, ...]

    def taken(self, which: Array) -> Rows:
        """Some of them."""
        return Rows(self.tensor, tuple(np.asarray(self.places)[which].tolist()))


class Step(NamedTuple):
    """One time step: its cell, the rows that it sees, and the states before and after it, hidden ones first."""

    cell: Cell
    x: Rows
    before: tuple[Tensor, ...]
    after: tuple[Tensor, ...]


class Chain(NamedTuple):
    """Steps of one cell, each on what the one before leaves.

    ``starts``: the states that the first begins with, none where these are zeros. ``places``: the rows of ``x`` that each
    step sees, (T, B).
    """

    cell: Cell
    x: Tensor
    places: Array
    starts: tuple[Tensor, ...]
    states: tuple[tuple[Tensor, ...], ...]


class Unrolled(Body):
    """The operators of a whole graph."""

    def chains(self) -> Iterator[Chain]:
        """Two steps and more; the longest."""
        steps = [step for tensor in self.makers for step in self.steps(tensor)]
        by_result = {step.after: step for step in steps}
        pairs = [(by_result[step.before], step) for step in steps if step.before in by_result]
        earlier = {step.after: before for before, step in pairs if of_one_cell(before, step)}
        continued = {before.after for before in earlier.values()}
        for last in steps:
            chain = [last]
            while last.after not in continued and chain[0].after in earlier:
                chain.insert(0, earlier[chain[0].after])
            if last.after not in continued:
                yield from self._chained(chain)

    def _chained(self, steps: Sequence[Step]) -> Iterator[Chain]:
        cell, x, starts = steps[0].cell, steps[0].x.tensor, steps[0].before
        places, states = [step.x.places for step in steps], [step.after for step in steps]
        first = self.begun(starts, cell)
        if first is not None and first.tensor is x and len(first.places) == len(places[0]):
            places, states, starts = [first.places, *places], [starts, *states], ()
        if len(places) > 1:
            yield Chain(cell, x, np.array(places), starts, tuple(states))

    # --- steps ----------------------------------------------------------------------------

    def steps(self, after: Tensor) -> Iterator[Step]:
        """What a tensor is the output of, where that is a step."""
        if after.dtype != "float32" or not after.static or after.rank < 2:
            return
        for cells_after, cells in self._cells(after):
            for x, hidden in self._seen(cells_after):
                cell = self.lstm(x, after, hidden, cells_after, cells)
                if cell is not None and whole(hidden):
                    yield Step(cell, x, (hidden.tensor, cells), (after, cells_after))
                    return
        for before in self._mixed_with(after):
            hidden = self.rows(before)
            for x, other in self._seen(after):
                cell = self.gru(x, after, before) if other == hidden else None
                if cell is not None:
                    yield Step(cell, x, (before,), (after,))
                    return
        for x, hidden in self._seen(after):
            cell = self.plain(x, after, hidden)
            if cell is not None and whole(hidden) and hidden.tensor is not x.tensor:
                yield Step(cell, x, (hidden.tensor,), (after,))

    def _cells(self, after: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The cells of an LSTM after a step, and what may be those before."""
        for _, squashed in self.pairs(after, "MUL"):
            shown = self.activated(squashed)
            for kept, _ in self.pairs(shown[0], "ADD") if shown else ():
                yield from ((shown[0], cells) for _, cells in self.pairs(kept, "MUL")) if shown else ()

    def _mixed_with(self, after: Tensor) -> Iterator[Tensor]:
        """What may be the output of a GRU before a step."""
        for scaled, _ in self.pairs(after, "ADD"):
            for _, rest in self.pairs(scaled, "MUL"):
                left = self.maker(rest, "SUB")
                yield rest if left is None else left[0]

    def _seen(self, tensor: Tensor) -> Iterator[tuple[Rows, Rows]]:
        """Two that the sums behind a tensor multiply, in either order; of the nearest sums of two."""
        nearest, seen = [tensor], {tensor}
        for _ in range(FURTHEST + 1):
            found = [self.sums(one) for one in nearest]
            two = next((sums for sums in found if sums is not None and len(sums.products) == 2), None)
            if two is not None:
                yield from permutations(two.products)
                return
            makers = [self.makers.get(one) for one, sums in zip(nearest, found, strict=True) if sums is None]
            operands = (t for op in makers if op is not None and op.code in STEPWISE for t in op.inputs)
            nearest = [t for t in dict.fromkeys(operands) if t is not None and not t.constant and t not in seen]
            seen.update(nearest)

    def begun(self, states: Sequence[Tensor], cell: Cell) -> Rows | None:
        """The rows that a step sees whose results these are, where it is the cell's on states of zeros, which are left out."""
        readers = {"LSTM": self._begun_lstm, "GRU": self._begun_gru, "RNN": self._begun_plain}
        return next(readers[cell.op_type](states, cell), None)

    def _begun_lstm(self, states: Sequence[Tensor], cell: Cell) -> Iterator[Rows]:
        """``c = σ(i)·f(g)``, ``h = σ(o)·f(c)``."""
        after, cells = states
        _, of_update, of_cells = cell.activations or DEFAULTS[2]
        for shown, squashed in self.pairs(after, "MUL"):
            for gate, update in self.pairs(cells, "MUL") if self.activated(squashed) == (cells, of_cells) else ():
                inner = self.activated(update)
                gates = (self.gate(gate), self.gate(shown), IDLE, self.sums(inner[0]) if inner else None)
                if inner is not None and inner[1] == of_update:
                    yield from shared_rows(gates, cell)

    def _begun_gru(self, states: Sequence[Tensor], cell: Cell) -> Iterator[Rows]:
        """``h = (1 - z)·h̃``, ``h̃ = f(W·x + b + r·c)``, or without the product where that of the last output comes after."""
        (after,), (_, of_update) = states, cell.activations or DEFAULTS[1]
        for share, update in self._mixed_with_zeros(after):
            inner, kept = self.activated(update), self.gate(share)
            if inner is None or inner[1] != of_update:
                continue
            behind = cell.bias[-(len(cell.bias) // 6) :]
            if not (cell.after and behind.any()):
                yield from shared_rows((kept, IDLE, self.sums(inner[0])), cell)
            for seen, remembered in self.pairs(inner[0], "ADD") if cell.after else ():
                for gate, constant in self.pairs(remembered, "MUL"):
                    added = self.sums(constant)
                    if added is not None and np.array_equal(added.bias, behind):
                        yield from shared_rows((kept, self.gate(gate), self.sums(seen)), cell)

    def _mixed_with_zeros(self, after: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """``z`` and ``h̃`` of ``(1 - z)·h̃``, and of PyTorch's ``z·(0 - h̃) + h̃``."""
        for rest, update in self.pairs(after, "MUL"):
            left = self.maker(rest, "SUB")
            if left is not None and is_one(left):
                yield left[1], update
        for scaled, update in self.pairs(after, "ADD"):
            for share, rest in self.pairs(scaled, "MUL"):
                left = self.maker(rest, "SUB")
                zero = None if left is None else left.constant(0)
                if left is not None and left[1] is update and zero is not None and not zero.any():
                    yield share, update

    def _begun_plain(self, states: Sequence[Tensor], cell: Cell) -> Iterator[Rows]:
        """``h = f(W·x + b)``."""
        (after,), (activation,) = states, cell.activations or DEFAULTS[0]
        inner = self.activated(after)
        if inner is not None and inner[1] == activation:
            yield from shared_rows((self.sums(inner[0]),), cell)

    # --- rows -----------------------------------------------------------------------------

    def key(self, tensor: Tensor) -> Rows:
        return self.rows(tensor)

    def tensor(self, key: Rows) -> Tensor:
        return key.tensor if whole(key) else super().tensor(key)

    def rows(self, tensor: Tensor) -> Rows:
        """A tensor's rows as those of the one that they are moved from."""
        places = np.arange(prod(tensor.shape[:-1]))
        while (op := self.makers.get(tensor)) is not None and (taken := moved(op, tensor)) is not None:
            if not taken.all_columns:
                break
            tensor, places = taken.tensor, taken.places[places]
        return Rows(tensor, tuple(places.tolist()))

    def _read(self, tensor: Tensor) -> Sums | None:
        """For each row; ``None`` for what is not made of products with constants, additions, and parts."""
        if tensor.dtype != "float32" or not tensor.static or tensor.rank < 1:
            return None
        if tensor.constant:
            rows = tensor.array.reshape(-1, tensor.shape[-1])
            return Sums({}, rows[0]) if len(rows) and (rows == rows[0]).all() else None
        op = self.makers.get(tensor)
        if op is None:
            return None
        if op.code == "ADD":
            return self._added(op, tensor) if by_rows(op) else None
        if op.code == "FULLY_CONNECTED":
            return self._multiplied(op, tensor)
        taken = moved(op, tensor)
        inner = None if taken is None else self.sums(taken.tensor)
        if taken is None or inner is None:
            return None
        products = {x.taken(taken.places): matrix for x, matrix in inner.products.items()}
        chosen = Sums(products, inner.bias)
        return chosen if taken.all_columns else chosen.rows(taken.columns)

    def _multiplied(self, op: Operator, _made: Tensor) -> Sums | None:
        matrix, bias = Matrix.of(op[1]), op.tensor(2)
        if matrix is None or matrix.scales is not None:  # beside integers the kernel rounds what each step sees
            return None
        if not op[0].static or op[0].shape[-1] != matrix.stored.shape[1]:
            return None
        if op[0].dtype != "float32" or (bias is not None and not bias.constant):
            return None
        return Sums(
            {self.rows(op[0]): matrix}, np.zeros(len(matrix.stored), np.float32) if bias is None else bias.array
        )


def by_rows(op: Operator) -> bool:
    """Whether each row of a result is made of the same row of both operands, or of a constant whose rows are alike."""
    made = prod(op[~0].shape[:-1])
    return all(
        t.static and (t.constant or prod(t.shape[:-1]) == made) and t.shape[-1:] == op[~0].shape[-1:]
        for t in (op[0], op[1])
    )


def whole(rows: Rows) -> bool:
    """Whether they are all rows of their tensor, in order."""
    count = prod(rows.tensor.shape[:-1])
    return len(rows.places) == count and rows.places == tuple(range(count))


def of_one_cell(one: Step, other: Step) -> bool:
    """Whether two steps have the same cell and see the same sequence."""
    a, b = one.cell, other.cell
    return (
        one.x.tensor is other.x.tensor
        and len(one.x.places) == len(other.x.places)
        and (a.op_type, a.after, a.activations) == (b.op_type, b.after, b.activations)
        and all(same(p, q) for p, q in ((a.inward, b.inward), (a.recurrent, b.recurrent)))
        and np.array_equal(a.bias, b.bias)
    )


def same(one: Matrix, other: Matrix) -> bool:
    """Whether two hold the same numbers, with the same scales."""
    a, b = (np.zeros(0) if matrix.scales is None else matrix.scales for matrix in (one, other))
    return one.stored.dtype == other.stored.dtype and np.array_equal(one.stored, other.stored) and np.array_equal(a, b)


def shared_rows(gates: Sequence[Sums | None], cell: Cell) -> Iterator[Rows]:
    """The rows that these gates multiply by the cell's weights, and to which they add its biases, in ONNX's order of gates.

    ``IDLE`` ones are not looked at.
    """
    count = len(gates)
    units = len(cell.bias) // (2 * count)
    inward, back = cell.bias[: count * units], cell.bias[count * units :]
    seen: set[Rows] = set()
    for k, sums in enumerate(gates):
        own = slice(k * units, (k + 1) * units)
        if sums is IDLE:
            continue
        if sums is None:
            return
        bias = inward[own] if cell.after and k == count - 1 else inward[own] + back[own]
        if len(sums.products) != 1 or not np.array_equal(sums.bias, bias):
            return
        ((x, matrix),) = sums.products.items()
        if not same(matrix, cell.inward.rows(range(own.start, own.stop))):
            return
        seen.add(x)
    if len(seen) == 1:
        yield from seen
