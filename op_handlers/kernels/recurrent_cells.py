"""Recurrent cells that are decomposed in a loop's body, matched and read as matrices of a GRU, an LSTM or a plain RNN."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Options, Quantization, Tensor

ACTIVATIONS = {"TANH": "Tanh", "RELU": "Relu", "LOGISTIC": "Sigmoid"}
"""ONNX's activation names, by TFLite operator."""
DEFAULTS = (("Tanh",), ("Sigmoid", "Tanh"), ("Sigmoid", "Tanh", "Tanh"))
"""ONNX's default activations of RNN, GRU and LSTM."""
MAX_PRODUCTS = 2
"""Maximum number of products per gate: by the input and by the last output."""


@dataclass(frozen=True)
class Matrix:
    """Rows of a weight as stored in the file: float32, float16, or int8 with a scale per row."""

    stored: Array
    scales: Array | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> Matrix | None:
        """Return the matrix of a weight; ``None`` if it is computed, has zero points or is of another dtype."""
        if not tensor.is_constant or tensor.rank != 2:
            return None
        if tensor.dtype == "float32":
            half = tensor.narrower
            return cls(half.array if half is not None and half.dtype == "float16" else tensor.array)
        steps = tensor.quantization
        if tensor.dtype != "int8" or not isinstance(steps, Quantization) or any(steps.zero_point):
            return None
        if steps.per_axis and steps.axis != 0:
            return None
        return cls(tensor.array, np.broadcast_to(np.asarray(steps.scale, np.float32), tensor.shape[:1]))

    def rows(self, which: Sequence[int]) -> Matrix:
        return Matrix(self.stored[which], None if self.scales is None else self.scales[which])

    @staticmethod
    def concatenate(parts: Sequence[Matrix]) -> Matrix | None:
        """Concatenate matrices along the first axis; ``None`` if their dtypes differ."""
        if len({(part.stored.dtype, part.scales is None) for part in parts}) > 1:
            return None
        scales = [part.scales for part in parts if part.scales is not None]
        return Matrix(np.concatenate([part.stored for part in parts]), np.concatenate(scales) if scales else None)


@dataclass(frozen=True)
class Sums:
    """Sums of products and constants: per row of the batch, ``matrix · x`` for each x, and a bias ``[n]``.

    ``products``: matrices by x, a tensor or its key.
    """

    products: Mapping[Any, Matrix]
    bias: Array

    def rows(self, which: Sequence[int]) -> Sums:
        return Sums({tensor: matrix.rows(which) for tensor, matrix in self.products.items()}, self.bias[which])

    def add(self, other: Sums) -> Sums | None:
        """Return the sum of two terms; ``None`` if they share a tensor, differ in size, or exceed the products of any
        cell.
        """
        if self.products.keys() & other.products.keys() or len(self.bias) != len(other.bias):
            return None
        if len(self.products) + len(other.products) > MAX_PRODUCTS:
            return None
        return Sums({**self.products, **other.products}, self.bias + other.bias)


@dataclass(frozen=True)
class Cell:
    """ONNX's ``op_type`` with gates in ONNX's order: weights of the input, of the last output, and both biases [gates · n].

    ``after``: True if a GRU's reset gate multiplies the recurrent sums instead of the last output. ``activations``:
    empty for ONNX's defaults.
    """

    op_type: str
    inward: Matrix
    recurrent: Matrix
    bias: Array
    after: bool = False
    activations: tuple[str, ...] = ()


