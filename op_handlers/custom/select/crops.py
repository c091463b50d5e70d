"""Bicubic resizing, crops at runtime coordinates, and MaxPoolWithArgmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Implicit,
    Instance,
    Operator,
    Refusal,
    Terminate,
    Value,
    handler,
    out,
    spend_budget,
)
from op_handlers.custom.select import windows as reference
from op_handlers.custom.select.image import coordinate_options, image_axes, padding_mode, spatial_entries
from op_handlers.custom.select.nodedef import PREFIX, node_of
from op_handlers.custom.select.rewriting import acceptance_check, element_count_check, rank_check

# --- bicubic resizing -------------------------------------------------------------------------

TABLE_SIZE = 1 << 10
"""Number of fractions of a pixel for which the kernel has coefficients (resize_bicubic_op.cc)."""


def cubic_matrix(size: int, new_size: int, align_corners: bool, half_pixel_centers: bool) -> Array:
    """Return the matrix that resizes an axis, [new_size, size].

    With half pixel centers, pixels outside the image have weight 0. Otherwise pixels at the edge are repeated.
    """
    a = -0.5 if half_pixel_centers else -0.75  # parameter of the cubic convolution kernel
    scale, indices = reference.coordinate_scale(size, new_size, align_corners), np.arange(new_size, dtype=np.float32)
    positions = (indices + np.float32(0.5)) * scale - np.float32(0.5) if half_pixel_centers else indices * scale
    first = np.floor(positions)
    fractions = np.rint((positions - first) * TABLE_SIZE) / TABLE_SIZE
    matrix = np.zeros((new_size, size))
    rows = np.arange(new_size)
    for tap in range(-1, 3):
        x = np.abs(fractions - tap)
        inner_weights = ((a + 2) * x - (a + 3)) * x * x + 1  # for distances up to 1
        outer_weights = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a  # for distances from 1 to 2
        columns = first.astype(int) + tap
        inside = (columns >= 0) & (columns < size)
        weights = (inner_weights if tap in (0, 1) else outer_weights) * (inside if half_pixel_centers else 1)
        np.add.at(matrix, (rows, np.clip(columns, 0, size - 1)), weights)
    if half_pixel_centers:
        matrix /= matrix.sum(1, keepdims=True)
    return matrix.astype(np.float32)


def resize_matrices(op: Operator, image: Sequence[int | None], size: Array) -> list[Array]:
    """Return the matrices that resize height and width.

    ``image``: sizes [n, h, w, c]. ``size``: new height and width. Raises Refusal if a size is dynamic.
    """
    matrices = []
    for old_size, new_size in zip(image[1:3], size.tolist(), strict=True):
        if old_size is None:
            raise Refusal("the image has a dynamic height or width; set it with --input-shape")
        spend_budget(old_size * new_size, 8, "the coefficients of the resizing")
        matrices.append(cubic_matrix(old_size, new_size, **coordinate_options(node_of(op))))
    return matrices


def resize_bicubic_kernel(op: Operator, x: Array, size: Array) -> Array:
    rows, columns = resize_matrices(op, x.shape, size)
    return np.asarray(np.einsum("yh,nhwc,xw->nyxc", rows, x.astype(np.float32), columns), np.float32)


@handler(
    PREFIX + "ResizeBicubic",
    max_version=1,
    layout=Terminate(),
    types="float32 float16 uint8 int8 int16 int32, int32 -> float32",
    result_dtypes={"*": ("*",)},
    requires_constant={1},
    accepts=acceptance_check(2, accepts=rank_check({0: 4, 1: 1, out(0): 4}, element_count_check(slot=1, count=2))),
    kernel=resize_bicubic_kernel,
)
def resize_bicubic(ctx: Context, x: Value, _size: Value) -> Value:
    """Emit a matrix product along each axis, with the kernel's rounded coefficients."""
    ops, dims = ctx.ops, ctx.op[0].dims
    rows, columns = resize_matrices(ctx.op, dims, ctx.require_constant(1))
    channels = dims[3]
    if channels is None:
        raise Refusal("the image has a dynamic number of channels; set it with --input-shape")
    image = x if ctx.op[0].dtype == "float32" else ops.Cast(x, to="float32")
    height, width = len(rows), columns.shape[1]
    resized_rows = ops.MatMul(rows, ops.Reshape(image, [0, 0, width * channels]))
    return ops.MatMul(columns, ops.Reshape(resized_rows, [0, height, width, channels]))


# --- crops ------------------------------------------------------------------------------------


