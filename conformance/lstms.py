"""Models of one LSTM operator with any combination of its optional features."""

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
STATE_QUANTIZATION = (0.0081, -3)


def initialize_state(graph: GraphBuilder, state: TensorRef, dtype: str) -> None:
    """Add a DEQUANTIZE of a constant that computes the initial value of a state.

    Float16 files define initial values in this way. ``dtype``: dtype of the constant.
    """
    value = random_array(*state.shape, seed=state.name, low=-0.7, high=0.7).astype(dtype)
    graph.operator("DEQUANTIZE", [graph.constant(f"{state.name}:begun", value)], [state])


@dataclass(frozen=True)
class Lstm:
    """One LSTM operator with constant random weights.

    Each field adds or changes one feature. The effect of a boolean field is described for True.

    ``dtype``: dtype of activations. ``weights``: dtype of matrices. ``projection_size``: size of the projection, or 0
    for none. ``coupled``: the input gate is 1 minus the forget gate. ``omit_norm_operands``: the operator has 20 operands,
    without the four of layer normalization. ``float16_constants``: constants are stored as float16 and dequantized.
    ``weights_as_inputs``: matrices are graph inputs. ``diagonal_weights``: recurrent weights are vectors.

    ``variable``: states are variable tensors; if False, they are graph inputs. ``flat_states``: states have rank 1.
    ``initial_dtype``: dtype of the constants that initialize the states, or "" for no constants.
    ``hidden_quantization``: (scale, zero point) of the output before the projection. ``output_quantization``: (scale, zero
    point) of the result.

    ``gate_bias`` is added to the biases of the input and forget gates, so that cells accumulate. ``hold_cells``: the biases
    nearly close the input gate and open the forget gate, so that cells change little. ``output_gate_closing``: magnitude
    of the negative weights with which positive inputs close the output gate. ``weight_factor`` multiplies all matrices;
    with many cells and large weights, differences grow in each time step.
    """

    op: str = SEQUENCE
    dtype: str = "float32"
    weights: str = "float32"
    time_major: bool = False
    coupled: bool = False
    peephole: bool = False
    layer_norm: bool = False
    projection_size: int = 0
    projection_bias: bool = True
    flat_states: bool = False
    omit_norm_operands: bool = False
    unranked_result: bool = False
    variable: bool = True
    initial_dtype: str = ""
    diagonal_weights: bool = False
    scale_per_row: bool = False
    weights_as_inputs: bool = False
    weight_zero_point: int = 0
    intermediates: int = 5
    cells_scale: float = 2**-12
    batch: int = BATCH
    time: int | None = TIME
    inputs: int = INPUTS
    cells: int = CELLS
    hidden_quantization: tuple[float, int] = STATE_QUANTIZATION
    output_quantization: tuple[float, int] = STATE_QUANTIZATION
    gate_bias: float = 0.0
    output_gate_closing: float = 0.0
    hold_cells: bool = False
    weight_factor: float = 1.0
    seed: str = ""
    float16_constants: bool = False
    options: tuple[tuple[str, Any], ...] = ()

    # --- operands -----------------------------------------------------------------------------

    @property
    def output_size(self) -> int:
        return self.projection_size or self.cells

    def sequence_shape(self, size: int) -> tuple[int | None, ...]:
        if self.op == STEP:
            return (self.batch, size)
        return (self.time, self.batch, size) if self.time_major else (self.batch, self.time, size)

    @property
    def x(self) -> Spec:
        return tensor(
            *self.sequence_shape(self.inputs), dtype=self.dtype, scale=0.031 if self.dtype == "int8" else None
        )

    @property
    def y(self) -> Spec:
        spec = tensor(*self.sequence_shape(self.output_size), dtype=self.dtype)
        return (
            spec
            if self.dtype == "float32"
            else replace(spec, scale=self.output_quantization[0], zero_point=self.output_quantization[1])
        )

    def matrix(self, rows: int, columns: int, name: str, scale: float = 0.0061) -> Spec:
        if self.weights == "float32":
            weights = constant(0.6 * self.weight_factor * random_array(rows, columns, seed=self.seed + name))
            if self.output_gate_closing and name == "x output":
                weights = constant(-self.output_gate_closing * np.abs(random_array(rows, columns, seed=name)))
            return Spec((rows, columns)) if self.weights_as_inputs else weights
        low, high = (0, 255) if self.weights == "uint8" else (-127, 127)
        scale *= self.weight_factor
        scales = (
            (scale * random_array(rows, seed="scales", low=0.4, high=1.6)).tolist() if self.scale_per_row else scale
        )
        return constant(
            random_array(rows, columns, dtype=self.weights, seed=self.seed + name, low=low, high=high),
            None,
            scales,
            self.weight_zero_point,
        )

    def bias(self, size: int, name: str, scale: float, bound: float = 0.6) -> Spec:
        """Return a bias: random values up to ``bound``, plus an offset of the gate.

        The bias is float32. If activations are int8, it is int32 with the scale ``scale``.
        """
        offsets = {
            "b input": -4.0 if self.hold_cells else self.gate_bias,
            "b forget": 7.0 if self.hold_cells else self.gate_bias,
        }
        values = random_array(size, seed=self.seed + name, low=-bound, high=bound) + offsets.get(name, 0)
        if self.dtype == "float32":
            return constant(values)
        return constant((values / scale).astype("int32"), "int32", scale)

    def coefficients(self, size: int, name: str) -> Spec:
        """Return normalization coefficients: int16 if activations are int8, else float32."""
        if self.dtype == "int8":
            return constant(random_array(size, dtype="int16", seed=name), None, 2.1e-5)
        return constant(0.5 * random_array(size, seed=self.seed + name))

    def peephole_weights(self, name: str) -> Spec:
        """Return peephole weights.

        They are int16 if activations are int8; otherwise they have the dtype of the matrices.
        """
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
        size, recurrent_shape = self.cells, (self.cells, self.output_size)
        matrices = [None if gate is None else self.matrix(size, self.inputs, f"x {gate}") for gate in gates]
        recurrent = [None if gate is None else self.matrix(*recurrent_shape, f"h {gate}") for gate in gates]
        if self.diagonal_weights:
            recurrent = [None if gate is None else constant(random_array(self.cells, seed=gate)) for gate in gates]
        peepholes = [
            None if gate is None or not self.peephole else self.peephole_weights(f"c {gate}") for gate in gates
        ]
        bias_scale = 2.1e-5 / 1024 if self.layer_norm else 0.031 * 0.0061
        biases = [None if gate is None else self.bias(size, f"b {gate}", bias_scale) for gate in gates]
        projection = self.matrix(self.projection_size, size, "projection") if self.projection_size else None
        projection_bias = (
            self.bias(self.projection_size, "projection bias", 0.0061 * self.hidden_quantization[0])
            if self.projection_size and self.projection_bias
            else None
        )
        return [
            self.x,
            *matrices,
            *recurrent,
            peepholes[0],
            peepholes[1],
            peepholes[3],
            *biases,
            projection,
            projection_bias,
        ]

    def norm_coefficients(self) -> list[Spec | None]:
        """Return the operands of layer normalization, which follow the states."""
        if self.omit_norm_operands:
            return []
        gates = [None if not self.layer_norm or (self.coupled and gate == "input") else gate for gate in GATES]
        return [None if gate is None else self.coefficients(self.cells, f"norm {gate}") for gate in gates]

    # --- the operator -------------------------------------------------------------------------

    def state(self, model: Net, name: str, size: int, dtype: str, scale_and_zero_point: tuple[float, int]) -> TensorRef:
        shape = (self.batch * size,) if self.flat_states else (self.batch, size)
        quantization = quant(*scale_and_zero_point) if self.dtype == "int8" else None
        if not self.variable:
            return model.graph.input(name, shape, dtype, quantization=quantization)
        state = model.graph.tensor(name, shape, dtype, quantization=quantization, variable=True)
        if self.initial_dtype:
            initialize_state(model.graph, state, self.initial_dtype)
        return state

    def intermediate_tensors(self, model: Net) -> Sequence[TensorRef]:
        """Return the intermediate tensors. They only store scales and zero points."""
        if self.dtype != "int8":
            return ()
        dtypes_and_scales: list[tuple[str, Table | None]] = [
            ("int16" if self.layer_norm else "float32", quant(0.00017 * (k + 2)) if self.layer_norm else None)
            for k in range(self.intermediates - 1)
        ]
        dtypes_and_scales.append(("int8", quant(*self.hidden_quantization)))
        return [
            model.graph.tensor(f"between {k}", (0,), dtype, quantization=quantization)
            for k, (dtype, quantization) in enumerate(dtypes_and_scales)
        ]

    def add_weights(self, model: Net, spec: Spec) -> TensorRef:
        """Add weights, either as they are or as a float16 constant and a DEQUANTIZE."""
        if not self.float16_constants or spec.value is None or spec.dtype != "float32":
            return model.add_operand(spec)
        weights = constant(spec.value.astype("float16"), "float16")
        return model.call("DEQUANTIZE", [weights], tensor(*spec.shape))

    def call(self, model: Net, x: TensorRef | None = None, name: str = "") -> TensorRef:
        """Add the operator on ``x``, or on a new graph input if ``x`` is None.

        ``name`` is a prefix of the names of the states.
        """
        specs = self.operands()
        refs = [None if spec is None else self.add_weights(model, spec) for spec in (specs if x is None else specs[1:])]
        refs = refs if x is None else [x, *refs]
        hidden = self.state(model, f"{name}hidden", self.output_size, self.dtype, STATE_QUANTIZATION)
        cells = self.state(
            model, f"{name}cells", self.cells, "int16" if self.dtype == "int8" else "float32", (self.cells_scale, 0)
        )
        coefficients = [None if spec is None else model.add_operand(spec) for spec in self.norm_coefficients()]
        y = model.result(self.y)
        options = {"fused_activation_function": "TANH", **dict(self.options)}
        if self.op == SEQUENCE:
            options["time_major"] = self.time_major
        operands = [*refs, hidden, cells, *coefficients]
        model.graph.operator(self.op, operands, [y], options, intermediates=self.intermediate_tensors(model))
        return y

    def build(self, model: Net) -> None:
        y = self.call(model)
        model.output(y)
        if self.unranked_result:
            fields = {**model.graph.tensors[y].fields, "shape": (), "has_rank": False}
            model.graph.tensors[y] = Table("Tensor", fields)

    def case(self, name: str, **case_fields: Any) -> Case:
        return net(self.op, name, self.build, **{"dtype": self.dtype, **case_fields})