class Body:
    """Operators of one time step, matched from its results upstream. Fused activations become separate operators."""

    def __init__(self, operators: Iterable[Operator]) -> None:
        parts = [part for op in operators for part in split_activation(op)]
        self.producers = {tensor: op for op in parts for tensor in op.outputs if tensor is not None}
        self._sums: dict[Tensor, Sums | None] = {}

    def producer(self, tensor: Tensor, code: str) -> Operator | None:
        """Return the operator that produces a tensor if its code is ``code``."""
        op = self.producers.get(tensor)
        return op if op is not None and op.code == code else None

    def operand_pairs(self, tensor: Tensor, code: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield both operands of a commutative operator, in either order."""
        op = self.producer(tensor, code)
        if op is not None:
            yield from permutations((op[0], op[1]))

    def operand(self, tensor: Tensor, code: str) -> Tensor | None:
        """Return operand 0 of the operator that produces a tensor, if its code is ``code``."""
        op = self.producer(tensor, code)
        return None if op is None else op[0]

    def activation_operand(self, tensor: Tensor) -> tuple[Tensor, str] | None:
        """Return the operand of an activation and ONNX's name of the activation."""
        operands = ((self.operand(tensor, code), name) for code, name in ACTIVATIONS.items())
        return next(((inner, name) for inner, name in operands if inner is not None), None)

    def gate_sums(self, tensor: Tensor) -> Sums | None:
        """Return the sums before a gate's sigmoid."""
        inner = self.operand(tensor, "LOGISTIC")
        return None if inner is None else self.sums(inner)

    # --- sums -----------------------------------------------------------------------------

    def sums(self, tensor: Tensor) -> Sums | None:
        """Return a tensor as sums; ``None`` unless it consists of products with constants, additions and splits of the last axis."""
        if tensor not in self._sums:
            self._sums[tensor] = self._read_sums(tensor)
        return self._sums[tensor]

    def _read_sums(self, tensor: Tensor) -> Sums | None:
        if tensor.is_constant:
            plain = tensor.dtype == "float32" and tensor.array.size == (tensor.shape or (0,))[-1]
            return Sums({}, tensor.array.reshape(-1)) if plain else None
        op = self.producers.get(tensor)
        reader = {
            "ADD": self._add_sums, "FULLY_CONNECTED": self._multiply_sums, "RESHAPE": self._reshape_sums, "SPLIT": self._split_sums,
            "SPLIT_V": self._split_sums, "STRIDED_SLICE": self._slice_sums,
        }.get("" if op is None else op.code)  # fmt: skip
        return None if op is None or reader is None else reader(op, tensor)

    def _add_sums(self, op: Operator, _made: Tensor) -> Sums | None:
        left, right = self.sums(op[0]), self.sums(op[1])
        return None if left is None or right is None else left.add(right)

    def _multiply_sums(self, op: Operator, _made: Tensor) -> Sums | None:
        matrix, bias = Matrix.of(op[1]), op.tensor(2)
        if matrix is None or op[0].dtype != "float32" or op[0].rank != 2 or (bias is not None and not bias.is_constant):
            return None
        bias_array = np.zeros(len(matrix.stored), np.float32) if bias is None else bias.array
        return Sums({op[0]: matrix}, bias_array)

    def _reshape_sums(self, op: Operator, result: Tensor) -> Sums | None:
        """Return the sums of a reshape that keeps the last axis."""
        return (
            self.sums(op[0]) if result.shape[-1:] == op[0].shape[-1:] and result.is_static and op[0].is_static else None
        )

    def _split_sums(self, op: Operator, result: Tensor) -> Sums | None:
        data, axis = (1, 0) if op.code == "SPLIT" else (0, 2)
        along, whole = op.constant(axis), self.sums(op[data])
        sizes = [part.shape[-1] for part in op.outputs if part is not None and part.dims[-1:] not in ((), (None,))]
        if (
            along is None
            or whole is None
            or int(along) % op[data].rank != op[data].rank - 1
            or sum(sizes) != len(whole.bias)
        ):
            return None
        ends = np.cumsum(sizes)
        parts = [range(end - size, end) for end, size in zip(ends.tolist(), sizes, strict=True)]
        return whole.rows(parts[op.outputs.index(result)])

    def _slice_sums(self, op: Operator, _made: Tensor) -> Sums | None:
        whole, parts = self.sums(op[0]), slice_positions(op)
        if (
            whole is None
            or parts is None
            or any(len(part) != size for part, size in zip(parts[:-1], op[0].shape, strict=False))
        ):
            return None
        return whole.rows(parts[-1])

    # --- cells ----------------------------------------------------------------------------

    def match_lstm(self, x: Any, after: Tensor, hidden: Any, cells_after: Tensor, cells: Tensor) -> Cell | None:
        """Match ``c' = σ(f)·c + σ(i)·f(g)``, ``h' = σ(o)·f(c')``."""
        for shown, squashed in self.operand_pairs(after, "MUL"):
            output, last = self.gate_sums(shown), self.activation_operand(squashed)
            if output is None or last is None or last[0] is not cells_after:
                continue
            for kept, fresh in self.operand_pairs(cells_after, "ADD"):
                forget = next((self.gate_sums(a) for a, b in self.operand_pairs(kept, "MUL") if b is cells), None)
                for gate, update in self.operand_pairs(fresh, "MUL"):
                    taken, inner = self.gate_sums(gate), self.activation_operand(update)
                    written = None if inner is None else self.sums(inner[0])
                    if taken is not None and forget is not None and inner is not None and written is not None:
                        gates, activations = (taken, output, forget, written), ("Sigmoid", inner[1], last[1])
                        return join_gates("LSTM", x, hidden, gates, activations=omit_default(activations))
        return None

    def key(self, tensor: Tensor) -> Any:
        """Return the key of a tensor in sums."""
        return tensor

    def tensor(self, key: Any) -> Tensor:
        """Return the tensor of a key."""
        made: Tensor = key
        return made

    def match_gru(self, x: Any, after: Tensor, before: Tensor) -> Cell | None:
        """Match ``h' = z·h + (1 - z)·h̃``, ``h̃ = f(...)``."""
        hidden = self.key(before)
        for share, update in self.update_operands(after, before):
            gate, inner = self.gate_sums(share), self.activation_operand(update)
            if gate is not None and inner is not None:
                cell = self._match_reset_after(x, hidden, gate, inner[0]) or self._match_reset_before(
                    x, hidden, gate, inner[0]
                )
                return cell and replace(cell, activations=omit_default(("Sigmoid", inner[1])))
        return None

    def update_operands(self, after: Tensor, before: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``z`` and ``h̃`` of ``z·h + (1 - z)·h̃``, which PyTorch exports as ``z·(h - h̃) + h̃``."""
        for scaled, other in self.operand_pairs(after, "ADD"):
            for share, rest in self.operand_pairs(scaled, "MUL"):
                left = self.producer(rest, "SUB")
                if rest is before:
                    kept = ((self.producer(a, "SUB"), b) for a, b in self.operand_pairs(other, "MUL"))
                    yield from (
                        (share, b) for one, b in kept if one is not None and is_one_minus(one) and one[1] is share
                    )
                elif left is not None and left[0] is before and left[1] is other:
                    yield share, other

    def _match_reset_after(self, x: Any, hidden: Any, update: Sums, inner: Tensor) -> Cell | None:
        """Match ``h̃ = f(W·x + b + r·(R·h + c))``."""
        for seen, scaled in self.operand_pairs(inner, "ADD"):
            for gate, remembered in self.operand_pairs(scaled, "MUL"):
                reset, inward, back = self.gate_sums(gate), self.sums(seen), self.sums(remembered)
                if reset is not None and inward is not None and back is not None:
                    return join_gates("GRU", x, hidden, (update, reset, (inward, back)), after=True)
        return None

    def _match_reset_before(self, x: Any, hidden: Any, update: Sums, inner: Tensor) -> Cell | None:
        """Match ``h̃ = f(W·x + b + R·(r·h))``."""
        sums = self.sums(inner)
        for scaled in () if sums is None else sums.products:
            for gate, other in self.operand_pairs(self.tensor(scaled), "MUL"):
                reset = self.gate_sums(gate)
                if sums is not None and reset is not None and self.key(other) == hidden:
                    products = {hidden if key == scaled else key: weights for key, weights in sums.products.items()}
                    return join_gates("GRU", x, hidden, (update, reset, Sums(products, sums.bias)))
        return None

    def match_rnn(self, x: Any, after: Tensor, hidden: Any) -> Cell | None:
        """Match ``h' = f(W·x + R·h + b)``."""
        inner = self.activation_operand(after)
        sums = None if inner is None else self.sums(inner[0])
        if inner is None or sums is None:
            return None
        return join_gates("RNN", x, hidden, (sums,), activations=omit_default((inner[1],)))


def is_one_minus(op: Operator) -> bool:
    """True if an operator subtracts its second operand from 1."""
    constant = op.constant(0)
    return constant is not None and constant.size == 1 and constant.item() == 1


def omit_default(activations: tuple[str, ...]) -> tuple[str, ...]:
    """Return a cell's activations, or ``()`` for ONNX's defaults."""
    return () if activations in DEFAULTS else activations


def fused_activation(op: Operator) -> str:
    """Return the name of an operator's fused activation; "NONE" for an operator without the option."""
    return str(op.options.get("fused_activation_function", "NONE"))


def split_activation(op: Operator) -> tuple[Operator, ...]:
    """Return an operator and its fused activation as separate operators."""
    code = fused_activation(op)
    if code == "NONE":
        return (op,)
    between = replace(op[~0])
    bare = Options(op.options.table, {**op.options, "fused_activation_function": "NONE"})
    after = Operator(op.subgraph, op.index, code, code, 1, Options(), (between,), op.outputs)
    return replace(op, options=bare, outputs=(between,)), after


def join_gates(
    op_type: str, x: Any, hidden: Any, gates: Sequence[Sums | tuple[Sums, Sums]], **more: Any
) -> Cell | None:
    """Return the cell of gates that each multiply the input and the last output once; ``None`` if one does not.

    Also ``None`` if a gate's size differs from the output's, since it would be broadcast. A gate may be a pair:
    products with the input and with the previous output, each with its bias.
    """
    inward, recurrent, biases = [], [], ([], [])  # type: tuple[list[Matrix], list[Matrix], tuple[list[Array], list[Array]]]
    for gate in gates:
        of_input, of_output = gate if isinstance(gate, tuple) else (gate, gate)
        wanted = ({x}, {hidden}) if isinstance(gate, tuple) else ({x, hidden},) * 2
        if (set(of_input.products), set(of_output.products)) != wanted:
            return None
        inward.append(of_input.products[x])
        recurrent.append(of_output.products[hidden])
        if not len(of_input.bias) == len(of_output.bias) == recurrent[-1].stored.shape[1]:
            return None
        biases[0].append(of_input.bias)
        biases[1].append(of_output.bias if isinstance(gate, tuple) else np.zeros_like(gate.bias))
    weights, back = Matrix.concatenate(inward), Matrix.concatenate(recurrent)
    if weights is None or back is None:
        return None
    return Cell(op_type, weights, back, np.concatenate([*biases[0], *biases[1]]), **more)


def slice_positions(op: Operator) -> list[list[int]] | None:
    """Return the positions along each axis that a STRIDED_SLICE with constant operands selects, else ``None``.

    A dynamic dimension must be selected whole; its positions are those of the stored size.
    """
    operands, options = [op.constant(slot) for slot in (1, 2, 3)], op.options
    if any(array is None or array.shape != (op[0].rank,) for array in operands):
        return None
    if options.ellipsis_mask or options.new_axis_mask or options.shrink_axis_mask or options.get("offset"):
        return None
    parts = []
    for axis, (begin, end, stride) in enumerate(zip(*operands, strict=True)):
        start = None if options.begin_mask >> axis & 1 else int(begin)
        stop = None if options.end_mask >> axis & 1 else int(end)
        if op[0].dims[axis] is None and (start, stop, stride) != (None, None, 1):
            return None
        parts.append(list(range(*slice(start, stop, int(stride)).indices(op[0].shape[axis]))))
    return parts
