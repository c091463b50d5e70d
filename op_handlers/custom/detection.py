"""Postprocessing of single-shot detectors.

Boxes are decoded relative to anchors. Non-maximum suppression then selects boxes.
"""

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


NOTE = (
    "ONNX has no operator for the whole postprocessing of a detector. These nodes decode the boxes: centers and sizes relative "
    "to anchors become top, left, bottom and right. NonMaxSuppression then selects boxes (selected_indices), and the boxes, "
    "labels and scores are padded with zeros to the number of detections in the file (padded_...)."
)
"""Explanation of the nodes of a readable graph."""


def options_with_defaults(op: Operator) -> dict[str, Any]:
    """Return the operator's options, with the kernel's defaults for absent options.

    Source: Init, detection_postprocess.cc.
    """
    return {"detections_per_class": DETECTIONS_PER_CLASS, "use_regular_nms": False, **op.options}


def check_detection(instance: Instance) -> Decline | None:
    """Return a Decline for models that Prepare or Eval refuses."""
    op = instance.op
    if any(op.tensor(slot) is None for slot in range(3)):
        return Decline("boxes, scores or anchors are missing; the kernel requires all three")
    if invalid := next((op[slot] for slot, rank in enumerate(RANKS) if op[slot].rank != rank), None):
        return Decline(
            f"{invalid.name!r} has shape {list(invalid.shape)}; the kernel requires boxes and scores of rank 3, anchors of rank 2"
        )
    if invalid := next((op[out(k)] for k in range(len(op.outputs)) if op[out(k)].dtype != "float32"), None):
        return Decline(f"result {invalid.name!r} has dtype {invalid.dtype}, but the kernel writes float32")
    options = options_with_defaults(op)
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
    background_count = op[1].shape[2] - options["num_classes"]
    if not 0 < options["nms_iou_threshold"] <= 1:
        return Decline(
            f"option nms_iou_threshold is {options['nms_iou_threshold']:g}; the kernel requires a value in (0, 1]"
        )
    if background_count not in (0, 1):
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
    """Emit NonMaxSuppression per class, or once for all classes.

    One suppression for all classes uses the highest class score of each box. Unused entries of the results are 0; the
    kernel leaves them uninitialized.
    """
    options, ops, batch = options_with_defaults(ctx.op), ctx.ops, ctx.op[0].dims[0]
    if batch != 1:
        raise Refusal(f"the batch size is {batch or 'dynamic'}; the kernel requires 1 (kBatchSize)")
    ctx.explain(NOTE)
    boxes = named(decode_boxes(ctx, named(ops.Squeeze(encodings, [0]), "encodings"), anchors, options), "boxes")
    background_count = ctx.op[1].shape[2] - options["num_classes"]
    scores_by_box = named(
        ops.Slice(named(ops.Squeeze(scores, [0]), "all_scores"), [background_count], [ctx.op[1].shape[2]], [1]),
        "scores",
    )
    emit = emit_regular_nms if options["use_regular_nms"] else emit_fast_nms
    return emit(ctx, boxes, scores_by_box, options)


def decode_boxes(ctx: Context, encodings: Value, anchors: Value, options: dict[str, Any]) -> Value:
    """Emit the corners ``[N, 4]`` of boxes in float32.

    Centers and sizes are stored relative to anchors, and are computed in float64 as in the kernel.
    """
    ops = ctx.ops
    coordinates = named(ops.Slice(encodings, [0], [4], [1]), "coordinates")
    (y, x, h, w), (ya, xa, ha, wa) = (
        [
            named(column, f"{prefix}{name}")
            for column, name in zip(
                split_columns(ctx, named(ops.Cast(value, to="float64"), f"{prefix}coordinates_float64"), rank=2),
                ("center_y", "center_x", "height", "width"),
                strict=True,
            )
        ]
        for prefix, value in (("", coordinates), ("anchor_", anchors))
    )
    if ctx.op[2].shape[-1] != 4:
        raise Refusal(f"anchors have shape {list(ctx.op[2].shape)}, so boxes cannot be decoded")
    scale = {name: named(np.float64(np.float32(options[f"{name}_scale"])), f"{name}_scale") for name in "yxhw"}

    def emit_sides(
        center: Value, size: Value, anchor: Value, anchor_size: Value, axis: str, length: str
    ) -> tuple[Value, Value]:
        name, sides = {"y": "height", "x": "width"}[axis], {"y": ("top", "bottom"), "x": ("left", "right")}[axis]
        offset = named(ops.Mul(named(ops.Div(center, scale[axis]), f"relative_{axis}"), anchor_size), f"offset_{axis}")
        box_center = ops.Cast(named(ops.Add(offset, anchor), f"box_{axis}_float64"), to="float32")
        factor = named(ops.Exp(named(ops.Div(size, scale[length]), f"log_{name}")), f"relative_{name}")
        half_factor = named(ops.Mul(named(np.float64(0.5), "half"), factor), f"half_relative_{name}")
        half_size = named(ops.Mul(half_factor, anchor_size), f"half_{name}_float64")
        half_extent = named(ops.Cast(half_size, to="float32"), f"half_{name}")
        named(box_center, f"box_{axis}")
        low, high = ops.Sub(box_center, half_extent), ops.Add(box_center, half_extent)
        return named(low, sides[0]), named(high, sides[1])

    top, bottom = emit_sides(y, h, ya, ha, "y", "h")
    left, right = emit_sides(x, w, xa, wa, "x", "w")
    return ops.Concat(top, left, bottom, right, axis=1)


