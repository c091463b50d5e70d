"""One step of an LSTM, in float32 or rounded as in the integer kernel.

The kernel is kernels/lstm_eval.cc. Sizes: B batches, I inputs, C cells, O outputs (C of them unless projected), G
gates (3 without an input gate).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Decline, Operator, Quantization, Refusal, Tensor, Value, named
from op_handlers.kernels.operands import reinterpret_uint8_weights


class Gate(NamedTuple):
    """Operand slots of one gate.

    ``weights``, ``recurrent`` and ``peephole``: weights of the input, of the previous output and of the cells.
    ``norm``: normalization weights. ``auxiliary``: weights of a second input, which a bidirectional operator may
    have.
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
GATES = (INPUT, OUTPUT, FORGET, UPDATE)  # ONNX's order
GATE_NAMES = {INPUT: "input_gate", FORGET: "forget_gate", UPDATE: "cell_update", OUTPUT: "output_gate"}
PROJECTION, PROJECTION_BIAS, HIDDEN, CELLS = 16, 17, 18, 19


def gates_of(op: Operator) -> list[Gate]:
    """Return the gates with weights.

    Without an input gate, 1 minus the forget gate replaces it (CIFG).
    """
    return [gate for gate in GATES if op.tensor(gate.weights) is not None]


def has_layer_norm(op: Operator) -> bool:
    """True if each gate is normalized over its cells.

    The bias is then added after the normalization.
    """
    return op.tensor(FORGET.norm) is not None


def has_peepholes(op: Operator) -> bool:
    """True if gates have peepholes."""
    return op.tensor(OUTPUT.peephole or 0) is not None


def check_state_batch(op: Operator, batch: int | None) -> Decline | None:
    """Return a Decline unless states and input have the same batch size.

    The kernel checks this in Prepare (unidirectional_sequence_lstm.cc).
    """
    outputs, cells = op[FORGET.recurrent].shape[1:], op[FORGET.weights].shape[:1]
    for state, width in ((op[HIDDEN], outputs), (op[CELLS], cells)):
        if batch is not None and prod(state.shape) != prod((batch, *width)):
            expected = f"the weights require {[batch, *width]} for a batch of {batch}"
            return Decline(f"state {state.name!r} has shape {list(state.shape)}, but {expected}")
    return None


