"""Steps of random networks that only move elements."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from tests.qa.random_models.networks import MAX_ELEMENTS, Network, Unsupported, step


@step("PAD", weight=1.5)
@step("PADV2", "MIRROR_PAD", weight=0.4)
def pad(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    pads_image = len(shape) == 4 and n.draw.chance(0.6)
    max_padding = [min(2, size - 1) if n.code == "MIRROR_PAD" else 2 for size in shape]
    rows = [
        [0, 0] if pads_image and k in (0, 3) else [n.draw.between(0, m) for _ in "be"]
        for k, m in enumerate(max_padding)
    ]
    y = n.activation([size + sum(row) for size, row in zip(shape, rows, strict=True)], like=x)
    options = {"mode": n.draw.pick("REFLECT", "SYMMETRIC")} if n.code == "MIRROR_PAD" else {}
    pad_value: list[Any] = []
    if n.code == "PADV2":
        spec = n.net.spec(x)
        value = np.asarray(0.5, np.float32) if spec.dtype == "float32" else np.asarray(7, spec.dtype)
        pad_value = [replace(spec, shape=(), value=value, name="")]
    n.call([x, n.index_constant(rows), *pad_value], y, **options)


@step("TRANSPOSE", weight=2)
def transpose_axes(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4, 5)
    perm = n.draw.random.permutation(len(shape)).tolist()
    if len(shape) == 4 and n.draw.chance(0.5):
        perm = n.draw.pick([0, 3, 1, 2], [0, 2, 3, 1], [0, 2, 1, 3])
    n.call([x, n.index_constant(perm)], n.activation([shape[k] for k in perm], like=x))


@step("RESHAPE", weight=2.5)
def reshape(n: Network, x: TensorRef) -> None:
    shape = n.shape(x)
    split_at = n.draw.between(1, max(len(shape) - 1, 1))
    choices = [
        (*shape[: split_at - 1], prod(shape[split_at - 1 :])),
        (prod(shape[:split_at]), *shape[split_at:]),
        (1, *shape),
        (*shape[:1], prod(shape[1:])),
    ]
    if shape and shape[-1] % 2 == 0:
        choices += [(*shape[:-1], 2, shape[-1] // 2), (*shape[:-1], shape[-1] // 2, 2)]
    if len(shape) == 3:
        choices += [(shape[0], 1, *shape[1:]), (shape[0], shape[1], 1, shape[2])]
    target = n.draw.pick(*choices)
    if len(target) > 5:
        raise Unsupported
    n.call([x, n.index_constant(target)], n.activation(target, like=x), new_shape=list(target))


@step("SQUEEZE", "EXPAND_DIMS", weight=0.7)
def squeeze_or_expand(n: Network, x: TensorRef) -> None:
    shape = n.shape(x)
    if n.code == "EXPAND_DIMS":
        if len(shape) > 4:
            raise Unsupported
        axis = n.draw.between(0, len(shape))
        n.call([x, n.index_constant(axis)], n.activation((*shape[:axis], 1, *shape[axis:]), like=x))
        return
    ones = [k for k, size in enumerate(shape) if size == 1]
    if not ones or len(shape) < 3:
        raise Unsupported
    axis = n.draw.pick(*ones)
    n.call([x], n.activation((*shape[:axis], *shape[axis + 1 :]), like=x), squeeze_dims=[axis])


@step("CONCATENATION", weight=2.5)
def concatenate(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4, 5)
    axis = len(shape) - 1 if n.draw.chance(0.5) else n.draw.between(0, len(shape) - 1)

    def fits(ref: TensorRef) -> bool:
        other_shape = n.shape(ref)
        return len(other_shape) == len(shape) and (*other_shape[:axis], *other_shape[axis + 1 :]) == (
            *shape[:axis],
            *shape[axis + 1 :],
        )

    candidates = [ref for ref in n.pool if fits(ref)]
    operands = [x, *(n.draw.pick(*candidates) for _ in range(n.draw.between(1, 2)))]
    axis_option = axis - (len(shape) if n.draw.chance(0.4) else 0)
    result_shape = [
        sum(n.shape(operand)[axis] for operand in operands) if k == axis else size for k, size in enumerate(shape)
    ]
    if prod(result_shape) > MAX_ELEMENTS:
        raise Unsupported
    if n.dtype in ("int8", "int16"):  # their kernels require one scale
        operands = [operand if operand == x else n.rescale(operand, like=x) for operand in operands]
    n.call(operands, n.activation(result_shape, like=x if n.dtype != "uint8" else None), axis=axis_option)


@step("SPLIT", weight=1.2)
def split(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    choices = [(k, count) for k, size in enumerate(shape) for count in (2, 3) if size % count == 0]
    if not choices:
        raise Unsupported
    axis, count = n.draw.pick(*choices)
    result = n.activation([size // count if k == axis else size for k, size in enumerate(shape)], like=x)
    n.call([n.index_constant(axis), x], *[result] * count, num_splits=count)


@step("UNPACK", weight=0.7)
def unpack(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    axis = int(np.argmin(shape))
    if shape[axis] > 5:
        raise Unsupported
    result = n.activation([size for k, size in enumerate(shape) if k != axis], like=x)
    n.call([x], *[result] * shape[axis], axis=axis, num=shape[axis])


@step("PACK", weight=0.7)
def pack(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 1, 2, 3)
    axis = n.draw.between(0, len(shape))
    y = n.activation((*shape[:axis], 2, *shape[axis:]), like=x)
    n.call([x, x], y, axis=axis, values_count=2)


@step("STRIDED_SLICE", "SLICE", weight=1.2)
def slice_axes(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    begin = [n.draw.between(0, size - 1) if n.draw.chance(0.4) else 0 for size in shape]
    end = [n.draw.between(at + 1, size) if n.draw.chance(0.4) else size for at, size in zip(begin, shape, strict=True)]
    if n.code == "SLICE":
        lengths = [b - a for a, b in zip(begin, end, strict=True)]
        n.call([x, n.index_constant(begin), n.index_constant(lengths)], n.activation(lengths, like=x))
        return
    strides = [n.draw.pick(1, 1, 2) for _ in shape]
    lengths = [-(-(b - a) // s) for a, b, s in zip(begin, end, strides, strict=True)]
    dropped_axis = n.draw.between(0, len(shape) - 1) if n.draw.chance(0.3) else None
    result_shape = [size for k, size in enumerate(lengths) if k != dropped_axis]
    mask = {} if dropped_axis is None else {"shrink_axis_mask": 1 << dropped_axis}
    n.call(
        [x, n.index_constant(begin), n.index_constant(end), n.index_constant(strides)],
        n.activation(result_shape, like=x),
        **mask,
    )


@step("GATHER", "REVERSE_V2", "TILE", weight=0.6)
def gather_reverse_or_tile(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    axis = n.draw.between(0, len(shape) - 1)
    if n.code == "REVERSE_V2":
        n.call([x, n.index_constant([axis])], n.activation(shape, like=x))
        return
    count = n.draw.between(1, 4) if n.code == "GATHER" else 2 * shape[axis]
    y = n.activation([count if k == axis else size for k, size in enumerate(shape)], like=x)
    if n.code == "TILE":
        n.call([x, n.index_constant([2 if k == axis else 1 for k in range(len(shape))])], y)
        return
    n.call([x, n.index_constant(n.draw.random.integers(0, shape[axis], count))], y, axis=axis)


@step("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", weight=0.8)
def depth_and_space(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    if n.code == "SPACE_TO_DEPTH":
        if h % 2 or w % 2:
            raise Unsupported
        shape = (batch, h // 2, w // 2, 4 * c)
    else:
        if c % 4:
            raise Unsupported
        shape = (batch, h * 2, w * 2, c // 4)
    n.call([x], n.activation(shape, like=x), block_size=2)


@step("SPACE_TO_BATCH_ND", weight=0.5)
def dilate_by_batches(n: Network, x: TensorRef) -> None:
    """Add a dilated convolution as older converters express it.

    It is between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND.
    """
    batch, h, w, c = n.rank(x, 4)
    extra = [4 + size % 2 for size in (h, w)]
    rows, columns = (h + extra[0]) // 2, (w + extra[1]) // 2
    batches = n.call(
        [x, n.index_constant([2, 2]), n.index_constant([[2, extra[0] - 2], [2, extra[1] - 2]])],
        n.activation((4 * batch, rows, columns, c), like=x),
    )
    operands = n.weights(batches, n.numbers(1, 3, 3, c, spread=0.4), 3, n.numbers(c, spread=0.3))
    options = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "depth_multiplier": 1}
    convolved = n.call(
        [batches, *operands], n.activation((4 * batch, rows - 2, columns - 2, c)), code="DEPTHWISE_CONV_2D", **options
    )
    crops = [2 * (rows - 2) - h, 2 * (columns - 2) - w]
    n.call(
        [convolved, n.index_constant([2, 2]), n.index_constant([[0, crops[0]], [0, crops[1]]])],
        n.activation((batch, h, w, c), like=convolved),
        code="BATCH_TO_SPACE_ND",
    )
