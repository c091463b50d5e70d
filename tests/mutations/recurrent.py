"""Recurrent operators: the order of gates, what is bounded, what is carried, what the integer kernel rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import ActivationKernel, FusedActivation
from op_handlers.sequence.lstm import cell

from .planting import Mutation, left_out, returning, with_attributes

CELL, WHOLE = "op_handlers.sequence.lstm.cell:Cell", "op_handlers.sequence.lstm.integers:IntegerCell"
INTEGERS = "op_handlers.sequence.lstm.integers"
BOTH = "op_handlers.sequence.lstm.bidirectional"
SEQUENCE, STEP = "UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM"


def as_tflite_orders_them(_original: Any) -> Any:
    return lambda op: [gate for gate in (cell.INPUT, cell.FORGET, cell.UPDATE, cell.OUTPUT) if op.tensor(gate.weights)]


def adding(_original: Any) -> Any:
    """Sums without the number that keeps them in bounds."""
    return lambda self, cells, forget, take, update: self.ops.Add(
        self.ops.Mul(forget, cells), self.ops.Mul(take, update)
    )


def without_room(_original: Any) -> Any:
    """Tables that begin anew where 16 bits end."""
    return lambda self, table: self.ops.Pad(table, [self.margin, self.margin], mode="wrap") if self.margin else table


def rectified(original: Any) -> Any:
    return lambda ctx, value, _activation: original(ctx, value, "RELU")


def first_of_two(true: Any, *operands: Any, **attributes: Any) -> Any:
    """The condition is taken for granted."""
    return true(operands[0], **{**attributes, "else_branch": attributes["then_branch"]})


def rounded_once(_original: Any) -> Any:
    """Halves to the even number."""
    return lambda ctx, numbers, mantissa, exponent: ctx.ops.Round(
        ctx.ops.Mul(ctx.ops.Cast(numbers, to="float64"), np.float64(mantissa * 2.0 ** (exponent - 31)))
    )


def from_zero(true: Any, numbers: Any, point: Any) -> Any:
    """The state's zero point is left out, not that of the inputs."""
    return numbers if isinstance(point, np.int64) else true(numbers, point)


