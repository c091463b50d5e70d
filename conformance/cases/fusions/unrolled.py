"""Recurrent layers as unrolled steps, from PyTorch and Keras.

Similar steps must not be fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.cases.fusions import loops
from conformance.cases.fusions.loops import INPUTS, UNITS
from conformance.models import Net, constant, net, random_array, tensor
from onnx_tflite_plugin.source.model import Array

STEPS = 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
KERAS_GATES = {**GATES, "early-reset GRU": 3}
FUSION = "UNROLLED_RECURRENT"


@dataclass(frozen=True)
class Layer:
    """Recurrent layer as ``STEPS`` unrolled steps of one cell."""

    kind: str = "LSTM"  # key of ``GATES``, or of ``KERAS_GATES`` if ``keras``
    batch: int = 1
    keras: bool = False  # each step multiplies its row by the weights; otherwise one product multiplies all rows
    initial_state_inputs: bool = False  # initial states are graph inputs, otherwise omitted zeros
    row_order: tuple[int, ...] = tuple(range(STEPS))  # row that each step reads
    merge_operator: str = "CONCATENATION"  # merges the outputs; "" returns only the last one
    axis: int = 0  # along which outputs are merged
    reversed_outputs: bool = False  # outputs are merged in reverse order
    cell_outputs: bool = False  # the cell states of the last step are also outputs
    stages: int = 1  # consecutive layers, each on the output of the previous one
    batch_first: bool = False  # the input is [batch, time, features]
    activation: str = "TANH"
    weights: str = "float32"  # dtype
    defect: str = ""  # deliberate difference from a recurrent layer

    def build(self, model: Net) -> None:
        sizes = (self.batch, STEPS, INPUTS) if self.batch_first else (STEPS, self.batch, INPUTS)
        outputs = [model.input(tensor(*sizes, name="x"))]
        for stage in range(self.stages):
            outputs = self.stage(Steps(model, self, stage), outputs[0])
        model.graph.output(*outputs)

    def stage(self, steps: Steps, x: TensorRef) -> list[TensorRef]:
        """Return the outputs of one layer, and the cell states.

        The outputs are those of all steps joined, or of the last step.
        """
        states: Sequence[TensorRef] = steps.initial_states()
        outputs: list[TensorRef] = []
        for step_index, row in enumerate(steps.rows(x)):
            states = steps.keras_step(row, states) if self.keras else steps.pytorch_step(row, states, step_index)
            outputs.append(states[0])
        last_states = [outputs[-1], *(states[1:] if self.cell_outputs else [])]
        if self.reversed_outputs:
            outputs.reverse()
        return [steps.merge_outputs(outputs), *last_states[1:]] if self.merge_operator else last_states


@dataclass
class Steps(loops.Step):
    """Builder of the operators of one layer's steps."""

    def __init__(self, model: Net, layer: Layer, stage: int) -> None:
        super().__init__(model.graph, loops.Layer(layer.kind, batch=layer.batch), UNITS if stage else INPUTS)
        self.model, self.settings, self.stage = model, layer, stage

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a state; PyTorch's states have a leading axis of size 1."""
        return (self.settings.batch, UNITS) if self.settings.keras else (1, self.settings.batch, UNITS)

    def elementwise(self, code: str, *inputs: TensorRef) -> TensorRef:
        return self.call(code, list(inputs), self.shape)

    def initial_states(self) -> list[TensorRef]:
        """Return the initial states; none if they are zeros, which converters omit."""
        count = 2 if self.settings.kind == "LSTM" else 1
        if self.settings.initial_state_inputs:
            return [self.model.input(tensor(*self.shape, name=f"start{self.stage}{k}")) for k in range(count)]
        return []

    def rows(self, x: TensorRef) -> list[TensorRef]:
        """Return the slice of the sequence that each step reads."""
        batch, width = self.settings.batch, self.inputs
        if not self.settings.keras:
            width = GATES[self.settings.kind] * UNITS
            sizes = (batch, STEPS, width) if self.settings.batch_first and not self.stage else (STEPS, batch, width)
            x = self.dense(x, self.inputs, sizes, "inward")
        if self.settings.batch_first and not self.stage:
            x = self.call("TRANSPOSE", [x, self.vector(1, 0, 2)], (STEPS, batch, width))
        if self.settings.keras:
            rows = [self.graph.tensor(f"row{self.stage}{k}", (batch, width)) for k in range(STEPS)]
            self.graph.operator("UNPACK", [x], rows, {"num": STEPS, "axis": 0})
        else:
            size = self.vector(1, batch, width)
            rows = [self.call("SLICE", [x, self.vector(k, 0, 0), size], (1, batch, width)) for k in range(STEPS)]
        return [rows[k] for k in self.settings.row_order]

    def dense(self, x: TensorRef, inputs: int, shape: tuple[int, ...], seed: str) -> TensorRef:
        """Return rows times the layer's weights, plus a bias."""
        rows, seed = shape[-1], f"{seed}{self.stage}"
        weights, bias = random_array(rows, inputs, seed=seed) * np.float32(0.4), random_array(rows, seed=f"{seed} bias")
        return self.call("FULLY_CONNECTED", [x, self._weights(weights), self.constant(bias)], shape, keep_num_dims=True)

    def _weights(self, array: Array) -> TensorRef:
        if self.settings.weights == "float32":
            return self.constant(array)
        scale = float(np.abs(array).max() / 127)
        return self.model.add_operand(constant(np.round(array / scale), self.settings.weights, scale=scale))

    def keras_step(self, row: TensorRef, states: Sequence[TensorRef]) -> list[TensorRef]:
        cells: dict[str, Callable[..., list[TensorRef]]]
        cells = {"LSTM": self.lstm, "GRU": self.gru, "early-reset GRU": self.early_reset_gru, "RNN": self.rnn}
        return cells[self.settings.kind](row, *states) if states else self.keras_first_step(row)

    def keras_first_step(self, row: TensorRef) -> list[TensorRef]:
        """Return the states after a first step with zero states, as Keras writes it."""
        rows, kind = KERAS_GATES[self.settings.kind] * UNITS, self.settings.kind
        sums = self.product(row, self.inputs, rows, kind != "LSTM", "inward")
        if kind == "RNN":
            return [self.elementwise("TANH", sums)]
        if kind == "LSTM":
            sums = self.call("ADD", [sums, self.constant(random_array(rows, seed="b"))], (self.layer.batch, rows))
            i, _, g, o = self.split_gates(sums, 4)
            cells = self.elementwise("MUL", self.elementwise("LOGISTIC", i), self.elementwise("TANH", g))
            return [self.elementwise("MUL", self.elementwise("LOGISTIC", o), self.elementwise("TANH", cells)), cells]
        zx, rx, nx = self.split_gates(sums, 3)
        if kind == "GRU":
            z, r, n = (self.constant(part) for part in np.split(random_array(rows, seed="recurrent bias"), 3))
            zx, r = self.elementwise("ADD", zx, z), self.elementwise("LOGISTIC", self.elementwise("ADD", rx, r))
            nx = self.elementwise("ADD", nx, self.elementwise("MUL", r, n))
        input_weight = self.elementwise("SUB", self.constant(np.array(1, np.float32)), self.elementwise("LOGISTIC", zx))
        return [self.elementwise("MUL", input_weight, self.elementwise("TANH", nx))]

    def pytorch_step(self, row: TensorRef, states: Sequence[TensorRef], step_index: int) -> list[TensorRef]:
        hidden, cells = (*states, None, None)[:2]
        width = GATES[self.settings.kind] * UNITS
        has_different_weights = self.settings.defect == "weights" and step_index == STEPS // 2
        seed = "another" if has_different_weights else "recurrent"
        if hidden is None:
            repeated_bias = np.tile(random_array(width, seed=f"{seed}{self.stage} bias"), (self.settings.batch, 1))
            recurrent_sums = self.constant(repeated_bias)
        else:
            recurrent_sums = self.dense(hidden, UNITS, (1, self.settings.batch, width), seed)
        if self.settings.kind == "GRU":
            hidden_parts = (
                [self.constant(part) for part in np.split(repeated_bias, 3, 1)]
                if hidden is None
                else self.slice_gates(recurrent_sums)
            )
            return [self.pytorch_gru(row, hidden_parts, hidden)]
        sums = self.call("ADD", [recurrent_sums, row], (1, self.settings.batch, width))
        if self.settings.kind == "RNN":
            return [self.elementwise(self.settings.activation, sums)]
        return self.pytorch_lstm(sums, cells)

    def slice_gates(self, sums: TensorRef) -> list[TensorRef]:
        """Return the sums of each gate, of shape [1, batch, units]."""
        begins = [self.vector(0, 0, k * UNITS) for k in range(GATES[self.settings.kind])]
        return [self.call("SLICE", [sums, begin, self.vector(*self.shape)], self.shape) for begin in begins]

    def pytorch_lstm(self, sums: TensorRef, cells: TensorRef | None) -> list[TensorRef]:
        i, f, g, o = self.slice_gates(sums)
        new_cells = self.elementwise(
            "MUL", self.elementwise("LOGISTIC", i), self.elementwise(self.settings.activation, g)
        )
        if cells is not None:
            new_cells = self.elementwise(
                "ADD", self.elementwise("MUL", self.elementwise("LOGISTIC", f), cells), new_cells
            )
        return [
            self.elementwise(
                "MUL", self.elementwise("LOGISTIC", o), self.elementwise(self.settings.activation, new_cells)
            ),
            new_cells,
        ]

    def pytorch_gru(self, row: TensorRef, hidden_parts: list[TensorRef], hidden: TensorRef | None) -> TensorRef:
        row_parts = self.slice_gates(row)
        reset, update = (
            self.elementwise("LOGISTIC", self.elementwise("ADD", a, b))
            for a, b in zip(row_parts, hidden_parts[:2], strict=False)
        )
        reset_part = self.elementwise("MUL", reset, hidden_parts[2])
        candidate = self.elementwise(self.settings.activation, self.elementwise("ADD", row_parts[2], reset_part))
        old_hidden = self.constant(np.zeros((), np.float32)) if hidden is None else hidden
        if self.settings.defect == "interpolation":
            return self.elementwise(
                "ADD", self.elementwise("MUL", self.elementwise("SUB", old_hidden, candidate), update), old_hidden
            )
        return self.elementwise(
            "ADD", self.elementwise("MUL", self.elementwise("SUB", old_hidden, candidate), update), candidate
        )

    def merge_outputs(self, outputs: list[TensorRef]) -> TensorRef:
        """Return all outputs in one tensor."""
        sizes = [*self.shape]
        if self.settings.merge_operator == "PACK":
            sizes.insert(self.settings.axis, len(outputs))
        else:
            sizes[self.settings.axis] *= len(outputs)
        options: Mapping[str, Any] = {"values_count": len(outputs)} if self.settings.merge_operator == "PACK" else {}
        return self.call(self.settings.merge_operator, [*outputs], tuple(sizes), axis=self.settings.axis, **options)


