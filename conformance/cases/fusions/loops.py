"""Recurrent layers as loops, the way Keras 3 spells them, and loops that look like one and are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, constant, drawn, net, tensor
from onnx_tflite_plugin.source.model import Array

TIME, INPUTS, UNITS = 7, 5, 11
KINDS = ("LSTM", "GRU", "GRU before", "RNN")


@dataclass(frozen=True)
class Layer:
    """A loop over ``TIME`` time steps. What is changed of it, one field at a time, makes it none of ONNX's layers."""

    kind: str = "LSTM"
    every: bool = True
    batch: int = 1
    weights: str = "float32"
    starts: bool = False
    bound: int = TIME
    first: int = 0
    step: int = 1
    activation: str = "TANH"
    one: float = 1.0
    wrong: str = ""

    def draw(self, model: Net) -> None:
        x = model.input(tensor(TIME, self.batch, INPUTS, name="x"))
        states = [self._start(model, name) for name in ("h", "c")[: 2 if self.kind == "LSTM" else 1]]
        outputs = (TIME if self.every else 1, self.batch, UNITS)
        array = model.place(constant(np.zeros(outputs), "float32"))
        counter = model.place(constant(np.array(self.first, np.int32)))
        carried = [counter, counter, array, *states, x]
        shapes = [(), (), outputs, *[(self.batch, UNITS)] * len(states), (TIME, self.batch, INPUTS)]
        cond, body = model.model.subgraph("cond"), model.model.subgraph("body")
        self._condition(cond, [self._taken(cond, k, shape) for k, shape in enumerate(shapes)])
        self._body(Step(body, self), [self._taken(body, k, shape) for k, shape in enumerate(shapes)])
        results = [
            model.graph.tensor(f"r{k}", shape, "int32" if k < 2 else "float32") for k, shape in enumerate(shapes)
        ]
        indices = {"cond_subgraph_index": cond.index, "body_subgraph_index": body.index}
        model.graph.operator("WHILE", carried, results, indices)
        model.graph.output(*results[1 : 3 + len(states)])

    def _start(self, model: Net, name: str) -> TensorRef:
        if self.starts:
            return model.input(tensor(self.batch, UNITS, name=name))
        return model.place(constant(np.zeros((self.batch, UNITS)), "float32"))

    def _taken(self, graph: GraphBuilder, k: int, shape: tuple[int, ...]) -> TensorRef:
        return graph.input(f"v{k}", shape, "int32" if k < 2 else "float32")

    def _condition(self, graph: GraphBuilder, values: list[TensorRef]) -> None:
        less = [graph.tensor(f"less{k}", (), "bool") for k in range(2)]
        for k in range(2):
            graph.operator("LESS", [values[k], graph.constant(f"n{k}", np.array(self.bound, np.int32))], [less[k]])
        both = graph.tensor("both", (), "bool")
        graph.operator("LOGICAL_AND", less, [both])
        graph.output(both)

    def _body(self, step: Step, values: list[TensorRef]) -> None:
        i, t, array, *states, x = values
        one = step.number(self.step)
        after = [step.call("ADD", [i, one], (), "int32"), step.call("ADD", [t, one], (), "int32")]
        now = step.call("GATHER", [x, t], (self.batch, INPUTS))
        cells: dict[str, Callable[..., list[TensorRef]]]
        cells = {"LSTM": step.lstm, "GRU": step.gru, "GRU before": step.gru_before, "RNN": step.plain}
        states_after = cells[self.kind](now, *states)
        row = step.call("RESHAPE", [states_after[0], step.vector(1, self.batch, UNITS)], (1, self.batch, UNITS))
        step.graph.output(*after, step.written(array, row, t, after[1]) if self.every else row, *states_after, x)


