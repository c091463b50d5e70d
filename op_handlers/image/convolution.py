"""Convolutions: TFLite's channels-last data and OHWI or DHWIO weights; ONNX wants channels first and OIHW."""

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
    Refused,
    Value,
    ValueLike,
    handler,
    out,
    padding_attributes,
    transposed_pads,
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
SQUEEZABLE = ("h j y", "w k x")  # an image of one row, a kernel of one row: the rest is one-dimensional
NARROW = dict.fromkeys(("float32", "int8", "int16"), ("int4",))
KINDS = (
    "float32, float32 int8 uint8 int4 int2, float32",
    "uint8, uint8 int4, int32",
    "int8, int8 int4 int2, int32",
    "int16, int8 int4 int2, int32 int64",
)
"""The image, its filters, their bias."""


def bias_of_32_bits(op: Operator, slot: int) -> Decline | None:
    """The option says which bias the kernels of int16 read, not the tensor (EvalQuantizedPerChannel16x8, conv.cc)."""
    bias = op.tensor(slot)
    if bias is None or (bias.dtype, op[out(0)].dtype) != ("int32", "int16"):
        return None
    if op.options.quantized_bias_type == "INT32":
        return None
    return Decline("its bias is int32 without a quantized_bias_type, which LiteRT reads as int64, past its end")


@handler(
    "CONV_2D",
    max_version=8,
    layout=Implicit(onnx={0: "n c h w", 1: "o i j k", out(0): "n o y x"}, squeezable=SQUEEZABLE),
    axes="n h w c, o j k i, o -> n y x o",
    quantization=BIASED,
    activation="fused_activation_function",
    types=KINDS,
    accepts=lambda at: (
        check_packed_weights(at.op, NARROW) or bias_of_32_bits(at.op, 2) or check_weight_zero_points(at.op)
    ),
    sizes=conv_shape,
)
def conv_2d(ctx: Context, x: Value, w: Value, b: Value | None = None) -> Value:
    """Conv; groups are implied where the filter has fewer channels than the input (kernels/conv.cc)."""
    channels, depth = ctx.op[0].dims[-1], ctx.op[1].shape[-1]
    if (channels or depth) % depth:
        raise Refused(f"its filters have {depth} channels, the image {channels}")
    return convolution(ctx, x, reinterpret_uint8_weights(ctx, 1, w), b, group=(channels or depth) // depth)


def reads_past_its_scale(op: Operator) -> bool:
    """Under float32 the kernel takes a scale for each channel, however many there are (EvalHybridPerChannel)."""
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
    types=KINDS,
    accepts=lambda at: check_packed_weights(at.op, {"int8": ("int4",)}) or check_weight_zero_points(at.op),
    sizes=depthwise_conv_shape,
)
def depthwise_conv_2d(ctx: Context, x: Value, w: Value, b: Value | None = None) -> Value:
    """Conv with a group per input channel; the multiplier is Cout / Cin whatever the options say (depthwise_conv.cc)."""
    outputs, channels = ctx.op[1].shape[-1], ctx.op[0].dims[-1]
    if not channels:  # of any other number than these it does not run
        multiplier = ctx.options.depth_multiplier
        channels = outputs // multiplier if multiplier and not outputs % multiplier else ctx.op[0].shape[-1]
    if outputs % (channels or 1):
        raise Refused(f"it makes {outputs} channels of {channels}")
    if reads_past_its_scale(ctx.op):
        ctx.warn("its one scale is meant for all channels; LiteRT's kernel reads on behind it, and gives other numbers")
    return convolution(ctx, x, drop_weight_zero_point(ctx, w, 0), b, group=channels)


@handler(
    "CONV_3D",
    max_version=1,
    layout=Implicit(onnx={0: "n c d h w", 1: "o c i j k"}),
    axes="n d h w c, i j k c o, o -> n z y x o",
    activation="fused_activation_function",
    sizes=conv_3d_shape,
)
def conv_3d(ctx: Context, x: Value, w: Value, b: Value | None = None) -> Value:
    """Conv over depth, height and width; the kernel knows no groups (conv3d.cc)."""
    return convolution(ctx, x, w, b, group=1)


def convolution(ctx: Context, x: Value, w: ValueLike, b: ValueLike | None, group: int | None) -> Value:
    """Conv along the axes that the plan leaves; pads are those of SAME or VALID, or of a fusion that knows better."""
    along, kernel = spatial(ctx)
    strides, dilations = steps(ctx.options, along)
    own_pads = ctx.options.get("pads")
    if own_pads:
        pads: Padding = {"pads": [own_pads[axis][side] for side in (0, 1) for axis in along]}
    else:
        pads = padding_attributes(ctx.options.padding, ctx.shape(0)[2:], kernel, strides, dilations)
    w, b = scale_weights(ctx, w, b, trailing_axes=len(kernel) + 1)
    return ctx.ops.Conv(x, w, b, kernel_shape=kernel, strides=strides, dilations=dilations, **pads, group=group)


def spatial(ctx: Context) -> tuple[str, list[int]]:
    """The weight's spatial axes in the options' spelling, and its sizes there; axis 0 is one in 3-D only."""
    axes = ctx.perm(1)[2:]
    return "".join("dhw"[axis] for axis in axes), [ctx.op[1].shape[axis] for axis in axes]


def steps(options: Options, along: str) -> tuple[list[int], list[int]]:
    """Strides and dilations along axes; a transposed convolution in 2-D has no dilation."""
    return [options[f"stride_{axis}"] for axis in along], [options.get(f"dilation_{axis}_factor", 1) for axis in along]


