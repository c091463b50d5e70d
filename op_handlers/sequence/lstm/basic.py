"""LSTM with five operands (reference/lstm_cell.h).

One matrix multiplies the concatenation of the input and the previous output.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_tflite_plugin.api import Context, Decline, Dequantized, Operator, Refusal, Value, out
from op_handlers.sequence.lstm.integer_arithmetic import INT16_MAX, INT16_MIN
from op_handlers.sequence.lstm.integer_checks import scale_and_zero_point
from op_handlers.sequence.lstm.integers import GATE_INPUT_SCALE

X, HIDDEN, WEIGHTS, BIAS, CELLS = range(5)
FLOATS = ("float32",) * 5
INTEGERS = ("uint8", "uint8", "uint8", "int32", "int16")
ACTIVATION_SCALE, CELL_SCALE = 1 / 128, 2.0**-11


def basic_quantization(op: Operator) -> Dequantized:
    """Return the quantization behavior, in which products have the scale of the bias."""
    slots_as_in_file = (WEIGHTS, BIAS, CELLS) if op[X].dtype == "uint8" else ()
    return Dequantized(bias={BIAS: (X, WEIGHTS)}, weights=(WEIGHTS,), as_in_file=slots_as_in_file)


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
    for tensor, expected_scale, expected_zero_point in (
        *((op[slot], ACTIVATION_SCALE, 128) for slot in (X, HIDDEN, out(0))),
        *((op[slot], CELL_SCALE, 0) for slot in (CELLS, out(1))),
    ):
        scale, zero_point = scale_and_zero_point(tensor)
        if abs(scale - expected_scale) > 1e-3 * expected_scale or zero_point != expected_zero_point:
            parameters = f"{tensor.name!r} has scale {scale:g} and zero point {zero_point}"
            return Decline(f"{parameters}; the kernel assumes {expected_scale:g} and {expected_zero_point}")
    return (
        None
        if scale_and_zero_point(op[WEIGHTS])[0] and scale_and_zero_point(op[BIAS])[0]
        else Decline("weights or bias have no scale")
    )


def emit_basic(ctx: Context, inputs: Mapping[int, Value]) -> tuple[Value | None, ...]:
    """Emit the output, the cell state, the concatenated operands and their products.

    The first two are the next states.
    """
    ops, is_quantized = ctx.ops, ctx.op[X].dtype == "uint8"
    operands = ops.Concat(inputs[X], inputs[HIDDEN], axis=1)
    sums = emit_products(ctx, operands) if is_quantized else ops.Gemm(operands, inputs[WEIGHTS], inputs[BIAS], transB=1)
    gate_sizes = [ctx.op[WEIGHTS].shape[0] // 4] * 4
    input_gate, update, forget_gate, output_gate = ops.Split(sums, gate_sizes, axis=1, outputs=4)
    cells = ops.Cast(inputs[CELLS], to="float32") if is_quantized else inputs[CELLS]
    scaled_cells = ops.Mul(ops.Sigmoid(forget_gate), cells)
    scaled_update = ops.Mul(ops.Sigmoid(input_gate), ops.Tanh(update))
    if not is_quantized:
        next_cells = cells = ops.Add(scaled_cells, scaled_update)
        hidden = ops.Mul(ops.Sigmoid(output_gate), ops.Tanh(cells))
    else:
        unclipped = ops.Add(ops.Round(scaled_cells), ops.Round(ops.Mul(scaled_update, 1 / CELL_SCALE)))
        quantized_cells = ops.Clip(unclipped, INT16_MIN, INT16_MAX)
        next_cells, cells = ops.Cast(quantized_cells, to="int16"), ops.Mul(quantized_cells, CELL_SCALE)
        hidden = ops.Mul(ops.Sigmoid(output_gate), ops.Tanh(cells))
        hidden = ops.Mul(ops.Clip(ops.Round(ops.Mul(hidden, 1 / ACTIVATION_SCALE)), -128.0, 127.0), ACTIVATION_SCALE)
    for slot, value in ((HIDDEN, hidden), (CELLS, next_cells)):
        if ctx.op[slot].is_variable:
            ctx.assign(slot, value)
    if is_quantized and ctx.is_used(3):
        raise Refusal("the fourth output, the sums of the gates, is used but has no scale")
    return hidden, cells, operands, None if is_quantized else sums


def emit_products(ctx: Context, operands: Value) -> Value:
    """Emit sums with a scale of 2^-12, rounded once.

    The kernel assumes that the scale of the bias is the product of the scales of operands and weights.
    """
    weights, bias = ctx.op[WEIGHTS].array, ctx.op[BIAS].array
    zero_point, bias_scale = scale_and_zero_point(ctx.op[WEIGHTS])[1], scale_and_zero_point(ctx.op[BIAS])[0]
    ops, matrix = ctx.ops, (weights.astype(np.int16) - zero_point).T.copy()
    scale = np.float32(bias_scale / ACTIVATION_SCALE / GATE_INPUT_SCALE)
    weight_values = (
        matrix.astype(np.float32) * scale if ctx.folds_weights else ops.Mul(ops.Cast(matrix, to="float32"), scale)
    )
    sums = ops.Gemm(operands, weight_values, (bias * (bias_scale / GATE_INPUT_SCALE)).astype(np.float32))
    return ops.Mul(ops.Clip(ops.Round(sums), INT16_MIN, INT16_MAX), GATE_INPUT_SCALE)
