"""One step of an LSTM, in float32 or rounded where the integer kernel rounds (kernels/lstm_eval.cc).

Sizes: B batches, I inputs, C cells, O outputs (C of them unless projected), G gates (3 without an input gate).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Decline, Operator, Quantization, Refused, Value
from op_handlers.kernels.operands import reinterpret_uint8_weights


class Gate(NamedTuple):
    """The slots of what one gate multiplies the input, the last output and the cells by, and of what it adds.

    ``auxiliary``: weights of a second input, which one direction of two may have.
    """

    weights: int
    recurrent: int
    peephole: int | None
    bias: int
    norm: int
    auxiliary: int


INPUT, FORGET, UPDATE, OUTPUT = (
    Gate(1, 5, 9, 12, 20, 24),
    Gate(2, 6, 10, 13, 21, 25),
    Gate(3, 7, None, 14, 22, 26),
    Gate(4, 8, 11, 15, 23, 27),
)
GATES = (INPUT, OUTPUT, FORGET, UPDATE)  # as ONNX orders them
PROJECTION, PROJECTION_BIAS, HIDDEN, CELLS = 16, 17, 18, 19


def gates_of(op: Operator) -> list[Gate]:
    """Without weights of its own the input gate is what the forget gate leaves (CIFG)."""
    return [gate for gate in GATES if op.tensor(gate.weights) is not None]


def normalizes(op: Operator) -> bool:
    """Whether each gate is normalized over its cells; its bias then comes after."""
    return op.tensor(FORGET.norm) is not None


def peeps(op: Operator) -> bool:
    """Whether gates see the cells."""
    return op.tensor(OUTPUT.peephole or 0) is not None


def of_another_batch(op: Operator, batch: int | None) -> Decline | None:
    """States of one axis or two hold an output and a cell state for each sequence (Prepare, unidirectional_sequence_lstm.cc)."""
    outputs, cells = op[FORGET.recurrent].shape[1:], op[FORGET.weights].shape[:1]
    for state, width in ((op[HIDDEN], outputs), (op[CELLS], cells)):
        if batch is not None and prod(state.shape) != prod((batch, *width)):
            made = f"its weights make {[batch, *width]} for {batch} sequences"
            return Decline(f"its state {state.name!r} is of shape {list(state.shape)}, {made}")
    return None


class Cell:
    """In float32: EvalFloat, and EvalHybrid but for the rounding of its activations.

    ``reverse``: a sequence is taken from its end.
    """

    states_of = ("float32", "float32", "float32")
    """Dtypes of outputs, cells and sums between steps."""

    def __init__(self, ctx: Context, inputs: Mapping[int, Value], reverse: bool = False) -> None:
        self.ctx, self.op, self.ops, self.inputs, self.reverse = ctx, ctx.op, ctx.ops, inputs, reverse
        self.gates = self.ordered(gates_of(ctx.op))
        self.normalizes, self.peeps = normalizes(ctx.op), peeps(ctx.op)
        self.cells = ctx.op[OUTPUT.weights].shape[0]
        self.outputs = ctx.op[OUTPUT.recurrent].shape[1]
        self.batches = prod(ctx.op[CELLS].shape) // self.cells
        self.time = -1 if ctx.op[0].rank == 2 else ctx.op[0].dims[0 if ctx.options.time_major else 1] or -1
        self.recurrent = self.backward()
        self.projection = self.weights([PROJECTION]) if ctx.op.tensor(PROJECTION) is not None else None

    def ordered(self, gates: Sequence[Gate]) -> list[Gate]:
        """The gates in the order of their matrices."""
        return [*gates]

    # --- operands -----------------------------------------------------------------------------

    def real(self, slot: int) -> Value | Array:
        """An operand in float32, as an array where it is a constant; biases the kernel counts in as the file says."""
        tensor, constant = self.op[slot], self.ctx.constant(slot)
        if tensor.dtype == "float32" and constant is not None:
            return constant
        if tensor.dtype != "int32":
            return reinterpret_uint8_weights(self.ctx, slot, self.inputs[slot])
        if constant is None or not isinstance(tensor.quantization, Quantization):
            raise Refused(f"its bias {tensor.name!r} is int32 without a scale")
        return constant.astype(np.float32) * np.float32(tensor.quantization.scale[0])

    def joined(self, parts: Sequence[Value | Array]) -> Value | Array:
        """One below the other."""
        arrays = [part for part in parts if isinstance(part, np.ndarray)]
        if len(arrays) == len(parts):
            return np.concatenate(arrays)
        return self.ops.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]

    def weights(self, slots: Sequence[int]) -> Value | Array:
        """Matrices one below the other: (rows of all, columns)."""
        return self.joined([self.real(slot) for slot in slots])

    def matrix(self, gate: Gate) -> Value | Array:
        """What a gate multiplies the input by, and beside it the auxiliary input."""
        own = self.real(gate.weights)
        return (
            own if self.op.tensor(gate.auxiliary) is None else self.ops.Concat(own, self.real(gate.auxiliary), axis=1)
        )

    def inward(self) -> Value | Array:
        """What all gates multiply the input by: (G * C, I)."""
        if self.op.tensor(OUTPUT.auxiliary) is None:
            return self.weights([gate.weights for gate in self.gates])
        return self.joined([self.matrix(gate) for gate in self.gates])

    def backward(self) -> Value | Array:
        """What all gates multiply the last output by: (G * C, O)."""
        return self.weights([gate.recurrent for gate in self.gates])

    def biases(self) -> Value | Array:
        return self.joined([self.real(gate.bias) for gate in self.gates])

    # --- states -------------------------------------------------------------------------------

    def states(self) -> tuple[Value, Value]:
        """The last output (B, O) and the cells (B, C) as a step takes them; the file may keep them in one axis."""
        return self.rows(HIDDEN, self.outputs), self.rows(CELLS, self.cells)

    def rows(self, slot: int, size: int) -> Value:
        """A state of so many numbers for each batch."""
        state = self.inputs[slot]
        if self.op[slot].rank == 2:
            return state
        constant = self.ctx.known(state)
        if constant is not None:
            return self.ctx.constant_value(constant.reshape(-1, size))
        return self.ops.Reshape(state, [-1, size])

    def carried(self, hidden: Value) -> Value:
        """An output as the next step takes it."""
        return hidden

    def keep(self, hidden: Value, cells: Value) -> None:
        """What the last step leaves is where the next run starts."""
        for slot, value in ((HIDDEN, hidden), (CELLS, cells)):
            self.ctx.assign(slot, value if self.op[slot].rank == 2 else self.ctx.reshaped(value, slot))

    def finished(self, y: Value) -> Value:
        """Outputs as the operator gives them."""
        return y

    # --- steps --------------------------------------------------------------------------------

    def products(self, x: Value) -> Value:
        """What all steps' inputs add to the gates: (..., B, I) to (..., B, G * C). Biases come after a normalization."""
        return self.multiplied(x, self.inward(), None if self.normalizes else self.biases(), len(self.gates))

    def multiplied(self, x: Value, weights: Value | Array, bias: Value | Array | None, gates: int) -> Value:
        """By the matrices of so many gates, for all steps at once."""
        if self.op[0].rank == 2:
            return self.ops.Gemm(x, weights, bias, transB=1)
        rows = self.ops.Gemm(self.ops.Flatten(x, axis=2), weights, bias, transB=1)
        return self.ops.Reshape(rows, [self.time, self.batches, gates * self.cells])

    def part(self, joined: Value | Array, gate: Gate) -> Value:
        """One gate's matrix of those of all, which are kept once."""
        first = self.gates.index(gate) * self.cells
        return self.ops.Slice(joined, [first], [first + self.cells], [0])

    def step(self, hidden: Value, cells: Value, products: Value) -> tuple[Value, Value]:
        """The output and the cells after one more input: forget, take in, give out."""
        sums = dict(zip(self.gates, self.sums(hidden, cells, products), strict=True))
        forget = self.share(FORGET, sums, cells)
        take = self.share(INPUT, sums, cells) if INPUT in sums else self.rest(forget)
        cells = self.updated(cells, forget, take, self.update(sums))
        give = self.share(OUTPUT, sums, cells)
        return self.output(give, cells), cells

    def sums(self, hidden: Value, cells: Value, products: Value) -> Sequence[Value]:
        """What each gate sees, but for the cells and before any normalization."""
        return self.split(self.ops.Gemm(hidden, self.recurrent, products, transB=1))

    def split(self, sums: Value) -> Sequence[Value]:
        """One part for each gate."""
        sizes = [self.cells] * len(self.gates)
        return self.ops.Split(sums, sizes, axis=1, outputs=len(sizes))

    def share(self, gate: Gate, sums: dict[Gate, Value], cells: Value) -> Value:
        """How far a gate is open, 0 to 1."""
        seen = sums[gate]
        if gate.peephole is not None and self.op.tensor(gate.peephole) is not None:
            seen = self.peeped(gate, gate.peephole, seen, cells)
        return self.ops.Sigmoid(self.normalized(gate, seen))

    def update(self, sums: dict[Gate, Value]) -> Value:
        """What cells may take in."""
        return self.activated(self.normalized(UPDATE, sums[UPDATE]))

    def rest(self, share: Value) -> Value:
        return self.ops.Sub(1.0, share)

    def peeped(self, gate: Gate, slot: int, sums: Value, cells: Value) -> Value:
        return self.ops.Add(sums, self.ops.Mul(cells, self.real(slot)))

    def normalized(self, gate: Gate, sums: Value) -> Value:
        """MeanStddevNormalization, portable_tensor_utils.cc."""
        if not self.normalizes:
            return sums
        return self.ops.LayerNormalization(sums, self.real(gate.norm), self.real(gate.bias), epsilon=1e-8)

    def activated(self, x: Value) -> Value:
        return self.ctx.activate(x)

    def updated(self, cells: Value, forget: Value, take: Value, update: Value) -> Value:
        kept = self.ops.Add(self.ops.Mul(forget, cells), self.ops.Mul(take, update))
        return self.clipped(kept, float(self.ctx.options.cell_clip))

    def clipped(self, x: Value, most: float) -> Value:
        return self.ops.Clip(x, -most, most) if most > 0 else x

    def output(self, give: Value, cells: Value) -> Value:
        hidden = self.ops.Mul(give, self.activated(cells))
        if self.projection is None:
            return hidden
        biased = self.op.tensor(PROJECTION_BIAS) is not None
        projected = self.ops.Gemm(hidden, self.projection, self.real(PROJECTION_BIAS) if biased else None, transB=1)
        return self.clipped(projected, float(self.ctx.options.proj_clip))
