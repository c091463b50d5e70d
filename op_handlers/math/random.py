"""Random numbers with the distributions of LiteRT's kernels.

The sequences of random numbers are not expressible in ONNX. If both seeds are 0, the sequence differs per session.
Otherwise it is the same in each session, as in the kernels (random_ops.cc).
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, Refusal, Terminate, Value, handler, out
from op_handlers.kernels.operands import cast_to_int64

MAX_OPSET = 21  # ONNX Runtime has no random number kernels for later opsets


def combined_seed(ctx: Context) -> float | None:
    """Return one seed computed from both seeds, or None if both are 0.

    It has 24 bits, which float32 represents exactly. Raises Refusal if ONNX Runtime has no kernel for the opset.
    """
    if ctx.opset > MAX_OPSET:
        raise Refusal(f"ONNX Runtime has no random number kernels for opset {ctx.opset}; try --opset {MAX_OPSET}")
    graph_seed, op_seed = int(ctx.options.seed), int(ctx.options.seed2)
    return float((graph_seed * 1_000_003 + op_seed) % 2**24) if graph_seed or op_seed else None


@handler("RANDOM_UNIFORM", max_version=1, layout=Terminate())
def random_uniform(ctx: Context, shape: Value) -> Value:
    """Emit RandomUniform over [0, 1), the distribution of the kernel."""
    return emit_random(ctx, "RandomUniform", shape)


@handler("RANDOM_STANDARD_NORMAL", max_version=1, layout=Terminate())
def random_standard_normal(ctx: Context, shape: Value) -> Value:
    """Emit RandomNormal of mean 0 and deviation 1, the distribution of the kernel."""
    return emit_random(ctx, "RandomNormal", shape)


def emit_random(ctx: Context, op_type: str, shape: Value) -> Value:
    """Emit ``Random*`` of a shape, or ``Random*Like`` for a runtime shape."""
    ops, constant_shape = ctx.ops, ctx.constant(0)
    if constant_shape is not None and constant_shape.size:
        return ops.named(op_type)(shape=constant_shape.astype(np.int64).tolist(), seed=combined_seed(ctx))
    zeros = ops.Expand(np.zeros((), np.float32), cast_to_int64(ctx, 0, shape))
    return ops.named(f"{op_type}Like")(zeros, seed=combined_seed(ctx))


@handler("MULTINOMIAL", max_version=1, layout=Terminate())
def multinomial(ctx: Context, logits: Value, count: Value) -> Value:
    """Emit the comparison of RandomUniformLike with cumulative probabilities.

    Logits that are not finite have probability 0.
    """
    ops = ctx.ops
    lowest = np.asarray(np.finfo(np.float32).min)
    is_finite = ops.Less(ops.Abs(logits), np.asarray(np.inf, np.float32))
    finite_logits = ops.Where(is_finite, logits, lowest)
    maximum = ops.ReduceMax(finite_logits, [1], keepdims=1)
    weights = ops.Where(is_finite, ops.Exp(ops.Cast(ops.Sub(logits, maximum), to="float64")), np.float64(0))
    cumulative = ops.CumSum(weights, np.asarray(1))
    total = ops.ReduceSum(weights, [1], keepdims=1)
    batch = ops.Gather(ops.Shape(logits), np.asarray([0]))
    constant_count = ctx.constant(1)
    sample_count = (
        ops.Reshape(cast_to_int64(ctx, 1, count), [1])
        if constant_count is None
        else constant_count.astype(np.int64).reshape(1)
    )
    zeros = ops.Expand(np.zeros((), np.float32), ops.Concat(batch, sample_count, axis=0))
    random = ops.Mul(ops.Cast(ops.RandomUniformLike(zeros, seed=combined_seed(ctx)), to="float64"), total)
    is_above = ops.GreaterOrEqual(ops.Unsqueeze(random, [2]), ops.Unsqueeze(cumulative, [1]))
    dtype = ctx.op[out(0)].dtype
    return ops.ReduceSum(ops.Cast(is_above, to=dtype), [2], keepdims=0)
