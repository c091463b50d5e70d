"""Recurrent cells that the body of a loop spells out, read back as the matrices of a GRU, an LSTM or a plain cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Options, Quantization, Tensor

ACTIVATIONS = {"TANH": "Tanh", "RELU": "Relu", "LOGISTIC": "Sigmoid"}
"""ONNX's names, by operator."""
DEFAULTS = (("Tanh",), ("Sigmoid", "Tanh"), ("Sigmoid", "Tanh", "Tanh"))
"""ONNX's activations of RNN, GRU and LSTM."""
MOST_PRODUCTS = 2
"""A gate multiplies the input and the last output."""


@dataclass(frozen=True)
class Matrix:
    """Rows of a weight as the file has them: float32, float16, or int8 with a scale for each row."""

    stored: Array
    scales: Array | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> Matrix | None:
        """``None`` where a weight is computed, has zero points or is of another dtype."""
        if not tensor.constant or tensor.rank != 2:
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
    def stacked(parts: Sequence[Matrix]) -> Matrix | None:
        """One below the other; ``None`` where they are not of one kind."""
        if len({(part.stored.dtype, part.scales is None) for part in parts}) > 1:
            return None
        scales = [part.scales for part in parts if part.scales is not None]
        return Matrix(np.concatenate([part.stored for part in parts]), np.concatenate(scales) if scales else None)


@dataclass(frozen=True)
class Sums:
    """What additions of products and constants make: for each row of the batch, ``matrix · x`` of each x and a bias [n].

    ``products``: by x, a tensor or what stands for one.
    """

    products: Mapping[Any, Matrix]
    bias: Array

    def rows(self, which: Sequence[int]) -> Sums:
        return Sums({tensor: matrix.rows(which) for tensor, matrix in self.products.items()}, self.bias[which])

    def plus(self, other: Sums) -> Sums | None:
        """``None`` where both multiply the same tensor, they differ in size, or multiply more than any cell does."""
        if self.products.keys() & other.products.keys() or len(self.bias) != len(other.bias):
            return None
        if len(self.products) + len(other.products) > MOST_PRODUCTS:
            return None
        return Sums({**self.products, **other.products}, self.bias + other.bias)


@dataclass(frozen=True)
class Cell:
    """``op_type`` of ONNX with its gates in ONNX's order: weights of the input, of the last output, and both biases [gates · n].

    ``after``: whether a GRU's reset gate multiplies the recurrent sums, not the last output. ``activations``: where they are
    not ONNX's default.
    """

    op_type: str
    inward: Matrix
    recurrent: Matrix
    bias: Array
    after: bool = False
    activations: tuple[str, ...] = ()