@dataclass
class Step:
    """The body of a loop: operators of one time step."""

    graph: GraphBuilder
    layer: Layer

    def call(
        self,
        code: str,
        inputs: list[TensorRef | None],
        shape: tuple[int | None, ...],
        dtype: str = "float32",
        **options: Any,
    ) -> TensorRef:
        result = self.graph.tensor(f"{code}{len(self.graph.tensors)}", shape, dtype)
        self.graph.operator(code, inputs, [result], options)
        return result

    def constant(self, array: Array) -> TensorRef:
        return self.graph.constant(f"k{len(self.graph.tensors)}", array)

    def number(self, value: int) -> TensorRef:
        return self.constant(np.array(value, np.int32))

    def vector(self, *values: int) -> TensorRef:
        return self.constant(np.array(values, np.int32))

    def state(self, code: str, *inputs: TensorRef) -> TensorRef:
        return self.call(code, list(inputs), (self.layer.batch, UNITS))

    def product(self, x: TensorRef, inputs: int, rows: int, bias: bool, seed: str) -> TensorRef:
        """FULLY_CONNECTED without an activation, by weights of the layer's dtype."""
        array = drawn(rows, inputs, dtype="float32", seed=seed) * 0.4
        biases = [self.constant(drawn(rows, dtype="float32", seed=f"{seed} bias"))] if bias else [None]
        return self.call("FULLY_CONNECTED", [x, self._weight(array), *biases], (self.layer.batch, rows))

    def _weight(self, array: Array) -> TensorRef:
        name, dtype = f"w{len(self.graph.tensors)}", self.layer.weights
        if dtype == "float16":
            half = self.graph.constant(f"{name}/half", array.astype(np.float16))
            return self.call("DEQUANTIZE", [half], array.shape)
        return self.constant(array)

    def parts(self, sums: TensorRef, count: int) -> list[TensorRef]:
        parts = [
            self.graph.tensor(f"part{len(self.graph.tensors) + k}", (self.layer.batch, UNITS)) for k in range(count)
        ]
        self.graph.operator("SPLIT", [self.number(1), sums], parts, {"num_splits": count})
        return parts

    def sliced(self, sums: TensorRef, k: int) -> TensorRef:
        bounds = [self.vector(0, k * UNITS), self.vector(0, (k + 1) * UNITS), self.vector(1, 1)]
        return self.call("STRIDED_SLICE", [sums, *bounds], (self.layer.batch, UNITS), begin_mask=1, end_mask=1)

    def lstm(self, x: TensorRef, h: TensorRef, c: TensorRef) -> list[TensorRef]:
        rows = 4 * UNITS
        shape = (self.layer.batch, rows)
        back = self.product(h, UNITS, rows, False, "recurrent")
        if self.layer.batch == 1:
            back = self.call("RESHAPE", [back, self.vector(rows)], (rows,))
        sums = self.call("ADD", [self.product(x, INPUTS, rows, False, "inward"), back], shape)
        sums = self.call("ADD", [sums, self.constant(drawn(rows, dtype="float32", seed="b"))], shape)
        i, f, g, o = self.parts(sums, 4)
        kept = self.state("MUL", self.state("LOGISTIC", f), h if self.layer.wrong == "cells" else c)
        fresh = self.state("MUL", self.state("LOGISTIC", i), self.state(self.layer.activation, g))
        cells = self.state("ADD", kept, fresh)
        hidden = self.state("MUL", self.state("LOGISTIC", o), self.state("TANH", cells))
        return [hidden, cells]

    def gru(self, x: TensorRef, h: TensorRef) -> list[TensorRef]:
        back = self.product(h, UNITS, 3 * UNITS, True, "recurrent")
        zx, rx, nx = self.parts(self.product(x, INPUTS, 3 * UNITS, True, "inward"), 3)
        z = self.state("LOGISTIC", self.state("ADD", zx, self.sliced(back, 0)))
        r = self.state("LOGISTIC", self.state("ADD", rx, self.sliced(back, 1)))
        update = self.state(self.layer.activation, self.state("ADD", nx, self.state("MUL", r, self.sliced(back, 2))))
        return [self._mixed(z, h, update)]

    def gru_before(self, x: TensorRef, h: TensorRef) -> list[TensorRef]:
        back = self.product(h, UNITS, 2 * UNITS, False, "recurrent")
        zx, rx, nx = self.parts(self.product(x, INPUTS, 3 * UNITS, True, "inward"), 3)
        z = self.state("LOGISTIC", self.state("ADD", zx, self.sliced(back, 0)))
        r = self.state("LOGISTIC", self.state("ADD", rx, self.sliced(back, 1)))
        reset = self.product(self.state("MUL", r, h), UNITS, UNITS, False, "reset")
        return [self._mixed(z, h, self.state(self.layer.activation, self.state("ADD", nx, reset)))]

    def _mixed(self, z: TensorRef, h: TensorRef, update: TensorRef) -> TensorRef:
        rest = self.state("SUB", self.constant(np.array(self.layer.one, np.float32)), z)
        return self.state("ADD", self.state("MUL", z, h), self.state("MUL", rest, update))

    def plain(self, x: TensorRef, h: TensorRef) -> list[TensorRef]:
        sums = self.state(
            "ADD", self.product(x, INPUTS, UNITS, True, "inward"), self.product(h, UNITS, UNITS, False, "back")
        )
        return [self.state(self.layer.activation, sums)]

    def written(self, array: TensorRef, row: TensorRef, now: TensorRef, following: TensorRef) -> TensorRef:
        """The array with one row replaced: what is in front of it, the row, what is behind."""
        batch, flat = self.layer.batch, self.vector(1)
        until = self.call(
            "CONCATENATION", [self.call("RESHAPE", [now, flat], (1,), "int32"), self.vector(-1, -1)], (3,), "int32"
        )
        since = self.call("RESHAPE", [following, flat], (1,), "int32")
        since = self.call("CONCATENATION", [since, self.vector(0, 0)], (3,), "int32")
        head = self.call("SLICE", [array, self.vector(0, 0, 0), until], (None, None, None))
        tail = self.call("SLICE", [array, since, self.vector(-1, -1, -1)], (None, batch, UNITS))
        return self.call("CONCATENATION", [head, row, tail], (TIME, batch, UNITS), axis=0)


LAYERS: dict[str, Layer] = {
    **{f"{kind}, every output": Layer(kind) for kind in KINDS},
    **{f"{kind}, the last output": Layer(kind, every=False) for kind in KINDS},
    **{f"{kind}, three at once that begin somewhere": Layer(kind, batch=3, starts=True) for kind in KINDS},
    **{f"{kind}, weights of float16": Layer(kind, weights="float16") for kind in KINDS},
    "RNN of RELU": Layer("RNN", activation="RELU"),
    "RNN of LOGISTIC": Layer("RNN", activation="LOGISTIC"),
}
ALIKE: dict[str, Layer] = {
    "fewer steps than the sequence has": Layer(bound=TIME - 2),
    "every other time step": Layer("GRU", every=False, step=2),
    "a counter that begins at 1": Layer("RNN", first=1),
    "an update by another function": Layer("LSTM", activation="RELU"),
    "a GRU's update by another function": Layer("GRU", activation="LOGISTIC"),
    "shares that are no parts of one": Layer("GRU", one=1.5),
    "cells that forget the output": Layer("LSTM", wrong="cells"),
}


def cases() -> Iterator[Case]:
    for name, layer in LAYERS.items():
        opsets = EVERY_OPSET if name.endswith("every output") else (None,)
        yield net("WHILE", f"a recurrent layer: {name}", layer.draw, opsets=opsets)
    for name, layer in ALIKE.items():
        yield net("WHILE", f"no recurrent layer: {name}", replace(layer, starts=True).draw)
