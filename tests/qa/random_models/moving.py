"""Random operators that move elements or reshape."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from conformance.case import Case
from conformance.models import Spec
from tests.qa.random_models.draw import MOVABLE, Draw, case_generator, index_operand, operator


@case_generator("RESHAPE")
def reshape(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(), draw.pick(*MOVABLE)), constant_probability=0)
    target = [int(size) for size in draw.random.permutation(x.array.shape)]
    if target and draw.chance(0.3):  # merge two axes
        target = [prod(target[:2]), *target[2:]]
    for _ in range(draw.between(0, 1)):
        target.insert(draw.between(0, len(target)), 1)
    requested = list(target)
    if target and 0 not in target and draw.chance(0.3):
        requested[draw.between(0, len(target) - 1)] = -1
    y = x.spec.with_shape(*target)
    if draw.chance(0.3):
        return operator(draw, op, [x], y, new_shape=requested)
    return operator(draw, op, [x, index_operand(requested)], y)


@case_generator("TRANSPOSE")
def transpose(draw: Draw, op: str) -> Case:
    x = draw.data(
        draw.spec(draw.shape(1, 5), draw.dtype(op)), constant_probability=0
    )  # for a scalar, LiteRT's result is uninitialized memory
    rank = x.array.ndim
    perm = [int(axis) for axis in draw.random.permutation(rank)]
    shape = [x.array.shape[axis] for axis in perm]
    requested = [axis - rank if draw.chance(0.1) else axis for axis in perm]
    return operator(draw, op, [x, index_operand(requested, constant_probability=0.6)], x.spec.with_shape(*shape))


@case_generator("EXPAND_DIMS")
def expand_dims(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(), draw.dtype(op)), constant_probability=0)
    rank = x.array.ndim
    axis = draw.between(-rank - 1, rank)
    shape = list(x.array.shape)
    shape.insert(axis % (rank + 1), 1)
    return operator(draw, op, [x, index_operand(axis, draw.pick("int32", "int64"))], x.spec.with_shape(*shape))


@case_generator("SQUEEZE")
def squeeze(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(ones=0.4), draw.dtype(op)), constant_probability=0)
    shape, rank = x.array.shape, x.array.ndim
    ones = [axis for axis, size in enumerate(shape) if size == 1 and draw.chance(0.7)]
    result_shape = [size for axis, size in enumerate(shape) if axis not in ones and (ones or size != 1)]
    requested = [axis - rank if draw.chance(0.3) else axis for axis in ones]
    return operator(draw, op, [x], x.spec.with_shape(*result_shape), squeeze_dims=requested)


@case_generator("TILE")
def tile(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(), draw.dtype(op)))
    multiples = draw.random.integers(0 if draw.chance(0.1) else 1, 4, x.array.ndim)
    y = x.spec.with_shape(*np.multiply(x.array.shape, multiples).astype(int).tolist())
    return operator(draw, op, [x, index_operand(multiples, draw.pick("int32", "int64"))], y)


@case_generator("BROADCAST_TO")
def broadcast(draw: Draw, op: str) -> Case:
    shape = draw.shape()
    x = draw.data(draw.spec(draw.broadcast(shape), draw.dtype(op)))
    return operator(draw, op, [x, index_operand(shape, draw.pick("int32", "int64"))], x.spec.with_shape(*shape))


@case_generator("REVERSE_V2")
def reverse_along(draw: Draw, op: str) -> Case:
    x = draw.data(
        draw.spec(tuple(size or 1 for size in draw.shape(1, 5)), draw.dtype(op, "float16")), constant_probability=0
    )
    rank = x.array.ndim
    first = draw.between(0, rank - 1)
    last = draw.between(first + 1, rank)
    axes = [axis - rank if draw.chance(0.3) else axis for axis in range(first, last)]
    return operator(draw, op, [x, index_operand(axes)], x.spec)


@case_generator("REVERSE_SEQUENCE")
def reverse_sequence(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(2), draw.dtype(op)), constant_probability=0)
    axis, batch = (int(k) for k in draw.random.choice(x.array.ndim, 2, replace=False))
    lengths = draw.random.integers(0, x.array.shape[axis] + 1, x.array.shape[batch])
    kind = draw.pick("int32", "int64")
    return operator(draw, op, [x, index_operand(lengths, kind, 0.4)], x.spec, seq_dim=axis, batch_dim=batch)


@case_generator("SHAPE", "RANK")
def shape_or_rank(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(), draw.dtype(op)), constant_probability=0)
    dtype = draw.pick("int32", "int64") if op == "SHAPE" else "int32"
    options = {"out_type": dtype.upper()} if op == "SHAPE" else {}
    return operator(draw, op, [x], Spec((x.array.ndim,) if op == "SHAPE" else (), dtype), **options)


@case_generator("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def depth_and_space(draw: Draw, op: str) -> Case:
    block = draw.between(1, 3)
    n, h, w, c = (draw.pick(1, 2, 3, 5) for _ in range(4))
    space_shape, depth_shape = (n, h * block, w * block, c), (n, h, w, c * block * block)
    before, after = (space_shape, depth_shape) if op == "SPACE_TO_DEPTH" else (depth_shape, space_shape)
    x = draw.data(draw.spec(before, draw.dtype(op)), constant_probability=0)
    return operator(draw, op, [x], x.spec.with_shape(*after), block_size=block)


@case_generator("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def batches_and_space(draw: Draw, op: str) -> Case:
    spatial = draw.between(1, 2)
    block, cells = (draw.random.integers(1, 4, spatial) for _ in range(2))
    rows = draw.random.integers(0, 3, (spatial, 2))
    size = block * cells - rows.sum(axis=1)
    if (size < 1).any():
        rows, size = rows * 0, block * cells
    n, c = (draw.between(0 if draw.chance(0.05) else 1, 4) for _ in range(2))
    image, batches = (n, *size.tolist(), c), (n * int(block.prod()), *cells.tolist(), c)
    before, after = (image, batches) if op == "SPACE_TO_BATCH_ND" else (batches, image)
    x = draw.data(draw.spec(before, draw.dtype(op)), constant_probability=0)
    return operator(
        draw,
        op,
        [x, index_operand(block, constant_probability=0.5), index_operand(rows, constant_probability=0.5)],
        x.spec.with_shape(*after),
    )


@case_generator("PAD", "PADV2", "MIRROR_PAD")
def pad(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(1), draw.dtype(op, "float16")), constant_probability=0)
    shape = x.array.shape
    reflect = op == "MIRROR_PAD" and draw.chance(0.5)
    max_padding = [max(size - reflect, 0) if op == "MIRROR_PAD" else 3 for size in shape]
    rows = [[draw.between(0, min(n, 4)) if draw.chance(0.6) else 0 for _ in range(2)] for n in max_padding]
    y = x.spec.with_shape(*(size + sum(row) for size, row in zip(shape, rows, strict=True)))
    paddings = index_operand(rows, draw.pick("int32", "int64"))
    if op == "MIRROR_PAD":
        return operator(draw, op, [x, paddings], y, mode="REFLECT" if reflect else "SYMMETRIC")
    pad_value = [draw.data(x.spec.with_shape(), constant_probability=0.7)] if op == "PADV2" else []
    return operator(draw, op, [x, paddings, *pad_value], y)


@case_generator("BITCAST")
def bitcast(draw: Draw, op: str) -> Case:
    before = draw.pick("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64")
    after = draw.pick("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64")
    shape, ratio = draw.shape(), np.dtype(before).itemsize / np.dtype(after).itemsize
    if ratio < 1:
        shape = (*shape, round(1 / ratio))
    x = draw.data(Spec(shape, before), constant_probability=0)
    if "float" in after and "float" not in before:  # no signaling NaNs
        x = replace(x, array=np.abs(x.array) % 100)
    target = shape[:-1] if ratio < 1 else (*shape, int(ratio)) if ratio > 1 else shape
    return operator(draw, op, [x], Spec(target, after))


@case_generator("DILATE")
def dilate(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(tuple(size or 1 for size in draw.shape(1, 5)), draw.dtype(op)), constant_probability=0)
    factors = draw.random.integers(1, 4, x.array.ndim)
    y = x.spec.with_shape(
        *((size - 1) * factor + 1 for size, factor in zip(x.array.shape, factors.tolist(), strict=True))
    )
    return operator(draw, op, [x, index_operand(factors), draw.data(x.spec.with_shape(), constant_probability=0.7)], y)


@case_generator("BROADCAST_ARGS")
def broadcast_args(draw: Draw, op: str) -> Case:
    shape, dtype = draw.shape(), draw.dtype(op)
    shapes = [draw.broadcast(shape) for _ in "xy"]
    y = Spec((max(map(len, shapes)),), dtype)
    return operator(draw, op, [index_operand(operand, dtype, 0.3) for operand in shapes], y, in_isolation=True)
