"""Cases for ``tensorflow_cases``: boxes, scattering, segments and bounds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tools.tensorflow_operands import RANDOM, Array, Constant, Row, numbers, positive, real, scalar


def random_boxes(*shape: int) -> Array:
    """Return overlapping boxes ``[*shape, 4]`` with corners in any order.

    Some are partly outside the image.
    """
    corners = RANDOM.integers(-2, 19, (*shape, 4)) / 16
    return corners.astype(np.float32)


def random_scores(*shape: int) -> Array:
    """Return different scores between 0 and 1."""
    count = int(np.prod(shape))
    return np.asarray((RANDOM.permutation(count) + 0.5) / count, np.float32).reshape(shape)


def detection() -> Iterator[Row]:
    boxes, scores, overlap = random_boxes(29), random_scores(29), scalar(0.45, "float32")
    boxes[7], boxes[11] = boxes[3], [0.5, 0.5, 0.5, 0.75]  # equal boxes, and one without area
    yield Row("NonMaxSuppression", "default", [boxes, scores, scalar(5)])
    yield Row("NonMaxSuppression", "overlap 0.25", [boxes, scores, scalar(29)], {"iou_threshold": 0.25})
    for value in (0.0, 0.45, 1.0):
        yield Row("NonMaxSuppressionV2", f"overlap {value}", [boxes, scores, scalar(29), scalar(value, "float32")])
    for limit in (0, 3, 29, 31):
        yield Row(
            "NonMaxSuppressionV3", f"limit {limit}", [boxes, scores, scalar(limit), overlap, scalar(0.3, "float32")]
        )
    runtime: list[Array] = [np.asarray(7, np.int32), np.asarray(0.3, np.float32), np.asarray(0.2, np.float32)]
    yield Row("NonMaxSuppressionV3", "runtime parameters", [boxes, scores, *runtime])
    for padded in (False, True):
        name, attributes = "padded" if padded else "not padded", {"pad_to_max_output_size": padded}
        operands: list[Array | Constant] = [boxes, scores, scalar(23), overlap, scalar(0.5, "float32")]
        yield Row("NonMaxSuppressionV4", name, operands, attributes)
        yield Row("NonMaxSuppressionV5", name, [*operands, scalar(0, "float32")], attributes)


def combined_detection() -> Iterator[Row]:
    for classes, name in ((1, "one box for all classes"), (3, "a box per class")):
        boxes, scores = random_boxes(2, 23, classes), random_scores(2, 23, 3)
        for per_class, total, attributes in (
            (7, 11, {}),
            (2, 100, {}),
            (2, 100, {"pad_per_class": True}),
            (5, 7, {"pad_per_class": True, "clip_boxes": False}),
        ):
            parameters = [scalar(per_class), scalar(total), scalar(0.4, "float32"), scalar(0.6, "float32")]
            text = ", ".join([f"{name}, {per_class} per class, {total} in total", *attributes])
            yield Row("CombinedNonMaxSuppression", text, [boxes, scores, *parameters], attributes)
    none = [scalar(3), scalar(5), scalar(0.4, "float32"), scalar(1.5, "float32")]
    yield Row("CombinedNonMaxSuppression", "no box found", [random_boxes(2, 5, 1), random_scores(2, 5, 3), *none])


def scattering() -> Iterator[Row]:
    for op in ("TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate"):
        indices = numbers([4, 6], [0, 0], [2, 3]) if op.endswith("Update") else numbers([4, 6], [0, 0], [4, 6], [2, 3])
        for dtype in ("float32", "int32", "int64"):
            yield Row(op, dtype, [real(5, 7, 3, dtype=dtype), indices, real(len(indices), 3, dtype=dtype)])
        yield Row(op, "int64 indices", [real(5, 3), numbers([4], [0], dtype="int64"), real(2, 3)])
    for dtype in ("float32", "int32"):
        updates = real(4, 3, dtype=dtype)
        for index_dtype in ("int32", "int64"):
            indices = numbers([4, 6], [0, 0], [4, 6], [2, 3], dtype=index_dtype)
            shape = Constant(numbers(5, 7, 3, dtype=index_dtype))
            yield Row("ScatterNd", f"{dtype}, {index_dtype}", [indices, updates, shape])
        x, ids = real(11, 3, dtype=dtype), numbers(4, 0, 2, 4, 2, -1, 0, 6, 4, 0, 2)
        for op in ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin"):
            yield Row(op, dtype, [x, ids, scalar(7)])
        yield Row("UnsortedSegmentProd", dtype, [real(11, 3, dtype=dtype, low=1, high=3), ids, scalar(7)])
        yield Row("SegmentSum", dtype, [x, numbers(0, 0, 1, 2, 2, 2, 3, 3, 4, 4, 4)])
        matrix_ids = numbers([4, 0, 2], [2, 4, 0])
        yield Row("UnsortedSegmentSum", f"{dtype}, matrix of ids", [real(2, 3, 5, dtype=dtype), matrix_ids, scalar(5)])
    yield Row("UnsortedSegmentSum", "int64 ids", [real(3, 5), numbers(1, 0, 1, dtype="int64"), scalar(2)])


def bounds() -> Iterator[Row]:
    for dtype in ("float32", "int32", "int64"):
        x, low, high = real(3, 5, 7, dtype=dtype), scalar(-2, dtype), scalar(3, dtype)
        yield Row("ClipByValue", dtype, [x, low, high])
        yield Row("TopKV2", dtype, [RANDOM.permutation(105).reshape(3, 5, 7).astype(dtype), scalar(3)])
    yield Row("ClipByValue", "bounds per element", [real(5, 7), -positive(5, 7), positive(5, 7)])
    yield Row("ClipByValue", "crossed bounds", [real(5, 7), scalar(3, "float32"), scalar(-2, "float32")])
    yield Row(
        "TopKV2", "int64 indices, runtime k", [random_scores(3, 7), np.asarray(5, np.int32)], {"index_type": "int64"}
    )
    yield Row("TopKV2", "equal elements", [numbers([3, 7, 3, 7, 1], [5, 5, 5, 5, 5]), scalar(4)])
    yield Row("EnsureShape", "float32", [real(3, 5, 7)], {"shape": [3, 5, 7]})
