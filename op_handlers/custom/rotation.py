"""Rotations that AI Edge Quantizer inserts before 4-bit weights.

The kernel is kernels/hadamard_rotation.cc.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Instance,
    NotQuantizable,
    Terminate,
    Value,
    handler,
    spend_budget,
)

SIZE = "hadamard_size"
MAX_ONE_PRODUCT_POINTS = 128
"""Larger transforms are computed as two products.

For 128 rows, two products of 2048 points take 0.5 ms instead of 6.3 ms, but two products of 128 points take 28 us instead
of 29 us (ONNX Runtime 1.32, Xeon Sapphire Rapids, one thread).
"""


def check_size(instance: Instance) -> Decline | None:
    """Return a Decline for a transform that LiteRT skips or applies across rows."""
    size, dims = instance.op.options.get(SIZE), instance.op[0].dims
    if not isinstance(size, int) or size < 1 or size & (size - 1):
        return Decline(f"option {SIZE!r} is {size!r}; LiteRT's kernel requires a power of two")
    if dims is not None and len(dims) not in (2, 3):
        return Decline(f"the input has {len(dims)} dimensions; LiteRT's kernel requires 2 or 3")
    if dims is not None and dims[-1] is not None and dims[-1] % size:
        return Decline(f"the last dimension has {dims[-1]} elements, which is not a multiple of {SIZE!r} {size}")
    return None


@handler(
    "CUSTOM.aeq.hadamard_rotation",
    max_version=1,
    layout=Terminate(),
    quantization=NotQuantizable(),
    types="float32 -> float32",
    accepts=check_size,
)
def hadamard_rotation(ctx: Context, x: Value) -> Value:
    """Emit MatMul of blocks of the last axis with an orthonormal Hadamard matrix.

    The kernel ignores the option ``random_binary_vector``.
    """
    ops, size = ctx.ops, int(ctx.op.options[SIZE])
    if size <= MAX_ONE_PRODUCT_POINTS:
        rotated = ops.MatMul(ops.Reshape(x, [-1, size]), hadamard_matrix(size))
    else:
        # A Hadamard matrix is the Kronecker product of two smaller Hadamard matrices. Multiplying a block by it equals
        # multiplying the block, reshaped to a matrix, by one of them from the left and by the other from the right.
        rows = 1 << (size.bit_length() // 2 - 1)
        columns = size // rows
        blocks = ops.Reshape(x, [-1, rows, columns])
        rotated = ops.MatMul(hadamard_matrix(rows), ops.MatMul(blocks, hadamard_matrix(columns)))
    return ops.Reshape(rotated, ops.Shape(x))


def hadamard_matrix(size: int) -> Array:
    """Return the symmetric orthonormal Hadamard matrix in Sylvester's order.

    ``size`` is a power of two.
    """
    spend_budget(size * size, 8, "the matrix of a Hadamard rotation")
    index = np.arange(size)
    parity = np.bitwise_count(index[:, np.newaxis] & index).astype(np.int64) % 2
    return np.asarray((1 - 2 * parity) / np.sqrt(size), np.float32)
