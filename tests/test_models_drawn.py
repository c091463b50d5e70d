"""Single operators that move elements, and those of windows, matrices and sequences, drawn.

``python tests/test_models_drawn.py 2000 7`` tries 2000, from seed 7, instead of the few that the test does.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from drawing import Draw, Family, main, numbers, pick, quantized, shape, told, trials

from conformance.case import Case
from conformance.lstms import SEQUENCE, STEP, Lstm
from conformance.models import Spec, alone, constant

FEW = 60
STORED = ("float32", "int8", "uint8", "int16")
MOVED = (*STORED, "int32", "int64", "bool")
FUSED = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


def made(op: str, draw: Draw, operands: list[Spec | None], y: Spec, **options: Any) -> Case:
    """A case of operands that are inputs unless they are constants."""
    given, k = {}, 0
    for spec in operands:
        if spec is not None and spec.value is None:
            given[f"x{k}"] = numbers(draw, spec)
            k += 1
    return alone(op, "drawn", operands, replace(y, value=None, name=""), options=options or None, given=given)


def sizes_of(spec: Spec) -> tuple[int, ...]:
    return tuple(size or 0 for size in spec.shape)


def constant_or_not(draw: Draw, spec: Spec) -> Spec:
    return replace(spec, value=numbers(draw, spec)) if draw.random() < 0.3 else spec


def table(values: Any, dtype: str = "int32") -> Spec:
    return constant(np.asarray(values, dtype))


# --- elements that move -----------------------------------------------------------------------


def shaped(draw: Draw) -> Case:
    op = pick(draw, "RESHAPE", "TRANSPOSE", "EXPAND_DIMS", "SQUEEZE", "TILE", "BROADCAST_TO", "REVERSE_V2")
    x = quantized(draw, shape(draw), pick(draw, *MOVED))
    sizes, rank = sizes_of(x), len(x.shape)
    if op == "RESHAPE":
        target = [int(size) for size in draw.permutation(sizes)] + [1] * int(draw.integers(0, 2))
        wanted = list(target)
        if target and 0 not in target and draw.random() < 0.3:
            wanted[int(draw.integers(len(target)))] = -1
        return made(op, draw, [x, table(wanted)], replace(x, shape=tuple(target)))
    if op == "TRANSPOSE" and rank:  # of a scalar LiteRT's result is whatever was in memory
        perm = [int(axis) for axis in draw.permutation(rank)]
        return made(op, draw, [x, table(perm)], replace(x, shape=tuple(sizes[axis] for axis in perm)))
    if op == "EXPAND_DIMS":
        axis = int(draw.integers(-rank - 1, rank + 1))
        target = list(sizes)
        target.insert(axis % (rank + 1), 1)
        return made(op, draw, [x, table(axis)], replace(x, shape=tuple(target)))
    if op == "SQUEEZE":
        ones = [axis for axis, size in enumerate(sizes) if size == 1 and draw.random() < 0.7]
        kept = tuple(size for axis, size in enumerate(sizes) if axis not in ones and (ones or size != 1))
        return made(op, draw, [x], replace(x, shape=kept), squeeze_dims=[a - rank if a % 2 else a for a in ones])
    if op == "TILE" or op == "TRANSPOSE":
        times = [int(n) for n in draw.integers(0 if draw.random() < 0.2 else 1, 4, rank)]
        return made(op, draw, [x, table(times)], replace(x, shape=tuple(np.multiply(sizes, times).tolist())))
    if op == "BROADCAST_TO":
        held = tuple(1 if draw.random() < 0.4 else size for size in sizes)
        return made(op, draw, [replace(x, shape=held), table(list(sizes))], x)
    if not rank or 0 in sizes:  # of no axes or elements LiteRT crashes
        return shaped(draw)
    first = int(draw.integers(rank))
    last = int(draw.integers(first + 1, rank + 1))
    axes = [axis - rank if draw.random() < 0.3 else axis for axis in range(first, last)]
    return made(op, draw, [x, table(axes)], x)


def cut(draw: Draw) -> Case:
    op = pick(draw, "SLICE", "STRIDED_SLICE", "SPLIT", "UNPACK", "GATHER", "GATHER_ND")
    x = quantized(draw, shape(draw, 1), pick(draw, *MOVED))
    sizes, rank = sizes_of(x), len(x.shape)
    axis = int(draw.integers(rank))
    if op == "SLICE":
        begin = [int(draw.integers(0, size + 1)) for size in sizes]
        taken = [int(draw.integers(0, size - first + 1)) for size, first in zip(sizes, begin, strict=True)]
        held = [-1 if first + n == size else n for first, n, size in zip(begin, taken, sizes, strict=True)]
        return made(op, draw, [x, table(begin), table(held)], replace(x, shape=tuple(taken)))
    if op == "STRIDED_SLICE":
        return strided(draw, x)
    if op == "SPLIT":
        x = replace(x, shape=tuple(2 * size if k == axis else size for k, size in enumerate(sizes)))
        parts = [replace(x, shape=sizes)] * 2
        given = {"x0": numbers(draw, x)}
        return alone(op, "drawn", [table(axis), x], *parts, options={"num_splits": 2}, given=given)
    rest = tuple(size for k, size in enumerate(sizes) if k != axis)
    if op == "UNPACK":
        if not sizes[axis]:
            return shaped(draw)
        options = {"axis": axis - rank if draw.random() < 0.5 else axis, "num": sizes[axis]}
        given = {"x0": numbers(draw, x)}
        return alone(op, "drawn", [x], *[replace(x, shape=rest)] * sizes[axis], options=options, given=given)
    if 0 in sizes:
        return shaped(draw)
    if op == "GATHER":
        wanted = draw.integers(0, sizes[axis], shape(draw)[:2]).astype(pick(draw, "int32", "int64"))
        target = (*sizes[:axis], *wanted.shape, *sizes[axis + 1 :])
        held = axis - rank if draw.random() < 0.5 else axis
        return made(op, draw, [x, constant(wanted)], replace(x, shape=target), axis=held)
    depth = int(draw.integers(1, rank + 1))
    places = np.stack([draw.integers(0, size, 3) for size in sizes[:depth]], axis=-1).astype(np.int32)
    return made(op, draw, [x, constant(places)], replace(x, shape=(3, *sizes[depth:])))


def strided(draw: Draw, x: Spec) -> Case:
    """Bounds within and beyond, steps both ways, every mask; numpy says how large the result is."""
    sizes = sizes_of(x)
    begin, end = ([int(draw.integers(-size - 2, size + 3)) for size in sizes] for _ in range(2))
    step = [int(pick(draw, 1, 1, 2, 3, -1, -2)) for _ in sizes]
    masks = {f"{name}_mask": int(draw.integers(0, 2 ** len(sizes))) for name in ("begin", "end")}
    shrunk = sum(1 << k for k, size in enumerate(sizes) if size and draw.random() < 0.2)
    index: list[Any] = []
    for k, size in enumerate(sizes):
        if shrunk >> k & 1:
            begin[k], step[k] = int(draw.integers(-size, size)), 1
            end[k] = begin[k] + 1
            masks = {name: mask & ~(1 << k) for name, mask in masks.items()}
            index.append(begin[k])
        else:
            bounds = [
                None if masks[f"{name}_mask"] >> k & 1 else at[k] for name, at in (("begin", begin), ("end", end))
            ]
            index.append(slice(*(as_counted(bound, size) for bound in bounds), step[k]) if size else slice(None))
    target = np.empty(sizes)[tuple(index)].shape
    tables = [table(values) for values in (begin, end, step)]
    return made("STRIDED_SLICE", draw, [x, *tables], replace(x, shape=target), shrink_axis_mask=shrunk, **masks)


def as_counted(bound: int | None, size: int) -> int | None:
    return bound


def joined(draw: Draw) -> Case:
    op = pick(draw, "CONCATENATION", "PACK", "PAD", "PADV2", "MIRROR_PAD", "SELECT_V2", "WHERE", "FILL")
    x = quantized(draw, shape(draw, 1), pick(draw, *MOVED))
    sizes, rank = sizes_of(x), len(x.shape)
    axis = int(draw.integers(rank))
    if op == "CONCATENATION":
        other = replace(x, shape=tuple(int(draw.integers(0, 4)) if k == axis else n for k, n in enumerate(sizes)))
        total = tuple(n + sizes_of(other)[k] if k == axis else n for k, n in enumerate(sizes))
        held = axis - rank if draw.random() < 0.5 else axis
        return made(op, draw, [x, constant_or_not(draw, other)], replace(x, shape=total), axis=held)
    if op == "PACK":
        axis = int(draw.integers(-rank - 1, rank + 1))
        target = list(sizes)
        target.insert(axis % (rank + 1), 2)
        return made(op, draw, [x, x], replace(x, shape=tuple(target)), axis=axis, values_count=2)
    if op == "SELECT_V2":
        condition = Spec(tuple(1 if draw.random() < 0.4 else n for n in sizes), "bool")
        return made(op, draw, [condition, x, constant_or_not(draw, x)], x)
    if op == "FILL":
        value = replace(x, shape=(), scale=None)
        return made(op, draw, [table(list(sizes)), value], replace(x, scale=None))
    if op == "WHERE":
        bare = replace(x, scale=None, dtype=pick(draw, "bool", "float32", "int32", "int64", "int8"))
        return made(op, draw, [bare], Spec((None, rank), "int64"))
    most = [(size if pick(draw, True, False) else size - 1) if op == "MIRROR_PAD" else 3 for size in sizes]
    mode = "SYMMETRIC" if any(n == size for n, size in zip(most, sizes, strict=True)) else "REFLECT"
    rows = [[int(draw.integers(0, max(n, 0) + 1)) for _ in range(2)] for n in most]
    target = tuple(size + sum(row) for size, row in zip(sizes, rows, strict=True))
    if op == "MIRROR_PAD":
        return made(op, draw, [x, table(rows)], replace(x, shape=target), mode=mode)
    number = [] if op == "PAD" else [replace(x, shape=(), value=numbers(draw, replace(x, shape=())))]
    return made(op, draw, [x, table(rows), *number], replace(x, shape=target))


# --- windows and matrices ---------------------------------------------------------------------


def weights(draw: Draw, sizes: tuple[int, ...], dtype: str, axis: int, deep: int) -> tuple[Spec, float]:
    """Of the activations' dtype, or int8 with a scale per channel; the mean scale."""
    if dtype == "float32":
        return constant(draw.normal(0, 0.4, sizes).astype(np.float32)), 1.0
    if dtype == "uint8":
        held = draw.integers(0, 256, sizes).astype(np.uint8)
        return constant(held, None, 0.011, int(pick(draw, 0, 128, 255))), 0.011
    held = draw.integers(-127, 128, sizes).astype(np.int8)
    scales = draw.uniform(0.004, 0.02, sizes[axis]).astype(np.float32).tolist()
    return constant(held, None, scales, [0] * sizes[axis], axis), float(np.mean(scales))


