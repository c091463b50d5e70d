"""Random StableHLO operators on slices and windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.cases.stablehlo.indexing import REGIONS, scatter_case
from conformance.cases.stablehlo.windows import REGIONS as REDUCTIONS
from conformance.cases.stablehlo.windows import Window, reduce_window_case, window_case
from conformance.models import Spec, constant, in_isolation
from tests.qa.random_models.draw import OTHER_SIZES, Draw, case_generator, index_operand, operator, sizes


def nonempty_shape(draw: Draw, min_rank: int = 1, max_rank: int = 4) -> tuple[int, ...]:
    return tuple(size or 1 for size in draw.shape(min_rank, max_rank))


@case_generator("STABLEHLO_PAD")
def pad(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(nonempty_shape(draw), draw.dtype(op)), constant_probability=0)
    interior = [draw.between(0, 2) if draw.chance(0.4) else 0 for _ in x.array.shape]
    dilated_sizes = [(size - 1) * n + size for size, n in zip(x.array.shape, interior, strict=True)]
    low = [draw.between(-min(size - 1, 2), 3) for size in dilated_sizes]
    high = [draw.between(max(1 - size - n, -2), 3) for size, n in zip(dilated_sizes, low, strict=True)]
    y = x.spec.with_shape(*(size + a + b for size, a, b in zip(dilated_sizes, low, high, strict=True)))
    options = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": interior}
    return operator(draw, op, [x, draw.data(x.spec.with_shape(), constant_probability=0.7)], y, **options)


@case_generator("STABLEHLO_GATHER")
def gather(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(nonempty_shape(draw), draw.dtype(op)), constant_probability=0)
    rank = x.array.ndim
    slices = [draw.between(1, min(size, OTHER_SIZES[0])) if draw.chance(0.6) else 1 for size in x.array.shape]
    indexed = sorted(int(axis) for axis in draw.random.choice(rank, draw.between(1, rank), replace=False))
    index_map = [int(axis) for axis in draw.random.permutation(indexed)]
    collapsed = [axis for axis in range(rank) if slices[axis] == 1 and draw.chance(0.6)]
    batch = list(nonempty_shape(draw, 0, 2))
    vector = draw.between(0, len(batch))
    positions = draw.random.integers(-2, 12, [*batch[:vector], len(index_map), *batch[vector:]])
    slice_shape = [size for axis, size in enumerate(slices) if axis not in collapsed]
    offsets = sorted(
        int(axis) for axis in draw.random.choice(len(slice_shape) + len(batch), len(slice_shape), replace=False)
    )
    kept_sizes, batch_sizes = iter(slice_shape), iter(batch)
    shape = [
        next(kept_sizes) if axis in offsets else next(batch_sizes) for axis in range(len(slice_shape) + len(batch))
    ]
    options = {
        "offset_dims": offsets,
        "collapsed_slice_dims": collapsed,
        "start_index_map": index_map,
        "index_vector_dim": vector,
        "slice_sizes": slices,
    }
    position_operand = index_operand(positions, draw.pick("int32", "int64"), 0.5)
    return operator(draw, op, [x, position_operand], x.spec.with_shape(*shape), **options)


@case_generator("STABLEHLO_SCATTER")
def scatter(draw: Draw, op: str) -> Case:
    x = Spec(nonempty_shape(draw), draw.dtype(op))
    shape, rank = sizes(x), len(x.shape)
    indexed = [int(axis) for axis in draw.random.permutation(rank)][: draw.between(1, rank)]
    inserted = sorted(axis for axis in range(rank) if draw.chance(0.5))
    window = [draw.between(1, size) for axis, size in enumerate(shape) if axis not in inserted]
    batch = list(nonempty_shape(draw, 0, 2))
    positions = draw.random.integers(-2, 12, [*batch, len(indexed)]).astype(draw.pick("int32", "int64"))
    window_dims = sorted(int(axis) for axis in draw.random.choice(len(window) + len(batch), len(window), replace=False))
    window_sizes, batch_sizes = iter(window), iter(batch)
    updates = x.with_shape(
        *(next(window_sizes) if axis in window_dims else next(batch_sizes) for axis in range(len(window) + len(batch)))
    )
    options: dict[str, Any] = {
        "update_window_dims": window_dims,
        "inserted_window_dims": inserted,
        "scatter_dims_to_operand_dims": indexed,
        "index_vector_dim": len(batch),
        "unique_indices": False,
    }
    region = draw.pick(*(REGIONS if x.dtype != "bool" else ("none", "maximum", "minimum")))
    inputs = {"x0": draw.random_array(x), "x1": positions, "x2": draw.random_array(updates)}
    position_operand = (
        constant(inputs.pop("x1")) if draw.chance(0.5) else Spec(positions.shape, positions.dtype.name, name="x1")
    )
    operands = (replace(x, name="x0"), position_operand, replace(updates, name="x2"))
    return scatter_case("random", *operands, region, options=options, input_arrays=inputs, runs=1)


@case_generator("STABLEHLO_REDUCE_WINDOW", "REDUCE_WINDOW")
def reduce(draw: Draw, op: str) -> Case:
    x = Spec(nonempty_shape(draw), draw.dtype(op))
    rank = len(x.shape)
    kernel = [draw.between(1, min(size, 4)) for size in sizes(x)]
    stride = [draw.between(1, 3) for _ in kernel]
    dilation = [draw.between(1, 2) if (k - 1) * 2 < size else 1 for k, size in zip(kernel, sizes(x), strict=True)]
    is_stablehlo = op == "STABLEHLO_REDUCE_WINDOW"
    base = [draw.between(1, 2) if is_stablehlo else 1 for _ in kernel]
    padding = [(draw.between(0, 2), draw.between(0, 2)) if is_stablehlo else (0, 0) for _ in range(rank)]
    window = Window(kernel, stride, dilation, base, padding)
    reductions = ("ALL", "ANY") if x.dtype == "bool" else ("ADD", "MUL", "MAXIMUM", "MINIMUM")
    reduction, initial = draw.pick(*reductions), draw.between(0, 1)
    case: dict[str, Any] = {"input_arrays": {"x0": draw.random_array(x)}, "runs": 1}
    if not is_stablehlo:
        return reduce_window_case("random", reduction, x, window, initial, **case)
    return window_case("random", reduction, x, window, initial, code=draw.pick(*REDUCTIONS[reduction]), **case)


@case_generator("STABLEHLO_RNG_BIT_GENERATOR")
def random_bits(draw: Draw, op: str) -> Case:
    state = draw.random.integers(0, 2**64, 2, dtype=np.uint64)
    algorithm, dtype = draw.pick("THREEFRY", "PHILOX", "DEFAULT"), draw.dtype(op)
    x = Spec((2,), "uint64")
    options = {"algorithm": algorithm}
    y = Spec(draw.shape(), dtype)
    return in_isolation(op, "random", [x], x, y, options=options, input_arrays={"x0": state}, runs=1)
