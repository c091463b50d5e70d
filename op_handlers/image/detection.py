"""NON_MAX_SUPPRESSION with and without soft scores."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, NotQuantizable, Terminate, Value, ValueLike, handler
from op_handlers.kernels.boxes import Boxes, float32_below

SUPPRESSED = np.float32(-np.inf)
"""Score of a suppressed box."""


@handler("NON_MAX_SUPPRESSION_V4", max_version=1, layout=Terminate(), quantization=NotQuantizable())
def non_max_suppression_v4(
    ctx: Context, boxes: Value, scores: Value, limit: Value, iou: Value, least: Value
) -> tuple[Value, Value]:
    """Emit the selected indices, padded with zeros, and their number."""
    selected, _ = emit_suppression(ctx, boxes, scores, limit, iou, least)
    return pad_to_limit(ctx, ctx.ops.Cast(selected, to="int32"), limit), emit_count(ctx, selected)


@handler("NON_MAX_SUPPRESSION_V5", max_version=1, layout=Terminate(), quantization=NotQuantizable())
def non_max_suppression_v5(
    ctx: Context, boxes: Value, scores: Value, limit: Value, iou: Value, least: Value, sigma: Value
) -> tuple[Value, Value, Value]:
    """Emit indices, scores and number of selected boxes; overlaps lower scores unless sigma is 0."""
    selected, left = emit_suppression(ctx, boxes, scores, limit, iou, least, sigma)
    return (
        pad_to_limit(ctx, ctx.ops.Cast(selected, to="int32"), limit),
        pad_to_limit(ctx, left, limit),
        emit_count(ctx, selected),
    )


def emit_suppression(
    ctx: Context, boxes: Value, scores: Value, limit: Value, iou: Value, least: Value, sigma: Value | None = None
) -> tuple[Value, Value]:
    """Return the selected boxes ``[k]`` in order of score, and their scores."""
    ops = ctx.ops
    most = ops.Cast(limit, to="int64")
    total = ops.Min(most, ops.ReduceSum(ops.Cast(ops.Greater(scores, least), to="int64"), keepdims=0))
    overlap, softness = ctx.op.constant(3), np.zeros(()) if sigma is None else ctx.op.constant(5)
    if softness is None or softness or overlap is None or overlap > 1:
        return emit_loop(ctx, boxes, scores, total, iou, least, np.float32(0) if sigma is None else sigma)
    if overlap > 0:
        selected = emit_hard(ctx, boxes, scores, total, float(overlap), least)
    else:  # every box reaches this overlap with the first
        selected = emit_hard(ctx, boxes, scores, ops.Min(total, 1), 1.0, least)
    return selected, ops.Gather(scores, selected)


def emit_hard(ctx: Context, boxes: Value, scores: Value, total: Value, iou: float, least: Value) -> Value:
    """Emit NonMaxSuppression, which suppresses above a threshold, not at it.

    A box without area overlaps nothing, not even itself, so the kernel selects it repeatedly (NonMaxSuppression,
    reference/non_max_suppression.h).
    """
    ops = ctx.ops
    threshold, score = np.asarray([float32_below(iou)]), ops.Reshape(least, [1])
    chosen = ops.NonMaxSuppression(
        ops.Unsqueeze(boxes, [0]), ops.Unsqueeze(scores, [0, 1]), ops.Unsqueeze(total, [0]), threshold, score
    )
    selected = ops.Gather(chosen, np.asarray(2), axis=1)
    flat = ops.LessOrEqual(ops.Gather(Boxes(ctx, boxes).area, selected), np.float32(0))
    first = ops.ArgMax(ops.Concat(ops.Cast(flat, to="int32"), np.ones(1, np.int32), axis=0), axis=0, keepdims=0)
    count = ops.Squeeze(ops.Shape(selected), [0])
    places = ops.Range(np.asarray(0), ops.Where(ops.Less(first, count), total, count), np.asarray(1))
    return ops.Gather(selected, ops.Min(places, first))


def emit_loop(
    ctx: Context, boxes: Value, scores: Value, total: Value, iou: Value, least: Value, sigma: ValueLike
) -> tuple[Value, Value]:
    """Emit a Loop: select the best box, then lower the scores of all boxes, including it, by their overlap with it."""
    ops, shapes = ctx.ops, Boxes(ctx, boxes)
    scale = ops.Where(ops.Greater(sigma, np.float32(0)), ops.Div(np.float32(-0.5), sigma), np.float32(0))
    start = ops.Where(ops.Greater(scores, least), scores, SUPPRESSED)

    def step(_count: Value, _go_on: Value, scores: Value) -> list[Value]:
        best = ops.ArgMax(scores, axis=0, keepdims=0)
        overlap = shapes.overlap(best)
        softened = ops.Mul(scores, ops.Exp(ops.Mul(ops.Mul(scale, overlap), overlap)))
        kept = ops.And(
            ops.Less(overlap, iou), ops.Greater(softened, least)
        )  # excludes NaN, the product of zero and SUPPRESSED
        left = ops.Where(kept, softened, SUPPRESSED)
        return [ops.Greater(ops.ReduceMax(left, keepdims=0), SUPPRESSED), left, best, ops.Gather(scores, best)]

    types = [("step", "int64", ()), ("go_on", "bool", ()), ("scores", "float32", None)]
    _, selected, selected_scores = ops.Loop(total, True, start, body=ctx.graph(step, types), outputs=3)
    return selected, selected_scores


def pad_to_limit(ctx: Context, values: Value, limit: Value) -> Value:
    """Pad with zeros to ``limit`` elements."""
    missing = ctx.ops.Sub(ctx.ops.Reshape(ctx.ops.Cast(limit, to="int64"), [1]), ctx.ops.Shape(values))
    return ctx.ops.Pad(values, ctx.ops.Concat([0], missing, axis=0))


def emit_count(ctx: Context, values: Value) -> Value:
    return ctx.ops.Cast(ctx.ops.Squeeze(ctx.ops.Shape(values), [0]), to="int32")
