"""Random convolutions, pools and resizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Spec, constant
from tests.qa.random_models.draw import (
    ACTIVATION_DTYPES,
    FUSED,
    Draw,
    Operand,
    case_generator,
    index_operand,
    operator,
    scale,
    sizes,
    weight_operand,
)


def weights(draw: Draw, shape: tuple[int, ...], dtype: str, axis: int) -> Operand:
    """Return weights for activations of a dtype.

    They are float32, uint8, or int8 with per-tensor or per-channel scales.
    """
    if dtype == "float32":
        if draw.chance(0.15):  # int8 weights of float activations: dynamic range quantization
            return random_quantized_weights(draw, shape, "int8", axis)
        return weight_operand(constant(draw.random.normal(0, 0.4, shape).astype(np.float32)))
    if dtype == "uint8":
        point = int(draw.pick(0, 128, 255, 119))
        return weight_operand(constant(draw.random.integers(0, 256, shape).astype(np.uint8), None, 0.011, point))
    return random_quantized_weights(draw, shape, "int8", axis)


def random_quantized_weights(draw: Draw, shape: tuple[int, ...], dtype: str, axis: int) -> Operand:
    values = draw.random.integers(-127, 128, shape).astype(dtype)
    if draw.chance(0.3):
        return weight_operand(constant(values, None, 0.013))
    scales = (0.013 * draw.random.uniform(0.3, 1.6, shape[axis])).astype(np.float32).tolist()
    return weight_operand(constant(values, None, scales, [0] * len(scales), axis))


def bias(draw: Draw, w: Operand, x: Operand, channels: int) -> list[Operand | None]:
    """Return a bias in a list; sometimes [None] or an empty list for no bias."""
    if draw.chance(0.15):
        return draw.pick([None], []) if x.spec.dtype == "float32" else [None]
    if x.spec.dtype == "float32":
        return [weight_operand(constant(draw.random.normal(0, 1, channels).astype(np.float32)))]
    product = (np.asarray(w.spec.scale) * scale(x.spec)).tolist()
    dtype = "int64" if x.spec.dtype == "int16" and draw.chance(0.8) else "int32"
    return [weight_operand(constant(draw.random.integers(-500, 500, channels).astype(dtype), None, product))]


def bias_type(x: Operand, biases: Sequence[Operand | None]) -> dict[str, str]:
    """Return the option for the bias dtype, if the kernel needs it.

    Without it, int16 kernels read an int32 bias as int64.
    """
    first = biases[0] if biases else None
    return {"quantized_bias_type": first.spec.dtype.upper()} if x.spec.dtype == "int16" and first else {}


def result_spec(draw: Draw, x: Operand, w: Operand, terms: int) -> Spec:
    """Return a result spec whose scale fits sums of this many products."""
    if x.spec.scale is None:
        return Spec((), x.spec.dtype)
    y = draw.spec((), x.spec.dtype)
    sum_steps = 70 * terms**0.5 * float(draw.random.uniform(0.5, 2))
    return Spec((), y.dtype, scale(x.spec) * float(np.mean(np.asarray(w.spec.scale))) * sum_steps, y.zero_point)


def image(draw: Draw, dtype: str, rank: int = 2) -> Operand:
    shape = (draw.pick(1, 1, 2), *(draw.pick(1, 5, 7, 11, 3) for _ in range(rank)), draw.pick(1, 2, 3, 8))
    return replace(draw.data(draw.spec(shape, dtype), constant_probability=0), has_static_channels=True)


class Window:
    """Kernel, strides, dilations, padding and sizes over the spatial axes."""

    def __init__(self, draw: Draw, size: tuple[int, ...], dilates: bool) -> None:
        rank = len(size)
        self.kernel = [draw.pick(1, 2, 3, 5) for _ in range(rank)]
        self.stride = [draw.pick(1, 1, 2, 3) for _ in range(rank)]
        self.dilation = [draw.pick(1, 1, 2) if dilates and max(self.stride) == 1 else 1 for _ in range(rank)]
        dilated_kernel = [(n - 1) * d + 1 for n, d in zip(self.kernel, self.dilation, strict=True)]
        valid = all(n <= extent for n, extent in zip(dilated_kernel, size, strict=True)) and draw.chance(0.5)
        self.padding = "VALID" if valid else "SAME"
        self.result = [
            (extent - n) // s + 1 if valid else -(-extent // s)
            for extent, n, s in zip(size, dilated_kernel, self.stride, strict=True)
        ]

    def options(self, *axes: str) -> dict[str, Any]:
        strides = {f"stride_{axis}": by for axis, by in zip(axes, self.stride, strict=True)}
        return {"padding": self.padding, **strides}

    def dilations(self, *axes: str) -> dict[str, Any]:
        return {f"dilation_{axis}_factor": by for axis, by in zip(axes, self.dilation, strict=True)}


@case_generator("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def pool(draw: Draw, op: str) -> Case:
    x = image(draw, draw.dtype(op))
    batch, *size, depth = x.array.shape
    window = Window(draw, tuple(size), False)
    options = {**window.options("h", "w"), "fused_activation_function": draw.pick(*FUSED)}
    y = x.spec.with_shape(batch, *window.result, depth)
    return operator(draw, op, [x], y, filter_height=window.kernel[0], filter_width=window.kernel[1], **options)


@case_generator("CONV_2D", "DEPTHWISE_CONV_2D")
def convolve(draw: Draw, op: str) -> Case:
    x = image(draw, draw.pick(*ACTIVATION_DTYPES))
    batch, *size, depth = x.array.shape
    window = Window(draw, tuple(size), True)
    options = {**window.options("h", "w"), **window.dilations("h", "w"), "fused_activation_function": draw.pick(*FUSED)}
    conv_3d = op == "DEPTHWISE_CONV_2D"
    groups = draw.pick(*(g for g in (1, 2, 3) if depth % g == 0)) if not conv_3d and draw.chance(0.2) else 1
    channels = depth * draw.pick(1, 2) if conv_3d else groups * draw.pick(1, 4, 5)
    if conv_3d:
        options["depth_multiplier"] = channels // depth
        w = weights(draw, (1, *window.kernel, channels), x.spec.dtype, 3)
    else:
        w = weights(draw, (channels, *window.kernel, depth // groups), x.spec.dtype, 0)
    y = result_spec(draw, x, w, prod(window.kernel) * (1 if conv_3d else depth // groups)).with_shape(
        batch, *window.result, channels
    )
    biases = bias(draw, w, x, channels)
    return operator(draw, op, [x, w, *biases], y, **options, **(bias_type(x, biases) if not conv_3d else {}))


@case_generator("TRANSPOSE_CONV")
def transpose_conv(draw: Draw, op: str) -> Case:
    y = image(draw, draw.pick(*ACTIVATION_DTYPES))
    batch, *size, out = y.array.shape
    window = Window(draw, tuple(size), False)
    depth = draw.pick(1, 2, 3)
    x = draw.data(draw.spec((batch, *window.result, depth), y.spec.dtype), constant_probability=0)
    w = weights(draw, (out, *window.kernel, depth), x.spec.dtype, 0)
    result = result_spec(draw, x, w, prod(window.kernel) * depth).with_shape(batch, *size, out)
    requested = index_operand(y.array.shape, constant_probability=0.7)
    options = {**window.options("h", "w"), "fused_activation_function": draw.pick(*FUSED)}
    biases = [] if draw.chance(0.4) else [operand for operand in bias(draw, w, x, out) if operand]
    return operator(
        draw, op, [requested, w, x, *biases], result, sizes_unchecked=True, **options, **bias_type(x, biases)
    )


@case_generator("CONV_3D", "CONV_3D_TRANSPOSE")
def conv_3d(draw: Draw, op: str) -> Case:
    volume = image(draw, "float32", 3)
    batch, *size, channels = volume.array.shape
    window = Window(draw, tuple(size), True)
    other_channels = draw.pick(1, 2, 3)
    options = {**window.options("d", "h", "w"), **window.dilations("d", "h", "w")}
    options["fused_activation_function"] = draw.pick(*FUSED)
    if op == "CONV_3D":
        w = weight_operand(
            constant(draw.random.normal(0, 0.4, (*window.kernel, channels, other_channels)).astype(np.float32))
        )
        y = Spec((batch, *window.result, other_channels))
        return operator(draw, op, [volume, w, *bias(draw, w, volume, other_channels)], y, **options)
    x = draw.data(Spec((batch, *window.result, other_channels)), constant_probability=0)
    w = weight_operand(
        constant(draw.random.normal(0, 0.4, (*window.kernel, channels, other_channels)).astype(np.float32))
    )
    requested = index_operand(volume.array.shape, constant_probability=0.7)
    operands = [requested, w, x, *bias(draw, w, x, channels)]
    return operator(draw, op, operands, Spec(volume.array.shape), sizes_unchecked=True, **options)


@case_generator("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(draw: Draw, op: str) -> Case:
    x = image(draw, draw.dtype(op))
    size = [draw.pick(1, 2, 4, 9, 13, x.array.shape[1], 2 * x.array.shape[2]) for _ in "hw"]
    corners, half = draw.pick((False, False), (True, False), (False, True))
    batch, *_, depth = sizes(x.spec)
    y = x.spec.with_shape(batch, *size, depth)
    return operator(draw, op, [x, index_operand(size)], y, align_corners=corners, half_pixel_centers=half)
