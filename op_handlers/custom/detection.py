"""Postprocessing of single-shot detectors: decode boxes by anchors, then non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Dequantized,
    Instance,
    Operator,
    Refusal,
    Terminate,
    Value,
    handler,
    named,
    out,
)
from op_handlers.kernels.boxes import float32_below, split_columns

REQUIRED_OPTIONS = (
    "max_detections",
    "max_classes_per_detection",
    "num_classes",
    "nms_score_threshold",
    "nms_iou_threshold",
)
SCALE_OPTIONS = ("y_scale", "x_scale", "h_scale", "w_scale")
RANKS = (3, 3, 2)
"""Ranks of boxes, scores and anchors that Prepare requires."""
DETECTIONS_PER_CLASS = 100
"""Default of ``detections_per_class`` (kNumDetectionsPerClass)."""


def settings(op: Operator) -> dict[str, Any]:
    """Return the operator's options, with the kernel's defaults for absent ones (Init, detection_postprocess.cc)."""
    return {"detections_per_class": DETECTIONS_PER_CLASS, "use_regular_nms": False, **op.options}


def check_detection(at: Instance) -> Decline | None:
    """Return a Decline for models that Prepare or Eval refuses."""
    op = at.op
    if any(op.tensor(slot) is None for slot in range(3)):
        return Decline("boxes, scores or anchors are missing; the kernel requires all three")
    if invalid := next((op[slot] for slot, rank in enumerate(RANKS) if op[slot].rank != rank), None):
        return Decline(
            f"{invalid.name!r} has shape {list(invalid.shape)}; the kernel requires boxes and scores of rank 3, anchors of rank 2"
        )
    if invalid := next((op[out(k)] for k in range(len(op.outputs)) if op[out(k)].dtype != "float32"), None):
        return Decline(f"result {invalid.name!r} has dtype {invalid.dtype}, but the kernel writes float32")
    options = settings(op)
    if missing := [name for name in (*REQUIRED_OPTIONS, *SCALE_OPTIONS) if name not in options]:
        return Decline(f"the options lack {', '.join(missing)}")
    boxes, anchors = op[0].dims[1], op[2]
    if boxes is not None and anchors.is_static and anchors.shape[0] < boxes:
        return Decline(f"{anchors.shape[0]} anchors for {boxes} boxes: the kernel would read beyond the anchors")
    if anchors.dtype != op[0].dtype:
        return Decline(f"anchors have dtype {anchors.dtype} and boxes {op[0].dtype}; the kernel requires one dtype")
    for tensor in (op[0], op[1], anchors):
        if tensor.dtype in ("uint8", "int8") and tensor.quantization is None:
            return Decline(f"{tensor.name!r} has dtype {tensor.dtype} without a scale, which the kernel needs")
    background = op[1].shape[2] - options["num_classes"]
    if not 0 < options["nms_iou_threshold"] <= 1:
        return Decline(
            f"option nms_iou_threshold is {options['nms_iou_threshold']:g}; the kernel requires a value in (0, 1]"
        )
    if background not in (0, 1):
        return Decline(f"scores of {op[1].shape[2]} classes, but option num_classes is {options['num_classes']}")
    limits = [options[name] for name in ("max_classes_per_detection", "max_detections", "detections_per_class")]
    if min(limits) < 1:
        return Decline("the options keep no detections, which the kernel refuses")
    if max(limits[0] * limits[1], limits[2]) >= 2**31:
        return Decline("the options keep more detections than the kernel can count in 32 bits")
    return None


@handler(
    "CUSTOM.TFLite_Detection_PostProcess",
    max_version=1,
    layout=Terminate(),
    quantization=Dequantized(),
    accepts=check_detection,
)
def postprocess(ctx: Context, encodings: Value, scores: Value, anchors: Value) -> tuple[Value, ...]:
    """Emit NonMaxSuppression per class, or once by the highest class score of each box.

    Unused entries of the results are 0; the kernel leaves them uninitialized.
    """
    options, ops, batch = settings(ctx.op), ctx.ops, ctx.op[0].dims[0]
    if batch != 1:
        raise Refusal(f"the batch size is {batch or 'dynamic'}; the kernel requires 1 (kBatchSize)")
    boxes = decode_boxes(ctx, ops.Squeeze(encodings, [0]), anchors, options)
    background = ctx.op[1].shape[2] - options["num_classes"]
    scores_by_box = ops.Slice(ops.Squeeze(scores, [0]), [background], [ctx.op[1].shape[2]], [1])
    emit = emit_regular if options["use_regular_nms"] else emit_fast
    return emit(ctx, boxes, scores_by_box, options)


def decode_boxes(ctx: Context, encodings: Value, anchors: Value, options: dict[str, Any]) -> Value:
    """Emit corners ``[N, 4]`` in float32 from centers and sizes relative to anchors, computed in float64 as in the kernel."""
    ops = ctx.ops
    as_float64 = [ops.Cast(value, to="float64") for value in (ops.Slice(encodings, [0], [4], [1]), anchors)]
    (y, x, h, w), (ya, xa, ha, wa) = (split_columns(ctx, value, rank=2) for value in as_float64)
    if ctx.op[2].shape[-1] != 4:
        raise Refusal(f"anchors have shape {list(ctx.op[2].shape)}, so boxes cannot be decoded")
    scale = {name: named(np.float64(np.float32(options[f"{name}_scale"])), f"{name}_scale") for name in "yxhw"}

    def emit_sides(
        center: Value, size: Value, anchor: Value, anchor_size: Value, axis: str, length: str
    ) -> tuple[Value, Value]:
        box_center = ops.Cast(ops.Add(ops.Mul(ops.Div(center, scale[axis]), anchor_size), anchor), to="float32")
        half_size = ops.Mul(ops.Mul(named(np.float64(0.5), "half"), ops.Exp(ops.Div(size, scale[length]))), anchor_size)
        half_extent = ops.Cast(half_size, to="float32")
        return ops.Sub(box_center, half_extent), ops.Add(box_center, half_extent)

    top, bottom = emit_sides(y, h, ya, ha, "y", "h")
    left, right = emit_sides(x, w, xa, wa, "x", "w")
    return ops.Concat(top, left, bottom, right, axis=1)


def emit_suppression(ctx: Context, boxes: Value, scores: Value, limit: int, options: dict[str, Any]) -> Value:
    """Return the selected boxes as indices (batch, class, box); ``scores`` is ``[classes, N]``.

    A score equal to the threshold is kept, as in the kernel.
    """
    overlap_threshold = np.asarray([options["nms_iou_threshold"]], np.float32)
    score_threshold = np.asarray([float32_below(options["nms_score_threshold"])])
    return ctx.ops.NonMaxSuppression(
        ctx.ops.Unsqueeze(boxes, [0]), ctx.ops.Unsqueeze(scores, [0]), [limit], overlap_threshold, score_threshold
    )


def emit_fast(ctx: Context, boxes: Value, scores: Value, options: dict[str, Any]) -> tuple[Value, ...]:
    """Emit one suppression by the highest class score of each box.

    Each box is returned with several classes.
    """
    ops, rows, width = ctx.ops, options["max_detections"], options["max_classes_per_detection"]
    classes = min(width, options["num_classes"])
    best_scores, labels = ops.TopK(scores, [classes], axis=1, outputs=2)
    top_scores = ops.Transpose(ops.Slice(best_scores, [0], [1], [1]), perm=[1, 0])
    selected = ops.Gather(emit_suppression(ctx, boxes, top_scores, rows, options), np.asarray(2), axis=1)
    count = ops.Shape(selected)
    selected_boxes = ops.Unsqueeze(ops.Gather(boxes, selected, axis=0), [1])
    repeated = ops.Expand(selected_boxes, ops.Concat(count, [classes, 4], axis=0))
    return (
        ops.Reshape(pad_to_sizes(ctx, repeated, (rows, width), trailing_axes=1), [1, rows * width, 4]),
        *(
            ops.Reshape(pad_to_sizes(ctx, ops.Gather(values, selected, axis=0), (rows, width)), [1, rows * width])
            for values in (ops.Cast(labels, to="float32"), best_scores)
        ),
        ops.Cast(count, to="float32"),
    )


def emit_regular(ctx: Context, boxes: Value, scores: Value, options: dict[str, Any]) -> tuple[Value, ...]:
    """Emit one suppression per class, and keep the highest scores of all classes.

    Ties go to the lower class.
    """
    ops, rows = ctx.ops, options["max_detections"]
    total = rows * options["max_classes_per_detection"]
    by_class = ops.Transpose(scores, perm=[1, 0])
    candidates = emit_suppression(ctx, boxes, by_class, min(options["detections_per_class"], rows), options)
    class_indices, box_indices = (ops.Gather(candidates, np.asarray(k), axis=1) for k in (1, 2))
    candidate_scores = ops.GatherND(by_class, ops.Slice(candidates, [1], [3], [1]))
    count = ops.Min(ops.Shape(candidate_scores), [rows])
    best_scores, order = ops.TopK(candidate_scores, count, axis=0, outputs=2)
    selected_boxes = ops.Gather(boxes, ops.Gather(box_indices, order), axis=0)
    labels = ops.Cast(ops.Gather(class_indices, order), to="float32")
    return (
        ops.Unsqueeze(pad_to_sizes(ctx, selected_boxes, (total,), trailing_axes=1), [0]),
        *(ops.Unsqueeze(pad_to_sizes(ctx, values, (total,)), [0]) for values in (labels, best_scores)),
        ops.Cast(count, to="float32"),
    )


def pad_to_sizes(ctx: Context, values: Value, sizes: tuple[int, ...], trailing_axes: int = 0) -> Value:
    """Return values padded with zeros to ``sizes`` along the first axes.

    ``trailing_axes`` more axes are unchanged.
    """
    ops, no_padding = ctx.ops, [0] * trailing_axes
    missing = ops.Sub(list(sizes), ops.Slice(ops.Shape(values), [0], [len(sizes)]))
    return ops.Pad(
        values, ops.Concat([0] * (len(sizes) + trailing_axes), missing, *([no_padding] if no_padding else []), axis=0)
    )
