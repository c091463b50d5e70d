"""LSTM of five operands: input and last output concatenated, one matrix for all gates (reference/lstm_cell.h)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_tflite_plugin.api import Context, Decline, Dequantized, Operator, Refusal, Value, out
from op_handlers.sequence.lstm.integer_checks import scale_and_zero_point
from op_handlers.sequence.lstm.integers import GATE_INPUT_SCALE, LEAST, MOST

X, HIDDEN, WEIGHTS, BIAS, CELLS = range(5)
FLOATS = ("float32",) * 5
INTEGERS = ("uint8", "uint8", "uint8", "int32", "int16")
EIGHTH, CELL = 1 / 128, 2.0**-11  # scales of activations and of cells


def basic_quantization(op: Operator) -> Dequantized:
    """Return the quantization; the kernel uses the bias's scale for all products."""
    stored = (WEIGHTS, BIAS, CELLS) if op[X].dtype == "uint8" else ()
    return Dequantized(bias={BIAS: (X, WEIGHTS)}, weights=(WEIGHTS,), stored=stored)


def check_basic(op: Operator) -> Decline | None:
    """Return a Decline for operands that the kernel refuses or misreads."""
    if len(op.inputs) != 5 or len(op.outputs) != 4 or None in (*op.inputs, *op.outputs):
        return Decline(f"{len(op.inputs)} operands and {len(op.outputs)} results; the kernel has 5 and 4")
    dtypes = tuple(op[slot].dtype for slot in range(5))
    if dtypes not in (FLOATS, INTEGERS):
        return Decline(
            f"the operands have dtypes {', '.join(dtypes)}; the kernel requires {', '.join(FLOATS)} or {', '.join(INTEGERS)}"
        )
    if dtypes == FLOATS:
        return None
    if not (op[WEIGHTS].is_constant and op[BIAS].is_constant):
        return Decline("weights and bias must be constant for integer kernels")
    for tensor, step, point in (
        *((op[slot], EIGHTH, 128) for slot in (X, HIDDEN, out(0))),
        *((op[slot], CELL, 0) for slot in (CELLS, out(1))),
    ):
        scale, zero_point = scale_and_zero_point(tensor)
        if abs(scale - step) > 1e-3 * step or zero_point != point:
            parameters = f"{tensor.name!r} has scale {scale:g} and zero point {zero_point}"
            return Decline(f"{parameters}; the kernel assumes {step:g} and {point}")
    return (
        None
        if scale_and_zero_point(op[WEIGHTS])[0] and scale_and_zero_point(op[BIAS])[0]
        else Decline("weights or bias have no scale")
    )


def emit_basic(ctx: Context, inputs: Mapping[int, Value]) -> tuple[Value | None, ...]:
    """Return the output, the cells, the concatenated operands and their products. The first two are the next states."""
    ops, quantized = ctx.ops, ctx.op[X].dtype == "uint8"
    both = ops.Concat(inputs[X], inputs[HIDDEN], axis=1)
    sums = emit_products(ctx, both) if quantized else ops.Gemm(both, inputs[WEIGHTS], inputs[BIAS], transB=1)
    size = [ctx.op[WEIGHTS].shape[0] // 4] * 4
    input_gate, update, forget_gate, output_gate = ops.Split(sums, size, axis=1, outputs=4)
    cells = ops.Cast(inputs[CELLS], to="float32") if quantized else inputs[CELLS]
    kept, added = ops.Mul(ops.Sigmoid(forget_gate), cells), ops.Mul(ops.Sigmoid(input_gate), ops.Tanh(update))
    if not quantized:
        after = cells = ops.Add(kept, added)
        hidden = ops.Mul(ops.Sigmoid(output_gate), ops.Tanh(cells))
    else:
        steps = ops.Clip(ops.Add(ops.Round(kept), ops.Round(ops.Mul(added, 1 / CELL))), LEAST, MOST)
        after, cells = ops.Cast(steps, to="int16"), ops.Mul(steps, CELL)
        hidden = ops.Mul(ops.Sigmoid(output_gate), ops.Tanh(cells))
        hidden = ops.Mul(ops.Clip(ops.Round(ops.Mul(hidden, 1 / EIGHTH)), -128.0, 127.0), EIGHTH)
    for slot, value in ((HIDDEN, hidden), (CELLS, after)):
        if ctx.op[slot].is_variable:
            ctx.assign(slot, value)
    if quantized and ctx.is_used(3):
        raise Refusal("the fourth output, the sums of the gates, is used but has no scale")
    return hidden, cells, both, None if quantized else sums


def emit_products(ctx: Context, both: Value) -> Value:
    """Emit sums with a scale of 2^-12, rounded once; the bias's scale contains both operands' scales."""
    weights, bias = ctx.op[WEIGHTS].array, ctx.op[BIAS].array
    point, step = scale_and_zero_point(ctx.op[WEIGHTS])[1], scale_and_zero_point(ctx.op[BIAS])[0]
    ops, matrix = ctx.ops, (weights.astype(np.int16) - point).T.copy()
    scale = np.float32(step / EIGHTH / GATE_INPUT_SCALE)
    floats = matrix.astype(np.float32) * scale if ctx.folds_weights else ops.Mul(ops.Cast(matrix, to="float32"), scale)
    sums = ops.Gemm(both, floats, (bias * (step / GATE_INPUT_SCALE)).astype(np.float32))
    return ops.Mul(ops.Clip(ops.Round(sums), LEAST, MOST), GATE_INPUT_SCALE)