class Cell:
    """A float32 cell, as in EvalFloat, or in EvalHybrid without rounding.

    ``reverse``: True if the sequence is read from its end.
    """

    state_dtypes = ("float32", "float32", "float32")
    """Dtypes of outputs, cells and sums between steps."""

    def __init__(self, ctx: Context, inputs: Mapping[int, Value], reverse: bool = False) -> None:
        self.ctx, self.op, self.ops, self.inputs, self.reverse = ctx, ctx.op, ctx.ops, inputs, reverse
        self.gates = self.order_gates(gates_of(ctx.op))
        self.normalizes, self.has_peepholes = has_layer_norm(ctx.op), has_peepholes(ctx.op)
        self.cell_count = ctx.op[OUTPUT.weights].shape[0]
        self.output_size = ctx.op[OUTPUT.recurrent].shape[1]
        self.batch_size = prod(ctx.op[CELLS].shape) // self.cell_count
        self.step_count = -1 if ctx.op[0].rank == 2 else ctx.op[0].dims[0 if ctx.options.time_major else 1] or -1
        self.recurrent = self.recurrent_weights()
        self.projection = self.weights([PROJECTION]) if ctx.op.tensor(PROJECTION) is not None else None

    def order_gates(self, gates: Sequence[Gate]) -> list[Gate]:
        """Return the gates in the order of their matrices."""
        return [*gates]

    # --- operands -----------------------------------------------------------------------------

    def float_operand(self, slot: int) -> Value | Array:
        """Return an operand in float32, as an array if constant.

        An int32 bias with float32 activations has the scale in the file.
        """
        tensor, constant = self.op[slot], self.ctx.constant(slot)
        if tensor.dtype == "float32" and constant is not None:
            return constant
        if tensor.dtype != "int32":
            return reinterpret_uint8_weights(self.ctx, slot, self.inputs[slot])
        if self.op[0].dtype == "int8":  # the host dequantizes these biases
            floats = self.ctx.constant_array(self.inputs[slot])
            return self.inputs[slot] if floats is None else floats
        if constant is None or not isinstance(tensor.quantization, Quantization):
            raise Refusal(f"bias {tensor.name!r} is int32 without a scale")
        return constant.astype(np.float32) * np.float32(tensor.quantization.scale[0])

    def concatenate(self, values: Sequence[Value | Array]) -> Value | Array:
        """Return values concatenated along axis 0, as an array if all are arrays."""
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        if len(arrays) == len(values):
            return np.concatenate(arrays)
        return self.ops.Concat(*values, axis=0) if len(values) > 1 else values[0]

    def weights(self, slots: Sequence[int]) -> Value | Array:
        """Return the matrices in ``slots``, concatenated along their rows."""
        return self.concatenate([self.float_operand(slot) for slot in slots])

    def input_weights(self, gate: Gate) -> Value | Array:
        """Return a gate's input weights, concatenated with its auxiliary weights, if any."""
        weights = self.float_operand(gate.weights)
        return (
            weights
            if self.op.tensor(gate.auxiliary) is None
            else self.ops.Concat(weights, self.float_operand(gate.auxiliary), axis=1)
        )

    def all_input_weights(self) -> Value | Array:
        """Return the weights of the input for all gates: (G * C, I)."""
        if self.op.tensor(OUTPUT.auxiliary) is None:
            return self.weights([gate.weights for gate in self.gates])
        return self.concatenate([self.input_weights(gate) for gate in self.gates])

    def recurrent_weights(self) -> Value | Array:
        """Return the weights of the last output for all gates: (G * C, O)."""
        return self.weights([gate.recurrent for gate in self.gates])

    def biases(self) -> Value | Array:
        return self.concatenate([self.float_operand(gate.bias) for gate in self.gates])

    # --- states -------------------------------------------------------------------------------

    def initial_states(self) -> tuple[Value, Value]:
        """Return the initial output (B, O) and the initial cells (B, C).

        The file may store each with one axis.
        """
        return self.state_rows(HIDDEN, self.output_size), self.state_rows(CELLS, self.cell_count)

    def state_rows(self, slot: int, size: int) -> Value:
        """Return a state as (B, size)."""
        state = self.inputs[slot]
        if self.op[slot].rank == 2:
            return state
        constant = self.ctx.constant_array(state)
        if constant is not None:
            return self.ctx.constant_value(constant.reshape(-1, size))
        return self.ops.Reshape(state, [-1, size])

    def convert_state(self, hidden: Value) -> Value:
        """Return an output in the dtype of the carried state."""
        return hidden

    def store_states(self, hidden: Value, cells: Value) -> None:
        """Assign the last step's output and cells to the operator's states."""
        for slot, value in ((HIDDEN, hidden), (CELLS, cells)):
            self.ctx.assign(slot, value if self.op[slot].rank == 2 else self.ctx.reshape_to_slot(value, slot))

    def convert_output(self, y: Value) -> Value:
        """Return the outputs of the ONNX node as outputs of the operator."""
        return y

    # --- steps --------------------------------------------------------------------------------

    def emit_products(self, x: Value) -> Value:
        """Emit the products of the inputs of all steps: (..., B, I) to (..., B, G * C).

        Biases are included, unless gates are normalized: biases are then added after the normalization.
        """
        return self.emit_gemm(x, self.all_input_weights(), None if self.normalizes else self.biases(), len(self.gates))

    def emit_gemm(self, x: Value, weights: Value | Array, bias: Value | Array | None, gates: int) -> Value:
        """Emit the product with the matrices of ``gates`` gates, for all steps at once."""
        if self.op[0].rank == 2:
            return self.ops.Gemm(x, weights, bias, transB=1)
        rows = self.ops.Gemm(self.ops.Flatten(x, axis=2), weights, bias, transB=1)
        return self.ops.Reshape(rows, [self.step_count, self.batch_size, gates * self.cell_count])

    def slice_gate(self, matrices: Value | Array, gate: Gate) -> Value:
        """Return one gate's matrix as a slice of the concatenated matrices.

        The ONNX file then stores the matrix only once.
        """
        start = self.gates.index(gate) * self.cell_count
        return self.ops.Slice(matrices, [start], [start + self.cell_count], [0])

    def emit_step(self, hidden: Value, cells: Value, products: Value) -> tuple[Value, Value]:
        """Emit one time step and return the output and the cells."""
        sums = dict(zip(self.gates, self.emit_sums(hidden, cells, products), strict=True))
        forget_gate = named(self.emit_gate(FORGET, sums, cells), GATE_NAMES[FORGET])
        input_gate = self.emit_gate(INPUT, sums, cells) if INPUT in sums else self.complement(forget_gate)
        update = named(self.emit_update(sums), GATE_NAMES[UPDATE])
        cells = named(self.update_cells(cells, forget_gate, named(input_gate, GATE_NAMES[INPUT]), update), "cell_state")
        output_gate = named(self.emit_gate(OUTPUT, sums, cells), GATE_NAMES[OUTPUT])
        return named(self.emit_output(output_gate, cells), "hidden_state"), cells

    def emit_sums(self, hidden: Value, cells: Value, products: Value) -> Sequence[Value]:
        """Emit each gate's sums, before peepholes and normalization."""
        return self.split_gates(self.ops.Gemm(hidden, self.recurrent, products, transB=1))

    def split_gates(self, sums: Value) -> Sequence[Value]:
        """Return the sums of each gate."""
        sizes = [self.cell_count] * len(self.gates)
        gate_sums = self.ops.Split(sums, sizes, axis=1, outputs=len(sizes))
        return [named(value, f"{GATE_NAMES[gate]}_sums") for gate, value in zip(self.gates, gate_sums, strict=True)]

    def emit_gate(self, gate: Gate, sums: dict[Gate, Value], cells: Value) -> Value:
        """Emit a gate's activation, 0 to 1."""
        gate_sums = sums[gate]
        if gate.peephole is not None and self.op.tensor(gate.peephole) is not None:
            gate_sums = self.add_peephole(gate, gate.peephole, gate_sums, cells)
        return self.ops.Sigmoid(self.normalize(gate, gate_sums))

    def emit_update(self, sums: dict[Gate, Value]) -> Value:
        """Emit the candidate values of the cells."""
        return self.activate(self.normalize(UPDATE, sums[UPDATE]))

    def complement(self, gate: Value) -> Value:
        return self.ops.Sub(1.0, gate)

    def add_peephole(self, gate: Gate, slot: int, sums: Value, cells: Value) -> Value:
        return self.ops.Add(sums, self.ops.Mul(cells, self.float_operand(slot)))

    def normalize(self, gate: Gate, sums: Value) -> Value:
        """Emit MeanStddevNormalization (portable_tensor_utils.cc) if gates are normalized."""
        if not self.normalizes:
            return sums
        norm, bias = self.float_operand(gate.norm), self.float_operand(gate.bias)
        return named(self.ops.LayerNormalization(sums, norm, bias, epsilon=1e-8), f"normalized_{GATE_NAMES[gate]}_sums")

    def activate(self, x: Value) -> Value:
        return self.ctx.activate(x)

    def update_cells(self, cells: Value, forget_gate: Value, input_gate: Value, update: Value) -> Value:
        updated = self.ops.Add(self.ops.Mul(forget_gate, cells), self.ops.Mul(input_gate, update))
        return self.clip(updated, float(self.ctx.options.cell_clip))

    def clip(self, x: Value, bound: float) -> Value:
        return self.ops.Clip(x, -bound, bound) if bound > 0 else x

    def emit_output(self, output_gate: Value, cells: Value) -> Value:
        hidden = self.ops.Mul(output_gate, self.activate(cells))
        if self.projection is None:
            return self.saturate(hidden)
        hidden = self.saturate_projected(hidden)
        has_bias = self.op.tensor(PROJECTION_BIAS) is not None
        projected = self.ops.Gemm(
            hidden, self.projection, self.float_operand(PROJECTION_BIAS) if has_bias else None, transB=1
        )
        return self.saturate(self.clip(projected, float(self.ctx.options.proj_clip)))

    def saturate(self, output: Value) -> Value:
        """Return the output clipped to the range of the int8 state.

        Only integer kernels clip.
        """
        return self.clip_steps(output, self.op[HIDDEN], -1)

    def saturate_projected(self, hidden: Value) -> Value:
        """Return the values to project, clipped as in the kernel.

        The kernel subtracts their zero point instead of adding it.
        """
        return self.clip_steps(hidden, self.op.intermediates[4] if self.op.intermediates else None, 1)

    def clip_steps(self, value: Value, tensor: Tensor | None, sign: int) -> Value:
        """Return values clipped to the range of int8 at the scale of ``tensor``.

        The range is shifted by the zero point of ``tensor`` times ``sign``.
        """
        quantization = tensor.quantization if tensor is not None else None
        if self.op[0].dtype != "int8" or not isinstance(quantization, Quantization):
            return value
        scale, center = quantization.scale[0], sign * quantization.zero_point[0]
        return self.ops.Clip(value, scale * (center - 128), scale * (center + 127))
