"""A step of an LSTM of 8 bit activations and 16 bit cells as the kernel computes it: every number is a stored integer.

(LstmStepInteger8x8_16, kernels/lstm_eval.cc.) A state passes any difference on to all later steps, so nothing is left out:
sums of products are rescaled in float64 with the kernel's two roundings; sigmoid and tanh are tables of its fixed-point
functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Refused, Value, out
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
from op_handlers.sequence.lstm.whole import between, step_of

SEEN = 2.0**-12  # a step of what sigmoid and tanh are taken of
LEAST, MOST = -32768.0, 32767.0  # of 16 bits
TIES = 1 + 2.0**-36  # carries a half over to the number farther from 0, where Round takes the even one
SHARE = 2.0**-15 * TIES  # a step of how far a gate is open
ONCE = 20  # divided by 2 ** 20 and more a number is rounded once: the kernel's first rounding decides once in 2 ** 21
SMALL = 4096  # weights
ROOM = 2**16  # entries that a table of gates has below and above what 16 bits hold
FINE = 14  # divided by 2 ** 14 at most, sums of ROOM that are no halves stay apart from them
NEAR = 1 + 2.0**-32  # TIES where up to 2 ** 19 is added: 53 bits still have what that leaves of a half
UPWARDS = np.arange(-32768, 32768)
"""What tables have an entry for; the lowest is the first."""


class IntegerCell(Cell):
    """Inputs and outputs, cells and sums are float64, all of them stored integers less their zero point.

    ``early``: the gates that are computed at once, all but an output gate that sees the cells of its own step.
    """

    def __init__(self, ctx: Context, inputs: Mapping[int, Value], reverse: bool = False) -> None:
        scales = [step_of(tensor)[0] for tensor in between(ctx.op)] or [SEEN] * len(gates_of(ctx.op))
        self.steps = dict(zip(gates_of(ctx.op), map(np.float32, scales), strict=True))
        self.exponent = power_of_two_exponent(step_of(ctx.op[CELLS])[0]) or 0
        super().__init__(ctx, inputs, reverse)
        self.within_32_bits()
        self.states_of = ("float64" if self.small else "float32", "float64", "float64")
        self.early = [gate for gate in self.gates if gate is not OUTPUT or not self.peeps]
        self.beyond = self.overshoot()
        sigmoids, tangents = (
            self.table(logistic(UPWARDS), SHARE),
            self.table(tanh(UPWARDS), 2.0 ** (-15 - self.exponent)),
        )
        shown = self.table(tanh(UPWARDS, 15 + self.exponent), 2.0**15 * self.hidden_scale())
        self.both = self.row(self.ops.Concat(*map(self.widened, (sigmoids, tangents)), axis=0))
        self.sigmoids, self.shown = self.row(sigmoids), self.row(self.turned(shown))

    def ordered(self, gates: Sequence[Gate]) -> list[Gate]:
        """The output gate last: it may see the cells of its own step."""
        return sorted(gates, key=lambda gate: gate is OUTPUT)

    def within_32_bits(self) -> None:
        """Raises Refused where sums are shifted so far to the left that the kernel's wrap around."""
        for gate in self.gates:
            for slot, seen in ((gate.weights, 0), (gate.recurrent, HIDDEN)):
                _, exponent = quantized_multiplier(float(self.factor(gate, slot, seen)))
                if exponent > 0 and self.largest([slot]) << exponent >= 2**31:
                    text = f"sums of products with {self.op[slot].name!r}, whose scale is {self.scale(slot):g}"
                    raise Refused(f"{text}, are shifted beyond 32 bits, where the kernel's wrap around")

    # --- operands -----------------------------------------------------------------------------

    def scale(self, slot: int) -> np.float32:
        return np.float32(step_of(self.op[slot])[0])

    def point(self, slot: int) -> int:
        return step_of(self.op[slot])[1]

    def hidden_scale(self) -> float:
        """Of a product of two numbers of 15 bits behind the point, in steps of what is projected or given out."""
        return float(np.float32(2.0**-15 / np.float32(step_of(self.op.intermediates[4])[0]) * 2.0**-15))

    def stored(self, slot: int) -> Array:
        """The stored integers of a constant."""
        return self.ctx.required(slot)

    def table(self, entries: Array, factor: float) -> Value:
        """In the file each entry is 8 bits: how far it is above the one before."""
        ops, growth = self.ops, np.diff(entries, prepend=entries[0]).astype(np.int8)
        if self.ctx.folds:
            return self.ctx.constant_value(entries * factor)
        above = ops.CumSum(ops.Cast(growth, to="float64"), np.int64(0))
        return ops.Mul(ops.Add(above, np.float64(entries[0])), np.float64(factor))

    def widened(self, table: Value) -> Value:
        """A table with its first and last entry repeated for what 16 bits do not hold."""
        return self.ops.Pad(table, [self.beyond, self.beyond], mode="edge") if self.beyond else table

    def turned(self, table: Value) -> Value:
        """A table whose negative numbers count from its end, as indices do."""
        ops, zero, end = self.ops, len(UPWARDS) // 2, len(UPWARDS)
        return ops.Concat(ops.Slice(table, [zero], [end], [0]), ops.Slice(table, [0], [zero], [0]), axis=0)

    def overshoot(self) -> int:
        """By how much sums may be beyond 16 bits before they are bounded, where a table can have entries for that; else 0."""
        if self.peeps or self.normalizes or min(share for _, share in self.parts()) < 2.0**-FINE:
            return 0
        point = self.point(HIDDEN)
        reach = max(
            float(np.abs(self.stored(gate.recurrent).astype(np.float64)).sum(axis=1).max(initial=0) * factor * share)
            for gate, (factor, share) in zip(self.gates, self.parts(), strict=True)
        )
        most = int(reach * max(128 + point, 127 - point)) + 2
        return most if most <= ROOM else 0

    def weights(self, slots: Sequence[int]) -> Value | Array:
        """Bytes, one matrix below the other."""
        stored = np.concatenate([self.stored(slot) for slot in slots])
        dtype = self.exact(slots)
        return stored.astype(dtype) if self.ctx.folds else self.ops.Cast(stored, to=dtype)

    def backward(self) -> Value | Array:
        """A small matrix in float64, where its rows are multiplied by what rescales their sums."""
        slots = [gate.recurrent for gate in self.gates]
        if not self.small:
            return self.weights(slots)
        stored, factors = np.concatenate([self.stored(slot) for slot in slots]), self.factors()
        factors = np.broadcast_to(factors, len(stored))[:, np.newaxis]
        return stored * factors if self.ctx.folds else self.ops.Mul(self.ops.Cast(stored, to="float64"), factors)

    @property
    def small(self) -> bool:
        """Whether products of float64 take no longer than rescaling those of float32 does."""
        return len(self.gates) * self.cells * self.outputs <= SMALL

    def factors(self) -> Any:
        """What each gate's sums of products with the last output are multiplied by before the first rounding."""
        return self.of_each([factor for factor, _ in self.parts()])

    def parts(self) -> Sequence[tuple[float, float]]:
        """Of each gate, what rescales its products with the last output."""
        return [decomposed(float(self.factor(gate, gate.recurrent, HIDDEN))) for gate in self.gates]

    def exact(self, slots: Sequence[int]) -> str:
        """A dtype that holds all sums of products of a matrix's rows with bytes less a zero point."""
        return "float32" if self.largest(slots) <= 2**24 else "float64"

    def largest(self, slots: Sequence[int]) -> int:
        """What no sum of products of a matrix's rows with bytes less a zero point is above."""
        return 255 * max(int(np.abs(self.stored(slot).astype(np.int64)).sum(axis=1).max(initial=0)) for slot in slots)

    # --- states -------------------------------------------------------------------------------

    def states(self) -> tuple[Value, Value]:
        hidden, cells = super().states()
        counted = self.counted(hidden, HIDDEN)
        return self.ops.Cast(counted, to="float64") if self.small else counted, self.ops.Cast(cells, to="float64")

    def carried(self, hidden: Value) -> Value:
        return hidden if self.small else self.ops.Cast(hidden, to="float32")

    def keep(self, hidden: Value, cells: Value) -> None:
        super().keep(self.real_again(hidden, HIDDEN), self.ops.Cast(cells, to="int16"))

    def finished(self, y: Value) -> Value:
        """What is stored is the state, whatever it stands for."""
        apart = self.point(HIDDEN) - self.point(out(0))
        return self.real_again(self.ops.Add(y, np.float64(apart)) if apart else y, out(0))

    def real_again(self, numbers: Value, slot: int) -> Value:
        return self.ops.Mul(self.ops.Cast(numbers, to="float32"), self.scale(slot))

    def counted(self, real: Value, slot: int) -> Value:
        return self.ops.Round(self.ops.Mul(real, 1 / self.scale(slot)))

    # --- arithmetic ---------------------------------------------------------------------------

    def summed(self, x: Value, slots: Sequence[int], matrix: Any) -> Value:
        """Products of bytes and their exact sums."""
        wide = self.exact(slots) == "float64"
        sums = self.ops.Gemm(self.ops.Cast(x, to="float64") if wide else x, matrix, None, transB=1)
        return sums if wide else self.ops.Cast(sums, to="float64")

    def rescaled(self, sums: Value, scales: Sequence[Any], times: Any = 1.0) -> Value:
        """By a mantissa of 31 bits, halves upwards, then by a power of two, halves away from 0; a scale for each gate.

        ``times``: integers of 16 bits that the sums are multiplied by before, of which products with a mantissa are exact.

        (QuantizeMultiplier, internal/quantization_util.cc; MultiplyByQuantizedMultiplier, internal/common.cc)
        """
        ops, parts = self.ops, [decomposed(float(scale)) for scale in scales]
        factors, shares = (self.of_each([part[k] for part in parts]) for k in (0, 1))
        if max(share for _, share in parts) <= 2.0**-ONCE:
            return ops.Round(ops.Mul(sums if np.ndim(times) == 0 else ops.Mul(sums, times), factors * shares * TIES))
        return self.divided(self.upwards(ops.Mul(sums, factors * times)), shares)

    def upwards(self, numbers: Value) -> Value:
        """Rounded, halves upwards."""
        return self.ops.Floor(self.ops.Add(numbers, np.float64(0.5)))

    def divided(self, numbers: Value, shares: Any) -> Value:
        """By powers of two, halves away from 0."""
        return numbers if np.all(shares == 1) else self.ops.Round(self.ops.Mul(numbers, shares * TIES))

    def of_each(self, numbers: Sequence[float]) -> Any:
        """One number for each cell of each gate, or for all."""
        return (
            np.float64(numbers[0]) if len({*numbers}) == 1 else np.repeat(np.asarray(numbers, np.float64), self.cells)
        )

    def moved(self, sums: Value, offsets: Array) -> Value:
        return self.ops.Add(sums, offsets.astype(np.float64)) if offsets.any() else sums

    def bounded(self, x: Value, least: float = LEAST, most: float = MOST) -> Value:
        return self.ops.Clip(x, np.float64(least), np.float64(most))

    def read(self, table: Value, numbers: Value, ahead: Any = -LEAST) -> Value:
        """The entries of numbers, ``ahead`` entries behind the first."""
        return self.entries(table, self.ops.Add(numbers, np.float64(ahead)))

    def entries(self, table: Value, places: Value) -> Value:
        """Entries by their places, of which a fraction is cut off. Of 256 Gather takes 4.4 us, GatherElements 1.6."""
        ops, indices = self.ops, self.ops.Cast(places, to="int32")
        return ops.Gather(table, indices) if self.batches > 1 else ops.GatherElements(table, indices, axis=1)

    def row(self, table: Value) -> Value:
        """A table of the rank of what it is read by."""
        return table if self.batches > 1 else self.ops.Unsqueeze(table, [0])

    # --- steps --------------------------------------------------------------------------------

    def products(self, x: Value) -> Value:
        """What the inputs of all steps add; biases count in steps of input times weight."""
        slots, flat = [gate.weights for gate in self.gates], self.op[0].rank == 2
        rows = self.counted(x if flat else self.ops.Flatten(x, axis=2), 0)
        sums = self.summed(rows, slots, self.inward())
        if not self.normalizes:
            sums = self.moved(sums, np.concatenate([self.stored(gate.bias) for gate in self.gates]))
        seen = self.bounded(self.rescaled(sums, [self.factor(gate, gate.weights, 0) for gate in self.gates]))
        if self.beyond:
            seen = self.ops.Add(seen, self.starts() + 0.5)
        return seen if flat else self.ops.Reshape(seen, [self.time, self.batches, len(slots) * self.cells])

    def factor(self, gate: Gate, weights: int, seen: int) -> np.float32:
        """Of products with a matrix, in steps of what a gate sees."""
        return self.scale(weights) * self.scale(seen) / self.steps[gate]

    def sums(self, hidden: Value, cells: Value, products: Value) -> Sequence[Value]:
        """What becomes of the early gates, looked up at once, and what a later one sees before its peephole."""
        shares, once = self.of_each([share for _, share in self.parts()]), self.multiplied_once(hidden)
        if self.beyond:
            return self.split(self.entries(self.both, self.ops.Add(self.ops.Mul(once, shares * NEAR), products)))
        seen = self.divided(once, shares)
        sums = self.bounded(self.ops.Add(products, seen))
        apart: dict[Gate, Value] = {}
        if self.peeps:
            early = len(self.early)
            sums, late = self.ops.Split(sums, [early * self.cells, self.cells], axis=1, outputs=2)
            apart = {OUTPUT: late}
            sums = self.peepholes(self.early, sums, self.ops.Concat(*[cells] * early, axis=1))
        if self.normalizes:
            sums = self.layer_norm(self.early, sums)
        entries = self.read(self.both, sums, self.starts())
        looked_up = self.ops.Split(entries, [self.cells] * len(self.early), axis=1, outputs=len(self.early))
        apart |= dict(zip(self.early, looked_up, strict=True))
        return [apart[gate] for gate in self.gates]

    def starts(self) -> Any:
        """Where the entry of 0 is in the table of all early gates: of sigmoids first, of tanh behind."""
        zero, length = self.beyond - LEAST, 2 * self.beyond + len(UPWARDS)
        return self.of_each([zero + length * (gate is UPDATE) for gate in self.early])

    def multiplied_once(self, hidden: Value) -> Value:
        """Products with the last output after the first rounding."""
        if self.small:
            return self.ops.Floor(self.ops.Gemm(hidden, self.recurrent, np.float64(0.5), transB=1))
        sums = self.summed(hidden, [gate.recurrent for gate in self.gates], self.recurrent)
        multiplied = self.ops.Mul(sums, self.factors())
        return self.ops.Round(multiplied) if self.halfless() else self.upwards(multiplied)

    def halfless(self) -> bool:
        """Whether products with the last output are exact before the first rounding, and none is a half.

        A sum times m / 2^p with m odd is one only where the sum is a multiple of 2^(p - 1).
        """
        largest = self.largest([gate.recurrent for gate in self.gates])
        ratios = [factor.as_integer_ratio() for factor, _ in self.parts()]
        return all(2 * largest < below and largest * above < 2**53 for above, below in ratios)

    def rest(self, share: Value) -> Value:
        return self.ops.Sub(np.float64(MOST * SHARE), share)

    def update(self, sums: dict[Gate, Value]) -> Value:
        """In steps of the cells, always tanh, whatever the option."""
        return sums[UPDATE]

    def share(self, gate: Gate, sums: dict[Gate, Value], cells: Value) -> Value:
        if gate in self.early:
            return sums[gate]
        seen = self.peepholes([gate], sums[gate], cells)
        return self.read(self.sigmoids, self.layer_norm([gate], seen) if self.normalizes else seen)

    def peepholes(self, gates: Sequence[Gate], sums: Value, cells: Value) -> Value:
        """With what each of these gates sees of the cells, nothing where it has no peephole."""
        weights, scales = zip(*map(self.peephole, gates), strict=True)
        return self.bounded(self.ops.Add(sums, self.rescaled(cells, scales, np.concatenate(weights))))

    def peephole(self, gate: Gate) -> tuple[Array, np.float32]:
        """What a gate multiplies the cells by, and the scale of that in steps of what it sees."""
        if gate.peephole is None or self.op.tensor(gate.peephole) is None:
            return np.zeros(self.cells), np.float32(1)
        scale = 2.0**self.exponent * float(self.scale(gate.peephole)) / float(self.steps[gate])
        return self.stored(gate.peephole).astype(np.float64), np.float32(scale)

    def layer_norm(self, gates: Sequence[Gate], sums: Value) -> Value:
        """Each gate's sums over its cells, (B, G * C), in steps of 2^-10; a variance below 1 counts as the guard's.

        (PortableApplyLayerNorm, portable_tensor_utils.cc)
        """
        ops, cells, several = self.ops, self.cells, len(gates) > 1
        coefficients = [self.scale(gate.norm) for gate in gates]
        guards = np.asarray([[max(1.0, float(int(10000 * coefficient)))] for coefficient in coefficients])
        rows = ops.Reshape(sums, [-1, len(gates), cells]) if several else sums
        mean = self.cut(ops.Div(ops.MatMul(rows, np.full((cells, 1), 1024.0)), np.float64(cells)))
        squares = ops.MatMul(ops.Mul(rows, rows), np.full((cells, 1), float(2**20 // cells)))
        variance = self.cut(ops.Mul(ops.Sub(squares, ops.Mul(mean, mean)), np.float64(2.0**-20)))
        variance = ops.Where(ops.Less(variance, np.float64(1)), guards, variance)
        centred = ops.Sub(ops.Mul(rows, np.float64(1024)), mean)
        even = ops.Round(ops.Div(centred, ops.Sqrt(variance)))
        flat = ops.Reshape(even, [-1, len(gates) * cells]) if several else even
        weights = np.concatenate([self.stored(gate.norm) for gate in gates]).astype(np.float64)
        scaled = self.moved(ops.Mul(flat, weights), np.concatenate([self.stored(gate.bias) for gate in gates]))
        rounded = ops.Round(ops.Mul(scaled, np.float64(2.0**-10 * TIES)))
        return self.bounded(self.rescaled(rounded, [coefficient * np.float32(2**12) for coefficient in coefficients]))

    def cut(self, x: Value) -> Value:
        """Towards zero, as C++ divides integers."""
        return self.ops.Cast(self.ops.Cast(x, to="int64"), to="float64")

    def updated(self, cells: Value, forget: Value, take: Value, update: Value) -> Value:
        ops = self.ops
        after = ops.Add(ops.Round(ops.Mul(forget, cells)), ops.Round(ops.Mul(take, update)))
        clip = np.float32(self.ctx.options.cell_clip) / np.float32(step_of(self.op[CELLS])[0])
        most = float(int(min(clip, np.float32(MOST))))
        return self.bounded(after, -most, most) if most > 0 else self.bounded(after)

    def output(self, give: Value, cells: Value) -> Value:
        """What is projected has its zero point taken off where it was meant to be added."""
        ops, (step, point), last = self.ops, step_of(self.op.intermediates[4]), self.point(HIDDEN)
        rounded = ops.Round(ops.Mul(give, self.entries(self.shown, cells)))
        if self.projection is None:
            moved = ops.Add(rounded, np.float64(point - last)) if point != last else rounded
            return self.bounded(moved, -128.0 - last, 127.0 - last)
        hidden = ops.Cast(self.bounded(rounded, point - 128.0, point + 127.0), to="float32")
        sums = self.summed(hidden, [PROJECTION], self.projection)
        if self.op.tensor(PROJECTION_BIAS) is not None:
            sums = self.moved(sums, self.stored(PROJECTION_BIAS))
        given = self.rescaled(sums, [self.scale(PROJECTION) * np.float32(step) / self.scale(HIDDEN)])
        most = float(int(min(np.float32(self.ctx.options.proj_clip) / self.scale(out(0)), np.float32(127))))
        least, most = (-most, most) if most > 0 else (-128.0, 127.0)
        return self.bounded(given, least - last, most - last)


def decomposed(scale: float) -> tuple[float, float]:
    """A multiplier's mantissa of 31 bits with its shift to the left, and its shift to the right as a power of two."""
    mantissa, exponent = quantized_multiplier(scale)
    return (mantissa * 2.0 ** (max(exponent, 0) - 31), 2.0 ** min(exponent, 0)) if exponent >= -31 else (0.0, 1.0)
