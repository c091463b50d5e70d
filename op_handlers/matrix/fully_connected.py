"""Matrix products by weights."""

from __future__ import annotations

from math import prod

from onnx_tflite_plugin.api import (
    ActivationKernel,
    Context,
    Decline,
    Dequantized,
    Dims,
    FusedActivation,
    Implicit,
    Instance,
    Operator,
    Quantization,
    Refused,
    Terminate,
    Value,
    handler,
    out,
    spelled,
)
from op_handlers.kernels.operands import check_packed_weights, check_weight_zero_points, reinterpret_uint8_weights


def dense_axes(at: Instance) -> str | None:
    """``n h w c, o (h w c) -> n o``: the trailing axes that make up one row of the weight are flattened."""
    op = at.op
    bias = [*(f"one{i}" for i in range(leading_ones(op))), "o"]
    if op[1].blocks is not None:
        return f"_, o k, {' '.join(bias)} -> _"
    dims, depth = op[0].dims, op[1].shape[-1]
    if op.options.keep_num_dims:
        return f"... k, o k, {' '.join(bias)} -> ... o"
    rows = [i for i in range(len(dims)) if None not in dims[i:] and prod(d or 0 for d in dims[i:]) == depth]
    if not rows or 0 in dims:
        return None
    batch, row = [f"n{i}" for i in range(rows[-1])], [f"k{i}" for i in range(rows[-1], len(dims))]
    first = batch[0] if len(batch) == 1 else f"({' '.join(batch)})" if batch else "one"
    group = row[0] if len(row) == 1 else f"({' '.join(row)})"
    return spelled([[*batch, *row], ["o", group], bias], [first, "o"])


def leading_ones(op: Operator) -> int:
    """Axes of size 1 that a bias has in front; the kernel asks for its number of elements alone."""
    bias = op.tensor(2)
    return 0 if bias is None or set(bias.dims[:-1]) != {1} else bias.rank - 1


def contracted(at: Instance) -> Implicit | Terminate:
    """The elements of a row may come in any order, if the weight's columns do too.

    Blocks that share a scale are kept whole, and lie down the columns, where runtimes fuse them.
    """
    if at.op[1].blocks is not None:
        return Implicit({1: "k o"})
    return Terminate(unordered="k " + " ".join(f"k{i}" for i in range(at.op[0].rank)))


def default_weights(at: Instance) -> Decline | None:
    op = at.op
    if op.options.weights_format != "DEFAULT":
        return Decline(f"weights_format {op.options.weights_format} is not known")
    if not op[1].has_rank:
        return None  # sizes that follow are derived before anything else is asked
    if op[1].rank < 2:
        return Decline(f"its weights are of shape {list(op[1].shape)}, and the kernel takes rows of them")
    if 0 not in op[0].dims[:-1] and not op[1].shape[-1] and op[1].shape[0]:  # the kernel writes zeros (Eval)
        if op.tensor(2) is not None:
            return Decline("its rows have no elements, for which LiteRT's kernels leave out the bias")
        if op[out(0)].dtype != "float32":
            return Decline("its rows have no elements, for which LiteRT's kernels write 0 whatever the zero point")
    count, depth = op[0].dims, op[1].shape[-1]
    if not op.options.keep_num_dims and None not in count and depth and prod(size or 0 for size in count) % depth:
        return Decline(f"its input of shape {list(count)} is no rows of {depth} elements, whose rest LiteRT leaves out")
    if op[1].dtype == "int16" and op.options.quantized_bias_type == "FLOAT32" and bias_dtype(op) == "int64":
        return Decline(
            "its bias is int64 without a quantized_bias_type, which LiteRT reads as int32 under int16 weights"
        )
    if op[1].blocks is not None:
        return in_blocks(op)
    return check_packed_weights(op, NARROW) or moved_rows(op) or check_weight_zero_points(op)


def moved_rows(op: Operator) -> Decline | None:
    """XNNPACK refuses zero points of single rows, and the kernel leaves them out (FullyConnectedPerChannel)."""
    q = op[1].quantization
    if not isinstance(q, Quantization) or not q.per_axis or not any(q.zero_point):
        return None
    return Decline(
        "its weights have zero points of their own for each row, which LiteRT leaves out; quantize symmetrically"
    )


def bias_dtype(op: Operator) -> str:
    bias = op.tensor(2)
    return "" if bias is None else bias.dtype


