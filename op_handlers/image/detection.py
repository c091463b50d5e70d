"""Boxes that overlap no better one: NON_MAX_SUPPRESSION with and without soft scores."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, NotQuantizable, Terminate, Value, ValueLike, handler
from op_handlers.kernels.boxes import Boxes, float32_below

NONE = np.float32(-np.inf)
"""The score of a box that is out."""


@handler("NON_MAX_SUPPRESSION_V4", max_version=1, layout=Terminate(), quantization=NotQuantizable())
def non_max_suppression_v4(
    ctx: Context, boxes: Value, scores: Value, limit: Value, iou: Value, least: Value
) -> tuple[Value, Value]:
    """NonMaxSuppression, its numbers filled up with zeros, and how many there are."""
    selected, _ = suppressed(ctx, boxes, scores, limit, iou, least)
    return filled(ctx, ctx.ops.Cast(selected, to="int32"), limit), number(ctx, selected)


@handler("NON_MAX_SUPPRESSION_V5", max_version=1, layout=Terminate(), quantization=NotQuantizable())
def non_max_suppression_v5(
    ctx: Context, boxes: Value, scores: Value, limit: Value, iou: Value, least: Value, sigma: Value
) -> tuple[Value, Value, Value]:
    """The same with the boxes' scores, which overlaps lower where sigma is not 0."""
    selected, left = suppressed(ctx, boxes, scores, limit, iou, least, sigma)
    return filled(ctx, ctx.ops.Cast(selected, to="int32"), limit), filled(ctx, left, limit), number(ctx, selected)


def suppressed(
    ctx: Context, boxes: Value, scores: Value, limit: Value, iou: Value, least: Value, sigma: Value | None = None
) -> tuple[Value, Value]:
    """The selected boxes ``[k]`` in the order of their scores, and these."""
    ops = ctx.ops
    most = ops.Cast(limit, to="int64")
    total = ops.Min(most, ops.ReduceSum(ops.Cast(ops.Greater(scores, least), to="int64"), keepdims=0))
    overlap, softness = ctx.op.constant(3), np.zeros(()) if sigma is None else ctx.op.constant(5)
    if softness is None or softness or overlap is None or overlap > 1:
        return in_turn(ctx, boxes, scores, total, iou, least, np.float32(0) if sigma is None else sigma)
    if overlap > 0:
        selected = hard(ctx, boxes, scores, total, float(overlap), least)
    else:  # every box overlaps the first as much
        selected = hard(ctx, boxes, scores, ops.Min(total, 1), 1.0, least)
    return selected, ops.Gather(scores, selected)


def hard(ctx: Context, boxes: Value, scores: Value, total: Value, iou: float, least: Value) -> Value:
    """NonMaxSuppression, which suppresses above a threshold, not at it.

    A flat box overlaps nothing, itself neither: the kernel selects it for the rest (NonMaxSuppression,
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


def in_turn(
    ctx: Context, boxes: Value, scores: Value, total: Value, iou: Value, least: Value, sigma: ValueLike
) -> tuple[Value, Value]:
    """A Loop: the best box is selected, then every box, this one too, loses by its overlap with it."""
    ops, shapes = ctx.ops, Boxes(ctx, boxes)
    scale = ops.Where(ops.Greater(sigma, np.float32(0)), ops.Div(np.float32(-0.5), sigma), np.float32(0))
    start = ops.Where(ops.Greater(scores, least), scores, NONE)

    def step(_count: Value, _go_on: Value, scores: Value) -> list[Value]:
        best = ops.ArgMax(scores, axis=0, keepdims=0)
        overlap = shapes.overlap(best)
        softened = ops.Mul(scores, ops.Exp(ops.Mul(ops.Mul(scale, overlap), overlap)))
        kept = ops.And(ops.Less(overlap, iou), ops.Greater(softened, least))  # not NaN, which zero times NONE is
        left = ops.Where(kept, softened, NONE)
        return [ops.Greater(ops.ReduceMax(left, keepdims=0), NONE), left, best, ops.Gather(scores, best)]

    types = [("step", "int64", ()), ("go_on", "bool", ()), ("scores", "float32", None)]
    _, selected, selected_scores = ops.Loop(total, True, start, body=ctx.graph(step, types), outputs=3)
    return selected, selected_scores


def filled(ctx: Context, values: Value, limit: Value) -> Value:
    """Zeros behind, up to ``limit`` of them."""
    missing = ctx.ops.Sub(ctx.ops.Reshape(ctx.ops.Cast(limit, to="int64"), [1]), ctx.ops.Shape(values))
    return ctx.ops.Pad(values, ctx.ops.Concat([0], missing, axis=0))


def number(ctx: Context, values: Value) -> Value:
    return ctx.ops.Cast(ctx.ops.Squeeze(ctx.ops.Shape(values), [0]), to="int32")
