"""The LSTM of five operands: input and last output side by side, one matrix for all gates (reference/lstm_cell.h)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_tflite_plugin.api import Context, Decline, Dequantized, Operator, Refused, Value, out
from op_handlers.sequence.lstm.integers import LEAST, MOST, SEEN
from op_handlers.sequence.lstm.whole import step_of

X, HIDDEN, WEIGHTS, BIAS, CELLS = range(5)
FLOATS = ("float32",) * 5
INTEGERS = ("uint8", "uint8", "uint8", "int32", "int16")
EIGHTH, CELL = 1 / 128, 2.0**-11  # a step of all activations, and of the cells


def side_by_side(op: Operator) -> Dequantized:
    """The kernel takes the bias's scale for that of all products."""
    stored = (WEIGHTS, BIAS, CELLS) if op[X].dtype == "uint8" else ()
    return Dequantized(bias={BIAS: (X, WEIGHTS)}, weights=(WEIGHTS,), stored=stored)


def five(op: Operator) -> Decline | None:
    """What the kernel refuses, or reads as something else than it is."""
    if len(op.inputs) != 5 or len(op.outputs) != 4 or None in (*op.inputs, *op.outputs):
        return Decline(
            f"it has {len(op.inputs)} operands and {len(op.outputs)} results; the kernel takes 5 and gives 4"
        )
    dtypes = tuple(op[slot].dtype for slot in range(5))
    if dtypes not in (FLOATS, INTEGERS):
        return Decline(
            f"its operands are {', '.join(dtypes)}; the kernel takes {', '.join(FLOATS)} or {', '.join(INTEGERS)}"
        )
    if dtypes == FLOATS:
        return None
    if not (op[WEIGHTS].constant and op[BIAS].constant):
        return Decline("its weights and bias must be constants where it works on integers")
    for tensor, step, point in (
        *((op[slot], EIGHTH, 128) for slot in (X, HIDDEN, out(0))),
        *((op[slot], CELL, 0) for slot in (CELLS, out(1))),
    ):
        scale, zero_point = step_of(tensor)
        if abs(scale - step) > 1e-3 * step or zero_point != point:
            parameters = f"{tensor.name!r} has scale {scale:g} and zero point {zero_point}"
            return Decline(f"{parameters}; the kernel takes it for one of {step:g} and {point}")
    return None if step_of(op[WEIGHTS])[0] and step_of(op[BIAS])[0] else Decline("its weights or bias have no scale")


def basic(ctx: Context, inputs: Mapping[int, Value]) -> tuple[Value | None, ...]:
    """The output, the cells, what was multiplied and what came of it. The first two are the next run's states."""
    ops, whole = ctx.ops, ctx.op[X].dtype == "uint8"
    both = ops.Concat(inputs[X], inputs[HIDDEN], axis=1)
    sums = products(ctx, both) if whole else ops.Gemm(both, inputs[WEIGHTS], inputs[BIAS], transB=1)
    size = [ctx.op[WEIGHTS].shape[0] // 4] * 4
    take, update, forget, give = ops.Split(sums, size, axis=1, outputs=4)
    cells = ops.Cast(inputs[CELLS], to="float32") if whole else inputs[CELLS]
    kept, taken = ops.Mul(ops.Sigmoid(forget), cells), ops.Mul(ops.Sigmoid(take), ops.Tanh(update))
    if not whole:
        after = cells = ops.Add(kept, taken)
        hidden = ops.Mul(ops.Sigmoid(give), ops.Tanh(cells))
    else:
        steps = ops.Clip(ops.Add(ops.Round(kept), ops.Round(ops.Mul(taken, 1 / CELL))), LEAST, MOST)
        after, cells = ops.Cast(steps, to="int16"), ops.Mul(steps, CELL)
        hidden = ops.Mul(ops.Sigmoid(give), ops.Tanh(cells))
        hidden = ops.Mul(ops.Clip(ops.Round(ops.Mul(hidden, 1 / EIGHTH)), -128.0, 127.0), EIGHTH)
    for slot, value in ((HIDDEN, hidden), (CELLS, after)):
        if ctx.op[slot].is_variable:
            ctx.assign(slot, value)
    if whole and ctx.wanted(3):
        raise Refused("its gates' sums are used, which have no scale in the file")
    return hidden, cells, both, None if whole else sums


def products(ctx: Context, both: Value) -> Value:
    """Sums in steps of 2^-12, rounded once; both operands' steps are in the bias's."""
    weights, bias = ctx.op[WEIGHTS].array, ctx.op[BIAS].array
    point, step = step_of(ctx.op[WEIGHTS])[1], step_of(ctx.op[BIAS])[0]
    ops, matrix = ctx.ops, (weights.astype(np.int16) - point).T.copy()
    scale = np.float32(step / EIGHTH / SEEN)
    floats = matrix.astype(np.float32) * scale if ctx.folds else ops.Mul(ops.Cast(matrix, to="float32"), scale)
    sums = ops.Gemm(both, floats, (bias * (step / SEEN)).astype(np.float32))
    return ops.Mul(ops.Clip(ops.Round(sums), LEAST, MOST), SEEN)
