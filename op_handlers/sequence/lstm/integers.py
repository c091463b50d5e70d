"""One LSTM step of 8-bit activations and 16-bit cells as the kernel computes it, on quantized values.

(LstmStepInteger8x8_16, kernels/lstm_eval.cc.) A state carries any difference to all later steps, so nothing is
approximated:
sums of products are rescaled in float64 with the kernel's two roundings; sigmoid and tanh are tables of its fixed-point
functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Refusal, Value, out
from op_handlers.kernels.fixed_point import logistic, quantized_multiplier, tanh
from op_handlers.kernels.sigmoids import power_of_two_exponent
from op_handlers.sequence.lstm.cell import (
    CELLS,
    HIDDEN,
    OUTPUT,
    PROJECTION,
    PROJECTION_BIAS,
    UPDATE,
    Cell,
    Gate,
    gates_of,
)
from op_handlers.sequence.lstm.integer_checks import gate_sum_tensors, scale_and_zero_point

GATE_INPUT_SCALE = 2.0**-12  # scale of the inputs of sigmoid and tanh
LEAST, MOST = -32768.0, 32767.0  # int16
HALF_AWAY = 1 + 2.0**-36  # moves halves away from zero, since Round rounds half to even
GATE_SCALE = 2.0**-15 * HALF_AWAY  # scale of a gate's activation
SINGLE_ROUNDING_SHIFT = (
    20  # minimum shift for a single rounding: the kernel's first rounding then matters once in 2 ** 21
)
MAX_SMALL_WEIGHTS = 4096  # maximum number of weights of a small matrix
MAX_MARGIN = 2**16  # maximum number of table entries beyond the range of int16, on each side
MAX_TABLE_SHIFT = 14  # maximum shift for which sums up to ROOM that are not halves remain distinct from halves
HALF_AWAY_OF_SUMS = 1 + 2.0**-32  # TIES for sums with up to 2 ** 19, which 53 bits still resolve
ASCENDING = np.arange(-32768, 32768)
"""Inputs of tables, in ascending order."""


class IntegerCell(Cell):
    """Cell on quantized values minus their zero point: inputs, outputs, cells and sums are float64.

    ``early``: the gates that are computed together: all but an output gate with a peephole on the current cell state.
    """

    def __init__(self, ctx: Context, inputs: Mapping[int, Value], reverse: bool = False) -> None:
        scales = [scale_and_zero_point(tensor)[0] for tensor in gate_sum_tensors(ctx.op)] or [GATE_INPUT_SCALE] * len(
            gates_of(ctx.op)
        )
        self.steps = dict(zip(gates_of(ctx.op), map(np.float32, scales), strict=True))
        self.exponent = power_of_two_exponent(scale_and_zero_point(ctx.op[CELLS])[0]) or 0
        super().__init__(ctx, inputs, reverse)
        self.check_shifts()
        self.states_of = ("float64" if self.is_small else "float32", "float64", "float64")
        self.early = [gate for gate in self.gates if gate is not OUTPUT or not self.peeps]
        self.margin = self.table_margin()
        sigmoids, tangents = (
            self.emit_table(logistic(ASCENDING), GATE_SCALE),
            self.emit_table(tanh(ASCENDING), 2.0 ** (-15 - self.exponent)),
        )
        shown = self.emit_table(tanh(ASCENDING, 15 + self.exponent), 2.0**15 * self.output_factor())
        self.both = self.match_rank(self.ops.Concat(*map(self.pad_table, (sigmoids, tangents)), axis=0))
        self.sigmoids, self.shown = self.match_rank(sigmoids), self.match_rank(self.reorder_table(shown))

    def order_gates(self, gates: Sequence[Gate]) -> list[Gate]:
        """Return the gates with the output gate last: it may read the current cell state."""
        return sorted(gates, key=lambda gate: gate is OUTPUT)

    def check_shifts(self) -> None:
        """Raise Refusal if sums are shifted left so far that the kernel's 32 bits wrap around."""
        for gate in self.gates:
            for slot, seen in ((gate.weights, 0), (gate.recurrent, HIDDEN)):
                _, exponent = quantized_multiplier(float(self.factor(gate, slot, seen)))
                if exponent > 0 and self.max_sum([slot]) << exponent >= 2**31:
                    text = f"sums of products with {self.op[slot].name!r}, whose scale is {self.scale(slot):g}"
                    raise Refusal(f"{text}, exceed 32 bits after rescaling, where the kernel wraps around")

    # --- operands -----------------------------------------------------------------------------

    def scale(self, slot: int) -> np.float32:
        return np.float32(scale_and_zero_point(self.op[slot])[0])

    def zero_point(self, slot: int) -> int:
        return scale_and_zero_point(self.op[slot])[1]

    def output_factor(self) -> float:
        """Return the factor from a product of two 15-bit fractions to the scale of the projected or final output."""
        return float(np.float32(2.0**-15 / np.float32(scale_and_zero_point(self.op.intermediates[4])[0]) * 2.0**-15))

    def quantized_constant(self, slot: int) -> Array:
        """Return the quantized values of a constant."""
        return self.ctx.require_constant(slot)

    def emit_table(self, entries: Array, factor: float) -> Value:
        """Emit a table; the file stores each entry as its 8-bit difference to the one before."""
        ops, growth = self.ops, np.diff(entries, prepend=entries[0]).astype(np.int8)
        if self.ctx.folds_weights:
            return self.ctx.constant_value(entries * factor)
        above = ops.CumSum(ops.Cast(growth, to="float64"), np.int64(0))
        return ops.Mul(ops.Add(above, np.float64(entries[0])), np.float64(factor))

    def pad_table(self, table: Value) -> Value:
        """Return a table with its first and last entry repeated beyond the range of int16."""
        return self.ops.Pad(table, [self.margin, self.margin], mode="edge") if self.margin else table

    def reorder_table(self, table: Value) -> Value:
        """Return a table with the entries of negative numbers at its end, as indices count."""
        ops, zero, end = self.ops, len(ASCENDING) // 2, len(ASCENDING)
        return ops.Concat(ops.Slice(table, [zero], [end], [0]), ops.Slice(table, [0], [zero], [0]), axis=0)

    def table_margin(self) -> int:
        """Return how far sums may exceed int16 before clipping if a table can cover it; else 0."""
        if self.peeps or self.normalizes or min(share for _, share in self.rescaling_factors()) < 2.0**-MAX_TABLE_SHIFT:
            return 0
        point = self.zero_point(HIDDEN)
        reach = max(
            float(
                np.abs(self.quantized_constant(gate.recurrent).astype(np.float64)).sum(axis=1).max(initial=0)
                * factor
                * share
            )
            for gate, (factor, share) in zip(self.gates, self.rescaling_factors(), strict=True)
        )
        most = int(reach * max(128 + point, 127 - point)) + 2
        return most if most <= MAX_MARGIN else 0

    def weights(self, slots: Sequence[int]) -> Value | Array:
        """Return the concatenated matrices in the dtype of exact sums."""
        stored = np.concatenate([self.quantized_constant(slot) for slot in slots])
        dtype = self.exact_dtype(slots)
        return stored.astype(dtype) if self.ctx.folds_weights else self.ops.Cast(stored, to=dtype)

    def recurrent_weights(self) -> Value | Array:
        """Return the recurrent weights; a small matrix is float64, with rows multiplied by their rescaling factors."""
        slots = [gate.recurrent for gate in self.gates]
        if not self.is_small:
            return self.weights(slots)
        stored, factors = np.concatenate([self.quantized_constant(slot) for slot in slots]), self.first_factors()
        factors = np.broadcast_to(factors, len(stored))[:, np.newaxis]
        return (
            stored * factors if self.ctx.folds_weights else self.ops.Mul(self.ops.Cast(stored, to="float64"), factors)
        )

    @property
    def is_small(self) -> bool:
        """True if float64 products take no longer than rescaling float32 products."""
        return len(self.gates) * self.cells * self.outputs <= MAX_SMALL_WEIGHTS

    def first_factors(self) -> Any:
        """Return the factor of each gate's recurrent sums before the first rounding."""
        return self.repeat_per_cell([factor for factor, _ in self.rescaling_factors()])

    def rescaling_factors(self) -> Sequence[tuple[float, float]]:
        """Return each gate's rescaling of recurrent sums: the factor and the power of two."""
        return [split_multiplier(float(self.factor(gate, gate.recurrent, HIDDEN))) for gate in self.gates]

    def exact_dtype(self, slots: Sequence[int]) -> str:
        """Return a dtype that represents all sums of products of a matrix's rows with bytes exactly."""
        return "float32" if self.max_sum(slots) <= 2**24 else "float64"

    def max_sum(self, slots: Sequence[int]) -> int:
        """Return the upper bound of sums of products of a matrix's rows with bytes minus a zero point."""
        return 255 * max(
            int(np.abs(self.quantized_constant(slot).astype(np.int64)).sum(axis=1).max(initial=0)) for slot in slots
        )

    # --- states -------------------------------------------------------------------------------

    def initial_states(self) -> tuple[Value, Value]:
        hidden, cells = super().initial_states()
        counted = self.quantize(hidden, HIDDEN)
        return self.ops.Cast(counted, to="float64") if self.is_small else counted, self.ops.Cast(cells, to="float64")

    def convert_state(self, hidden: Value) -> Value:
        return hidden if self.is_small else self.ops.Cast(hidden, to="float32")

    def store_states(self, hidden: Value, cells: Value) -> None:
        super().store_states(self.dequantize(hidden, HIDDEN), self.ops.Cast(cells, to="int16"))

    def convert_output(self, y: Value) -> Value:
        """Dequantize outputs by the output's scale: the kernel stores the state's integers regardless of their scale."""
        offset = self.zero_point(HIDDEN) - self.zero_point(out(0))
        return self.dequantize(self.ops.Add(y, np.float64(offset)) if offset else y, out(0))

    def dequantize(self, numbers: Value, slot: int) -> Value:
        return self.ops.Mul(self.ops.Cast(numbers, to="float32"), self.scale(slot))

    def quantize(self, real: Value, slot: int) -> Value:
        return self.ops.Round(self.ops.Mul(real, 1 / self.scale(slot)))

    # --- arithmetic ---------------------------------------------------------------------------

    def emit_integer_gemm(self, x: Value, slots: Sequence[int], matrix: Any) -> Value:
        """Emit products of bytes and their exact sums."""
        wide = self.exact_dtype(slots) == "float64"
        sums = self.ops.Gemm(self.ops.Cast(x, to="float64") if wide else x, matrix, None, transB=1)
        return sums if wide else self.ops.Cast(sums, to="float64")

    def rescale(self, sums: Value, scales: Sequence[Any], times: Any = 1.0) -> Value:
        """Rescale by a 31-bit mantissa, rounding half up, then by a power of two, rounding half away from zero.

        ``scales``: one per gate. ``times``: 16-bit integers that multiply the sums first; their products with a
        mantissa are exact.

        (QuantizeMultiplier, internal/quantization_util.cc; MultiplyByQuantizedMultiplier, internal/common.cc)
        """
        ops, parts = self.ops, [split_multiplier(float(scale)) for scale in scales]
        factors, shares = (self.repeat_per_cell([part[k] for part in parts]) for k in (0, 1))
        if max(share for _, share in parts) <= 2.0**-SINGLE_ROUNDING_SHIFT:
            return ops.Round(
                ops.Mul(sums if np.ndim(times) == 0 else ops.Mul(sums, times), factors * shares * HALF_AWAY)
            )
        return self.divide_half_away(self.round_half_up(ops.Mul(sums, factors * times)), shares)

    def round_half_up(self, numbers: Value) -> Value:
        """Round half up."""
        return self.ops.Floor(self.ops.Add(numbers, np.float64(0.5)))

    def divide_half_away(self, numbers: Value, shares: Any) -> Value:
        """Divide by powers of two, rounding half away from zero."""
        return numbers if np.all(shares == 1) else self.ops.Round(self.ops.Mul(numbers, shares * HALF_AWAY))

    def repeat_per_cell(self, numbers: Sequence[float]) -> Any:
        """Return one number per cell of each gate, or a scalar if all are equal."""
        return (
            np.float64(numbers[0]) if len({*numbers}) == 1 else np.repeat(np.asarray(numbers, np.float64), self.cells)
        )

    def add_offsets(self, sums: Value, offsets: Array) -> Value:
        return self.ops.Add(sums, offsets.astype(np.float64)) if offsets.any() else sums

    def clamp(self, x: Value, least: float = LEAST, most: float = MOST) -> Value:
        return self.ops.Clip(x, np.float64(least), np.float64(most))

    def look_up(self, table: Value, numbers: Value, ahead: Any = -LEAST) -> Value:
        """Look up table entries; ``ahead`` is the index of the entry of 0."""
        return self.gather_entries(table, self.ops.Add(numbers, np.float64(ahead)))

    def gather_entries(self, table: Value, places: Value) -> Value:
        """Gather entries by index, truncating fractions. For 256 indices Gather takes 4.4 us, GatherElements 1.6."""
        ops, indices = self.ops, self.ops.Cast(places, to="int32")
        return ops.GatherElements(table, indices, axis=1) if self.gathers_elements else ops.Gather(table, indices)

    def match_rank(self, table: Value) -> Value:
        """Return a table with the rank of its indices."""
        return self.ops.Unsqueeze(table, [0]) if self.gathers_elements else table

    @property
    def gathers_elements(self) -> bool:
        """Return True if GatherElements is faster; it requires a batch of 1, so that the table has the rank of the
        indices.
        """
        return self.batches == 1 and "GatherElements" in self.ctx.target.prefers

    # --- steps --------------------------------------------------------------------------------

    def emit_products(self, x: Value) -> Value:
        """Emit the products of all steps' inputs; biases have the scale of input times weight."""
        slots, flat = [gate.weights for gate in self.gates], self.op[0].rank == 2
        rows = self.quantize(x if flat else self.ops.Flatten(x, axis=2), 0)
        sums = self.emit_integer_gemm(rows, slots, self.all_input_weights())
        if not self.normalizes:
            sums = self.add_offsets(sums, np.concatenate([self.quantized_constant(gate.bias) for gate in self.gates]))
        seen = self.clamp(self.rescale(sums, [self.factor(gate, gate.weights, 0) for gate in self.gates]))
        if self.margin:
            seen = self.ops.Add(seen, self.table_starts() + 0.5)
        return seen if flat else self.ops.Reshape(seen, [self.time, self.batches, len(slots) * self.cells])

    def factor(self, gate: Gate, weights: int, seen: int) -> np.float32:
        """Return the factor from products with a matrix to the scale of a gate's input."""
        return self.scale(weights) * self.scale(seen) / self.steps[gate]

    def emit_sums(self, hidden: Value, cells: Value, products: Value) -> Sequence[Value]:
        """Emit the activations of the early gates by one lookup, and the sums of a late gate before its peephole."""
        shares, once = (
            self.repeat_per_cell([share for _, share in self.rescaling_factors()]),
            self.rescale_first(hidden),
        )
        if self.margin:
            return self.split_gates(
                self.gather_entries(self.both, self.ops.Add(self.ops.Mul(once, shares * HALF_AWAY_OF_SUMS), products))
            )
        seen = self.divide_half_away(once, shares)
        sums = self.clamp(self.ops.Add(products, seen))
        activations: dict[Gate, Value] = {}
        if self.peeps:
            early = len(self.early)
            sums, late = self.ops.Split(sums, [early * self.cells, self.cells], axis=1, outputs=2)
            activations = {OUTPUT: late}
            sums = self.add_peepholes(self.early, sums, self.ops.Concat(*[cells] * early, axis=1))
        if self.normalizes:
            sums = self.emit_layer_norm(self.early, sums)
        entries = self.look_up(self.both, sums, self.table_starts())
        looked_up = self.ops.Split(entries, [self.cells] * len(self.early), axis=1, outputs=len(self.early))
        activations |= dict(zip(self.early, looked_up, strict=True))
        return [activations[gate] for gate in self.gates]

    def table_starts(self) -> Any:
        """Return the index of the entry of 0 in the joint table of the early gates: sigmoids first, then tanh."""
        zero, length = self.margin - LEAST, 2 * self.margin + len(ASCENDING)
        return self.repeat_per_cell([zero + length * (gate is UPDATE) for gate in self.early])

    def rescale_first(self, hidden: Value) -> Value:
        """Emit the recurrent products after the first rounding."""
        if self.is_small:
            return self.ops.Floor(self.ops.Gemm(hidden, self.recurrent, np.float64(0.5), transB=1))
        sums = self.emit_integer_gemm(hidden, [gate.recurrent for gate in self.gates], self.recurrent)
        multiplied = self.ops.Mul(sums, self.first_factors())
        return self.ops.Round(multiplied) if self.is_free_of_halves() else self.round_half_up(multiplied)

    def is_free_of_halves(self) -> bool:
        """True if recurrent products are exact before the first rounding, and none is a half.

        A sum times m / 2^p with m odd is a half only if the sum is a multiple of 2^(p - 1).
        """
        largest = self.max_sum([gate.recurrent for gate in self.gates])
        ratios = [factor.as_integer_ratio() for factor, _ in self.rescaling_factors()]
        return all(2 * largest < below and largest * above < 2**53 for above, below in ratios)

    def complement(self, share: Value) -> Value:
        return self.ops.Sub(np.float64(MOST * GATE_SCALE), share)

    def emit_update(self, sums: dict[Gate, Value]) -> Value:
        """Return the candidate values at the cells' scale; always tanh, regardless of the option."""
        return sums[UPDATE]

    def emit_gate(self, gate: Gate, sums: dict[Gate, Value], cells: Value) -> Value:
        if gate in self.early:
            return sums[gate]
        seen = self.add_peepholes([gate], sums[gate], cells)
        return self.look_up(self.sigmoids, self.emit_layer_norm([gate], seen) if self.normalizes else seen)

    def add_peepholes(self, gates: Sequence[Gate], sums: Value, cells: Value) -> Value:
        """Add the gates' products with the cells; 0 without a peephole."""
        weights, scales = zip(*map(self.peephole_weights, gates), strict=True)
        return self.clamp(self.ops.Add(sums, self.rescale(cells, scales, np.concatenate(weights))))

    def peephole_weights(self, gate: Gate) -> tuple[Array, np.float32]:
        """Return a gate's weights of the cells, and the factor from their products to the gate's input."""
        if gate.peephole is None or self.op.tensor(gate.peephole) is None:
            return np.zeros(self.cells), np.float32(1)
        scale = 2.0**self.exponent * float(self.scale(gate.peephole)) / float(self.steps[gate])
        return self.quantized_constant(gate.peephole).astype(np.float64), np.float32(scale)

    def emit_layer_norm(self, gates: Sequence[Gate], sums: Value) -> Value:
        """Emit the normalization of each gate's sums (B, G * C) over its cells, at scale 2^-10.

        A variance below 1 is replaced by the guard. (PortableApplyLayerNorm, portable_tensor_utils.cc)
        """
        ops, cells, several = self.ops, self.cells, len(gates) > 1
        coefficients = [self.scale(gate.norm) for gate in gates]
        guards = np.asarray([[max(1.0, float(int(10000 * coefficient)))] for coefficient in coefficients])
        rows = ops.Reshape(sums, [-1, len(gates), cells]) if several else sums
        mean = self.truncate(ops.Div(ops.MatMul(rows, np.full((cells, 1), 1024.0)), np.float64(cells)))
        squares = ops.MatMul(ops.Mul(rows, rows), np.full((cells, 1), float(2**20 // cells)))
        variance = self.truncate(ops.Mul(ops.Sub(squares, ops.Mul(mean, mean)), np.float64(2.0**-20)))
        variance = ops.Where(ops.Less(variance, np.float64(1)), guards, variance)
        centred = ops.Sub(ops.Mul(rows, np.float64(1024)), mean)
        even = ops.Round(ops.Div(centred, ops.Sqrt(variance)))
        flat = ops.Reshape(even, [-1, len(gates) * cells]) if several else even
        weights = np.concatenate([self.quantized_constant(gate.norm) for gate in gates]).astype(np.float64)
        scaled = self.add_offsets(
            ops.Mul(flat, weights), np.concatenate([self.quantized_constant(gate.bias) for gate in gates])
        )
        rounded = ops.Round(ops.Mul(scaled, np.float64(2.0**-10 * HALF_AWAY)))
        return self.clamp(self.rescale(rounded, [coefficient * np.float32(2**12) for coefficient in coefficients]))

    def truncate(self, x: Value) -> Value:
        """Truncate toward zero, as C++ divides integers."""
        return self.ops.Cast(self.ops.Cast(x, to="int64"), to="float64")

    def update_cells(self, cells: Value, forget: Value, take: Value, update: Value) -> Value:
        ops = self.ops
        after = ops.Add(ops.Round(ops.Mul(forget, cells)), ops.Round(ops.Mul(take, update)))
        clip = np.float32(self.ctx.options.cell_clip) / np.float32(scale_and_zero_point(self.op[CELLS])[0])
        most = float(int(min(clip, np.float32(MOST))))
        return self.clamp(after, -most, most) if most > 0 else self.clamp(after)

    def emit_output(self, give: Value, cells: Value) -> Value:
        """Emit the output. As in the kernel, a projection's zero point is subtracted where it should be added."""
        ops, (step, point), last = self.ops, scale_and_zero_point(self.op.intermediates[4]), self.zero_point(HIDDEN)
        rounded = ops.Round(ops.Mul(give, self.gather_entries(self.shown, cells)))
        if self.projection is None:
            shifted = ops.Add(rounded, np.float64(point - last)) if point != last else rounded
            return self.clamp(shifted, -128.0 - last, 127.0 - last)
        hidden = ops.Cast(self.clamp(rounded, point - 128.0, point + 127.0), to="float32")
        sums = self.emit_integer_gemm(hidden, [PROJECTION], self.projection)
        if self.op.tensor(PROJECTION_BIAS) is not None:
            sums = self.add_offsets(sums, self.quantized_constant(PROJECTION_BIAS))
        given = self.rescale(sums, [self.scale(PROJECTION) * np.float32(step) / self.scale(HIDDEN)])
        most = float(int(min(np.float32(self.ctx.options.proj_clip) / self.scale(out(0)), np.float32(127))))
        least, most = (-most, most) if most > 0 else (-128.0, 127.0)
        return self.clamp(given, least - last, most - last)


def split_multiplier(scale: float) -> tuple[float, float]:
    """Return a multiplier as a 31-bit mantissa with its left shift, and its right shift as a power of two."""
    mantissa, exponent = quantized_multiplier(scale)
    return (mantissa * 2.0 ** (max(exponent, 0) - 31), 2.0 ** min(exponent, 0)) if exponent >= -31 else (0.0, 1.0)
