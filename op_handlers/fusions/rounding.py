"""Float32 activations on integer weights, rounded to 8 bits as the kernels do: networks of few such layers give LiteRT's numbers.

A scale serves an image of a convolution, or a row of a product; from the zero point up and down to the largest values there are
255 steps (XNNPACK's qd8 operators; AsymmetricQuantizeFloats, kernels/internal/reference/portable_tensor_utils.cc), or 127 to
the largest magnitude on either side (SymmetricQuantizeFloats) where XNNPACK leaves the operator to the other kernels.
The product that follows is one of float32: of whole numbers times a scale it is the sum of integers that the kernels take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Call,
    Context,
    Decline,
    Fusion,
    Handler,
    Instance,
    Match,
    Operand,
    Operator,
    Quantization,
    Value,
    activation_bounds,
    fusion,
    operands,
    out,
)
from op_handlers.fusions.convolution import axes_of
from op_handlers.fusions.dynamic import b, w, worthwhile, x
from op_handlers.image.convolution import conv_2d, depthwise_conv_2d, reads_past_its_scale, steps, transpose_conv
from op_handlers.kernels.hybrid import is_hybrid, is_shallow, rounding_layers
from op_handlers.kernels.operands import reinterpret_uint8_weights
from op_handlers.matrix.batch_matmul import batch_matmul
from op_handlers.matrix.fully_connected import bias_of_rows, fully_connected, leads, with_leading

(shape,) = operands("shape")

Lowering = Callable[..., Value]

FEW = 2**16
"""Elements that are rounded whatever their product takes."""
PRODUCTS = 32
"""Products an element from which rounding it is a small part of the time."""
LEAST = 1e-30
"""A range in place of none: what is divided by its steps is 0."""


# --- whether ----------------------------------------------------------------------------------


def in_a_shallow_network(match: Match) -> Mapping[str, Any] | Decline:
    """Whether few layers of the subgraph round, and this one at little cost."""
    ((_, op),) = match.calls.items()
    if not is_hybrid(op) or match[x].dtype != "float32" or match[x].constant:
        return Decline("")
    if op.code.startswith("CONV_2D") and not isinstance(worthwhile(match), Decline):
        return Decline("its products are so many that integers are faster, with a scale for all")
    if op.code == "DEPTHWISE_CONV_2D" and reads_past_its_scale(op):
        return Decline("LiteRT's kernel reads on behind its one scale")
    graph = match.graphs[op.subgraph]
    if not is_shallow(graph):
        text = "behind which results differ whether or not they do here"
        return Decline(f"{rounding_layers(graph)[0]} layers round their activations, {text}")
    elements, results = (prod(size or 1 for size in tensor.dims) for tensor in (match[x], op[out(0)]))
    weights = prod(match[w].shape)
    products = max(elements, results) * weights // max(match[w].shape[0], match[w].shape[-1])
    if elements > FEW and products < elements * PRODUCTS:
        return Decline("rounding its activations would take as long as it does")
    return dict(op.options)


# --- how --------------------------------------------------------------------------------------


def rounded(ctx: Context, value: Value, shared: Sequence[int], scales: int | None, *, symmetric: bool = False) -> Value:
    """The activations as the kernel multiplies them. A scale serves the elements along axes ``shared``.

    ``scales``: how many there are, ``None`` where it is known at run time only.
    """
    ops = ctx.ops
    if scales == 1 and not symmetric:
        stored, scale, zero = ops.DynamicQuantizeLinear(value)
        return ops.DequantizeLinear(stored, scale, zero)
    if symmetric:
        steps_taken = ops.Div(127.0, ops.Max(ops.ReduceMax(ops.Abs(value), [*shared]), LEAST))
    else:
        highest, lowest = ops.Max(ops.ReduceMax(value, [*shared]), LEAST), ops.Min(ops.ReduceMin(value, [*shared]), 0.0)
        steps_taken = ops.Div(255.0, ops.Sub(highest, lowest))
    return ops.Div(ops.Round(ops.Mul(value, steps_taken)), steps_taken)


def rounded_images(ctx: Context, image: Value, slot: int, *, symmetric: bool = False) -> Value:
    """With a scale for each image; channels first, as ONNX has them."""
    return rounded(ctx, image, range(1, len(ctx.shape(slot))), ctx.op[slot].dims[0], symmetric=symmetric)


def one_scale(op: Operator) -> bool:
    quantization = op[1].quantization
    return isinstance(quantization, Quantization) and not quantization.per_axis


def rows(op: Operator, depth: int) -> int | None:
    """How many rows of ``depth`` elements the input is, where that is known."""
    return prod(size or 0 for size in op[0].dims) // depth if None not in op[0].dims and depth else None


# --- convolutions -----------------------------------------------------------------------------


def rounding(
    base: Handler, patterns: Sequence[Call], *inputs: Operand, axes: Callable[[Instance], str] | None = None
) -> Callable[[Lowering], Fusion]:
    """An operator that rounds, declared as it is without."""
    return fusion(
        f"{base.code}_ROUNDED",
        pattern=patterns,
        inputs=inputs,
        where=in_a_shallow_network,
        trait="rounds_activations",
        layout=base.layout,
        axes=axes or base.axes,
        reshapes=base.reshapes,
        quantization=base.quantization,
        activation=base.activation,
    )


def lowered(base: Handler, ctx: Context, *inputs: Value | None) -> Value:
    """As the operator is that does not round."""
    value: Value = base.lower(ctx, *inputs)
    return value


def biased(*codes: str) -> list[Call]:
    return [Call(code, x, w, *bias) for code in codes for bias in ((b,), ())]


@rounding(conv_2d, biased("CONV_2D", "CONV_2D_PADDED"), x, w, b, axes=axes_of(conv_2d))
def conv_2d_rounded(ctx: Context, image: Value, weight: Value, bias: Value | None = None) -> Value:
    """Conv of images, or of pixels where it is a product of rows; XNNPACK takes int8 alone."""
    _, *kernel, depth = ctx.op[1].shape
    plain = set(kernel) == {1} and ctx.op[0].dims[-1] == depth and steps(ctx.options, "hw")[0] == [1, 1]
    if plain and not ctx.options.get("pads") and ctx.op[1].dtype == "int8":
        image = rounded(ctx, image, [1], rows(ctx.op, depth))
    else:
        symmetric = ctx.op[1].dtype != "int8" and one_scale(ctx.op)
        image = rounded_images(ctx, image, 0, symmetric=symmetric)
    return lowered(conv_2d, ctx, image, weight, bias)


@rounding(
    depthwise_conv_2d,
    biased("DEPTHWISE_CONV_2D", "DEPTHWISE_CONV_2D_PADDED"),
    x,
    w,
    b,
    axes=axes_of(depthwise_conv_2d),
)
def depthwise_conv_2d_rounded(ctx: Context, image: Value, weight: Value, bias: Value | None = None) -> Value:
    """Conv of images (EvalHybridPerChannel, kernels/depthwise_conv.cc)."""
    return lowered(depthwise_conv_2d, ctx, rounded_images(ctx, image, 0), weight, bias)


@rounding(transpose_conv, [Call("TRANSPOSE_CONV", shape, w, x, b), Call("TRANSPOSE_CONV", shape, w, x)], shape, w, x, b)
def transpose_conv_rounded(ctx: Context, size: Value, weight: Value, image: Value, bias: Value | None = None) -> Value:
    """ConvTranspose of images."""
    return lowered(transpose_conv, ctx, size, weight, rounded_images(ctx, image, 2), bias)


# --- products ---------------------------------------------------------------------------------


@rounding(fully_connected, biased("FULLY_CONNECTED"), x, w, b)
def fully_connected_rounded(ctx: Context, row: Value, weight: Value, bias: Value | None = None) -> Value:
    """Gemm of rows; XNNPACK takes all but int2 of one scale, uint8, and activations that are no clamps."""
    depth = ctx.op[1].shape[-1]
    if leads(ctx):
        row = ctx.ops.Reshape(row, [-1, depth])
    clamped = activation_bounds(ctx.options.fused_activation_function) is not None
    symmetric = ctx.op[1].dtype not in ("int8", "int4") and one_scale(ctx.op)
    symmetric = symmetric if clamped else not ctx.options.asymmetric_quantize_inputs
    row = rounded(ctx, row, [1], rows(ctx.op, depth), symmetric=symmetric)
    bias = bias_of_rows(ctx, bias)
    if ctx.op[1].blocks is not None:
        y = ctx.ops.Gemm(row, real(ctx, 1), bias)
    else:
        y = ctx.ops.Gemm(row, reinterpret_uint8_weights(ctx, 1, weight, by_row=True), bias, transB=1)
    return with_leading(ctx, ctx.raw(0), y) if leads(ctx) else y


def real(ctx: Context, slot: int) -> Array:
    """Weights [o, k] with a scale per block of k, as [k, o] of real numbers, which nothing fuses with their scales."""
    blocks = ctx.op[slot].blocks
    assert blocks is not None
    scales = np.repeat(blocks.flat().reshape(ctx.op[slot].shape[0], -1), blocks.block_size, axis=1)
    weights: Array = ctx.required(slot).astype(np.float32) * scales.T
    return weights


@rounding(batch_matmul, [Call("BATCH_MATMUL", x, w)], x, w)
def batch_matmul_rounded(ctx: Context, matrix: Value, weight: Value) -> Value:
    """MatMul of rows."""
    return lowered(batch_matmul, ctx, rounded(ctx, matrix, [len(ctx.shape(0)) - 1], None), weight)
