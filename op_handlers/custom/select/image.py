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
    element_count_check,
    permute_sizes,
    rank_check,
    rewrite_to,
    uniform_types,
)
from op_handlers.image import convolution, pooling, resize
from op_handlers.math.arithmetic import add
from op_handlers.math.cast import cast
from op_handlers.tensor.padding import pad
from op_handlers.tensor.shape import reshape, transpose

CHANNELS_LAST, CHANNELS_FIRST = ("NHWC", "NDHWC"), ("NCHW", "NCDHW")
FLOAT16_OR_FLOAT32 = "float16 float32"


class Axes(NamedTuple):
    """Positions of an image's axes in the layout of the file."""

    channels_first: bool
    rank: int

    @property
    def spatial(self) -> tuple[int, ...]:
        """Return the axes of depth (in 3-D), height and width."""
        return tuple(range(2, self.rank)) if self.channels_first else tuple(range(1, self.rank - 1))

    @property
    def to_channels_last(self) -> tuple[int, ...]:
        """Return the permutation that puts the channels last."""
        return (0, *range(2, self.rank), 1) if self.channels_first else tuple(range(self.rank))

    @property
    def from_channels_last(self) -> tuple[int, ...]:
        """Return the inverse permutation: from channels last to the layout of the file."""
        return (0, self.rank - 1, *range(1, self.rank - 1)) if self.channels_first else tuple(range(self.rank))


def image_axes(node: NodeDef, rank: int = 4) -> Axes:
    """Return the axes for the attribute ``data_format``.

    Raises Refusal for layouts other than channels last or first, which depend on the device.
    """
    layout = node.text("data_format", CHANNELS_LAST[rank - 4])
    if layout not in (CHANNELS_LAST[rank - 4], CHANNELS_FIRST[rank - 4]):
        raise Refusal(
            f"data_format is {layout}; only {CHANNELS_LAST[rank - 4]} and {CHANNELS_FIRST[rank - 4]} are supported"
        )
    return Axes(layout in CHANNELS_FIRST, rank)


def spatial_entries(node: NodeDef, name: str, axes: Axes, default: Sequence[int] = ()) -> list[int]:
    """Return the spatial entries of a per-axis attribute.

    Raises Refusal if an entry for batch or channels is not 1.
    """
    numbers = node.integers(name, tuple(default) or (1,) * axes.rank)
    if len(numbers) != axes.rank or any(n != 1 for k, n in enumerate(numbers) if k not in axes.spatial):
        raise Refusal(f"{name} is {list(numbers)}; the entries for batch and channels must be 1")
    return [numbers[axis] for axis in axes.spatial]


def padding_mode(node: NodeDef, *, explicit: bool = False) -> str:
    mode = node.text("padding")
    if mode not in ("SAME", "VALID", *(["EXPLICIT"] if explicit else [])):
        raise Refusal(f"padding is {mode or 'missing'}; only SAME and VALID are supported")
    return mode


def emit_transpose(rewriter: Rewriter, x: Tensor, perm: Sequence[int]) -> Tensor:
    """Emit TRANSPOSE; a constant is transposed during the conversion."""
    if tuple(perm) == tuple(range(len(perm))):
        return x
    if x.is_constant:
        return rewriter.constant(x.array.transpose(perm))
    return rewriter.call(
        transpose, [x, rewriter.constant(np.asarray(perm, np.int32))], x.dtype, permute_sizes(x.dims, perm)
    )


def emit_reshape(rewriter: Rewriter, x: Tensor, shape: Sequence[int | None]) -> Tensor:
    """Emit RESHAPE; a constant is reshaped during the conversion."""
    if x.is_constant:
        return rewriter.constant(x.array.reshape([int(size or 0) for size in shape]))
    sizes = np.asarray([-1 if size is None else size for size in shape], np.int32)
    return rewriter.call(reshape, [x, rewriter.constant(sizes)], x.dtype, tuple(shape), new_shape=())


