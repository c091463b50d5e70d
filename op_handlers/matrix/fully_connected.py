"""Dense layers: matrix products with weights."""

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
    Refusal,
    Terminate,
    Value,
    format_axes,
    handler,
    out,
)
from op_handlers.kernels.operands import check_packed_weights, check_weight_zero_points, reinterpret_uint8_weights


def dense_axes(at: Instance) -> str | None:
    """Return the axes, such as ``n h w c, o (h w c) -> n o``.

    The sizes of the row axes, here h, w and c, multiply to the length of a weight row.
    """
    op = at.op
    bias = [*(f"one{i}" for i in range(leading_ones(op))), "o"]
    if op[1].blocks is not None:
        return f"_, o k, {' '.join(bias)} -> _"
    dims, depth = op[0].dims, op[1].shape[-1]
    if op.options.keep_num_dims:
        return f"... k, o k, {' '.join(bias)} -> ... o"
    row_starts = [i for i in range(len(dims)) if None not in dims[i:] and prod(d or 0 for d in dims[i:]) == depth]
    if not row_starts or 0 in dims:
        return None
    batch, row = [f"n{i}" for i in range(row_starts[-1])], [f"k{i}" for i in range(row_starts[-1], len(dims))]
    result_rows = batch[0] if len(batch) == 1 else f"({' '.join(batch)})" if batch else "one"
    row_group = row[0] if len(row) == 1 else f"({' '.join(row)})"
    return format_axes([[*batch, *row], ["o", row_group], bias], [result_rows, "o"])


def leading_ones(op: Operator) -> int:
    """Return the number of leading axes of size 1 of the bias.

    The kernel checks only the number of elements.
    """
    bias = op.tensor(2)
    return 0 if bias is None or set(bias.dims[:-1]) != {1} else bias.rank - 1


def dense_layout(at: Instance) -> Implicit | Terminate:
    """Return a layout in which the elements of a row are unordered.

    The columns of the weight are permuted with the elements. Blockwise weights are the exception: they are stored as
    ``k o``, with contiguous blocks along the first axis, because runtimes fuse this layout.
    """
    if at.op[1].blocks is not None:
        return Implicit({1: "k o"})
    return Terminate(unordered="k " + " ".join(f"k{i}" for i in range(at.op[0].rank)))


def check_weights(at: Instance) -> Decline | None:
    op = at.op
    if op.options.weights_format != "DEFAULT":
        return Decline(f"weights_format {op.options.weights_format} is unknown")
    if not op[1].has_rank:
        return None  # shapes are derived before other checks
    if op[1].rank < 2:
        return Decline(f"the weights have shape {list(op[1].shape)}; the kernel requires a matrix")
    if 0 not in op[0].dims[:-1] and not op[1].shape[-1] and op[1].shape[0]:  # the kernel writes zeros (Eval)
        if op.tensor(2) is not None:
            return Decline("the weights have 0 input features; LiteRT's kernels then omit the bias")
        if op[out(0)].dtype != "float32":
            return Decline(
                "the weights have 0 input features; LiteRT's kernels then write 0 regardless of the zero point"
            )
    dims, depth = op[0].dims, op[1].shape[-1]
    if not op.options.keep_num_dims and None not in dims and depth and prod(size or 0 for size in dims) % depth:
        return Decline(
            f"the input of shape {list(dims)} does not divide into vectors of {depth} elements; LiteRT ignores the rest"
        )
    if op[1].dtype == "int16" and op.options.quantized_bias_type == "FLOAT32" and bias_dtype(op) == "int64":
        return Decline(
            "the bias is int64 without a quantized_bias_type, so LiteRT reads it as int32 with int16 weights"
        )
    if op[1].blocks is not None:
        return check_blocks(op)
    return check_packed_weights(op, PACKED_WEIGHT_DTYPES) or check_row_zero_points(op) or check_weight_zero_points(op)


def check_row_zero_points(op: Operator) -> Decline | None:
    """Return a Decline for zero points per row.

    XNNPACK refuses them, and the kernel ignores them (FullyConnectedPerChannel).
    """
    q = op[1].quantization
    if not isinstance(q, Quantization) or not q.per_axis or not any(q.zero_point):
        return None
    return Decline("the weights have one zero point per row, which LiteRT ignores; quantize symmetrically")


def bias_dtype(op: Operator) -> str:
    bias = op.tensor(2)
    return "" if bias is None else bias.dtype


def check_blocks(op: Operator) -> Decline | None:
    """Return a Decline for unsupported blocks.

    XNNPACK supports block sizes that are multiples of 32, and LiteRT's kernel supports the other sizes (PrepareImpl).
    """
    x, w = op[0], op[1]
    if (x.dtype, w.dtype) != ("float32", "int4"):
        return Decline(
            f"the input is {x.dtype} and the blockwise weights are {w.dtype}; the kernel requires float32 and int4"
        )
    rows, depth = w.shape
    if w.blocks is None or w.blocks.block_size % 32 == 0:
        return None
    if rows < 4 or depth < 32 or depth % 2:
        return Decline(
            f"the weights have a scale per {w.blocks.block_size} elements; LiteRT applies these scales only to weights "
            "with at least 4 rows and an even row length of at least 32; use blocks of 32"
        )
    return None


