"""Rounding of float32 activations to 8 bits before products with integer weights.

LiteRT's kernels round such activations. In networks with few such layers, the fusions round them as well. Each image of
a convolution, or each row of a matrix product, has a scale. The scale divides the range of values, extended to zero, into 255
steps (XNNPACK's qd8 operators; AsymmetricQuantizeFloats, kernels/internal/reference/portable_tensor_utils.cc). If
XNNPACK does not run the operator, the scale divides the largest magnitude into 127 steps (SymmetricQuantizeFloats). The
product of rounded values is computed in float32, and equals the kernels' integer sum times the scales.
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
from op_handlers.fusions.dynamic import b, match_large_conv, w, x
from op_handlers.image.convolution import (
    conv_2d,
    depthwise_conv_2d,
    reads_beyond_scales,
    strides_and_dilations,
    transpose_conv,
)
from op_handlers.kernels.hybrid import is_hybrid, is_nonnegative, is_shallow, rounding_layers
from op_handlers.kernels.operands import reinterpret_uint8_weights
from op_handlers.matrix.batch_matmul import batch_matmul
from op_handlers.matrix.fully_connected import (
    flatten_bias,
    fully_connected,
    has_dynamic_leading_axes,
    restore_leading_axes,
)

(shape,) = operands("shape")

Lowering = Callable[..., Value]

MAX_ALWAYS_ROUNDED = 2**16
"""Up to this many activations, rounding is cheap whatever the size of the product."""
MIN_PRODUCTS_PER_ELEMENT = 32
"""Minimum multiplications per activation for which rounding is cheap relative to the product."""
MIN_RANGE = 1e-30
"""Lower limit of a range of values, to avoid a division by 0 if all values are 0."""


# --- conditions -------------------------------------------------------------------------------


def match_cheap_rounding(match: Match) -> Mapping[str, Any] | Decline:
    """Return the operator's options, or a Decline.

    Declines if rounding takes as long as the product, or if many layers of the subgraph round their activations.
    """
    ((_, op),) = match.calls.items()
    if not is_hybrid(op) or match[x].dtype != "float32" or match[x].is_constant:
        return Decline("")
    if op.code.startswith("CONV_2D") and not isinstance(match_large_conv(match), Decline):
        return Decline("there are so many multiplications that an integer product with a scale per tensor is faster")
    if op.code == "DEPTHWISE_CONV_2D" and reads_beyond_scales(op):
        return Decline("the weights have one scale, and LiteRT's kernel reads beyond it")
    graph = match.graphs[op.subgraph]
    if not is_shallow(graph):
        count = rounding_layers(graph)[0]
        return Decline(
            f"{count} layers round their activations, so results differ from LiteRT's whether this layer rounds or not"
        )
    elements, results = (prod(size or 1 for size in tensor.dims) for tensor in (match[x], op[out(0)]))
    weights = prod(match[w].shape)
    products = max(elements, results) * weights // max(match[w].shape[0], match[w].shape[-1])
    if elements > MAX_ALWAYS_ROUNDED and products < elements * MIN_PRODUCTS_PER_ELEMENT:
        return Decline("rounding the activations would take as long as the product")
    return {**op.options, "nonnegative": is_nonnegative(graph, match[x])}


# --- rounding ---------------------------------------------------------------------------------


def round_activations(
    ctx: Context, value: Value, reduced_axes: Sequence[int], scale_count: int | None, *, symmetric: bool = False
) -> Value:
    """Return activations rounded as in LiteRT's kernels.

    Elements along ``reduced_axes`` share a scale. ``scale_count``: the number of scales, ``None`` if it is dynamic.
    ``symmetric``: the scale divides the largest magnitude into 127 steps.
    """
    ops = ctx.ops
    if scale_count == 1 and not symmetric:
        quantized, scale, zero_point = ops.DynamicQuantizeLinear(value)
        return ops.DequantizeLinear(quantized, scale, zero_point)
    if symmetric:
        inverse_scale = ops.Div(127.0, ops.Max(ops.ReduceMax(ops.Abs(value), [*reduced_axes]), MIN_RANGE))
    else:
        value_range = ops.Max(ops.ReduceMax(value, [*reduced_axes]), MIN_RANGE)
        if not ctx.options.nonnegative:
            value_range = ops.Sub(value_range, ops.Min(ops.ReduceMin(value, [*reduced_axes]), 0.0))
        inverse_scale = ops.Div(255.0, value_range)
    return ops.Div(ops.Round(ops.Mul(value, inverse_scale)), inverse_scale)


def round_images(ctx: Context, image: Value, slot: int, *, symmetric: bool = False) -> Value:
    """Return channels-first images, rounded with one scale per image."""
    return round_activations(ctx, image, range(1, len(ctx.shape(slot))), ctx.op[slot].dims[0], symmetric=symmetric)


def has_one_scale(op: Operator) -> bool:
    """True if the weights have a per-tensor scale."""
    quantization = op[1].quantization
    return isinstance(quantization, Quantization) and not quantization.per_axis


def row_count(op: Operator, depth: int) -> int | None:
    """Return the number of rows of ``depth`` elements in the input, None if dynamic."""
    return prod(size or 0 for size in op[0].dims) // depth if None not in op[0].dims and depth else None


# --- convolutions -----------------------------------------------------------------------------


def rounding_fusion(
    base: Handler, patterns: Sequence[Call], *inputs: Operand, axes: Callable[[Instance], str] | None = None
) -> Callable[[Lowering], Fusion]:
    """Return a decorator that declares the fusion of an operator with rounding.

    ``base``: the operator's own handler. The fusion copies its declarations.
    """
    return fusion(
        f"{base.code}_ROUNDED",
        pattern=patterns,
        inputs=inputs,
        check=match_cheap_rounding,
        trait="rounds_activations",
        layout=base.layout,
        axes=axes or base.axes,
        reshapes=base.reshapes,
        quantization=base.quantization,
        activation=base.activation,
    )


def lower_base(base: Handler, ctx: Context, *inputs: Value | None) -> Value:
    """Emit the operator by its own handler, ``base``."""
    value: Value = base.lower(ctx, *inputs)
    return value


def bias_patterns(*codes: str) -> list[Call]:
    """Return the patterns of operators, with and without a bias."""
    return [Call(code, x, w, *bias) for code in codes for bias in ((b,), ())]


@rounding_fusion(conv_2d, bias_patterns("CONV_2D", "CONV_2D_PADDED"), x, w, b, axes=axes_of(conv_2d))
def conv_2d_rounded(ctx: Context, image: Value, weight: Value, bias: Value | None = None) -> Value:
    """Emit Conv with rounding per image, or per pixel.

    XNNPACK computes convolutions with 1 x 1 kernels and int8 weights as matrix products, with a scale per pixel.
    """
    _, *kernel, depth = ctx.op[1].shape
    is_product = (
        set(kernel) == {1} and ctx.op[0].dims[-1] == depth and strides_and_dilations(ctx.options, "hw")[0] == [1, 1]
    )
    if is_product and not ctx.options.get("pads") and ctx.op[1].dtype == "int8":
        image = round_activations(ctx, image, [1], row_count(ctx.op, depth))
    else:
        symmetric = ctx.op[1].dtype != "int8" and has_one_scale(ctx.op)
        image = round_images(ctx, image, 0, symmetric=symmetric)
    return lower_base(conv_2d, ctx, image, weight, bias)


@rounding_fusion(
    depthwise_conv_2d,
    bias_patterns("DEPTHWISE_CONV_2D", "DEPTHWISE_CONV_2D_PADDED"),
    x,
    w,
    b,
    axes=axes_of(depthwise_conv_2d),
)
def depthwise_conv_2d_rounded(ctx: Context, image: Value, weight: Value, bias: Value | None = None) -> Value:
    """Emit Conv with rounding per image (EvalHybridPerChannel, depthwise_conv.cc)."""
    return lower_base(depthwise_conv_2d, ctx, round_images(ctx, image, 0), weight, bias)


@rounding_fusion(
    transpose_conv, [Call("TRANSPOSE_CONV", shape, w, x, b), Call("TRANSPOSE_CONV", shape, w, x)], shape, w, x, b
)
def transpose_conv_rounded(ctx: Context, size: Value, weight: Value, image: Value, bias: Value | None = None) -> Value:
    """Emit ConvTranspose with rounding per image."""
    return lower_base(transpose_conv, ctx, size, weight, round_images(ctx, image, 2), bias)


# --- products ---------------------------------------------------------------------------------


@rounding_fusion(fully_connected, bias_patterns("FULLY_CONNECTED"), x, w, b)
def fully_connected_rounded(ctx: Context, row: Value, weight: Value, bias: Value | None = None) -> Value:
    """Emit Gemm with rounding per row.

    XNNPACK, which quantizes rows asymmetrically, does not run layers with uint8 weights, int2 weights of one scale, or
    activations other than clamps. LiteRT's builtin kernel then follows the option ``asymmetric_quantize_inputs``.
    """
    depth = ctx.op[1].shape[-1]
    if has_dynamic_leading_axes(ctx):
        row = ctx.ops.Reshape(row, [-1, depth])
    has_clamp = activation_bounds(ctx.options.fused_activation_function) is not None
    is_run_by_xnnpack = has_clamp and (ctx.op[1].dtype in ("int8", "int4") or not has_one_scale(ctx.op))
    symmetric = not (is_run_by_xnnpack or ctx.options.asymmetric_quantize_inputs)
    row = round_activations(ctx, row, [1], row_count(ctx.op, depth), symmetric=symmetric)
    bias = flatten_bias(ctx, bias)
    if ctx.op[1].blocks is not None:
        y = ctx.ops.Gemm(row, dequantize_blocks(ctx, 1), bias)
    else:
        y = ctx.ops.Gemm(row, reinterpret_uint8_weights(ctx, 1, weight, by_row=True), bias, transB=1)
    return restore_leading_axes(ctx, ctx.quantized_values(0), y) if has_dynamic_leading_axes(ctx) else y


def dequantize_blocks(ctx: Context, slot: int) -> Array:
    """Return blockwise-quantized weights [o, k] as float32 [k, o].

    The weights are dequantized during the conversion. With a DequantizeLinear, runtimes would use a product that rounds
    activations per block.
    """
    blocks = ctx.op[slot].blocks
    assert blocks is not None
    scales = np.repeat(blocks.flat().reshape(ctx.op[slot].shape[0], -1), blocks.block_size, axis=1)
    weights: Array = ctx.require_constant(slot).astype(np.float32) * scales.T
    return weights


@rounding_fusion(batch_matmul, [Call("BATCH_MATMUL", x, w)], x, w)
def batch_matmul_rounded(ctx: Context, matrix: Value, weight: Value) -> Value:
    """Emit MatMul with rounding per row."""
    return lower_base(batch_matmul, ctx, round_activations(ctx, matrix, [len(ctx.shape(0)) - 1], None), weight)
