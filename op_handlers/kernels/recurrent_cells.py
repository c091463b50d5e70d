"""Matching of decomposed recurrent cells: the weights of a GRU, an LSTM or an RNN."""

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
"""Maximum number of products per gate: one with the input, one with the last output."""


@dataclass(frozen=True)
class Matrix:
    """A weight matrix in float32, float16, or int8 with a scale per row."""

    values: Array
    scales: Array | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> Matrix | None:
        """Return the matrix of a weight, ``None`` if the weight is unsupported.

        Supported weights are constants of float32 or int8, without zero points.
        """
        if not tensor.is_constant or tensor.rank != 2:
            return None
        if tensor.dtype == "float32":
            narrower = tensor.narrower
            return cls(narrower.array if narrower is not None and narrower.dtype == "float16" else tensor.array)
        quantization = tensor.quantization
        if tensor.dtype != "int8" or not isinstance(quantization, Quantization) or any(quantization.zero_point):
            return None
        if quantization.per_axis and quantization.axis != 0:
            return None
        return cls(tensor.array, np.broadcast_to(np.asarray(quantization.scale, np.float32), tensor.shape[:1]))

    def select_units(self, indices: Sequence[int]) -> Matrix:
        return Matrix(self.values[indices], None if self.scales is None else self.scales[indices])

    @staticmethod
    def concatenate(matrices: Sequence[Matrix]) -> Matrix | None:
        """Return matrices concatenated along axis 0, ``None`` if their dtypes differ."""
        if len({(matrix.values.dtype, matrix.scales is None) for matrix in matrices}) > 1:
            return None
        scales = [matrix.scales for matrix in matrices if matrix.scales is not None]
        return Matrix(
            np.concatenate([matrix.values for matrix in matrices]), np.concatenate(scales) if scales else None
        )


@dataclass(frozen=True)
class Sums:
    """A bias ``[n]`` plus the sum of ``matrix · x`` over all x, per row of the batch.

    ``products``: x → matrix, where x is a tensor or its key.
    """

    products: Mapping[Any, Matrix]
    bias: Array

    def select_units(self, indices: Sequence[int]) -> Sums:
        return Sums(
            {tensor: matrix.select_units(indices) for tensor, matrix in self.products.items()}, self.bias[indices]
        )

    def add(self, other: Sums) -> Sums | None:
        """Return ``self + other``.

        Return ``None`` if the sums share a tensor, differ in size, or have more than ``MAX_PRODUCTS`` products together.
        """
        if self.products.keys() & other.products.keys() or len(self.bias) != len(other.bias):
            return None
        if len(self.products) + len(other.products) > MAX_PRODUCTS:
            return None
        return Sums({**self.products, **other.products}, self.bias + other.bias)


@dataclass(frozen=True)
class Cell:
    """Weights of ONNX's operator ``op_type``, with gates in ONNX's order.

    ``bias``: input bias, then recurrent bias, each [gates · n]. ``linear_before_reset``: the reset gate of a GRU
    multiplies the recurrent sums instead of the last output. ``activations``: empty for ONNX's defaults.
    """

    op_type: str
    input_weights: Matrix
    recurrent_weights: Matrix
    bias: Array
    linear_before_reset: bool = False
    activations: tuple[str, ...] = ()


