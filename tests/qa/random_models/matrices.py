"""Random matrix products, embedding tables and sparse weights."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from conformance.case import Case
from conformance.cases.tensor.sparse import dense
from conformance.models import Net, Spec, constant, net
from tests.qa.random_models.draw import FUSED, STORED, Draw, Operand, always, draws, operator, scale, table
from tests.qa.random_models.windows import bias, bias_type, result_spec, weights


@draws("FULLY_CONNECTED")
def add_layer(draw: Draw, op: str) -> Case:
    rows, inner, columns = draw.shape(0, 2), draw.pick(1, 7, 8), draw.pick(1, 5, 4)
    x = replace(draw.data(draw.spec((*rows, inner), draw.pick(*STORED)), fixed=0), channels=True)
    w = weights(draw, (columns, inner), x.spec.dtype, 0)
    if w.spec.dtype == "int8" and draw.chance(0.2):
        w = always(
            constant(draw.random.integers(-7, 8, (columns, inner)).astype(ml_dtypes.int4), None, w.spec.scale, 0, 0)
        )
    keep = draw.chance(0.5)
    leading = rows if keep else (int(np.prod(rows)),)
    y = result_spec(draw, x, w, inner).with_shape(*leading, columns)
    options = {"fused_activation_function": draw.pick(*FUSED), "keep_num_dims": keep}
    if w.spec.dtype == "int8" and x.spec.dtype == "float32":
        options["asymmetric_quantize_inputs"] = draw.chance(0.5)
    more = bias(draw, w, x, columns)
    return operator(draw, op, [x, w, *more], y, **options, **bias_type(x, more))


@draws("BATCH_MATMUL")
def multiply(draw: Draw, op: str) -> Case:
    dtype = draw.dtype(op)
    rows, inner, columns = (draw.pick(1, size) for size in (3, 7, 5))
    outer = draw.shape(0, 2)
    turned = [draw.chance(0.5) for _ in "xy"]
    pairs = ((rows, inner), (inner, columns))
    shapes = [pair if not back else pair[::-1] for back, pair in zip(turned, pairs, strict=True)]
    x = draw.data(draw.spec((*outer, *shapes[0]), dtype), fixed=0)
    other = draw.data(draw.spec((*draw.broadcast(outer), *shapes[1]), dtype), fixed=0.4)
    if dtype == "float32" and draw.chance(0.2):
        stored = draw.random.integers(-127, 128, other.array.shape).astype(np.int8)
        other = always(constant(stored, None, 0.013, 0))
    y = result_spec(draw, x, other, inner).with_shape(*outer, rows, columns)
    return operator(draw, op, [x, other], y, adj_x=turned[0], adj_y=turned[1])


@draws("EMBEDDING_LOOKUP")
def embed(draw: Draw, op: str) -> Case:
    shape = tuple(size or 1 for size in draw.shape(2, 4))
    kind = draw.pick("float32", "float32", "int8", "uint8", "int4")
    chosen = table(draw.random.integers(0, shape[0], draw.between(1, 6)), fixed=0)
    y = Spec((len(chosen.array), *shape[1:]))
    rows: Operand = draw.data(Spec(shape), fixed=0.7)
    if kind in ("int8", "int4"):
        shape = (shape[0], 8) if kind == "int4" else shape
        limit = 7 if kind == "int4" else 127
        values = draw.random.integers(-limit, limit + 1, shape).astype(getattr(ml_dtypes, kind, kind))
        scales = draw.random.uniform(0.01, 0.1, shape[0]).astype(np.float32).tolist()
        per_row = draw.chance(0.5)
        rows = always(constant(values, None, scales if per_row else 0.03, [0] * len(scales) if per_row else 0))
        y = Spec((len(chosen.array), *shape[1:]))
    elif kind == "uint8":
        rows = draw.data(draw.spec(shape, "uint8"), fixed=0.7)
        y = rows.spec.with_shape(len(chosen.array), *shape[1:])
    return operator(draw, op, [chosen, rows], y)


@draws("EMBEDDING_LOOKUP_SPARSE")
def embed_sparse(draw: Draw, op: str) -> Case:
    count, rank = draw.between(1, 7), draw.between(2, 3)
    shape = tuple(draw.between(1, 4) for _ in range(rank))
    places = sorted(draw.random.integers(0, shape, (count, rank)).tolist())
    rows = draw.data(Spec(tuple(size or 1 for size in draw.shape(2, 3))), fixed=0.5)
    ids = draw.random.integers(0, rows.array.shape[0], count)
    operands = [table(ids, fixed=0.5), table(places), table(shape), draw.data(Spec((count,)), fixed=0.5), rows]
    y = Spec((*shape[:-1], *rows.array.shape[1:]))
    return operator(draw, op, operands, y, combiner=draw.pick("SUM", "MEAN", "SQRTN"))


@draws("HASHTABLE_LOOKUP")
def by_key(draw: Draw, op: str) -> Case:
    keys = np.unique(draw.random.integers(-9, 30, draw.between(1, 6))).astype(np.int32)
    wanted = draw.random.integers(-9, 30, draw.between(1, 8))
    wanted[: len(wanted) // 2] = draw.pick(*keys.tolist())
    rows = draw.data(
        draw.spec((len(keys), *(size or 1 for size in draw.shape(0, 2))), draw.pick("float32", "int32", "int8"))
    )
    y, hits = rows.spec.with_shape(len(wanted), *rows.array.shape[1:]), Spec((len(wanted),), "uint8")
    return operator(draw, op, [table(wanted, fixed=0), table(keys), rows], y, hits, plain=draw.chance(0.7))


@draws("DENSIFY")
def sparse(draw: Draw, op: str) -> Case:
    rows, inner = draw.pick(4, 5), draw.pick(7, 8)
    dtype = draw.pick("float32", "float32", "int8")
    array = draw.random.normal(0, 1, (rows, inner)).astype(np.float32)  # at least one stays: an empty buffer is none
    w = constant(array) if dtype == "float32" else constant(np.clip(array * 60, -127, 127).astype(np.int8), None, 0.02)
    kinds = [draw.pick("dense", "csr"), "csr"]
    index = draw.pick("int32", "uint8", "uint16")
    x = draw.spec((3, inner), dtype)
    numbers = draw.numbers(x)
    y = replace(x, scale=scale(x) * 0.9) if dtype == "int8" else x

    def build(model: Net) -> None:
        ref = dense(model, w, kinds, index=index)
        model.output(
            model.call("FULLY_CONNECTED", [model.input(replace(x, name="x0")), ref, None], y.with_shape(3, rows))
        )

    return net(op, "random", build, dtype=dtype, given={"x0": numbers}, runs=1)
