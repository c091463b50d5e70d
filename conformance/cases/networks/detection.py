"""A single-shot detector: two feature maps, heads for boxes and scores, anchors, TFLite_Detection_PostProcess."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Net, Spec, constant, net, random_array, tensor

OP = "CUSTOM.TFLite_Detection_PostProcess"
CLASSES, ANCHORS = 3, 2  # per position of a feature map
MAPS = ((7, 5), (4, 3))
PLACES = sum(height * width for height, width in MAPS) * ANCHORS


def cases() -> Iterator[Case]:
    for regular in (True, False):
        for dtype in ("float32", "uint8"):
            yield detector(regular, dtype)


def detector(regular: bool, dtype: str) -> Case:
    """Return a detector that fills every result, because the kernel does not initialize the others."""
    options = {
        "max_detections": 6,
        "max_classes_per_detection": 1,
        "detections_per_class": 5,
        "use_regular_nms": regular,
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
        boxes = model.call("CONCATENATION", encodings, spec(1, PLACES, 4, dtype=dtype), axis=1)
        logits = model.call("CONCATENATION", scores, spec(1, PLACES, CLASSES + 1, dtype=dtype), axis=1)
        probable = Spec((1, PLACES, CLASSES + 1), dtype, *((1 / 256, 0) if dtype == "uint8" else ()))
        probabilities = model.call("LOGISTIC", [logits], probable)
        results = [Spec(shape) for shape in ((1, 6, 4), (1, 6), (1, 6), (1,))]
        model.output(
            *model.call_multi_output(OP, [boxes, probabilities, anchors(dtype)], *results, custom_options=options)
        )

    name = f"a detector, {'by class' if regular else 'by best class'}, {dtype}"
    return net(OP, name, build, dtype=dtype, nodes=["NonMaxSuppression", "Conv"])


def spec(*shape: int, dtype: str) -> Spec:
    return tensor(*shape, dtype=dtype)


def conv(model: Net, x: Any, y: Spec, stride: int) -> Any:
    channels, out = model.spec(x).shape[-1] or 1, y.shape[-1] or 1
    size = (out, 3, 3, channels) if stride > 1 else (out, 1, 1, channels)
    if y.dtype == "uint8":
        weights = constant(random_array(*size, dtype="uint8"), "uint8", 0.01, 127)
        bias = constant(random_array(out, dtype="int32"), "int32", 0.01 * QUANTUM)
    else:
        weights, bias = constant(random_array(*size) / 3), constant(random_array(out))
    return model.call("CONV_2D", [x, weights, bias], y, padding="SAME", stride_h=stride, stride_w=stride)


QUANTUM = 0.047  # the scale of ``tensor(dtype="uint8")``


def head(model: Net, x: Any, places: int, width: int, dtype: str) -> Any:
    """Add a convolution over a feature map; return it as ``[1, places * ANCHORS, width]``."""
    *sizes, _ = model.spec(x).shape
    y = conv(model, x, tensor(*sizes, ANCHORS * width, dtype=dtype), stride=1)
    after = (1, places * ANCHORS, width)
    return model.call("RESHAPE", [y, constant(np.asarray(after, np.int32))], spec(*after, dtype=dtype), new_shape=after)


def anchors(dtype: str) -> Spec:
    """Return anchors on a grid over the image, a fifth and a half of its size: y, x, height, width."""
    rows = []
    for height, width in MAPS:
        for row, column, k in np.ndindex(height, width, ANCHORS):
            rows.append([(row + 0.5) / height, (column + 0.5) / width, *((0.2, 0.3) if k else (0.5, 0.4))])
    table = np.asarray(rows, np.float32)
    return constant(table) if dtype == "float32" else constant(np.round(table / 0.005).astype(np.uint8), None, 0.005, 0)
