"""A step of an LSTM of 8 bit activations and 16 bit cells: real arithmetic, rounded and bounded where that adds up.

The cells are rounded twice a step, which keeps what decays slowly from decaying at all, and outputs as the states they
are. What the gates see is bounded only: the kernel rounds it too, to 2^-12, and takes sigmoid and tanh of it in fixed
point, a few of 2^-15 off (EvalInteger8x8_16, kernels/lstm_eval.cc). With its roundings and its functions as tables, 0.5%
of the outputs are a step off instead of 2%, in 1.2 to 1.5 times the time and 400 kB more.

Inside, outputs are real numbers and cells whole steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Decline, Operator, Quantization, Tensor, Value, out
from op_handlers.sequence.lstm.cell import (
    CELLS,
    HIDDEN,
    OUTPUT,
    PROJECTION,
    PROJECTION_BIAS,
    Cell,
    Gate,
    gates_of,
    normalizes,
)

SEEN = 2.0**-12  # a step of what sigmoid and tanh are taken of
LEAST, MOST = -32768.0, 32767.0  # of 16 bits


def step_of(tensor: Tensor | None) -> tuple[float, int]:
    """The one scale of a tensor and its zero point; a scale of 0 where it has none, or several."""
    held = tensor.quantization if tensor is not None else None
    if not isinstance(held, Quantization) or held.per_axis:
        return 0.0, 0
    return held.scale[0], held.zero_point[0]


def whole(op: Operator) -> Decline | None:
    """What the integer kernel refuses, or reads as something else than it is."""
    if len(op.intermediates) != 5:
        text = f"it has {len(op.intermediates)} intermediate tensors, the kernel with 16 bit gates 5"
        return Decline(f"{text}; that with 8 bit gates (12) mixes up the scales of its gates; quantize anew")
    slots = [slot for gate in gates_of(op) for slot in gate if slot is not None and op.tensor(slot) is not None]
    slots += [slot for slot in (PROJECTION, PROJECTION_BIAS) if op.tensor(slot) is not None]
    for slot in slots:
        if not op[slot].constant:
            return Decline(f"its operand {op[slot].name!r} must be a constant where it works on integers")
    scales = (0, HIDDEN, CELLS, out(0), *(slot for slot in slots if op[slot].dtype != "int32"))
    for tensor in (*(op[slot] for slot in scales), op.intermediates[4], *between(op)):
        if not step_of(tensor)[0]:
            return Decline(f"{tensor.name if tensor else 'an intermediate'!r} must have one scale")
    mantissa, exponent = frexp(step_of(op[CELLS])[0])
    if mantissa != 0.5 or not -15 <= exponent - 1 <= -9:
        return Decline("the scale of its cells is no power of two from 2^-15 to 2^-9, which its tanh is made for")
    if not alike(op[HIDDEN], op[out(0)]):
        return Decline("its output and its state have different scales, which the kernel does not rescale")
    if op.tensor(OUTPUT.peephole or 0) is not None and op[OUTPUT.recurrent].shape[0] != op[OUTPUT.recurrent].shape[1]:
        return Decline("it has peepholes and projects to another size, where the kernel mixes up its cells")
    return None


def between(op: Operator) -> Sequence[Tensor | None]:
    """What holds the scales of the gates' sums where they are normalized: as many intermediates as there may be gates."""
    return [op.intermediates[gate.weights - 1] for gate in gates_of(op)] if normalizes(op) else []


def alike(one: Tensor | None, other: Tensor | None) -> bool:
    (scale, zero_point), (second, second_point) = step_of(one), step_of(other)
    return abs(scale - second) <= 1e-6 * scale and zero_point == second_point


