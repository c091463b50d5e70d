"""LSTMs on reversed sequences, with and without a forward LSTM.

Similar patterns must not be fused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.lstms import SEQUENCE, Lstm
from conformance.models import Net, constant, net, tensor

PLAIN = Lstm()


@dataclass(frozen=True)
class Pair:
    """Backward LSTM, and a forward LSTM unless ``backward_only``.

    ``merge_operator``: merges both outputs; "" keeps them separate. ``reversed_after``: the backward output is reversed
    again; ``last_step_only``: only the last step is used. ``axes``: the axes that are reversed before and after the
    backward LSTM. ``inner_output``: the result of the backward LSTM before the second reversal is a graph output.
    ``backward_fields``: fields in which the backward LSTM differs.
    """

    lstm: Lstm = PLAIN
    merge_operator: str = "CONCATENATION"
    backward_only: bool = False
    reversed_after: bool = True
    last_step_only: bool = False
    axes: tuple[int, int] | None = None
    inner_output: bool = False
    different_inputs: bool = False
    backward_fields: tuple[tuple[str, Any], ...] = ()

    def build(self, model: Net) -> None:
        x = model.input(self.lstm.x)
        forward_x = model.input(replace(self.lstm.x, name="other")) if self.different_inputs else x
        outputs = [self.run_backwards(model, x)]
        if not self.backward_only:
            outputs.insert(
                0, self.select_steps(model, replace(self.lstm, seed="ahead ").call(model, forward_x, "ahead "))
            )
        model.output(
            *([self.merge_outputs(model, outputs)] if self.merge_operator and not self.backward_only else outputs)
        )

    def run_backwards(self, model: Net, x: TensorRef) -> TensorRef:
        time_axis = 0 if self.lstm.time_major else 1
        first_axis, second_axis = self.axes or (time_axis, time_axis - 3)
        reversed_x = model.call("REVERSE_V2", [x, constant([first_axis])], self.lstm.x)
        y = replace(self.lstm, seed="back ", **dict(self.backward_fields)).call(model, reversed_x, "back ")
        if self.inner_output:
            model.output(y)
        return self.select_steps(
            model, model.call("REVERSE_V2", [y, constant([second_axis])], self.lstm.y) if self.reversed_after else y
        )

    def select_steps(self, model: Net, y: TensorRef) -> TensorRef:
        """Return all steps, or the last one as Keras selects it."""
        if not self.last_step_only:
            return y
        batch, _, size = self.lstm.y.shape
        bounds = [constant([0, -1, 0]), constant([0, 0, 0]), constant([1, 1, 1])]
        masks = {"begin_mask": 5, "end_mask": 7, "shrink_axis_mask": 2}
        return model.call("STRIDED_SLICE", [y, *bounds], self.lstm.y.with_shape(batch, size), **masks)

    def merge_outputs(self, model: Net, outputs: list[TensorRef]) -> TensorRef:
        spec = replace(model.spec(outputs[0]), name="")
        *outer, size = spec.shape
        if self.merge_operator == "CONCATENATION":
            return model.call(self.merge_operator, outputs, spec.with_shape(*outer, 2 * (size or 0)), axis=len(outer))
        return model.call(self.merge_operator, outputs, spec)


def cell_clip(limit: float) -> tuple[tuple[str, Any], ...]:
    return (("cell_clip", limit),)


KERAS = Lstm(options=cell_clip(10.0))
INT8 = Lstm(dtype="int8", weights="int8")

FUSED: Mapping[str, Pair] = {
    "plain": Pair(),
    "concatenated by Keras": Pair(KERAS),
    "outputs added": Pair(KERAS, merge_operator="ADD"),
    "outputs multiplied": Pair(KERAS, merge_operator="MUL"),
    "separate outputs": Pair(KERAS, merge_operator=""),
    "time first": Pair(Lstm(time_major=True)),
    "without input gates": Pair(Lstm(coupled=True)),
    "with peepholes": Pair(Lstm(peephole=True)),
    "with peepholes, without input gates": Pair(Lstm(peephole=True, coupled=True)),
    "with clipped cells": Pair(Lstm(options=cell_clip(0.31))),
    "batch size 1": Pair(replace(KERAS, batch=1)),
    "one time step": Pair(Lstm(time=1)),
    "with RELU": Pair(Lstm(options=(("fused_activation_function", "RELU"),))),
    "on float16 constants": Pair(replace(KERAS, float16_constants=True)),
    "on float16 constants and states": Pair(replace(KERAS, float16_constants=True, initial_dtype="float16")),
    "on int8": Pair(replace(KERAS, weights="int8")),
}
"""Pairs of layers fused to one bidirectional operator without reversals."""

REVERSED: Mapping[str, Pair] = {
    "last output": Pair(KERAS, reversed_after=False, last_step_only=True),
    "without the final reversal": Pair(reversed_after=False),
    "final reversal of batches": Pair(axes=(1, 0)),
    "inner output": Pair(inner_output=True),
}
"""Pairs of layers fused to one bidirectional operator with a reversal of the backward results."""

SEPARATE: Mapping[str, Pair] = {
    "different clipping": Pair(KERAS, backward_fields=(("options", cell_clip(9.0)),)),
    "different activations": Pair(Lstm(), backward_fields=(("options", (("fused_activation_function", "RELU6"),)),)),
    "different inputs": Pair(different_inputs=True),
    "input gate in one direction": Pair(backward_fields=(("coupled", True),)),
    "projection": Pair(Lstm(projection_size=13)),
    "layer normalization": Pair(Lstm(layer_norm=True)),
    "reversed batches": Pair(axes=(0, 0)),
    "reversed features": Pair(axes=(2, 1)),
}
"""Pairs of layers that are not fused."""

BACKWARD: Mapping[str, Pair] = {
    "float32": Pair(backward_only=True),
    "float32, cells clipped at 10": Pair(KERAS, backward_only=True),
    "float32 with clipped cells": Pair(Lstm(options=cell_clip(0.31)), backward_only=True),
    "int8": Pair(INT8, backward_only=True),
    "int8, time first": Pair(replace(INT8, time_major=True), backward_only=True),
    "int8 with peepholes": Pair(replace(INT8, peephole=True), backward_only=True),
    "int8 with different output and state quantization": Pair(
        replace(INT8, output_quantization=(0.0093, 11)), backward_only=True
    ),
}


def cases() -> Iterator[Case]:
    for name, pair in FUSED.items():
        opsets: dict[str, Any] = {"opsets": EVERY_OPSET} if name == "concatenated by Keras" else {}
        yield net(SEQUENCE, f"bidirectional, {name}", pair.build, **opsets)
    for name, pair in {**REVERSED, **SEPARATE}.items():
        yield net(SEQUENCE, f"bidirectional, {name}", pair.build)
    for name, pair in BACKWARD.items():
        yield net(SEQUENCE, f"backwards, {name}", pair.build, dtype=pair.lstm.dtype)
    for options in (None, {"state": "reset"}):
        case_fields: dict[str, Any] = {"options": options} if options else {"runs": 50}
        yield net(
            SEQUENCE,
            f"bidirectional, {'reset in every run' if options else '50 runs'}",
            Pair(KERAS).build,
            **case_fields,
        )
    yield net(SEQUENCE, "bidirectional, int8", Pair(INT8).build, dtype="int8")
    yield net(SEQUENCE, "bidirectional between convolutions", pair_between_convolutions, max_transposes=4)


def pair_between_convolutions(model: Net) -> None:
    """Build a bidirectional pair between convolutions."""
    lstm = KERAS
    batch, time, size = lstm.x.shape
    image = model.input_through_conv(lstm.x.with_shape(batch, 1, time, size))
    x = model.call("RESHAPE", [image, constant([batch, time, size])], lstm.x)
    reverse = constant([1])
    reversed_x = model.call("REVERSE_V2", [x, reverse], lstm.x)
    y = replace(lstm, seed="back ").call(model, reversed_x, "back ")
    outputs = [replace(lstm, seed="ahead ").call(model, x, "ahead "), model.call("REVERSE_V2", [y, reverse], lstm.y)]
    *outer, units = lstm.y.shape
    merged = model.call("CONCATENATION", outputs, tensor(*outer, 2 * (units or 0)), axis=2)
    image_of_both = model.call(
        "RESHAPE", [merged, constant([batch, 1, time, 2 * (units or 0)])], tensor(batch, 1, time, 2 * (units or 0))
    )
    model.output(model.output_through_conv(image_of_both))
