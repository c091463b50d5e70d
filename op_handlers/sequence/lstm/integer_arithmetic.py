"""Arithmetic of the integer LSTM kernel: exact sums, rescaling and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Value, named
from op_handlers.kernels.fixed_point import quantized_multiplier
from op_handlers.sequence.lstm.cell import Cell
from op_handlers.sequence.lstm.integer_checks import scale_and_zero_point

INT16_MIN, INT16_MAX = -32768.0, 32767.0
HALF_AWAY = 1 + 2.0**-36  # moves ties away from zero, since Round rounds them to even
SINGLE_ROUNDING_SHIFT = 20
"""Minimum right shift for which one rounding replaces the kernel's two. One result in 2 ** 21 then differs."""


class IntegerArithmetic(Cell):
    """Cell with the arithmetic of ``integers.IntegerCell``, on float64 values."""

    # --- operands -----------------------------------------------------------------------------

    def scale(self, slot: int) -> np.float32:
        return np.float32(scale_and_zero_point(self.op[slot])[0])

    def zero_point(self, slot: int) -> int:
        return scale_and_zero_point(self.op[slot])[1]

    def quantized_constant(self, slot: int) -> Array:
        """Return the quantized values of a constant."""
        return self.ctx.require_constant(slot)

    def exact_dtype(self, slots: Sequence[int]) -> str:
        """Return the float dtype that represents all sums of products exactly.

        The sums are products of matrix rows with 8-bit values.
        """
        return "float32" if self.max_sum(slots) <= 2**24 else "float64"

    def max_sum(self, slots: Sequence[int]) -> int:
        """Return an upper bound of the sum of a matrix row times 8-bit values.

        The 8-bit values have their zero point subtracted, so they are at most 255.
        """
        return 255 * max(
            int(np.abs(self.quantized_constant(slot).astype(np.int64)).sum(axis=1).max(initial=0)) for slot in slots
        )

    # --- arithmetic ---------------------------------------------------------------------------

    def emit_integer_gemm(self, x: Value, slots: Sequence[int], matrix: Any) -> Value:
        """Emit the product of 8-bit values and a matrix, with exact sums in float64."""
        is_float64 = self.exact_dtype(slots) == "float64"
        sums = self.ops.Gemm(self.ops.Cast(x, to="float64") if is_float64 else x, matrix, None, transB=1)
        return sums if is_float64 else self.ops.Cast(sums, to="float64")

    def rescale(self, sums: Value, scales: Sequence[Any], multipliers: Any = 1.0, role: str = "gate_scale") -> Value:
        """Return sums times a 31-bit mantissa and a power of two, rounded twice.

        The first product is rounded half up, the second one half away from zero. ``scales``: one per gate.
        ``multipliers``: 16-bit integers that multiply the sums first; their products with a mantissa are exact.
        ``role``: name of the factors.

        Source: QuantizeMultiplier, internal/quantization_util.cc; MultiplyByQuantizedMultiplier, internal/common.cc.
        """
        ops, factor_pairs = self.ops, [split_multiplier(float(scale)) for scale in scales]
        factors, powers = (self.repeat_per_cell([pair[k] for pair in factor_pairs]) for k in (0, 1))
        if max(power for _, power in factor_pairs) <= 2.0**-SINGLE_ROUNDING_SHIFT:
            return ops.Round(
                ops.Mul(
                    sums if np.ndim(multipliers) == 0 else ops.Mul(sums, multipliers),
                    named(factors * powers * HALF_AWAY, role),
                )
            )
        return self.divide_half_away(self.round_half_up(ops.Mul(sums, named(factors * multipliers, role))), powers)

    def round_half_up(self, numbers: Value) -> Value:
        """Return numbers rounded half up."""
        return self.ops.Floor(self.ops.Add(numbers, named(np.float64(0.5), "half")))

    def divide_half_away(self, numbers: Value, powers: Any) -> Value:
        """Return numbers times powers of two of at most 1, rounded half away from zero."""
        return (
            numbers
            if np.all(powers == 1)
            else self.ops.Round(self.ops.Mul(numbers, named(powers * HALF_AWAY, "gate_power_of_two")))
        )

    def repeat_per_cell(self, values_by_gate: Sequence[float]) -> Any:
        """Return the value of each gate repeated for its cells.

        The result is a scalar if all values are equal.
        """
        return (
            np.float64(values_by_gate[0])
            if len({*values_by_gate}) == 1
            else np.repeat(np.asarray(values_by_gate, np.float64), self.cell_count)
        )

    def add_offsets(self, sums: Value, offsets: Array) -> Value:
        return self.ops.Add(sums, named(offsets.astype(np.float64), "bias")) if offsets.any() else sums

    def clamp(self, x: Value, minimum: float = INT16_MIN, maximum: float = INT16_MAX) -> Value:
        return self.ops.Clip(x, np.float64(minimum), np.float64(maximum))

    def look_up(self, table: Value, numbers: Value, zero_index: Any = -INT16_MIN) -> Value:
        """Return the table entries of numbers.

        ``zero_index``: index of the entry of 0.
        """
        return self.gather_entries(
            table, self.ops.Add(numbers, named(np.asarray(zero_index, np.float64), "table_start"))
        )

    def gather_entries(self, table: Value, positions: Value) -> Value:
        """Return entries by index; fractions are truncated.

        256 indices take 4.4 us with Gather and 1.6 us with GatherElements.
        """
        ops, indices = self.ops, self.ops.Cast(positions, to="int32")
        return ops.GatherElements(table, indices, axis=1) if self.gathers_elements else ops.Gather(table, indices)

    def match_rank(self, table: Value | Array, role: str) -> Value:
        """Return a table with the rank of its indices.

        ``role``: name of a constant table.
        """
        if isinstance(table, np.ndarray):
            return self.ctx.constant_value(named(table[np.newaxis] if self.gathers_elements else table, role))
        return self.ops.Unsqueeze(table, [0]) if self.gathers_elements else table

    @property
    def gathers_elements(self) -> bool:
        """True if GatherElements is faster.

        GatherElements requires a batch of 1, so that the table has the rank of the indices.
        """
        return self.batch_size == 1 and "GatherElements" in self.ctx.target.fast_operators

    def truncate(self, x: Value) -> Value:
        """Return values truncated toward zero, as in integer divisions of C++."""
        return self.ops.Cast(self.ops.Cast(x, to="int64"), to="float64")


def split_multiplier(scale: float) -> tuple[float, float]:
    """Return a multiplier as a shifted 31-bit mantissa and a power of two.

    The mantissa includes a left shift; the power of two is the right shift.
    """
    mantissa, exponent = quantized_multiplier(scale)
    return (mantissa * 2.0 ** (max(exponent, 0) - 31), 2.0 ** min(exponent, 0)) if exponent >= -31 else (0.0, 1.0)