def finish_channels_last(
    rewriter: Rewriter, axes: Axes, base: Handler, inputs: Sequence[Tensor], **options: Any
) -> Sequence[Replacement]:
    """Finish with a channels-last operator, and transpose its result if needed."""
    if not axes.channels_first:
        return rewriter.finish(base, inputs, **options)
    result = rewriter.op[out(0)]
    y = rewriter.call(base, inputs, result.dtype, permute_sizes(result.dims, axes.to_channels_last), **options)
    return rewriter.finish(transpose, [y, rewriter.constant(np.asarray(axes.from_channels_last, np.int32))])


# --- convolutions -----------------------------------------------------------------------------


def emit_padding(rewriter: Rewriter, node: NodeDef, axes: Axes, x: Tensor) -> tuple[Tensor, str]:
    """Return the image and its padding mode.

    Explicit padding becomes a PAD, which fusions absorb, and the mode VALID.
    """
    mode = padding_mode(node, explicit=True)
    if mode != "EXPLICIT":
        return x, mode
    paddings = node.integers("explicit_paddings")
    if len(paddings) != 2 * axes.rank or min(paddings) < 0:
        raise Refusal(f"explicit_paddings is {list(paddings)}, expected {2 * axes.rank} values of at least 0")
    channels_last_paddings = np.asarray(paddings, np.int32).reshape(-1, 2)[list(axes.to_channels_last)]
    dims: Dims = tuple(
        None if n is None else n + int(sum(pair)) for n, pair in zip(x.dims, channels_last_paddings, strict=True)
    )
    return rewriter.call(pad, [x, rewriter.constant(channels_last_paddings)], x.dtype, dims), "VALID"


def strides_and_dilations(node: NodeDef, axes: Axes) -> dict[str, int]:
    """Return strides and dilations under the names of built-in operators."""
    letters = "dhw"[-len(axes.spatial) :]
    strides = dict(zip(letters, spatial_entries(node, "strides", axes), strict=True))
    dilations = dict(zip(letters, spatial_entries(node, "dilations", axes), strict=True))
    return {
        **{f"stride_{letter}": n for letter, n in strides.items()},
        **{f"dilation_{letter}_factor": n for letter, n in dilations.items()},
    }


NO_ACTIVATION = {"fused_activation_function": "NONE", "quantized_bias_type": "FLOAT32"}


DYNAMIC_FILTERS = "the filters have a dynamic size; set it with --input-shape"


