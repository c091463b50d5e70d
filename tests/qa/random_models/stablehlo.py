"""Random StableHLO operators on slices and windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.cases.stablehlo.indexing import REGIONS, scattering
from conformance.cases.stablehlo.windows import REGIONS as REDUCTIONS
from conformance.cases.stablehlo.windows import Window, older, window_case
from conformance.models import Spec, constant, in_isolation
from tests.qa.random_models.draw import OTHER_SIZES, Draw, draws, operator, sizes, table


def full(draw: Draw, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return tuple(size or 1 for size in draw.shape(least, most))


@draws("STABLEHLO_PAD")
def pad(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(full(draw), draw.dtype(op)), fixed=0)
    between = [draw.between(0, 2) if draw.chance(0.4) else 0 for _ in x.array.shape]
    spread = [(size - 1) * n + size for size, n in zip(x.array.shape, between, strict=True)]
    low = [draw.between(-min(size - 1, 2), 3) for size in spread]
    high = [draw.between(max(1 - size - n, -2), 3) for size, n in zip(spread, low, strict=True)]
    y = x.spec.with_shape(*(size + a + b for size, a, b in zip(spread, low, high, strict=True)))
    options = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": between}
    return operator(draw, op, [x, draw.data(x.spec.with_shape(), fixed=0.7)], y, **options)


@draws("STABLEHLO_GATHER")
def gather(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(full(draw), draw.dtype(op)), fixed=0)
    rank = x.array.ndim
    slices = [draw.between(1, min(size, OTHER_SIZES[0])) if draw.chance(0.6) else 1 for size in x.array.shape]
    indexed = sorted(int(axis) for axis in draw.random.choice(rank, draw.between(1, rank), replace=False))
    order = [int(axis) for axis in draw.random.permutation(indexed)]
    collapsed = [axis for axis in range(rank) if slices[axis] == 1 and draw.chance(0.6)]
    batch = list(full(draw, 0, 2))
    vector = draw.between(0, len(batch))
    places = draw.random.integers(-2, 12, [*batch[:vector], len(order), *batch[vector:]])
    kept = [size for axis, size in enumerate(slices) if axis not in collapsed]
    offsets = sorted(int(axis) for axis in draw.random.choice(len(kept) + len(batch), len(kept), replace=False))
    left, right = iter(kept), iter(batch)
    shape = [next(left) if axis in offsets else next(right) for axis in range(len(kept) + len(batch))]
    options = {
        "offset_dims": offsets,
        "collapsed_slice_dims": collapsed,
        "start_index_map": order,
        "index_vector_dim": vector,
        "slice_sizes": slices,
    }
    chosen = table(places, draw.pick("int32", "int64"), 0.5)
    return operator(draw, op, [x, chosen], x.spec.with_shape(*shape), **options)


@draws("STABLEHLO_SCATTER")
def scatter(draw: Draw, op: str) -> Case:
    x = Spec(full(draw), draw.dtype(op))
    shape, rank = sizes(x), len(x.shape)
    indexed = [int(axis) for axis in draw.random.permutation(rank)][: draw.between(1, rank)]
    inserted = sorted(axis for axis in range(rank) if draw.chance(0.5))
    window = [draw.between(1, size) for axis, size in enumerate(shape) if axis not in inserted]
    batch = list(full(draw, 0, 2))
    places = draw.random.integers(-2, 12, [*batch, len(indexed)]).astype(draw.pick("int32", "int64"))
    spread = sorted(int(axis) for axis in draw.random.choice(len(window) + len(batch), len(window), replace=False))
    left, right = iter(window), iter(batch)
    updates = x.with_shape(*(next(left) if axis in spread else next(right) for axis in range(len(window) + len(batch))))
    options: dict[str, Any] = {
        "update_window_dims": spread,
        "inserted_window_dims": inserted,
        "scatter_dims_to_operand_dims": indexed,
        "index_vector_dim": len(batch),
        "unique_indices": False,
    }
    how = draw.pick(*(REGIONS if x.dtype != "bool" else ("none", "maximum", "minimum")))
    given = {"x0": draw.numbers(x), "x1": places, "x2": draw.numbers(updates)}
    chosen = constant(given.pop("x1")) if draw.chance(0.5) else Spec(places.shape, places.dtype.name, name="x1")
    operands = (replace(x, name="x0"), chosen, replace(updates, name="x2"))
    return scattering("random", *operands, how, options=options, given=given, runs=1)


@draws("STABLEHLO_REDUCE_WINDOW", "REDUCE_WINDOW")
def reduce(draw: Draw, op: str) -> Case:
    x = Spec(full(draw), draw.dtype(op))
    rank = len(x.shape)
    kernel = [draw.between(1, min(size, 4)) for size in sizes(x)]
    stride = [draw.between(1, 3) for _ in kernel]
    dilation = [draw.between(1, 2) if (k - 1) * 2 < size else 1 for k, size in zip(kernel, sizes(x), strict=True)]
    whole = op == "STABLEHLO_REDUCE_WINDOW"
    base = [draw.between(1, 2) if whole else 1 for _ in kernel]
    padding = [(draw.between(0, 2), draw.between(0, 2)) if whole else (0, 0) for _ in range(rank)]
    window = Window(kernel, stride, dilation, base, padding)
    whats = ("ALL", "ANY") if x.dtype == "bool" else ("ADD", "MUL", "MAXIMUM", "MINIMUM")
    what, initial = draw.pick(*whats), draw.between(0, 1)
    case: dict[str, Any] = {"given": {"x0": draw.numbers(x)}, "runs": 1}
    if not whole:
        return older("random", what, x, window, initial, **case)
    return window_case("random", what, x, window, initial, code=draw.pick(*REDUCTIONS[what]), **case)


@draws("STABLEHLO_RNG_BIT_GENERATOR")
def random_bits(draw: Draw, op: str) -> Case:
    state = draw.random.integers(0, 2**64, 2, dtype=np.uint64)
    algorithm, dtype = draw.pick("THREEFRY", "PHILOX", "DEFAULT"), draw.dtype(op)
    x = Spec((2,), "uint64")
    options = {"algorithm": algorithm}
    y = Spec(draw.shape(), dtype)
    return in_isolation(op, "random", [x], x, y, options=options, given={"x0": state}, runs=1)
