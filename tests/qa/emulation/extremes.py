"""Products of extreme values, whose 16-bit sums overflow.

Adjacent products along K overflow kernels that add them in 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import Case
from conformance.lstms import Lstm
from conformance.models import Net, Spec, constant, in_isolation, net, random_array, tensor
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT

SCALE = 0.013  # scale of the weights
MIN_WEIGHTS = (-127, -128)
"""Minimum weight of a model. With -128, kernels of ARM processors overflow too. For float activations, LiteRT's builtin kernels
on x86 also overflow, because they negate in int8 (DotProdInt8x4x4, optimized/sse_tensor_utils.cc)."""
ITERATIONS = 3
BIASES = {"float32": "float32", "int8": "int32", "uint8": "int32", "int16": "int64"}


def extreme_weights(count: int, depth: int) -> Array:
    """Return int8 weights ``[count, depth]``.

    Patterns of rows: all 127, all -128, pairs of each, alternating, random.
    """
    k = np.arange(depth)
    patterns = (
        np.full(depth, 127),
        np.full(depth, -128),
        np.where(k // 2 % 2, -128, 127),
        np.where(k % 2, -128, 127),
        random_array(depth, dtype="int8", seed="row"),
    )
    return np.stack([np.roll(patterns[row % 5], row // 5) for row in range(count)]).astype(np.int8)


def activations(shape: Sequence[int], dtype: str) -> list[Array]:
    """Return one float32 array in [-1, 1] per run.

    Patterns: all maximum, all minimum, pairs of channels, random extremes, random.
    """
    if dtype == "float32":
        return [(array / 128).astype(np.float32) for array in activations(shape, "int8")]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    runs = (
        np.full(shape, high),
        np.full(shape, low),
        np.broadcast_to(np.where(np.arange(shape[-1]) // 2 % 2, low, high), shape),
        np.where(random_array(*shape, dtype="bool", seed="either"), low, high),
        random_array(*shape, dtype=dtype, seed="between"),
    )
    return [array.astype(dtype) for array in runs]


def weight(values: Array, min_weight: int, dtype: str = "int8", per_axis: int | None = None) -> Spec:
    """Return int8 weights of at least ``min_weight``; uint8 for uint8 activations.

    The scale is per tensor or per axis.
    """
    values = np.maximum(values, min_weight).astype(np.int8)
    if dtype == "uint8":
        return constant((values.astype(np.int16) + 128).astype(np.uint8), None, SCALE, 128)
    if per_axis is None:
        return constant(values, None, SCALE)
    scales = SCALE * np.linspace(0.8, 1.2, values.shape[per_axis])
    return constant(values, None, scales.tolist(), 0, per_axis)


def result(x: Spec, shape: Sequence[int], depth: int) -> Spec:
    """Return a result spec for sums of ``depth`` extreme products.

    Its scale is so fine that an overflow changes the result by tens of steps.
    """
    if x.scale is None:
        return Spec(tuple(shape))
    scale = float(np.asarray(x.scale)) * SCALE * depth * 128
    return Spec(tuple(shape), x.dtype, scale, 128 if x.dtype == "uint8" else 0)


def zeros(x: Spec, w: Spec, count: int) -> Spec:
    """Return a bias of zeros."""
    scales = None if x.scale is None else (float(np.asarray(x.scale)) * np.atleast_1d(np.asarray(w.scale))).tolist()
    return constant(np.zeros(count), BIASES[x.dtype], scales)


def with_inputs(case: Case, **inputs: Sequence[Array]) -> Case:
    """Return the case with these arrays by input name, one per run."""
    return replace(
        case, input_arrays=[dict(zip(inputs, arrays, strict=True)) for arrays in zip(*inputs.values(), strict=True)]
    )


# --- one product ------------------------------------------------------------------------------


def conv(
    name: str,
    shape: Sequence[int],
    out: int,
    kernel: tuple[int, int] = (3, 3),
    *,
    dtype: str = "int8",
    min_weight: int = -127,
    groups: int = 1,
    per_axis: bool = False,
) -> Case:
    """Return CONV_2D with SAME padding over an image ``[n, h, w, c]``."""
    x, depth = tensor(*shape, dtype=dtype), prod(kernel) * shape[-1] // groups
    w = weight(extreme_weights(out, depth).reshape(out, *kernel, -1), min_weight, dtype, 0 if per_axis else None)
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    y = result(x, (*shape[:-1], out), depth)
    case = in_isolation("CONV_2D", name, [x, w, zeros(x, w, out)], y, options=options)
    return with_inputs(case, x0=activations(shape, dtype))


def depthwise(
    name: str,
    shape: Sequence[int],
    multiplier: int = 1,
    kernel: int = 3,
    *,
    dtype: str = "int8",
    min_weight: int = -127,
) -> Case:
    """Return DEPTHWISE_CONV_2D with SAME padding over an image ``[n, h, w, c]``."""
    out, depth = shape[-1] * multiplier, kernel * kernel
    x = tensor(*shape, dtype=dtype)
    w = weight(np.ascontiguousarray(extreme_weights(out, depth).T).reshape(1, kernel, kernel, out), min_weight, dtype)
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "depth_multiplier": multiplier}
    y = result(x, (*shape[:-1], out), depth)
    case = in_isolation("DEPTHWISE_CONV_2D", name, [x, w, zeros(x, w, out)], y, options=options)
    return with_inputs(case, x0=activations(shape, dtype))


def reorder(name: str, shape: Sequence[int], out: int) -> Case:
    """Return a CONV_2D whose channels overflow unless they are reordered.

    An identity CONV_2D precedes it and produces the channels.
    """
    x, channels = tensor(*shape, dtype="int8"), shape[-1]
    identity = weight(127 * np.eye(channels).reshape(channels, 1, 1, channels), -127)
    values = np.where(np.arange(channels) < channels // 4, 127, 0) * np.where(np.arange(out) % 2, -1, 1)[:, np.newaxis]
    w = weight(values.reshape(out, 1, 1, channels), -127)
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}

    def build(model: Net) -> None:
        between = x.rescale(127 * SCALE)
        y = model.call("CONV_2D", [x, identity, zeros(x, identity, channels)], between, **options)
        model.output(
            model.call(
                "CONV_2D", [y, w, zeros(between, w, out)], result(between, (*shape[:-1], out), channels), **options
            )
        )

    return with_inputs(net("CONV_2D", name, build, dtype="int8"), x0=activations(shape, "int8"))


def transpose(name: str, shape: Sequence[int], out: int, *, dtype: str = "int8", min_weight: int = -127) -> Case:
    """Return TRANSPOSE_CONV of an image [n, h, w, c] with a 3 x 3 kernel and stride 2."""
    n, height, width, channels = shape
    x, result_shape = tensor(*shape, dtype=dtype), (n, 2 * height, 2 * width, out)
    w = weight(extreme_weights(out, 9 * channels).reshape(out, 3, 3, channels), min_weight, dtype)
    options = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
    y = result(x, result_shape, 4 * channels)  # at most four kernel elements contribute to a pixel
    case = in_isolation("TRANSPOSE_CONV", name, [constant(list(result_shape)), w, x], y, options=options)
    return with_inputs(replace(case, dtype=dtype), x0=activations(shape, dtype))


def dense(name: str, shape: tuple[int, int], out: int, *, dtype: str = "int8", min_weight: int = -127) -> Case:
    """Return FULLY_CONNECTED of rows ``[n, k]``.

    For float rows and weights of -128, only XNNPACK is a valid reference.
    """
    x, w = tensor(*shape, dtype=dtype), weight(extreme_weights(out, shape[-1]), min_weight, dtype)
    y = result(x, (shape[0], out), shape[-1])
    case = with_inputs(in_isolation("FULLY_CONNECTED", name, [x, w, zeros(x, w, out)], y), x0=activations(shape, dtype))
    if dtype != "float32" or min_weight > -128:
        return case
    return replace(case, reference=lambda arrays: LiteRT(case.build(), "xnnpack").run(arrays))


def matmul(name: str, shape: Sequence[int], out: int, *, constant_weights: bool, min_weight: int = -127) -> Case:
    """Return BATCH_MATMUL of int8 rows [..., k] by columns [k, out]."""
    x, w = tensor(*shape, dtype="int8"), weight(np.ascontiguousarray(extreme_weights(out, shape[-1]).T), min_weight)
    y, arrays = result(x, (*shape[:-1], out), shape[-1]), activations(shape, "int8")
    if constant_weights:
        return with_inputs(in_isolation("BATCH_MATMUL", name, [x, w], y), x0=arrays)
    assert w.value is not None
    return with_inputs(
        in_isolation("BATCH_MATMUL", name, [x, replace(w, value=None)], y), x0=arrays, x1=[w.value] * len(arrays)
    )


# --- products inside a loop -------------------------------------------------------------------


def loop_case(name: str, shape: tuple[int, int], *, dtype: str = "int8", min_weight: int = -127) -> Case:
    """Return a WHILE that multiplies its rows ``[n, k]`` in each iteration.

    The factors are 1 and ``[k, k]``. Carried values have the dtype of the file; values between the two products of the
    body may have another.
    """
    x, depth = tensor(*shape, dtype=dtype), shape[-1]
    w, y = weight(extreme_weights(depth, depth), min_weight), result(x, shape, depth)
    identity = constant(np.eye(depth), "int8", 1.0)

    def build(model: Net) -> None:
        cond, body = model.model.subgraph("cond"), model.model.subgraph("body")
        iteration, *_ = _loop_values(cond, x, y)
        condition = cond.tensor("condition", (), "bool")
        cond.operator("LESS", [iteration, cond.constant("iterations", np.int32(ITERATIONS))], [condition])
        cond.output(condition)
        iteration, value, _ = _loop_values(body, x, y)
        next_iteration = body.tensor("next_iteration", (), "int32")
        body.operator("ADD", [iteration, body.constant("one", np.int32(1))], [next_iteration])
        carried = [value]
        for k, (factor, like) in enumerate(((identity, x), (w, y))):
            constants = [factor, zeros(x, factor, depth)]
            operands = [body.constant(f"c{k}", c.value, c.dtype, quantization=c.quantization) for c in constants]
            carried.append(body.tensor(f"product {k}", shape, dtype, quantization=like.quantization))
            body.operator("FULLY_CONNECTED", [carried[k], *operands], [carried[k + 1]])
        body.output(next_iteration, value, carried[-1])
        initial = constant(np.zeros(shape, dtype), None, y.scale, y.zero_point)
        inputs = [model.add_operand(constant(np.int32(0))), model.input(x), model.add_operand(initial)]
        results = [model.result(spec) for spec in (Spec((), "int32"), x, y)]
        graphs = {"cond_subgraph_index": cond.index, "body_subgraph_index": body.index}
        model.graph.operator("WHILE", inputs, results, graphs)
        model.output(results[2])

    return with_inputs(net("WHILE", name, build, dtype=dtype), x0=activations(shape, dtype))


@dataclass(frozen=True)
class Cell(Lstm):
    """An LSTM with extreme int8 matrices, whose gates stay within their range."""

    weights: str = "int8"
    inputs: int = 32

    def matrix(self, rows: int, columns: int, name: str, size: float = 0.0) -> Spec:
        max_input = 1.0 if self.x.scale is None else 128 * float(np.asarray(self.x.scale))
        return constant(
            np.maximum(extreme_weights(rows, columns), MIN_WEIGHTS[0]), "int8", 4 / (128 * columns * max_input)
        )

    def case_with_inputs(self, name: str) -> Case:
        return with_inputs(self.case(name), x0=activations([size or 1 for size in self.x.shape], self.dtype))


def _loop_values(graph: GraphBuilder, x: Spec, y: Spec) -> list[TensorRef]:
    """Return the loop-carried values: iteration, rows, last product."""
    specs = {"iteration": Spec((), "int32"), "rows": x, "product": y}
    return [graph.input(name, s.shape, s.dtype, quantization=s.quantization) for name, s in specs.items()]
