"""Plain RNNs: activations, directions, auxiliary inputs, states over fifty runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.lstms import initialize_state
from conformance.models import Net, Spec, constant, net, random_array, tensor

STEP, SEQUENCE, BIDIRECTIONAL = "RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"
BATCH, TIME, INPUTS, AUXILIARY, UNITS, BACKWARD_UNITS = 3, 5, 7, 11, 13, 17
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
MANY_RUNS = {"runs": 50}
RESET = {"options": {"state": "reset"}}


@dataclass(frozen=True)
class Rnn:
    """One RNN operator with constant random weights."""

    op: str = SEQUENCE
    weights: str = "float32"  # dtype of matrices
    activation: str = "TANH"
    time_major: bool = False
    batch: int = BATCH
    time: int | None = TIME
    backward_units: int = UNITS  # hidden size of the backward layer
    merge_outputs: bool = True
    auxiliary: int = 0  # width of the auxiliary input, 0 for none
    auxiliary_weights: bool = (
        False  # both layers add the weighted auxiliary input; if False, only the backward one reads it
    )
    variable: bool = True  # states are variable tensors, otherwise graph inputs
    initial_dtype: str = ""  # of the constants that initialize the states; "" for none
    weights_as_inputs: bool = False
    weight_zero_point: int = 0
    asymmetric: bool = False

    def sequence(self, size: int) -> Spec:
        if self.op == STEP:
            return tensor(self.batch, size)
        return tensor(self.time, self.batch, size) if self.time_major else tensor(self.batch, self.time, size)

    def matrix(self, rows: int, columns: int, name: str) -> Spec:
        """Return weights so small that unbounded activations stay small over many runs."""
        if self.weights == "float32":
            weights = constant(0.12 * random_array(rows, columns, seed=name))
            return Spec((rows, columns)) if self.weights_as_inputs else weights
        low, high = (0, 255) if self.weights == "uint8" else (-127, 127)
        return constant(
            random_array(rows, columns, dtype=self.weights, seed=name, low=low, high=high),
            None,
            0.0017,
            self.weight_zero_point,
        )

    def layer(self, model: Net, units: int, name: str) -> list[TensorRef]:
        """Return weights, recurrent weights, bias and state of one direction."""
        specs = [
            self.matrix(units, INPUTS, f"x {name}"),
            self.matrix(units, units, f"h {name}"),
            constant(random_array(units, seed=f"b {name}", low=-0.6, high=0.6)),
        ]
        state_shape = (self.batch, units)
        state = (
            model.graph.tensor(f"hidden {name}", state_shape, variable=True)
            if self.variable
            else model.graph.input(f"hidden {name}", state_shape)
        )
        if self.initial_dtype:
            initialize_state(model.graph, state, self.initial_dtype)
        return [*map(model.add_operand, specs), state]

    def build(self, model: Net) -> None:
        x = model.input(self.sequence(INPUTS))
        operands: list[TensorRef | None] = [x, *self.layer(model, UNITS, "ahead")]
        results = [self.sequence(UNITS)]
        options: dict[str, Any] = {
            "fused_activation_function": self.activation,
            "asymmetric_quantize_inputs": self.asymmetric,
        }
        if self.op != STEP:
            options["time_major"] = self.time_major
        if self.op == BIDIRECTIONAL:
            operands += self.layer(model, self.backward_units, "back")
            operands.append(model.input(self.sequence(self.auxiliary)) if self.auxiliary else None)
            for units, name in ((UNITS, "ahead"), (self.backward_units, "back")):
                auxiliary = self.matrix(units, self.auxiliary, f"auxiliary {name}") if self.auxiliary_weights else None
                operands.append(None if auxiliary is None else model.add_operand(auxiliary))
            options["merge_outputs"] = self.merge_outputs
            results = (
                [self.sequence(UNITS + self.backward_units)]
                if self.merge_outputs
                else [*results, self.sequence(self.backward_units)]
            )
        outputs = [model.result(spec) for spec in results]
        model.graph.operator(self.op, operands, outputs, options)
        model.output(*outputs)

    def case(self, name: str, **case_fields: Any) -> Case:
        return net(self.op, name, self.build, **case_fields)


def rnn(name: str, case_fields: dict[str, Any] | None = None, **fields: Any) -> Case:
    return Rnn(**fields).case(name, **(case_fields or {}))


def cases() -> Iterator[Case]:
    for op in (STEP, SEQUENCE, BIDIRECTIONAL):
        for activation in ACTIVATIONS:
            opsets = {"opsets": EVERY_OPSET} if activation in ("TANH", "RELU6") else {}
            yield rnn(f"float32 with {activation}", opsets, op=op, activation=activation)
        yield rnn("float32, 50 runs", MANY_RUNS, op=op)
        yield rnn("float32 without an activation, 50 runs", MANY_RUNS, op=op, activation="NONE")
        for weights in ("int8", "uint8"):
            yield rnn(f"float32 with {weights} weights", MANY_RUNS, op=op, weights=weights)
            for activation in ("NONE", "RELU", "RELU_N1_TO_1", "RELU6"):
                yield rnn(
                    f"float32 with {weights} weights and {activation}", op=op, weights=weights, activation=activation
                )
        if op != BIDIRECTIONAL:
            known_difference = {"known_failure": "rounding of weights and states changes the sign of a sum near 0"}
            yield rnn(
                "float32 with uint8 weights and SIGN_BIT",
                known_difference,
                op=op,
                weights="uint8",
                activation="SIGN_BIT",
            )
        yield rnn("float32 with int8 weights, asymmetric activations", op=op, weights="int8", asymmetric=True)
        yield rnn("float32 with weights as graph inputs", {"input_range": (-0.3, 0.3)}, op=op, weights_as_inputs=True)
        yield rnn("float32, batch size 1", op=op, batch=1)
        yield rnn("float32 with float16 initial states", op=op, initial_dtype="float16")
        for weights in ("float32", "int8"):
            reset_name = f"float32 with {weights} weights, reset in every run"
            yield rnn(reset_name, RESET, op=op, weights=weights)
            yield rnn(f"{reset_name}, RELU6", RESET, op=op, weights=weights, activation="RELU6")
        yield rnn("float32 with float16 initial states in every run", RESET, op=op, initial_dtype="float16")
        refusal = {"refusal": "not variable tensors"}
        yield rnn("float32 with the state as a graph input", refusal, op=op, variable=False)
        refusal = {"refusal": "nonzero zero points"}
        yield rnn("float32 with nonzero weight zero points", refusal, op=op, weights="int8", weight_zero_point=3)
    for op in (SEQUENCE, BIDIRECTIONAL):
        for activation in ("TANH", "RELU_N1_TO_1"):
            yield rnn(f"float32 with {activation}, time first", op=op, activation=activation, time_major=True)
            yield rnn(f"float32 with {activation}, one time step", op=op, activation=activation, time=1)
            inputs: dict[str, Any] = {"input_arrays": {"x0": random_array(BATCH, TIME, INPUTS)}}
            yield rnn(f"float32 with {activation}, dynamic length", inputs, op=op, activation=activation, time=None)
    yield from bidirectional_cases()


def bidirectional_cases() -> Iterator[Case]:
    for merge_outputs in (True, False):
        suffix = "" if merge_outputs else ", separate outputs"
        for activation in ("TANH", "RELU6"):
            prefix = f"float32 with {activation}"
            yield rnn(
                f"{prefix}, different sizes{suffix}",
                op=BIDIRECTIONAL,
                activation=activation,
                backward_units=BACKWARD_UNITS,
                merge_outputs=merge_outputs,
            )
            yield rnn(
                f"{prefix}, cross-linked{suffix}",
                op=BIDIRECTIONAL,
                activation=activation,
                auxiliary=AUXILIARY,
                auxiliary_weights=True,
                merge_outputs=merge_outputs,
            )
            backward_input: dict[str, Any] = {
                "op": BIDIRECTIONAL,
                "activation": activation,
                "auxiliary": INPUTS,
                "merge_outputs": merge_outputs,
            }
            yield rnn(f"{prefix}, different backward input{suffix}", time_major=True, **backward_input)
            yield rnn(f"{prefix}, unused backward input{suffix}", **backward_input)
        yield rnn(f"float32 time first{suffix}", op=BIDIRECTIONAL, time_major=True, merge_outputs=merge_outputs)
        yield rnn(
            f"float32 with int8 weights, cross-linked{suffix}",
            op=BIDIRECTIONAL,
            weights="int8",
            auxiliary=INPUTS,
            auxiliary_weights=True,
            merge_outputs=merge_outputs,
        )
    auxiliary_weights: dict[str, Any] = {"op": BIDIRECTIONAL, "time_major": True, "auxiliary_weights": True}
    yield rnn("float32 cross-linked, time first", auxiliary=INPUTS, **auxiliary_weights)
    refusal = {"refusal": "for every time step"}
    yield rnn("float32 with int8 weights, time first", refusal, op=BIDIRECTIONAL, weights="int8", time_major=True)
    size_mismatch = {"refusal": "auxiliary input and input differ in size"}
    yield rnn(
        "float32 cross-linked, time first, auxiliary input of another width",
        size_mismatch,
        auxiliary=AUXILIARY,
        **auxiliary_weights,
    )
    yield rnn("float32, wider backward input", size_mismatch, op=BIDIRECTIONAL, auxiliary=AUXILIARY, time_major=True)
    cross_linked: dict[str, Any] = {
        "op": BIDIRECTIONAL,
        "weights": "int8",
        "auxiliary": AUXILIARY,
        "auxiliary_weights": True,
    }
    yield rnn(
        "float32 with int8 weights, cross-linked, auxiliary input of another width", size_mismatch, **cross_linked
    )
