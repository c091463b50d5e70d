"""Convolution, pooling and resizing of images, channels last or channels first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Decline,
    Dims,
    Handler,
    Instance,
    Kernel,
    Operator,
    Refusal,
    Replacement,
    Rewriter,
    Tensor,
    out,
)
from op_handlers.custom.select import windows as reference
from op_handlers.custom.select.nodedef import NodeDef, node_of
from op_handlers.custom.select.rewriting import (
    FLOATS,
    REAL,
    check_element_count,
    check_tensor_ranks,
    permute_sizes,
    rewrite_to,
    uniform_types,
)
from op_handlers.image import convolution, pooling, resize
from op_handlers.math.arithmetic import add
from op_handlers.math.cast import cast
from op_handlers.tensor.padding import pad
from op_handlers.tensor.shape import reshape, transpose

CHANNELS_LAST, CHANNELS_FIRST = ("NHWC", "NDHWC"), ("NCHW", "NCDHW")
SINGLE = "float16 float32"


class Axes(NamedTuple):
    """Axis positions of an image. ``spatial``: depth (in 3-D), height and width."""

    first: bool
    rank: int

    @property
    def spatial(self) -> tuple[int, ...]:
        return tuple(range(2, self.rank)) if self.first else tuple(range(1, self.rank - 1))

    @property
    def last(self) -> tuple[int, ...]:
        """Return the permutation that puts the channels last."""
        return (0, *range(2, self.rank), 1) if self.first else tuple(range(self.rank))

    @property
    def back(self) -> tuple[int, ...]:
        """Return the inverse permutation."""
        return (0, self.rank - 1, *range(1, self.rank - 1)) if self.first else tuple(range(self.rank))


def image_axes(node: NodeDef, rank: int = 4) -> Axes:
    """Return the axes for the attribute ``data_format``. Raises Refusal for device-specific layouts."""
    order = node.text("data_format", CHANNELS_LAST[rank - 4])
    if order not in (CHANNELS_LAST[rank - 4], CHANNELS_FIRST[rank - 4]):
        raise Refusal(
            f"data_format is {order}; only {CHANNELS_LAST[rank - 4]} and {CHANNELS_FIRST[rank - 4]} are supported"
        )
    return Axes(order in CHANNELS_FIRST, rank)


def spatial_entries(node: NodeDef, name: str, axes: Axes, default: Sequence[int] = ()) -> list[int]:
    """Return the spatial entries of a per-axis attribute. Raises Refusal if an entry for batch or channels is not 1."""
    numbers = node.integers(name, tuple(default) or (1,) * axes.rank)
    if len(numbers) != axes.rank or any(n != 1 for k, n in enumerate(numbers) if k not in axes.spatial):
        raise Refusal(f"{name} is {list(numbers)}; batch and channels require 1")
    return [numbers[axis] for axis in axes.spatial]


def padding_mode(node: NodeDef, *, explicit: bool = False) -> str:
    kind = node.text("padding")
    if kind not in ("SAME", "VALID", *(["EXPLICIT"] if explicit else [])):
        raise Refusal(f"padding is {kind or 'missing'}; only SAME and VALID are supported")
    return kind


def emit_transpose(steps: Rewriter, x: Tensor, perm: Sequence[int]) -> Tensor:
    """Emit a transposed tensor; a constant is transposed at conversion time."""
    if tuple(perm) == tuple(range(len(perm))):
        return x
    if x.is_constant:
        return steps.constant(x.array.transpose(perm))
    return steps.call(transpose, [x, steps.constant(np.asarray(perm, np.int32))], x.dtype, permute_sizes(x.dims, perm))


def emit_reshape(steps: Rewriter, x: Tensor, shape: Sequence[int | None]) -> Tensor:
    """Emit a tensor in another static shape."""
    if x.is_constant:
        return steps.constant(x.array.reshape([int(size or 0) for size in shape]))
    sizes = np.asarray([-1 if size is None else size for size in shape], np.int32)
    return steps.call(reshape, [x, steps.constant(sizes)], x.dtype, tuple(shape), new_shape=())


def finish(
    steps: Rewriter, axes: Axes, base: Handler, inputs: Sequence[Tensor], **options: Any
) -> Sequence[Replacement]:
    """Emit a channels-last operator, and transpose its result to the layout of the file."""
    if not axes.first:
        return steps.finish(base, inputs, **options)
    result = steps.op[out(0)]
    y = steps.call(base, inputs, result.dtype, permute_sizes(result.dims, axes.last), **options)
    return steps.finish(transpose, [y, steps.constant(np.asarray(axes.back, np.int32))])


# --- convolutions -----------------------------------------------------------------------------


def emit_padding(steps: Rewriter, node: NodeDef, axes: Axes, x: Tensor) -> tuple[Tensor, str]:
    """Emit the image channels last. Explicit padding becomes a PAD, which fusions absorb; returns the remaining padding
    mode.
    """
    kind = padding_mode(node, explicit=True)
    if kind != "EXPLICIT":
        return x, kind
    numbers = node.integers("explicit_paddings")
    if len(numbers) != 2 * axes.rank or min(numbers) < 0:
        raise Refusal(f"explicit_paddings is {list(numbers)}, expected {2 * axes.rank} values of at least 0")
    pairs = np.asarray(numbers, np.int32).reshape(-1, 2)[list(axes.last)]
    dims: Dims = tuple(None if n is None else n + int(sum(pair)) for n, pair in zip(x.dims, pairs, strict=True))
    return steps.call(pad, [x, steps.constant(pairs)], x.dtype, dims), "VALID"


def strides_and_dilations(node: NodeDef, axes: Axes) -> dict[str, int]:
    """Return strides and dilations under the names of built-in operators."""
    letters = "dhw"[-len(axes.spatial) :]
    strides = dict(zip(letters, spatial_entries(node, "strides", axes), strict=True))
    dilations = dict(zip(letters, spatial_entries(node, "dilations", axes), strict=True))
    return {
        **{f"stride_{letter}": n for letter, n in strides.items()},
        **{f"dilation_{letter}_factor": n for letter, n in dilations.items()},
    }


NONE = {"fused_activation_function": "NONE", "quantized_bias_type": "FLOAT32"}


UNKNOWN_FILTERS = "the filters have a dynamic size; set it with --input-shape"


def rewrite_conv_2d(steps: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit CONV_2D with filters [o, h, w, i]."""
    axes = image_axes(node)
    image, kind = emit_padding(steps, node, axes, emit_transpose(steps, steps.op[0], axes.last))
    if None in steps.op[1].dims:
        raise Refusal(UNKNOWN_FILTERS)
    weights = emit_transpose(steps, steps.op[1], (3, 0, 1, 2))
    given = {"padding": kind, **strides_and_dilations(node, axes), **NONE}
    return finish(steps, axes, convolution.conv_2d, [image, weights], **given)


