"""Convolutions with decomposed padding or dilation, fused into one Conv.

PAD and SPACE_TO_BATCH_ND must pad with zeros, as Conv does. In quantized values, a zero is the zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from onnx_tflite_plugin.api import (
    Call,
    Check,
    Decline,
    Dims,
    Fusion,
    Handler,
    Instance,
    Match,
    Operator,
    Refusal,
    conv_pads,
    fusion,
    operands,
    out,
)
from op_handlers.image.convolution import SQUEEZABLE, conv_2d, depthwise_conv_2d, strides_and_dilations

x, w, b, shape, sequence_shape = operands("x w b shape sequence_shape")
block, paddings, crops, pad_value = operands("block paddings crops pad_value", constant=True)


class Axis(NamedTuple):
    """Padding, crops and block size around a convolution, along one axis.

    ``padding`` and ``crops``: sizes at the beginning and the end. ``block``: block size of SPACE_TO_BATCH_ND.
    """

    padding: Sequence[int] = (0, 0)
    crops: Sequence[int] = (0, 0)
    block: int = 1


# --- patterns ---------------------------------------------------------------------------------


def conv_patterns(code: str, operands: Sequence[Call]) -> list[Call]:
    """Return patterns of convolutions, with or without bias, that read ``operands``.

    An operand may be an image, or a sequence that is reshaped to an image of one row or column.
    """
    images = [
        *operands,
        *(Call(name, sequence, shape, shared=True) for sequence in operands for name in ("RESHAPE", "EXPAND_DIMS")),
    ]
    return [Call(code, image, w, *bias) for image in images for bias in ((b,), ())]


def pad_patterns(code: str) -> list[Call]:
    """Return patterns of convolutions after PAD or PADV2."""
    return conv_patterns(
        code, [Call("PAD", x, paddings, shared=True), Call("PADV2", x, paddings, pad_value, shared=True)]
    )


def dilation_patterns(code: str) -> list[Call]:
    """Return patterns of convolutions between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND.

    The result of the convolution may be reshaped to a sequence.
    """
    images = conv_patterns(code, [Call("SPACE_TO_BATCH_ND", x, block, paddings, shared=True)])
    sequences = [Call("RESHAPE", image, sequence_shape) for image in images] + [
        Call("SQUEEZE", image) for image in images
    ]
    return [Call("BATCH_TO_SPACE_ND", result, block, crops) for result in (*images, *sequences)]


# --- conditions -------------------------------------------------------------------------------


def merge_padding(match: Match) -> Mapping[str, Any] | Decline:
    """Return the convolution's options with the amounts of PAD added to the pads.

    Declines unless height and width are padded with zeros.
    """
    (_, conv), *_, (_, pad) = match.calls.items()
    quantization, padding_table = pad[out(0)].quantization, match[paddings].array
    zero = getattr(quantization, "zero_point", (0,))[0]
    if changes_scale(match):
        return Decline("an operator around the convolution changes scale or zero point")
    if pad_value in match.tensors and match[pad_value].array.reshape(-1)[0] != zero:
        return Decline("the padding value is not zero")
    if padding_table[0].any() or padding_table[-1].any():
        return Decline("batches or channels are padded")
    return explicit_pads(
        conv, unit_axis(pad[out(0)].dims, conv[0].dims), [Axis(row) for row in padding_table[1:-1].tolist()]
    )


def merge_dilation(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of one dilated convolution, or a Decline.

    Each batch of the decomposed convolution has every n-th pixel, where n is the block size.
    """
    (_, batch_to_space), *between, (_, space_to_batch) = match.calls.items()
    conv = next(op for call, op in between if w in call.operands)
    unit = unit_axis(space_to_batch[out(0)].dims, conv[0].dims)
    if changes_scale(match):
        return Decline("an operator around the convolution changes scale or zero point")
    if conv.options.stride_h != 1 or conv.options.stride_w != 1:
        return Decline("the convolution has a stride")
    if unit_axis(batch_to_space[0].dims, conv[out(0)].dims) != unit:
        return Decline("only one of input and output is reshaped to a sequence")
    parameters = (match[operand].array.tolist() for operand in (paddings, crops, block))
    return explicit_pads(conv, unit, [Axis(*values) for values in zip(*parameters, strict=True)])


