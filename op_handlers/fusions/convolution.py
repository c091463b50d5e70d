"""Convolutions whose padding or dilation is spelled out around them: one Conv with pads and dilations of its own.

A pad in front, and pixels taken apart into batches, add zeros where Conv adds them: on integers, the zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from onnx_tflite_plugin.api import (
    Call,
    Decline,
    Dims,
    Fusion,
    Handler,
    Instance,
    Match,
    Operator,
    Refused,
    Where,
    conv_pads,
    fusion,
    operands,
    out,
)
from op_handlers.image.convolution import SQUEEZABLE, conv_2d, depthwise_conv_2d, steps

x, w, b, shape, other = operands("x w b shape other")
block, rows, crops, number = operands("block rows crops number", constant=True)


class Axis(NamedTuple):
    """What happens around a convolution along one axis: zeros before and after, every n-th pixel, a cut at both ends."""

    added: Sequence[int] = (0, 0)
    cut: Sequence[int] = (0, 0)
    block: int = 1


# --- patterns ---------------------------------------------------------------------------------


def convolved(code: str, before: Sequence[Call]) -> list[Call]:
    """A convolution with a bias or without, behind an image; or behind a sequence reshaped to one row or column."""
    images = [
        *before,
        *(Call(name, sequence, shape, shared=True) for sequence in before for name in ("RESHAPE", "EXPAND_DIMS")),
    ]
    return [Call(code, image, w, *bias) for image in images for bias in ((b,), ())]


def padded(code: str) -> list[Call]:
    return convolved(code, [Call("PAD", x, rows, shared=True), Call("PADV2", x, rows, number, shared=True)])


def dilated(code: str) -> list[Call]:
    """The result may be a sequence again."""
    images = convolved(code, [Call("SPACE_TO_BATCH_ND", x, block, rows, shared=True)])
    sequences = [Call("RESHAPE", image, other) for image in images] + [Call("SQUEEZE", image) for image in images]
    return [Call("BATCH_TO_SPACE_ND", result, block, crops) for result in (*images, *sequences)]


# --- whether ----------------------------------------------------------------------------------


def by_padding(match: Match) -> Mapping[str, Any] | Decline:
    """The pads of both; only zeros, and only around height and width."""
    (_, conv), *_, (_, pad) = match.calls.items()
    quantization, table = pad[out(0)].quantization, match[rows].array
    zero = getattr(quantization, "zero_point", (0,))[0]
    if rescaled(match):
        return Decline("what is around it changes scale or zero point")
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
    if rescaled(match):
        return Decline("what is around it changes scale or zero point")
    if conv.options.stride_h != 1 or conv.options.stride_w != 1:
        return Decline("its convolution has a stride")
    if unit_axis(back[0].dims, conv[out(0)].dims) != unit:
        return Decline("it is a sequence on one side only")
    numbers = (match[operand].array.tolist() for operand in (rows, crops, block))
    return with_pads(conv, unit, [Axis(*values) for values in zip(*numbers, strict=True)])


def rescaled(match: Match) -> bool:
    """Whether any operator but the convolution, which all only move what is stored, has another scale behind than before."""
    moves = (op for call, op in match.calls.items() if w not in call.operands)
    return any(op[0].quantization != op[out(0)].quantization for op in moves)


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
    strides, dilations = steps(conv.options, "hw")
    try:
        own = conv_pads(conv.options.padding, conv[0].dims[1:3], kernel, strides, dilations)
    except Refused as refusal:
        return Decline(str(refusal))
    pads = {
        name: [own[2 * side + k] * axis.block + axis.added[side] - axis.cut[side] for side in (0, 1)]
        for k, (name, axis) in enumerate(zip("hw", axes, strict=True))
    }
    if min(min(both) for both in pads.values()) < 0:
        return Decline("it cuts off more than it adds")
    if any(pads[a][0] and k == n == 1 for a, k, n in zip("hw", kernel, conv[out(0)].dims[1:3], strict=True)):
        return Decline("all that it reads along an axis is padding")
    wider = {f"dilation_{name}_factor": d * axis.block for name, d, axis in zip("hw", dilations, axes, strict=True)}
    return {**conv.options, **wider, "pads": pads, "unit": unit}


# --- how --------------------------------------------------------------------------------------


def axes_of(base: Handler) -> Callable[[Instance], str]:
    """The convolution's axes; a sequence has none of those that make an image of it."""

    def axes(at: Instance) -> str:
        squeezed = SQUEEZABLE[at.op.options.get("unit", 0) - 1].split()
        inputs, output = str(base.axes).split(" -> ")
        x, *weights = inputs.split(", ")
        x, output = (
            letters if at.op[slot].rank == 4 else " ".join(a for a in letters.split() if a not in squeezed)
            for slot, letters in ((0, x), (out(0), output))
        )
        return f"{', '.join([x, *weights])} -> {output}"

    return axes


def around(base: Handler, how: str, pattern: Sequence[Call], where: Where) -> Fusion:
    """A convolution with what is spelled out around it: declared and lowered as the convolution is."""
    return fusion(
        f"{base.code}_{how}",
        pattern=pattern,
        inputs=(x, w, b),
        where=where,
        layout=base.layout,
        axes=axes_of(base),
        quantization=base.quantization,
        activation=base.activation,
    )(base.lower)


conv_2d_padded = around(conv_2d, "PADDED", padded("CONV_2D"), by_padding)
depthwise_conv_2d_padded = around(depthwise_conv_2d, "PADDED", padded("DEPTHWISE_CONV_2D"), by_padding)
conv_2d_dilated = around(conv_2d, "DILATED", dilated("CONV_2D"), by_batches)
depthwise_conv_2d_dilated = around(depthwise_conv_2d, "DILATED", dilated("DEPTHWISE_CONV_2D"), by_batches)
