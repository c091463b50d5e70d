"""Random recurrent operators over three runs, and non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.case import Case
from conformance.cases.custom.detection import detection_case
from conformance.cases.image.detection import crowd, distinct, selection_case
from conformance.cases.sequence.lstm.bidirectional import both
from conformance.cases.sequence.lstm.handlers import five
from conformance.cases.sequence.rnn import ACTIVATIONS, rnn
from conformance.cases.sequence.svdf import run_micro, svdf
from conformance.lstms import Lstm
from conformance.models import net
from tests.qa.random_models.draw import Draw, draws

SMOOTH = tuple(name for name in ACTIVATIONS if name != "SIGN_BIT")
"""Activations that are continuous at 0: rounding may change the sign of a sum."""

PARTS: tuple[dict[str, Any], ...] = ({}, {"peephole": True}, {"outputs": 13}, {"norm": True})


@draws("UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM")
def lstm(draw: Draw, op: str) -> Case:
    if op == "LSTM" and draw.chance(0.2):
        dtype = draw.pick("float32", "uint8")
        return net(op, "random", five(dtype, draw.chance(0.6)), dtype=dtype, given=[{} for _ in range(3)])
    dtype, stored = draw.pick(("float32", "float32"), ("float32", "int8"), ("int8", "int8"), ("int8", "int8"))
    options = [(name, float(draw.random.uniform(0.2, 2))) for name in ("cell_clip", "proj_clip") if draw.chance(0.4)]
    of = Lstm(
        op=op,
        dtype=dtype,
        weights=stored,
        major=draw.chance(0.5),
        coupled=draw.chance(0.3),
        batch=draw.pick(1, 3),
        time=draw.pick(1, 5),
        inputs=draw.pick(1, 7),
        biased=draw.chance(0.8),
        flat=draw.chance(0.2),
        cells_scale=2.0 ** -draw.between(9, 15),
        hidden=(float(draw.random.uniform(0.004, 0.02)), draw.between(-60, 60)),
        seed=str(draw.between(0, 10**6)),
        halved=dtype == "float32" == stored and draw.chance(0.3),
        options=tuple(options),
        **draw.pick(*PARTS),
    )
    return of.case("random", given=[{"x0": draw.numbers(of.x)} for _ in range(3)])


@draws("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional(draw: Draw, op: str) -> Case:
    each: dict[str, Any] = dict(draw.pick({}, {"coupled": True}, {"peephole": True}, {"outputs": 13}, {"flat": True}))
    if draw.chance(0.3):
        each["weights"] = "int8"
    fields: dict[str, Any] = {"each": each, "major": draw.chance(0.5), "merged": draw.chance(0.6)}
    if draw.chance(0.3):
        fields["cell_clip"] = float(draw.random.uniform(0.2, 2))
    fields |= {"batch": draw.pick(1, 3), "time": draw.pick(1, 5)}
    # On int8 what is not bounded carries the rounding on from step to step.
    fields["fused_activation_function"] = "TANH" if "weights" in each else draw.pick("TANH", "RELU", "RELU6")
    return both("random", **fields)


@draws("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN")
def plain(draw: Draw, op: str) -> Case:
    stored = draw.pick("float32", "float32", "int8", "uint8")
    fields: dict[str, Any] = {
        "weights": stored,
        "activation": draw.pick(*(ACTIVATIONS if stored == "float32" else SMOOTH)),
        "major": draw.chance(0.5),
        "batch": draw.pick(1, 3),
        "time": draw.pick(1, 5),
        "asymmetric": draw.chance(0.3),
        "merged": draw.chance(0.5),
        "initial_dtype": draw.pick("", "", "float16"),
    }
    return rnn("random", op=op, **fields)


@draws("SVDF")
def filter_sequence(draw: Draw, op: str) -> Case:
    dtype, stored = draw.pick(("float32", "float32"), ("float32", "int8"), ("float32", "uint8"), ("int8", "int8"))
    fields: dict[str, Any] = {
        "rank": draw.between(1, 3),
        "memory": draw.between(1, 9),
        "batch": draw.pick(1, 3),
        "biased": draw.chance(0.7),
        "activation": "RELU" if dtype == "int8" else draw.pick(*ACTIVATIONS),
        "asymmetric": draw.chance(0.3),
        "output": (float(draw.random.uniform(0.003, 0.05)), draw.between(-128, 127)),
    }
    if dtype == "int8" and draw.chance(0.5):
        kept = (float(draw.random.uniform(0.002, 0.1)), draw.between(-128, 127))
        return svdf("random", {"kernel": run_micro}, dtype=dtype, weights=stored, bytes=True, kept=kept, **fields)
    return svdf("random", dtype=dtype, weights=stored, **fields)


@draws("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def suppress(draw: Draw, op: str) -> Case:
    number, seed = draw.between(1, 40), draw.between(0, 10**6)
    boxes, scores = crowd(number, seed), distinct(number, seed)
    if draw.chance(0.2):
        boxes = boxes[:, [2, 1, 0, 3]]
    names = ("limit", "iou", "least", *(("sigma",) if op.endswith("5") else ()))
    running = tuple(name for name in names if draw.chance(0.3))
    sigma = float(draw.random.uniform(0.1, 1)) if op.endswith("5") and draw.chance(0.6) else 0.0
    iou, least = (float(np.float32(draw.random.uniform(0, 1))) for _ in range(2))
    return selection_case(op, "random", boxes, scores, draw.between(1, 50), iou, least, sigma, running)


@draws("CUSTOM.TFLite_Detection_PostProcess")
def detection(draw: Draw, op: str) -> Case:
    regular = draw.chance(0.5)
    options = {
        "max_detections": draw.between(1, 20),  # what is not filled LiteRT leaves as it was in memory
        "max_classes_per_detection": 1 if regular else draw.between(1, 3),
        "detections_per_class": draw.between(1, 30),
        "use_regular_nms": regular,
        "nms_score_threshold": 0.0,
        "nms_iou_threshold": float(draw.random.uniform(0.9, 1)),
        "num_classes": draw.between(3, 7),
    }
    return detection_case("random", options, background=draw.between(0, 1), quantized=draw.chance(0.4), runs=1)
