"""Bidirectional recurrent layers as loops, as Keras writes them.

Similar pairs must not be fused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.cases.fusions.loops import INPUTS, KINDS, UNITS, Layer, sizes
from conformance.models import Net, constant, net, tensor

LSTM = Layer()
ALL_OUTPUTS, LAST_OUTPUT = 1, 2  # results of a loop after its counter: the array, the first state


@dataclass(frozen=True)
class Pair:
    """Loop over a sequence, and a loop over the reversed sequence."""

    layer: Layer = LSTM
    backward_layer: Layer | None = None  # the second loop, if it differs
    reversed_after: bool = True  # all outputs of the second loop are reversed again
    axes: tuple[int, int] = (0, 1)  # reversed before and after the second loop
    states_returned: bool = False  # the first state of both loops is also an output
    inner_output: bool = False  # the reversed sequence is also an output
    final_permutation: tuple[int, ...] = (1, 0, 2)

    def build(self, model: Net) -> None:
        layer, sequence = self.layer, tensor(self.layer.time, self.layer.batch, INPUTS, name="x")
        x = model.input(sequence)
        reversed_x = model.call("REVERSE_V2", [x, constant([self.axes[0]])], replace(sequence, name=""))
        backward = replace(self.backward_layer or layer, seed="back ").loop(model, reversed_x)
        backward_outputs = (
            self.transpose_to_batch_first(model, backward[ALL_OUTPUTS]) if layer.all_outputs else backward[ALL_OUTPUTS]
        )
        if self.reversed_after:
            backward_outputs = model.call(
                "REVERSE_V2",
                [backward_outputs, constant([self.axes[1]])],
                replace(model.spec(backward_outputs), name=""),
            )
        forward = replace(layer, seed="ahead ").loop(model, x)
        forward_outputs = (
            self.transpose_to_batch_first(model, forward[ALL_OUTPUTS]) if layer.all_outputs else forward[ALL_OUTPUTS]
        )
        further_outputs = [
            *([forward[LAST_OUTPUT], backward[LAST_OUTPUT]] if self.states_returned else []),
            *([reversed_x] if self.inner_output else []),
        ]
        model.graph.output(forward_outputs, backward_outputs, *further_outputs)

    def transpose_to_batch_first(self, model: Net, y: TensorRef) -> TensorRef:
        sizes = (self.layer.time, self.layer.batch, UNITS)
        if self.layer.batch == 1 and not self.layer.dynamic_length and self.final_permutation == (1, 0, 2):
            shape = [1, self.layer.time or 0, UNITS]
            return model.call("RESHAPE", [y, constant(shape)], tensor(*shape))
        return model.call(
            "TRANSPOSE",
            [y, constant([*self.final_permutation])],
            tensor(*(sizes[axis] for axis in self.final_permutation)),
        )


FUSED: dict[str, Pair] = {
    **{f"{kind}, every output": Pair(Layer(kind)) for kind in KINDS},
    **{f"{kind}, last output": Pair(Layer(kind, all_outputs=False), reversed_after=False) for kind in KINDS},
    **{
        f"{kind}, without the final reversal": Pair(Layer(kind, batch=3), reversed_after=False, states_returned=True)
        for kind in KINDS
    },
    **{
        f"{kind}, batch of 3 with initial states": Pair(Layer(kind, batch=3, initial_state_inputs=True))
        for kind in KINDS
    },
    **{f"{kind} of dynamic length": Pair(Layer(kind, dynamic_length=True)) for kind in KINDS},
    **{
        f"{kind} of dynamic length, last output": Pair(
            Layer(kind, all_outputs=False, dynamic_length=True), reversed_after=False
        )
        for kind in KINDS
    },
    "LSTM, float16 weights": Pair(Layer(weights="float16")),
    "RNN with RELU": Pair(Layer("RNN", activation="RELU")),
    "LSTM with final states": Pair(states_returned=True),
    "LSTM with an inner output": Pair(inner_output=True),
}
"""Pairs of loops fused to one bidirectional node."""

SEPARATE: dict[str, Pair] = {
    "of different kinds": Pair(Layer("GRU"), backward_layer=Layer("RNN")),
    "of different activations": Pair(Layer("RNN"), backward_layer=Layer("RNN", activation="RELU")),
    "of different weight dtypes": Pair(backward_layer=Layer(weights="float16")),
    "with reversed batches": Pair(Layer(batch=3), axes=(1, 1)),
    "with a final reversal of batches": Pair(Layer(batch=3), axes=(0, 0)),
    "with a different final permutation": Pair(Layer(batch=3), final_permutation=(2, 1, 0)),
    "of two layers": Pair(Layer("RNN", stages=2)),
}
"""Pairs of loops that become separate nodes."""


def cases() -> Iterator[Case]:
    for name, pair in FUSED.items():
        opsets = EVERY_OPSET if name == "GRU of dynamic length" else (None,)
        dynamic_sizes = sizes(pair.layer)
        yield net("WHILE", f"bidirectional layer: {name}", pair.build, opsets=opsets, dynamic_sizes=dynamic_sizes)
    for name, pair in SEPARATE.items():
        yield net("WHILE", f"separate layers {name}", pair.build, dynamic_sizes=(2, 7))
