"""Recurrent layers that are unrolled in a graph, as PyTorch exports them.

Each step reads rows of one sequence. The rows of a tensor lie along its last axis and are numbered through all other
axes. Reshapes, slices, transpositions and reversals move rows; products and sums are computed per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Tensor
from op_handlers.kernels.recurrent_cells import DEFAULTS, Cell, Dataflow, Matrix, Sums, is_one_minus
from op_handlers.kernels.row_movement import row_movement

UNUSED_GATE = Sums({}, np.empty(0))
"""Gate that multiplies only zeros in a first step.

It is the forget gate of an LSTM, or the reset gate of a GRU if the gate multiplies the state before the product.
"""
ELEMENTWISE = ("ADD", "MUL", "SUB", "LOGISTIC", "TANH", "RELU")
"""Operators between the sums of a cell and its states."""
MAX_DEPTH = 4
"""Maximum number of operators between a state and the nearest sums of its cell; three are expected, and one is spare."""


class Rows(NamedTuple):
    """Row numbers of a tensor that no data-movement operator computes."""

    tensor: Tensor
    numbers: tuple[int, ...]

    def select(self, indices: Array) -> Rows:
        """Return a selection of the rows."""
        return Rows(self.tensor, tuple(np.asarray(self.numbers)[indices].tolist()))


class Step(NamedTuple):
    """One time step. Its states are the hidden state and, in an LSTM, the cell state."""

    cell: Cell
    x: Rows
    old_states: tuple[Tensor, ...]
    new_states: tuple[Tensor, ...]


class Chain(NamedTuple):
    """Steps of one cell, each of which reads the states of the previous step.

    ``initial_states``: empty if they are zeros. ``rows``: row numbers of ``x`` per step, (T, B).
    """

    cell: Cell
    x: Tensor
    rows: Array
    initial_states: tuple[Tensor, ...]
    states: tuple[tuple[Tensor, ...], ...]


class UnrolledDataflow(Dataflow):
    """Operators of a graph, to search for unrolled recurrent layers."""

    def chains(self) -> Iterator[Chain]:
        """Yield the longest chains of two or more steps."""
        steps = [step for tensor in self.producers for step in self.steps(tensor)]
        steps_by_states = {step.new_states: step for step in steps}
        pairs = [(steps_by_states[step.old_states], step) for step in steps if step.old_states in steps_by_states]
        previous_steps = {step.new_states: previous for previous, step in pairs if is_same_layer(previous, step)}
        continued_states = {previous.new_states for previous in previous_steps.values()}
        for last_step in steps:
            if last_step.new_states in continued_states:
                continue
            chain = [last_step]
            while chain[0].new_states in previous_steps:
                chain.insert(0, previous_steps[chain[0].new_states])
            yield from self._make_chain(chain)

    def _make_chain(self, steps: Sequence[Step]) -> Iterator[Chain]:
        """Yield the chain of ``steps``, preceded by a step on zero states if there is one."""
        cell, x, initial_states = steps[0].cell, steps[0].x.tensor, steps[0].old_states
        rows, states = [step.x.numbers for step in steps], [step.new_states for step in steps]
        first_rows = self.rows_of_first_step(initial_states, cell)
        if first_rows is not None and first_rows.tensor is x and len(first_rows.numbers) == len(rows[0]):
            rows, states, initial_states = [first_rows.numbers, *rows], [initial_states, *states], ()
        if len(rows) > 1:
            yield Chain(cell, x, np.array(rows), initial_states, tuple(states))

    # --- steps ----------------------------------------------------------------------------

    def steps(self, new_hidden: Tensor) -> Iterator[Step]:
        """Yield the time step whose output is ``new_hidden``, if there is one."""
        if new_hidden.dtype != "float32" or not new_hidden.is_static or new_hidden.rank < 2:
            return
        for new_cell, old_cell in self._cell_states(new_hidden):
            for x, hidden in self._row_factors(new_cell):
                cell = self.match_lstm(x, new_hidden, hidden, new_cell, old_cell)
                if cell is not None and is_whole_tensor(hidden):
                    yield Step(cell, x, (hidden.tensor, old_cell), (new_hidden, new_cell))
                    return
        for old_hidden in self._gru_state_candidates(new_hidden):
            hidden = self.rows(old_hidden)
            for x, factor in self._row_factors(new_hidden):
                cell = self.match_gru(x, new_hidden, old_hidden) if factor == hidden else None
                if cell is not None:
                    yield Step(cell, x, (old_hidden,), (new_hidden,))
                    return
        for x, hidden in self._row_factors(new_hidden):
            cell = self.match_rnn(x, new_hidden, hidden)
            if cell is not None and is_whole_tensor(hidden) and hidden.tensor is not x.tensor:
                yield Step(cell, x, (hidden.tensor,), (new_hidden,))

    def _cell_states(self, new_hidden: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (new cell state, candidate for the old cell state) of an LSTM step."""
        for _, activated_cell in self.operand_pairs(new_hidden, "MUL"):
            activation = self.activation_operand(activated_cell)
            for scaled_cell, _ in self.operand_pairs(activation[0], "ADD") if activation else ():
                yield from (
                    ((activation[0], old_cell) for _, old_cell in self.operand_pairs(scaled_cell, "MUL"))
                    if activation
                    else ()
                )

    def _gru_state_candidates(self, new_hidden: Tensor) -> Iterator[Tensor]:
        """Yield candidates for a GRU's output before a step."""
        for product, _ in self.operand_pairs(new_hidden, "ADD"):
            for _, factor in self.operand_pairs(product, "MUL"):
                difference = self.producer(factor, "SUB")
                yield factor if difference is None else difference[0]

    def _row_factors(self, tensor: Tensor) -> Iterator[tuple[Rows, Rows]]:
        """Yield candidates for (input, hidden state) of a cell.

        They are the two factors in the nearest upstream sum of two products, in either order.
        """
        candidates, visited = [tensor], {tensor}
        for _ in range(MAX_DEPTH + 1):
            candidate_sums = [self.sums(candidate) for candidate in candidates]
            two_products = next((sums for sums in candidate_sums if sums is not None and len(sums.products) == 2), None)
            if two_products is not None:
                yield from permutations(two_products.products)
                return
            operators = [
                self.producers.get(candidate)
                for candidate, sums in zip(candidates, candidate_sums, strict=True)
                if sums is None
            ]
            operands = (t for op in operators if op is not None and op.code in ELEMENTWISE for t in op.inputs)
            candidates = [
                t for t in dict.fromkeys(operands) if t is not None and not t.is_constant and t not in visited
            ]
            visited.update(candidates)

    def rows_of_first_step(self, states: Sequence[Tensor], cell: Cell) -> Rows | None:
        """Return the input rows of a step on zero states, or None for other steps.

        Such a step is exported without the products with its states.
        """
        readers = {"LSTM": self._first_lstm_step, "GRU": self._first_gru_step, "RNN": self._first_rnn_step}
        return next(readers[cell.op_type](states, cell), None)

    def _first_lstm_step(self, states: Sequence[Tensor], cell: Cell) -> Iterator[Rows]:
        """Match ``c = σ(i)·φ(g)``, ``h = σ(o)·φ(c)``, with any activations φ."""
        hidden, cell_state = states
        _, update_activation, cell_activation = cell.activations or DEFAULTS[2]
        for output_gate, activated_cell in self.operand_pairs(hidden, "MUL"):
            for gate, update in (
                self.operand_pairs(cell_state, "MUL")
                if self.activation_operand(activated_cell) == (cell_state, cell_activation)
                else ()
            ):
                activation = self.activation_operand(update)
                gates = (
                    self.gate_sums(gate),
                    self.gate_sums(output_gate),
                    UNUSED_GATE,
                    self.sums(activation[0]) if activation else None,
                )
                if activation is not None and activation[1] == update_activation:
                    yield from shared_rows(gates, cell)

    def _first_gru_step(self, states: Sequence[Tensor], cell: Cell) -> Iterator[Rows]:
        """Match a GRU step ``h = (1 - z)·h̃`` with ``h̃ = f(W·x + b + r·c)``.

        ``r·c`` is absent if the reset gate multiplies the state before the product.
        """
        (hidden,), (_, update_activation) = states, cell.activations or DEFAULTS[1]
        for update_gate, update in self._first_update_operands(hidden):
            activation, update_sums = self.activation_operand(update), self.gate_sums(update_gate)
            if activation is None or activation[1] != update_activation:
                continue
            recurrent_bias = cell.bias[-(len(cell.bias) // 6) :]
            if not (cell.linear_before_reset and recurrent_bias.any()):
                yield from shared_rows((update_sums, UNUSED_GATE, self.sums(activation[0])), cell)
            for input_term, recurrent_term in (
                self.operand_pairs(activation[0], "ADD") if cell.linear_before_reset else ()
            ):
                for gate, constant in self.operand_pairs(recurrent_term, "MUL"):
                    constant_sums = self.sums(constant)
                    if constant_sums is not None and np.array_equal(constant_sums.bias, recurrent_bias):
                        yield from shared_rows((update_sums, self.gate_sums(gate), self.sums(input_term)), cell)

    def _first_update_operands(self, hidden: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``z`` and ``h̃`` of ``(1 - z)·h̃``, and of PyTorch's ``z·(0 - h̃) + h̃``."""
        for factor, update in self.operand_pairs(hidden, "MUL"):
            difference = self.producer(factor, "SUB")
            if difference is not None and is_one_minus(difference):
                yield difference[1], update
        for product, update in self.operand_pairs(hidden, "ADD"):
            for gate, factor in self.operand_pairs(product, "MUL"):
                difference = self.producer(factor, "SUB")
                zero = None if difference is None else difference.constant(0)
                if difference is not None and difference[1] is update and zero is not None and not zero.any():
                    yield gate, update

    def _first_rnn_step(self, states: Sequence[Tensor], cell: Cell) -> Iterator[Rows]:
        """Match ``h = f(W·x + b)``."""
        (hidden,), (activation,) = states, cell.activations or DEFAULTS[0]
        operand = self.activation_operand(hidden)
        if operand is not None and operand[1] == activation:
            yield from shared_rows((self.sums(operand[0]),), cell)

    # --- rows -----------------------------------------------------------------------------

    def key(self, tensor: Tensor) -> Rows:
        return self.rows(tensor)

    def tensor(self, key: Rows) -> Tensor:
        return key.tensor if is_whole_tensor(key) else super().tensor(key)

    def rows(self, tensor: Tensor) -> Rows:
        """Return the rows from which data-movement operators copy a tensor's rows."""
        numbers = np.arange(prod(tensor.shape[:-1]))
        while (op := self.producers.get(tensor)) is not None and (movement := row_movement(op, tensor)) is not None:
            if not movement.has_all_columns:
                break
            tensor, numbers = movement.tensor, movement.rows[numbers]
        return Rows(tensor, tuple(numbers.tolist()))

    def _read_sums(self, tensor: Tensor) -> Sums | None:
        """Return the sums of each row.

        Return ``None`` unless only products with constants, sums and slices compute the tensor.
        """
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
        movement = row_movement(op, tensor)
        source_sums = None if movement is None else self.sums(movement.tensor)
        if movement is None or source_sums is None:
            return None
        products = {x.select(movement.rows): matrix for x, matrix in source_sums.products.items()}
        row_sums = Sums(products, source_sums.bias)
        return row_sums if movement.has_all_columns else row_sums.select_units(movement.columns)

    def _multiply_sums(self, op: Operator, _result: Tensor) -> Sums | None:
        matrix, bias = Matrix.of(op[1]), op.tensor(2)
        # With integer weights, the kernel rounds the input of each step.
        if matrix is None or matrix.scales is not None:
            return None
        if not op[0].is_static or op[0].shape[-1] != matrix.values.shape[1]:
            return None
        if op[0].dtype != "float32" or (bias is not None and not bias.is_constant):
            return None
        return Sums(
            {self.rows(op[0]): matrix}, np.zeros(len(matrix.values), np.float32) if bias is None else bias.array
        )


def is_row_wise(op: Operator) -> bool:
    """True if each result row depends only on the same row of both operands.

    Constants may have any number of rows if all rows are equal.
    """
    row_count = prod(op[~0].shape[:-1])
    return all(
        t.is_static and (t.is_constant or prod(t.shape[:-1]) == row_count) and t.shape[-1:] == op[~0].shape[-1:]
        for t in (op[0], op[1])
    )


def is_whole_tensor(rows: Rows) -> bool:
    """True if these are all rows of the tensor, in order."""
    count = prod(rows.tensor.shape[:-1])
    return len(rows.numbers) == count and rows.numbers == tuple(range(count))


def is_same_layer(step: Step, other_step: Step) -> bool:
    """True if two steps have the same cell and the same input sequence."""
    cell, other_cell = step.cell, other_step.cell
    return (
        step.x.tensor is other_step.x.tensor
        and len(step.x.numbers) == len(other_step.x.numbers)
        and (cell.op_type, cell.linear_before_reset, cell.activations)
        == (other_cell.op_type, other_cell.linear_before_reset, other_cell.activations)
        and all(
            is_equal_matrix(matrix, other_matrix)
            for matrix, other_matrix in (
                (cell.input_weights, other_cell.input_weights),
                (cell.recurrent_weights, other_cell.recurrent_weights),
            )
        )
        and np.array_equal(cell.bias, other_cell.bias)
    )


def is_equal_matrix(x: Matrix, y: Matrix) -> bool:
    """True if two matrices have equal values and scales."""
    x_scales, y_scales = (np.zeros(0) if matrix.scales is None else matrix.scales for matrix in (x, y))
    return (
        x.values.dtype == y.values.dtype and np.array_equal(x.values, y.values) and np.array_equal(x_scales, y_scales)
    )


def shared_rows(gates: Sequence[Sums | None], cell: Cell) -> Iterator[Rows]:
    """Yield the rows that all gates multiply, if weights and biases are the cell's.

    ``gates``: gates in ONNX's order. An ``UNUSED_GATE`` is skipped.
    """
    count = len(gates)
    units = len(cell.bias) // (2 * count)
    input_bias, recurrent_bias = cell.bias[: count * units], cell.bias[count * units :]
    found_rows: set[Rows] = set()
    for k, sums in enumerate(gates):
        gate_slice = slice(k * units, (k + 1) * units)
        if sums is UNUSED_GATE:
            continue
        if sums is None:
            return
        bias = (
            input_bias[gate_slice]
            if cell.linear_before_reset and k == count - 1
            else input_bias[gate_slice] + recurrent_bias[gate_slice]
        )
        if len(sums.products) != 1 or not np.array_equal(sums.bias, bias):
            return
        ((x, matrix),) = sums.products.items()
        if not is_equal_matrix(matrix, cell.input_weights.select_units(range(gate_slice.start, gate_slice.stop))):
            return
        found_rows.add(x)
    if len(found_rows) == 1:
        yield from found_rows
