"""Convolutions.

The file stores images channels last, and weights as OHWI or DHWIO. ONNX requires channels first and OIHW weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Dequantized,
    Dims,
    Implicit,
    Instance,
    Operator,
    Options,
    Padding,
    Quantization,
    Refusal,
    Value,
    ValueLike,
    conv_transpose_pads,
    handler,
    out,
    padding_attributes,
)
from op_handlers.kernels.operands import (
    cast_to_int64,
    check_packed_weights,
    check_weight_zero_points,
    drop_weight_zero_point,
    reinterpret_uint8_weights,
)
from op_handlers.kernels.wide_accumulators import scale_weights
from op_handlers.kernels.windows import conv_3d_shape, conv_shape, depthwise_conv_shape

BIASED = Dequantized(bias={2: (0, 1)})
SQUEEZABLE = ("h j y", "w k x")  # removed if image and kernel have size 1 along the axis; leaves a 1-D convolution
PACKED_WEIGHT_DTYPES = dict.fromkeys(("float32", "int8", "int16"), ("int4",))
DTYPES = (
    "float32, float32 int8 uint8 int4 int2, float32",
    "uint8, uint8 int4, int32",
    "int8, int8 int4 int2, int32",
    "int16, int8 int4 int2, int32 int64",
)
"""Dtypes of the image, its filters and their bias."""


def check_bias_dtype(op: Operator, slot: int) -> Decline | None:
    """Return a Decline for an int32 bias without the option ``quantized_bias_type``.

    Int16 kernels require the option (EvalQuantizedPerChannel16x8, conv.cc).
    """
    bias = op.tensor(slot)
    if bias is None or (bias.dtype, op[out(0)].dtype) != ("int32", "int16"):
        return None
    if op.options.quantized_bias_type == "INT32":
        return None
    return Decline(
        "the bias is int32, but option quantized_bias_type is not INT32; LiteRT would read it as int64, beyond its end"
    )


@handler(
    "CONV_2D",
    max_version=8,
    layout=Implicit(onnx={0: "n c h w", 1: "o i j k", out(0): "n o y x"}, squeezable=SQUEEZABLE),
    axes="n h w c, o j k i, o -> n y x o",
    quantization=BIASED,
    activation="fused_activation_function",
    types=DTYPES,
    accepts=lambda at: (
        check_packed_weights(at.op, PACKED_WEIGHT_DTYPES)
        or check_bias_dtype(at.op, 2)
        or check_weight_zero_points(at.op)
    ),
    result_shape=conv_shape,
)
def conv_2d(ctx: Context, x: Value, w: Value, b: Value | None = None) -> Value:
    """Emit Conv, with groups if filters have fewer channels than the input (conv.cc)."""
    channels, depth = ctx.op[0].dims[-1], ctx.op[1].shape[-1]
    if (channels or depth) % depth:
        raise Refusal(f"the filters have {depth} channels, but the image has {channels}")
    return emit_conv(ctx, x, reinterpret_uint8_weights(ctx, 1, w), b, group=(channels or depth) // depth)


def reads_beyond_scales(op: Operator) -> bool:
    """True if the kernel reads more per-channel scales than the file has.

    Source: EvalHybridPerChannel.
    """
    x, w = op[0], op[1]
    if (x.dtype, w.dtype) != ("float32", "int8") or not isinstance(w.quantization, Quantization):
        return False
    return len(w.quantization.scale) not in (0, w.shape[-1])


@handler(
    "DEPTHWISE_CONV_2D",
    max_version=7,
    layout=Implicit(onnx={0: "n c h w", 1: "o u j k", out(0): "n o y x"}, squeezable=SQUEEZABLE),
    axes="n h w c, u j k o, o -> n y x o",
    quantization=BIASED,
    activation="fused_activation_function",
    types=DTYPES,
    accepts=lambda at: check_packed_weights(at.op, {"int8": ("int4",)}) or check_weight_zero_points(at.op),
    result_shape=depthwise_conv_shape,
)
def depthwise_conv_2d(ctx: Context, x: Value, w: Value, b: Value | None = None) -> Value:
    """Emit Conv with a group per input channel.

    The kernel derives the multiplier from the channel counts and ignores the option (depthwise_conv.cc).
    """
    outputs, channels = ctx.op[1].shape[-1], ctx.op[0].dims[-1]
    if not channels:  # dynamic: derived from the multiplier, as the kernel requires
        multiplier = ctx.options.depth_multiplier
        channels = outputs // multiplier if multiplier and not outputs % multiplier else ctx.op[0].shape[-1]
    if outputs % (channels or 1):
        raise Refusal(f"the number of output channels, {outputs}, is not a multiple of the {channels} input channels")
    if reads_beyond_scales(ctx.op):
        ctx.warn(
            "the weights have one scale, but LiteRT's kernel reads a scale per channel, so its results differ; quantize per channel"
        )
    return emit_conv(ctx, x, drop_weight_zero_point(ctx, w, image_slot=0), b, group=channels)


@handler(
    "CONV_3D",
    max_version=1,
    layout=Implicit(onnx={0: "n c d h w", 1: "o c i j k"}),
    axes="n d h w c, i j k c o, o -> n z y x o",
    activation="fused_activation_function",
    result_shape=conv_3d_shape,
)
def conv_3d(ctx: Context, x: Value, w: Value, b: Value | None = None) -> Value:
    """Emit Conv over depth, height and width.

    The kernel does not support groups (conv3d.cc).
    """
    return emit_conv(ctx, x, w, b, group=1)


def emit_conv(ctx: Context, x: Value, w: ValueLike, b: ValueLike | None, group: int | None) -> Value:
    """Emit Conv along the planned axes.

    The padding is SAME, VALID, or the explicit pads of a fusion.
    """
    letters, kernel = spatial_axes(ctx)
    strides, dilations = strides_and_dilations(ctx.options, letters)
    explicit_pads = ctx.options.get("pads")
    if explicit_pads:
        pads: Padding = {"pads": [explicit_pads[letter][side] for side in (0, 1) for letter in letters]}
    else:
        pads = padding_attributes(ctx.options.padding, ctx.shape(0)[2:], kernel, strides, dilations)
    w, b = scale_weights(ctx, w, b, trailing_axes=len(kernel) + 1)
    return ctx.ops.Conv(x, w, b, kernel_shape=kernel, strides=strides, dilations=dilations, **pads, group=group)


def spatial_axes(ctx: Context) -> tuple[str, list[int]]:
    """Return the letters of the spatial axes, and the kernel's sizes along them.

    The letters are those of the options: h and w, and d in 3-D.
    """
    axes = ctx.perm(1)[2:]
    return "".join("dhw"[axis] for axis in axes), [ctx.op[1].shape[axis] for axis in axes]


def strides_and_dilations(options: Options, letters: str) -> tuple[list[int], list[int]]:
    """Return the stride and the dilation along each axis; dilations are 1 by default."""
    strides = [options[f"stride_{letter}"] for letter in letters]
    return strides, [options.get(f"dilation_{letter}_factor", 1) for letter in letters]


def requested_shape(at: Instance) -> Dims:
    """Return the shape in operand 0.

    Raises Refusal if it is a runtime value or its batch size differs from the input.
    """
    op = at.op
    sizes = op.constant(0)
    if sizes is None:
        raise Refusal("the output size is a runtime value; it must be constant")
    batch = op[2].dims[0]
    if batch is not None and sizes[0] not in (-1, batch):
        raise Refusal(f"the output size has a batch of {sizes[0]}, but the input has a batch of {batch}")
    return (batch, *(int(size) for size in sizes[1:]))


def has_vector_bias(at: Instance) -> bool:
    """True if the bias has rank 1 or is absent.

    A folded batch normalization may leave leading axes. The kernel checks only the number of elements
    (transpose_conv.cc).
    """
    bias = at.op.tensor(3)
    return bias is None or bias.rank == 1


def check_sizes(op: Operator) -> Decline | None:
    """Return a Decline for sizes that the kernel refuses in Prepare.

    XNNPACK would accept them (transpose_conv.cc).
    """
    bias, sizes = op.tensor(3), op.constant(0)
    if op[1].rank != 4 or op[2].rank != 4:
        return None  # reported by the check of axes
    channels, *window = op[1].shape[:3]
    if bias is not None and bias.is_static and prod(bias.shape) != channels:
        return Decline(f"the bias has shape {list(bias.shape)}, expected one entry for each of {channels} channels")
    if sizes is None or len(sizes) != 4:
        return None
    for k, name in ((0, "stride_h"), (1, "stride_w")):
        size, stride, input_size = int(sizes[1 + k]), op.options[name], op[2].dims[1 + k]
        covered_size = size if op.options.padding == "SAME" else size - window[k] + 1
        if input_size is not None and stride > 0 and -(-covered_size // stride) != input_size:
            return Decline(f"output size {size} cannot come from input size {input_size} with stride {stride}")
    return None


@handler(
    "TRANSPOSE_CONV",
    max_version=5,
    layout=Implicit(onnx={1: "i o j k", 2: "n i h w", out(0): "n o y x"}),
    axes=lambda at: f"_, o j k i, n h w i, {'o' if has_vector_bias(at) else '_'} -> n y x o",
    quantization=Dequantized(bias={3: (2, 1)}),
    activation="fused_activation_function",
    accepts=lambda at: (
        check_bias_dtype(at.op, 3) or check_sizes(at.op) or check_weight_zero_points(at.op, image_slot=2)
    ),
    result_shape=requested_shape,
    reshapes=lambda at: {} if has_vector_bias(at) else {3: (at.op[1].shape[0],)},
    dynamic_batch_values={0: -1},
)
def transpose_conv(ctx: Context, shape: Value, w: Value, x: Value, b: Value | None = None) -> Value:
    """Emit ConvTranspose."""
    return emit_conv_transpose(ctx, shape, x, drop_weight_zero_point(ctx, w, image_slot=2), b)


@handler(
    "CONV_3D_TRANSPOSE",
    max_version=1,
    layout=Implicit(onnx={1: "c o i j k", 2: "n c d h w", out(0): "n o z y x"}),
    axes="_, i j k o c, n d h w c, o -> n z y x o",
    activation="fused_activation_function",
    result_shape=requested_shape,
    dynamic_batch_values={0: -1},
)
def conv_3d_transpose(ctx: Context, shape: Value, w: Value, x: Value, b: Value | None = None) -> Value:
    """Emit ConvTranspose over depth, height and width."""
    return emit_conv_transpose(ctx, shape, x, w, b)


def emit_conv_transpose(ctx: Context, shape: Value, x: Value, w: ValueLike, b: ValueLike | None) -> Value:
    """Emit ConvTranspose, padded like the forward convolution of its output.

    Source: transpose_conv.cc.
    """
    letters, kernel = spatial_axes(ctx)
    strides, dilations = strides_and_dilations(ctx.options, letters)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads, output_padding = [0] * (2 * len(kernel)), [s - 1 for s in strides]
    is_static = None not in (*ctx.shape(out(0))[2:], *ctx.shape(2)[2:])
    if is_static:
        pads, output_padding = conv_transpose_pads(
            ctx.options.padding, ctx.shape(out(0))[2:], ctx.shape(2)[2:], extents, strides
        )
    w, b = scale_weights(ctx, w, b, trailing_axes=len(kernel))
    y = ctx.ops.ConvTranspose(
        x, w, b, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads, output_padding=output_padding
    )
    return y if is_static else crop_to_requested(ctx, shape, y, extents, strides)


def crop_to_requested(ctx: Context, shape: Value, y: Value, extents: Sequence[int], strides: Sequence[int]) -> Value:
    """Return the full transposed convolution, cropped to the size in operand 0.

    Leading SAME padding is removed first.
    """
    ops, axes = ctx.ops, ctx.perm(out(0))[2:]
    sizes = cast_to_int64(ctx, 0, shape)
    requested_sizes = sizes[[*axes]] if isinstance(sizes, np.ndarray) else ops.Gather(sizes, [*axes])
    starts: ValueLike = np.zeros(len(axes), np.int64)
    if ctx.options.padding == "SAME":
        step_count = ops.Div(ops.Sub(requested_sizes, np.ones(1, np.int64)), np.asarray(strides, np.int64))
        spanned_sizes = ops.Add(ops.Mul(step_count, np.asarray(strides, np.int64)), np.asarray(extents, np.int64))
        padding = ops.Max(ops.Sub(spanned_sizes, requested_sizes), np.zeros(1, np.int64))
        starts = ops.Div(padding, np.full(1, 2, np.int64))
    y = ops.Slice(y, starts, ops.Add(starts, requested_sizes), [k + 2 for k in range(len(axes))])
    return ops.Reshape(y, ops.Concat([0, 0], requested_sizes, axis=0))  # fails at runtime if the input is too small