class IntegerCell(Cell):
    """Operands come as real numbers, constants as the file has them. Sums are real, of 16 bits in ``steps`` of theirs."""

    def __init__(self, ctx: Context, inputs: Sequence[Value]) -> None:
        gates = gates_of(ctx.op)
        found = [step_of(tensor)[0] for tensor in between(ctx.op)] or [SEEN] * len(gates)
        self.steps = dict(zip(gates, found, strict=True))
        self.step_of_cells = step_of(ctx.op[CELLS])[0]
        super().__init__(ctx, inputs)

    # --- operands -----------------------------------------------------------------------------

    def scale(self, slot: int) -> float:
        return step_of(self.op[slot])[0]

    def held(self, slot: int) -> Array:
        """The stored integers of a constant."""
        return self.ctx.required(slot)

    def real(self, slot: int) -> Value | Array:
        """A vector in real numbers: a bias after a normalization has 2^-10 of its coefficients' scale."""
        scale = self.scale(slot) if self.op[slot].dtype != "int32" else self.scale(slot + 8) / 1024
        return self.held(slot).astype(np.float32) * np.float32(scale)

    def weights(self, slots: Sequence[int]) -> Value | Array:
        """Bytes, one matrix below the other; they become real as the model is loaded."""
        stored = np.concatenate([self.held(slot) for slot in slots])
        sizes = [self.op[slot].shape[0] for slot in slots]
        scales = np.repeat([self.scale(slot) for slot in slots], sizes).astype(np.float32)[:, None]
        if self.ctx.folds:
            return stored.astype(np.float32) * scales
        return self.ops.Mul(self.ops.Cast(stored, to="float32"), scales)

    # --- states -------------------------------------------------------------------------------

    def states(self) -> tuple[Value, Value]:
        hidden, cells = super().states()
        return hidden, self.ops.Cast(cells, to="float32")

    def keep(self, hidden: Value, cells: Value) -> None:
        super().keep(hidden, self.ops.Cast(cells, to="int16"))

    # --- steps --------------------------------------------------------------------------------

    def rounded(self, x: Value, least: float = LEAST, most: float = MOST) -> Value:
        return self.ops.Clip(self.ops.Round(x), least, most)

    def bounded(self, sums: Value, gates: Sequence[Gate]) -> Value:
        """To 16 bits in the steps of each gate."""
        steps = [self.steps[gate] for gate in gates]
        if len({*steps}) == 1:
            return self.ops.Clip(sums, LEAST * steps[0], MOST * steps[0])
        of_each = np.repeat(steps, self.cells).astype(np.float32)
        return self.ops.Max(self.ops.Min(sums, of_each * np.float32(MOST)), of_each * np.float32(LEAST))

    def products(self, x: Value) -> Value:
        return self.bounded(super().products(x), self.gates)

    def biases(self) -> Array:
        """They count in steps of input times weight, whatever the file says."""
        scales = [self.scale(0) * self.scale(gate.weights) for gate in self.gates]
        parts = [self.held(gate.bias) * scale for gate, scale in zip(self.gates, scales, strict=True)]
        return np.concatenate(parts).astype(np.float32)

    def sums(self, hidden: Value, products: Value) -> Sequence[Value]:
        return self.split(self.bounded(self.ops.Gemm(hidden, self.recurrent, products, transB=1), self.gates))

    def peeped(self, gate: Gate, slot: int, sums: Value, cells: Value) -> Value:
        real = (self.held(slot) * (self.scale(slot) * self.step_of_cells)).astype(np.float32)
        return self.bounded(self.ops.Add(sums, self.ops.Mul(cells, real)), [gate])

    def normalized(self, gate: Gate, sums: Value) -> Value:
        """A variance below a step's square counts as the guard's (PortableApplyLayerNorm)."""
        if not self.normalizes:
            return sums
        ops, least = self.ops, self.steps[gate] ** 2
        guard = max(1.0, float(int(10000 * self.scale(gate.norm)))) * least
        centred = ops.Sub(sums, ops.ReduceMean(sums, [-1]))
        variance = ops.ReduceMean(ops.Mul(centred, centred), [-1])
        variance = ops.Where(ops.Less(variance, least), guard, variance)
        even = ops.Div(centred, ops.Sqrt(variance))
        scaled = ops.Add(ops.Mul(even, self.real(gate.norm)), self.real(gate.bias))
        return ops.Clip(scaled, LEAST * SEEN, MOST * SEEN)

    def activated(self, x: Value) -> Value:
        """Always tanh, whatever the option."""
        return self.ops.Tanh(x)

    def updated(self, cells: Value, forget: Value, take: Value, update: Value) -> Value:
        ops = self.ops
        kept = ops.Round(ops.Mul(forget, cells))
        taken = ops.Round(ops.Mul(take, ops.Mul(update, 1 / self.step_of_cells)))
        most = float(int(min(self.ctx.options.cell_clip / self.step_of_cells, MOST)))
        return ops.Clip(ops.Add(kept, taken), max(LEAST, -most) if most else LEAST, most or MOST)

    def output(self, give: Value, cells: Value) -> Value:
        """In real numbers, on the steps of the state. What is projected has its zero point added where it was meant off."""
        ops, (step, zero_point) = self.ops, step_of(self.op.intermediates[4])
        hidden = ops.Mul(give, self.activated(ops.Mul(cells, self.step_of_cells)))
        steps = ops.Mul(hidden, 1 / step)
        last, last_point = step_of(self.op[HIDDEN])
        if self.projection is None:
            made = self.rounded(steps, -128.0 - zero_point, 127.0 - zero_point)
            return ops.Mul(made if zero_point == last_point else ops.Add(made, float(zero_point - last_point)), last)
        steps = self.rounded(steps, -128.0 + zero_point, 127.0 + zero_point)
        biased = self.op.tensor(PROJECTION_BIAS) is not None
        bias = (self.held(PROJECTION_BIAS) * (self.scale(PROJECTION) * step)).astype(np.float32) if biased else None
        made = ops.Gemm(ops.Mul(steps, step), self.projection, bias, transB=1)
        most = float(int(min(self.ctx.options.proj_clip / step_of(self.op[out(0)])[0], 127.0)))
        least, most = (-most, most) if most else (-128.0, 127.0)
        return ops.Mul(self.rounded(ops.Mul(made, 1 / last), least - last_point, most - last_point), last)
