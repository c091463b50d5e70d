"""LSTMs on reversed sequences, with and without a forward LSTM, and similar patterns that must not be fused."""

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
    """Backward LSTM, and a forward LSTM unless ``backward_only``; both outputs are merged by an operator or kept separate.

    ``reversed_after``: the backward output is reversed again; ``last``: only the last step is used.
    ``axes``: the axes that are reversed before and after. ``back``: other fields of the backward LSTM.
    """

    of: Lstm = PLAIN
    joined: str = "CONCATENATION"
    backward_only: bool = False
    reversed_after: bool = True
    last: bool = False
    axes: tuple[int, int] | None = None
    inner_output: bool = False
    different_inputs: bool = False
    back: tuple[tuple[str, Any], ...] = ()

    def build(self, model: Net) -> None:
        x = model.input(self.of.x)
        other = model.input(replace(self.of.x, name="other")) if self.different_inputs else x
        ways = [self.run_backwards(model, x)]
        if not self.backward_only:
            ways.insert(0, self.select_steps(model, replace(self.of, seed="ahead ").call(model, other, "ahead ")))
        model.output(*([self.merge_outputs(model, ways)] if self.joined and not self.backward_only else ways))

    def run_backwards(self, model: Net, x: TensorRef) -> TensorRef:
        time = 0 if self.of.major else 1
        first, second = self.axes or (time, time - 3)
        seen = model.call("REVERSE_V2", [x, constant([first])], self.of.x)
        y = replace(self.of, seed="back ", **dict(self.back)).call(model, seen, "back ")
        if self.inner_output:
            model.output(y)
        return self.select_steps(
            model, model.call("REVERSE_V2", [y, constant([second])], self.of.y) if self.reversed_after else y
        )

    def select_steps(self, model: Net, y: TensorRef) -> TensorRef:
        """Return all steps, or the last one as Keras selects it."""
        if not self.last:
            return y
        batch, _, size = self.of.y.shape
        cut = [constant([0, -1, 0]), constant([0, 0, 0]), constant([1, 1, 1])]
        masks = {"begin_mask": 5, "end_mask": 7, "shrink_axis_mask": 2}
        return model.call("STRIDED_SLICE", [y, *cut], self.of.y.with_shape(batch, size), **masks)

    def merge_outputs(self, model: Net, ways: list[TensorRef]) -> TensorRef:
        spec = replace(model.spec(ways[0]), name="")
        *outer, size = spec.shape
        if self.joined == "CONCATENATION":
            return model.call(self.joined, ways, spec.with_shape(*outer, 2 * (size or 0)), axis=len(outer))
        return model.call(self.joined, ways, spec)


def cell_clip(most: float) -> tuple[tuple[str, Any], ...]:
    return (("cell_clip", most),)


KERAS = Lstm(options=cell_clip(10.0))
SMALL = Lstm(dtype="int8", weights="int8")

FUSED: Mapping[str, Pair] = {
    "plain": Pair(),
    "concatenated by Keras": Pair(KERAS),
    "added": Pair(KERAS, joined="ADD"),
    "multiplied": Pair(KERAS, joined="MUL"),
    "separate outputs": Pair(KERAS, joined=""),
    "time first": Pair(Lstm(major=True)),
    "without input gates": Pair(Lstm(coupled=True)),
    "with peepholes": Pair(Lstm(peephole=True)),
    "with peepholes, without input gates": Pair(Lstm(peephole=True, coupled=True)),
    "with clipped cells": Pair(Lstm(options=cell_clip(0.31))),
    "batch size 1": Pair(replace(KERAS, batch=1)),
    "one time step": Pair(Lstm(time=1)),
    "with RELU": Pair(Lstm(options=(("fused_activation_function", "RELU"),))),
    "on float16 constants": Pair(replace(KERAS, halved=True)),
    "on float16 constants and states": Pair(replace(KERAS, halved=True, initial_dtype="float16")),
    "on int8": Pair(replace(KERAS, weights="int8")),
}
"""Pairs of layers fused to one bidirectional operator without reversals."""

REVERSED: Mapping[str, Pair] = {
    "last output": Pair(KERAS, reversed_after=False, last=True),
    "without the final reversal": Pair(reversed_after=False),
    "final reversal of batches": Pair(axes=(1, 0)),
    "inner output": Pair(inner_output=True),
}
"""Pairs of layers fused to one bidirectional operator with a reversal of the backward results."""

SEPARATE: Mapping[str, Pair] = {
    "different clipping": Pair(KERAS, back=(("options", cell_clip(9.0)),)),
    "different activations": Pair(Lstm(), back=(("options", (("fused_activation_function", "RELU6"),)),)),
    "different inputs": Pair(different_inputs=True),
    "input gate in one direction": Pair(back=(("coupled", True),)),
    "projection": Pair(Lstm(outputs=13)),
    "layer normalization": Pair(Lstm(norm=True)),
    "reversed batches": Pair(axes=(0, 0)),
    "reversed features": Pair(axes=(2, 1)),
}
"""Pairs of layers that are not fused."""

BACKWARD: Mapping[str, Pair] = {
    "float32": Pair(backward_only=True),
    "float32, cells clipped at 10": Pair(KERAS, backward_only=True),
    "float32 with clipped cells": Pair(Lstm(options=cell_clip(0.31)), backward_only=True),
    "int8": Pair(SMALL, backward_only=True),
    "int8, time first": Pair(replace(SMALL, major=True), backward_only=True),
    "int8 with peepholes": Pair(replace(SMALL, peephole=True), backward_only=True),
    "int8 with different output and state quantization": Pair(replace(SMALL, read=(0.0093, 11)), backward_only=True),
}


def cases() -> Iterator[Case]:
    for name, pair in FUSED.items():
        opsets: dict[str, Any] = {"opsets": EVERY_OPSET} if name == "concatenated by Keras" else {}
        yield net(SEQUENCE, f"bidirectional, {name}", pair.build, **opsets)
    for name, pair in {**REVERSED, **SEPARATE}.items():
        yield net(SEQUENCE, f"bidirectional, {name}", pair.build)
    for name, pair in BACKWARD.items():
        yield net(SEQUENCE, f"backwards, {name}", pair.build, dtype=pair.of.dtype)
    for options in (None, {"state": "reset"}):
        more: dict[str, Any] = {"options": options} if options else {"runs": 50}
        yield net(
            SEQUENCE, f"bidirectional, {'reset in every run' if options else '50 runs'}", Pair(KERAS).build, **more
        )
    yield net(SEQUENCE, "bidirectional, int8", Pair(SMALL).build, dtype="int8")
    yield net(SEQUENCE, "bidirectional between convolutions", between, transposes=4)


def between(model: Net) -> None:
    """Build a bidirectional pair between convolutions."""
    of = KERAS
    batch, time, size = of.x.shape
    image = model.input_through_conv(of.x.with_shape(batch, 1, time, size))
    x = model.call("RESHAPE", [image, constant([batch, time, size])], of.x)
    reverse = constant([1])
    seen = model.call("REVERSE_V2", [x, reverse], of.x)
    y = replace(of, seed="back ").call(model, seen, "back ")
    ways = [replace(of, seed="ahead ").call(model, x, "ahead "), model.call("REVERSE_V2", [y, reverse], of.y)]
    *outer, units = of.y.shape
    both = model.call("CONCATENATION", ways, tensor(*outer, 2 * (units or 0)), axis=2)
    back = model.call(
        "RESHAPE", [both, constant([batch, 1, time, 2 * (units or 0)])], tensor(batch, 1, time, 2 * (units or 0))
    )
    model.output(model.output_through_conv(back))
