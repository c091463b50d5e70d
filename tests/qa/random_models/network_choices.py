"""Blocks of random networks with indices, sizes or conditions."""

from __future__ import annotations

from math import prod

import numpy as np

from conformance.builder import TensorRef
from conformance.lstms import Lstm
from conformance.models import Spec, constant
from tests.qa.random_models.networks import Network, Unsupported, block, step

INTEGERS = ("int32", "int64")


@step("ARG_MAX", "ARG_MIN", weight=0.7)
def arg_extreme(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    axis = n.draw.between(0, len(shape) - 1)
    result_shape = tuple(size for k, size in enumerate(shape) if k != axis)
    dtype = n.draw.pick(*INTEGERS)
    indices = n.add_auxiliary(
        n.code,
        [x, n.index_constant(axis - n.draw.pick(0, len(shape)))],
        Spec(result_shape, dtype),
        output_type=dtype.upper(),
    )
    if n.draw.chance(0.4):
        n.add_auxiliary(
            "CAST", indices, Spec(result_shape, "float32"), in_data_type=dtype.upper(), out_data_type="FLOAT32"
        )


@step("TOPK_V2", weight=0.7)
def top_k(n: Network, x: TensorRef) -> None:
    *rows, last = n.rank(x, 2, 3, 4)
    count = n.draw.between(1, last)
    y, index_spec = n.activation((*rows, count), like=x), Spec((*rows, count), "int32")
    values, _ = n.add_auxiliary("TOPK_V2", [x, n.index_constant(count)], y, index_spec)
    n.auxiliary.remove(values)
    n.pool.append(values)


@step("SPLIT_V", weight=0.8)
def split_sizes(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    axis = n.draw.between(0, len(shape) - 1)
    if shape[axis] < 2:
        raise Unsupported
    position = n.draw.between(1, shape[axis] - 1)
    sizes = [position, shape[axis] - position]
    parts = [n.activation([s if k == axis else size for k, size in enumerate(shape)], like=x) for s in sizes]
    n.call([x, n.index_constant(sizes), n.index_constant(axis)], *parts, num_splits=2)


@step("CUMSUM", weight=0.4)
def cumulative_sum(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    axis = n.index_constant(n.draw.between(0, len(shape) - 1))
    n.apply("CUMSUM", [x, axis], exclusive=n.draw.chance(0.3), reverse=n.draw.chance(0.3))


@step("BROADCAST_TO", weight=0.5)
def broadcast_to(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    expanded = [2 if size == 1 else size for size in shape]
    target = expanded if n.draw.chance(0.5) or len(shape) == 4 else [2, *expanded]
    n.apply("BROADCAST_TO", [x, n.index_constant(target)], target, like=x)


@step("GATHER_ND", weight=0.5)
def gather_points(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    depth = n.draw.between(1, len(shape) - 1)
    indices = np.stack([n.draw.random.integers(0, size, 3) for size in shape[:depth]], 1)
    n.apply("GATHER_ND", [x, n.index_constant(indices)], (3, *shape[depth:]), like=x)


@step("SCATTER_ND", weight=0.3)
def scatter(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3)
    if n.dtype != "float32":
        raise Unsupported  # unset elements are quantized values 0
    indices = n.draw.random.permutation(shape[0] + 2)[: shape[0], None]
    result_shape = (shape[0] + 2, *shape[1:])
    n.apply("SCATTER_ND", [n.index_constant(indices), x, n.index_constant(result_shape)], result_shape, like=x)


@step("DYNAMIC_UPDATE_SLICE", weight=0.5)
def update(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    update_shape = tuple(n.draw.between(1, size) for size in shape)
    begin = [n.draw.between(-1, size) for size in shape]  # the kernel clamps positions that are out of range
    n.apply("DYNAMIC_UPDATE_SLICE", [x, n.operand(n.numbers(*update_shape), like=x), n.index_constant(begin)], like=x)


@step("SEGMENT_SUM", weight=0.3)
def sum_segments(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3)
    ids = np.sort(n.draw.random.integers(0, 3, shape[0]))
    ids = np.unique(ids, return_inverse=True)[1]
    n.apply("SEGMENT_SUM", [x, n.index_constant(ids)], (int(ids[-1]) + 1, *shape[1:]))


@step("REDUCE_MIN", "REDUCE_PROD", weight=0.3)
def reduce_last_axis(n: Network, x: TensorRef) -> None:
    shape = n.rank(x, 2, 3, 4)
    if n.code == "REDUCE_PROD" and (n.dtype != "float32" or shape[-1] > 8):
        raise Unsupported
    like = x if n.code == "REDUCE_MIN" else None
    n.apply(n.code, [x, n.index_constant([len(shape) - 1])], shape[:-1], like=like, keep_dims=False)


@step("L2_POOL_2D", "LOCAL_RESPONSE_NORMALIZATION", weight=0.3)
def neighbors(n: Network, x: TensorRef) -> None:
    batch, h, w, c = n.rank(x, 4)
    if n.code == "LOCAL_RESPONSE_NORMALIZATION":
        n.apply(n.code, [x], radius=1, bias=1.0, alpha=0.2, beta=0.5)
        return
    window = {"filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1}
    n.apply(n.code, [x], (batch, h, w, c), padding="SAME", **window)


@step("SQRT", "RSQRT", "LOG", weight=0.3)
def positive_operand_function(n: Network, x: TensorRef) -> None:
    if n.dtype != "float32":
        raise Unsupported
    n.apply(n.code, [n.apply("ADD", [n.apply("ABS", [x]), n.operand(np.float32([0.5]))])])


@step("COS", "POW", "ADD_N", "RELU_0_TO_1", weight=0.3)
def other_elementwise(n: Network, x: TensorRef) -> None:
    if n.code == "POW":
        n.apply("POW", [x, n.fusion_constant(2)])
    elif n.code == "ADD_N":
        n.apply("ADD_N", [x, n.same_shape_tensor(x), x])
    else:
        n.apply(n.code, [x])


@step("CONV_3D", weight=2)
def conv_3d(n: Network, x: TensorRef) -> None:
    *sizes, c = n.rank(x, 5)
    w, b = n.numbers(1, 2, 3, c, 5, spread=0.3), n.numbers(5, spread=0.3)
    if n.kind == "half" or min(sizes) < 1:
        raise Unsupported
    steps = {f"stride_{axis}": 1 for axis in "dhw"} | {f"dilation_{axis}_factor": 1 for axis in "dhw"}
    n.apply("CONV_3D", [x, constant(w), constant(b)], (*sizes, 5), padding="SAME", **steps)


@step("EMBEDDING_LOOKUP", weight=0.4)
def embedding_lookup(n: Network, x: TensorRef) -> None:
    """Gather rows of a table by the ARG_MAX of activations."""
    rows, width = n.rank(x, 2)
    if n.dtype != "float32":
        raise Unsupported
    ids = n.add_auxiliary("ARG_MAX", [x, n.index_constant(1)], Spec((rows,), "int32"), output_type="INT32")
    n.apply("EMBEDDING_LOOKUP", [*ids, constant(n.numbers(width, 6))], (rows, 6))


@step("ONE_HOT", weight=0.4)
def one_hot(n: Network, x: TensorRef) -> None:
    *rows, width = n.rank(x, 2, 3)
    if n.dtype != "float32":
        raise Unsupported
    indices = n.add_auxiliary(
        "ARG_MAX", [x, n.index_constant(len(rows))], Spec(tuple(rows), "int32"), output_type="INT32"
    )
    n.apply(
        "ONE_HOT",
        [*indices, n.index_constant(width), n.fusion_constant(1), n.fusion_constant(0)],
        (*rows, width),
        axis=-1,
    )


@step("GREATER", "LESS", "EQUAL", weight=0.3)
def compare(n: Network, x: TensorRef) -> None:
    shape = n.shape(x)
    if n.code == "EQUAL" and n.dtype != "float32":
        raise Unsupported  # an error of one step changes the result
    condition = n.add_auxiliary(n.code, [x, n.operand(n.numbers(*shape[-1:]), like=x)], Spec(shape, "bool"))
    if n.draw.chance(0.5):
        condition = n.add_auxiliary("LOGICAL_NOT", condition, Spec(shape, "bool"))
    if n.dtype == "float32" and n.draw.chance(0.5):
        mask = n.add_auxiliary("CAST", condition, n.activation(shape), in_data_type="BOOL", out_data_type="FLOAT32")
        n.apply("MUL", [x, *mask])
    else:
        n.apply("SELECT_V2", [*condition, x, n.operand(n.numbers(*shape), like=x)], shape, like=x)


# --- sizes at runtime -------------------------------------------------------------------------


@block(dtypes=("float32", "int8", "uint8", "int16"), weight=0.8)
def reshape_by_shape(n: Network, x: TensorRef) -> None:
    """Add a RESHAPE with a batch size from SHAPE, as Keras exports it."""
    shape = n.rank(x, 2, 3, 4)
    sizes = n.add_auxiliary("SHAPE", [x], Spec((len(shape),), "int32"), out_type="INT32")
    batch = n.add_auxiliary(
        "STRIDED_SLICE",
        [*sizes, n.index_constant([0]), n.index_constant([1]), n.index_constant([1])],
        Spec((), "int32"),
        shrink_axis_mask=1,
    )
    trailing = n.draw.pick((prod(shape[1:]),), (-1,), (shape[1], -1), (prod(shape[1:-1]), shape[-1]))
    known = -prod(k for k in trailing if k > 0) if -1 in trailing else 1
    target = tuple(prod(shape[1:]) // -known if k == -1 else k for k in trailing)
    size_constants = [constant(np.int32(k)) for k in trailing]
    requested_shape = n.add_auxiliary(
        "PACK", [*batch, *size_constants], Spec((1 + len(trailing),), "int32"), values_count=1 + len(trailing), axis=0
    )
    n.apply("RESHAPE", [x, *requested_shape], (shape[0], *target), like=x)


@block(dtypes=("float32",), weight=0.5)
def fill_by_shape(n: Network, x: TensorRef) -> None:
    """Add a FILL with the shape of another tensor."""
    shape = n.rank(x, 2, 3, 4)
    sizes = n.add_auxiliary("SHAPE", [x], Spec((len(shape),), "int32"), out_type="INT32")
    filled = n.add_auxiliary("FILL", [*sizes, n.fusion_constant(0.5)], n.activation(shape))
    n.apply(n.draw.pick("ADD", "MUL", "MAXIMUM"), [x, *filled])


# --- sequences --------------------------------------------------------------------------------


@block(dtypes=("float32",), weight=0.6)
def run_lstm(n: Network, x: TensorRef) -> None:
    """Add an LSTM, or one LSTM per direction."""
    batch, steps, width = n.rank(x, 3)
    if batch * steps > 20 or width > 40:
        raise Unsupported
    bidirectional = n.draw.chance(0.4)
    outputs = [lstm(n, x, width)]
    if bidirectional:
        reversed_x = n.apply("REVERSE_V2", [x, n.index_constant([1])], like=x)
        outputs.append(n.apply("REVERSE_V2", [lstm(n, reversed_x, width), n.index_constant([1])]))
        n.apply("CONCATENATION", outputs, (batch, steps, 2 * CELLS), axis=n.draw.pick(2, -1))
    if n.draw.chance(0.5):  # only the output of the last step
        last_step = [n.index_constant([0, -1, 0]), n.index_constant([0, 0, 0]), n.index_constant([1, 1, 1])]
        masks = {"begin_mask": 5, "end_mask": 7, "shrink_axis_mask": 2}
        n.apply("STRIDED_SLICE", [outputs[0], *last_step], (batch, CELLS), like=outputs[0], **masks)


CELLS = 5


def lstm(n: Network, x: TensorRef, width: int) -> TensorRef:
    batch, steps, _ = n.shape(x)
    calibrated = n.ranges is not None
    layer = Lstm(
        weights="int8" if n.kind == "dynamic" and calibrated else "float32",
        float16_constants=n.kind == "half" and calibrated,
        batch=batch,
        time=steps,
        inputs=width,
        cells=CELLS,
        seed=str(n.draw.between(0, 10**6)),
        **n.draw.pick({}, {}, {"coupled": True}, {"peephole": True}),
    )
    y = layer.call(n.net, x, name=f"states {len(n.pool)} ")
    n.read.add(x)
    n.pool.append(y)
    return y
