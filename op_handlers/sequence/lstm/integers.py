"""One LSTM step with 8-bit activations and 16-bit cells, exactly as in the kernel.

Nothing is approximated, because states carry any difference to all later steps. Sums of products are rescaled in float64
with the kernel's two roundings. Sigmoid and tanh are tables of the kernel's fixed-point functions (LstmStepInteger8x8_16,
kernels/lstm_eval.cc).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Refusal, Value, named, out
from op_handlers.kernels.fixed_point import logistic, quantized_multiplier, tanh
from op_handlers.kernels.sigmoids import power_of_two_exponent
from op_handlers.sequence.lstm.cell import (
    CELLS,
    HIDDEN,
    OUTPUT,
    PROJECTION,
    PROJECTION_BIAS,
    UPDATE,
    Gate,
    gates_of,
)
from op_handlers.sequence.lstm.integer_arithmetic import (
    HALF_AWAY,
    INT16_MAX,
    INT16_MIN,
    IntegerArithmetic,
    split_multiplier,
)
from op_handlers.sequence.lstm.integer_checks import gate_sum_tensors, scale_and_zero_point
from op_handlers.sequence.lstm.tables import ASCENDING, emit_table, pad_table, reorder_table

GATE_INPUT_SCALE = 2.0**-12  # scale of the inputs of sigmoid and tanh
GATE_SCALE = 2.0**-15 * HALF_AWAY  # scale of a gate's activation
MAX_SMALL_WEIGHTS = 4096  # maximum number of weights of a small matrix
MAX_MARGIN = 2**16  # maximum number of table entries beyond the range of int16 on each side
MAX_TABLE_SHIFT = 14  # maximum shift for which no sum up to MAX_MARGIN is mistaken for a tie
HALF_AWAY_OF_SUMS = 1 + 2.0**-32  # HALF_AWAY for sums of up to 2 ** 19, which 53 bits can still represent

SCALES = {0: "input_scale", HIDDEN: "hidden_scale", out(0): "output_scale"}
"""Slot -> name of the scale of an activation."""


NOTE = (
    "ONNX's LSTM has no integer arithmetic, so these nodes compute the same integers as LiteRT's 8-bit LSTM, step by step. "
    "Tables of float64 replace the kernel's fixed-point functions, with an entry for each 16-bit argument: tanh_table (512 kB) "
    "activates the cell state, sigmoid_and_tanh_table the gates and the cell update. It joins two tables, which have more entries "
    "if sums may exceed 16 bits. table_start is the position of 0 in a table. "
    "recurrent_scale, gate_scale and the powers of two rescale sums with the kernel's two roundings."
)
"""Explanation of the nodes of a readable graph."""


class IntegerCell(IntegerArithmetic):
    """A cell on quantized values minus their zero point.

    Inputs, outputs, cells and sums are float64. ``early_gates``: gates that are computed together. These are all
    gates, except for an output gate with a peephole on the current cell state.
    """

    def __init__(self, ctx: Context, inputs: Mapping[int, Value], reverse: bool = False) -> None:
        ctx.explain(NOTE)
        scales = [scale_and_zero_point(tensor)[0] for tensor in gate_sum_tensors(ctx.op)] or [GATE_INPUT_SCALE] * len(
            gates_of(ctx.op)
        )
        self.gate_scales = dict(zip(gates_of(ctx.op), map(np.float32, scales), strict=True))
        self.cell_exponent = power_of_two_exponent(scale_and_zero_point(ctx.op[CELLS])[0]) or 0
        super().__init__(ctx, inputs, reverse)
        self.check_shifts()
        self.state_dtypes = ("float64" if self.is_small else "float32", "float64", "float64")
        self.early_gates = [gate for gate in self.gates if gate is not OUTPUT or not self.has_peepholes]
        self.margin = self.table_margin()
        sigmoid_entries = emit_table(ctx, logistic(ASCENDING), GATE_SCALE)
        tanh_entries = emit_table(ctx, tanh(ASCENDING), 2.0 ** (-15 - self.cell_exponent))
        output_entries = emit_table(ctx, tanh(ASCENDING, 15 + self.cell_exponent), 2.0**15 * self.output_factor())
        gate_entries = self.concatenate(
            [pad_table(ctx, table, self.margin) for table in (sigmoid_entries, tanh_entries)]
        )
        self.gate_table = self.match_rank(gate_entries, "sigmoid_and_tanh_table")
        self.sigmoid_table = self.match_rank(sigmoid_entries, "sigmoid_table")
        self.output_table = self.match_rank(reorder_table(ctx, output_entries), "tanh_table")

    def order_gates(self, gates: Sequence[Gate]) -> list[Gate]:
        """Return the gates with the output gate last, which may read the current cells."""
        return sorted(gates, key=lambda gate: gate is OUTPUT)

    def check_shifts(self) -> None:
        """Raise Refusal if the kernel's 32-bit sums wrap around.

        This happens if sums are shifted left too far.
        """
        for gate in self.gates:
            for slot, operand in ((gate.weights, 0), (gate.recurrent, HIDDEN)):
                _, exponent = quantized_multiplier(float(self.factor(gate, slot, operand)))
                if exponent > 0 and self.max_sum([slot]) << exponent >= 2**31:
                    problem = f"sums of products with {self.op[slot].name!r}, whose scale is {self.scale(slot):g}"
                    raise Refusal(f"{problem}, exceed 32 bits after rescaling, where the kernel wraps around")

    # --- operands -----------------------------------------------------------------------------

    def output_factor(self) -> float:
        """Return the factor from a product of 15-bit fractions to the output scale.

        The output is the value to project, or the final output if there is no projection.
        """
        return float(np.float32(2.0**-15 / np.float32(scale_and_zero_point(self.op.intermediates[4])[0]) * 2.0**-15))

    def table_margin(self) -> int:
        """Return by how much sums can exceed int16. Tables cover this margin.

        The result is 0 if a table cannot cover the margin.
        """
        if (
            self.has_peepholes
            or self.normalizes
            or min(power for _, power in self.rescaling_factors()) < 2.0**-MAX_TABLE_SHIFT
        ):
            return 0
        zero_point = self.zero_point(HIDDEN)
        max_ratio = max(
            float(
                np.abs(self.quantized_constant(gate.recurrent).astype(np.float64)).sum(axis=1).max(initial=0)
                * factor
                * power
            )
            for gate, (factor, power) in zip(self.gates, self.rescaling_factors(), strict=True)
        )
        margin = int(max_ratio * max(128 + zero_point, 127 - zero_point)) + 2
        return margin if margin <= MAX_MARGIN else 0

    def weights(self, slots: Sequence[int]) -> Value | Array:
        """Return the concatenated matrices in the dtype of exact sums."""
        quantized = np.concatenate([self.quantized_constant(slot) for slot in slots])
        dtype = self.exact_dtype(slots)
        if self.ctx.folds_weights:
            return quantized.astype(dtype)
        return self.ops.Cast(named(quantized, self.role_of_weights(slots)), to=dtype)

    def role_of_weights(self, slots: Sequence[int]) -> str:
        """Return the name of concatenated matrices."""
        if PROJECTION in slots:
            return "projection_weights"
        is_recurrent = any(gate.recurrent in slots for gate in self.gates)
        return "recurrent_weights" if is_recurrent else "input_weights"

    def recurrent_weights(self) -> Value | Array:
        """Return the recurrent weights.

        A small matrix is float64, with rows multiplied by their rescaling factors.
        """
        slots = [gate.recurrent for gate in self.gates]
        if not self.is_small:
            return self.weights(slots)
        quantized, factors = np.concatenate([self.quantized_constant(slot) for slot in slots]), self.first_factors()
        factors = np.broadcast_to(factors, len(quantized))[:, np.newaxis]
        return (
            quantized * factors
            if self.ctx.folds_weights
            else self.ops.Mul(
                self.ops.Cast(named(quantized, "recurrent_weights"), to="float64"), named(factors, "recurrent_scale")
            )
        )

    @property
    def is_small(self) -> bool:
        """True if float64 products take no longer than rescaling float32 products."""
        return len(self.gates) * self.cell_count * self.output_size <= MAX_SMALL_WEIGHTS

    def first_factors(self) -> Any:
        """Return the factor of each gate's recurrent sums before the first rounding."""
        return self.repeat_per_cell([factor for factor, _ in self.rescaling_factors()])

    def rescaling_factors(self) -> Sequence[tuple[float, float]]:
        """Return each gate's rescaling of recurrent sums: the factor and the power of two."""
        return [split_multiplier(float(self.factor(gate, gate.recurrent, HIDDEN))) for gate in self.gates]

    # --- states -------------------------------------------------------------------------------

    def initial_states(self) -> tuple[Value, Value]:
        hidden, cells = super().initial_states()
        quantized = self.quantize(hidden, HIDDEN)
        hidden = self.ops.Cast(quantized, to="float64") if self.is_small else quantized
        return hidden, self.ops.Cast(cells, to="float64")

    def convert_state(self, hidden: Value) -> Value:
        return hidden if self.is_small else self.ops.Cast(hidden, to="float32")

    def store_states(self, hidden: Value, cells: Value) -> None:
        super().store_states(self.dequantize(hidden, HIDDEN), self.ops.Cast(cells, to="int16"))

    def convert_output(self, y: Value) -> Value:
        """Return outputs dequantized with the output's scale.

        The kernel copies the state's quantized values to the output, although their scales may differ.
        """
        offset = self.zero_point(HIDDEN) - self.zero_point(out(0))
        return self.dequantize(
            self.ops.Add(y, named(np.float64(offset), "zero_point_difference")) if offset else y, out(0)
        )

    def dequantize(self, numbers: Value, slot: int) -> Value:
        return self.ops.Mul(self.ops.Cast(numbers, to="float32"), named(self.scale(slot), SCALES.get(slot, "scale")))

    def quantize(self, real: Value, slot: int) -> Value:
        inverse = named(1 / self.scale(slot), f"inverse_{SCALES.get(slot, 'scale')}")
        return self.ops.Round(self.ops.Mul(real, inverse))

    # --- steps --------------------------------------------------------------------------------

    def emit_products(self, x: Value) -> Value:
        """Emit the products of the inputs of all steps.

        Biases have the scale of input times weight.
        """
        slots, is_single_step = [gate.weights for gate in self.gates], self.op[0].rank == 2
        rows = self.quantize(x if is_single_step else self.ops.Flatten(x, axis=2), 0)
        sums = self.emit_integer_gemm(rows, slots, self.all_input_weights())
        if not self.normalizes:
            sums = self.add_offsets(sums, np.concatenate([self.quantized_constant(gate.bias) for gate in self.gates]))
        rescaled = self.clamp(self.rescale(sums, [self.factor(gate, gate.weights, 0) for gate in self.gates]))
        if self.margin:
            rescaled = self.ops.Add(rescaled, named(self.table_starts() + 0.5, "table_start"))
        named(rescaled, "input_sums")
        if is_single_step:
            return rescaled
        return self.ops.Reshape(rescaled, [self.step_count, self.batch_size, len(slots) * self.cell_count])

    def factor(self, gate: Gate, weight_slot: int, operand_slot: int) -> np.float32:
        """Return the factor from products of two operands to the scale of a gate's input."""
        return self.scale(weight_slot) * self.scale(operand_slot) / self.gate_scales[gate]

    def emit_sums(self, hidden: Value, cells: Value, products: Value) -> Sequence[Value]:
        """Emit the activations of the early gates, and the sums of a late gate.

        One lookup computes the activations. The sums of a late gate do not include its peephole.
        """
        powers = self.repeat_per_cell([power for _, power in self.rescaling_factors()])
        rounded_sums = named(self.emit_recurrent_products(hidden), "recurrent_sums")
        if self.margin:
            positions = self.ops.Add(
                self.ops.Mul(rounded_sums, named(powers * HALF_AWAY_OF_SUMS, "recurrent_power_of_two")), products
            )
            named(positions, "table_positions")
            return self.split_gates(named(self.gather_entries(self.gate_table, positions), "activated_gates"))
        recurrent_sums = self.divide_half_away(rounded_sums, powers)
        sums = named(self.clamp(self.ops.Add(products, recurrent_sums)), "gate_sums")
        activations: dict[Gate, Value] = {}
        if self.has_peepholes:
            early_count = len(self.early_gates)
            sums, late_sums = self.ops.Split(sums, [early_count * self.cell_count, self.cell_count], axis=1, outputs=2)
            activations = {OUTPUT: late_sums}
            sums = self.add_peepholes(self.early_gates, sums, self.ops.Concat(*[cells] * early_count, axis=1))
        if self.normalizes:
            sums = self.emit_layer_norm(self.early_gates, sums)
        entries = named(self.look_up(self.gate_table, sums, self.table_starts()), "activated_gates")
        sizes = [self.cell_count] * len(self.early_gates)
        entries_by_gate = self.ops.Split(entries, sizes, axis=1, outputs=len(sizes))
        activations |= dict(zip(self.early_gates, entries_by_gate, strict=True))
        return [activations[gate] for gate in self.gates]

    def table_starts(self) -> Any:
        """Return the index of the entry for 0 in the joint table, per early gate.

        The table contains sigmoid first, and then tanh.
        """
        zero_index, length = self.margin - INT16_MIN, 2 * self.margin + len(ASCENDING)
        return self.repeat_per_cell([zero_index + length * (gate is UPDATE) for gate in self.early_gates])

    def emit_recurrent_products(self, hidden: Value) -> Value:
        """Emit the recurrent products after the first of the kernel's two roundings."""
        if self.is_small:
            return self.ops.Floor(self.ops.Gemm(hidden, self.recurrent, named(np.float64(0.5), "half"), transB=1))
        sums = self.emit_integer_gemm(hidden, [gate.recurrent for gate in self.gates], self.recurrent)
        multiplied = self.ops.Mul(sums, named(self.first_factors(), "recurrent_scale"))
        return self.ops.Round(multiplied) if self.is_free_of_ties() else self.round_half_up(multiplied)

    def is_free_of_ties(self) -> bool:
        """True if no recurrent product is a tie, halfway between two integers.

        The products must also be exact before the first rounding. A sum times m / 2^p with m odd is a tie only if
        the sum is a multiple of 2^(p - 1).
        """
        max_sum = self.max_sum([gate.recurrent for gate in self.gates])
        ratios = [factor.as_integer_ratio() for factor, _ in self.rescaling_factors()]
        return all(2 * max_sum < denominator and max_sum * numerator < 2**53 for numerator, denominator in ratios)

    def complement(self, gate: Value) -> Value:
        return self.ops.Sub(np.float64(INT16_MAX * GATE_SCALE), gate)

    def emit_update(self, sums: dict[Gate, Value]) -> Value:
        """Return the candidate values at the scale of the cells.

        The kernel always uses tanh, regardless of the option.
        """
        return sums[UPDATE]

    def emit_gate(self, gate: Gate, sums: dict[Gate, Value], cells: Value) -> Value:
        if gate in self.early_gates:
            return sums[gate]
        gate_sums = self.add_peepholes([gate], sums[gate], cells)
        gate_sums = self.emit_layer_norm([gate], gate_sums) if self.normalizes else gate_sums
        return self.look_up(self.sigmoid_table, gate_sums)

    def add_peepholes(self, gates: Sequence[Gate], sums: Value, cells: Value) -> Value:
        """Return sums plus the products of peephole weights and cells.

        The products are 0 for gates without a peephole.
        """
        weights, scales = zip(*map(self.peephole_weights, gates), strict=True)
        return self.clamp(self.ops.Add(sums, self.rescale(cells, scales, np.concatenate(weights))))

    def peephole_weights(self, gate: Gate) -> tuple[Array, np.float32]:
        """Return a gate's peephole weights, and the factor to rescale their products.

        The factor converts the products to the scale of the gate's input.
        """
        if gate.peephole is None or self.op.tensor(gate.peephole) is None:
            return np.zeros(self.cell_count), np.float32(1)
        scale = 2.0**self.cell_exponent * float(self.scale(gate.peephole)) / float(self.gate_scales[gate])
        return self.quantized_constant(gate.peephole).astype(np.float64), np.float32(scale)

    def emit_layer_norm(self, gates: Sequence[Gate], sums: Value) -> Value:
        """Emit the normalization of each gate's sums over its cells.

        The sums have shape (B, G * C). The results have a scale of 2^-10. A variance below 1 is replaced by a guard
        value (PortableApplyLayerNorm, portable_tensor_utils.cc).
        """
        ops, cells, has_several_gates = self.ops, self.cell_count, len(gates) > 1
        coefficients = [self.scale(gate.norm) for gate in gates]
        guards = np.asarray([[max(1.0, float(int(10000 * coefficient)))] for coefficient in coefficients])
        rows = ops.Reshape(sums, [-1, len(gates), cells]) if has_several_gates else sums
        mean = self.truncate(ops.Div(ops.MatMul(rows, np.full((cells, 1), 1024.0)), np.float64(cells)))
        squares = ops.MatMul(ops.Mul(rows, rows), np.full((cells, 1), float(2**20 // cells)))
        variance = self.truncate(ops.Mul(ops.Sub(squares, ops.Mul(mean, mean)), np.float64(2.0**-20)))
        variance = named(
            ops.Where(ops.Less(variance, np.float64(1)), named(guards, "min_variance"), variance), "variance"
        )
        centered = named(ops.Sub(ops.Mul(rows, np.float64(1024)), named(mean, "mean")), "centered_sums")
        normalized = named(ops.Round(ops.Div(centered, ops.Sqrt(variance))), "normalized_sums")
        normalized_rows = ops.Reshape(normalized, [-1, len(gates) * cells]) if has_several_gates else normalized
        weights = np.concatenate([self.quantized_constant(gate.norm) for gate in gates]).astype(np.float64)
        scaled = self.add_offsets(
            ops.Mul(normalized_rows, weights), np.concatenate([self.quantized_constant(gate.bias) for gate in gates])
        )
        rounded = ops.Round(ops.Mul(scaled, np.float64(2.0**-10 * HALF_AWAY)))
        return self.clamp(self.rescale(rounded, [coefficient * np.float32(2**12) for coefficient in coefficients]))

    def update_cells(self, cells: Value, forget_gate: Value, input_gate: Value, update: Value) -> Value:
        ops = self.ops
        updated = ops.Add(ops.Round(ops.Mul(forget_gate, cells)), ops.Round(ops.Mul(input_gate, update)))
        clip = np.float32(self.ctx.options.cell_clip) / np.float32(scale_and_zero_point(self.op[CELLS])[0])
        bound = float(int(min(clip, np.float32(INT16_MAX))))
        return self.clamp(updated, -bound, bound) if bound > 0 else self.clamp(updated)

    def emit_output(self, output_gate: Value, cells: Value) -> Value:
        """Emit the output.

        As in the kernel, the zero point of projected values is subtracted instead of added.
        """
        ops, state_zero_point = self.ops, self.zero_point(HIDDEN)
        hidden_scale, hidden_zero_point = scale_and_zero_point(self.op.intermediates[4])
        activated = named(self.gather_entries(self.output_table, cells), "activated_cell_state")
        output = ops.Round(ops.Mul(output_gate, activated))
        if self.projection is None:
            offset = hidden_zero_point - state_zero_point
            shifted = ops.Add(output, named(np.float64(offset), "zero_point_difference")) if offset else output
            return self.clamp(shifted, -128.0 - state_zero_point, 127.0 - state_zero_point)
        hidden = ops.Cast(self.clamp(output, hidden_zero_point - 128.0, hidden_zero_point + 127.0), to="float32")
        sums = self.emit_integer_gemm(hidden, [PROJECTION], self.projection)
        if self.op.tensor(PROJECTION_BIAS) is not None:
            sums = self.add_offsets(sums, self.quantized_constant(PROJECTION_BIAS))
        rescaled = self.rescale(
            sums, [self.scale(PROJECTION) * np.float32(hidden_scale) / self.scale(HIDDEN)], role="projection_scale"
        )
        maximum = float(int(min(np.float32(self.ctx.options.proj_clip) / self.scale(out(0)), np.float32(127))))
        minimum, maximum = (-maximum, maximum) if maximum > 0 else (-128.0, 127.0)
        return self.clamp(rescaled, minimum - state_zero_point, maximum - state_zero_point)
