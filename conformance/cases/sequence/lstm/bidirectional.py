"""Bidirectional LSTMs: optional parts, merged and separate outputs, auxiliary inputs, states over fifty runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.lstms import BATCH, GATES, INPUTS, TIME, Lstm
from conformance.models import Net, Spec, net, tensor

CODE = "BIDIRECTIONAL_SEQUENCE_LSTM"
AUXILIARY, OUTPUTS = 13, 17
LONG = {"runs": 50}


@dataclass(frozen=True)
class Both:
    """One operator. ``auxiliary``: the width of that input; ``crossed``: it has weights."""

    major: bool = True
    merged: bool = True
    auxiliary: int = 0
    crossed: bool = False
    batch: int = BATCH
    time: int | None = TIME
    options: tuple[tuple[str, Any], ...] = ()
    each: dict[str, Any] = field(default_factory=dict)
    back: dict[str, Any] = field(default_factory=dict)

    def layer(self, **changed: Any) -> Lstm:
        return Lstm(batch=self.batch, time=self.time, major=self.major, **{**self.each, **changed})

    def operands(self, model: Net, layer: Lstm, name: str) -> list[TensorRef | None]:
        """Return random matrices, peepholes, biases and projection of one direction."""
        return [None if spec is None else model.place(spec) for spec in Named(layer, name).operands()[1:]]

    def build(self, model: Net) -> None:
        ahead, back = self.layer(), self.layer(**self.back)
        x = model.input(ahead.x)
        refs: list[TensorRef | None] = [x]
        for layer, name in ((ahead, "ahead"), (back, "back")):
            refs += self.operands(model, layer, name)
        for layer, name in ((ahead, "ahead"), (back, "back")):
            refs.append(layer.state(model, f"{name} hidden", layer.output_size, "float32", (1.0, 0)))
            refs.append(layer.state(model, f"{name} cells", layer.cells, "float32", (1.0, 0)))
        refs.append(model.input(tensor(*ahead.sequence_shape(self.auxiliary))) if self.auxiliary else None)
        for layer, name in ((ahead, "ahead"), (back, "back")):
            for gate in GATES:
                there = self.crossed and not (layer.coupled and gate == "input")
                weights = layer.matrix(layer.cells, self.auxiliary, f"{name} auxiliary {gate}") if there else None
                refs.append(None if weights is None else model.place(weights))
        widths = [ahead.output_size + back.output_size] if self.merged else [ahead.output_size, back.output_size]
        outputs = [model.result(tensor(*ahead.sequence_shape(width))) for width in widths]
        options = {"fused_activation_function": "TANH", **dict(self.options)}
        model.graph.operator(CODE, refs, outputs, {**options, "time_major": self.major, "merge_outputs": self.merged})
        model.output(*outputs)


class Named:
    """Operands of a layer whose random values depend on a name, so that both directions differ."""

    def __init__(self, layer: Lstm, name: str) -> None:
        self.layer, self.name = layer, name

    def operands(self) -> list[Spec | None]:
        layer, name = self.layer, self.name

        class Own(Lstm):
            def matrix(self, rows: int, columns: int, of: str, size: float = 0.0061) -> Spec:
                return super().matrix(rows, columns, f"{name} {of}", size)

            def vector(self, size: int, of: str, step: float, most: float = 0.6) -> Spec:
                return super().vector(size, f"{name} {of}", step, most)

            def peephole_weights(self, of: str) -> Spec:
                return super().peephole_weights(f"{name} {of}")

        return Own(**layer.__dict__).operands()


def both(name: str, case: dict[str, Any] | None = None, **fields: Any) -> Case:
    own = {key: value for key, value in fields.items() if key in Both.__dataclass_fields__}
    options = tuple((key, value) for key, value in fields.items() if key not in own)
    return net(CODE, name, Both(**own, options=options).build, **(case or {}))


PARTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with clipped cells": {"cell_clip": 0.31},
    "with cells clipped at 10": {"cell_clip": 10.0},
    "with RELU": {"fused_activation_function": "RELU"},
    "with RELU6": {"fused_activation_function": "RELU6"},
    "with RELU_N1_TO_1": {"fused_activation_function": "RELU_N1_TO_1"},
    "with SIGN_BIT": {"fused_activation_function": "SIGN_BIT"},
    "without an input gate": {"each": {"coupled": True}},
    "with an input gate in one direction": {"back": {"coupled": True}},
    "with peepholes": {"each": {"peephole": True}},
    "with peepholes in one direction": {"back": {"peephole": True}},
    "with peepholes, without an input gate": {"each": {"peephole": True, "coupled": True}},
    "with a projection": {"each": {"outputs": OUTPUTS}},
    "with a clipped projection": {"each": {"outputs": OUTPUTS}, "proj_clip": 0.23},
    "with states of rank 1": {"each": {"flat": True}},
}


def cases() -> Iterator[Case]:
    for name, part in PARTS.items():
        opsets: dict[str, Any] = {"opsets": EVERY_OPSET} if name in ("plain", "with a projection") else {}
        yield both(f"float32 {name}", opsets, **part)
        yield both(f"float32 {name}, separate outputs", merged=False, **part)
    yield both("float32, 50 runs", LONG)
    yield both("float32 clipped, 50 runs", LONG, cell_clip=0.31)
    yield both("float32 batch first", merged=False, major=False)
    yield both("float32 clipped, batch first", merged=False, major=False, cell_clip=0.31)
    yield both("float32, batch size 1, batch first", batch=1, major=False)
    yield both("float32, one time step", time=1)
    yield both("float32 with float16 initial states", each={"initial_dtype": "float16"})
    for name in ("plain", "with cells clipped at 10", "with a projection"):
        yield both(f"float32 {name}, reset in every run", {"options": {"state": "reset"}}, **PARTS[name])
    for weights in ("int8", "uint8"):
        each = {"weights": weights}
        yield both(f"float32 with {weights} weights", LONG, each=each)
        yield both(f"float32 with {weights} weights, separate outputs", merged=False, each=each)
        # The projection grows, and so does the rounding error of the products.
        yield both(
            f"float32 with {weights} weights and a projection", {"runs": 1}, time=1, each={**each, "outputs": OUTPUTS}
        )
        yield both(f"float32 with {weights} weights, cross-linked", each=each, auxiliary=AUXILIARY, crossed=True)
    grown = "without a bound on the cell, the kernels' rounding errors of activations add up from step to step"
    unbounded: dict[str, Any] = {"each": {"weights": "int8"}, "fused_activation_function": "RELU"}
    yield both("float32 with int8 weights and RELU, 50 runs", {**LONG, "known": grown}, **unbounded)
    yield both(
        "float32 with int8 weights, asymmetric activations", each={"weights": "int8"}, asymmetric_quantize_inputs=True
    )
    yield from auxiliary()
    yield from refusal_cases()


def auxiliary() -> Iterator[Case]:
    for merged in (True, False):
        suffix = "" if merged else ", separate outputs"
        for name in ("plain", "with clipped cells", "without an input gate", "with a projection"):
            wide: dict[str, Any] = {"auxiliary": AUXILIARY, "crossed": True, "merged": merged}
            yield both(f"float32 {name}, cross-linked{suffix}", **wide, **PARTS[name])
            yield both(
                f"float32 {name}, different backward input{suffix}", auxiliary=INPUTS, merged=merged, **PARTS[name]
            )
    yield both("float32 cross-linked, batch first", auxiliary=AUXILIARY, crossed=True, merged=False, major=False)
    yield both("float32, different backward input, batch first", auxiliary=INPUTS, merged=False, major=False)


def refusal_cases() -> Iterator[Case]:
    yield both("float32 merged, batch first", {"refused": "beyond their end"}, major=False)
    yield both(
        "float32, wider backward input",
        {"refused": "auxiliary input and input differ in size"},
        auxiliary=AUXILIARY,
    )
    yield both("float32 without an activation", {"refused": "activation NONE"}, fused_activation_function="NONE")
    yield both("float32 with states as graph inputs", {"refused": "not variable tensors"}, each={"variable": False})
    uneven = {"weights": "int8", "point": 3}
    yield both("float32 with zero points", {"refused": "nonzero zero points"}, each=uneven)
