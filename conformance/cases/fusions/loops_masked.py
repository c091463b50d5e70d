"""Masked recurrent layers as loops, as Keras writes them, and similar loops that must not be fused."""

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
    """Layer in which masked time steps change nothing. ``above``: a step counts if elements of the mask's input exceed this.

    ``of.defect``: "twice" if the cells are not masked, "other" if another mask selects the outputs.
    """

    of: Layer
    above: float = 0.1

    def build(self, model: Net) -> None:
        of, n = self.of, self.of.state_count
        x = model.input(tensor(TIME, of.batch, INPUTS, name="x"))
        told = tensor(TIME, of.batch, 1, name="told")
        above = constant(np.full((1,), self.above, np.float32))
        mask = model.call("GREATER", [model.input(told), above], replace(told, name="", dtype="bool"))
        counter = model.add_operand(constant(np.array(0, np.int32)))
        states = [of.start(model, f"state{k}") for k in range(n + 1)]
        array = model.add_operand(constant(np.zeros((TIME if of.all_outputs else 1, of.batch, UNITS)), "float32"))
        shapes = [(), (), (TIME if of.all_outputs else 1, of.batch, UNITS), *[(of.batch, UNITS)] * (n + 1)]
        shapes += [(TIME, of.batch, 1), (TIME, of.batch, INPUTS)]
        dtypes = ["int32", "int32", *["float32"] * (n + 2), "bool", "float32"]
        kinds = list(zip(shapes, dtypes, strict=True))
        cond, body = model.model.subgraph("cond"), model.model.subgraph("body")
        of.condition(cond, [cond.input(f"v{k}", *kind) for k, kind in enumerate(kinds)])
        self.body(Step(body, of), [body.input(f"v{k}", *kind) for k, kind in enumerate(kinds)])
        results = [model.graph.tensor(f"r{k}", *kind) for k, kind in enumerate(kinds)]
        indices = {"cond_subgraph_index": cond.index, "body_subgraph_index": body.index}
        model.graph.operator("WHILE", [counter, counter, array, *states, mask, x], results, indices)
        model.graph.output(*results[1 : 4 + n])

    def body(self, step: Step, values: list[TensorRef]) -> None:
        of, (i, t, array, shown), (mask, x) = self.of, values[:4], values[-2:]
        states, increment = values[4:-2], step.number(1)
        after = [step.call("ADD", [count, increment], (), "int32") for count in (i, t)]
        is_valid = step.call("GATHER", [mask, t], (of.batch, 1), "bool")
        cells: dict[str, Callable[..., list[TensorRef]]]
        cells = {"LSTM": step.lstm, "GRU": step.gru, "GRU before": step.gru_before, "RNN": step.plain}
        new_states = cells[of.kind](step.call("GATHER", [x, t], (of.batch, INPUTS)), *states)
        before = states[0] if of.defect == "other" else shown
        output = step.state("SELECT_V2", is_valid, new_states[0], before)
        masked_states = [
            step.state("SELECT_V2", is_valid, new, old) for new, old in zip(new_states, states, strict=True)
        ]
        if of.defect == "twice":
            masked_states[-1] = new_states[-1]
        row = step.call("RESHAPE", [output, step.vector(1, of.batch, UNITS)], (1, of.batch, UNITS))
        rows = step.replace_row(array, row, t, after[1]) if of.all_outputs else row
        step.graph.output(*after, rows, output, *masked_states, mask, x)


MASKED: dict[str, Masked] = {
    **{f"{kind}, every output": Masked(Layer(kind)) for kind in KINDS},
    **{
        f"{kind}, last output, with initial states": Masked(Layer(kind, all_outputs=False, starts=True))
        for kind in KINDS
    },
    "LSTM with initial states": Masked(Layer(starts=True)),
    "GRU without masked steps": Masked(Layer("GRU"), above=-1e9),
    "GRU with all steps masked": Masked(Layer("GRU", starts=True), above=1e9),
    "LSTM with all steps masked": Masked(Layer(all_outputs=False, starts=True), above=1e9),
}
SIMILAR: dict[str, Masked] = {
    "batch of 3": Masked(Layer(batch=3)),
    "unmasked cell states": Masked(Layer(defect="twice")),
    "output equal to the state": Masked(Layer("RNN", defect="other", starts=True)),
}


def cases() -> Iterator[Case]:
    for name, layer in MASKED.items():
        opsets = EVERY_OPSET if name == "LSTM, every output" else (None,)
        yield net("WHILE", f"masked recurrent layer: {name}", layer.build, opsets=opsets, dynamic_sizes=(2, 7))
    for name, layer in SIMILAR.items():
        yield net("WHILE", f"no masked recurrent layer: {name}", layer.build, dynamic_sizes=(2, 7))
