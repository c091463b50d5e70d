"""Convolutions whose padding or dilation is spelled out around them: one Conv with pads and dilations of its own.

A pad in front, and pixels taken apart into batches, add zeros where Conv adds them: on integers, the zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from onnx_tflite_plugin.api import (
    Call,
    Context,
    Decline,
    Handler,
    Implicit,
    Match,
    Operator,
    Refused,
    Value,
    conv_pads,
    fusion,
    operands,
    out,
)
from onnx_tflite_plugin.source.model import Dims
from op_handlers.convolution import BIASED, conv_2d, depthwise_conv_2d, steps

x, w, b, shape, other = operands("x w b shape other")
block, rows, crops, number = operands("block rows crops number", constant=True)
FUSED = "fused_activation_function"


class Axis(NamedTuple):
    """What happens around a convolution along one axis: zeros before and after, every n-th pixel, a cut at both ends."""

    added: Sequence[int] = (0, 0)
    cut: Sequence[int] = (0, 0)
    block: int = 1


# --- patterns ---------------------------------------------------------------------------------


def convolved(code: str, before: Sequence[Call]) -> list[Call]:
    """A convolution with a bias or without, behind an image; or behind a sequence reshaped to one row or column."""
    images = [*before, *(Call(name, sequence, shape) for sequence in before for name in ("RESHAPE", "EXPAND_DIMS"))]
    return [Call(code, image, w, *bias) for image in images for bias in ((b,), ())]


def padded(code: str) -> list[Call]:
    return convolved(code, [Call("PAD", x, rows), Call("PADV2", x, rows, number)])


def dilated(code: str) -> list[Call]:
    """The result may be a sequence again."""
    images = convolved(code, [Call("SPACE_TO_BATCH_ND", x, block, rows)])
    sequences = [Call("RESHAPE", image, other) for image in images] + [Call("SQUEEZE", image) for image in images]
    return [Call("BATCH_TO_SPACE_ND", made, block, crops) for made in (*images, *sequences)]


# --- whether ----------------------------------------------------------------------------------


def by_padding(match: Match) -> Mapping[str, Any] | Decline:
    """The pads of both; only zeros, and only around height and width."""
    (_, conv), *_, (_, pad) = match.calls.items()
    quantization, table = pad[out(0)].quantization, match[rows].array
    zero = getattr(quantization, "zero_point", (0,))[0]
    if quantization != pad[0].quantization:
        return Decline("its padding changes scale or zero point")
    if number in match.tensors and match[number].array.reshape(-1)[0] != zero:
        return Decline("it pads with another number than zero")
    if table[0].any() or table[-1].any():
        return Decline("it pads batches or channels")
    return with_pads(conv, unit_axis(pad[out(0)].dims, conv[0].dims), [Axis(row) for row in table[1:-1].tolist()])


def by_batches(match: Match) -> Mapping[str, Any] | Decline:
    """Each batch is a convolution of every n-th pixel; together they are one, dilated by n."""
    (_, back), *inside, (_, apart) = match.calls.items()
    conv = next(op for call, op in inside if w in call.operands)
    unit = unit_axis(apart[out(0)].dims, conv[0].dims)
    if conv.options.stride_h != 1 or conv.options.stride_w != 1:
        return Decline("its convolution has a stride")
    if unit_axis(back[0].dims, conv[out(0)].dims) != unit:
        return Decline("it is a sequence on one side only")
    held = (match[operand].array.tolist() for operand in (rows, crops, block))
    return with_pads(conv, unit, [Axis(*values) for values in zip(*held, strict=True)])


def unit_axis(sequence: Dims, image: Dims) -> int:
    """The axis of size 1 that makes an image of a sequence; 0 where it is one already, -1 for anything else."""
    if sequence == image:
        return 0
    return next((axis for axis in (1, 2) if image == (*sequence[:axis], 1, *sequence[axis:])), -1)


def with_pads(conv: Operator, unit: int, axes: Sequence[Axis]) -> Mapping[str, Any] | Decline:
    """The convolution's options with explicit pads: its own in steps of a block, what is added, less what is cut."""
    if unit < 0:
        return Decline("a reshape in between does more than make a row of it")
    if unit:
        axes = [*axes[: unit - 1], Axis(), *axes[unit - 1 :]]
    kernel = conv[1].shape[1:3]
    strides, dilations = steps(conv.options, kernel)
    try:
        own = conv_pads(conv.options.padding, conv[0].dims[1:3], kernel, strides, dilations)
    except Refused as refusal:
        return Decline(str(refusal))
    pads = [
        own[2 * side + k] * axis.block + axis.added[side] - axis.cut[side]
        for side in (0, 1)
        for k, axis in enumerate(axes)
    ]
    if min(pads) < 0:
        return Decline("it cuts off more than it adds")
    wider = {f"dilation_{name}_factor": d * axis.block for name, d, axis in zip("hw", dilations, axes, strict=True)}
    return {**conv.options, **wider, "pads": tuple(pads), "unit": unit}


