"""Batched matrix products."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Dequantized,
    Implicit,
    Instance,
    Integer,
    Operator,
    Quantization,
    Terminate,
    Value,
    format_axes,
    handler,
    out,
)
from op_handlers.kernels.fixed_point import quantized_multiplier
from op_handlers.kernels.operands import require_quantization
from op_handlers.kernels.wide_accumulators import scale_product


def product_axes(op: Operator, x: str = "mk", w: str = "kn") -> list[list[str]]:
    """Return the letters of both operands and the result.

    Batch axes are aligned from the right, and are followed by rows and columns.
    """
    shapes = (op[0].rank, x), (op[1].rank, w), (op[out(0)].rank, "mn")
    return [[*(f"b{i}" for i in reversed(range(rank - 2))), *matrix] for rank, matrix in shapes]


def batch_matmul_axes(at: Instance) -> str:
    """Return the axes of operands and result in the layout of the file."""
    op = at.op
    *operands, result = product_axes(op, "km" if op.options.adj_x else "mk", "nk" if op.options.adj_y else "kn")
    return format_axes(operands, result)


def matmul_layout(at: Instance) -> Implicit | Terminate:
    """Return the layout of operands and result.

    An adjoint operand is stored as ``k m`` and required as ``m k``, so the host transposes it. Without adjoints, batch
    axes may have any order.
    """
    op = at.op
    if op.options.adj_x or op.options.adj_y:
        return Implicit({slot: " ".join(axes) for slot, axes in zip((0, 1, out(0)), product_axes(op), strict=True)})
    if op[1].is_constant:
        return Terminate(unordered="k")
    return Terminate(unordered=" ".join(f"b{i}" for i in range(op[0].rank - 2)) if op[0].rank == op[1].rank else "")


def check_scales(at: Instance) -> Decline | None:
    """Return a Decline for missing or unsupported scales.

    With float32 activations, the kernel requires symmetric weights with a scale per tensor or per column
    (batch_matmul.cc).
    """
    op = at.op
    x, w, y = op[0], op[1], op[out(0)]
    if y.dtype == "int32":
        return None
    if any("int" in t.dtype and not isinstance(t.quantization, Quantization) for t in (x, w, y)):
        return Decline("the quantized operands have no scale")
    if not isinstance(w.quantization, Quantization):
        return None
    column = w.rank - (2 if op.options.adj_y else 1)
    by_column = not w.quantization.per_axis or w.quantization.axis == column
    if x.dtype == "float32" and (any(w.quantization.zero_point) or not by_column):
        return Decline("the weights must be symmetric, with a scale per tensor or per column; quantize them this way")
    return None


@handler(
    "BATCH_MATMUL",
    max_version=4,
    layout=matmul_layout,
    axes=batch_matmul_axes,
    quantization=lambda at: Integer() if at.op[out(0)].dtype == "int32" else Dequantized(weights=(1,)),
    types=("float32, float32 int8 -> float32", "int8, int8 -> int8 int32", "int16, int16 int8 -> int16"),
    accepts=check_scales,
)
def batch_matmul(ctx: Context, x: Value, w: Value) -> Value:
    """Emit MatMul, or MatMulInteger for int32 results.

    MatMulInteger multiplies quantized values without scales, as in EvalInt8Int32.
    """
    if ctx.op[out(0)].dtype == "int32":
        return ctx.ops.MatMulInteger(x, w, zero_point_shift(ctx, 0), zero_point_shift(ctx, 1))
    if has_zero_scale(ctx.op):
        ctx.warn("LiteRT's kernel returns zeros for operands with per-channel scales; quantize with one scale")
        weights = ctx.constant(1)
        if weights is not None and ctx.target.quantizes_moves:
            return ctx.ops.MatMul(x, np.zeros(weights.shape, np.float32))
        return ctx.ops.MatMul(ctx.ops.Mul(x, 0.0), w)
    return correct_double_rounding(ctx, scale_product(ctx, ctx.ops.MatMul(x, w)))


MAX_FRACTION_BITS = 12
"""Maximum fraction bits for which the correction is added; with more bits, 1 in 10,000 results differs without a correction."""


def correct_double_rounding(ctx: Context, product: Value) -> Value:
    """Return an int8 product that is rounded to the kernel's result.

    The kernel rounds a sum twice: half up to the fraction bits of its multiplier, then half away from zero to integers.
    Without a correction, 1 in 30 to 200 results would differ. One rounding half away from zero gives the same results
    if the product is first moved half a fraction bit away from zero. Sums other than 0 are at least half a fraction bit.
    Source: EvalInt8Int8 (batch_matmul.cc) and MultiplyByQuantizedMultiplier (internal/common.cc).
    """
    if not ctx.is_quantized or ctx.op[out(0)].dtype != "int8" or not ctx.target.rounds_activations:
        return product
    x, w, y = (float(require_quantization(ctx.op[slot]).scale[0]) for slot in (0, 1, out(0)))
    bits = -quantized_multiplier(x * w / y)[1] if y else 0
    if not 0 < bits <= MAX_FRACTION_BITS:
        return product
    half_bit = y / 2 ** (bits + 1)
    low, high = np.float32(-half_bit * (1 - MARGIN)), np.float32(half_bit * (1 + MARGIN))
    return ctx.ops.Sum(product, ctx.ops.Clip(product, low, high))


MARGIN = 2.0**-8
"""Fraction by which the correction is reduced for negative products and increased for positive ones.

If the multiplier is a power of two, a sum can be a tie in both roundings. The first rounding rounds ties up.
"""


def has_zero_scale(op: Operator) -> bool:
    """True if the kernel computes a product of integers with a scale of 0.

    The kernel reads the single scale of each operand (GetQuantizedConvolutionMultipler, kernel_util.cc), which is 0 for
    per-axis scales (GetLegacyQuantization, core/subgraph.cc).
    """
    scales = [t.quantization for t in (op[0], op[1]) if isinstance(t.quantization, Quantization)]
    return op[0].dtype in ("int8", "int16") and any(quantization.per_axis for quantization in scales)


def zero_point_shift(ctx: Context, slot: int) -> Array | None:
    """Return the zero point of the stored operand minus that in the file.

    The result is None if the zero points are equal.
    """
    file_quantization, stored_quantization = ctx.op[slot].quantization, ctx.quantization(slot)
    if (
        stored_quantization is None
        or not isinstance(file_quantization, Quantization)
        or stored_quantization.zero_point == file_quantization.zero_point
    ):
        return None
    return np.asarray(stored_quantization.zero_point[0] - file_quantization.zero_point[0], ctx.dtype(slot))
