"""Masked recurrent layers as loops, as Keras writes them.

Similar loops must not be fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.cases.fusions.loops import INPUTS, KINDS, TIME, UNITS, Layer, Step
from conformance.models import Net, constant, net, tensor


@dataclass(frozen=True)
class Masked:
    """Layer in which a masked time step changes neither the states nor the output.

    ``mask_threshold``: a step is unmasked if the mask input exceeds it.

    ``layer.defect``: "unmasked state" if the last state is not masked, "state as output" if a masked step returns the state
    instead of the last output.
    """

    layer: Layer
    mask_threshold: float = 0.1

    def build(self, model: Net) -> None:
        layer, state_count = self.layer, self.layer.state_count
        x = model.input(tensor(TIME, layer.batch, INPUTS, name="x"))
        mask_source = tensor(TIME, layer.batch, 1, name="mask")
        threshold = constant(np.full((1,), self.mask_threshold, np.float32))
        mask = model.call("GREATER", [model.input(mask_source), threshold], replace(mask_source, name="", dtype="bool"))
        counter = model.add_operand(constant(np.array(0, np.int32)))
        states = [layer.start(model, f"state{k}") for k in range(state_count + 1)]
        array = model.add_operand(constant(np.zeros((TIME if layer.all_outputs else 1, layer.batch, UNITS)), "float32"))
        shapes = [
            (),
            (),
            (TIME if layer.all_outputs else 1, layer.batch, UNITS),
            *[(layer.batch, UNITS)] * (state_count + 1),
        ]
        shapes += [(TIME, layer.batch, 1), (TIME, layer.batch, INPUTS)]
        dtypes = ["int32", "int32", *["float32"] * (state_count + 2), "bool", "float32"]
        shapes_and_dtypes = list(zip(shapes, dtypes, strict=True))
        cond, body = model.model.subgraph("cond"), model.model.subgraph("body")
        layer.condition(cond, [cond.input(f"v{k}", *kind) for k, kind in enumerate(shapes_and_dtypes)])
        self.body(Step(body, layer), [body.input(f"v{k}", *kind) for k, kind in enumerate(shapes_and_dtypes)])
        results = [model.graph.tensor(f"r{k}", *kind) for k, kind in enumerate(shapes_and_dtypes)]
        indices = {"cond_subgraph_index": cond.index, "body_subgraph_index": body.index}
        model.graph.operator("WHILE", [counter, counter, array, *states, mask, x], results, indices)
        model.graph.output(*results[1 : 4 + state_count])

    def body(self, step: Step, values: list[TensorRef]) -> None:
        layer, (i, t, array, last_output), (mask, x) = self.layer, values[:4], values[-2:]
        states, increment = values[4:-2], step.number(1)
        next_counters = [step.call("ADD", [counter, increment], (), "int32") for counter in (i, t)]
        is_unmasked = step.call("GATHER", [mask, t], (layer.batch, 1), "bool")
        cells: dict[str, Callable[..., list[TensorRef]]]
        cells = {"LSTM": step.lstm, "GRU": step.gru, "early-reset GRU": step.early_reset_gru, "RNN": step.rnn}
        new_states = cells[layer.kind](step.call("GATHER", [x, t], (layer.batch, INPUTS)), *states)
        masked_output = states[0] if layer.defect == "state as output" else last_output
        output = step.elementwise("SELECT_V2", is_unmasked, new_states[0], masked_output)
        masked_states = [
            step.elementwise("SELECT_V2", is_unmasked, new_state, old_state)
            for new_state, old_state in zip(new_states, states, strict=True)
        ]
        if layer.defect == "unmasked state":
            masked_states[-1] = new_states[-1]
        row = step.call("RESHAPE", [output, step.vector(1, layer.batch, UNITS)], (1, layer.batch, UNITS))
        rows = step.replace_row(array, row, t, next_counters[1]) if layer.all_outputs else row
        step.graph.output(*next_counters, rows, output, *masked_states, mask, x)


MASKED: dict[str, Masked] = {
    **{f"{kind}, every output": Masked(Layer(kind)) for kind in KINDS},
    **{
        f"{kind}, last output, with initial states": Masked(Layer(kind, all_outputs=False, initial_state_inputs=True))
        for kind in KINDS
    },
    "LSTM with initial states": Masked(Layer(initial_state_inputs=True)),
    "GRU without masked steps": Masked(Layer("GRU"), mask_threshold=-1e9),
    "GRU with all steps masked": Masked(Layer("GRU", initial_state_inputs=True), mask_threshold=1e9),
    "LSTM with all steps masked": Masked(Layer(all_outputs=False, initial_state_inputs=True), mask_threshold=1e9),
}
SIMILAR: dict[str, Masked] = {
    "batch of 3": Masked(Layer(batch=3)),
    "unmasked cell states": Masked(Layer(defect="unmasked state")),
    "output equal to the state": Masked(Layer("RNN", defect="state as output", initial_state_inputs=True)),
}


def cases() -> Iterator[Case]:
    for name, layer in MASKED.items():
        opsets = EVERY_OPSET if name == "LSTM, every output" else (None,)
        yield net("WHILE", f"masked recurrent layer: {name}", layer.build, opsets=opsets, dynamic_sizes=(2, 7))
    for name, layer in SIMILAR.items():
        yield net("WHILE", f"no masked recurrent layer: {name}", layer.build, dynamic_sizes=(2, 7))