def asked_image(at: Instance) -> Dims:
    """The sizes that operand 0 holds; those of the file where it is known at run time only."""
    op = at.op
    sizes = op.constant(0)
    if sizes is None:
        raise Refused("the size of its result is known only at run time")
    batch = op[2].dims[0]
    if batch is not None and sizes[0] not in (-1, batch):
        raise Refused(f"it makes a batch of {sizes[0]}, and is given one of {batch}")
    return (batch, *(int(size) for size in sizes[1:]))


def biased_in_a_row(at: Instance) -> bool:
    """Whether the bias has one axis. Batch normalization may leave more; the kernel counts elements (transpose_conv.cc)."""
    bias = at.op.tensor(3)
    return bias is None or bias.rank == 1


def unfit(op: Operator) -> Decline | None:
    """What the kernel refuses as it prepares and XNNPACK computes all the same (transpose_conv.cc)."""
    bias, sizes = op.tensor(3), op.constant(0)
    if op[1].rank != 4 or op[2].rank != 4:
        return None  # which is told with the axes
    channels, *window = op[1].shape[:3]
    if bias is not None and bias.static and prod(bias.shape) != channels:
        return Decline(f"its bias is of shape {list(bias.shape)}, for {channels} channels")
    if sizes is None or len(sizes) != 4:
        return None
    for k, name in ((0, "stride_h"), (1, "stride_w")):
        size, stride, given = int(sizes[1 + k]), op.options[name], op[2].dims[1 + k]
        kept = size if op.options.padding == "SAME" else size - window[k] + 1
        if given is not None and stride > 0 and -(-kept // stride) != given:
            return Decline(f"its output size {size} cannot come from input size {given} by strides of {stride}")
    return None


@handler(
    "TRANSPOSE_CONV",
    max_version=5,
    layout=Implicit(onnx={1: "i o j k", 2: "n i h w", out(0): "n o y x"}),
    axes=lambda at: f"_, o j k i, n h w i, {'o' if biased_in_a_row(at) else '_'} -> n y x o",
    quantization=Dequantized(bias={3: (2, 1)}),
    activation="fused_activation_function",
    accepts=lambda at: bias_of_32_bits(at.op, 3) or unfit(at.op) or check_weight_zero_points(at.op, 2),
    sizes=asked_image,
    reshapes=lambda at: {} if biased_in_a_row(at) else {3: (at.op[1].shape[0],)},
    holds_batch={0: -1},
)
def transpose_conv(ctx: Context, shape: Value, w: Value, x: Value, b: Value | None = None) -> Value:
    """ConvTranspose."""
    return transposed(ctx, shape, x, drop_weight_zero_point(ctx, w, 2), b)


@handler(
    "CONV_3D_TRANSPOSE",
    max_version=1,
    layout=Implicit(onnx={1: "c o i j k", 2: "n c d h w", out(0): "n o z y x"}),
    axes="_, i j k o c, n d h w c, o -> n z y x o",
    activation="fused_activation_function",
    sizes=asked_image,
    holds_batch={0: -1},
)
def conv_3d_transpose(ctx: Context, shape: Value, w: Value, x: Value, b: Value | None = None) -> Value:
    """ConvTranspose over depth, height and width."""
    return transposed(ctx, shape, x, w, b)


def transposed(ctx: Context, shape: Value, x: Value, w: ValueLike, b: ValueLike | None) -> Value:
    """ConvTranspose, padded as the forward convolution of its output would be (transpose_conv.cc)."""
    along, kernel = spatial(ctx)
    strides, dilations = steps(ctx.options, along)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads, extra = [0] * (2 * len(kernel)), [s - 1 for s in strides]
    static = None not in (*ctx.shape(out(0))[2:], *ctx.shape(2)[2:])
    if static:
        pads, extra = transposed_pads(ctx.options.padding, ctx.shape(out(0))[2:], ctx.shape(2)[2:], reach, strides)
    w, b = scale_weights(ctx, w, b, trailing_axes=len(kernel))
    y = ctx.ops.ConvTranspose(
        x, w, b, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads, output_padding=extra
    )
    return y if static else asked_part(ctx, shape, y, reach, strides)


def asked_part(ctx: Context, shape: Value, y: Value, reach: Sequence[int], strides: Sequence[int]) -> Value:
    """Of all that a transposed convolution makes, as many elements as operand 0 asks for: without what SAME pads in front."""
    ops, axes = ctx.ops, ctx.perm(out(0))[2:]
    sizes = cast_to_int64(ctx, 0, shape)
    asked = sizes[[*axes]] if isinstance(sizes, np.ndarray) else ops.Gather(sizes, [*axes])
    first: ValueLike = np.zeros(len(axes), np.int64)
    if ctx.options.padding == "SAME":
        steps_taken = ops.Div(ops.Sub(asked, np.ones(1, np.int64)), np.asarray(strides, np.int64))
        spanned = ops.Add(ops.Mul(steps_taken, np.asarray(strides, np.int64)), np.asarray(reach, np.int64))
        first = ops.Div(ops.Max(ops.Sub(spanned, asked), np.zeros(1, np.int64)), np.full(1, 2, np.int64))
    y = ops.Slice(y, first, ops.Add(first, asked), [k + 2 for k in range(len(axes))])
    return ops.Reshape(y, ops.Concat([0, 0], asked, axis=0))  # which fails where so many cannot come from the input