def changes_scale(match: Match) -> bool:
    """True if a data-movement operator changes the quantization parameters."""
    movements = (op for call, op in match.calls.items() if w not in call.operands)
    return any(op[0].quantization != op[out(0)].quantization for op in movements)


def unit_axis(sequence: Dims, image: Dims) -> int:
    """Return the axis of size 1 that a reshape inserts into a sequence.

    Return 0 if the shapes are equal, and -1 if the reshape does anything else.
    """
    if sequence == image:
        return 0
    return next((axis for axis in (1, 2) if image == (*sequence[:axis], 1, *sequence[axis:])), -1)


def explicit_pads(conv: Operator, unit: int, axes: Sequence[Axis]) -> Mapping[str, Any] | Decline:
    """Return the convolution's options with explicit pads, or a Decline.

    Each pad is the convolution's own pad times the block size, plus the padding, minus the crop. ``unit``: the axis of
    size 1 that a reshape inserts, 0 for none.
    """
    if unit < 0:
        return Decline("a reshape does more than insert an axis of size 1")
    if unit:
        axes = [*axes[: unit - 1], Axis(), *axes[unit - 1 :]]
    kernel = conv[1].shape[1:3]
    strides, dilations = strides_and_dilations(conv.options, "hw")
    try:
        conv_padding = conv_pads(conv.options.padding, conv[0].dims[1:3], kernel, strides, dilations)
    except Refusal as refusal:
        return Decline(str(refusal))
    pads = {
        name: [conv_padding[2 * side + k] * axis.block + axis.padding[side] - axis.crops[side] for side in (0, 1)]
        for k, (name, axis) in enumerate(zip("hw", axes, strict=True))
    }
    if min(min(sides) for sides in pads.values()) < 0:
        return Decline("crops exceed the padding")
    if any(
        pads[name][0] and window == size == 1
        for name, window, size in zip("hw", kernel, conv[out(0)].dims[1:3], strict=True)
    ):
        return Decline("the convolution reads only padding along an axis")
    dilation_options = {
        f"dilation_{name}_factor": dilation * axis.block
        for name, dilation, axis in zip("hw", dilations, axes, strict=True)
    }
    return {**conv.options, **dilation_options, "pads": pads, "unit": unit}


# --- declarations -----------------------------------------------------------------------------


def axes_of(base: Handler) -> Callable[[Instance], str]:
    """Return a function that returns the convolution's axes.

    The axes of a sequence exclude the axis of size 1 that the reshape inserts.
    """

    def axes(instance: Instance) -> str:
        squeezed = SQUEEZABLE[instance.op.options.get("unit", 0) - 1].split()
        inputs, output = str(base.axes).split(" -> ")
        x, *weights = inputs.split(", ")
        x, output = (
            letters if instance.op[slot].rank == 4 else " ".join(a for a in letters.split() if a not in squeezed)
            for slot, letters in ((0, x), (out(0), output))
        )
        return f"{', '.join([x, *weights])} -> {output}"

    return axes


def conv_fusion(base: Handler, suffix: str, pattern: Sequence[Call], check: Check) -> Fusion:
    """Return the fusion of a convolution with operators around it.

    The fusion has the declarations and the lowering of the handler ``base``.
    """
    return fusion(
        f"{base.code}_{suffix}",
        pattern=pattern,
        inputs=(x, w, b),
        check=check,
        layout=base.layout,
        axes=axes_of(base),
        quantization=base.quantization,
        activation=base.activation,
    )(base.lower)


conv_2d_padded = conv_fusion(conv_2d, "PADDED", pad_patterns("CONV_2D"), merge_padding)
depthwise_conv_2d_padded = conv_fusion(depthwise_conv_2d, "PADDED", pad_patterns("DEPTHWISE_CONV_2D"), merge_padding)
conv_2d_dilated = conv_fusion(conv_2d, "DILATED", dilation_patterns("CONV_2D"), merge_dilation)
depthwise_conv_2d_dilated = conv_fusion(
    depthwise_conv_2d, "DILATED", dilation_patterns("DEPTHWISE_CONV_2D"), merge_dilation
)