def unbounded(true: Any, numbers: Any, least: Any, most: Any) -> Any:
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
        "sums that are rounded once",
        "SVDF",
        ("SVDF-int8,_sums_halfway_between_integers,_state_of_8_bits",),
        patches={"op_handlers.sequence.svdf:emit_fixed_point_product": rounded_once},
    ),
    Mutation(
        "a state of 8 bits that counts from 0",
        "SVDF",
        ("SVDF-int8,_state_of_8_bits",),
        emits={"Sub": from_zero},
    ),
    Mutation(
        "a state of 8 bits without bounds",
        "SVDF",
        ("SVDF-int8,_a_state_that_is_bounded,_state_of_8_bits",),
        emits={"Clip": unbounded},
    ),
    Mutation(
        "gates in TFLite's order",
        SEQUENCE,
        (f"{SEQUENCE}-float32_plain", f"{SEQUENCE}-float32_on_int8_plain"),
        patches={"op_handlers.sequence.lstm.cell:gates_of": as_tflite_orders_them},
    ),
    *(
        Mutation(
            "cells without bounds",
            op,
            (f"{op}-float32_whose_cells_are_bounded", f"{op}-float32_with_everything"),
            patches={f"{CELL}.update_cells": adding},
        )
        for op in (SEQUENCE, STEP)
    ),
    Mutation(
        "cells that are bounded later on only",
        SEQUENCE,
        (
            f"{SEQUENCE}-float32_on_float32,_cells_bounded_at_6.5_that_reach_it",
            f"{SEQUENCE}-float32_on_float32,_cells_bounded_at_6.5_that_reach_it_in_steps_of_3",
        ),
        emits={"If": first_of_two},
    ),
    *(
        Mutation(
            "states that are forgotten",
            op,
            (f"{op}-float32_plain", f"{op}-int8_plain"),
            patches={f"{CELL}.store_states": returning(None)},
        )
        for op in (SEQUENCE, STEP)
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
        (f"{SEQUENCE}-int8_that_holds_what_it_has",),
        emits={"Round": left_out},
    ),
    Mutation(
        "biases in half steps",
        STEP,
        (f"{STEP}-int8_plain",),
        patches={
            f"{WHOLE}.add_offsets": lambda original: lambda self, sums, offsets: original(self, sums, offsets / 2)
        },
    ),
    Mutation(
        "one rounding where the kernel rounds twice",
        SEQUENCE,
        (f"{SEQUENCE}-int8_that_projects",),
        patches={f"{INTEGERS}:SINGLE_ROUNDING_SHIFT": lambda _original: 0},
    ),
    Mutation(
        "halves to the even number",
        SEQUENCE,
        (f"{SEQUENCE}-int8_that_holds_what_it_has",),
        patches={
            f"{INTEGERS}:{name}": lambda _original, factor=factor: factor
            for name, factor in (("HALF_AWAY", 1.0), ("HALF_AWAY_OF_SUMS", 1.0), ("GATE_SCALE", 2.0**-15))
        },
    ),
    Mutation(
        "sums that leave 16 bits and go on",
        SEQUENCE,
        (f"{SEQUENCE}-int8_whose_sums_leave_16_bits,_1_at_once",),
        patches={f"{WHOLE}.pad_table": without_room},
    ),
    Mutation(
        "cells of one step whatever their scale",
        SEQUENCE,
        (f"{SEQUENCE}-int8_with_cells_of_scale_2^-9", f"{SEQUENCE}-int8_with_cells_of_scale_2^-15"),
        patches={f"{INTEGERS}:tanh": lambda original: lambda x, whole=3: original(x)},
    ),
    Mutation(
        "an output that is rescaled to its own scale",
        STEP,
        (f"{STEP}-int8_whose_output_reads_its_state_otherwise",),
        patches={f"{WHOLE}.convert_output": lambda _original: lambda self, y: self.dequantize(y, cell.HIDDEN)},
    ),
    Mutation(
        "peepholes without a scale",
        SEQUENCE,
        (f"{SEQUENCE}-int8_with_peepholes",),
        patches={f"{WHOLE}.add_peepholes": lambda _original: lambda self, gates, sums, cells: sums},
    ),
    Mutation(
        "the oldest run is kept and the newest but one forgotten",
        "SVDF",
        ("SVDF-float32_over_fifty_runs", "SVDF-int8_on_int8_of_rank_1"),
        emits={"Slice": lambda true, x, first, last, axes: true(x, [0], [last[0] - 1], axes)},
    ),
    Mutation(
        "integers without the rounding of the state",
        "SVDF",
        ("SVDF-int8_whose_state_is_bounded",),
        emits={"Clip": left_out},
    ),
    *(
        Mutation(
            "another activation",
            op,
            (f"{op}-float32_with_SIGN_BIT",),
            patches={"onnx_tflite_plugin.lowering.context:apply_activation": rectified},
        )
        for op in ("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN")
    ),
    Mutation(
        "both directions forwards",
        "BIDIRECTIONAL_SEQUENCE_RNN",
        ("BIDIRECTIONAL_SEQUENCE_RNN-float32_with_TANH,_of_two_sizes",),
        emits={"RNN": with_attributes(direction="forward")},
    ),
    Mutation(
        "outputs side by side the other way round",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        ("BIDIRECTIONAL_SEQUENCE_LSTM-float32_plain",),
        patches={f"{BOTH}:merge_outputs": lambda original: lambda ctx, found: original(ctx, found[::-1])},
    ),
    Mutation(
        "the auxiliary input without its weights",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        ("BIDIRECTIONAL_SEQUENCE_LSTM-float32_plain,_back_over_another_input",),
        emits={"LSTM": lambda true, x, *rest, **more: true(x, *rest, **{**more, "direction": None})},
    ),
)
