"""Random reductions, sorting, cumulative sums and segment operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Spec
from tests.qa.random_models.draw import Draw, case_generator, index_operand, operator, sizes

REDUCING = ("SUM", "MEAN", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL")


@case_generator(*REDUCING)
def reduce(draw: Draw, op: str) -> Case:
    dtype = draw.pick(draw.dtype(op), "bool") if op in ("REDUCE_MAX", "REDUCE_MIN") else draw.dtype(op)
    x = draw.spec(draw.shape(), dtype)
    rank = len(x.shape)
    reduced_axes = (
        [int(axis) for axis in draw.random.choice(rank, draw.between(0, rank), replace=False)] if rank else []
    )
    keep_dims = draw.chance(0.5)
    shape = tuple(
        1 if k in reduced_axes else size for k, size in enumerate(x.shape) if keep_dims or k not in reduced_axes
    )
    same_parameters = op in ("REDUCE_MAX", "REDUCE_MIN") or not reduced_axes
    y = (x if same_parameters else draw.spec((), dtype)).with_shape(*shape)
    axes: Any = [axis - rank if draw.chance(0.3) else axis for axis in reduced_axes]
    if len(axes) == 1 and draw.chance(0.2):
        axes = axes[0]
    elif axes and draw.chance(0.1):
        axes = [*axes, axes[0]]
    array = draw.random_array(x, ends=op != "MEAN" or dtype != "int64")
    if op == "REDUCE_PROD" and dtype == "float32":
        array = (array / 3).astype(np.float32)
    return operator(
        draw,
        op,
        [replace(draw.data(x, constant_probability=0), array=array), index_operand(axes)],
        y,
        keep_dims=keep_dims,
    )


@case_generator("ARG_MAX", "ARG_MIN")
def arg_extreme(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(1), draw.dtype(op)), constant_probability=0)
    if draw.chance(0.5) and x.array.size:  # some equal elements
        x = replace(x, array=np.resize(x.array.reshape(-1)[:3], x.array.shape))
    axis, index_dtype = draw.axis(x.array.ndim), draw.pick("int32", "int64")
    y = Spec(np.delete(x.array.shape, axis).tolist(), index_dtype)
    axis_operand = index_operand([axis] if draw.chance(0.2) else axis, draw.pick("int32", "int64"))
    return operator(draw, op, [x, axis_operand], replace(y, shape=tuple(y.shape)), output_type=index_dtype.upper())


@case_generator("CUMSUM")
def cumulative_sum(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(draw.shape(1), draw.dtype(op)), constant_probability=0)
    options = {"exclusive": draw.chance(0.5), "reverse": draw.chance(0.5)}
    return operator(draw, op, [x, index_operand(draw.axis(x.array.ndim))], x.spec, **options)


PARAMETERS: dict[str, dict[str, tuple[float, int]]] = {
    "SOFTMAX": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "LOG_SOFTMAX": {"int8": (1 / 16, 127), "uint8": (1 / 16, 255)},
    "L2_NORMALIZATION": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128)},
}


@case_generator("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION")
def normalize(draw: Draw, op: str) -> Case:
    dtype = draw.dtype(op)
    shape = tuple(size or 1 for size in draw.shape(1))  # LiteRT crashes on empty tensors
    x = draw.data(draw.spec(shape, dtype), constant_probability=0)
    scale, point = PARAMETERS[op].get(dtype, (None, 0))
    y = Spec(shape, dtype, scale, point)
    return operator(draw, op, [x], y, **({"beta": float(draw.random.uniform(0.3, 2))} if op == "SOFTMAX" else {}))


@case_generator("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(draw.shape(4)), constant_probability=0)
    options = {
        "radius": draw.between(0, 4),
        "bias": float(draw.random.uniform(0.5, 2)),
        "alpha": float(draw.random.uniform(0, 1)),
        "beta": float(draw.random.uniform(0.2, 1)),
    }
    return operator(draw, op, [x], x.spec, **options)


@case_generator("TOPK_V2")
def top_k(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(1), draw.dtype(op)), constant_probability=0)
    if draw.chance(0.5) and x.array.size:
        x = replace(x, array=np.resize(x.array.reshape(-1)[:3], x.array.shape))
    k = draw.between(0 if draw.chance(0.1) else 1, max(x.array.shape[-1], 1))
    shape = (*x.array.shape[:-1], k)
    number = index_operand(k, draw.pick("int32", "int16"))
    return operator(draw, op, [x, number], x.spec.with_shape(*shape), Spec(shape, draw.pick("int32", "int16")))


@case_generator("UNIQUE")
def unique(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(1, 1), draw.dtype(op)), constant_probability=0)
    x = replace(x, array=np.resize(x.array[:4], x.array.shape) if draw.chance(0.6) else x.array)
    index_dtype = draw.pick("int32", "int64")
    index_spec = Spec(x.array.shape, index_dtype)
    return operator(
        draw, op, [x], x.spec.with_shape(None), index_spec, idx_out_type=index_dtype.upper(), in_isolation=True
    )


@case_generator("SEGMENT_SUM")
def segment_sum(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(draw.shape(1), draw.dtype(op)), constant_probability=0)
    ids = np.cumsum(draw.random.integers(0, 2, x.array.shape[0]))
    ids -= ids[0] if len(ids) else 0
    y = Spec((int(ids.max()) + 1 if len(ids) else 0, *x.array.shape[1:]), x.spec.dtype)
    return operator(draw, op, [x, index_operand(ids)], y)


@case_generator("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN")
def unsorted_segments(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(draw.shape(1), draw.dtype(op)), constant_probability=0)
    id_rank, count = draw.between(1, x.array.ndim), draw.between(1, 9)
    ids = draw.random.integers(-2, count, x.array.shape[:id_rank])
    y = Spec((count, *x.array.shape[id_rank:]), x.spec.dtype)
    return operator(draw, op, [x, index_operand(ids, constant_probability=0.5), index_operand(count)], y)


@case_generator("RFFT2D")
def rfft_2d(draw: Draw, op: str) -> Case:
    x = draw.data(Spec(draw.shape(2)), constant_probability=0)
    lengths = [
        draw.pick(1, 2, 4, 8, 16),
        draw.pick(2, 4, 8, 16),
    ]  # for rows of length 1, the kernel confuses real and imaginary parts
    y = Spec((*x.array.shape[:-2], lengths[0], lengths[1] // 2 + 1), "complex64")
    return operator(draw, op, [x, index_operand(lengths)], y)


@case_generator("MATRIX_DIAG")
def matrix_diag(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(1, 3), draw.dtype(op)), constant_probability=0)
    return operator(draw, op, [x], x.spec.with_shape(*x.array.shape, x.array.shape[-1]))


@case_generator("MATRIX_SET_DIAG")
def matrix_set_diag(draw: Draw, op: str) -> Case:
    x = draw.data(draw.spec(draw.shape(2), draw.dtype(op)), constant_probability=0)
    *batch, rows, columns = sizes(x.spec)
    operands = [x, draw.data(x.spec.with_shape(*batch, min(rows, columns)))]
    return operator(draw, op, operands, x.spec, sizes_unchecked=True)