def emit_suppression(ctx: Context, boxes: Value, scores: Value, limit: int, options: dict[str, Any]) -> Value:
    """Emit the indices (batch, class, box) of the selected boxes.

    ``scores``: [classes, N]. A score equal to the threshold is kept, as in the kernel.
    """
    overlap_threshold = np.asarray([options["nms_iou_threshold"]], np.float32)
    score_threshold = np.asarray([float32_below(options["nms_score_threshold"])])
    ops = ctx.ops
    return named(
        ops.NonMaxSuppression(
            named(ops.Unsqueeze(boxes, [0]), "boxes_with_batch"),
            named(ops.Unsqueeze(scores, [0]), "scores_with_batch"),
            [limit],
            overlap_threshold,
            score_threshold,
        ),
        "selected_indices",
    )


def emit_fast_nms(ctx: Context, boxes: Value, scores: Value, options: dict[str, Any]) -> tuple[Value, ...]:
    """Emit one suppression by the highest class score of each box.

    A selected box is returned with its best classes.
    """
    ops, detections, max_classes = ctx.ops, options["max_detections"], options["max_classes_per_detection"]
    classes = min(max_classes, options["num_classes"])
    best_scores, labels = ops.TopK(scores, [classes], axis=1, outputs=2)
    best_score = named(ops.Slice(named(best_scores, "best_scores"), [0], [1], [1]), "best_score")
    top_scores = named(ops.Transpose(best_score, perm=[1, 0]), "best_score_as_row")
    indices = emit_suppression(ctx, boxes, top_scores, detections, options)
    selected = named(ops.Gather(indices, named(np.asarray(2), "column_of_boxes"), axis=1), "selected")
    count = named(ops.Shape(selected), "count")
    selected_boxes = named(
        ops.Unsqueeze(named(ops.Gather(boxes, selected, axis=0), "selected_boxes"), [1]), "selected_boxes_with_class"
    )
    sizes = named(ops.Concat(count, named(np.asarray([classes, 4]), "classes_and_corners"), axis=0), "repeated_shape")
    repeated = named(ops.Expand(selected_boxes, sizes), "repeated_boxes")
    named_values = {
        "labels": named(ops.Cast(named(labels, "labels_int64"), to="float32"), "labels"),
        "scores": best_scores,
    }
    padded_sizes, total = (detections, max_classes), detections * max_classes
    return (
        ops.Reshape(pad_to_sizes(ctx, repeated, padded_sizes, "boxes", trailing_axes=1), [1, total, 4]),
        *(
            ops.Reshape(
                pad_to_sizes(ctx, named(ops.Gather(values, selected, axis=0), f"selected_{name}"), padded_sizes, name),
                [1, total],
            )
            for name, values in named_values.items()
        ),
        ops.Cast(count, to="float32"),
    )


def emit_regular_nms(ctx: Context, boxes: Value, scores: Value, options: dict[str, Any]) -> tuple[Value, ...]:
    """Emit one suppression per class, and keep the highest scores of all classes.

    Among equal scores, the score of the lower class is kept.
    """
    ops, rows = ctx.ops, options["max_detections"]
    total = rows * options["max_classes_per_detection"]
    scores_by_class = named(ops.Transpose(scores, perm=[1, 0]), "scores_by_class")
    candidates = emit_suppression(ctx, boxes, scores_by_class, min(options["detections_per_class"], rows), options)
    class_indices, box_indices = (
        named(ops.Gather(candidates, named(np.asarray(column), f"column_of_{name}"), axis=1), f"candidate_{name}")
        for column, name in ((1, "classes"), (2, "boxes"))
    )
    class_and_box = named(ops.Slice(candidates, [1], [3], [1]), "class_and_box")
    candidate_scores = named(ops.GatherND(scores_by_class, class_and_box), "candidate_scores")
    count = named(ops.Min(named(ops.Shape(candidate_scores), "candidate_count"), [rows]), "count")
    best_scores, order = ops.TopK(candidate_scores, count, axis=0, outputs=2)
    selected = named(ops.Gather(box_indices, named(order, "order")), "selected")
    selected_boxes = named(ops.Gather(boxes, selected, axis=0), "selected_boxes")
    labels = named(ops.Gather(class_indices, order), "labels_int64")
    named_values = {
        "labels": named(ops.Cast(labels, to="float32"), "labels"),
        "scores": named(best_scores, "best_scores"),
    }
    return (
        ops.Unsqueeze(pad_to_sizes(ctx, selected_boxes, (total,), "boxes", trailing_axes=1), [0]),
        *(ops.Unsqueeze(pad_to_sizes(ctx, values, (total,), name), [0]) for name, values in named_values.items()),
        ops.Cast(count, to="float32"),
    )


def pad_to_sizes(ctx: Context, values: Value, sizes: tuple[int, ...], name: str, trailing_axes: int = 0) -> Value:
    """Return values padded with zeros to ``sizes`` along the first axes.

    ``trailing_axes``: number of further axes, which are unchanged. ``name``: name of the values in the graph.
    """
    ops, trailing_zeros = ctx.ops, [0] * trailing_axes
    shape = named(ops.Shape(values), f"shape_of_{name}")
    count = named(ops.Slice(shape, [0], [len(sizes)]), f"found_{name}")
    missing = named(ops.Sub(np.asarray(sizes), count), f"missing_{name}")
    pads = ops.Concat(
        [0] * (len(sizes) + trailing_axes), missing, *([trailing_zeros] if trailing_zeros else []), axis=0
    )
    return named(ops.Pad(values, named(pads, f"pads_of_{name}")), f"padded_{name}")
