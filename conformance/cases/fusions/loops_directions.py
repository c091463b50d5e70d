"""Bidirectional recurrent layers as loops, as Keras writes them, and similar pairs that must not be fused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.cases.fusions.loops import INPUTS, KINDS, UNITS, Layer
from conformance.models import Net, constant, net, tensor

LSTM = Layer()
EVERY, LAST = 1, 2  # results of a loop after its counter: the array, the first state


@dataclass(frozen=True)
class Pair:
    """Loop over a sequence and one over its reverse, with merged outputs. ``back``: fields in which the second loop differs.

    ``reversed_after``: all outputs of the second loop are reversed again; ``axes``: the axes that are reversed before and after.
    ``states_returned``: the first state of both loops is also an output. ``inner_output``: the reversed sequence is also an output.
    """

    of: Layer = LSTM
    back: Layer | None = None
    reversed_after: bool = True
    axes: tuple[int, int] = (0, 1)
    states_returned: bool = False
    inner_output: bool = False
    perm: tuple[int, ...] = (1, 0, 2)

    def build(self, model: Net) -> None:
        of, sequence = self.of, tensor(self.of.time, self.of.batch, INPUTS, name="x")
        x = model.input(sequence)
        reverse = model.call("REVERSE_V2", [x, constant([self.axes[0]])], replace(sequence, name=""))
        back = replace(self.back or of, seed="back ").loop(model, reverse)
        second = self.batch_first(model, back[EVERY]) if of.all_outputs else back[EVERY]
        if self.reversed_after:
            second = model.call("REVERSE_V2", [second, constant([self.axes[1]])], replace(model.spec(second), name=""))
        ahead = replace(of, seed="ahead ").loop(model, x)
        first = self.batch_first(model, ahead[EVERY]) if of.all_outputs else ahead[EVERY]
        states_returned = [
            *([ahead[LAST], back[LAST]] if self.states_returned else []),
            *([reverse] if self.inner_output else []),
        ]
        model.graph.output(first, second, *states_returned)

    def batch_first(self, model: Net, y: TensorRef) -> TensorRef:
        sizes = (self.of.time, self.of.batch, UNITS)
        if self.of.batch == 1 and not self.of.open and self.perm == (1, 0, 2):
            shape = [1, self.of.time or 0, UNITS]
            return model.call("RESHAPE", [y, constant(shape)], tensor(*shape))
        return model.call("TRANSPOSE", [y, constant([*self.perm])], tensor(*(sizes[axis] for axis in self.perm)))


FUSED: dict[str, Pair] = {
    **{f"{kind}, every output": Pair(Layer(kind)) for kind in KINDS},
    **{f"{kind}, last output": Pair(Layer(kind, all_outputs=False), reversed_after=False) for kind in KINDS},
    **{
        f"{kind}, without the final reversal": Pair(Layer(kind, batch=3), reversed_after=False, states_returned=True)
        for kind in KINDS
    },
    **{f"{kind}, batch of 3 with initial states": Pair(Layer(kind, batch=3, starts=True)) for kind in KINDS},
    **{f"{kind} of dynamic length": Pair(Layer(kind, open=True)) for kind in KINDS},
    **{
        f"{kind} of dynamic length, last output": Pair(Layer(kind, all_outputs=False, open=True), reversed_after=False)
        for kind in KINDS
    },
    "LSTM, float16 weights": Pair(Layer(weights="float16")),
    "RNN with RELU": Pair(Layer("RNN", activation="RELU")),
    "LSTM with final states": Pair(states_returned=True),
    "LSTM with an inner output": Pair(inner_output=True),
}
"""Pairs of loops fused to one bidirectional node."""

SEPARATE: dict[str, Pair] = {
    "of different kinds": Pair(Layer("GRU"), back=Layer("RNN")),
    "of different activations": Pair(Layer("RNN"), back=Layer("RNN", activation="RELU")),
    "of different weight dtypes": Pair(back=Layer(weights="float16")),
    "with reversed batches": Pair(Layer(batch=3), axes=(1, 1)),
    "with a final reversal of batches": Pair(Layer(batch=3), axes=(0, 0)),
    "with a different final permutation": Pair(Layer(batch=3), perm=(2, 1, 0)),
    "of two layers": Pair(Layer("RNN", stages=2)),
}
"""Pairs of loops that become separate nodes."""


def cases() -> Iterator[Case]:
    for name, pair in FUSED.items():
        opsets = EVERY_OPSET if name == "GRU of dynamic length" else (None,)
        lengths = () if not pair.of.open else (2, 7) if pair.of.all_outputs else (0, 2, 7)
        yield net("WHILE", f"bidirectional layer: {name}", pair.build, opsets=opsets, dynamic_sizes=lengths or (2, 7))
    for name, pair in SEPARATE.items():
        yield net("WHILE", f"separate layers {name}", pair.build, dynamic_sizes=(2, 7))
