"""Random recurrent operators over three runs, and non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.case import Case
from conformance.cases.custom.detection import detection_case
from conformance.cases.image.detection import distinct_scores, overlapping_boxes, selection_case
from conformance.cases.sequence.lstm.bidirectional import bidirectional_case
from conformance.cases.sequence.lstm.handlers import five_operand_lstm
from conformance.cases.sequence.rnn import ACTIVATIONS, rnn
from conformance.cases.sequence.svdf import run_micro, svdf
from conformance.lstms import Lstm
from conformance.models import net
from tests.qa.random_models.draw import Draw, case_generator

SMOOTH = tuple(name for name in ACTIVATIONS if name != "SIGN_BIT")
"""Activations that are continuous at 0. Others are excluded, because rounding may change the sign of a sum."""

VARIANTS: tuple[dict[str, Any], ...] = ({}, {"peephole": True}, {"projection_size": 13}, {"layer_norm": True})


@case_generator("UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM")
def lstm(draw: Draw, op: str) -> Case:
    if op == "LSTM" and draw.chance(0.2):
        dtype = draw.pick("float32", "uint8")
        return net(
            op, "random", five_operand_lstm(dtype, draw.chance(0.6)), dtype=dtype, input_arrays=[{} for _ in range(3)]
        )
    dtype, weights = draw.pick(("float32", "float32"), ("float32", "int8"), ("int8", "int8"), ("int8", "int8"))
    options = [(name, float(draw.random.uniform(0.2, 2))) for name in ("cell_clip", "proj_clip") if draw.chance(0.4)]
    layer = Lstm(
        op=op,
        dtype=dtype,
        weights=weights,
        time_major=draw.chance(0.5),
        coupled=draw.chance(0.3),
        batch=draw.pick(1, 3),
        time=draw.pick(1, 5),
        inputs=draw.pick(1, 7),
        projection_bias=draw.chance(0.8),
        flat_states=draw.chance(0.2),
        cells_scale=2.0 ** -draw.between(9, 15),
        hidden_quantization=(float(draw.random.uniform(0.004, 0.02)), draw.between(-60, 60)),
        seed=str(draw.between(0, 10**6)),
        float16_constants=dtype == "float32" == weights and draw.chance(0.3),
        options=tuple(options),
        **draw.pick(*VARIANTS),
    )
    return layer.case("random", input_arrays=[{"x0": draw.random_array(layer.x)} for _ in range(3)])


@case_generator("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional(draw: Draw, op: str) -> Case:
    direction: dict[str, Any] = dict(
        draw.pick({}, {"coupled": True}, {"peephole": True}, {"projection_size": 13}, {"flat_states": True})
    )
    if draw.chance(0.3):
        direction["weights"] = "int8"
    fields: dict[str, Any] = {
        "lstm_fields": direction,
        "time_major": draw.chance(0.5),
        "merge_outputs": draw.chance(0.6),
    }
    if draw.chance(0.3):
        fields["cell_clip"] = float(draw.random.uniform(0.2, 2))
    fields |= {"batch": draw.pick(1, 3), "time": draw.pick(1, 5)}
    # With int8 weights and an unbounded activation, rounding errors accumulate from step to step.
    fields["fused_activation_function"] = "TANH" if "weights" in direction else draw.pick("TANH", "RELU", "RELU6")
    return bidirectional_case("random", **fields)


@case_generator("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN")
def vanilla_rnn(draw: Draw, op: str) -> Case:
    weights = draw.pick("float32", "float32", "int8", "uint8")
    fields: dict[str, Any] = {
        "weights": weights,
        "activation": draw.pick(*(ACTIVATIONS if weights == "float32" else SMOOTH)),
        "time_major": draw.chance(0.5),
        "batch": draw.pick(1, 3),
        "time": draw.pick(1, 5),
        "asymmetric": draw.chance(0.3),
        "merge_outputs": draw.chance(0.5),
        "initial_dtype": draw.pick("", "", "float16"),
    }
    return rnn("random", op=op, **fields)


@case_generator("SVDF")
def random_svdf(draw: Draw, op: str) -> Case:
    dtype, weights = draw.pick(("float32", "float32"), ("float32", "int8"), ("float32", "uint8"), ("int8", "int8"))
    fields: dict[str, Any] = {
        "rank": draw.between(1, 3),
        "memory": draw.between(1, 9),
        "batch": draw.pick(1, 3),
        "biased": draw.chance(0.7),
        "activation": "RELU" if dtype == "int8" else draw.pick(*ACTIVATIONS),
        "asymmetric": draw.chance(0.3),
        "output_quantization": (float(draw.random.uniform(0.003, 0.05)), draw.between(-128, 127)),
    }
    if dtype == "int8" and draw.chance(0.5):
        state_parameters = (float(draw.random.uniform(0.002, 0.1)), draw.between(-128, 127))
        return svdf(
            "random",
            {"kernel": run_micro},
            dtype=dtype,
            weights=weights,
            int8_state=True,
            int8_state_quantization=state_parameters,
            **fields,
        )
    return svdf("random", dtype=dtype, weights=weights, **fields)


@case_generator("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(draw: Draw, op: str) -> Case:
    count, seed = draw.between(1, 40), draw.between(0, 10**6)
    boxes, scores = overlapping_boxes(count, seed), distinct_scores(count, seed)
    if draw.chance(0.2):
        boxes = boxes[:, [2, 1, 0, 3]]
    names = ("limit", "iou", "least", *(("sigma",) if op.endswith("5") else ()))
    runtime_operands = tuple(name for name in names if draw.chance(0.3))
    sigma = float(draw.random.uniform(0.1, 1)) if op.endswith("5") and draw.chance(0.6) else 0.0
    iou, min_score = (float(np.float32(draw.random.uniform(0, 1))) for _ in range(2))
    return selection_case(op, "random", boxes, scores, draw.between(1, 50), iou, min_score, sigma, runtime_operands)


@case_generator("CUSTOM.TFLite_Detection_PostProcess")
def detection(draw: Draw, op: str) -> Case:
    regular = draw.chance(0.5)
    options = {
        "max_detections": draw.between(1, 20),  # LiteRT leaves unused detections uninitialized
        "max_classes_per_detection": 1 if regular else draw.between(1, 3),
        "detections_per_class": draw.between(1, 30),
        "use_regular_nms": regular,
        "nms_score_threshold": 0.0,
        "nms_iou_threshold": float(draw.random.uniform(0.9, 1)),
        "num_classes": draw.between(3, 7),
    }
    return detection_case("random", options, background=draw.between(0, 1), quantized=draw.chance(0.4), runs=1)