def in_blocks(op: Operator) -> Decline | None:
    """XNNPACK takes blocks of 32, the kernel others (PrepareImpl)."""
    x, w = op[0], op[1]
    if (x.dtype, w.dtype) != ("float32", "int4"):
        return Decline(f"it multiplies {x.dtype} by {w.dtype} with a scale per block; the kernel takes float32 by int4")
    rows, depth = w.shape
    if w.blocks is None or w.blocks.block_size % 32 == 0:
        return None
    blocked = f"its weights have a scale per {w.blocks.block_size} elements, for which LiteRT"
    if rows < 4 or depth < 32 or depth % 2:
        return Decline(
            f"{blocked} wants 4 rows and more, of an even length from 32 on, or reads no scales; use blocks of 32"
        )
    return None


def dense_activation(at: Instance) -> ActivationKernel:
    """Float operands on integer weights have kernels of their own (Prepare); those for blocks apply none (EvalBlockwise4Bit)."""
    x, w = at.op[0], at.op[1]
    if w.blocks is not None:
        fits_xnnpack = w.blocks.block_size % 32 == 0
        return ActivationKernel.BLOCKWISE if fits_xnnpack else ActivationKernel.BLOCKWISE_UNFUSED
    hybrid = x.dtype == "float32" and w.dtype in ("int8", "uint8", "int4", "int2")
    return ActivationKernel.ELEMENTWISE if hybrid else ActivationKernel.CLAMPED_ONLY


def dense_sizes(at: Instance) -> Dims:
    """A row of results for each row of the weight's length (fully_connected.cc)."""
    op = at.op
    dims, (rows, depth) = op[0].dims, op[1].shape
    if op.options.keep_num_dims:
        return (*dims[:-1], rows)
    if None in dims:
        return (None, rows)
    count = prod(size or 0 for size in dims)
    if not depth or count % depth:
        raise Refused(f"{count} elements are no rows of {depth}")
    return (count // depth, rows)


def leads(at: Instance) -> bool:
    """Whether the result keeps several axes of unknown size."""
    return bool(at.op.options.keep_num_dims) and at.op[out(0)].dims.count(None) > 1


def in_rows(at: Instance) -> dict[int, Dims]:
    """Both sides are matrices in ONNX, unless the result's sizes are known as it runs only: ``with_leading``."""
    if leads(at):
        return {}
    op, (units, depth) = at.op, at.op[1].shape
    operand: dict[int, Dims] = {} if op[0].rank == 2 and op[0].dims[-1] == depth else {0: (None, depth)}
    return operand if op[out(0)].rank == 2 else {**operand, out(0): (None, units)}


NARROW = {"float32": ("int4", "int2"), "int8": ("int4", "int2"), "int16": ("int4", "int2")}
KINDS = (
    "float32, float32 int8 uint8 int4 int2, float32",
    "uint8, uint8 int4 int2, int32",
    "int8, int8 int4 int2, int32",
    "int16, int16 int8 int4 int2, int32 int64",
)


@handler(
    "FULLY_CONNECTED",
    max_version=14,
    layout=contracted,
    axes=dense_axes,
    reshapes=in_rows,
    quantization=Dequantized(bias={2: (0, 1)}, blocks=(1,)),
    activation=FusedActivation(dense_activation),
    types=KINDS,
    accepts=default_weights,
    sizes=dense_sizes,
)
def fully_connected(ctx: Context, x: Value, w: Value, b: Value | None = None) -> Value:
    """Gemm on the input flattened to rows of the weight's length (fully_connected.cc)."""
    b = bias_of_rows(ctx, b)
    if leads(ctx):
        rows = ctx.dequantize(ctx.ops.Reshape(ctx.raw(0), [-1, ctx.op[1].shape[-1]]), like=0)
        y = ctx.ops.Gemm(
            rows, reinterpret_uint8_weights(ctx, 1, w, by_row=True), b, transB=None if ctx.op[1].blocks else 1
        )
        return with_leading(ctx, ctx.raw(0), ctx.quantize(y, like=out(0)))
    return ctx.ops.Gemm(x, reinterpret_uint8_weights(ctx, 1, w, by_row=True), b, transB=None if ctx.op[1].blocks else 1)


def bias_of_rows(ctx: Context, b: Value | None) -> Value | None:
    """The bias as Gemm takes it: of several axes the kernel counts the elements."""
    bias = ctx.op.tensor(2)
    most = 2 if leading_ones(ctx.op) else 1
    return b if b is None or bias is None or bias.rank <= most else ctx.ops.Reshape(b, [-1])


def with_leading(ctx: Context, x: Value, y: Value) -> Value:
    """The product of all rows with the leading axes of x."""
    leading = ctx.ops.Slice(ctx.ops.Shape(x), [0], [ctx.op[0].rank - 1])
    shape = ctx.ops.Concat(leading, [ctx.op[1].shape[0]], axis=0)
    return ctx.ops.Reshape(y, shape, allowzero=1 if ctx.opset >= 14 else None)
