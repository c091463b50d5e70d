"""Recurrent layers that a graph decomposes step by step, each step on rows of one sequence, as PyTorch exports them.

A tensor is seen as rows along its last axis, numbered through all other axes: reshapes, slices, transpositions and
reversals move rows, and products and sums are computed per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Tensor
from op_handlers.kernels.recurrent_cells import DEFAULTS, Body, Cell, Matrix, Sums, is_one_minus
from op_handlers.kernels.row_movement import row_movement

UNUSED_GATE = Sums({}, np.empty(0))
"""Gate that would multiply zeros only: an LSTM's forget gate, or a GRU's reset gate before the product."""


ELEMENTWISE = ("ADD", "MUL", "SUB", "LOGISTIC", "TANH", "RELU")
"""Operators between the sums of a cell and its states."""
MAX_DEPTH = 4
"""Maximum number of operators between a state and the nearest sums of its cell: a sum, a product, a gate, one to spare."""


class Rows(NamedTuple):
    """Rows of a tensor that is not the output of a data-movement operator, by number."""

    tensor: Tensor
    places: tuple[int, ...]

    def select(self, which: Array) -> Rows:
        """Return a selection of the rows."""
        return Rows(self.tensor, tuple(np.asarray(self.places)[which].tolist()))


class Step(NamedTuple):
    """One time step: its cell, its input rows, and the states before and after it, hidden states first."""

    cell: Cell
    x: Rows
    before: tuple[Tensor, ...]
    after: tuple[Tensor, ...]


class Chain(NamedTuple):
    """Consecutive steps of one cell, each on the states of the one before.

    ``starts``: initial states of the first step, empty if zeros. ``places``: rows of ``x`` per step, (T, B).
    """

    cell: Cell
    x: Tensor
    places: Array
    starts: tuple[Tensor, ...]
    states: tuple[tuple[Tensor, ...], ...]


class Unrolled(Body):
    """Operators of a whole graph."""

    def chains(self) -> Iterator[Chain]:
        """Yield the longest chains of two or more steps."""
        steps = [step for tensor in self.producers for step in self.steps(tensor)]
        by_result = {step.after: step for step in steps}
        pairs = [(by_result[step.before], step) for step in steps if step.before in by_result]
        earlier = {step.after: before for before, step in pairs if is_same_layer(before, step)}
        continued = {before.after for before in earlier.values()}
        for last in steps:
            chain = [last]
            while last.after not in continued and chain[0].after in earlier:
                chain.insert(0, earlier[chain[0].after])
            if last.after not in continued:
                yield from self._make_chain(chain)

    def _make_chain(self, steps: Sequence[Step]) -> Iterator[Chain]:
        """Yield the chain of these steps, with a step on zero states prepended if there is one."""
        cell, x, starts = steps[0].cell, steps[0].x.tensor, steps[0].before
        places, states = [step.x.places for step in steps], [step.after for step in steps]
        first = self.rows_of_first_step(starts, cell)
        if first is not None and first.tensor is x and len(first.places) == len(places[0]):
            places, states, starts = [first.places, *places], [starts, *states], ()
        if len(places) > 1:
            yield Chain(cell, x, np.array(places), starts, tuple(states))

    # --- steps ----------------------------------------------------------------------------

    def steps(self, after: Tensor) -> Iterator[Step]:
        """Yield the time step whose output is ``after``, if there is one."""
        if after.dtype != "float32" or not after.is_static or after.rank < 2:
            return
        for cells_after, cells in self._cell_states(after):
            for x, hidden in self._factors_of_rows(cells_after):
                cell = self.match_lstm(x, after, hidden, cells_after, cells)
                if cell is not None and is_whole_tensor(hidden):
                    yield Step(cell, x, (hidden.tensor, cells), (after, cells_after))
                    return
        for before in self._gru_state_candidates(after):
            hidden = self.rows(before)
            for x, other in self._factors_of_rows(after):
                cell = self.match_gru(x, after, before) if other == hidden else None
                if cell is not None:
                    yield Step(cell, x, (before,), (after,))
                    return
        for x, hidden in self._factors_of_rows(after):
            cell = self.match_rnn(x, after, hidden)
            if cell is not None and is_whole_tensor(hidden) and hidden.tensor is not x.tensor:
                yield Step(cell, x, (hidden.tensor,), (after,))

    def _cell_states(self, after: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield an LSTM's cell state after a step, and candidates of the one before."""
        for _, squashed in self.operand_pairs(after, "MUL"):
            shown = self.activation_operand(squashed)
            for kept, _ in self.operand_pairs(shown[0], "ADD") if shown else ():
                yield from ((shown[0], cells) for _, cells in self.operand_pairs(kept, "MUL")) if shown else ()

    def _gru_state_candidates(self, after: Tensor) -> Iterator[Tensor]:
        """Yield candidates of a GRU's output before a step."""
        for scaled, _ in self.operand_pairs(after, "ADD"):
            for _, rest in self.operand_pairs(scaled, "MUL"):
                left = self.producer(rest, "SUB")
                yield rest if left is None else left[0]

    def _factors_of_rows(self, tensor: Tensor) -> Iterator[tuple[Rows, Rows]]:
        """Yield the two factors of the nearest upstream sums of two products, in either order."""
        nearest, seen = [tensor], {tensor}
        for _ in range(MAX_DEPTH + 1):
            found = [self.sums(one) for one in nearest]
            two = next((sums for sums in found if sums is not None and len(sums.products) == 2), None)
            if two is not None:
                yield from permutations(two.products)
                return
            operators = [self.producers.get(one) for one, sums in zip(nearest, found, strict=True) if sums is None]
            operands = (t for op in operators if op is not None and op.code in ELEMENTWISE for t in op.inputs)
            nearest = [t for t in dict.fromkeys(operands) if t is not None and not t.is_constant and t not in seen]
            seen.update(nearest)

    def rows_of_first_step(self, states: Sequence[Tensor], cell: Cell) -> Rows | None:
        """Return the input rows of a first step: its products with the zero initial states are omitted."""
        readers = {"LSTM": self._first_lstm_step, "GRU": self._first_gru_step, "RNN": self._first_rnn_step}
        return next(readers[cell.op_type](states, cell), None)

    def _first_lstm_step(self, states: Sequence[Tensor], cell: Cell) -> Iterator[Rows]:
        """Match ``c = σ(i)·f(g)``, ``h = σ(o)·f(c)``."""
        after, cells = states
        _, of_update, of_cells = cell.activations or DEFAULTS[2]
        for shown, squashed in self.operand_pairs(after, "MUL"):
            for gate, update in (
                self.operand_pairs(cells, "MUL") if self.activation_operand(squashed) == (cells, of_cells) else ()
            ):
                inner = self.activation_operand(update)
                gates = (
                    self.gate_sums(gate),
                    self.gate_sums(shown),
                    UNUSED_GATE,
                    self.sums(inner[0]) if inner else None,
                )
                if inner is not None and inner[1] == of_update:
                    yield from shared_rows(gates, cell)

    def _first_gru_step(self, states: Sequence[Tensor], cell: Cell) -> Iterator[Rows]:
        """Match ``h = (1 - z)·h̃``, ``h̃ = f(W·x + b + r·c)``; without ``r·c`` if the reset gate comes first."""
        (after,), (_, of_update) = states, cell.activations or DEFAULTS[1]
        for share, update in self._first_update_operands(after):
            inner, kept = self.activation_operand(update), self.gate_sums(share)
            if inner is None or inner[1] != of_update:
                continue
            outer_bias = cell.bias[-(len(cell.bias) // 6) :]
            if not (cell.after and outer_bias.any()):
                yield from shared_rows((kept, UNUSED_GATE, self.sums(inner[0])), cell)
            for seen, remembered in self.operand_pairs(inner[0], "ADD") if cell.after else ():
                for gate, constant in self.operand_pairs(remembered, "MUL"):
                    added = self.sums(constant)
                    if added is not None and np.array_equal(added.bias, outer_bias):
                        yield from shared_rows((kept, self.gate_sums(gate), self.sums(seen)), cell)

    def _first_update_operands(self, after: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``z`` and ``h̃`` of ``(1 - z)·h̃``, and of PyTorch's ``z·(0 - h̃) + h̃``."""
        for rest, update in self.operand_pairs(after, "MUL"):
            left = self.producer(rest, "SUB")
            if left is not None and is_one_minus(left):
                yield left[1], update
        for scaled, update in self.operand_pairs(after, "ADD"):
            for share, rest in self.operand_pairs(scaled, "MUL"):
                left = self.producer(rest, "SUB")
                zero = None if left is None else left.constant(0)
                if left is not None and left[1] is update and zero is not None and not zero.any():
                    yield share, update

    def _first_rnn_step(self, states: Sequence[Tensor], cell: Cell) -> Iterator[Rows]:
        """Match ``h = f(W·x + b)``."""
        (after,), (activation,) = states, cell.activations or DEFAULTS[0]
        inner = self.activation_operand(after)
        if inner is not None and inner[1] == activation:
            yield from shared_rows((self.sums(inner[0]),), cell)

    # --- rows -----------------------------------------------------------------------------

    def key(self, tensor: Tensor) -> Rows:
        return self.rows(tensor)

    def tensor(self, key: Rows) -> Tensor:
        return key.tensor if is_whole_tensor(key) else super().tensor(key)

    def rows(self, tensor: Tensor) -> Rows:
        """Return a tensor's rows as rows of the tensor that data-movement operators copied them from."""
        places = np.arange(prod(tensor.shape[:-1]))
        while (op := self.producers.get(tensor)) is not None and (taken := row_movement(op, tensor)) is not None:
            if not taken.all_columns:
                break
            tensor, places = taken.tensor, taken.places[places]
        return Rows(tensor, tuple(places.tolist()))

    def _read_sums(self, tensor: Tensor) -> Sums | None:
        """Return the sums per row; ``None`` unless the tensor consists of products with constants, additions and slices."""
        if tensor.dtype != "float32" or not tensor.is_static or tensor.rank < 1:
            return None
        if tensor.is_constant:
            rows = tensor.array.reshape(-1, tensor.shape[-1])
            return Sums({}, rows[0]) if len(rows) and (rows == rows[0]).all() else None
        op = self.producers.get(tensor)
        if op is None:
            return None
        if op.code == "ADD":
            return self._add_sums(op, tensor) if is_row_wise(op) else None
        if op.code == "FULLY_CONNECTED":
            return self._multiply_sums(op, tensor)
        taken = row_movement(op, tensor)
        inner = None if taken is None else self.sums(taken.tensor)
        if taken is None or inner is None:
            return None
        products = {x.select(taken.places): matrix for x, matrix in inner.products.items()}
        chosen = Sums(products, inner.bias)
        return chosen if taken.all_columns else chosen.rows(taken.columns)

    def _multiply_sums(self, op: Operator, _made: Tensor) -> Sums | None:
        matrix, bias = Matrix.of(op[1]), op.tensor(2)
        if matrix is None or matrix.scales is not None:  # with integer weights the kernel rounds each step's input
            return None
        if not op[0].is_static or op[0].shape[-1] != matrix.stored.shape[1]:
            return None
        if op[0].dtype != "float32" or (bias is not None and not bias.is_constant):
            return None
        return Sums(
            {self.rows(op[0]): matrix}, np.zeros(len(matrix.stored), np.float32) if bias is None else bias.array
        )


def is_row_wise(op: Operator) -> bool:
    """True if each result row depends on the same row of both operands, or on a constant with equal rows."""
    made = prod(op[~0].shape[:-1])
    return all(
        t.is_static and (t.is_constant or prod(t.shape[:-1]) == made) and t.shape[-1:] == op[~0].shape[-1:]
        for t in (op[0], op[1])
    )


def is_whole_tensor(rows: Rows) -> bool:
    """True if these are all rows of their tensor, in order."""
    count = prod(rows.tensor.shape[:-1])
    return len(rows.places) == count and rows.places == tuple(range(count))


def is_same_layer(one: Step, other: Step) -> bool:
    """True if two steps have the same cell and the same input sequence."""
    a, b = one.cell, other.cell
    return (
        one.x.tensor is other.x.tensor
        and len(one.x.places) == len(other.x.places)
        and (a.op_type, a.after, a.activations) == (b.op_type, b.after, b.activations)
        and all(is_equal_matrix(p, q) for p, q in ((a.inward, b.inward), (a.recurrent, b.recurrent)))
        and np.array_equal(a.bias, b.bias)
    )


def is_equal_matrix(one: Matrix, other: Matrix) -> bool:
    """True if two matrices have equal values and scales."""
    a, b = (np.zeros(0) if matrix.scales is None else matrix.scales for matrix in (one, other))
    return one.stored.dtype == other.stored.dtype and np.array_equal(one.stored, other.stored) and np.array_equal(a, b)


def shared_rows(gates: Sequence[Sums | None], cell: Cell) -> Iterator[Rows]:
    """Yield the rows that all gates multiply by the cell's weights and biases, in ONNX's order of gates.

    Gates that are ``UNUSED_GATE`` are skipped.
    """
    count = len(gates)
    units = len(cell.bias) // (2 * count)
    inward, back = cell.bias[: count * units], cell.bias[count * units :]
    seen: set[Rows] = set()
    for k, sums in enumerate(gates):
        own = slice(k * units, (k + 1) * units)
        if sums is UNUSED_GATE:
            continue
        if sums is None:
            return
        bias = inward[own] if cell.after and k == count - 1 else inward[own] + back[own]
        if len(sums.products) != 1 or not np.array_equal(sums.bias, bias):
            return
        ((x, matrix),) = sums.products.items()
        if not is_equal_matrix(matrix, cell.inward.rows(range(own.start, own.stop))):
            return
        seen.add(x)
    if len(seen) == 1:
        yield from seen
