"""TensorFlow's non-maximum suppression, of one class or of all classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Handler,
    Instance,
    Operator,
    Terminate,
    Value,
    ValueLike,
    handler,
)
from op_handlers.custom.select.nodedef import PREFIX, node_of
from op_handlers.custom.select.rewriting import acceptance_check, element_count_check, rank_check
from op_handlers.image.detection import emit_count, pad_to_limit

LOWEST = np.finfo(np.float32).min
"""Score threshold of the versions that have no operand for it."""
DEFAULT_OVERLAP = 0.5
"""Default of the attribute ``iou_threshold``."""


# --- reference kernel -------------------------------------------------------------------------


def overlap_ratios(box: Array, boxes: Array) -> Array:
    """Return the intersection over union of a box with each of the boxes, [N].

    ``boxes``: [N, 4], two corners y x in either order. Boxes without area overlap nothing.
    """
    corners = [np.sort(array.reshape(-1, 2, 2), axis=1) for array in (box, boxes)]
    sides = np.minimum(corners[0][:, 1], corners[1][:, 1]) - np.maximum(corners[0][:, 0], corners[1][:, 0])
    intersection = np.maximum(sides, 0).prod(1)
    area, areas = ((array[:, 1] - array[:, 0]).prod(1) for array in corners)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = intersection / (area + areas - intersection)
    return np.asarray(np.where(np.minimum(area, areas) > 0, ratio, 0))


def select_boxes(boxes: Array, scores: Array, limit: int, max_overlap: float, min_score: float) -> list[int]:
    """Return the indices of at most ``limit`` boxes, in order of score."""
    selected: list[int] = []
    for index in np.argsort(-scores, kind="stable").tolist():
        if len(selected) >= limit or not scores[index] > min_score:
            break
        if not (overlap_ratios(boxes[index], boxes[selected]) > max_overlap).any():
            selected.append(index)
    return selected


# --- one class --------------------------------------------------------------------------------


def suppression_handler(name: str, operands: int, *, emit: Callable[..., Any], results: int, types: str) -> Handler:
    """Return the handler of a version of NonMaxSuppression.

    The operands are boxes ``[N, 4]``, scores ``[N]``, the maximum number of results, and from version 2 the maximum
    overlap, from version 3 the minimum score, in version 5 sigma. ``emit``: lowering of these operands. ``results``: 1
    for indices, 2 for indices and their number, 3 for indices, scores and their number.
    """

    def kernel(op: Operator, boxes: Array, scores: Array, limit: Array, *thresholds: Array) -> Sequence[Array]:
        max_overlap = float(thresholds[0]) if thresholds else node_of(op).real("iou_threshold", DEFAULT_OVERLAP)
        min_score = float(thresholds[1]) if len(thresholds) > 1 else float(LOWEST)
        selected = np.asarray(select_boxes(boxes, scores, int(limit), max_overlap, min_score), np.int32)
        padding = [(0, int(limit) - len(selected) if is_padded(op) else 0)]
        indices, count = np.pad(selected, padding), np.asarray(len(selected), np.int32)
        return [[indices], [indices, count], [indices, np.pad(scores[selected], padding), count]][results - 1]

    def lower(ctx: Context, *inputs: Any) -> Any:
        return emit(ctx, *inputs)

    scalars = [element_count_check(slot=slot, count=1) for slot in range(2, operands)]
    lower.__name__, lower.__doc__ = name, "Emit NonMaxSuppression, and the indices of the selected boxes."
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Terminate(),
        types=types,
        accepts=acceptance_check(operands, accepts=rank_check({0: 2, 1: 1}, *scalars, check_sigma)),
        kernel=kernel,
    )(lower)


def is_padded(op: Operator) -> bool:
    return node_of(op).flag("pad_to_max_output_size")


def check_sigma(instance: Instance) -> Decline | None:
    """Return a Decline for soft suppression, which lowers scores by overlap."""
    if instance.op.tensor(5) is None:
        return None
    sigma = instance.op.constant(5)
    if sigma is not None and not sigma.any():
        return None
    return Decline("soft suppression (soft_nms_sigma is not 0) is not supported", "set soft_nms_sigma to 0")


def emit_indices(ctx: Context, boxes: Value, scores: Value, limit: Value, *thresholds: Value) -> Value:
    """Emit NonMaxSuppression; return the indices of the selected boxes, without padding."""
    ops = ctx.ops
    max_count = ops.Cast(ops.Reshape(limit, [1]), to="int64")
    default_overlap = node_of(ctx.op).real("iou_threshold", DEFAULT_OVERLAP)
    max_overlap: ValueLike = (
        ops.Reshape(thresholds[0], [1]) if thresholds else np.asarray([default_overlap], np.float32)
    )
    min_score: ValueLike = ops.Reshape(thresholds[1], [1]) if len(thresholds) > 1 else np.asarray([LOWEST])
    selected = ops.NonMaxSuppression(
        ops.Unsqueeze(boxes, [0]), ops.Unsqueeze(scores, [0, 1]), max_count, max_overlap, min_score
    )
    return ops.Gather(selected, np.asarray(2), axis=1)


def pad_if_requested(ctx: Context, values: Value, limit: Value) -> Value:
    """Return values, padded to the maximum number of boxes if the operator pads its results."""
    return pad_to_limit(ctx, values, limit) if is_padded(ctx.op) else values


def emit_selected(ctx: Context, *inputs: Value) -> Value:
    return ctx.ops.Cast(emit_indices(ctx, *inputs), to="int32")


def emit_selected_and_count(ctx: Context, *inputs: Value) -> tuple[Value, Value]:
    indices = emit_indices(ctx, *inputs)
    return ctx.ops.Cast(pad_if_requested(ctx, indices, inputs[2]), to="int32"), emit_count(ctx, indices)


def emit_selected_scores(ctx: Context, *inputs: Value) -> tuple[Value, Value, Value]:
    *operands, _sigma = inputs
    scores, limit = inputs[1:3]
    indices = emit_indices(ctx, *operands)
    return (
        ctx.ops.Cast(pad_if_requested(ctx, indices, limit), to="int32"),
        pad_if_requested(ctx, ctx.ops.Gather(scores, indices), limit),
        emit_count(ctx, indices),
    )


BOXES_AND_LIMIT = "float32, float32, int32"
non_max_suppression = suppression_handler(
    "NonMaxSuppression", 3, emit=emit_selected, results=1, types=f"{BOXES_AND_LIMIT} -> int32"
)
non_max_suppression_v2 = suppression_handler(
    "NonMaxSuppressionV2", 4, emit=emit_selected, results=1, types=f"{BOXES_AND_LIMIT}, float32 -> int32"
)
non_max_suppression_v3 = suppression_handler(
    "NonMaxSuppressionV3", 5, emit=emit_selected, results=1, types=f"{BOXES_AND_LIMIT}, float32, float32 -> int32"
)
non_max_suppression_v4 = suppression_handler(
    "NonMaxSuppressionV4",
    5,
    emit=emit_selected_and_count,
    results=2,
    types=f"{BOXES_AND_LIMIT}, float32, float32 -> int32, int32",
)
non_max_suppression_v5 = suppression_handler(
    "NonMaxSuppressionV5",
    6,
    emit=emit_selected_scores,
    results=3,
    types=f"{BOXES_AND_LIMIT}, float32, float32, float32 -> int32, float32, int32",
)


# --- all classes ------------------------------------------------------------------------------


def check_combined(instance: Instance) -> Decline | None:
    """Return a Decline unless there is one box for all classes, or one per class."""
    boxes, scores = instance.op[0], instance.op[1]
    if boxes.dims[2] is None or scores.dims[2] is None:
        return Decline("the number of classes is dynamic; set it with --input-shape")
    if boxes.dims[2] not in (1, scores.dims[2]):
        return Decline(
            f"there are {boxes.dims[2]} boxes for {scores.dims[2]} classes; expected one box, or one per class"
        )
    return None


def result_count(op: Operator, limits: Sequence[Array], classes: int) -> int:
    """Return the number of results per image.

    ``limits``: the maximum per class, and in total. With ``pad_per_class``, the number is at most the maximum per class
    times the number of classes, because no image can have more results.
    """
    per_class, total = (int(limit.reshape(-1)[0]) for limit in limits)
    return min(total, per_class * classes) if node_of(op).flag("pad_per_class") else total


def combined_kernel(op: Operator, boxes: Array, scores: Array, *parameters: Array) -> Sequence[Array]:
    (batch, _, box_classes, _), classes = boxes.shape, scores.shape[2]
    per_class, max_overlap, min_score = (float(parameters[k].reshape(-1)[0]) for k in (0, 2, 3))
    count = result_count(op, parameters[:2], classes)
    results = np.zeros((batch, count, 6), np.float32)
    found_counts = np.zeros(batch, np.int32)
    for image in range(batch):
        candidates = []
        for label in range(classes):
            class_boxes, class_scores = boxes[image, :, label % box_classes], scores[image, :, label]
            selected = select_boxes(class_boxes, class_scores, int(per_class), max_overlap, min_score)
            candidates += [[*class_boxes[k], class_scores[k], label] for k in selected]
        best = sorted(candidates, key=lambda candidate: -candidate[4])[:count]
        results[image, : len(best)] = best or 0
        found_counts[image] = len(best)
    corners = results[..., :4]
    clipped = np.clip(corners, 0, 1) if node_of(op).flag("clip_boxes", True) else corners
    return [clipped, results[..., 4], results[..., 5], found_counts]


SCALARS = [element_count_check(slot=slot, count=1) for slot in range(2, 6)]
"""Checks of the limits per class and in total, the maximum overlap and the minimum score."""


@handler(
    PREFIX + "CombinedNonMaxSuppression",
    max_version=1,
    layout=Terminate(),
    types=f"{BOXES_AND_LIMIT}, int32, float32, float32 -> float32, float32, float32, int32",
    requires_constant={2, 3},
    accepts=acceptance_check(6, accepts=rank_check({0: 4, 1: 3}, *SCALARS, check_combined)),
    kernel=combined_kernel,
)
def combined_non_max_suppression(
    ctx: Context, boxes: Value, scores: Value, _per_class: Value, _total: Value, max_overlap: Value, min_score: Value
) -> tuple[Value, ...]:
    """Emit NonMaxSuppression per class, and TopK of the scores of the selected boxes.

    Scores of other boxes become minus infinity. Unused results are 0.
    """
    ops, op = ctx.ops, ctx.op
    box_classes, classes, box_count = op[0].shape[2], op[1].shape[2], op[0].dims[1]
    limits = [ctx.require_constant(slot) for slot in (2, 3)]
    per_class, count = limits[0].reshape(-1).astype(np.int64), result_count(op, limits, classes)
    boxes_per_class = ops.Slice(ops.Shape(boxes), [1], [2])
    # A candidate is a box with a class. Candidates are in the order [image, class, box].
    class_scores = ops.Transpose(scores, perm=[0, 2, 1])
    if box_classes == 1:
        corners = compared_corners = ops.Squeeze(boxes, [2])
        compared_scores = class_scores
    else:  # NonMaxSuppression has one set of boxes per image, so each class becomes an image
        class_corners = ops.Transpose(boxes, perm=[0, 2, 1, 3])
        corners = ops.Reshape(class_corners, ops.Concat(ops.Slice(ops.Shape(boxes), [0], [1]), [-1, 4], axis=0))
        compared_corners = ops.Reshape(class_corners, ops.Concat([-1], boxes_per_class, [4], axis=0))
        compared_scores = ops.Reshape(class_scores, ops.Concat([-1, 1], boxes_per_class, axis=0))
    selected = ops.NonMaxSuppression(
        compared_corners, compared_scores, per_class, ops.Reshape(max_overlap, [1]), ops.Reshape(min_score, [1])
    )
    minus_infinity, zero = np.asarray(-np.inf, np.float32), np.float32(0)
    selected_scores = ops.ScatterND(
        ops.Expand(minus_infinity, ops.Shape(compared_scores)), selected, ops.GatherND(compared_scores, selected)
    )
    image_count = ops.Slice(ops.Shape(scores), [0], [1])
    candidate_scores = ops.Reshape(selected_scores, ops.Concat(image_count, [-1], axis=0))
    found_limit = ops.Min([count], ops.Mul(boxes_per_class, [classes]))
    best_scores, candidates = ops.TopK(candidate_scores, found_limit, axis=1, outputs=2)
    is_found = ops.Greater(best_scores, minus_infinity)
    indices = candidates if box_classes > 1 else ops.Mod(candidates, boxes_per_class)
    best_corners = ops.GatherND(corners, ops.Unsqueeze(indices, [-1]), batch_dims=1)
    if node_of(op).flag("clip_boxes", True):
        best_corners = ops.Clip(best_corners, zero, np.float32(1))
    labels = ops.Cast(ops.Div(candidates, boxes_per_class), to="float32")
    results = [
        ops.Where(ops.Unsqueeze(is_found, [-1]), best_corners, zero),
        *(ops.Where(is_found, values, zero) for values in (best_scores, labels)),
    ]
    if box_count is None or box_count * classes < count:
        missing = ops.Sub([count], found_limit)
        results = [
            ops.Pad(values, ops.Concat([0] * (rank + 1), missing, *([[0]] if rank == 3 else []), axis=0))
            for values, rank in zip(results, (3, 2, 2), strict=True)
        ]
    return (*results, ops.ReduceSum(ops.Cast(is_found, to="int32"), np.asarray([1]), keepdims=0))