BACKWARDS = tuple(reversed(range(STEPS)))
LAYERS: dict[str, Layer] = {
    **{f"{kind}, every output": Layer(kind) for kind in GATES},
    **{f"{kind}, last output": Layer(kind, merge_operator="", cell_outputs=kind == "LSTM") for kind in GATES},
    **{f"{kind}, batch of 3 with initial states": Layer(kind, batch=3, initial_state_inputs=True, cell_outputs=kind == "LSTM")
       for kind in GATES},
    **{f"{kind} backwards": Layer(kind, batch=3, row_order=BACKWARDS, reversed_outputs=True) for kind in GATES},
    **{f"{kind} backwards, last output": Layer(kind, row_order=BACKWARDS, merge_operator="") for kind in GATES},
    **{f"{kind} with steps split by batch": Layer(kind, batch=3, batch_first=True) for kind in GATES},
    **{f"{kind} of two layers": Layer(kind, stages=2) for kind in GATES},
    **{f"{kind} unrolled by Keras": Layer(kind, batch=3, keras=True, merge_operator="PACK", axis=1) for kind in KERAS_GATES},
    **{f"{kind} unrolled by Keras, batch of 1": Layer(kind, keras=True, merge_operator="", initial_state_inputs=True)
       for kind in KERAS_GATES},
    "LSTM with reversed outputs": Layer(reversed_outputs=True),
    "GRU with outputs joined along the batch": Layer("GRU", batch=3, axis=1),
    "RNN with outputs joined along the units": Layer("RNN", batch=3, axis=2),
    "LSTM with time steps in any order": Layer(batch=3, row_order=(3, 0, 0, 4, 1)),
    "GRU backwards, with steps split by batch": Layer("GRU", batch=2, batch_first=True, row_order=BACKWARDS),
    **{f"{kind} with RELU": Layer(kind, activation="RELU") for kind in GATES},
}  # fmt: skip
SIMILAR: dict[str, tuple[Layer, int]] = {
    **{f"{kind} with different weights in one step": (Layer(kind, defect="weights"), 2) for kind in GATES},
    "LSTM with int8 weights": (Layer(weights="int8"), 0),
    "LSTM with an unsupported function": (Layer(activation="SIN", initial_state_inputs=True), 0),
    "GRU with wrong interpolation": (Layer("GRU", defect="interpolation", initial_state_inputs=True), 0),
}
"""Similar graphs, and the number of layers found in each."""


def cases() -> Iterator[Case]:
    for name, layer in LAYERS.items():
        opsets = EVERY_OPSET if name.endswith("every output") else (None,)
        yield net("TANH", f"unrolled recurrent layer: {name}", layer.build, opsets=opsets, fusions=(FUSION,))
    for name, (layer, count) in SIMILAR.items():
        case = net("TANH", f"no recurrent layer: {name}", replace(layer).build)
        yield replace(case, fusions=(FUSION,) if count else ())