def rewrite_depthwise_conv_2d(steps: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit DEPTHWISE_CONV_2D with filters [1, h, w, i * m]."""
    axes = image_axes(node)
    image, kind = emit_padding(steps, node, axes, emit_transpose(steps, steps.op[0], axes.last))
    height, width, channels, multiplier = steps.op[1].dims
    if None in steps.op[1].dims:
        raise Refusal(UNKNOWN_FILTERS)
    weights = emit_reshape(steps, steps.op[1], (1, height, width, (channels or 0) * (multiplier or 0)))
    given = {"padding": kind, "depth_multiplier": multiplier, **strides_and_dilations(node, axes), **NONE}
    return finish(steps, axes, convolution.depthwise_conv_2d, [image, weights], **given)


def rewrite_conv_3d(steps: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    axes = image_axes(node, 5)
    if None in steps.op[1].dims:
        raise Refusal(UNKNOWN_FILTERS)
    image = emit_transpose(steps, steps.op[0], axes.last)
    given = {"padding": padding_mode(node), **strides_and_dilations(node, axes), **NONE}
    return finish(steps, axes, convolution.conv_3d, [image, steps.op[1]], **given)


def multiply_groups(patches: Array, w: Array) -> Array:
    """Return the grouped products of windows and filters."""
    groups, over = patches.shape[-1] // w.shape[-2], w.ndim - 1
    parts = zip(np.split(patches, groups, -1), np.split(w, groups, -1), strict=True)
    return np.concatenate([np.tensordot(x, part, over) for x, part in parts], -1)


def convolve(op: Operator, x: Array, w: Array) -> Array:
    node = node_of(op)
    axes = image_axes(node, x.ndim)
    image = x.transpose(axes.last)
    kind, pads = node.text("padding"), None
    if kind == "EXPLICIT":
        pads = np.asarray(node.integers("explicit_paddings")).reshape(-1, 2)[list(axes.spatial)]
    strides, dilations = (spatial_entries(node, name, axes) for name in ("strides", "dilations"))
    patches = reference.patches(image, w.shape[: len(strides)], strides, dilations, kind, 0, pads)
    if node.op == "DepthwiseConv2dNative":
        y = np.einsum("nyxhwi,hwim->nyxim", patches, w).reshape(*patches.shape[:3], -1)
    else:
        y = multiply_groups(patches, w)
    return np.asarray(y.transpose(axes.back), x.dtype)


def check_filters_not_empty(at: Instance) -> Decline | None:
    """Return a Decline for filters without elements."""
    empty = len(at.op.inputs) > 1 and 0 in at.op[1].dims
    return Decline(f"the filters have shape {list(at.op[1].shape)}, expected at least one element") if empty else None


IMAGES = check_tensor_ranks({0: 4, 1: 4, out(0): 4}, check_filters_not_empty)

conv_2d = rewrite_to(
    "Conv2D",
    convolution.conv_2d,
    convolve,
    operands=2,
    rewrite=rewrite_conv_2d,
    types=uniform_types(SINGLE, 2),
    accepts=IMAGES,
)
depthwise_conv_2d = rewrite_to(
    "DepthwiseConv2dNative",
    convolution.depthwise_conv_2d,
    convolve,
    operands=2,
    rewrite=rewrite_depthwise_conv_2d,
    types=uniform_types(SINGLE, 2),
    accepts=IMAGES,
)
conv_3d = rewrite_to(
    "Conv3D",
    convolution.conv_3d,
    convolve,
    operands=2,
    rewrite=rewrite_conv_3d,
    types=uniform_types(SINGLE, 2),
    accepts=check_tensor_ranks({0: 5, 1: 5, out(0): 5}),
)


# --- bias -------------------------------------------------------------------------------------


def rewrite_bias_add(steps: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit ADD; for channels first, the bias gets trailing axes of size 1."""
    x, bias = steps.op[0], steps.op[1]
    after = x.rank - 2 if node.text("data_format", "NHWC").startswith("NC") else 0
    if after > 0:
        bias = emit_reshape(steps, bias, (*bias.dims, *[1] * after))
    return steps.finish(add, [x, bias], fused_activation_function="NONE")


def add_bias(op: Operator, x: Array, bias: Array) -> Array:
    after = x.ndim - 2 if node_of(op).text("data_format", "NHWC").startswith("NC") else 0
    return x + bias.reshape(-1, *[1] * after)


bias_add = rewrite_to("BiasAdd", add, add_bias, operands=2, rewrite=rewrite_bias_add, types=uniform_types(REAL, 2))


# --- pools ------------------------------------------------------------------------------------


def pool_rewrite(base: Handler) -> Any:
    def rewrite(steps: Rewriter, node: NodeDef) -> Sequence[Replacement]:
        axes = image_axes(node)
        (filter_h, filter_w), (stride_h, stride_w) = (
            spatial_entries(node, name, axes) for name in ("ksize", "strides")
        )
        image = emit_transpose(steps, steps.op[0], axes.last)
        return finish(
            steps, axes, base, [image], padding=padding_mode(node), filter_height=filter_h, filter_width=filter_w,
            stride_h=stride_h, stride_w=stride_w, fused_activation_function="NONE",
        )  # fmt: skip

    return rewrite


def pool_kernel(largest: bool) -> Kernel:
    """Return a kernel for the mean or the maximum of each window."""

    def kernel(op: Operator, x: Array) -> Array:
        node = node_of(op)
        axes = image_axes(node, x.ndim)
        ksize, strides = (spatial_entries(node, name, axes) for name in ("ksize", "strides"))
        image = x.transpose(axes.last).astype(np.float64)
        patches = reference.patches(image, ksize, strides, [1] * len(ksize), node.text("padding"), np.nan)
        over = tuple(range(len(ksize) + 1, 2 * len(ksize) + 1))
        y = np.nanmax(patches, over) if largest else np.nanmean(patches, over)
        return np.asarray(y.transpose(axes.back), x.dtype)

    return kernel


max_pool = rewrite_to(
    "MaxPool",
    pooling.max_pool_2d,
    pool_kernel(True),
    rewrite=pool_rewrite(pooling.max_pool_2d),
    types=uniform_types(SINGLE),
    accepts=IMAGES,
)
avg_pool = rewrite_to(
    "AvgPool",
    pooling.average_pool_2d,
    pool_kernel(False),
    rewrite=pool_rewrite(pooling.average_pool_2d),
    types=uniform_types(SINGLE),
    accepts=IMAGES,
)


# --- resizing ---------------------------------------------------------------------------------


def coordinate_options(node: NodeDef) -> dict[str, bool]:
    return {name: node.flag(name) for name in ("align_corners", "half_pixel_centers")}


def rewrite_resize_bilinear(steps: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit RESIZE_BILINEAR of float32, the result's dtype for every image dtype."""
    x = steps.op[0]
    if x.dtype != "float32":
        x = steps.call(cast, [x], "float32", x.dims)
    return steps.finish(resize.resize_bilinear, [x, steps.op[1]], **coordinate_options(node))


def check_coordinate_options(at: Instance) -> Decline | None:
    node = node_of(at.op)
    both = all(coordinate_options(node).values())
    return Decline("align_corners and half_pixel_centers are both set, but exclude each other") if both else None


RESIZED = check_tensor_ranks({0: 4, 1: 1, out(0): 4}, check_element_count(1, 2, check_coordinate_options))


def resize_kernel(op: Operator, x: Array, size: Array) -> Array:
    given = coordinate_options(node_of(op))
    if node_of(op).op == "ResizeNearestNeighbor":
        return reference.nearest(x, size.tolist(), **given)
    return reference.bilinear(x.astype(np.float32), size.tolist(), **given)


resize_bilinear = rewrite_to(
    "ResizeBilinear",
    resize.resize_bilinear,
    resize_kernel,
    operands=2,
    rewrite=rewrite_resize_bilinear,
    types=f"{FLOATS} int32 uint8 int8 int16, int32 -> float32",
    accepts=RESIZED,
)
resize_nearest_neighbor = rewrite_to(
    "ResizeNearestNeighbor",
    resize.resize_nearest_neighbor,
    resize_kernel,
    operands=2,
    options=lambda node, op: coordinate_options(node),
    types=tuple(f"{dtype}, int32 -> {dtype}" for dtype in f"{FLOATS} int32 uint8 int8".split()),
    accepts=RESIZED,
)
