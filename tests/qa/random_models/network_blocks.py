"""Blocks of operators that ONNX fuses into one, and similar blocks."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.models import constant
from tests.qa.random_models.networks import Network, Unsupported, block

FLOATS = ("float32",)
BYTES = ("float32", "int8", "uint8")


def scale(n: Network, x: TensorRef, *, shifted: bool = True) -> TensorRef:
    """Scale per channel, and add a bias per channel."""
    channels = n.shape(x)[-1]
    y = n.apply("MUL", [x, n.operand(np.float32(1) + n.numbers(channels, spread=0.2))])
    return n.apply("ADD", [y, n.operand(n.numbers(channels, spread=0.3))]) if shifted else y


def dense(n: Network, x: TensorRef, out: int, **options: Any) -> TensorRef:
    shape = n.shape(x)
    operands = n.weights(x, n.numbers(out, shape[-1], spread=shape[-1] ** -0.5), 0, n.numbers(out, spread=0.3))
    result = (*shape[:-1], out)
    return n.apply(
        "FULLY_CONNECTED", [x, *operands], result, keep_num_dims=len(shape) != 2, **options, **n.bias_type(operands)
    )


def transpose(n: Network, x: TensorRef, *perm: int) -> TensorRef:
    return n.apply("TRANSPOSE", [x, n.index_constant(perm)], [n.shape(x)[k] for k in perm], like=x)


def reshape(n: Network, x: TensorRef, *shape: int) -> TensorRef:
    return n.apply("RESHAPE", [x, n.index_constant(shape)], shape, like=x, new_shape=list(shape))


def normalized_shape(n: Network, x: TensorRef) -> tuple[int, ...]:
    """Return the shape; raise Unsupported if its last axis has one element.

    Normalization of one element leaves only rounding errors.
    """
    shape = n.rank(x, 2, 3, 4)
    if shape[-1] < 2:
        raise Unsupported
    return shape


def mean(n: Network, x: TensorRef, *axes: int) -> TensorRef:
    """Add a mean that keeps the axes."""
    shape = [1 if k in axes else size for k, size in enumerate(n.shape(x))]
    return n.apply("MEAN", [x, n.index_constant(axes)], shape, keep_dims=True)


# --- activations ------------------------------------------------------------------------------


@block(dtypes=BYTES)
def hard_swish(n: Network, x: TensorRef) -> None:
    if n.draw.chance(0.5):
        clipped = n.apply("ADD", [x, n.fusion_constant(3)], fused_activation_function="RELU6")
    else:
        clipped = n.apply("RELU6", [n.apply("ADD", [x, n.fusion_constant(3)])])
    if n.draw.chance(0.3):
        n.apply("MUL", [n.apply("MUL", [clipped, n.fusion_constant(1 / 6)]), x])
    else:
        n.apply("MUL", [n.apply("MUL", [x, clipped]), n.fusion_constant(1 / 6)])


@block(weight=1.5)
def swish(n: Network, x: TensorRef) -> None:
    n.apply("MUL", [x, n.apply("LOGISTIC", [x])])


@block(dtypes=FLOATS)
def gelu(n: Network, x: TensorRef) -> None:
    cube = (
        n.apply("POW", [x, constant(np.float32(n.draw.pick(3, 3, 3, 2)))])
        if n.draw.chance(0.5)
        else n.apply("MUL", [n.apply("MUL", [x, x]), x])
    )
    tanh_argument = n.apply(
        "MUL", [n.apply("ADD", [x, n.apply("MUL", [cube, n.fusion_constant(0.044715)])]), n.fusion_constant(0.7978846)]
    )
    tanh_plus_one = n.apply("ADD", [n.apply("TANH", [tanh_argument]), n.fusion_constant(1)])
    if n.draw.chance(0.5):
        n.apply("MUL", [n.apply("MUL", [x, n.fusion_constant(0.5)]), tanh_plus_one])
    else:
        n.apply("MUL", [n.apply("MUL", [x, tanh_plus_one]), n.fusion_constant(0.5)])


@block(dtypes=FLOATS)
def mish(n: Network, x: TensorRef) -> None:
    n.apply(
        "MUL", [x, n.apply("TANH", [n.apply("LOG", [n.apply("ADD", [n.apply("EXP", [x]), n.fusion_constant(1)])])])]
    )


@block(dtypes=BYTES)
def leaky_relu(n: Network, x: TensorRef) -> None:
    if n.draw.chance(0.5):
        n.apply("MAXIMUM", [n.apply("MUL", [x, n.fusion_constant(0.13)], like=x), x], like=x)
        return
    negative_part = n.apply("RELU", [n.apply("MUL", [x, n.fusion_constant(-1)])])
    scaled_part = n.apply("MUL", [negative_part, n.operand(n.numbers(n.shape(x)[-1], spread=0.2))])
    n.apply("ADD", [n.apply("RELU", [x]), scaled_part])


@block()
def gated_linear_unit(n: Network, x: TensorRef) -> None:
    """Multiply half of the channels by the other half."""
    *rows, channels = n.rank(x, 2, 3, 4)
    if channels % 2:
        raise Unsupported
    axis = n.draw.pick(len(rows), -1)
    halves = [n.activation((*rows, channels // 2), like=x) for _ in "ab"]
    first_half = n.call([n.index_constant(axis), x], *halves, code="SPLIT", num_splits=2)
    n.apply("MUL", [first_half, n.apply("LOGISTIC", [n.pool[-1]])])


# --- normalization ----------------------------------------------------------------------------


@block(weight=1.5, dtypes=FLOATS)
def layer_norm(n: Network, x: TensorRef) -> None:
    last = len(normalized_shape(n, x)) - 1
    axes = n.draw.pick([last], [last], [last - 1, last])
    means = mean(n, x, *axes)
    centered = n.apply("SUB", [x, means])
    squares = n.draw.pick(
        lambda: n.apply("SQUARED_DIFFERENCE", [x, means]),
        lambda: n.apply("MUL", [centered, centered]),
        lambda: n.apply("SQUARE", [centered]),
    )()
    variances = n.apply("ADD", [mean(n, squares, *axes), n.fusion_constant(1e-3)])
    if n.draw.chance(0.5):
        y = n.apply("MUL", [centered, n.apply("RSQRT", [variances])])
    else:
        y = n.apply("DIV", [centered, n.apply("SQRT", [variances])])
    scale(n, y, shifted=n.draw.chance(0.7))


@block(dtypes=FLOATS)
def layer_norm_as_batch_norm(n: Network, x: TensorRef) -> None:
    """Add layer normalization as Keras exports it: x * factor + shift."""
    shape = normalized_shape(n, x)
    means = mean(n, x, len(shape) - 1)
    variance = mean(n, n.apply("SQUARED_DIFFERENCE", [x, means]), len(shape) - 1)
    inverse_deviations = n.apply("RSQRT", [n.apply("ADD", [variance, n.fusion_constant(1e-3)])])
    factor = n.apply("MUL", [inverse_deviations, n.operand(np.float32(1) + n.numbers(shape[-1], spread=0.2))], shape)
    shift = n.apply("SUB", [n.operand(n.numbers(shape[-1])), n.apply("MUL", [factor, means])], shape)
    n.apply("ADD", [n.apply("MUL", [x, factor], shape), shift], shape)


@block(dtypes=FLOATS)
def rms_norm(n: Network, x: TensorRef) -> None:
    last = len(normalized_shape(n, x)) - 1
    squares = n.apply("MUL", [x, x]) if n.draw.chance(0.5) else n.apply("SQUARE", [x])
    inverse_rms = n.apply("RSQRT", [n.apply("ADD", [mean(n, squares, last), n.fusion_constant(1e-5)])])
    scale(n, n.apply("MUL", [x, inverse_rms] if n.draw.chance(0.5) else [inverse_rms, x], n.shape(x)), shifted=False)


@block(weight=0.7, dtypes=FLOATS)
def l2_normalize(n: Network, x: TensorRef) -> None:
    shape = normalized_shape(n, x)
    reduced_shape = (*shape[:-1], 1)
    sum_of_squares = n.apply(
        "SUM", [n.apply("MUL", [x, x]), n.index_constant([len(shape) - 1])], reduced_shape, keep_dims=True
    )
    if n.draw.chance(0.5):
        n.apply("MUL", [x, n.apply("RSQRT", [n.apply("MAXIMUM", [sum_of_squares, n.fusion_constant(1e-6)])])])
    else:
        n.apply("DIV", [x, n.apply("SQRT", [n.apply("ADD", [sum_of_squares, n.fusion_constant(1e-6)])])])


@block(weight=0.7, dtypes=FLOATS)
def softmax(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    axes, reduced_shape = n.index_constant([len(shape) - 1]), (*shape[:-1], 1)
    maximum = n.apply("REDUCE_MAX", [x, axes], reduced_shape, keep_dims=True)
    exponentials = n.apply("EXP", [n.apply("SUB", [x, maximum])])
    n.apply("DIV", [exponentials, n.apply("SUM", [exponentials, axes], reduced_shape, keep_dims=True)])


@block()
def channel_batch_norm(n: Network, x: TensorRef) -> None:
    """Add batch normalization after an operator with a bias."""
    n.rank(x, 2, 3, 4)
    scale(n, x)


@block(weight=0.7, dtypes=FLOATS)
def standardize(n: Network, x: TensorRef) -> None:
    offset = n.operand(n.numbers(n.shape(x)[-1]))
    n.apply("MUL", [n.apply("SUB", [x, offset]), n.operand(np.abs(n.numbers(n.shape(x)[-1])) + np.float32(0.5))])


@block(weight=0.7, dtypes=FLOATS)
def group_norm(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    if c % 2:
        raise Unsupported
    groups = reshape(n, x, batch, h, w, 2, c // 2) if n.draw.chance(0.5) else reshape(n, x, batch, h * w, 2, c // 2)
    axes = (1, 2, 4) if len(n.shape(groups)) == 5 else (1, 3)
    centered = n.apply("SUB", [groups, mean(n, groups, *axes)])
    variance = mean(n, n.apply("SQUARE", [centered]), *axes)
    y = n.apply("MUL", [centered, n.apply("RSQRT", [n.apply("ADD", [variance, n.fusion_constant(1e-3)])])])
    scale(n, reshape(n, y, batch, h, w, c))


# --- attention --------------------------------------------------------------------------------


@block(weight=1.5, dtypes=("float32", "int8"))
def attention(n: Network, x: TensorRef) -> None:
    batch, steps, width = n.rank(x, 3)
    heads, size = n.draw.pick(1, 2, 3), n.draw.pick(2, 4)
    transpose_keys = n.draw.chance(0.5)  # transpose the keys by a TRANSPOSE instead of adj_y

    def head(*perm: int) -> TensorRef:
        return transpose(n, reshape(n, dense(n, x, heads * size), batch, steps, heads, size), *perm)

    query, key, value = head(0, 2, 1, 3), head(*((0, 2, 3, 1) if transpose_keys else (0, 2, 1, 3))), head(0, 2, 1, 3)
    if n.draw.chance(0.4):
        query = n.apply("MUL", [query, n.fusion_constant(size**-0.5)])
    scores = n.apply("BATCH_MATMUL", [query, key], (batch, heads, steps, steps), adj_x=False, adj_y=not transpose_keys)
    if n.draw.chance(0.5):
        scores = n.apply(
            n.draw.pick("MUL", "DIV") if n.dtype == "float32" else "MUL", [scores, n.fusion_constant(size**-0.5)]
        )
    if n.draw.chance(0.5):
        mask = np.where(np.tri(steps, dtype=bool), 0, n.draw.pick(-9, -2)).astype(np.float32)
        scores = n.apply("ADD", [scores, n.operand(mask.reshape((1,) * n.draw.pick(0, 2) + mask.shape))])
    weights = n.apply("SOFTMAX", [scores], beta=1.0)
    context = n.apply("BATCH_MATMUL", [weights, value], (batch, heads, steps, size), adj_x=False, adj_y=False)
    dense(n, reshape(n, transpose(n, context, 0, 2, 1, 3), batch, steps, heads * size), width)


@block(dtypes=("float32", "int8", "int16"))
def rotary_embedding(n: Network, x: TensorRef) -> None:
    """Add a rotary position embedding."""
    *rows, width = n.rank(x, 3, 4)
    if width % 2:
        raise Unsupported
    half_width = width // 2
    zeros = [0] * len(rows)

    def slice_half(begin: int) -> TensorRef:
        half_shape = (*rows, half_width)
        return n.apply(
            "SLICE", [x, n.index_constant([*zeros, begin]), n.index_constant([*rows, half_width])], half_shape, like=x
        )

    first_half, second_half = slice_half(0), slice_half(half_width)
    negated_second_half = (
        n.apply("NEG", [second_half], like=second_half)
        if n.dtype == "float32"
        else n.apply("MUL", [second_half, n.fusion_constant(-1)], like=second_half)
    )
    rotated_x = n.apply("CONCATENATION", [negated_second_half, first_half], (*rows, width), like=x, axis=len(rows))
    angles = n.numbers(rows[-1], half_width)
    tables = [n.operand(f(np.concatenate([angles, angles], 1)).astype(np.float32)) for f in (np.cos, np.sin)]
    n.apply("ADD", [n.apply("MUL", [x, tables[0]]), n.apply("MUL", [rotated_x, tables[1]])])


# --- images -----------------------------------------------------------------------------------


@block(weight=1.5)
def squeeze_and_excite(n: Network, x: TensorRef) -> None:
    """Add a squeeze-and-excitation block."""
    batch, _, _, c = n.rank(x, 4)
    channel_means = mean(n, x, 1, 2)
    if n.draw.chance(0.5):
        channel_rows = reshape(n, channel_means, batch, c)
        channel_scale = n.apply("LOGISTIC", [dense(n, dense(n, channel_rows, 4, fused_activation_function="RELU"), c)])
        channel_scale = reshape(n, channel_scale, batch, 1, 1, c)
    else:
        channel_scale = n.apply("LOGISTIC", [pointwise(n, channel_means, c)])
    n.apply("MUL", [x, channel_scale] if n.draw.chance(0.5) else [channel_scale, x], n.shape(x))


def pointwise(n: Network, x: TensorRef, out: int, activation: str = "NONE") -> TensorRef:
    *rows, c = n.rank(x, 4)
    operands = n.weights(x, n.numbers(out, 1, 1, c, spread=c**-0.5), 0, n.numbers(out, spread=0.3))
    return n.apply(
        "CONV_2D", [x, *operands], (*rows, out), padding="VALID", stride_h=1, stride_w=1,
        fused_activation_function=activation, **n.bias_type(operands),
    )  # fmt: skip


@block()
def pad_then_convolve(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    pads = [[0, 0], *([n.draw.between(0, 2), n.draw.between(1, 2)] for _ in "hw"), [0, 0]]
    padded_height, padded_width = (size + sum(pad) for size, pad in zip((h, w), pads[1:3], strict=True))
    if min(padded_height, padded_width) < 3:
        raise Unsupported
    y = n.apply("PAD", [x, n.index_constant(pads)], (batch, padded_height, padded_width, c), like=x)
    options: dict[str, Any] = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    if n.draw.chance(0.5):
        operands = n.weights(y, n.numbers(1, 3, 3, c, spread=0.4), 3, n.numbers(c, spread=0.3))
        n.apply(
            "DEPTHWISE_CONV_2D",
            [y, *operands],
            (batch, padded_height - 2, padded_width - 2, c),
            depth_multiplier=1,
            **options,
        )
        return
    operands = n.weights(y, n.numbers(5, 3, 3, c, spread=0.2), 0, n.numbers(5, spread=0.3))
    result = (batch, padded_height - 2, padded_width - 2, 5)
    n.apply("CONV_2D", [y, *operands], result, **options, **n.bias_type(operands))


@block()
def channel_shuffle(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    groups = n.draw.pick(*[k for k in (2, 3, 4) if c % k == 0] or [0])
    if not groups:
        raise Unsupported
    flat = n.draw.chance(0.5)
    image = (batch, h * w) if flat else (batch, h, w)
    axis = len(image)
    y = transpose(n, reshape(n, x, *image, groups, c // groups), *range(axis), axis + 1, axis)
    reshape(n, y, batch, h, w, c)


@block()
def residual(n: Network, x: TensorRef) -> None:
    """Add a residual block of two pointwise convolutions."""
    c = n.rank(x, 4)[-1]
    hidden = pointwise(n, x, n.draw.pick(3, 8), "RELU6")
    n.apply("ADD", [x, pointwise(n, hidden, c)], fused_activation_function=n.activation_function())


@block()
def grouped_convolution(n: Network, x: TensorRef) -> None:
    """Add a grouped convolution as SPLIT, convolutions and CONCATENATION."""
    *rows, c = n.rank(x, 4)
    if c % 2:
        raise Unsupported
    halves = [n.activation((*rows, c // 2), like=x) for _ in "ab"]
    inputs = [n.call([n.index_constant(3), x], *halves, code="SPLIT", num_splits=2), n.pool[-1]]
    results = [pointwise(n, half, 3) for half in inputs]
    if n.dtype in ("int8", "int16"):
        results = [results[0], n.rescale(results[1], like=results[0])]
    like = results[0] if n.dtype != "uint8" else None
    n.apply("CONCATENATION", results, (*rows, 6), like=like, axis=n.draw.pick(3, -1))


@block()
def conv_1d(n: Network, x: TensorRef) -> None:
    """Add a 1-D convolution in 2-D form, as exporters decompose it."""
    batch, steps, c = n.rank(x, 3)
    axis = n.draw.pick(1, 2)
    image = (batch, 1, steps, c) if axis == 1 else (batch, steps, 1, c)
    y = (
        reshape(n, x, *image)
        if n.draw.chance(0.5)
        else n.apply("EXPAND_DIMS", [x, n.index_constant(axis)], image, like=x)
    )
    kernel = [1, 3] if axis == 1 else [3, 1]
    operands = n.weights(y, n.numbers(5, *kernel, c, spread=(3 * c) ** -0.5), 0, n.numbers(5, spread=0.3))
    y = n.apply(
        "CONV_2D", [y, *operands], (*image[:3], 5), padding="SAME", stride_h=1, stride_w=1, **n.bias_type(operands)
    )
    if n.draw.chance(0.5):
        reshape(n, y, batch, steps, 5)
    else:
        n.apply("SQUEEZE", [y], (batch, steps, 5), like=y, squeeze_dims=[axis])


@block(dtypes=FLOATS)
def channels_first(n: Network, x: TensorRef) -> None:
    """Add a block with a TRANSPOSE around each operator, as PyTorch exports it."""
    batch, h, w, c = n.rank(x, 4)
    nchw = transpose(n, x, 0, 3, 1, 2)
    y = n.apply("ADD", [nchw, n.operand(n.numbers(1, c, 1, 1))]) if n.draw.chance(0.5) else nchw
    nhwc = transpose(n, y, 0, 2, 3, 1)
    z = transpose(n, pointwise(n, nhwc, 5), 0, 3, 1, 2)
    if n.draw.chance(0.5):
        z = n.apply("SOFTMAX", [z], beta=1.0)
    reshape(n, z, batch, prod((5, h, w))) if n.draw.chance(0.4) else transpose(n, z, 0, 2, 3, 1)
