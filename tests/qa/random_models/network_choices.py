"""Blocks of random networks that produce or read indices, sizes or conditions."""

from __future__ import annotations

from math import prod

import numpy as np

from conformance.builder import TensorRef
from conformance.lstms import Lstm
from conformance.models import Spec, constant
from tests.qa.random_models.networks import Network, Unfit, block, step

INTEGERS = ("int32", "int64")


@step("ARG_MAX", "ARG_MIN", weight=0.7)
def best(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    axis = n.draw.between(0, len(shape) - 1)
    kept = tuple(size for k, size in enumerate(shape) if k != axis)
    dtype = n.draw.pick(*INTEGERS)
    where = n.aside(
        n.code, [x, n.table(axis - n.draw.pick(0, len(shape)))], Spec(kept, dtype), output_type=dtype.upper()
    )
    if n.draw.chance(0.4):
        n.aside("CAST", where, Spec(kept, "float32"), in_data_type=dtype.upper(), out_data_type="FLOAT32")


@step("TOPK_V2", weight=0.7)
def most(n: Network, x: TensorRef) -> None:
    *rows, last = n.rank(x, 2, 3, 4)
    count = n.draw.between(1, last)
    y, where = n.activation((*rows, count), like=x), Spec((*rows, count), "int32")
    values, _ = n.aside("TOPK_V2", [x, n.table(count)], y, where)
    n.beside.remove(values)
    n.pool.append(values)


@step("SPLIT_V", weight=0.8)
def cut(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    axis = n.draw.between(0, len(shape) - 1)
    if shape[axis] < 2:
        raise Unfit
    at = n.draw.between(1, shape[axis] - 1)
    sizes = [at, shape[axis] - at]
    parts = [n.activation([s if k == axis else size for k, size in enumerate(shape)], like=x) for s in sizes]
    n.call([x, n.table(sizes), n.table(axis)], *parts, num_splits=2)


@step("CUMSUM", weight=0.4)
def running(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    axis = n.table(n.draw.between(0, len(shape) - 1))
    n.apply("CUMSUM", [x, axis], exclusive=n.draw.chance(0.3), reverse=n.draw.chance(0.3))


@step("BROADCAST_TO", weight=0.5)
def repeat(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    wide = [2 if size == 1 else size for size in shape]
    target = wide if n.draw.chance(0.5) or len(shape) == 4 else [2, *wide]
    n.apply("BROADCAST_TO", [x, n.table(target)], target, like=x)


@step("GATHER_ND", weight=0.5)
def points(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    depth = n.draw.between(1, len(shape) - 1)
    places = np.stack([n.draw.random.integers(0, size, 3) for size in shape[:depth]], 1)
    n.apply("GATHER_ND", [x, n.table(places)], (3, *shape[depth:]), like=x)


@step("SCATTER_ND", weight=0.3)
def scatter(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3)
    if n.dtype != "float32":
        raise Unfit  # the rest is 0 as stored
    places = n.draw.random.permutation(shape[0] + 2)[: shape[0], None]
    whole = (shape[0] + 2, *shape[1:])
    n.apply("SCATTER_ND", [n.table(places), x, n.table(whole)], whole, like=x)


@step("DYNAMIC_UPDATE_SLICE", weight=0.5)
def update(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    part = tuple(n.draw.between(1, size) for size in shape)
    begin = [n.draw.between(-1, size) for size in shape]  # the kernel moves what would reach beyond
    n.apply("DYNAMIC_UPDATE_SLICE", [x, n.operand(n.numbers(*part), like=x), n.table(begin)], like=x)


@step("SEGMENT_SUM", weight=0.3)
def sum_segments(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3)
    ids = np.sort(n.draw.random.integers(0, 3, shape[0]))
    ids = np.unique(ids, return_inverse=True)[1]
    n.apply("SEGMENT_SUM", [x, n.table(ids)], (int(ids[-1]) + 1, *shape[1:]))


@step("REDUCE_MIN", "REDUCE_PROD", weight=0.3)
def least(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    if n.code == "REDUCE_PROD" and (n.dtype != "float32" or shape[-1] > 8):
        raise Unfit
    like = x if n.code == "REDUCE_MIN" else None
    n.apply(n.code, [x, n.table([len(shape) - 1])], shape[:-1], like=like, keep_dims=False)


@step("L2_POOL_2D", "LOCAL_RESPONSE_NORMALIZATION", weight=0.3)
def neighbors(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    if n.code == "LOCAL_RESPONSE_NORMALIZATION":
        n.apply(n.code, [x], radius=1, bias=1.0, alpha=0.2, beta=0.5)
        return
    window = {"filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1}
    n.apply(n.code, [x], (batch, h, w, c), padding="SAME", **window)


@step("SQRT", "RSQRT", "LOG", weight=0.3)
def of_positives(n: Network, x: TensorRef) -> None:
    if n.dtype != "float32":
        raise Unfit
    n.apply(n.code, [n.apply("ADD", [n.apply("ABS", [x]), n.operand(np.float32([0.5]))])])


@step("COS", "POW", "ADD_N", "RELU_0_TO_1", weight=0.3)
def elements(n: Network, x: TensorRef) -> None:
    if n.code == "POW":
        n.apply("POW", [x, n.near(2)])
    elif n.code == "ADD_N":
        n.apply("ADD_N", [x, n.other(x), x])
    else:
        n.apply(n.code, [x])


@step("CONV_3D", weight=2)
def volume(n: Network, x: TensorRef) -> None:
    *sizes, c = n.rank(x, 5)
    w, b = n.numbers(1, 2, 3, c, 5, spread=0.3), n.numbers(5, spread=0.3)
    if n.kind == "half" or min(sizes) < 1:
        raise Unfit
    steps = {f"stride_{axis}": 1 for axis in "dhw"} | {f"dilation_{axis}_factor": 1 for axis in "dhw"}
    n.apply("CONV_3D", [x, constant(w), constant(b)], (*sizes, 5), padding="SAME", **steps)


@step("EMBEDDING_LOOKUP", weight=0.4)
def look_up(n: Network, x: TensorRef) -> None:
    """Gather rows of a table by the ARG_MAX of activations."""
    rows, width = n.rank(x, 2)
    if n.dtype != "float32":
        raise Unfit
    ids = n.aside("ARG_MAX", [x, n.table(1)], Spec((rows,), "int32"), output_type="INT32")
    n.apply("EMBEDDING_LOOKUP", [*ids, constant(n.numbers(width, 6))], (rows, 6))


@step("ONE_HOT", weight=0.4)
def one_hot(n: Network, x: TensorRef) -> None:
    *rows, width = n.rank(x, 2, 3)
    if n.dtype != "float32":
        raise Unfit
    where = n.aside("ARG_MAX", [x, n.table(len(rows))], Spec(tuple(rows), "int32"), output_type="INT32")
    n.apply("ONE_HOT", [*where, n.table(width), n.near(1), n.near(0)], (*rows, width), axis=-1)


@step("GREATER", "LESS", "EQUAL", weight=0.3)
def compare(n: Network, x: TensorRef) -> None:
    shape = n.shape(x)
    if n.code == "EQUAL" and n.dtype != "float32":
        raise Unfit  # a step more or less, and it is another choice
    which = n.aside(n.code, [x, n.operand(n.numbers(*shape[-1:]), like=x)], Spec(shape, "bool"))
    if n.draw.chance(0.5):
        which = n.aside("LOGICAL_NOT", which, Spec(shape, "bool"))
    if n.dtype == "float32" and n.draw.chance(0.5):
        kept = n.aside("CAST", which, n.activation(shape), in_data_type="BOOL", out_data_type="FLOAT32")
        n.apply("MUL", [x, *kept])
    else:
        n.apply("SELECT_V2", [*which, x, n.operand(n.numbers(*shape), like=x)], shape, like=x)


# --- sizes as they are found ------------------------------------------------------------------


@block(dtypes=("float32", "int8", "uint8", "int16"), weight=0.8)
def reshape_by_shape(n: Network, x: TensorRef) -> None:
    """Add a RESHAPE whose batch is read from SHAPE, as Keras writes it."""
    shape = n.rank(x, 2, 3, 4)
    sizes = n.aside("SHAPE", [x], Spec((len(shape),), "int32"), out_type="INT32")
    batch = n.aside(
        "STRIDED_SLICE", [*sizes, n.table([0]), n.table([1]), n.table([1])], Spec((), "int32"), shrink_axis_mask=1
    )
    rest = n.draw.pick((prod(shape[1:]),), (-1,), (shape[1], -1), (prod(shape[1:-1]), shape[-1]))
    known = -prod(k for k in rest if k > 0) if -1 in rest else 1
    target = tuple(prod(shape[1:]) // -known if k == -1 else k for k in rest)
    numbers = [constant(np.int32(k)) for k in rest]
    wanted = n.aside("PACK", [*batch, *numbers], Spec((1 + len(rest),), "int32"), values_count=1 + len(rest), axis=0)
    n.apply("RESHAPE", [x, *wanted], (shape[0], *target), like=x)


@block(dtypes=("float32",), weight=0.5)
def fill_by_shape(n: Network, x: TensorRef) -> None:
    """Add a FILL with the shape of another tensor."""
    shape = n.rank(x, 2, 3, 4)
    sizes = n.aside("SHAPE", [x], Spec((len(shape),), "int32"), out_type="INT32")
    whole = n.aside("FILL", [*sizes, n.near(0.5)], n.activation(shape))
    n.apply(n.draw.pick("ADD", "MUL", "MAXIMUM"), [x, *whole])


# --- sequences --------------------------------------------------------------------------------


@block(dtypes=("float32",), weight=0.6)
def run_lstm(n: Network, x: TensorRef) -> None:
    """Add an LSTM, or one per direction."""
    batch, steps, width = n.rank(x, 3)
    if batch * steps > 20 or width > 40:
        raise Unfit
    both = n.draw.chance(0.4)
    each = [lstm(n, x, width)]
    if both:
        turned = n.apply("REVERSE_V2", [x, n.table([1])], like=x)
        each.append(n.apply("REVERSE_V2", [lstm(n, turned, width), n.table([1])]))
        n.apply("CONCATENATION", each, (batch, steps, 2 * CELLS), axis=n.draw.pick(2, -1))
    if n.draw.chance(0.5):  # only the output of the last step
        last = [n.table([0, -1, 0]), n.table([0, 0, 0]), n.table([1, 1, 1])]
        masks = {"begin_mask": 5, "end_mask": 7, "shrink_axis_mask": 2}
        n.apply("STRIDED_SLICE", [each[0], *last], (batch, CELLS), like=each[0], **masks)


CELLS = 5


def lstm(n: Network, x: TensorRef, width: int) -> TensorRef:
    batch, steps, _ = n.shape(x)
    built = n.ranges is not None
    of = Lstm(
        weights="int8" if n.kind == "dynamic" and built else "float32",
        halved=n.kind == "half" and built,
        batch=batch,
        time=steps,
        inputs=width,
        cells=CELLS,
        seed=str(n.draw.between(0, 10**6)),
        **n.draw.pick({}, {}, {"coupled": True}, {"peephole": True}),
    )
    y = of.call(n.net, x, name=f"states {len(n.pool)} ")
    n.read.add(x)
    n.pool.append(y)
    return y
