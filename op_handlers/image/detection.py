"""Non-maximum suppression of boxes, hard or soft.

Soft suppression lowers the scores of boxes that overlap a selected box.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, NotQuantizable, Terminate, Value, ValueLike, handler
from op_handlers.kernels.boxes import Boxes, float32_below

SUPPRESSED = np.float32(-np.inf)
"""Score of a suppressed box."""


@handler("NON_MAX_SUPPRESSION_V4", max_version=1, layout=Terminate(), quantization=NotQuantizable())
def non_max_suppression_v4(
    ctx: Context, boxes: Value, scores: Value, limit: Value, iou: Value, min_score: Value
) -> tuple[Value, Value]:
    """Emit the indices of selected boxes, padded with zeros, and the number of boxes."""
    selected, _ = emit_suppression(ctx, boxes, scores, limit, iou, min_score)
    return pad_to_limit(ctx, ctx.ops.Cast(selected, to="int32"), limit), emit_count(ctx, selected)


@handler("NON_MAX_SUPPRESSION_V5", max_version=1, layout=Terminate(), quantization=NotQuantizable())
def non_max_suppression_v5(
    ctx: Context, boxes: Value, scores: Value, limit: Value, iou: Value, min_score: Value, sigma: Value
) -> tuple[Value, Value, Value]:
    """Emit indices, scores and number of the selected boxes.

    Unless sigma is 0, overlaps lower the scores.
    """
    selected, selected_scores = emit_suppression(ctx, boxes, scores, limit, iou, min_score, sigma)
    return (
        pad_to_limit(ctx, ctx.ops.Cast(selected, to="int32"), limit),
        pad_to_limit(ctx, selected_scores, limit),
        emit_count(ctx, selected),
    )


def emit_suppression(
    ctx: Context, boxes: Value, scores: Value, limit: Value, iou: Value, min_score: Value, sigma: Value | None = None
) -> tuple[Value, Value]:
    """Return the selected boxes ``[k]`` in order of score, and their scores."""
    ops = ctx.ops
    max_count = ops.Cast(limit, to="int64")
    count = ops.Min(max_count, ops.ReduceSum(ops.Cast(ops.Greater(scores, min_score), to="int64"), keepdims=0))
    constant_iou, constant_sigma = ctx.op.constant(3), np.zeros(()) if sigma is None else ctx.op.constant(5)
    if constant_sigma is None or constant_sigma or constant_iou is None or constant_iou > 1:
        return emit_loop(ctx, boxes, scores, count, iou, min_score, np.float32(0) if sigma is None else sigma)
    if constant_iou > 0:
        selected = emit_hard_suppression(ctx, boxes, scores, count, float(constant_iou), min_score)
    else:  # the threshold is 0 or less: the first box suppresses all others
        selected = emit_hard_suppression(ctx, boxes, scores, ops.Min(count, 1), 1.0, min_score)
    return selected, ops.Gather(scores, selected)


def emit_hard_suppression(
    ctx: Context, boxes: Value, scores: Value, count_limit: Value, iou: float, min_score: Value
) -> Value:
    """Emit NonMaxSuppression.

    The operator suppresses only above its threshold, the kernel also at it. The threshold is therefore
    lowered by one float32 step.

    A box without area overlaps nothing, not even itself. The kernel therefore selects it repeatedly
    (reference/non_max_suppression.h).
    """
    ops = ctx.ops
    iou_thresholds, min_scores = np.asarray([float32_below(iou)]), ops.Reshape(min_score, [1])
    indices = ops.NonMaxSuppression(
        ops.Unsqueeze(boxes, [0]),
        ops.Unsqueeze(scores, [0, 1]),
        ops.Unsqueeze(count_limit, [0]),
        iou_thresholds,
        min_scores,
    )
    selected = ops.Gather(indices, np.asarray(2), axis=1)
    has_no_area = ops.LessOrEqual(ops.Gather(Boxes(ctx, boxes).area, selected), np.float32(0))
    first_without_area = ops.ArgMax(
        ops.Concat(ops.Cast(has_no_area, to="int32"), np.ones(1, np.int32), axis=0), axis=0, keepdims=0
    )
    count = ops.Squeeze(ops.Shape(selected), [0])
    positions = ops.Range(
        np.asarray(0), ops.Where(ops.Less(first_without_area, count), count_limit, count), np.asarray(1)
    )
    return ops.Gather(selected, ops.Min(positions, first_without_area))


def emit_loop(
    ctx: Context, boxes: Value, scores: Value, count_limit: Value, iou: Value, min_score: Value, sigma: ValueLike
) -> tuple[Value, Value]:
    """Emit a Loop that selects the best box in each step.

    The step lowers the scores of all boxes by their overlap with the selected box.
    """
    ops, all_boxes = ctx.ops, Boxes(ctx, boxes)
    scale = ops.Where(ops.Greater(sigma, np.float32(0)), ops.Div(np.float32(-0.5), sigma), np.float32(0))
    initial_scores = ops.Where(ops.Greater(scores, min_score), scores, SUPPRESSED)

    def step(_count: Value, _go_on: Value, scores: Value) -> list[Value]:
        best_box = ops.ArgMax(scores, axis=0, keepdims=0)
        overlap = all_boxes.overlap(best_box)
        lowered_scores = ops.Mul(scores, ops.Exp(ops.Mul(ops.Mul(scale, overlap), overlap)))
        # The comparisons exclude NaN, the product of zero and SUPPRESSED.
        is_kept = ops.And(ops.Less(overlap, iou), ops.Greater(lowered_scores, min_score))
        new_scores = ops.Where(is_kept, lowered_scores, SUPPRESSED)
        return [
            ops.Greater(ops.ReduceMax(new_scores, keepdims=0), SUPPRESSED),
            new_scores,
            best_box,
            ops.Gather(scores, best_box),
        ]

    parameters = [("step", "int64", ()), ("go_on", "bool", ()), ("scores", "float32", None)]
    _, selected, selected_scores = ops.Loop(
        count_limit, True, initial_scores, body=ctx.graph(step, parameters), outputs=3
    )
    return selected, selected_scores


def pad_to_limit(ctx: Context, values: Value, limit: Value) -> Value:
    """Return values padded with zeros to ``limit`` elements."""
    missing = ctx.ops.Sub(ctx.ops.Reshape(ctx.ops.Cast(limit, to="int64"), [1]), ctx.ops.Shape(values))
    return ctx.ops.Pad(values, ctx.ops.Concat([0], missing, axis=0))


def emit_count(ctx: Context, values: Value) -> Value:
    return ctx.ops.Cast(ctx.ops.Squeeze(ctx.ops.Shape(values), [0]), to="int32")
