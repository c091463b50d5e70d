"""Random operators that slice, concatenate, gather and scatter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Spec
from tests.qa.random_models.draw import Draw, Operand, case_generator, index_operand, operator, sizes


@case_generator("SLICE")
def slice_axes(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(1, 5), draw.dtype(op)), constant_probability=0)
    begin = [draw.between(0, size) for size in x.array.shape]
    lengths = [
        draw.between(0 if draw.chance(0.2) else min(1, n - start), n - start)
        for n, start in zip(x.array.shape, begin, strict=True)
    ]
    requested = [
        -1 if start + n == size and draw.chance(0.4) else n
        for start, n, size in zip(begin, lengths, x.array.shape, strict=True)
    ]
    index_dtype = draw.pick("int32", "int64")
    return operator(
        draw,
        op,
        [x, index_operand(begin, index_dtype), index_operand(requested, index_dtype)],
        x.spec.with_shape(*lengths),
    )


@case_generator("STRIDED_SLICE")
def slice_strided(draw: Draw, op: str) -> Case:
    """Return a STRIDED_SLICE with random masks; NumPy computes the result shape."""
    x = draw.data(draw.spec(draw.shape(1), draw.dtype(op)), constant_probability=0)
    rank = x.array.ndim
    begin: list[int] = []
    end: list[int] = []
    step: list[int] = []
    masks = dict.fromkeys(("begin", "end", "ellipsis", "new_axis", "shrink_axis"), 0)
    index: list[Any] = []

    def entry(first: int, last: int, stride: int, index_entry: Any, **set_masks: bool) -> None:
        for name, bit in set_masks.items():
            masks[name] |= int(bit) << len(begin)
        begin.append(first), end.append(last), step.append(stride)  # type: ignore[func-returns-value]
        index.append(index_entry)

    has_special_entries = draw.chance(0.35)
    k = 0
    while k < rank:
        size = x.array.shape[k]
        if has_special_entries and draw.chance(0.25) and len(begin) < 5:
            entry(0, 0, 1, None, new_axis=True)
            continue
        if has_special_entries and not masks["ellipsis"] and draw.chance(0.3):
            entry(0, 0, 1, Ellipsis, ellipsis=True)
            k += draw.between(0, rank - k)
            continue
        if size and draw.chance(0.2):
            at = draw.between(-size, size - 1)
            entry(at, at + 1, 1, at, shrink_axis=True)
        else:
            first, last = (draw.between(-size - 2, size + 2) for _ in "be")
            stride, low, high = draw.pick(1, 1, 2, 3, -1, -2), draw.chance(0.3), draw.chance(0.3)
            index_entry = slice(None if low else first, None if high else last, stride) if size else slice(None)
            entry(first, last, stride, index_entry, begin=low, end=high)
        k += 1
        if not has_special_entries and draw.chance(0.1):
            break
    while has_special_entries and draw.chance(0.3) and len(begin) < 6:
        entry(0, 0, 1, None, new_axis=True)
    has_random_masks = draw.chance(0.15)
    if has_random_masks:  # arbitrary bits, also beyond the entries and the rank
        masks = {name: draw.between(0, 2**7 - 1) for name in masks}
    shape = () if has_random_masks else np.empty(x.array.shape)[tuple(index)].shape
    options = {f"{name}_mask": mask for name, mask in masks.items()}
    kind = "int32"
    constant_probability = 1.0 if draw.chance(0.8) else 0.0
    rows = [index_operand(values, kind, constant_probability) for values in (begin, end)] + [
        index_operand(step, kind, 1.0)
    ]
    return operator(draw, op, [x, *rows], x.spec.with_shape(*shape), shapeless=has_random_masks, **options)


@case_generator("SPLIT", "SPLIT_V")
def split(draw: Draw, op: str) -> Case:
    x = draw.spec(draw.shape(1), draw.dtype(op))
    axis, part_count = draw.axis(len(x.shape)), draw.between(1, 4)
    x_shape = sizes(x)
    part_sizes = (
        [x_shape[axis]] * part_count
        if op == "SPLIT"
        else [draw.between(0 if draw.chance(0.1) else 1, 4) for _ in range(part_count)]
    )
    k = axis % len(x_shape)

    def with_axis_size(size: int) -> Spec:
        return x.with_shape(*(size if j == k else n for j, n in enumerate(x_shape)))

    results, x_operand = (
        [with_axis_size(size) for size in part_sizes],
        draw.data(with_axis_size(sum(part_sizes)), constant_probability=0),
    )
    if op == "SPLIT":
        return operator(
            draw, op, [index_operand(axis, constant_probability=1.0), x_operand], *results, num_splits=part_count
        )
    requested = [-1 if j == 0 and draw.chance(0.3) else size for j, size in enumerate(part_sizes)]
    lengths = index_operand(requested, draw.pick("int32", "int64"))
    return operator(
        draw, op, [x_operand, lengths, index_operand(axis, constant_probability=1.0)], *results, num_splits=part_count
    )


@case_generator("UNPACK")
def unpack(draw: Draw, op: str) -> Case:
    x = draw.data(
        draw.spec(tuple(size or 2 for size in draw.shape(1)), draw.dtype(op, "float16")), constant_probability=0
    )
    axis = draw.axis(x.array.ndim)
    part_shape = tuple(np.delete(x.array.shape, axis).tolist())
    number = x.array.shape[axis]
    return operator(draw, op, [x], *[x.spec.with_shape(*part_shape)] * number, axis=axis, num=number)


@case_generator("CONCATENATION")
def concatenate(draw: Draw, op: str) -> Case:
    x = draw.spec(draw.shape(1), draw.dtype(op, "float16"))
    axis = draw.axis(len(x.shape))
    k, x_shape = axis % len(x.shape), sizes(x)
    lengths = [draw.between(0 if draw.chance(0.1) else 1, 5) for _ in range(draw.between(1, 4))]
    specs = [x.with_shape(*(length if j == k else n for j, n in enumerate(x_shape))) for length in lengths]
    y = x.with_shape(*(sum(lengths) if j == k else n for j, n in enumerate(x_shape)))
    return operator(draw, op, [draw.data(spec) for spec in specs], y, axis=axis)


@case_generator("PACK")
def pack(draw: Draw, op: str) -> Case:
    x = draw.spec(draw.shape(), draw.dtype(op))
    rank, number = len(x.shape), draw.between(1, 3)
    axis = draw.between(-rank - 1, rank)
    shape = list(x.shape)
    shape.insert(axis % (rank + 1), number)
    return operator(
        draw, op, [draw.data(x) for _ in range(number)], x.with_shape(*shape), axis=axis, values_count=number
    )


def indices(draw: Draw, high: int, shape: tuple[int, ...], kinds: tuple[str, ...] = ("int32", "int64")) -> Operand:
    return index_operand(draw.random.integers(0, high, shape), draw.pick(*kinds), 0.5)


@case_generator("GATHER")
def gather(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(tuple(size or 1 for size in draw.shape(1)), draw.dtype(op)), constant_probability=0.2)
    shape, rank = x.array.shape, x.array.ndim
    axis = draw.between(0, rank - 1)
    batch = draw.between(0, axis) if draw.chance(0.3) else 0
    positions = indices(draw, shape[axis], (*shape[:batch], *draw.shape()[:2]), ("int16", "int32", "int64"))
    y = x.spec.with_shape(*shape[:axis], *positions.array.shape[batch:], *shape[axis + 1 :])
    options = {"axis": axis - rank if draw.chance(0.4) else axis, "batch_dims": batch}
    return operator(draw, op, [x, positions], y, **options)


@case_generator("GATHER_ND")
def gather_nd(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(tuple(size or 1 for size in draw.shape(1, 5)), draw.dtype(op)), constant_probability=0.2)
    depth, rows = draw.between(0 if draw.chance(0.1) else 1, x.array.ndim), draw.shape()[:2]
    positions = draw.random.integers(0, x.array.shape[:depth], (*rows, depth))
    index_dtype = draw.pick("int16", "int32", "int64")
    return operator(
        draw, op, [x, index_operand(positions, index_dtype, 0.5)], x.spec.with_shape(*rows, *x.array.shape[depth:])
    )


@case_generator("DYNAMIC_UPDATE_SLICE")
def update_slice(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(), draw.dtype(op)))
    size = [draw.between(min(n, 1) if draw.chance(0.9) else 0, n) for n in x.array.shape]
    start = draw.random.integers(-3, 9, len(size))
    return operator(
        draw, op, [x, draw.data(x.spec.with_shape(*size)), index_operand(start, draw.pick("int32", "int64"))], x.spec
    )


@case_generator("SCATTER_ND")
def scatter(draw: Draw, op: str) -> Case:
    shape = tuple(size or 1 for size in draw.shape(1))
    depth, rows = draw.between(1, len(shape)), draw.shape(1, 2)
    positions = draw.random.integers(0, shape[:depth], (*rows, depth))
    updates = draw.data(Spec((*rows, *shape[depth:]), draw.dtype(op)))
    return operator(
        draw,
        op,
        [index_operand(positions, constant_probability=0.5), updates, index_operand(shape)],
        updates.spec.with_shape(*shape),
    )


@case_generator("SPARSE_TO_DENSE")
def sparse_to_dense(draw: Draw, op: str) -> Case:
    shape, index_dtype = tuple(size or 1 for size in draw.shape(1)), draw.pick("int32", "int64")
    count = draw.between(1, 7)
    positions = draw.random.integers(0, shape, (count, len(shape)))
    values = Spec((count,), draw.dtype(op))
    if draw.chance(0.2):
        values = values.with_shape()
    if len(shape) == 1 and draw.chance(0.5):
        positions = positions[:, 0]
    operands = [
        index_operand(positions, index_dtype, 0.5),
        index_operand(shape, index_dtype),
        draw.data(values),
        draw.data(values.with_shape(), constant_probability=0.7),
    ]
    return operator(draw, op, operands, values.with_shape(*shape))


@case_generator("ONE_HOT")
def one_hot(draw: Draw, op: str) -> Case:
    depth = draw.between(1, 6)
    classes = index_operand(draw.random.integers(-2, depth + 2, draw.shape(0, 3)), draw.pick("int32", "int64"), 0.2)
    rank = classes.array.ndim
    axis = draw.between(-1, rank)
    shape = list(classes.array.shape)
    shape.insert(axis if axis >= 0 else rank, depth)
    value = Spec((), draw.dtype(op))
    operands = [
        classes,
        index_operand(depth, constant_probability=0.8),
        draw.data(value, constant_probability=0.7),
        draw.data(value, constant_probability=0.7),
    ]
    return operator(draw, op, operands, value.with_shape(*shape), axis=axis)


@case_generator("WHERE")
def where(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(tuple(size or 1 for size in draw.shape(1)), draw.dtype(op)), constant_probability=0)
    array = np.where(draw.random.random(x.array.shape) < 0.5, x.array, np.zeros((), x.array.dtype))
    return operator(draw, op, [replace(x, array=array)], Spec((None, array.ndim), "int64"), in_isolation=True)


@case_generator("FILL")
def fill(draw: Draw, op: str) -> Case:
    value = draw.data(draw.spec((), draw.dtype(op)), constant_probability=0.3)
    shape = draw.shape()
    return operator(draw, op, [index_operand(shape, draw.pick("int32", "int64")), value], value.spec.with_shape(*shape))


@case_generator("RANGE")
def number_range(draw: Draw, op: str) -> Case:
    dtype = draw.dtype(op)
    step: Any = draw.pick(1, 2, 3, -1, -3) if "int" in dtype else float(draw.random.uniform(0.1, 2)) * draw.pick(1, -1)
    first = draw.between(-5, 5) if "int" in dtype else float(draw.random.normal())
    bounds = [first, first + step * draw.between(0, 7) + (0 if "int" in dtype else step / 3), step]
    number = max(int(np.ceil((bounds[1] - bounds[0]) / step)), 0)
    in_isolation = draw.chance(0.5)
    return operator(
        draw,
        op,
        [index_operand(bound, dtype, 0.5) for bound in bounds],
        Spec((number,), dtype),
        in_isolation=in_isolation,
    )