def check_method(instance: Instance) -> Decline | None:
    method = node_of(instance.op).text("method", "bilinear")
    if method in ("bilinear", "nearest"):
        return None
    return Decline(f"method is {method}; only bilinear and nearest are supported")


def crop_positions(low: Array, high: Array, size: int, count: int) -> Array:
    """Return the positions of the crops' pixels along one axis, [boxes, count].

    ``low`` and ``high``: bounds of the boxes, from 0 to 1 in the image. ``size``: the size of the image.
    """
    last = np.float32(size - 1)
    if count == 1:
        return np.asarray(np.float32(0.5) * (low + high) * last)[:, None]
    step = (high - low) * last / np.float32(count - 1)
    return np.asarray((low * last)[:, None] + np.arange(count, dtype=np.float32) * step[:, None])


def crop_kernel(op: Operator, image: Array, boxes: Array, indices: Array, size: Array) -> Array:
    node = node_of(op)
    height, width = image.shape[1:3]
    y, x = (crop_positions(boxes[:, k], boxes[:, k + 2], image.shape[1 + k], int(size[k])) for k in (0, 1))
    inside = ((y >= 0) & (y <= height - 1))[:, :, None] & ((x >= 0) & (x <= width - 1))[:, None, :]
    y, x = np.clip(y, 0, height - 1)[:, :, None], np.clip(x, 0, width - 1)[:, None, :]

    def pixels_at(rows: Array, columns: Array) -> Array:
        return np.asarray(image[indices[:, None, None], rows.astype(int), columns.astype(int)], np.float32)

    if node.text("method", "bilinear") == "nearest":
        result = pixels_at(np.floor(y + 0.5), np.floor(x + 0.5))
    else:
        left, right = np.floor(x), np.ceil(x)
        top, bottom = (
            pixels_at(rows, left) + (pixels_at(rows, right) - pixels_at(rows, left)) * (x - left)[..., None]
            for rows in (np.floor(y), np.ceil(y))
        )
        result = top + (bottom - top) * (y - np.floor(y))[..., None]
    return np.where(inside[..., None], result, np.float32(node.real("extrapolation_value", 0.0))).astype(np.float32)


@handler(
    PREFIX + "CropAndResize",
    max_version=1,
    layout=Terminate(),
    types="float32 float16 uint8 int8 int16 int32, float32, int32, int32 -> float32",
    result_dtypes={"*": ("*",)},
    requires_constant={3},
    accepts=acceptance_check(
        4, accepts=rank_check({0: 4, 1: 2, 2: 1, 3: 1, out(0): 4}, element_count_check(slot=3, count=2), check_method)
    ),
    kernel=crop_kernel,
)
def crop_and_resize(ctx: Context, image: Value, boxes: Value, indices: Value, _size: Value) -> Value:
    """Emit GatherND of the four neighbors of each pixel, and their weighted mean.

    With the method "nearest", emit GatherND of the nearest pixel.
    """
    ops, node, size = ctx.ops, node_of(ctx.op), ctx.require_constant(3)
    zero = np.float32(0)
    lows, highs = (
        ops.Split(corner, axis=1, num_outputs=2, outputs=2)
        for corner in ops.Split(boxes, axis=1, num_outputs=2, outputs=2)
    )
    shape = ops.Shape(image)

    def emit_positions(axis: int) -> tuple[Value, Value]:
        """Return clipped pixel positions along an axis, and a mask of inner positions."""
        count, low, high = int(size[axis]), lows[axis], highs[axis]
        last = ops.Cast(ops.Sub(ops.Slice(shape, [1 + axis], [2 + axis]), np.asarray([1])), to="float32")
        if count == 1:
            positions = ops.Mul(ops.Mul(ops.Add(low, high), np.float32(0.5)), last)
        else:
            step = ops.Div(ops.Mul(ops.Sub(high, low), last), np.float32(count - 1))
            positions = ops.Add(ops.Mul(low, last), ops.Mul(step, np.arange(count, dtype=np.float32)))
        inside = ops.And(ops.GreaterOrEqual(positions, zero), ops.LessOrEqual(positions, last))
        new_axes = [-1] if axis == 0 else [1]
        return ops.Unsqueeze(ops.Min(ops.Max(positions, zero), last), new_axes), ops.Unsqueeze(inside, new_axes)

    (y, y_inside), (x, x_inside) = emit_positions(0), emit_positions(1)
    inside = ops.Unsqueeze(ops.And(y_inside, x_inside), [-1])
    crop_shape = ops.Shape(inside)  # [boxes, rows, columns, 1]
    image_indices = ops.Reshape(ops.Cast(indices, to="int64"), [-1, 1, 1, 1])
    float_image = image if ctx.op[0].dtype == "float32" else ops.Cast(image, to="float32")

    def emit_pixels(rows: Value, columns: Value) -> Value:
        coordinates = [image_indices, *(ops.Cast(ops.Unsqueeze(part, [-1]), to="int64") for part in (rows, columns))]
        return ops.GatherND(float_image, ops.Concat(*(ops.Expand(part, crop_shape) for part in coordinates), axis=-1))

    half = np.float32(0.5)
    if node.text("method", "bilinear") == "nearest":
        result = emit_pixels(ops.Floor(ops.Add(y, half)), ops.Floor(ops.Add(x, half)))
    else:
        top, left = ops.Floor(y), ops.Floor(x)
        x_weight, y_weight = (ops.Unsqueeze(ops.Sub(a, b), [-1]) for a, b in ((x, left), (y, top)))

        def interpolate_columns(rows: Value) -> Value:
            left_pixels = emit_pixels(rows, left)
            return ops.Add(left_pixels, ops.Mul(ops.Sub(emit_pixels(rows, ops.Ceil(x)), left_pixels), x_weight))

        upper = interpolate_columns(top)
        result = ops.Add(upper, ops.Mul(ops.Sub(interpolate_columns(ops.Ceil(y)), upper), y_weight))
    return ops.Where(inside, result, np.float32(node.real("extrapolation_value", 0.0)))


