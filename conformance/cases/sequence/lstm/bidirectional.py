"""Bidirectional LSTMs: optional features, outputs, auxiliary inputs, states.

States are carried over fifty runs.
"""

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
FIFTY_RUNS = {"runs": 50}


@dataclass(frozen=True)
class BidirectionalLstm:
    """One bidirectional LSTM."""

    time_major: bool = True
    merge_outputs: bool = True
    auxiliary: int = 0  # width of the auxiliary input, 0 for none
    auxiliary_weights: bool = (
        False  # both LSTMs add the weighted auxiliary input; if False, only the backward one reads it
    )
    batch: int = BATCH
    time: int | None = TIME
    options: tuple[tuple[str, Any], ...] = ()  # of the operator
    lstm_fields: dict[str, Any] = field(default_factory=dict)  # of both LSTMs
    backward_fields: dict[str, Any] = field(default_factory=dict)  # further fields of the backward LSTM

    def layer(self, **further_fields: Any) -> Lstm:
        return Lstm(
            batch=self.batch, time=self.time, time_major=self.time_major, **{**self.lstm_fields, **further_fields}
        )

    def operands(self, model: Net, layer: Lstm, name: str) -> list[TensorRef | None]:
        """Return random matrices, peepholes, biases and projection of one direction."""
        return [None if spec is None else model.add_operand(spec) for spec in NamedOperands(layer, name).operands()[1:]]

    def build(self, model: Net) -> None:
        forward, backward = self.layer(), self.layer(**self.backward_fields)
        x = model.input(forward.x)
        refs: list[TensorRef | None] = [x]
        for layer, name in ((forward, "ahead"), (backward, "back")):
            refs += self.operands(model, layer, name)
        for layer, name in ((forward, "ahead"), (backward, "back")):
            refs.append(layer.state(model, f"{name} hidden", layer.output_size, "float32", (1.0, 0)))
            refs.append(layer.state(model, f"{name} cells", layer.cells, "float32", (1.0, 0)))
        refs.append(model.input(tensor(*forward.sequence_shape(self.auxiliary))) if self.auxiliary else None)
        for layer, name in ((forward, "ahead"), (backward, "back")):
            for gate in GATES:
                has_weights = self.auxiliary_weights and not (layer.coupled and gate == "input")
                weights = layer.matrix(layer.cells, self.auxiliary, f"{name} auxiliary {gate}") if has_weights else None
                refs.append(None if weights is None else model.add_operand(weights))
        widths = (
            [forward.output_size + backward.output_size]
            if self.merge_outputs
            else [forward.output_size, backward.output_size]
        )
        outputs = [model.result(tensor(*forward.sequence_shape(width))) for width in widths]
        options = {"fused_activation_function": "TANH", **dict(self.options)}
        model.graph.operator(
            CODE, refs, outputs, {**options, "time_major": self.time_major, "merge_outputs": self.merge_outputs}
        )
        model.output(*outputs)


class NamedOperands:
    """Operands of an LSTM whose random values depend on a name.

    The values of the two directions therefore differ.
    """

    def __init__(self, layer: Lstm, name: str) -> None:
        self.layer, self.name = layer, name

    def operands(self) -> list[Spec | None]:
        layer, name = self.layer, self.name

        class NamedLstm(Lstm):
            def matrix(self, rows: int, columns: int, role: str, scale: float = 0.0061) -> Spec:
                return super().matrix(rows, columns, f"{name} {role}", scale)

            def bias(self, size: int, role: str, scale: float, bound: float = 0.6) -> Spec:
                return super().bias(size, f"{name} {role}", scale, bound)

            def peephole_weights(self, role: str) -> Spec:
                return super().peephole_weights(f"{name} {role}")

        return NamedLstm(**layer.__dict__).operands()


def bidirectional_case(name: str, case_fields: dict[str, Any] | None = None, **fields: Any) -> Case:
    layer_fields = {key: value for key, value in fields.items() if key in BidirectionalLstm.__dataclass_fields__}
    options = tuple((key, value) for key, value in fields.items() if key not in layer_fields)
    return net(CODE, name, BidirectionalLstm(**layer_fields, options=options).build, **(case_fields or {}))


FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "with clipped cells": {"cell_clip": 0.31},
    "with cells clipped at 10": {"cell_clip": 10.0},
    "with RELU": {"fused_activation_function": "RELU"},
    "with RELU6": {"fused_activation_function": "RELU6"},
    "with RELU_N1_TO_1": {"fused_activation_function": "RELU_N1_TO_1"},
    "with SIGN_BIT": {"fused_activation_function": "SIGN_BIT"},
    "without an input gate": {"lstm_fields": {"coupled": True}},
    "with an input gate in one direction": {"backward_fields": {"coupled": True}},
    "with peepholes": {"lstm_fields": {"peephole": True}},
    "with peepholes in one direction": {"backward_fields": {"peephole": True}},
    "with peepholes, without an input gate": {"lstm_fields": {"peephole": True, "coupled": True}},
    "with a projection": {"lstm_fields": {"projection_size": OUTPUTS}},
    "with a clipped projection": {"lstm_fields": {"projection_size": OUTPUTS}, "proj_clip": 0.23},
    "with states of rank 1": {"lstm_fields": {"flat_states": True}},
}