def biased(draw: Draw, w: Spec, x: Spec, channels: int) -> Spec:
    if x.dtype == "float32":
        return constant(draw.normal(0, 1, channels).astype(np.float32))
    scale = (np.asarray(w.scale) * float(np.asarray(x.scale))).tolist()
    dtype = "int64" if x.dtype == "int16" else "int32"
    return constant(
        draw.integers(-500, 500, channels).astype(dtype), None, scale, 0 if np.ndim(scale) == 0 else [0] * channels
    )


def image(draw: Draw) -> tuple[int, ...]:
    return (int(pick(draw, 1, 2)), int(pick(draw, 1, 5, 7)), int(pick(draw, 1, 3, 11)), int(pick(draw, 1, 2, 3)))


def windowed(draw: Draw) -> Case:
    op = pick(draw, "CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D")
    x = quantized(draw, image(draw), pick(draw, *STORED))
    batch, height, width, depth = sizes_of(x)
    window, stride = [int(pick(draw, 1, 2, 3)) for _ in "hw"], [int(pick(draw, 1, 2)) for _ in "hw"]
    pools = op.endswith("POOL_2D")
    dilation = [1 if pools or max(stride) > 1 else int(pick(draw, 1, 2)) for _ in "hw"]
    spread = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    valid = all(n <= size for n, size in zip(spread, (height, width), strict=True)) and pick(draw, True, False)
    span = [
        (size - n) // s + 1 if valid else -(-size // s)
        for size, n, s in zip((height, width), spread, stride, strict=True)
    ]
    options = {"padding": "VALID" if valid else "SAME", "stride_h": stride[0], "stride_w": stride[1]}
    options["fused_activation_function"] = pick(draw, *FUSED)
    if pools:
        y = replace(x, shape=(batch, *span, depth))
        return made(op, draw, [x], y, filter_height=window[0], filter_width=window[1], **options)
    options |= {"dilation_h_factor": dilation[0], "dilation_w_factor": dilation[1]}
    deep = op == "DEPTHWISE_CONV_2D"
    channels = depth * int(pick(draw, 1, 2)) if deep else int(pick(draw, 1, 4, 5))
    w, scale = weights(
        draw, (1, *window, channels) if deep else (channels, *window, depth), x.dtype, 3 if deep else 0, depth
    )
    if deep:
        options["depth_multiplier"] = channels // depth
    y = scaled(draw, x, scale, prod(window) * (1 if deep else depth))
    return made(op, draw, [x, w, biased(draw, w, x, channels)], replace(y, shape=(batch, *span, channels)), **options)


