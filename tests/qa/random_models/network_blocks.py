"""Random blocks of operators that ONNX expresses with one operator or a fused kernel, and near misses."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.models import constant
from tests.qa.random_models.networks import Network, Unfit, block

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
    return n.apply("TRANSPOSE", [x, n.table(perm)], [n.shape(x)[k] for k in perm], like=x)


def reshape(n: Network, x: TensorRef, *shape: int) -> TensorRef:
    return n.apply("RESHAPE", [x, n.table(shape)], shape, like=x, new_shape=list(shape))


def vectors(n: Network, x: TensorRef) -> tuple[int, ...]:
    """Return a shape to normalize along the last axis, which has more than one element; otherwise only rounding errors remain."""
    shape = n.rank(x, 2, 3, 4)
    if shape[-1] < 2:
        raise Unfit
    return shape


def mean(n: Network, x: TensorRef, *axes: int) -> TensorRef:
    """Add a mean that keeps the axes."""
    kept = [1 if k in axes else size for k, size in enumerate(n.shape(x))]
    return n.apply("MEAN", [x, n.table(axes)], kept, keep_dims=True)


# --- activations ------------------------------------------------------------------------------


@block(dtypes=BYTES)
def hard_swish(n: Network, x: TensorRef) -> None:
    if n.draw.chance(0.5):
        gate = n.apply("ADD", [x, n.near(3)], fused_activation_function="RELU6")
    else:
        gate = n.apply("RELU6", [n.apply("ADD", [x, n.near(3)])])
    if n.draw.chance(0.3):
        n.apply("MUL", [n.apply("MUL", [gate, n.near(1 / 6)]), x])
    else:
        n.apply("MUL", [n.apply("MUL", [x, gate]), n.near(1 / 6)])


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
    inner = n.apply("MUL", [n.apply("ADD", [x, n.apply("MUL", [cube, n.near(0.044715)])]), n.near(0.7978846)])
    gate = n.apply("ADD", [n.apply("TANH", [inner]), n.near(1)])
    if n.draw.chance(0.5):
        n.apply("MUL", [n.apply("MUL", [x, n.near(0.5)]), gate])
    else:
        n.apply("MUL", [n.apply("MUL", [x, gate]), n.near(0.5)])


@block(dtypes=FLOATS)
def mish(n: Network, x: TensorRef) -> None:
    n.apply("MUL", [x, n.apply("TANH", [n.apply("LOG", [n.apply("ADD", [n.apply("EXP", [x]), n.near(1)])])])])


@block(dtypes=BYTES)
def slopes(n: Network, x: TensorRef) -> None:
    if n.draw.chance(0.5):
        n.apply("MAXIMUM", [n.apply("MUL", [x, n.near(0.13)], like=x), x], like=x)
        return
    below = n.apply("RELU", [n.apply("MUL", [x, n.near(-1)])])
    steep = n.apply("MUL", [below, n.operand(n.numbers(n.shape(x)[-1], spread=0.2))])
    n.apply("ADD", [n.apply("RELU", [x]), steep])


@block()
def gate(n: Network, x: TensorRef) -> None:
    """Multiply half of the channels by the other half."""
    *rows, channels = n.rank(x, 2, 3, 4)
    if channels % 2:
        raise Unfit
    axis = n.draw.pick(len(rows), -1)
    part = [n.activation((*rows, channels // 2), like=x) for _ in "ab"]
    first = n.call([n.table(axis), x], *part, code="SPLIT", num_splits=2)
    n.apply("MUL", [first, n.apply("LOGISTIC", [n.pool[-1]])])


# --- normalization ----------------------------------------------------------------------------


@block(weight=1.5, dtypes=FLOATS)
def layer_norm(n: Network, x: TensorRef) -> None:
    last = len(vectors(n, x)) - 1
    axes = n.draw.pick([last], [last], [last - 1, last])
    middle = mean(n, x, *axes)
    centred = n.apply("SUB", [x, middle])
    square = n.draw.pick(
        lambda: n.apply("SQUARED_DIFFERENCE", [x, middle]),
        lambda: n.apply("MUL", [centred, centred]),
        lambda: n.apply("SQUARE", [centred]),
    )()
    steady = n.apply("ADD", [mean(n, square, *axes), n.near(1e-3)])
    if n.draw.chance(0.5):
        y = n.apply("MUL", [centred, n.apply("RSQRT", [steady])])
    else:
        y = n.apply("DIV", [centred, n.apply("SQRT", [steady])])
    scale(n, y, shifted=n.draw.chance(0.7))


@block(dtypes=FLOATS)
def batch_norm_of_a_layer(n: Network, x: TensorRef) -> None:
    """Add batch normalization as Keras writes it: the factor is multiplied before the mean is subtracted."""
    shape = vectors(n, x)
    middle = mean(n, x, len(shape) - 1)
    spread = mean(n, n.apply("SQUARED_DIFFERENCE", [x, middle]), len(shape) - 1)
    inverse = n.apply("RSQRT", [n.apply("ADD", [spread, n.near(1e-3)])])
    factor = n.apply("MUL", [inverse, n.operand(np.float32(1) + n.numbers(shape[-1], spread=0.2))], shape)
    shift = n.apply("SUB", [n.operand(n.numbers(shape[-1])), n.apply("MUL", [factor, middle])], shape)
    n.apply("ADD", [n.apply("MUL", [x, factor], shape), shift], shape)


@block(dtypes=FLOATS)
def rms_norm(n: Network, x: TensorRef) -> None:
    last = len(vectors(n, x)) - 1
    square = n.apply("MUL", [x, x]) if n.draw.chance(0.5) else n.apply("SQUARE", [x])
    inverse = n.apply("RSQRT", [n.apply("ADD", [mean(n, square, last), n.near(1e-5)])])
    scale(n, n.apply("MUL", [x, inverse] if n.draw.chance(0.5) else [inverse, x], n.shape(x)), shifted=False)


@block(weight=0.7, dtypes=FLOATS)
def unit_length(n: Network, x: TensorRef) -> None:
    shape = vectors(n, x)
    kept = (*shape[:-1], 1)
    total = n.apply("SUM", [n.apply("MUL", [x, x]), n.table([len(shape) - 1])], kept, keep_dims=True)
    if n.draw.chance(0.5):
        n.apply("MUL", [x, n.apply("RSQRT", [n.apply("MAXIMUM", [total, n.near(1e-6)])])])
    else:
        n.apply("DIV", [x, n.apply("SQRT", [n.apply("ADD", [total, n.near(1e-6)])])])


@block(weight=0.7, dtypes=FLOATS)
def soft_maximum(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    axes, kept = n.table([len(shape) - 1]), (*shape[:-1], 1)
    most = n.apply("REDUCE_MAX", [x, axes], kept, keep_dims=True)
    power = n.apply("EXP", [n.apply("SUB", [x, most])])
    n.apply("DIV", [power, n.apply("SUM", [power, axes], kept, keep_dims=True)])


@block()
def of_each_channel(n: Network, x: TensorRef) -> None:
    """Add batch normalization after an operator with a bias."""
    n.rank(x, 2, 3, 4)
    scale(n, x)


@block(weight=0.7, dtypes=FLOATS)
def standardize(n: Network, x: TensorRef) -> None:
    middle = n.operand(n.numbers(n.shape(x)[-1]))
    n.apply("MUL", [n.apply("SUB", [x, middle]), n.operand(np.abs(n.numbers(n.shape(x)[-1])) + np.float32(0.5))])


@block(weight=0.7, dtypes=FLOATS)
def group_norm(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    if c % 2:
        raise Unfit
    groups = reshape(n, x, batch, h, w, 2, c // 2) if n.draw.chance(0.5) else reshape(n, x, batch, h * w, 2, c // 2)
    axes = (1, 2, 4) if len(n.shape(groups)) == 5 else (1, 3)
    centred = n.apply("SUB", [groups, mean(n, groups, *axes)])
    spread = mean(n, n.apply("SQUARE", [centred]), *axes)
    y = n.apply("MUL", [centred, n.apply("RSQRT", [n.apply("ADD", [spread, n.near(1e-3)])])])
    scale(n, reshape(n, y, batch, h, w, c))


# --- attention --------------------------------------------------------------------------------


@block(weight=1.5, dtypes=("float32", "int8"))
def attention(n: Network, x: TensorRef) -> None:
    batch, steps, width = n.rank(x, 3)
    heads, size = n.draw.pick(1, 2, 3), n.draw.pick(2, 4)
    turned = n.draw.chance(0.5)  # of the keys, by a TRANSPOSE rather than by the product

    def head(*perm: int) -> TensorRef:
        return transpose(n, reshape(n, dense(n, x, heads * size), batch, steps, heads, size), *perm)

    query, key, value = head(0, 2, 1, 3), head(*((0, 2, 3, 1) if turned else (0, 2, 1, 3))), head(0, 2, 1, 3)
    if n.draw.chance(0.4):
        query = n.apply("MUL", [query, n.near(size**-0.5)])
    scores = n.apply("BATCH_MATMUL", [query, key], (batch, heads, steps, steps), adj_x=False, adj_y=not turned)
    if n.draw.chance(0.5):
        scores = n.apply(n.draw.pick("MUL", "DIV") if n.dtype == "float32" else "MUL", [scores, n.near(size**-0.5)])
    if n.draw.chance(0.5):
        mask = np.where(np.tri(steps, dtype=bool), 0, n.draw.pick(-9, -2)).astype(np.float32)
        scores = n.apply("ADD", [scores, n.operand(mask.reshape((1,) * n.draw.pick(0, 2) + mask.shape))])
    shares = n.apply("SOFTMAX", [scores], beta=1.0)
    mixed = n.apply("BATCH_MATMUL", [shares, value], (batch, heads, steps, size), adj_x=False, adj_y=False)
    dense(n, reshape(n, transpose(n, mixed, 0, 2, 1, 3), batch, steps, heads * size), width)


@block(dtypes=("float32", "int8", "int16"))
def rotate(n: Network, x: TensorRef) -> None:
    """Add a rotary position embedding."""
    *rows, width = n.rank(x, 3, 4)
    if width % 2:
        raise Unfit
    half = width // 2
    zeros = [0] * len(rows)

    def part(begin: int) -> TensorRef:
        cut = (*rows, half)
        return n.apply("SLICE", [x, n.table([*zeros, begin]), n.table([*rows, half])], cut, like=x)

    low, high = part(0), part(half)
    minus = n.apply("NEG", [high], like=high) if n.dtype == "float32" else n.apply("MUL", [high, n.near(-1)], like=high)
    turned = n.apply("CONCATENATION", [minus, low], (*rows, width), like=x, axis=len(rows))
    angles = n.numbers(rows[-1], half)
    tables = [n.operand(f(np.concatenate([angles, angles], 1)).astype(np.float32)) for f in (np.cos, np.sin)]
    n.apply("ADD", [n.apply("MUL", [x, tables[0]]), n.apply("MUL", [turned, tables[1]])])


# --- images -----------------------------------------------------------------------------------


@block(weight=1.5)
def excite(n: Network, x: TensorRef) -> None:
    """Scale channels by a function of the image's mean."""
    batch, _, _, c = n.rank(x, 4)
    squeezed = mean(n, x, 1, 2)
    if n.draw.chance(0.5):
        flat = reshape(n, squeezed, batch, c)
        gate = n.apply("LOGISTIC", [dense(n, dense(n, flat, 4, fused_activation_function="RELU"), c)])
        gate = reshape(n, gate, batch, 1, 1, c)
    else:
        gate = n.apply("LOGISTIC", [pointwise(n, squeezed, c)])
    n.apply("MUL", [x, gate] if n.draw.chance(0.5) else [gate, x], n.shape(x))


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
    rows = [[0, 0], *([n.draw.between(0, 2), n.draw.between(1, 2)] for _ in "hw"), [0, 0]]
    high, wide = (size + sum(row) for size, row in zip((h, w), rows[1:3], strict=True))
    if min(high, wide) < 3:
        raise Unfit
    y = n.apply("PAD", [x, n.table(rows)], (batch, high, wide, c), like=x)
    options: dict[str, Any] = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    if n.draw.chance(0.5):
        operands = n.weights(y, n.numbers(1, 3, 3, c, spread=0.4), 3, n.numbers(c, spread=0.3))
        n.apply("DEPTHWISE_CONV_2D", [y, *operands], (batch, high - 2, wide - 2, c), depth_multiplier=1, **options)
        return
    operands = n.weights(y, n.numbers(5, 3, 3, c, spread=0.2), 0, n.numbers(5, spread=0.3))
    result = (batch, high - 2, wide - 2, 5)
    n.apply("CONV_2D", [y, *operands], result, **options, **n.bias_type(operands))


