"""Random matrix products, embedding tables and sparse weights."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from conformance.case import Case
from conformance.cases.tensor.sparse import add_densified_constant
from conformance.models import Net, Spec, constant, net
from tests.qa.random_models.draw import (
    ACTIVATION_DTYPES,
    FUSED,
    Draw,
    Operand,
    case_generator,
    index_operand,
    operator,
    scale,
    weight_operand,
)
from tests.qa.random_models.windows import bias, bias_type, result_spec, weights


@case_generator("FULLY_CONNECTED")
def fully_connected(draw: Draw, op: str) -> Case:
    batch_shape, depth, columns = draw.shape(0, 2), draw.pick(1, 7, 8), draw.pick(1, 5, 4)
    x = replace(
        draw.data(draw.spec((*batch_shape, depth), draw.pick(*ACTIVATION_DTYPES)), constant_probability=0),
        has_static_channels=True,
    )
    w = weights(draw, (columns, depth), x.spec.dtype, 0)
    if w.spec.dtype == "int8" and draw.chance(0.2):
        w = weight_operand(
            constant(draw.random.integers(-7, 8, (columns, depth)).astype(ml_dtypes.int4), None, w.spec.scale, 0, 0)
        )
    keep_dims = draw.chance(0.5)
    leading = batch_shape if keep_dims else (int(np.prod(batch_shape)),)
    y = result_spec(draw, x, w, depth).with_shape(*leading, columns)
    options = {"fused_activation_function": draw.pick(*FUSED), "keep_num_dims": keep_dims}
    if w.spec.dtype == "int8" and x.spec.dtype == "float32":
        options["asymmetric_quantize_inputs"] = draw.chance(0.5)
    biases = bias(draw, w, x, columns)
    return operator(draw, op, [x, w, *biases], y, **options, **bias_type(x, biases))


@case_generator("BATCH_MATMUL")
def batch_matmul(draw: Draw, op: str) -> Case:
    dtype = draw.dtype(op)
    rows, depth, columns = (draw.pick(1, size) for size in (3, 7, 5))
    batch_shape = draw.shape(0, 2)
    transposed = [draw.chance(0.5) for _ in "xy"]
    matrix_shapes = ((rows, depth), (depth, columns))
    shapes = [
        matrix_shape if not is_transposed else matrix_shape[::-1]
        for is_transposed, matrix_shape in zip(transposed, matrix_shapes, strict=True)
    ]
    x = draw.data(draw.spec((*batch_shape, *shapes[0]), dtype), constant_probability=0)
    y = draw.data(draw.spec((*draw.broadcast(batch_shape), *shapes[1]), dtype), constant_probability=0.4)
    if dtype == "float32" and draw.chance(0.2):
        quantized = draw.random.integers(-127, 128, y.array.shape).astype(np.int8)
        y = weight_operand(constant(quantized, None, 0.013, 0))
    result = result_spec(draw, x, y, depth).with_shape(*batch_shape, rows, columns)
    return operator(draw, op, [x, y], result, adj_x=transposed[0], adj_y=transposed[1])


@case_generator("EMBEDDING_LOOKUP")
def embedding_lookup(draw: Draw, op: str) -> Case:
    shape = tuple(size or 1 for size in draw.shape(2, 4))
    dtype = draw.pick("float32", "float32", "int8", "uint8", "int4")
    ids = index_operand(draw.random.integers(0, shape[0], draw.between(1, 6)), constant_probability=0)
    y = Spec((len(ids.array), *shape[1:]))
    rows: Operand = draw.data(Spec(shape), constant_probability=0.7)
    if dtype in ("int8", "int4"):
        shape = (shape[0], 8) if dtype == "int4" else shape
        limit = 7 if dtype == "int4" else 127
        values = draw.random.integers(-limit, limit + 1, shape).astype(getattr(ml_dtypes, dtype, dtype))
        scales = draw.random.uniform(0.01, 0.1, shape[0]).astype(np.float32).tolist()
        per_row = draw.chance(0.5)
        rows = weight_operand(constant(values, None, scales if per_row else 0.03, [0] * len(scales) if per_row else 0))
        y = Spec((len(ids.array), *shape[1:]))
    elif dtype == "uint8":
        rows = draw.data(draw.spec(shape, "uint8"), constant_probability=0.7)
        y = rows.spec.with_shape(len(ids.array), *shape[1:])
    return operator(draw, op, [ids, rows], y)


@case_generator("EMBEDDING_LOOKUP_SPARSE")
def embedding_lookup_sparse(draw: Draw, op: str) -> Case:
    count, rank = draw.between(1, 7), draw.between(2, 3)
    shape = tuple(draw.between(1, 4) for _ in range(rank))
    positions = sorted(draw.random.integers(0, shape, (count, rank)).tolist())
    rows = draw.data(Spec(tuple(size or 1 for size in draw.shape(2, 3))), constant_probability=0.5)
    ids = draw.random.integers(0, rows.array.shape[0], count)
    operands = [
        index_operand(ids, constant_probability=0.5),
        index_operand(positions),
        index_operand(shape),
        draw.data(Spec((count,)), constant_probability=0.5),
        rows,
    ]
    y = Spec((*shape[:-1], *rows.array.shape[1:]))
    return operator(draw, op, operands, y, combiner=draw.pick("SUM", "MEAN", "SQRTN"))


@case_generator("HASHTABLE_LOOKUP")
def hashtable_lookup(draw: Draw, op: str) -> Case:
    keys = np.unique(draw.random.integers(-9, 30, draw.between(1, 6))).astype(np.int32)
    requested_keys = draw.random.integers(-9, 30, draw.between(1, 8))
    requested_keys[: len(requested_keys) // 2] = draw.pick(*keys.tolist())
    rows = draw.data(
        draw.spec((len(keys), *(size or 1 for size in draw.shape(0, 2))), draw.pick("float32", "int32", "int8"))
    )
    y, hits = rows.spec.with_shape(len(requested_keys), *rows.array.shape[1:]), Spec((len(requested_keys),), "uint8")
    return operator(
        draw,
        op,
        [index_operand(requested_keys, constant_probability=0), index_operand(keys), rows],
        y,
        hits,
        in_isolation=draw.chance(0.7),
    )


@case_generator("DENSIFY")
def densify(draw: Draw, op: str) -> Case:
    rows, depth = draw.pick(4, 5), draw.pick(7, 8)
    dtype = draw.pick("float32", "float32", "int8")
    array = draw.random.normal(0, 1, (rows, depth)).astype(np.float32)  # nonzeros: an empty buffer would mean no data
    w = constant(array) if dtype == "float32" else constant(np.clip(array * 60, -127, 127).astype(np.int8), None, 0.02)
    dim_formats = [draw.pick("dense", "csr"), "csr"]
    index = draw.pick("int32", "uint8", "uint16")
    x = draw.spec((3, depth), dtype)
    x_array = draw.random_array(x)
    y = replace(x, scale=scale(x) * 0.9) if dtype == "int8" else x

    def build(model: Net) -> None:
        ref = add_densified_constant(model, w, dim_formats, index_dtype=index)
        model.output(
            model.call("FULLY_CONNECTED", [model.input(replace(x, name="x0")), ref, None], y.with_shape(3, rows))
        )

    return net(op, "random", build, dtype=dtype, input_arrays={"x0": x_array}, runs=1)
