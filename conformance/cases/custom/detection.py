"""TFLite_Detection_PostProcess: suppression by class and by best class.

The kernel does not write outputs beyond the detections it finds. Cases that are compared with the kernel fill every
output, or use ``count``.
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
        method = "by class" if regular else "by best class"
        method_options = {"use_regular_nms": regular}
        yield detection_case(method, method_options, opsets=EVERY_OPSET)
        yield detection_case(f"{method}, without background", method_options, background=0)
        yield detection_case(f"{method}, uint8", method_options, quantized=True, dtype="uint8")
        yield detection_case(
            f"{method}, different scales",
            {**method_options, "y_scale": 3.0, "x_scale": 7.0, "h_scale": 2.0, "w_scale": 4.0},
        )
        yield detection_case(f"{method}, every score", {**method_options, "nms_score_threshold": 0.0})
        yield detection_case(f"{method}, overlaps of 1", {**method_options, "nms_iou_threshold": 1.0})
        yield detection_case(f"{method}, longer encodings", method_options, encoding_size=6)
        yield detection_case(f"{method}, default options", method_options, without=("detections_per_class",))
        yield detection_case(
            f"{method}, an overlap of 0",
            {**method_options, "nms_iou_threshold": 0.0},
            refusal="the kernel requires a value in",
        )
    excess_options = {"max_classes_per_detection": 2**29, "max_detections": 5}
    yield detection_case("too many detections", excess_options, refusal="can count in 32 bits")
    excess_options = {"detections_per_class": 2**32 + 1}
    yield detection_case("too many detections per class", excess_options, refusal="can count in 32 bits")
    yield detection_case("complex64 classes", {}, classes_dtype="complex64", refusal="the kernel writes float32")
    yield detection_case("by best class, default option", {}, without=("use_regular_nms", "detections_per_class"))
    yield detection_case("by best class, three classes per box", {"max_classes_per_detection": 3})
    yield detection_case(
        "by class, one detection per class", {"use_regular_nms": True, "detections_per_class": 1, "max_detections": 5}
    )
    yield detection_case("by class, many detections per class", {"use_regular_nms": True, "detections_per_class": 100})


def detection_case(
    name: str, options: Mapping[str, Any], *, background: int = 1, quantized: bool = False, encoding_size: int = 4,
    without: tuple[str, ...] = (), classes_dtype: str = "float32", **case_fields: Any,
) -> Case:  # fmt: skip
    attributes = {key: value for key, value in {**DEFAULTS, **options}.items() if key not in without}
    classes = attributes["num_classes"] + background
    random = np.random.default_rng(5)
    encodings = random.normal(0, 1.5, (1, ANCHORS, encoding_size)).astype(np.float32)
    scores = random.permutation(np.linspace(0, 1, ANCHORS * classes)).reshape(1, ANCHORS, classes).astype(np.float32)
    anchors = np.concatenate([random.uniform(0, 1, (ANCHORS, 2)), random.uniform(0.2, 0.6, (ANCHORS, 2))], axis=1)
    input_arrays: dict[str, Any] = {"boxes": encodings, "scores": scores}
    dtype = "uint8" if quantized else "float32"
    if quantized:
        input_arrays = {"boxes": np.clip(encodings / 0.05 + 127, 0, 255).astype(np.uint8)}
        input_arrays["scores"] = random.permutation(ANCHORS * classes).reshape(1, ANCHORS, classes).astype(np.uint8)

    def build(model: Net) -> None:
        boxes = tensor(1, ANCHORS, encoding_size, dtype=dtype, scale=0.05, zero_point=127, name="boxes")
        class_scores = tensor(1, ANCHORS, classes, dtype=dtype, scale=1 / 256, zero_point=0, name="scores")
        if quantized:
            table = constant((anchors / 0.005).astype(np.uint8), None, 0.005, 0)
        else:
            boxes, class_scores = (Spec(spec.shape, name=spec.name) for spec in (boxes, class_scores))
            table = constant(anchors.astype(np.float32))
        total = min(attributes["max_detections"] * attributes["max_classes_per_detection"], 2**31 - 1)
        shapes = {"boxes": (1, total, 4), "classes": (1, total), "scores": (1, total), "count": (1,)}
        outputs = [
            model.result(Spec(shape, classes_dtype if name == "classes" else "float32"))
            for name, shape in shapes.items()
        ]
        model.graph.operator(
            OP, [model.add_operand(spec) for spec in (boxes, class_scores, table)], outputs, custom_options=attributes
        )
        model.output(*outputs)

    return net(OP, name, build, **{"input_arrays": input_arrays, **case_fields})