class Body:
    """The operators of one step, read from its results upwards; fused activations are operators of their own."""

    def __init__(self, operators: Iterable[Operator]) -> None:
        parts = [part for op in operators for part in unfused(op)]
        self.makers = {tensor: op for op in parts for tensor in op.outputs if tensor is not None}
        self._sums: dict[Tensor, Sums | None] = {}

    def maker(self, tensor: Tensor, code: str) -> Operator | None:
        """The operator that makes a tensor, where it is this one."""
        op = self.makers.get(tensor)
        return op if op is not None and op.code == code else None

    def pairs(self, tensor: Tensor, code: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Both operands of a commutative operator, in either order."""
        op = self.maker(tensor, code)
        if op is not None:
            yield from permutations((op[0], op[1]))

    def of(self, tensor: Tensor, code: str) -> Tensor | None:
        """The operand of a function."""
        op = self.maker(tensor, code)
        return None if op is None else op[0]

    def activated(self, tensor: Tensor) -> tuple[Tensor, str] | None:
        """The operand of an activation and ONNX's name for that."""
        operands = ((self.of(tensor, code), name) for code, name in ACTIVATIONS.items())
        return next(((inner, name) for inner, name in operands if inner is not None), None)

    def gate(self, tensor: Tensor) -> Sums | None:
        inner = self.of(tensor, "LOGISTIC")
        return None if inner is None else self.sums(inner)

    # --- sums -----------------------------------------------------------------------------

    def sums(self, tensor: Tensor) -> Sums | None:
        """``None`` for what is not made of products with constants, additions, and parts along the last axis."""
        if tensor not in self._sums:
            self._sums[tensor] = self._read(tensor)
        return self._sums[tensor]

    def _read(self, tensor: Tensor) -> Sums | None:
        if tensor.constant:
            plain = tensor.dtype == "float32" and tensor.array.size == (tensor.shape or (0,))[-1]
            return Sums({}, tensor.array.reshape(-1)) if plain else None
        op = self.makers.get(tensor)
        reader = {
            "ADD": self._added, "FULLY_CONNECTED": self._multiplied, "RESHAPE": self._reshaped, "SPLIT": self._split,
            "SPLIT_V": self._split, "STRIDED_SLICE": self._sliced,
        }.get("" if op is None else op.code)  # fmt: skip
        return None if op is None or reader is None else reader(op, tensor)

    def _added(self, op: Operator, _made: Tensor) -> Sums | None:
        left, right = self.sums(op[0]), self.sums(op[1])
        return None if left is None or right is None else left.plus(right)

    def _multiplied(self, op: Operator, _made: Tensor) -> Sums | None:
        matrix, bias = Matrix.of(op[1]), op.tensor(2)
        if matrix is None or op[0].dtype != "float32" or op[0].rank != 2 or (bias is not None and not bias.constant):
            return None
        bias_array = np.zeros(len(matrix.stored), np.float32) if bias is None else bias.array
        return Sums({op[0]: matrix}, bias_array)

    def _reshaped(self, op: Operator, result: Tensor) -> Sums | None:
        """Sums of a batch of one without its axis."""
        return self.sums(op[0]) if result.shape[-1:] == op[0].shape[-1:] and result.static and op[0].static else None

    def _split(self, op: Operator, result: Tensor) -> Sums | None:
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

    def _sliced(self, op: Operator, _made: Tensor) -> Sums | None:
        whole, parts = self.sums(op[0]), sliced(op)
        if (
            whole is None
            or parts is None
            or any(len(part) != size for part, size in zip(parts[:-1], op[0].shape, strict=False))
        ):
            return None
        return whole.rows(parts[-1])

    # --- cells ----------------------------------------------------------------------------

    def lstm(self, x: Any, after: Tensor, hidden: Any, cells_after: Tensor, cells: Tensor) -> Cell | None:
        """``c' = σ(f)·c + σ(i)·f(g)``, ``h' = σ(o)·f(c')``."""
        for shown, squashed in self.pairs(after, "MUL"):
            output, last = self.gate(shown), self.activated(squashed)
            if output is None or last is None or last[0] is not cells_after:
                continue
            for kept, fresh in self.pairs(cells_after, "ADD"):
                forget = next((self.gate(a) for a, b in self.pairs(kept, "MUL") if b is cells), None)
                for gate, update in self.pairs(fresh, "MUL"):
                    taken, inner = self.gate(gate), self.activated(update)
                    written = None if inner is None else self.sums(inner[0])
                    if taken is not None and forget is not None and inner is not None and written is not None:
                        gates, activations = (taken, output, forget, written), ("Sigmoid", inner[1], last[1])
                        return joined("LSTM", x, hidden, gates, activations=unless_default(activations))
        return None

    def key(self, tensor: Tensor) -> Any:
        """What stands for a tensor in sums."""
        return tensor

    def tensor(self, key: Any) -> Tensor:
        """The tensor that a key stands for."""
        made: Tensor = key
        return made

    def gru(self, x: Any, after: Tensor, before: Tensor) -> Cell | None:
        """``h' = z·h + (1 - z)·h̃``, ``h̃ = f(...)``."""
        hidden = self.key(before)
        for share, update in self.mixed(after, before):
            gate, inner = self.gate(share), self.activated(update)
            if gate is not None and inner is not None:
                cell = self._reset_after(x, hidden, gate, inner[0]) or self._reset_before(x, hidden, gate, inner[0])
                return cell and replace(cell, activations=unless_default(("Sigmoid", inner[1])))
        return None

    def mixed(self, after: Tensor, before: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """``z`` and ``h̃`` of ``z·h + (1 - z)·h̃``, which PyTorch spells ``z·(h - h̃) + h̃``."""
        for scaled, other in self.pairs(after, "ADD"):
            for share, rest in self.pairs(scaled, "MUL"):
                left = self.maker(rest, "SUB")
                if rest is before:
                    kept = ((self.maker(a, "SUB"), b) for a, b in self.pairs(other, "MUL"))
                    yield from ((share, b) for one, b in kept if one is not None and is_one(one) and one[1] is share)
                elif left is not None and left[0] is before and left[1] is other:
                    yield share, other

    def _reset_after(self, x: Any, hidden: Any, update: Sums, inner: Tensor) -> Cell | None:
        """``h̃ = f(W·x + b + r·(R·h + c))``."""
        for seen, scaled in self.pairs(inner, "ADD"):
            for gate, remembered in self.pairs(scaled, "MUL"):
                reset, inward, back = self.gate(gate), self.sums(seen), self.sums(remembered)
                if reset is not None and inward is not None and back is not None:
                    return joined("GRU", x, hidden, (update, reset, (inward, back)), after=True)
        return None

    def _reset_before(self, x: Any, hidden: Any, update: Sums, inner: Tensor) -> Cell | None:
        """``h̃ = f(W·x + b + R·(r·h))``."""
        sums = self.sums(inner)
        for scaled in () if sums is None else sums.products:
            for gate, other in self.pairs(self.tensor(scaled), "MUL"):
                reset = self.gate(gate)
                if sums is not None and reset is not None and self.key(other) == hidden:
                    products = {hidden if key == scaled else key: weights for key, weights in sums.products.items()}
                    return joined("GRU", x, hidden, (update, reset, Sums(products, sums.bias)))
        return None

    def plain(self, x: Any, after: Tensor, hidden: Any) -> Cell | None:
        """``h' = f(W·x + R·h + b)``."""
        inner = self.activated(after)
        sums = None if inner is None else self.sums(inner[0])
        if inner is None or sums is None:
            return None
        return joined("RNN", x, hidden, (sums,), activations=unless_default((inner[1],)))


def is_one(op: Operator) -> bool:
    """Whether an operator takes its second operand from 1."""
    constant = op.constant(0)
    return constant is not None and constant.size == 1 and constant.item() == 1


def unless_default(activations: tuple[str, ...]) -> tuple[str, ...]:
    """ONNX's own of a cell need not be said."""
    return () if activations in DEFAULTS else activations


def fused_activation(op: Operator) -> str:
    """Return the name of the activation that an operator's kernel applies; "NONE" for an operator without the option."""
    return str(op.options.get("fused_activation_function", "NONE"))


def unfused(op: Operator) -> tuple[Operator, ...]:
    """An operator and its fused activation, each on its own."""
    code = fused_activation(op)
    if code == "NONE":
        return (op,)
    between = replace(op[~0])
    bare = Options(op.options.table, {**op.options, "fused_activation_function": "NONE"})
    after = Operator(op.subgraph, op.index, code, code, 1, Options(), (between,), op.outputs)
    return replace(op, options=bare, outputs=(between,)), after


def joined(op_type: str, x: Any, hidden: Any, gates: Sequence[Sums | tuple[Sums, Sums]], **more: Any) -> Cell | None:
    """The cell of gates that multiply the input and the last output, each once; ``None`` where one does not.

    Or where one is of another size than the output, along which it would be repeated. A gate may be a pair: the sums of the
    input and those of the last output, each with its bias.
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
    weights, back = Matrix.stacked(inward), Matrix.stacked(recurrent)
    if weights is None or back is None:
        return None
    return Cell(op_type, weights, back, np.concatenate([*biases[0], *biases[1]]), **more)


def sliced(op: Operator) -> list[list[int]] | None:
    """The positions along each axis that a STRIDED_SLICE with constant operands takes; ``None`` where it does anything else.

    Of an open axis, the one of the size that is stored, where it takes all.
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