# --- pooling with element positions -------------------------------------------------------------------


def max_pool_with_argmax_kernel(op: Operator, x: Array) -> Sequence[Array]:
    node = node_of(op)
    ksize, strides = (spatial_entries(node, name, image_axes(node)) for name in ("ksize", "strides"))
    n, h, w, c = x.shape
    positions = np.arange(n * h * w * c).reshape(x.shape)
    if not node.flag("include_batch_in_index"):
        positions = positions % (h * w * c)

    def windows(image: Array, fill: float) -> Array:
        patches = reference.extract_windows(image, ksize, strides, [1, 1], node.text("padding"), fill)
        return patches.reshape(*patches.shape[:3], -1, c)

    values = windows(x.astype(np.float64), -np.inf)
    largest = values.argmax(3)[..., None, :]
    return [
        np.take_along_axis(values, largest, 3)[..., 0, :].astype(x.dtype),
        np.take_along_axis(windows(positions, -1), largest, 3)[..., 0, :].astype(op[out(1)].dtype),
    ]


@handler(
    PREFIX + "MaxPoolWithArgmax",
    max_version=1,
    layout=Implicit(onnx={0: "n c h w", out(0): "n c y x", out(1): "n c y x"}),
    axes="n h w c -> n y x c, n y x c",
    types=("float32 -> float32, int64 int32",),
    accepts=acceptance_check(1, accepts=rank_check({0: 4, out(0): 4, out(1): 4})),
    kernel=max_pool_with_argmax_kernel,
)
def max_pool_with_argmax(ctx: Context, x: Value) -> Sequence[Value]:
    """Emit MaxPool, and convert its element positions to channels last.

    ONNX counts elements in NCHW, TensorFlow in NHWC.
    """
    ops, node = ctx.ops, node_of(ctx.op)
    ksize, strides = (spatial_entries(node, name, image_axes(node)) for name in ("ksize", "strides"))
    _, height, width, channels = ctx.op[0].dims
    if height is None or width is None or channels is None:
        raise Refusal("the image has a dynamic size; set it with --input-shape")
    pads = [
        reference.same_padding(extent, k, stride, 1, padding_mode(node))
        for extent, k, stride in zip((height, width), ksize, strides, strict=True)
    ]
    y, nchw_positions = ops.MaxPool(
        x, kernel_shape=ksize, strides=strides, pads=[p[0] for p in pads] + [p[1] for p in pads], outputs=2
    )
    area = np.int64(height * width)
    channel_indices = np.arange(channels).reshape(-1, 1, 1)
    positions = ops.Add(ops.Mul(ops.Mod(nchw_positions, area), np.int64(channels)), channel_indices)
    if node.flag("include_batch_in_index"):
        batch_indices = ops.Div(nchw_positions, np.int64(height * width * channels))
        positions = ops.Add(positions, ops.Mul(batch_indices, np.int64(height * width * channels)))
    dtype = ctx.op[out(1)].dtype
    return [y, positions if dtype == "int64" else ops.Cast(positions, to=dtype)]
