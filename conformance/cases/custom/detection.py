"""TFLite_Detection_PostProcess: suppressed by class and by the best class, with and without background, quantized.

The kernel leaves what it does not fill as it was: cases that compare with it fill every place, or count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, net, tensor

OP = "CUSTOM.TFLite_Detection_PostProcess"
DEFAULTS: Mapping[str, Any] = {
    "max_detections": 11,
    "max_classes_per_detection": 1,
    "detections_per_class": 7,
    "use_regular_nms": False,
    "nms_score_threshold": 0.1,
    "nms_iou_threshold": 0.6,
    "num_classes": 5,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}
ANCHORS = 53


def cases() -> Iterator[Case]:
    for regular in (True, False):
        text = "by class" if regular else "by best class"
        given = {"use_regular_nms": regular}
        yield detection_case(text, given, opsets=EVERY_OPSET)
        yield detection_case(f"{text}, without background", given, background=0)
        yield detection_case(f"{text}, uint8", given, quantized=True, dtype="uint8")
        yield detection_case(
            f"{text}, different scales", {**given, "y_scale": 3.0, "x_scale": 7.0, "h_scale": 2.0, "w_scale": 4.0}
        )
        yield detection_case(f"{text}, every score", {**given, "nms_score_threshold": 0.0})
        yield detection_case(f"{text}, overlaps of 1", {**given, "nms_iou_threshold": 1.0})
        yield detection_case(f"{text}, longer encodings", given, length=6)
        yield detection_case(f"{text}, default options", given, without=("detections_per_class",))
        yield detection_case(
            f"{text}, an overlap of 0", {**given, "nms_iou_threshold": 0.0}, refusal="the kernel requires a value in"
        )
    many = {"max_classes_per_detection": 2**29, "max_detections": 5}
    yield detection_case("too many detections", many, refusal="can count in 32 bits")
    many = {"detections_per_class": 2**32 + 1}
    yield detection_case("too many detections per class", many, refusal="can count in 32 bits")
    yield detection_case(
        "classes as complex numbers", {}, classes_dtype="complex64", refusal="the kernel writes float32"
    )
    yield detection_case("by best class, default option", {}, without=("use_regular_nms", "detections_per_class"))
    yield detection_case("by best class, three classes each", {"max_classes_per_detection": 3})
    yield detection_case(
        "by class, one of each", {"use_regular_nms": True, "detections_per_class": 1, "max_detections": 5}
    )
    yield detection_case("by class, many of each", {"use_regular_nms": True, "detections_per_class": 100})


def detection_case(
    name: str, options: Mapping[str, Any], *, background: int = 1, quantized: bool = False, length: int = 4,
    without: tuple[str, ...] = (), classes_dtype: str = "float32", **case: Any,
) -> Case:  # fmt: skip
    attributes = {key: value for key, value in {**DEFAULTS, **options}.items() if key not in without}
    classes = attributes["num_classes"] + background
    random = np.random.default_rng(5)
    encodings = random.normal(0, 1.5, (1, ANCHORS, length)).astype(np.float32)
    scores = random.permutation(np.linspace(0, 1, ANCHORS * classes)).reshape(1, ANCHORS, classes).astype(np.float32)
    anchors = np.concatenate([random.uniform(0, 1, (ANCHORS, 2)), random.uniform(0.2, 0.6, (ANCHORS, 2))], axis=1)
    given: dict[str, Any] = {"boxes": encodings, "scores": scores}
    dtype = "uint8" if quantized else "float32"
    if quantized:
        given = {"boxes": np.clip(encodings / 0.05 + 127, 0, 255).astype(np.uint8)}
        given["scores"] = random.permutation(ANCHORS * classes).reshape(1, ANCHORS, classes).astype(np.uint8)

    def build(model: Net) -> None:
        boxes = tensor(1, ANCHORS, length, dtype=dtype, scale=0.05, zero_point=127, name="boxes")
        by_class = tensor(1, ANCHORS, classes, dtype=dtype, scale=1 / 256, zero_point=0, name="scores")
        if quantized:
            table = constant((anchors / 0.005).astype(np.uint8), None, 0.005, 0)
        else:
            boxes, by_class = (Spec(spec.shape, name=spec.name) for spec in (boxes, by_class))
            table = constant(anchors.astype(np.float32))
        total = min(attributes["max_detections"] * attributes["max_classes_per_detection"], 2**31 - 1)
        shapes = {"boxes": (1, total, 4), "classes": (1, total), "scores": (1, total), "count": (1,)}
        outputs = [
            model.result(Spec(shape, classes_dtype if name == "classes" else "float32"))
            for name, shape in shapes.items()
        ]
        model.graph.operator(
            OP, [model.add_operand(spec) for spec in (boxes, by_class, table)], outputs, custom_options=attributes
        )
        model.output(*outputs)

    return net(OP, name, build, **{"input_arrays": given, **case})
