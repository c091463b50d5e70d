"""Steps of random networks that add one operator with arithmetic."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.models import Spec
from tests.qa.random_models.networks import Network, Unsupported, step
from tests.qa.random_models.reductions import PARAMETERS
from tests.qa.random_models.windows import Window

# --- weights ----------------------------------------------------------------------------------


def window(n: Network, size: tuple[int, int], dilates: bool = True) -> tuple[list[int], dict[str, Any], list[int]]:
    """Return a random kernel size, its options, and the resulting sizes."""
    random_window = Window(n.draw, size, dilates)
    return (
        random_window.kernel,
        random_window.options("h", "w") | (random_window.dilations("h", "w") if dilates else {}),
        random_window.result,
    )


@step("CONV_2D", weight=5)
def conv(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    kernel, options, sizes = window(n, (h, w))
    out = n.draw.pick(1, 3, 5, 8)
    array = n.numbers(out, *kernel, c, spread=(c * prod(kernel)) ** -0.5)
    operands = n.weights(x, array, 0, n.numbers(out, spread=0.3))
    y = n.activation((batch, *sizes, out))
    activation = n.activation_function()
    n.call([x, *operands], y, fused_activation_function=activation, **options, **n.bias_type(operands))


@step("DEPTHWISE_CONV_2D", weight=3)
def depthwise(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    kernel, options, sizes = window(n, (h, w))
    multiplier = n.draw.pick(1, 1, 2)
    operands = n.weights(x, n.numbers(1, *kernel, c * multiplier, spread=0.5), 3, n.numbers(c * multiplier, spread=0.3))
    activation = n.activation_function()
    y = n.activation((batch, *sizes, c * multiplier))
    n.call([x, *operands], y, depth_multiplier=multiplier, fused_activation_function=activation, **options)


@step("TRANSPOSE_CONV", weight=1.5)
def transpose(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    stride = n.draw.pick(1, 2)
    kernel = [
        n.draw.pick(stride, stride, 3) for _ in "hw"
    ]  # LiteRT sometimes crashes if a kernel is smaller than the stride
    is_same = n.draw.chance(0.5)
    sizes = [s * stride if is_same else (s - 1) * stride + k for s, k in zip((h, w), kernel, strict=True)]
    out = n.draw.pick(1, 3, 5)
    weight, bias = n.weights(x, n.numbers(out, *kernel, c, spread=0.4), 0, n.numbers(out, spread=0.3))
    y = n.activation((batch, *sizes, out))
    operands = [n.index_constant([batch, *sizes, out]), weight, x, *([] if bias is None else [bias])]
    options = {} if bias is None else n.bias_type([bias])
    n.call(operands, y, padding="SAME" if is_same else "VALID", stride_h=stride, stride_w=stride, **options)


@step("FULLY_CONNECTED", weight=2.5)
def dense(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    out, keep_dims = n.draw.pick(1, 4, 6, 8), n.draw.chance(0.5)
    depth = shape[-1]
    rows = (*shape[:-1], out) if keep_dims else (prod(shape[:-1]), out)
    operands = n.weights(x, n.numbers(out, depth, spread=depth**-0.5), 0, n.numbers(out, spread=0.3))
    activation = n.draw.pick("NONE", "NONE", "RELU", "RELU6")
    y = n.activation(rows)
    n.call([x, *operands], y, keep_num_dims=keep_dims, fused_activation_function=activation, **n.bias_type(operands))


@step("BATCH_MATMUL")
def batch_matmul(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    transpose_x, transpose_y = n.draw.chance(0.5), n.draw.chance(0.5)
    rows, depth = (shape[-1], shape[-2]) if transpose_x else shape[-2:]
    if n.draw.chance(0.5):  # with itself, one of them transposed
        transpose_y = not transpose_x
        y = n.activation((*shape[:-2], rows, rows))
        n.call([x, x], y, adj_x=transpose_x, adj_y=transpose_y)
        return
    out = n.draw.pick(2, 3, 5)
    w = n.operand(n.numbers(*shape[:-2], *((out, depth) if transpose_y else (depth, out)), spread=depth**-0.5))
    y = n.activation((*shape[:-2], rows, out))
    n.call([x, w], y, adj_x=transpose_x, adj_y=transpose_y)


# --- elements ---------------------------------------------------------------------------------


@step("ADD", weight=4)
@step("SUB", "MUL", weight=2)
def arithmetic(n: Network, x: TensorRef) -> None:
    shape = n.shape(x)
    y: Any = n.same_shape_tensor(x)
    if n.draw.chance(0.4):
        remaining_sizes = shape[n.draw.between(0, len(shape)) :]
        y = n.operand(n.numbers(*(1 if n.draw.chance(0.2) else size for size in remaining_sizes)))
    operands = [x, y] if n.draw.chance(0.7) else [y, x]
    activation = n.activation_function()
    n.call(operands, n.activation(shape), fused_activation_function=activation)


@step("DIV", "SQUARED_DIFFERENCE", weight=0.5)
def combine_with_constant(n: Network, x: TensorRef) -> None:
    shape = n.shape(x)
    numbers = n.numbers(*shape[-1:])
    numbers = np.sign(numbers) * np.maximum(np.abs(numbers), 0.5)
    if n.dtype != "float32" and n.code == "DIV":
        raise Unsupported
    y = n.operand(numbers)
    n.call([x, y], n.activation(shape))


@step("MAXIMUM", "MINIMUM", weight=0.7)
def clamp_to_constant(n: Network, x: TensorRef) -> None:
    shape = n.shape(x)
    n.call([x, n.operand(n.numbers(*shape[-1:]), like=x)], n.activation(shape, like=x))


@step("RELU", "RELU6", "HARD_SWISH", "LEAKY_RELU", weight=1.2)
@step("ABS", "GELU", "ELU", "NEG", "SIN", "EXP", "SQUARE", weight=0.4)
def unary(n: Network, x: TensorRef) -> None:
    if n.code in ("EXP", "SQUARE") and n.kind not in ("float32", "half"):
        raise Unsupported  # would amplify an error of one step
    options = {"alpha": 0.2} if n.code == "LEAKY_RELU" else {}
    like = x if n.code == "NEG" else None
    n.call([x], n.activation(n.shape(x), like=like), **options)


@step("LOGISTIC", "TANH", "SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION", weight=0.8)
def bounded_function(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4) if n.code in PARAMETERS else n.shape(x)
    n.apply(n.code, [x], shape, **({"beta": 1.0} if n.code == "SOFTMAX" else {}))


@step("PRELU", weight=0.7)
def prelu(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 3, 4)
    if n.dtype == "int16":
        raise Unsupported  # its slopes are int8
    slopes = n.operand(np.abs(n.numbers(*(1 for _ in shape[1:-1]), shape[-1])) * np.float32(0.3))
    n.call([x, slopes], n.activation(shape))


@step("SELECT_V2", weight=0.5)
def select_values(n: Network, x: TensorRef) -> None:
    shape = n.shape(x)
    y = n.net.call_multi_output("GREATER", [x, x], Spec(shape, "bool"), version=2)[0]
    n.call([y, x, n.operand(n.numbers(*shape[-1:]), like=x)], n.activation(shape, like=x))


@step("QUANTIZE", weight=0.8)
def requantize(n: Network, x: TensorRef) -> None:
    if n.dtype == "float32":
        raise Unsupported
    n.rescale(x)


# --- reductions, pools, resizes ---------------------------------------------------------------


@step("MEAN", weight=1.5)
@step("SUM", "REDUCE_MAX", weight=0.7)
def reduce(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    spatial = len(shape) == 4 and n.draw.chance(0.6)
    axes = (
        [1, 2]
        if spatial
        else sorted(n.draw.random.choice(len(shape), n.draw.between(1, len(shape) - 1), replace=False).tolist())
    )
    keep = n.draw.chance(0.5)
    result = tuple(1 if k in axes else size for k, size in enumerate(shape) if keep or k not in axes)
    y = n.activation(result, like=x if n.code.startswith("REDUCE") else None)
    n.call([x, n.index_constant([k - len(shape) if n.draw.chance(0.3) else k for k in axes])], y, keep_dims=keep)


@step("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    kernel, options, sizes = window(n, (h, w), False)
    y = n.activation((batch, *sizes, c), like=x)
    n.call(
        [x],
        y,
        filter_height=kernel[0],
        filter_width=kernel[1],
        fused_activation_function=n.draw.pick("NONE", "RELU"),
        **options,
    )


@step("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    size = [h * 2, w * 2] if n.draw.chance(0.5) else [n.draw.between(1, 9), n.draw.between(1, 9)]
    mode = n.draw.pick({}, {"half_pixel_centers": True}, {"align_corners": True})
    n.call([x, n.index_constant(size)], n.activation((batch, *size, c), like=x), **mode)
