"""A single-shot detector with TFLite_Detection_PostProcess.

The detector has two feature maps with box and score heads, and anchors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Net, Spec, constant, net, random_array, tensor

OP = "CUSTOM.TFLite_Detection_PostProcess"
CLASSES = 3
ANCHORS_PER_POSITION = 2  # in a feature map
MAPS = ((7, 5), (4, 3))
ANCHOR_COUNT = sum(height * width for height, width in MAPS) * ANCHORS_PER_POSITION


def cases() -> Iterator[Case]:
    for regular_nms in (True, False):
        for dtype in ("float32", "uint8"):
            yield detector(regular_nms, dtype)


def detector(regular_nms: bool, dtype: str) -> Case:
    """Return a case of a detector that finds the maximum number of boxes.

    With fewer boxes, the kernel would leave the remaining results undefined.

    ``regular_nms``: suppression runs once per class, otherwise once on the best class of each anchor.
    """
    options = {
        "max_detections": 6,
        "max_classes_per_detection": 1,
        "detections_per_class": 5,
        "use_regular_nms": regular_nms,
        "nms_score_threshold": 0.0,
        "nms_iou_threshold": 0.5,
        "num_classes": CLASSES,
        **{f"{name}_scale": 10.0 if name in "yx" else 5.0 for name in "yxhw"},
    }

    def build(model: Net) -> None:
        x = model.input(tensor(1, 14, 10, 3, dtype=dtype, name="image"))
        encodings, scores = [], []
        for height, width in MAPS:
            x = conv(model, x, tensor(1, height, width, 8, dtype=dtype), stride=2)
            encodings.append(head(model, x, height * width, 4, dtype))
            scores.append(head(model, x, height * width, CLASSES + 1, dtype))
        boxes = model.call("CONCATENATION", encodings, tensor(1, ANCHOR_COUNT, 4, dtype=dtype), axis=1)
        logits = model.call("CONCATENATION", scores, tensor(1, ANCHOR_COUNT, CLASSES + 1, dtype=dtype), axis=1)
        probability_spec = Spec((1, ANCHOR_COUNT, CLASSES + 1), dtype, *((1 / 256, 0) if dtype == "uint8" else ()))
        probabilities = model.call("LOGISTIC", [logits], probability_spec)
        results = [Spec(shape) for shape in ((1, 6, 4), (1, 6), (1, 6), (1,))]
        model.output(
            *model.call_multi_output(OP, [boxes, probabilities, anchors(dtype)], *results, custom_options=options)
        )

    name = f"single-shot detector, {'regular' if regular_nms else 'fast'} NMS, {dtype}"
    return net(OP, name, build, dtype=dtype, nodes=["NonMaxSuppression", "Conv"])


def conv(model: Net, x: Any, y: Spec, stride: int) -> Any:
    """Add a convolution with result ``y``: 3 x 3 if it has a stride, otherwise 1 x 1."""
    channels, features = model.spec(x).shape[-1] or 1, y.shape[-1] or 1
    size = (features, 3, 3, channels) if stride > 1 else (features, 1, 1, channels)
    if y.dtype == "uint8":
        weights = constant(random_array(*size, dtype="uint8"), "uint8", 0.01, 127)
        bias = constant(random_array(features, dtype="int32"), "int32", 0.01 * INPUT_SCALE)
    else:
        weights, bias = constant(random_array(*size) / 3), constant(random_array(features))
    return model.call("CONV_2D", [x, weights, bias], y, padding="SAME", stride_h=stride, stride_w=stride)


INPUT_SCALE = 0.047  # default scale of ``tensor(dtype="uint8")``


def head(model: Net, x: Any, positions: int, width: int, dtype: str) -> Any:
    """Add a convolution over a feature map, reshaped to one row per anchor.

    The result has the shape ``[1, positions * ANCHORS_PER_POSITION, width]``.
    """
    *sizes, _ = model.spec(x).shape
    y = conv(model, x, tensor(*sizes, ANCHORS_PER_POSITION * width, dtype=dtype), stride=1)
    shape = (1, positions * ANCHORS_PER_POSITION, width)
    return model.call(
        "RESHAPE", [y, constant(np.asarray(shape, np.int32))], tensor(*shape, dtype=dtype), new_shape=shape
    )


def anchors(dtype: str) -> Spec:
    """Return two anchors per position as y, x, height, width.

    All are fractions of the image size.
    """
    rows = []
    for height, width in MAPS:
        for row, column, k in np.ndindex(height, width, ANCHORS_PER_POSITION):
            rows.append([(row + 0.5) / height, (column + 0.5) / width, *((0.2, 0.3) if k else (0.5, 0.4))])
    table = np.asarray(rows, np.float32)
    return constant(table) if dtype == "float32" else constant(np.round(table / 0.005).astype(np.uint8), None, 0.005, 0)