# --- how --------------------------------------------------------------------------------------


def dropped(op: Operator, slot: int, letters: str) -> str:
    """The letters of a slot; a sequence has none for the axis that makes an image of it."""
    unit = "" if op[slot].rank == 4 else "hy" if op.options.unit == 1 else "wx"
    return " ".join(letter for letter in letters.split() if letter not in unit)


def axes_of(base: Handler) -> Callable[[Operator], str]:
    image, rest = str(base.axes).split(",", 1)
    weights, made = rest.split("->")
    return lambda op: f"{dropped(op, 0, image)}, {weights} -> {dropped(op, out(0), made)}"


def layout_of(base: Handler) -> Callable[[Operator], Implicit]:
    assert isinstance(base.layout, Implicit)
    weights = base.layout.onnx[1]
    return lambda op: Implicit(onnx={0: dropped(op, 0, "n c h w"), 1: weights, out(0): dropped(op, out(0), "n o y x")})


def lowered(ctx: Context, base: Handler, x: Value, *weights: Value) -> Value:
    """The convolution on an image; a sequence is made one, on the integers where there are any, and back."""
    at = [ctx.options.unit + 1]
    image = x if ctx.op[0].rank == 4 else ctx.dequantize(ctx.ops.Unsqueeze(ctx.raw(0), at), like=0)
    y = base(ctx, image, *weights)
    return y if ctx.op[out(0)].rank == 4 else ctx.ops.Squeeze(ctx.quantize(y, like=out(0)), at)


@fusion(
    "CONV_2D_PADDED",
    pattern=padded("CONV_2D"),
    inputs=(x, w, b),
    where=by_padding,
    layout=layout_of(conv_2d),
    axes=axes_of(conv_2d),
    quantization=BIASED,
    activation=FUSED,
)
def conv_2d_padded(ctx: Context, x: Any, *weights: Any) -> Any:
    """Conv that pads by itself."""
    return lowered(ctx, conv_2d, x, *weights)


@fusion(
    "DEPTHWISE_CONV_2D_PADDED",
    pattern=padded("DEPTHWISE_CONV_2D"),
    inputs=(x, w, b),
    where=by_padding,
    layout=layout_of(depthwise_conv_2d),
    axes=axes_of(depthwise_conv_2d),
    quantization=BIASED,
    activation=FUSED,
)
def depthwise_conv_2d_padded(ctx: Context, x: Any, *weights: Any) -> Any:
    """Conv by channel that pads by itself."""
    return lowered(ctx, depthwise_conv_2d, x, *weights)


@fusion(
    "CONV_2D_DILATED",
    pattern=dilated("CONV_2D"),
    inputs=(x, w, b),
    where=by_batches,
    layout=layout_of(conv_2d),
    axes=axes_of(conv_2d),
    quantization=BIASED,
    activation=FUSED,
)
def conv_2d_dilated(ctx: Context, x: Any, *weights: Any) -> Any:
    """Conv with dilations."""
    return lowered(ctx, conv_2d, x, *weights)


@fusion(
    "DEPTHWISE_CONV_2D_DILATED",
    pattern=dilated("DEPTHWISE_CONV_2D"),
    inputs=(x, w, b),
    where=by_batches,
    layout=layout_of(depthwise_conv_2d),
    axes=axes_of(depthwise_conv_2d),
    quantization=BIASED,
    activation=FUSED,
)
def depthwise_conv_2d_dilated(ctx: Context, x: Any, *weights: Any) -> Any:
    """Conv by channel with dilations."""
    return lowered(ctx, depthwise_conv_2d, x, *weights)