def dense_activation(at: Instance) -> ActivationKernel:
    """Return the kernel family of the fused activation.

    Hybrid operators have a separate family (Prepare). Blockwise operators outside of XNNPACK apply no activation
    (EvalBlockwise4Bit).
    """
    x, w = at.op[0], at.op[1]
    if w.blocks is not None:
        fits_xnnpack = w.blocks.block_size % 32 == 0
        return ActivationKernel.BLOCKWISE if fits_xnnpack else ActivationKernel.BLOCKWISE_UNFUSED
    is_hybrid = x.dtype == "float32" and w.dtype in ("int8", "uint8", "int4", "int2")
    return ActivationKernel.ELEMENTWISE if is_hybrid else ActivationKernel.CLAMPED_ONLY


def dense_shape(at: Instance) -> Dims:
    """Return the shape of the result, with one row per input row.

    An input row has the length of a weight row (fully_connected.cc).
    """
    op = at.op
    dims, (rows, depth) = op[0].dims, op[1].shape
    if op.options.keep_num_dims:
        return (*dims[:-1], rows)
    if None in dims:
        return (None, rows)
    count = prod(size or 0 for size in dims)
    if not depth or count % depth:
        raise Refusal(f"{count} elements do not divide into vectors of {depth}")
    return (count // depth, rows)


def has_dynamic_leading_axes(at: Instance) -> bool:
    """True if the result keeps several dynamic leading dimensions."""
    return bool(at.op.options.keep_num_dims) and at.op[out(0)].dims.count(None) > 1


def matrix_shapes(at: Instance) -> dict[int, Dims]:
    """Return slot -> matrix shape to which the input or the result is reshaped.

    If the result has several dynamic dimensions, return no shapes; ``restore_leading_axes`` then reshapes the result.
    """
    if has_dynamic_leading_axes(at):
        return {}
    op, (units, depth) = at.op, at.op[1].shape
    operand: dict[int, Dims] = {} if op[0].rank == 2 and op[0].dims[-1] == depth else {0: (None, depth)}
    return operand if op[out(0)].rank == 2 else {**operand, out(0): (None, units)}


PACKED_WEIGHT_DTYPES = {"float32": ("int4", "int2"), "int8": ("int4", "int2"), "int16": ("int4", "int2")}
DTYPES = (
    "float32, float32 int8 uint8 int4 int2, float32",
    "uint8, uint8 int4 int2, int32",
    "int8, int8 int4 int2, int32",
    "int16, int16 int8 int4 int2, int32 int64",
)


@handler(
    "FULLY_CONNECTED",
    max_version=14,
    layout=dense_layout,
    axes=dense_axes,
    reshapes=matrix_shapes,
    quantization=Dequantized(bias={2: (0, 1)}, blocks=(1,)),
    activation=FusedActivation(dense_activation),
    types=DTYPES,
    accepts=check_weights,
    result_shape=dense_shape,
)
def fully_connected(ctx: Context, x: Value, w: Value, b: Value | None = None) -> Value:
    """Emit Gemm of the input, flattened to rows (fully_connected.cc).

    A row has the length of a weight row.
    """
    b = flatten_bias(ctx, b)
    if has_dynamic_leading_axes(ctx):
        rows = ctx.dequantize(ctx.ops.Reshape(ctx.quantized_values(0), [-1, ctx.op[1].shape[-1]]), like=0)
        y = ctx.ops.Gemm(
            rows, reinterpret_uint8_weights(ctx, 1, w, by_row=True), b, transB=None if ctx.op[1].blocks else 1
        )
        return restore_leading_axes(ctx, ctx.quantized_values(0), ctx.quantize(y, like=out(0)))
    return ctx.ops.Gemm(x, reinterpret_uint8_weights(ctx, 1, w, by_row=True), b, transB=None if ctx.op[1].blocks else 1)


def flatten_bias(ctx: Context, b: Value | None) -> Value | None:
    """Return the bias as a vector if Gemm requires it.

    The kernel checks only the number of elements.
    """
    bias = ctx.op.tensor(2)
    max_rank = 2 if leading_ones(ctx.op) else 1
    return b if b is None or bias is None or bias.rank <= max_rank else ctx.ops.Reshape(b, [-1])


def restore_leading_axes(ctx: Context, x: Value, y: Value) -> Value:
    """Return the product of all rows, reshaped to the leading axes of x."""
    leading = ctx.ops.Slice(ctx.ops.Shape(x), [0], [ctx.op[0].rank - 1])
    shape = ctx.ops.Concat(leading, [ctx.op[1].shape[0]], axis=0)
    return ctx.ops.Reshape(y, shape, allowzero=1 if ctx.opset >= 14 else None)