def rewrite_conv_2d(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit CONV_2D with filters [o, h, w, i]."""
    axes = image_axes(node)
    image, padding = emit_padding(rewriter, node, axes, emit_transpose(rewriter, rewriter.op[0], axes.to_channels_last))
    if None in rewriter.op[1].dims:
        raise Refusal(DYNAMIC_FILTERS)
    weights = emit_transpose(rewriter, rewriter.op[1], (3, 0, 1, 2))
    options = {"padding": padding, **strides_and_dilations(node, axes), **NO_ACTIVATION}
    return finish_channels_last(rewriter, axes, convolution.conv_2d, [image, weights], **options)


def rewrite_depthwise_conv_2d(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit DEPTHWISE_CONV_2D with filters [1, h, w, i * m]."""
    axes = image_axes(node)
    image, padding = emit_padding(rewriter, node, axes, emit_transpose(rewriter, rewriter.op[0], axes.to_channels_last))
    height, width, channels, multiplier = rewriter.op[1].dims
    if None in rewriter.op[1].dims:
        raise Refusal(DYNAMIC_FILTERS)
    weights = emit_reshape(rewriter, rewriter.op[1], (1, height, width, (channels or 0) * (multiplier or 0)))
    options = {"padding": padding, "depth_multiplier": multiplier, **strides_and_dilations(node, axes), **NO_ACTIVATION}
    return finish_channels_last(rewriter, axes, convolution.depthwise_conv_2d, [image, weights], **options)


def rewrite_conv_3d(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    axes = image_axes(node, 5)
    if None in rewriter.op[1].dims:
        raise Refusal(DYNAMIC_FILTERS)
    image = emit_transpose(rewriter, rewriter.op[0], axes.to_channels_last)
    options = {"padding": padding_mode(node), **strides_and_dilations(node, axes), **NO_ACTIVATION}
    return finish_channels_last(rewriter, axes, convolution.conv_3d, [image, rewriter.op[1]], **options)


def multiply_groups(patches: Array, w: Array) -> Array:
    """Return the grouped products of windows and filters."""
    groups, contracted_axes = patches.shape[-1] // w.shape[-2], w.ndim - 1
    pairs = zip(np.split(patches, groups, -1), np.split(w, groups, -1), strict=True)
    return np.concatenate([np.tensordot(x, filters, contracted_axes) for x, filters in pairs], -1)


def convolve(op: Operator, x: Array, w: Array) -> Array:
    node = node_of(op)
    axes = image_axes(node, x.ndim)
    image = x.transpose(axes.to_channels_last)
    mode, pads = node.text("padding"), None
    if mode == "EXPLICIT":
        pads = np.asarray(node.integers("explicit_paddings")).reshape(-1, 2)[list(axes.spatial)]
    strides, dilations = (spatial_entries(node, name, axes) for name in ("strides", "dilations"))
    patches = reference.extract_windows(image, w.shape[: len(strides)], strides, dilations, mode, 0, pads)
    if node.op == "DepthwiseConv2dNative":
        y = np.einsum("nyxhwi,hwim->nyxim", patches, w).reshape(*patches.shape[:3], -1)
    else:
        y = multiply_groups(patches, w)
    return np.asarray(y.transpose(axes.from_channels_last), x.dtype)


def check_filters_not_empty(instance: Instance) -> Decline | None:
    """Return a Decline for filters without elements."""
    empty = len(instance.op.inputs) > 1 and 0 in instance.op[1].dims
    return Decline(f"the filters are empty (shape {list(instance.op[1].shape)})") if empty else None


check_images = rank_check({0: 4, 1: 4, out(0): 4}, check_filters_not_empty)

conv_2d = rewrite_to(
    "Conv2D",
    convolution.conv_2d,
    convolve,
    operands=2,
    rewrite=rewrite_conv_2d,
    types=uniform_types(FLOAT16_OR_FLOAT32, 2),
    accepts=check_images,
)
depthwise_conv_2d = rewrite_to(
    "DepthwiseConv2dNative",
    convolution.depthwise_conv_2d,
    convolve,
    operands=2,
    rewrite=rewrite_depthwise_conv_2d,
    types=uniform_types(FLOAT16_OR_FLOAT32, 2),
    accepts=check_images,
)
conv_3d = rewrite_to(
    "Conv3D",
    convolution.conv_3d,
    convolve,
    operands=2,
    rewrite=rewrite_conv_3d,
    types=uniform_types(FLOAT16_OR_FLOAT32, 2),
    accepts=rank_check({0: 5, 1: 5, out(0): 5}),
)


# --- bias -------------------------------------------------------------------------------------


def rewrite_bias_add(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit ADD; for channels first, the bias gets trailing axes of size 1."""
    x, bias = rewriter.op[0], rewriter.op[1]
    trailing_axes = x.rank - 2 if node.text("data_format", "NHWC").startswith("NC") else 0
    if trailing_axes > 0:
        bias = emit_reshape(rewriter, bias, (*bias.dims, *[1] * trailing_axes))
    return rewriter.finish(add, [x, bias], fused_activation_function="NONE")


def add_bias(op: Operator, x: Array, bias: Array) -> Array:
    trailing_axes = x.ndim - 2 if node_of(op).text("data_format", "NHWC").startswith("NC") else 0
    return x + bias.reshape(-1, *[1] * trailing_axes)


bias_add = rewrite_to("BiasAdd", add, add_bias, operands=2, rewrite=rewrite_bias_add, types=uniform_types(REAL, 2))


# --- pooling ------------------------------------------------------------------------------------


def pool_rewrite(base: Handler) -> Any:
    """Return the rewrite of a pool to the built-in pool ``base``."""

    def rewrite(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
        axes = image_axes(node)
        (filter_h, filter_w), (stride_h, stride_w) = (
            spatial_entries(node, name, axes) for name in ("ksize", "strides")
        )
        image = emit_transpose(rewriter, rewriter.op[0], axes.to_channels_last)
        return finish_channels_last(
            rewriter, axes, base, [image], padding=padding_mode(node), filter_height=filter_h, filter_width=filter_w,
            stride_h=stride_h, stride_w=stride_w, fused_activation_function="NONE",
        )  # fmt: skip

    return rewrite


def pool_kernel(largest: bool) -> Kernel:
    """Return a kernel for the mean or the maximum of each window."""

    def kernel(op: Operator, x: Array) -> Array:
        node = node_of(op)
        axes = image_axes(node, x.ndim)
        ksize, strides = (spatial_entries(node, name, axes) for name in ("ksize", "strides"))
        image = x.transpose(axes.to_channels_last).astype(np.float64)
        patches = reference.extract_windows(image, ksize, strides, [1] * len(ksize), node.text("padding"), np.nan)
        window_axes = tuple(range(len(ksize) + 1, 2 * len(ksize) + 1))
        y = np.nanmax(patches, window_axes) if largest else np.nanmean(patches, window_axes)
        return np.asarray(y.transpose(axes.from_channels_last), x.dtype)

    return kernel


max_pool = rewrite_to(
    "MaxPool",
    pooling.max_pool_2d,
    pool_kernel(largest=True),
    rewrite=pool_rewrite(pooling.max_pool_2d),
    types=uniform_types(FLOAT16_OR_FLOAT32),
    accepts=check_images,
)
avg_pool = rewrite_to(
    "AvgPool",
    pooling.average_pool_2d,
    pool_kernel(largest=False),
    rewrite=pool_rewrite(pooling.average_pool_2d),
    types=uniform_types(FLOAT16_OR_FLOAT32),
    accepts=check_images,
)


# --- resizing ---------------------------------------------------------------------------------


def coordinate_options(node: NodeDef) -> dict[str, bool]:
    return {name: node.flag(name) for name in ("align_corners", "half_pixel_centers")}


def rewrite_resize_bilinear(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit RESIZE_BILINEAR for float32. Images of other dtypes are cast first."""
    x = rewriter.op[0]
    if x.dtype != "float32":
        x = rewriter.call(cast, [x], "float32", x.dims)
    return rewriter.finish(resize.resize_bilinear, [x, rewriter.op[1]], **coordinate_options(node))


def check_coordinate_options(instance: Instance) -> Decline | None:
    node = node_of(instance.op)
    has_both = all(coordinate_options(node).values())
    return Decline("align_corners and half_pixel_centers are both set, but exclude each other") if has_both else None


check_resize = rank_check({0: 4, 1: 1, out(0): 4}, element_count_check(check_coordinate_options, slot=1, count=2))


def resize_kernel(op: Operator, x: Array, size: Array) -> Array:
    options = coordinate_options(node_of(op))
    if node_of(op).op == "ResizeNearestNeighbor":
        return reference.resize_nearest(x, size.tolist(), **options)
    return reference.resize_bilinear(x.astype(np.float32), size.tolist(), **options)


resize_bilinear = rewrite_to(
    "ResizeBilinear",
    resize.resize_bilinear,
    resize_kernel,
    operands=2,
    rewrite=rewrite_resize_bilinear,
    types=f"{FLOATS} int32 uint8 int8 int16, int32 -> float32",
    accepts=check_resize,
)
resize_nearest_neighbor = rewrite_to(
    "ResizeNearestNeighbor",
    resize.resize_nearest_neighbor,
    resize_kernel,
    operands=2,
    options=lambda node, op: coordinate_options(node),
    types=tuple(f"{dtype}, int32 -> {dtype}" for dtype in f"{FLOATS} int32 uint8 int8".split()),
    accepts=check_resize,
)
