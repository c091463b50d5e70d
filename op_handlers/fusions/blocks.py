"""Dense layers with 4-bit and 2-bit weights, stored in blocks.

Each block repeats the scale of its row. A product with few rows of activations takes little longer than reading its
weights, so smaller weights make it faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Call,
    Context,
    Decline,
    Dims,
    Instance,
    Integer,
    Match,
    Quantization,
    Value,
    fusion,
    operands,
)
from op_handlers.kernels.operands import require_quantization
from op_handlers.matrix.fully_connected import dense_axes, dense_layout, fully_connected, matrix_shapes

x, b = operands("x b")
(w,) = operands("w", constant=True)

MAX_ROWS = 2
"""Maximum number of rows for which the fusion saves time.

Time relative to int8 products, with VNNI:

====  ===================  ===================
rows  1024 x 1024 weights  2048 x 2048 weights
====  ===================  ===================
1     0.78                 0.59
2     1.14                 0.68
4     1.55                 1.08
128   2.2                  2.1
====  ===================  ===================
"""
MIN_BLOCK = 32
MIN_WEIGHTS = 2**14
"""Minimum number of weights. Smaller matrices were not measured.

Time relative to float weights, on a Xeon with VNNI (128 rows occur only if the number of rows is dynamic):

====  =========  =========  =========
rows  128 x 128  576 x 192  512 x 256
====  =========  =========  =========
1     0.46       0.31       0.26
8     0.84       0.69       0.35
128   1.54       1.22       0.95
====  =========  =========  =========
"""


def match_few_rows(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of a layer with many 4-bit or 2-bit weights, or a Decline.

    Declines for more than ``MAX_ROWS`` rows. A dynamic number of rows is accepted.
    """
    quantization, depth = match[w].quantization, match[w].shape[-1]
    if match[w].dtype not in ("int4", "int2") or match[x].dtype != "float32" or prod(match[w].shape) < MIN_WEIGHTS:
        return Decline("")
    if not isinstance(quantization, Quantization) or any(quantization.zero_point) or quantization.axis != 0:
        return Decline("the weights have zero points, or lack per-row scales")
    if match[x].rank < 2 or depth % MIN_BLOCK:
        return Decline(f"rows of {depth} elements do not divide into blocks of {MIN_BLOCK} or more")
    if None not in match[x].dims and prod(match[x].shape) > MAX_ROWS * depth:
        return Decline(f"there are more than {MAX_ROWS} rows, for which int8 products are faster")
    ((_, dense),) = match.calls.items()
    return dict(dense.options)


def tensor_shapes(instance: Instance) -> dict[int, Dims]:
    """Return the matrix shapes of reshaped operands; empty for a batched MatMul."""
    return {} if instance.op.options.keep_num_dims else matrix_shapes(instance)


@fusion(
    "FULLY_CONNECTED_BLOCKS",
    pattern=[Call("FULLY_CONNECTED", x, w, b), Call("FULLY_CONNECTED", x, w)],
    inputs=(x, w, b),
    check=match_few_rows,
    trait="int4_block",
    min_opset=21,
    raises_opset=True,
    layout=dense_layout,
    axes=dense_axes,
    reshapes=tensor_shapes,
    quantization=Integer(constants=(1,)),
    activation=fully_connected.activation,
)
def fully_connected_blocks(ctx: Context, x: Value, _w: Value, b: Value | None = None) -> Value:
    """Emit MatMul with blockwise-dequantized weights; runtimes fuse the two nodes."""
    depth = ctx.op[1].shape[-1]
    block_size = min(depth & -depth, ctx.target.int4_block)
    weights = ctx.require_constant(1).reshape(-1, depth).T.astype(np.dtype("int4"))
    scales = np.asarray(require_quantization(ctx.op[1]).scale, np.float32)
    block_scales = np.broadcast_to(scales, (depth // block_size, weights.shape[1]))
    y = ctx.ops.MatMul(x, ctx.ops.DequantizeLinear(weights, block_scales, axis=0, block_size=block_size))
    return y if b is None else ctx.ops.Add(y, b if ctx.op[2].rank == 1 else ctx.ops.Reshape(b, [-1]))
