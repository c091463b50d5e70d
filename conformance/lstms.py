"""One LSTM with everything it may have, for cases and tests: its operands, its states, its intermediates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.builder import GraphBuilder, TensorRef, quant
from conformance.case import Case
from conformance.models import Net, Spec, constant, net, random_array, tensor
from conformance.schema import Table

SEQUENCE, STEP = "UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM"
BATCH, TIME, INPUTS, CELLS = 3, 5, 7, 11
GATES = ("input", "forget", "cell", "output")
STATE = (0.0081, -3)


def begin(graph: GraphBuilder, state: TensorRef, dtype: str) -> None:
    """Add a variable tensor initialized by constants of another dtype, as in float16 files."""
    value = random_array(*state.shape, seed=state.name, low=-0.7, high=0.7).astype(dtype)
    graph.operator("DEQUANTIZE", [graph.constant(f"{state.name}:begun", value)], [state])


@dataclass(frozen=True)
class Lstm:
    """One operator. ``initial_dtype``: dtype of its initial states. ``halved``: its constants are float16.

    ``dtype``: of activations. ``weights``: dtype of matrices. ``outputs``: size of the projection, or 0.

    ``open``: added to the input and forget gates, so that cells accumulate. ``shuts``: how fast positive inputs close
    the output gate. ``holds``: cells change little. ``reach``: a factor of all matrices;
    with many cells and large weights, differences grow in each time step.
    """

    op: str = SEQUENCE
    dtype: str = "float32"
    weights: str = "float32"
    major: bool = False
    coupled: bool = False
    peephole: bool = False
    norm: bool = False
    outputs: int = 0
    biased: bool = True
    flat: bool = False
    short: bool = False
    shapeless: bool = False
    variable: bool = True
    initial_dtype: str = ""
    diagonal: bool = False
    per_row: bool = False
    given: bool = False
    point: int = 0
    intermediates: int = 5
    cells_scale: float = 2**-12
    batch: int = BATCH
    time: int | None = TIME
    inputs: int = INPUTS
    cells: int = CELLS
    hidden: tuple[float, int] = STATE
    read: tuple[float, int] = STATE
    open: float = 0.0
    shuts: float = 0.0
    holds: bool = False
    reach: float = 1.0
    seed: str = ""
    halved: bool = False
    options: tuple[tuple[str, Any], ...] = ()

    # --- operands -----------------------------------------------------------------------------

    @property
    def output_size(self) -> int:
        return self.outputs or self.cells

    def sequence_shape(self, size: int) -> tuple[int | None, ...]:
        if self.op == STEP:
            return (self.batch, size)
        return (self.time, self.batch, size) if self.major else (self.batch, self.time, size)

    @property
    def x(self) -> Spec:
        return tensor(
            *self.sequence_shape(self.inputs), dtype=self.dtype, scale=0.031 if self.dtype == "int8" else None
        )

    @property
    def y(self) -> Spec:
        spec = tensor(*self.sequence_shape(self.output_size), dtype=self.dtype)
        return spec if self.dtype == "float32" else replace(spec, scale=self.read[0], zero_point=self.read[1])

    def matrix(self, rows: int, columns: int, name: str, size: float = 0.0061) -> Spec:
        if self.weights == "float32":
            weights = constant(0.6 * self.reach * random_array(rows, columns, seed=self.seed + name))
            if self.shuts and name == "x output":
                weights = constant(-self.shuts * np.abs(random_array(rows, columns, seed=name)))
            return Spec((rows, columns)) if self.given else weights
        low, high = (0, 255) if self.weights == "uint8" else (-127, 127)
        size *= self.reach
        scales = (size * random_array(rows, seed="scales", low=0.4, high=1.6)).tolist() if self.per_row else size
        return constant(
            random_array(rows, columns, dtype=self.weights, seed=self.seed + name, low=low, high=high),
            None,
            scales,
            self.point,
        )

    def vector(self, size: int, name: str, step: float, most: float = 0.6) -> Spec:
        """Return a bias or coefficients: float32, or int32 and int16 of scale ``step``."""
        more = {"b input": -4.0 if self.holds else self.open, "b forget": 7.0 if self.holds else self.open}
        values = random_array(size, seed=self.seed + name, low=-most, high=most) + more.get(name, 0)
        if self.dtype == "float32":
            return constant(values)
        return constant((values / step).astype("int32"), "int32", 1.0)

    def coefficients(self, size: int, name: str) -> Spec:
        """Return the coefficients of a layer normalization: int16 if activations are int8, else float32."""
        if self.dtype == "int8":
            return constant(random_array(size, dtype="int16", seed=name), None, 2.1e-5)
        return constant(0.5 * random_array(size, seed=self.seed + name))

    def peephole_weights(self, name: str) -> Spec:
        """Return peephole weights in the dtype of the matrices; int16 if activations are int8."""
        if self.dtype == "int8" or self.weights == "float32":
            return self.coefficients(self.cells, name)
        return constant(
            random_array(self.cells, dtype=self.weights, seed=name, low=0 if self.weights == "uint8" else -127),
            None,
            0.005,
        )

    def operands(self) -> list[Spec | None]:
        """Return all operands except the states, which follow operand 18."""
        gates = [None if self.coupled and gate == "input" else gate for gate in GATES]
        size, shape = self.cells, (self.cells, self.output_size)
        matrices = [None if gate is None else self.matrix(size, self.inputs, f"x {gate}") for gate in gates]
        recurrent = [None if gate is None else self.matrix(*shape, f"h {gate}") for gate in gates]
        if self.diagonal:
            recurrent = [None if gate is None else constant(random_array(self.cells, seed=gate)) for gate in gates]
        peepholes = [
            None if gate is None or not self.peephole else self.peephole_weights(f"c {gate}") for gate in gates
        ]
        step = 2.1e-5 / 1024 if self.norm else 0.031 * 0.0061
        biases = [None if gate is None else self.vector(size, f"b {gate}", step) for gate in gates]
        projection = self.matrix(self.outputs, size, "projection") if self.outputs else None
        added = (
            self.vector(self.outputs, "projection bias", 0.0061 * self.hidden[0])
            if self.outputs and self.biased
            else None
        )
        return [self.x, *matrices, *recurrent, peepholes[0], peepholes[1], peepholes[3], *biases, projection, added]

    def norms(self) -> list[Spec | None]:
        if self.short:
            return []
        kept = [None if not self.norm or (self.coupled and gate == "input") else gate for gate in GATES]
        return [None if gate is None else self.coefficients(self.cells, f"norm {gate}") for gate in kept]

    # --- the operator -------------------------------------------------------------------------

    def state(self, model: Net, name: str, size: int, dtype: str, scale: tuple[float, int]) -> TensorRef:
        shape = (self.batch * size,) if self.flat else (self.batch, size)
        kept = quant(*scale) if self.dtype == "int8" else None
        if not self.variable:
            return model.graph.input(name, shape, dtype, quantization=kept)
        state = model.graph.tensor(name, shape, dtype, quantization=kept, variable=True)
        if self.initial_dtype:
            begin(model.graph, state, self.initial_dtype)
        return state

    def between(self, model: Net) -> Sequence[TensorRef]:
        """Return the intermediate tensors, which hold only scales."""
        if self.dtype != "int8":
            return ()
        kinds = [
            ("int16" if self.norm else "float32", quant(0.00017 * (k + 2)) if self.norm else None)
            for k in range(self.intermediates - 1)
        ]
        kinds.append(("int8", quant(*self.hidden)))
        return [
            model.graph.tensor(f"between {k}", (0,), dtype, quantization=quantization)
            for k, (dtype, quantization) in enumerate(kinds)
        ]

    def place_weights(self, model: Net, spec: Spec) -> TensorRef:
        """Add the weights; float16 constants are followed by DEQUANTIZE, as in converted files."""
        if not self.halved or spec.value is None or spec.dtype != "float32":
            return model.place(spec)
        weights = constant(spec.value.astype("float16"), "float16")
        return model.call("DEQUANTIZE", [weights], tensor(*spec.shape))

    def call(self, model: Net, x: TensorRef | None = None, name: str = "") -> TensorRef:
        specs = self.operands()
        refs = [
            None if spec is None else self.place_weights(model, spec) for spec in (specs if x is None else specs[1:])
        ]
        refs = refs if x is None else [x, *refs]
        small = self.dtype == "int8"
        hidden = self.state(model, f"{name}hidden", self.output_size, self.dtype, STATE)
        cells = self.state(model, f"{name}cells", self.cells, "int16" if small else "float32", (self.cells_scale, 0))
        norms = [None if spec is None else model.place(spec) for spec in self.norms()]
        y = model.result(self.y)
        options = {"fused_activation_function": "TANH", **dict(self.options)}
        if self.op == SEQUENCE:
            options["time_major"] = self.major
        operands = [*refs, hidden, cells, *norms]
        model.graph.operator(self.op, operands, [y], options, intermediates=self.between(model))
        return y

    def build(self, model: Net) -> None:
        y = self.call(model)
        model.output(y)
        if self.shapeless:
            fields = {**model.graph.tensors[y].fields, "shape": (), "has_rank": False}
            model.graph.tensors[y] = Table("Tensor", fields)

    def case(self, name: str, **case: Any) -> Case:
        return net(self.op, name, self.build, **{"dtype": self.dtype, **case})