@block()
def shuffle(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    groups = n.draw.pick(*[k for k in (2, 3, 4) if c % k == 0] or [0])
    if not groups:
        raise Unfit
    flat = n.draw.chance(0.5)
    image = (batch, h * w) if flat else (batch, h, w)
    at = len(image)
    y = transpose(n, reshape(n, x, *image, groups, c // groups), *range(at), at + 1, at)
    reshape(n, y, batch, h, w, c)


@block()
def residual(n: Network, x: TensorRef) -> None:
    """Add a residual block of two pointwise convolutions."""
    c = n.rank(x, 4)[-1]
    inner = pointwise(n, x, n.draw.pick(3, 8), "RELU6")
    n.apply("ADD", [x, pointwise(n, inner, c)], fused_activation_function=n.activation_function())


@block()
def group(n: Network, x: TensorRef) -> None:
    """Add a grouped convolution as SPLIT, convolutions and CONCATENATION."""
    *rows, c = n.rank(x, 4)
    if c % 2:
        raise Unfit
    part = [n.activation((*rows, c // 2), like=x) for _ in "ab"]
    parts = [n.call([n.table(3), x], *part, code="SPLIT", num_splits=2), n.pool[-1]]
    made = [pointwise(n, part, 3) for part in parts]
    if n.dtype in ("int8", "int16"):
        made = [made[0], n.rescale(made[1], like=made[0])]
    like = made[0] if n.dtype != "uint8" else None
    n.apply("CONCATENATION", made, (*rows, 6), like=like, axis=n.draw.pick(3, -1))


@block()
def of_one_dimension(n: Network, x: TensorRef) -> None:
    """Add a convolution over time as exporters write it: with an inserted and removed axis of size 1."""
    batch, steps, c = n.rank(x, 3)
    at = n.draw.pick(1, 2)
    image = (batch, 1, steps, c) if at == 1 else (batch, steps, 1, c)
    y = reshape(n, x, *image) if n.draw.chance(0.5) else n.apply("EXPAND_DIMS", [x, n.table(at)], image, like=x)
    kernel = [1, 3] if at == 1 else [3, 1]
    operands = n.weights(y, n.numbers(5, *kernel, c, spread=(3 * c) ** -0.5), 0, n.numbers(5, spread=0.3))
    y = n.apply(
        "CONV_2D", [y, *operands], (*image[:3], 5), padding="SAME", stride_h=1, stride_w=1, **n.bias_type(operands)
    )
    if n.draw.chance(0.5):
        reshape(n, y, batch, steps, 5)
    else:
        n.apply("SQUEEZE", [y], (batch, steps, 5), like=y, squeeze_dims=[at])


@block(dtypes=FLOATS)
def channels_first(n: Network, x: TensorRef) -> None:
    """Add a block with a TRANSPOSE before and after each operator, as in PyTorch exports."""
    batch, h, w, c = n.rank(x, 4)
    first = transpose(n, x, 0, 3, 1, 2)
    y = n.apply("ADD", [first, n.operand(n.numbers(1, c, 1, 1))]) if n.draw.chance(0.5) else first
    back = transpose(n, y, 0, 2, 3, 1)
    z = transpose(n, pointwise(n, back, 5), 0, 3, 1, 2)
    if n.draw.chance(0.5):
        z = n.apply("SOFTMAX", [z], beta=1.0)
    reshape(n, z, batch, prod((5, h, w))) if n.draw.chance(0.4) else transpose(n, z, 0, 2, 3, 1)
