"""Planted bugs in recurrent operators: gates, clipping, states, rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import ActivationKernel, FusedActivation
from tests.qa.mutations.planting import Mutation, leave_out, with_attributes

SEQUENCE, STEP = "UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM"


def always_then_branch(emit: Any, *operands: Any, **attributes: Any) -> Any:
    """Treat the condition as true."""
    return emit(operands[0], **{**attributes, "else_branch": attributes["then_branch"]})


def ignore_state_zero_point(emit: Any, numbers: Any, point: Any) -> Any:
    """Ignore the zero point of the state, but not that of the inputs."""
    return numbers if isinstance(point, np.int64) else emit(numbers, point)


def skip_int8_clip(emit: Any, numbers: Any, low: Any, high: Any) -> Any:
    return numbers if low == -128 else emit(numbers, low, high)


MUTATIONS = (
    *(
        Mutation(
            "integer cells use the option's activation",
            op,
            (f"{op}-int8_with_RELU,_converted_without_quantization",),
            fields={"activation": FusedActivation(ActivationKernel.CELLS, in_lowering=True)},
        )
        for op in (SEQUENCE, STEP)
    ),
    Mutation(
        "an activation that the integer kernel refuses",
        "SVDF",
        ("SVDF-int8_with_TANH",),
        fields={"activation": FusedActivation(ActivationKernel.ELEMENTWISE, in_lowering=True)},
    ),
    Mutation(
        "the zero point of an 8-bit state is ignored",
        "SVDF",
        ("SVDF-int8,_8-bit_state",),
        emits={"Sub": ignore_state_zero_point},
    ),
    Mutation(
        "an 8-bit state is not clipped",
        "SVDF",
        ("SVDF-int8,_saturated_state,_8-bit_state",),
        emits={"Clip": skip_int8_clip},
    ),
    Mutation(
        "cells are not clipped in each step",
        SEQUENCE,
        (
            f"{SEQUENCE}-float32_with_float32_weights,_cells_clipped_at_6.5_and_at_the_limit",
            f"{SEQUENCE}-float32_with_float32_weights,_cells_clipped_at_6.5_and_at_the_limit,_3_time_steps_per_run",
        ),
        emits={"If": always_then_branch},
    ),
    Mutation(
        "the coupled input gate equals the forget gate",
        STEP,
        (f"{STEP}-float32_without_an_input_gate", f"{STEP}-int8_without_an_input_gate"),
        emits={"Sub": lambda emit, one, forget, *rest: forget if isinstance(one, float) else emit(one, forget)},
    ),
    Mutation(
        "intermediate values are not rounded",
        SEQUENCE,
        (f"{SEQUENCE}-int8_with_constant_cell_states",),
        emits={"Round": leave_out},
    ),
    Mutation(
        "the state drops the second newest run instead of the oldest",
        "SVDF",
        ("SVDF-float32,_50_runs", "SVDF-int8_with_int8_weights,_rank_1"),
        emits={"Slice": lambda emit, x, first, last, axes: emit(x, [0], [last[0] - 1], axes)},
    ),
    Mutation(
        "an integer state is not saturated",
        "SVDF",
        ("SVDF-int8_with_a_saturated_state",),
        emits={"Clip": leave_out},
    ),
    Mutation(
        "both directions run forwards",
        "BIDIRECTIONAL_SEQUENCE_RNN",
        ("BIDIRECTIONAL_SEQUENCE_RNN-float32_with_TANH,_different_sizes",),
        emits={"RNN": with_attributes(direction="forward")},
    ),
    Mutation(
        "only the forward direction is computed",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        ("BIDIRECTIONAL_SEQUENCE_LSTM-float32_plain,_different_backward_input",),
        emits={"LSTM": lambda emit, x, *rest, **more: emit(x, *rest, **{**more, "direction": None})},
    ),
)