def scaled(draw: Draw, x: Spec, scale: float, terms: int) -> Spec:
    """A result whose steps suit sums of so many products."""
    if x.scale is None:
        return x
    y = quantized(draw, (), x.dtype)
    return replace(y, scale=float(np.asarray(x.scale)) * scale * 70 * terms**0.5 * float(draw.uniform(0.5, 2)))


def multiplied(draw: Draw) -> Case:
    op = pick(draw, "FULLY_CONNECTED", "BATCH_MATMUL")
    dtype = pick(draw, *STORED) if op == "FULLY_CONNECTED" else pick(draw, "float32", "int8", "int16")
    rows, inner, columns = (int(pick(draw, 1, size)) for size in (3, 7, 5))
    if op == "FULLY_CONNECTED":
        x = quantized(draw, (rows, inner), dtype)
        w, scale = weights(draw, (columns, inner), dtype, 0, inner)
        if dtype != "float32" and w.dtype == "int8" and draw.random() < 0.5:
            w = replace(w, scale=scale, zero_point=0, axis=0)
        y = replace(scaled(draw, x, scale, inner), shape=(rows, columns))
        return made(op, draw, [x, w, biased(draw, w, x, columns)], y, fused_activation_function=pick(draw, *FUSED))
    outer = shape(draw)[:2]
    turned = [bool(draw.integers(2)) for _ in "xy"]
    sizes = [
        (n, k) if not back else (k, n) for back, (n, k) in zip(turned, ((rows, inner), (inner, columns)), strict=True)
    ]
    x, other = (quantized(draw, (*outer, *pair), dtype) for pair in sizes)
    other = other if dtype != "int16" else replace(other, dtype=dtype)
    y = replace(scaled(draw, x, float(np.asarray(other.scale or 1)), inner), shape=(*outer, rows, columns))
    return made(op, draw, [x, other], y, adj_x=turned[0], adj_y=turned[1])


