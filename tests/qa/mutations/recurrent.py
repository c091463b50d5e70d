"""Planted bugs in recurrent operators: order of gates, clipping, states, rounding of the integer kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import ActivationKernel, FusedActivation
from tests.qa.mutations.planting import Mutation, leave_out, with_attributes

SEQUENCE, STEP = "UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM"


def first_of_two(true: Any, *operands: Any, **attributes: Any) -> Any:
    """Treat the condition as true."""
    return true(operands[0], **{**attributes, "else_branch": attributes["then_branch"]})


def from_zero(true: Any, numbers: Any, point: Any) -> Any:
    """Ignore the zero point of the state, but not that of the inputs."""
    return numbers if isinstance(point, np.int64) else true(numbers, point)


def skip_int8_clip(true: Any, numbers: Any, least: Any, most: Any) -> Any:
    return numbers if least == -128 else true(numbers, least, most)


MUTATIONS = (
    *(
        Mutation(
            "cells of integers have the option's activation",
            op,
            (f"{op}-int8_with_RELU,_converted_without_quantization",),
            fields={"activation": FusedActivation(ActivationKernel.CELLS, inside=True)},
        )
        for op in (SEQUENCE, STEP)
    ),
    Mutation(
        "an activation that the integer kernel refuses",
        "SVDF",
        ("SVDF-int8_with_TANH",),
        fields={"activation": FusedActivation(ActivationKernel.ELEMENTWISE, inside=True)},
    ),
    Mutation(
        "a state of 8 bits that counts from 0",
        "SVDF",
        ("SVDF-int8,_8-bit_state",),
        emits={"Sub": from_zero},
    ),
    Mutation(
        "a state of 8 bits without bounds",
        "SVDF",
        ("SVDF-int8,_saturated_state,_8-bit_state",),
        emits={"Clip": skip_int8_clip},
    ),
    Mutation(
        "cells that are bounded later on only",
        SEQUENCE,
        (
            f"{SEQUENCE}-float32_with_float32_weights,_cells_clipped_at_6.5_with_cells_at_the_limit",
            f"{SEQUENCE}-float32_with_float32_weights,_cells_clipped_at_6.5_with_cells_at_the_limit_in_steps_of_3",
        ),
        emits={"If": first_of_two},
    ),
    Mutation(
        "a gate of its own where there is none",
        STEP,
        (f"{STEP}-float32_without_an_input_gate", f"{STEP}-int8_without_an_input_gate"),
        emits={"Sub": lambda true, one, forget, *rest: forget if isinstance(one, float) else true(one, forget)},
    ),
    Mutation(
        "nothing is rounded on the way",
        SEQUENCE,
        (f"{SEQUENCE}-int8_with_constant_cell_states",),
        emits={"Round": leave_out},
    ),
    Mutation(
        "the oldest run is kept and the newest but one forgotten",
        "SVDF",
        ("SVDF-float32,_50_runs", "SVDF-int8_on_int8_of_rank_1"),
        emits={"Slice": lambda true, x, first, last, axes: true(x, [0], [last[0] - 1], axes)},
    ),
    Mutation(
        "integers without the rounding of the state",
        "SVDF",
        ("SVDF-int8_with_a_saturated_state",),
        emits={"Clip": leave_out},
    ),
    Mutation(
        "both directions forwards",
        "BIDIRECTIONAL_SEQUENCE_RNN",
        ("BIDIRECTIONAL_SEQUENCE_RNN-float32_with_TANH,_different_sizes",),
        emits={"RNN": with_attributes(direction="forward")},
    ),
    Mutation(
        "the auxiliary input without its weights",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        ("BIDIRECTIONAL_SEQUENCE_LSTM-float32_plain,_different_backward_input",),
        emits={"LSTM": lambda true, x, *rest, **more: true(x, *rest, **{**more, "direction": None})},
    ),
)