def cases() -> Iterator[Case]:
    for name, features in FEATURES.items():
        opsets: dict[str, Any] = {"opsets": EVERY_OPSET} if name in ("plain", "with a projection") else {}
        yield bidirectional_case(f"float32 {name}", opsets, **features)
        yield bidirectional_case(f"float32 {name}, separate outputs", merge_outputs=False, **features)
    yield bidirectional_case("float32, 50 runs", FIFTY_RUNS)
    yield bidirectional_case("float32 clipped, 50 runs", FIFTY_RUNS, cell_clip=0.31)
    yield bidirectional_case("float32 batch first", merge_outputs=False, time_major=False)
    yield bidirectional_case("float32 clipped, batch first", merge_outputs=False, time_major=False, cell_clip=0.31)
    yield bidirectional_case("float32, batch size 1, batch first", batch=1, time_major=False)
    yield bidirectional_case("float32, one time step", time=1)
    yield bidirectional_case("float32 with float16 initial states", lstm_fields={"initial_dtype": "float16"})
    for name in ("plain", "with cells clipped at 10", "with a projection"):
        yield bidirectional_case(
            f"float32 {name}, reset in every run", {"options": {"state": "reset"}}, **FEATURES[name]
        )
    for weights in ("int8", "uint8"):
        lstm_fields = {"weights": weights}
        yield bidirectional_case(f"float32 with {weights} weights", FIFTY_RUNS, lstm_fields=lstm_fields)
        yield bidirectional_case(
            f"float32 with {weights} weights, separate outputs", merge_outputs=False, lstm_fields=lstm_fields
        )
        # Over several steps, the projected state would grow, and the rounding errors with it.
        yield bidirectional_case(
            f"float32 with {weights} weights and a projection",
            {"runs": 1},
            time=1,
            lstm_fields={**lstm_fields, "projection_size": OUTPUTS},
        )
        yield bidirectional_case(
            f"float32 with {weights} weights, cross-linked",
            lstm_fields=lstm_fields,
            auxiliary=AUXILIARY,
            auxiliary_weights=True,
        )
    reason = "the cell state has no bound, so the rounding errors of the activations grow from step to step"
    unbounded: dict[str, Any] = {"lstm_fields": {"weights": "int8"}, "fused_activation_function": "RELU"}
    yield bidirectional_case(
        "float32 with int8 weights and RELU, 50 runs", {**FIFTY_RUNS, "known_failure": reason}, **unbounded
    )
    yield bidirectional_case(
        "float32 with int8 weights, asymmetric activations",
        lstm_fields={"weights": "int8"},
        asymmetric_quantize_inputs=True,
    )
    yield from auxiliary_input_cases()
    yield from refusal_cases()


def auxiliary_input_cases() -> Iterator[Case]:
    for merge_outputs in (True, False):
        suffix = "" if merge_outputs else ", separate outputs"
        for name in ("plain", "with clipped cells", "without an input gate", "with a projection"):
            cross_linked: dict[str, Any] = {
                "auxiliary": AUXILIARY,
                "auxiliary_weights": True,
                "merge_outputs": merge_outputs,
            }
            yield bidirectional_case(f"float32 {name}, cross-linked{suffix}", **cross_linked, **FEATURES[name])
            yield bidirectional_case(
                f"float32 {name}, different backward input{suffix}",
                auxiliary=INPUTS,
                merge_outputs=merge_outputs,
                **FEATURES[name],
            )
    yield bidirectional_case(
        "float32 cross-linked, batch first",
        auxiliary=AUXILIARY,
        auxiliary_weights=True,
        merge_outputs=False,
        time_major=False,
    )
    yield bidirectional_case(
        "float32, different backward input, batch first", auxiliary=INPUTS, merge_outputs=False, time_major=False
    )


def refusal_cases() -> Iterator[Case]:
    yield bidirectional_case("float32 merged outputs, batch first", {"refusal": "beyond their end"}, time_major=False)
    yield bidirectional_case(
        "float32, wider backward input",
        {"refusal": "auxiliary input and input differ in size"},
        auxiliary=AUXILIARY,
    )
    yield bidirectional_case(
        "float32 without an activation", {"refusal": "activation NONE"}, fused_activation_function="NONE"
    )
    yield bidirectional_case(
        "float32 with states as graph inputs", {"refusal": "not variable tensors"}, lstm_fields={"variable": False}
    )
    nonzero_zero_point = {"weights": "int8", "weight_zero_point": 3}
    yield bidirectional_case(
        "float32 with nonzero weight zero points", {"refusal": "nonzero zero points"}, lstm_fields=nonzero_zero_point
    )
