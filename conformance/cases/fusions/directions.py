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
    """Backward LSTM, and a forward LSTM unless ``alone``; both outputs are merged by an operator or kept separate.

    ``behind``: the backward output is reversed again; ``last``: only the last step is used.
    ``axes``: the axes that are reversed before and after. ``back``: other fields of the backward LSTM.
    """

    of: Lstm = PLAIN
    joined: str = "CONCATENATION"
    alone: bool = False
    behind: bool = True
    last: bool = False
    axes: tuple[int, int] | None = None
    looked_into: bool = False
    another: bool = False
    back: tuple[tuple[str, Any], ...] = ()

    def draw(self, model: Net) -> None:
        x = model.input(self.of.x)
        other = model.input(replace(self.of.x, name="other")) if self.another else x
        ways = [self.from_the_end(model, x)]
        if not self.alone:
            ways.insert(0, self.select_steps(model, replace(self.of, seed="ahead ").call(model, other, "ahead ")))
        model.output(*([self.together(model, ways)] if self.joined and not self.alone else ways))

    def from_the_end(self, model: Net, x: TensorRef) -> TensorRef:
        time = 0 if self.of.major else 1
        first, second = self.axes or (time, time - 3)
        seen = model.call("REVERSE_V2", [x, constant([first])], self.of.x)
        y = replace(self.of, seed="back ", **dict(self.back)).call(model, seen, "back ")
        if self.looked_into:
            model.output(y)
        return self.select_steps(
            model, model.call("REVERSE_V2", [y, constant([second])], self.of.y) if self.behind else y
        )

    def select_steps(self, model: Net, y: TensorRef) -> TensorRef:
        """Return all steps, or the last one as Keras selects it."""
        if not self.last:
            return y
        batch, _, size = self.of.y.shape
        cut = [constant([0, -1, 0]), constant([0, 0, 0]), constant([1, 1, 1])]
        masks = {"begin_mask": 5, "end_mask": 7, "shrink_axis_mask": 2}
        return model.call("STRIDED_SLICE", [y, *cut], self.of.y.with_shape(batch, size), **masks)

    def together(self, model: Net, ways: list[TensorRef]) -> TensorRef:
        spec = replace(model.spec(ways[0]), name="")
        *outer, size = spec.shape
        if self.joined == "CONCATENATION":
            return model.call(self.joined, ways, spec.with_shape(*outer, 2 * (size or 0)), axis=len(outer))
        return model.call(self.joined, ways, spec)


def cell_clip(most: float) -> tuple[tuple[str, Any], ...]:
    return (("cell_clip", most),)


KERAS = Lstm(options=cell_clip(10.0))
SMALL = Lstm(dtype="int8", weights="int8")

TOGETHER: Mapping[str, Pair] = {
    "plain": Pair(),
    "side by side as Keras has them": Pair(KERAS),
    "added": Pair(KERAS, joined="ADD"),
    "multiplied": Pair(KERAS, joined="MUL"),
    "apart": Pair(KERAS, joined=""),
    "time first": Pair(Lstm(major=True)),
    "without input gates": Pair(Lstm(coupled=True)),
    "with peepholes": Pair(Lstm(peephole=True)),
    "with peepholes and no input gates": Pair(Lstm(peephole=True, coupled=True)),
    "whose cells are bounded": Pair(Lstm(options=cell_clip(0.31))),
    "of one sequence": Pair(replace(KERAS, batch=1)),
    "of one step": Pair(Lstm(time=1)),
    "with RELU": Pair(Lstm(options=(("fused_activation_function", "RELU"),))),
    "on float16 constants": Pair(replace(KERAS, halved=True)),
    "on float16 constants and states": Pair(replace(KERAS, halved=True, begun="float16")),
    "on int8": Pair(replace(KERAS, weights="int8")),
}
"""Pairs of layers that become one operator of two directions, with no reversal left."""

TURNED: Mapping[str, Pair] = {
    "of the last step": Pair(KERAS, behind=False, last=True),
    "whose end is not reversed again": Pair(behind=False),
    "of batches reversed behind": Pair(axes=(1, 0)),
    "looked into": Pair(looked_into=True),
}
"""Pairs of layers that become one operator of two directions, whose backward results are reversed after it."""

APART: Mapping[str, Pair] = {
    "of different bounds": Pair(KERAS, back=(("options", cell_clip(9.0)),)),
    "of different activations": Pair(Lstm(), back=(("options", (("fused_activation_function", "RELU6"),)),)),
    "of different inputs": Pair(another=True),
    "one with an input gate": Pair(back=(("coupled", True),)),
    "that project": Pair(Lstm(outputs=13)),
    "that normalize": Pair(Lstm(norm=True)),
    "of batches reversed": Pair(axes=(0, 0)),
    "of inputs reversed": Pair(axes=(2, 1)),
}
"""Pairs of layers that stay two operators."""

ALONE: Mapping[str, Pair] = {
    "float32": Pair(alone=True),
    "float32, cells bounded at 10": Pair(KERAS, alone=True),
    "float32 whose cells are bounded": Pair(Lstm(options=cell_clip(0.31)), alone=True),
    "int8": Pair(SMALL, alone=True),
    "int8, time first": Pair(replace(SMALL, major=True), alone=True),
    "int8 with peepholes": Pair(replace(SMALL, peephole=True), alone=True),
    "int8 whose output reads its state otherwise": Pair(replace(SMALL, read=(0.0093, 11)), alone=True),
}


def cases() -> Iterator[Case]:
    for name, pair in TOGETHER.items():
        opsets: dict[str, Any] = {"opsets": EVERY_OPSET} if name == "side by side as Keras has them" else {}
        yield net(SEQUENCE, f"both ways, {name}", pair.draw, **opsets)
    for name, pair in {**TURNED, **APART}.items():
        yield net(SEQUENCE, f"both ways, {name}", pair.draw)
    for name, pair in ALONE.items():
        yield net(SEQUENCE, f"backwards, {name}", pair.draw, dtype=pair.of.dtype)
    for options in (None, {"state": "reset"}):
        more: dict[str, Any] = {"options": options} if options else {"runs": 50}
        yield net(
            SEQUENCE, f"both ways, {'every run anew' if options else 'over fifty runs'}", Pair(KERAS).draw, **more
        )
    yield net(SEQUENCE, "both ways, int8", Pair(SMALL).draw, dtype="int8")
    yield net(SEQUENCE, "both ways between convolutions", between, transposes=4)


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