def resized(draw: Draw) -> Case:
    op = pick(draw, "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
    x = quantized(draw, image(draw), pick(draw, "float32", "int8", "uint8"))
    size = [int(pick(draw, 1, 2, 4, 9, 13)) for _ in "hw"]
    corners, half = pick(draw, (False, False), (True, False), (False, True))
    batch, _, _, depth = sizes_of(x)
    y = replace(x, shape=(batch, *size, depth))
    return made(op, draw, [x, table(size)], y, align_corners=corners, half_pixel_centers=half)


# --- sequences --------------------------------------------------------------------------------


def recurrent(draw: Draw) -> Case:
    """LSTMs with any of their parts, over three runs."""
    dtype, held = pick(draw, ("float32", "float32"), ("float32", "int8"), ("int8", "int8"), ("int8", "int8"))
    part = pick(draw, {}, {"peephole": True}, {"outputs": 13}, {"norm": True})
    clips = [(name, float(draw.uniform(0.2, 2))) for name in ("cell_clip", "proj_clip") if draw.random() < 0.4]
    steps = (float(draw.uniform(0.004, 0.02)), int(draw.integers(-60, 60)))
    of = Lstm(
        op=pick(draw, SEQUENCE, SEQUENCE, STEP),
        dtype=dtype,
        weights=held,
        major=bool(draw.integers(2)),
        coupled=draw.random() < 0.3,
        batch=int(pick(draw, 1, 3)),
        time=int(pick(draw, 1, 5)),
        inputs=int(pick(draw, 1, 7)),
        cells_scale=2.0 ** -int(draw.integers(9, 16)),
        hidden=steps,
        seed=str(draw.integers(10**6)),
        options=tuple(clips),
        **part,
    )
    x = of.x
    return of.case("drawn", given=[{"x0": numbers(draw, x)} for _ in range(3)])


FAMILIES: tuple[Family, ...] = (shaped, cut, joined, windowed, multiplied, resized, recurrent)


def test_drawn_operators_give_the_kernels_numbers() -> None:
    wrong = [told(case, found) for case, found in islice(trials(FAMILIES, 1), FEW) if found]
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    main(FAMILIES)
