"""NON_MAX_SUPPRESSION: thresholds, empty boxes, order of corners, soft scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import Spec, constant, in_isolation, tensor
from onnx_tflite_plugin.source.model import Array

HARD, SOFT = "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"


def cases() -> Iterator[Case]:
    for op in (HARD, SOFT):
        yield from suppression_cases(op)
    yield from soft_selection_cases()


def overlapping_boxes(number: int, seed: int = 0) -> Array:
    """Return boxes around a few centers, so that many overlap."""
    random = np.random.default_rng(seed)
    centers = random.uniform(0, 3, (7, 2))[random.integers(0, 7, number)] + random.normal(0, 0.2, (number, 2))
    sizes = random.uniform(0.5, 1.5, (number, 2))
    return np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=1).astype(np.float32)


def distinct_scores(number: int, seed: int = 0) -> Array:
    """Return different scores in (0, 1).

    The order of equal scores would depend on the kernel's heap.
    """
    return np.random.default_rng(seed).permutation(np.linspace(0.01, 0.99, number)).astype(np.float32)


def selection_case(
    op: str, name: str, boxes: Array, scores: Array, limit: int, iou: float, min_score: float, sigma: float = 0,
    runtime_operands: tuple[str, ...] = (), **case_fields: Any,
) -> Case:  # fmt: skip
    """Return a selection of at most ``limit`` boxes.

    ``runtime_operands``: names of scalars that are graph inputs.
    """
    scalars = {
        "limit": np.asarray(limit, np.int32),
        "iou": np.asarray(iou, np.float32),
        "least": np.asarray(min_score, np.float32),
        **({"sigma": np.asarray(sigma, np.float32)} if op == SOFT else {}),
    }
    operands = [tensor(*boxes.shape, name="boxes"), tensor(*scores.shape, name="scores")]
    for key, array in scalars.items():
        operands.append(tensor(dtype=array.dtype.name, name=key) if key in runtime_operands else constant(array))
    size = None if "limit" in runtime_operands else limit
    outputs = [Spec((size,), "int32"), *([Spec((size,), "float32")] if op == SOFT else []), Spec((), "int32")]
    arrays = {"boxes": boxes, "scores": scores, **{key: scalars[key] for key in runtime_operands}}
    return in_isolation(op, name, operands, *outputs, input_arrays=arrays, **case_fields)


def suppression_cases(op: str) -> Iterator[Case]:
    boxes, scores = overlapping_boxes(101), distinct_scores(101)
    for limit in (1, 11, 101, 131):
        yield selection_case(op, f"{limit} at most", boxes, scores, limit, 0.5, 0.3)
    for iou in (0.0, 0.1, 0.7, 1.0):
        yield selection_case(op, f"overlaps below {iou}", boxes, scores, 31, iou, 0.0, opsets=EVERY_OPSET)
    yield selection_case(op, "thresholds below 0", boxes, scores, 31, -0.5, -1.0)
    yield selection_case(op, "a score at the threshold", boxes, scores, 31, 0.5, float(np.sort(scores)[50]))
    yield selection_case(op, "no score above the threshold", boxes, scores, 7, 0.5, 2.0)
    swapped_boxes = boxes[:, [2, 1, 0, 3]]
    yield selection_case(op, "swapped corners", swapped_boxes, scores, 31, 0.5, 0.3)
    half_overlaps = np.array([[0, 0, 1, 2], [0, 0, 1, 1], [0, 0, 1, 4], [3, 3, 4, 4]], np.float32)
    half_scores = np.array([0.9, 0.8, 0.7, 0.6], np.float32)
    yield selection_case(op, "an overlap at the threshold", half_overlaps, half_scores, 4, 0.5, 0.0)
    flat_boxes = boxes.copy()
    flat_boxes[np.argsort(-scores)[[2, 5, 7]], 2] = flat_boxes[np.argsort(-scores)[[2, 5, 7]], 0]
    yield selection_case(op, "boxes of zero area", flat_boxes, scores, 31, 0.5, 0.3)
    yield selection_case(op, "box of zero area within the limit", flat_boxes, scores, 2, 0.5, 0.3)
    yield selection_case(op, "boxes of zero area and a threshold of 0", flat_boxes, scores, 31, 0.0, 0.3)
    yield selection_case(op, "threshold above all overlaps", boxes, scores, 11, 1.5, 0.3)
    yield selection_case(op, "one box", boxes[:1], scores[:1], 3, 0.5, 0.0)
    scalar_names = ("limit", "iou", "least", *(("sigma",) if op == SOFT else ()))
    for key in scalar_names:
        yield selection_case(
            op, f"{key} known at runtime", boxes, scores, 31, 0.5, 0.3, runtime_operands=(key,), opsets=EVERY_OPSET
        )
    yield selection_case(op, "all known at runtime", boxes, scores, 31, 0.5, 0.3, runtime_operands=scalar_names)
    yield selection_case(
        op, "boxes of zero area, all known at runtime", flat_boxes, scores, 31, 0.5, 0.3, runtime_operands=scalar_names
    )


def soft_selection_cases() -> Iterator[Case]:
    boxes, scores = overlapping_boxes(101, 1), distinct_scores(101, 1)
    for sigma in (0.1, 0.5, 2.0):
        for iou in (0.4, 1.0):
            name = f"sigma {sigma}, overlaps below {iou}"
            yield selection_case(SOFT, name, boxes, scores, 31, iou, 0.1, sigma, opsets=EVERY_OPSET)
    yield selection_case(SOFT, "sigma that suppresses all scores", boxes, scores, 31, 0.4, 0.1, 1e-30)
    yield selection_case(SOFT, "every box, softened", boxes, scores, 101, 1.0, 0.0, 0.5)
    yield selection_case(SOFT, "softened, threshold above all overlaps", boxes, scores, 11, 1.5, 0.3, 0.5)
    yield selection_case(SOFT, "softened, no score above the threshold", boxes, scores, 7, 0.5, 2.0, 0.5)
    yield selection_case(
        SOFT, "sigma of 0.5 known at runtime", boxes, scores, 31, 0.7, 0.1, 0.5, runtime_operands=("sigma",)
    )