class Dataflow:
    """Mapping of each tensor to the operator that computes it.

    Fused activations become separate operators. The ``match_`` methods match the operators of one time step.
    """

    def __init__(self, operators: Iterable[Operator]) -> None:
        split_operators = [split_op for op in operators for split_op in split_activation(op)]
        self.producers = {tensor: op for op in split_operators for tensor in op.outputs if tensor is not None}
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
        """Return operand 0 of a tensor's producer if the producer's code is ``code``."""
        op = self.producer(tensor, code)
        return None if op is None else op[0]

    def activation_operand(self, tensor: Tensor) -> tuple[Tensor, str] | None:
        """Return the operand of an activation, and the activation's name in ONNX."""
        operands = ((self.operand(tensor, code), name) for code, name in ACTIVATIONS.items())
        return next(((operand, name) for operand, name in operands if operand is not None), None)

    def gate_sums(self, tensor: Tensor) -> Sums | None:
        """Return the sums before a gate's sigmoid."""
        operand = self.operand(tensor, "LOGISTIC")
        return None if operand is None else self.sums(operand)

    # --- sums -----------------------------------------------------------------------------

    def sums(self, tensor: Tensor) -> Sums | None:
        """Return a tensor as a sum of products with constant matrices.

        Return ``None`` if an operator that is not a product, an addition or a split of the last axis contributes.
        """
        if tensor not in self._sums:
            self._sums[tensor] = self._read_sums(tensor)
        return self._sums[tensor]

    def _read_sums(self, tensor: Tensor) -> Sums | None:
        if tensor.is_constant:
            is_bias = tensor.dtype == "float32" and tensor.array.size == (tensor.shape or (0,))[-1]
            return Sums({}, tensor.array.reshape(-1)) if is_bias else None
        op = self.producers.get(tensor)
        reader = {
            "ADD": self._add_sums, "FULLY_CONNECTED": self._multiply_sums, "RESHAPE": self._reshape_sums, "SPLIT": self._split_sums,
            "SPLIT_V": self._split_sums, "STRIDED_SLICE": self._slice_sums,
        }.get("" if op is None else op.code)  # fmt: skip
        return None if op is None or reader is None else reader(op, tensor)

    def _add_sums(self, op: Operator, _result: Tensor) -> Sums | None:
        left, right = self.sums(op[0]), self.sums(op[1])
        return None if left is None or right is None else left.add(right)

    def _multiply_sums(self, op: Operator, _result: Tensor) -> Sums | None:
        matrix, bias = Matrix.of(op[1]), op.tensor(2)
        if matrix is None or op[0].dtype != "float32" or op[0].rank != 2 or (bias is not None and not bias.is_constant):
            return None
        bias_array = np.zeros(len(matrix.values), np.float32) if bias is None else bias.array
        return Sums({op[0]: matrix}, bias_array)

    def _reshape_sums(self, op: Operator, result: Tensor) -> Sums | None:
        """Return the sums of a reshape that keeps the last axis."""
        keeps_last_axis = result.shape[-1:] == op[0].shape[-1:] and result.is_static and op[0].is_static
        return self.sums(op[0]) if keeps_last_axis else None

    def _split_sums(self, op: Operator, result: Tensor) -> Sums | None:
        data_slot, axis_slot = (1, 0) if op.code == "SPLIT" else (0, 2)
        split_axis, sums = op.constant(axis_slot), self.sums(op[data_slot])
        sizes = [
            output.shape[-1] for output in op.outputs if output is not None and output.dims[-1:] not in ((), (None,))
        ]
        if (
            split_axis is None
            or sums is None
            or int(split_axis) % op[data_slot].rank != op[data_slot].rank - 1
            or sum(sizes) != len(sums.bias)
        ):
            return None
        ends = np.cumsum(sizes)
        ranges = [range(end - size, end) for end, size in zip(ends.tolist(), sizes, strict=True)]
        return sums.select_units(ranges[op.outputs.index(result)])

    def _slice_sums(self, op: Operator, _result: Tensor) -> Sums | None:
        sums, positions = self.sums(op[0]), strided_slice_positions(op)
        if (
            sums is None
            or positions is None
            or any(len(indices) != size for indices, size in zip(positions[:-1], op[0].shape, strict=False))
        ):
            return None
        return sums.select_units(positions[-1])

    # --- cells ----------------------------------------------------------------------------

    def match_lstm(self, x: Any, new_hidden: Tensor, hidden: Any, new_cell: Tensor, old_cell: Tensor) -> Cell | None:
        """Match ``c' = σ(f)·c + σ(i)·φ(g)``, ``h' = σ(o)·φ(c')``, with any activations φ."""
        for output_gate, activated_cell in self.operand_pairs(new_hidden, "MUL"):
            output_sums, cell_activation = self.gate_sums(output_gate), self.activation_operand(activated_cell)
            if output_sums is None or cell_activation is None or cell_activation[0] is not new_cell:
                continue
            for scaled_cell, scaled_update in self.operand_pairs(new_cell, "ADD"):
                forget_sums = next(
                    (self.gate_sums(a) for a, b in self.operand_pairs(scaled_cell, "MUL") if b is old_cell), None
                )
                for gate, update in self.operand_pairs(scaled_update, "MUL"):
                    input_sums, update_activation = self.gate_sums(gate), self.activation_operand(update)
                    update_sums = None if update_activation is None else self.sums(update_activation[0])
                    if (
                        input_sums is not None
                        and forget_sums is not None
                        and update_activation is not None
                        and update_sums is not None
                    ):
                        gates = (input_sums, output_sums, forget_sums, update_sums)
                        activations = ("Sigmoid", update_activation[1], cell_activation[1])
                        return join_gates("LSTM", x, hidden, gates, activations=omit_default(activations))
        return None

    def key(self, tensor: Tensor) -> Any:
        """Return the key of a tensor in ``Sums.products``: here, the tensor itself."""
        return tensor

    def tensor(self, key: Any) -> Tensor:
        """Return the tensor of a key in ``Sums.products``."""
        tensor: Tensor = key
        return tensor

    def match_gru(self, x: Any, new_hidden: Tensor, old_hidden: Tensor) -> Cell | None:
        """Match ``h' = z·h + (1 - z)·h̃``, ``h̃ = f(...)``."""
        hidden = self.key(old_hidden)
        for update_gate, update in self.update_operands(new_hidden, old_hidden):
            gate_sums, activation = self.gate_sums(update_gate), self.activation_operand(update)
            if gate_sums is not None and activation is not None:
                cell = self._match_reset_after(x, hidden, gate_sums, activation[0]) or self._match_reset_before(
                    x, hidden, gate_sums, activation[0]
                )
                return cell and replace(cell, activations=omit_default(("Sigmoid", activation[1])))
        return None

    def update_operands(self, new_hidden: Tensor, old_hidden: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``z`` and ``h̃`` of the update ``z·h + (1 - z)·h̃``.

        PyTorch exports the update as ``z·(h - h̃) + h̃``.
        """
        for product, addend in self.operand_pairs(new_hidden, "ADD"):
            for gate, factor in self.operand_pairs(product, "MUL"):
                difference = self.producer(factor, "SUB")
                if factor is old_hidden:
                    complements = (
                        (self.producer(a, "SUB"), candidate) for a, candidate in self.operand_pairs(addend, "MUL")
                    )
                    yield from (
                        (gate, candidate)
                        for complement, candidate in complements
                        if complement is not None and is_one_minus(complement) and complement[1] is gate
                    )
                elif difference is not None and difference[0] is old_hidden and difference[1] is addend:
                    yield gate, addend

    def _match_reset_after(self, x: Any, hidden: Any, update: Sums, operand: Tensor) -> Cell | None:
        """Match ``h̃ = f(W·x + b + r·(R·h + c))``."""
        for input_term, gated_term in self.operand_pairs(operand, "ADD"):
            for gate, recurrent_term in self.operand_pairs(gated_term, "MUL"):
                reset_sums, input_sums = self.gate_sums(gate), self.sums(input_term)
                recurrent_sums = self.sums(recurrent_term)
                if reset_sums is not None and input_sums is not None and recurrent_sums is not None:
                    return join_gates(
                        "GRU", x, hidden, (update, reset_sums, (input_sums, recurrent_sums)), linear_before_reset=True
                    )
        return None

    def _match_reset_before(self, x: Any, hidden: Any, update: Sums, operand: Tensor) -> Cell | None:
        """Match ``h̃ = f(W·x + b + R·(r·h))``."""
        sums = self.sums(operand)
        for gated_key in () if sums is None else sums.products:
            for gate, factor in self.operand_pairs(self.tensor(gated_key), "MUL"):
                reset_sums = self.gate_sums(gate)
                if sums is not None and reset_sums is not None and self.key(factor) == hidden:
                    products = {hidden if key == gated_key else key: weights for key, weights in sums.products.items()}
                    return join_gates("GRU", x, hidden, (update, reset_sums, Sums(products, sums.bias)))
        return None

    def match_rnn(self, x: Any, new_hidden: Tensor, hidden: Any) -> Cell | None:
        """Match ``h' = f(W·x + R·h + b)``."""
        activation = self.activation_operand(new_hidden)
        sums = None if activation is None else self.sums(activation[0])
        if activation is None or sums is None:
            return None
        return join_gates("RNN", x, hidden, (sums,), activations=omit_default((activation[1],)))


def is_one_minus(op: Operator) -> bool:
    """True if an operator subtracts its second operand from 1."""
    constant = op.constant(0)
    return constant is not None and constant.size == 1 and constant.item() == 1


def omit_default(activations: tuple[str, ...]) -> tuple[str, ...]:
    """Return a cell's activations, or ``()`` for ONNX's defaults."""
    return () if activations in DEFAULTS else activations


def fused_activation(op: Operator) -> str:
    """Return the fused activation of an operator, "NONE" if it has no such option."""
    return str(op.options.get("fused_activation_function", "NONE"))


def split_activation(op: Operator) -> tuple[Operator, ...]:
    """Return an operator and its fused activation as separate operators."""
    code = fused_activation(op)
    if code == "NONE":
        return (op,)
    intermediate = replace(op[~0])
    unfused_options = Options(op.options.table, {**op.options, "fused_activation_function": "NONE"})
    activation = Operator(op.subgraph, op.index, code, code, 1, Options(), (intermediate,), op.outputs)
    return replace(op, options=unfused_options, outputs=(intermediate,)), activation


def join_gates(
    op_type: str, x: Any, hidden: Any, gates: Sequence[Sums | tuple[Sums, Sums]], **attributes: Any
) -> Cell | None:
    """Return the cell with these gates, or ``None`` if the gates do not form a cell.

    Each gate has one product with the input and one with the last output. A gate may be a pair of sums, one for each
    product, each with its bias. All gates must have the size of the output; gates of size 1 would be broadcast.
    """
    input_weights: list[Matrix] = []
    recurrent_weights: list[Matrix] = []
    input_biases: list[Array] = []
    recurrent_biases: list[Array] = []
    for gate in gates:
        input_sums, recurrent_sums = gate if isinstance(gate, tuple) else (gate, gate)
        factors = ({x}, {hidden}) if isinstance(gate, tuple) else ({x, hidden}, {x, hidden})
        if (set(input_sums.products), set(recurrent_sums.products)) != factors:
            return None
        input_weights.append(input_sums.products[x])
        recurrent_weights.append(recurrent_sums.products[hidden])
        if not len(input_sums.bias) == len(recurrent_sums.bias) == recurrent_weights[-1].values.shape[1]:
            return None
        input_biases.append(input_sums.bias)
        recurrent_biases.append(recurrent_sums.bias if isinstance(gate, tuple) else np.zeros_like(gate.bias))
    input_matrix, recurrent_matrix = Matrix.concatenate(input_weights), Matrix.concatenate(recurrent_weights)
    if input_matrix is None or recurrent_matrix is None:
        return None
    return Cell(
        op_type, input_matrix, recurrent_matrix, np.concatenate([*input_biases, *recurrent_biases]), **attributes
    )


def strided_slice_positions(op: Operator) -> list[list[int]] | None:
    """Return the positions that a STRIDED_SLICE selects along each axis, or ``None``.

    Its operands must be constant. A dynamic dimension must be selected completely; its positions are
    computed from the size in the file.
    """
    operands, options = [op.constant(slot) for slot in (1, 2, 3)], op.options
    if any(array is None or array.shape != (op[0].rank,) for array in operands):
        return None
    if options.ellipsis_mask or options.new_axis_mask or options.shrink_axis_mask or options.get("offset"):
        return None
    positions = []
    for axis, (begin, end, stride) in enumerate(zip(*operands, strict=True)):
        start = None if options.begin_mask >> axis & 1 else int(begin)
        stop = None if options.end_mask >> axis & 1 else int(end)
        if op[0].dims[axis] is None and (start, stop, stride) != (None, None, 1):
            return None
        positions.append(list(range(*slice(start, stop, int(stride)).indices(op[0].shape[axis]))))
    return positions
