"""Random operators that move elements or reshape."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from conformance.case import Case
from conformance.models import Spec
from tests.qa.random_models.draw import MOVED, Draw, draws, operator, table


@draws("RESHAPE")
def reshape(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(), draw.pick(*MOVED)), fixed=0)
    target = [int(size) for size in draw.random.permutation(x.array.shape)]
    if target and draw.chance(0.3):  # two axes become one
        target = [prod(target[:2]), *target[2:]]
    for _ in range(draw.between(0, 1)):
        target.insert(draw.between(0, len(target)), 1)
    wanted = list(target)
    if target and 0 not in target and draw.chance(0.3):
        wanted[draw.between(0, len(target) - 1)] = -1
    y = x.spec.with_shape(*target)
    if draw.chance(0.3):
        return operator(draw, op, [x], y, new_shape=wanted)
    return operator(draw, op, [x, table(wanted)], y)


@draws("TRANSPOSE")
def transpose(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(1, 5), draw.dtype(op)), fixed=0)  # of a scalar LiteRT gives what was in memory
    rank = x.array.ndim
    perm = [int(axis) for axis in draw.random.permutation(rank)]
    shape = [x.array.shape[axis] for axis in perm]
    requested = [axis - rank if draw.chance(0.1) else axis for axis in perm]
    return operator(draw, op, [x, table(requested, fixed=0.6)], x.spec.with_shape(*shape))


@draws("EXPAND_DIMS")
def expand(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(), draw.dtype(op)), fixed=0)
    rank = x.array.ndim
    axis = draw.between(-rank - 1, rank)
    shape = list(x.array.shape)
    shape.insert(axis % (rank + 1), 1)
    return operator(draw, op, [x, table(axis, draw.pick("int32", "int64"))], x.spec.with_shape(*shape))


@draws("SQUEEZE")
def squeeze(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(ones=0.4), draw.dtype(op)), fixed=0)
    shape, rank = x.array.shape, x.array.ndim
    ones = [axis for axis, size in enumerate(shape) if size == 1 and draw.chance(0.7)]
    kept = [size for axis, size in enumerate(shape) if axis not in ones and (ones or size != 1)]
    requested = [axis - rank if draw.chance(0.3) else axis for axis in ones]
    return operator(draw, op, [x], x.spec.with_shape(*kept), squeeze_dims=requested)


@draws("TILE")
def tile(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(), draw.dtype(op)))
    times = draw.random.integers(0 if draw.chance(0.1) else 1, 4, x.array.ndim)
    y = x.spec.with_shape(*np.multiply(x.array.shape, times).astype(int).tolist())
    return operator(draw, op, [x, table(times, draw.pick("int32", "int64"))], y)


@draws("BROADCAST_TO")
def broadcast(draw: Draw, op: str) -> Case:
    whole = draw.shape()
    x = draw.data(draw.spec(draw.broadcast(whole), draw.dtype(op)))
    return operator(draw, op, [x, table(whole, draw.pick("int32", "int64"))], x.spec.with_shape(*whole))


@draws("REVERSE_V2")
def reverse_along(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(tuple(size or 1 for size in draw.shape(1, 5)), draw.dtype(op, "float16")), fixed=0)
    rank = x.array.ndim
    first = draw.between(0, rank - 1)
    last = draw.between(first + 1, rank)
    axes = [axis - rank if draw.chance(0.3) else axis for axis in range(first, last)]
    return operator(draw, op, [x, table(axes)], x.spec)


@draws("REVERSE_SEQUENCE")
def sequences_reversed(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(2), draw.dtype(op)), fixed=0)
    axis, batch = (int(k) for k in draw.random.choice(x.array.ndim, 2, replace=False))
    lengths = draw.random.integers(0, x.array.shape[axis] + 1, x.array.shape[batch])
    kind = draw.pick("int32", "int64")
    return operator(draw, op, [x, table(lengths, kind, 0.4)], x.spec, seq_dim=axis, batch_dim=batch)


@draws("SHAPE", "RANK")
def describe(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(), draw.dtype(op)), fixed=0)
    kind = draw.pick("int32", "int64") if op == "SHAPE" else "int32"
    options = {"out_type": kind.upper()} if op == "SHAPE" else {}
    return operator(draw, op, [x], Spec((x.array.ndim,) if op == "SHAPE" else (), kind), **options)


@draws("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def between_depth_and_space(draw: Draw, op: str) -> Case:
    block = draw.between(1, 3)
    n, h, w, c = (draw.pick(1, 2, 3, 5) for _ in range(4))
    wide, deep = (n, h * block, w * block, c), (n, h, w, c * block * block)
    before, after = (wide, deep) if op == "SPACE_TO_DEPTH" else (deep, wide)
    x = draw.data(draw.spec(before, draw.dtype(op)), fixed=0)
    return operator(draw, op, [x], x.spec.with_shape(*after), block_size=block)


@draws("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def blocks(draw: Draw, op: str) -> Case:
    spatial = draw.between(1, 2)
    block, cells = (draw.random.integers(1, 4, spatial) for _ in range(2))
    rows = draw.random.integers(0, 3, (spatial, 2))
    size = block * cells - rows.sum(axis=1)
    if (size < 1).any():
        rows, size = rows * 0, block * cells
    n, c = (draw.between(0 if draw.chance(0.05) else 1, 4) for _ in range(2))
    image, batches = (n, *size.tolist(), c), (n * int(block.prod()), *cells.tolist(), c)
    before, after = (image, batches) if op == "SPACE_TO_BATCH_ND" else (batches, image)
    x = draw.data(draw.spec(before, draw.dtype(op)), fixed=0)
    return operator(draw, op, [x, table(block, fixed=0.5), table(rows, fixed=0.5)], x.spec.with_shape(*after))


@draws("PAD", "PADV2", "MIRROR_PAD")
def pad(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(1), draw.dtype(op, "float16")), fixed=0)
    shape = x.array.shape
    reflect = op == "MIRROR_PAD" and draw.chance(0.5)
    most = [max(size - reflect, 0) if op == "MIRROR_PAD" else 3 for size in shape]
    rows = [[draw.between(0, min(n, 4)) if draw.chance(0.6) else 0 for _ in range(2)] for n in most]
    y = x.spec.with_shape(*(size + sum(row) for size, row in zip(shape, rows, strict=True)))
    places = table(rows, draw.pick("int32", "int64"))
    if op == "MIRROR_PAD":
        return operator(draw, op, [x, places], y, mode="REFLECT" if reflect else "SYMMETRIC")
    number = [draw.data(x.spec.with_shape(), fixed=0.7)] if op == "PADV2" else []
    return operator(draw, op, [x, places, *number], y)


@draws("BITCAST")
def bits(draw: Draw, op: str) -> Case:
    before = draw.pick("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64")
    after = draw.pick("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64")
    shape, ratio = draw.shape(), np.dtype(before).itemsize / np.dtype(after).itemsize
    if ratio < 1:
        shape = (*shape, round(1 / ratio))
    x = draw.data(Spec(shape, before), fixed=0)
    if "float" in after and "float" not in before:  # no signalling NaNs
        x = replace(x, array=np.abs(x.array) % 100)
    target = shape[:-1] if ratio < 1 else (*shape, int(ratio)) if ratio > 1 else shape
    return operator(draw, op, [x], Spec(target, after))


@draws("DILATE")
def dilate(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(tuple(size or 1 for size in draw.shape(1, 5)), draw.dtype(op)), fixed=0)
    factors = draw.random.integers(1, 4, x.array.ndim)
    y = x.spec.with_shape(*((size - 1) * by + 1 for size, by in zip(x.array.shape, factors.tolist(), strict=True)))
    return operator(draw, op, [x, table(factors), draw.data(x.spec.with_shape(), fixed=0.7)], y)


@draws("BROADCAST_ARGS")
def shapes_broadcast(draw: Draw, op: str) -> Case:
    whole, kind = draw.shape(), draw.dtype(op)
    shapes = [draw.broadcast(whole) for _ in "xy"]
    y = Spec((max(map(len, shapes)),), kind)
    return operator(draw, op, [table(shape, kind, 0.3) for shape in shapes], y, plain=True)
