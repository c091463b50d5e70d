"""Recurrent layers as loops, as Keras 3 writes them.

Similar loops must not be fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.builder import GraphBuilder, TensorRef, quant
from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, constant, net, random_array, tensor
from onnx_tflite_plugin.source.model import Array

TIME, INPUTS, UNITS = 7, 5, 11
KINDS = ("LSTM", "GRU", "early-reset GRU", "RNN")


@dataclass(frozen=True)
class Layer:
    """Recurrent layer as a loop over ``TIME`` time steps.

    Some field values make a similar loop that must not be fused.
    """

    kind: str = "LSTM"  # of the cells; an early-reset GRU applies the reset gate before the recurrent product
    all_outputs: bool = True  # returns the outputs of all time steps, otherwise of the last
    batch: int = 1
    weights: str = "float32"  # dtype
    initial_state_inputs: bool = False  # initial states are graph inputs, otherwise zeros
    counter_end: int = TIME  # this and the next two fields apply to both counters
    counter_start: int = 0
    counter_step: int = 1
    activation: str = "TANH"  # of the update
    weight_sum: float = 1.0  # sum of the interpolation weights of a GRU
    dynamic_length: bool = False  # the number of time steps is dynamic
    output_activation: str = "TANH"  # applied to the LSTM's cells before the output gate
    stages: int = 1  # consecutive cells, each on the output of the previous one
    fused_activation: bool = False  # the activation is fused into the operator before it
    split_by_sizes: bool = False  # gates are split by SPLIT_V
    defect: str = ""  # deliberate difference from a recurrent layer
    seed: str = ""  # of the weights
    tensor_list: bool = False  # a TensorFlow list without a stored batch size replaces the array

    @property
    def time(self) -> int | None:
        return None if self.dynamic_length else TIME

    @property
    def state_count(self) -> int:
        """Return the number of states of a stage."""
        return 2 if self.kind == "LSTM" else 1

    def build(self, model: Net) -> None:
        model.graph.output(*self.loop(model, model.input(tensor(self.time, self.batch, INPUTS, name="x"))))

    def loop(self, model: Net, x: TensorRef) -> list[TensorRef]:
        """Add the layer; return its last counter, the array of outputs, and the states."""
        states = [self.start(model, f"{self.seed}state{k}") for k in range(self.state_count * self.stages)]
        outputs = (self.time if self.all_outputs else 1, self.batch, UNITS)
        before_loop = Step(model.graph, self)
        bounds = [before_loop.length(x)] if self.dynamic_length else []
        counter = model.add_operand(constant(np.array(self.counter_start, np.int32)))
        carried = [counter, counter, self._array(model, before_loop, bounds), *states, *bounds, x]
        shapes: list[tuple[int | None, ...]] = [(), (), outputs, *[(self.batch, UNITS)] * len(states)]
        shapes += [*[()] * len(bounds), (self.time, self.batch, INPUTS)]
        integer_indices = {0, 1, *range(3 + len(states), 3 + len(states) + len(bounds))}
        dtypes = ["int32" if k in integer_indices else "float32" for k in range(len(shapes))]
        shapes_and_dtypes = list(zip(shapes, dtypes, strict=True))
        cond, body = model.model.subgraph("cond"), model.model.subgraph("body")
        cond_inputs, body_inputs = (
            [self._value(graph, f"v{k}", k, *spec) for k, spec in enumerate(shapes_and_dtypes)]
            for graph in (cond, body)
        )
        cond.inputs += cond_inputs
        body.inputs += body_inputs
        self.condition(cond, cond_inputs)
        self._body(Step(body, self), body_inputs)
        results = [self._value(model.graph, f"{self.seed}r{k}", k, *spec) for k, spec in enumerate(shapes_and_dtypes)]
        indices = {"cond_subgraph_index": cond.index, "body_subgraph_index": body.index}
        model.graph.operator("WHILE", carried, results, indices)
        if self.tensor_list:
            element_shape = model.graph.constant(f"{self.seed}of", np.array([-1, UNITS], np.int32))
            results[2] = before_loop.call("CUSTOM.FlexTensorListStack", [results[2], element_shape], outputs)
        return results[1 : 3 + len(states)]

    def _value(
        self, graph: GraphBuilder, name: str, k: int, shape: tuple[int | None, ...], dtype: str = "float32"
    ) -> TensorRef:
        """Add the tensor of carried value ``k``; value 2 is the array of outputs."""
        if self.tensor_list and k == 2:
            return graph.tensor(name, (), "variant", list_elements=("float32", (None, UNITS)))
        return graph.tensor(name, shape, dtype)

    def start(self, model: Net, name: str) -> TensorRef:
        """Return the initial value of a state."""
        if self.initial_state_inputs:
            return model.input(tensor(self.batch, UNITS, name=name))
        return model.add_operand(constant(np.zeros((self.batch, UNITS)), "float32"))

    def _array(self, model: Net, before_loop: Step, bounds: list[TensorRef]) -> TensorRef:
        if self.tensor_list:
            count = (
                bounds[0]
                if self.dynamic_length and self.all_outputs
                else before_loop.number(TIME if self.all_outputs else 1)
            )
            result = self._value(model.graph, f"{self.seed}list", 2, ())
            model.graph.operator("CUSTOM.FlexTensorListReserve", [before_loop.vector(-1, UNITS), count], [result])
            return result
        if not (self.dynamic_length and self.all_outputs):
            return model.add_operand(
                constant(np.zeros((TIME if self.all_outputs else 1, self.batch, UNITS)), "float32")
            )
        rows = before_loop.call("RESHAPE", [bounds[0], before_loop.vector(1)], (1,), "int32")
        sizes = before_loop.call("CONCATENATION", [rows, before_loop.vector(self.batch, UNITS)], (3,), "int32")
        return before_loop.call(
            "FILL", [sizes, before_loop.constant(np.array(0, np.float32))], (None, self.batch, UNITS)
        )

    def condition(self, graph: GraphBuilder, values: list[TensorRef]) -> None:
        """Add the condition: both counters are below the bound."""
        is_below = [graph.tensor(f"less{k}", (), "bool") for k in range(2)]
        for k in range(2):
            bound = values[~1] if self.dynamic_length else graph.constant(f"n{k}", np.array(self.counter_end, np.int32))
            graph.operator("LESS", [values[k], bound], [is_below[k]])
        both = graph.tensor("both", (), "bool")
        graph.operator("LOGICAL_AND", is_below, [both])
        graph.output(both)

    def _body(self, step: Step, values: list[TensorRef]) -> None:
        (i, t, array), x, n = values[:3], values[~0], self.state_count
        states, unchanged_values = values[3 : 3 + n * self.stages], values[3 + n * self.stages :]
        increment = step.number(self.counter_step)
        next_counters = [step.call("ADD", [i, increment], (), "int32"), step.call("ADD", [t, increment], (), "int32")]
        cell_input, states_after_step = step.call("GATHER", [x, t], (self.batch, INPUTS)), list[TensorRef]()
        cells: dict[str, Callable[..., list[TensorRef]]]
        cells = {"LSTM": step.lstm, "GRU": step.gru, "early-reset GRU": step.early_reset_gru, "RNN": step.rnn}
        for k in range(0, len(states), n):
            step.inputs = UNITS if k else INPUTS
            new_states = cells[self.kind](cell_input, *states[k : k + n])
            cell_input = new_states[0]
            states_after_step += new_states
        if self.tensor_list:
            new_list = self._value(step.graph, "new list", 2, ())
            row_index = t if self.all_outputs else step.number(0)
            step.graph.operator("CUSTOM.FlexTensorListSetItem", [array, row_index, cell_input], [new_list])
            step.graph.output(*next_counters, new_list, *states_after_step, *unchanged_values)
            return
        row = step.call("RESHAPE", [cell_input, step.vector(1, self.batch, UNITS)], (1, self.batch, UNITS))
        step.graph.output(
            *next_counters,
            step.replace_row(array, row, t, next_counters[1]) if self.all_outputs else row,
            *states_after_step,
            *unchanged_values,
        )


@dataclass
class Step:
    """The body of a loop: operators of one time step."""

    graph: GraphBuilder
    layer: Layer
    inputs: int = INPUTS

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

    def length(self, x: TensorRef) -> TensorRef:
        """Return the number of time steps, or the batch size if the defect is "axis"."""
        first = 1 if self.layer.defect == "axis" else 0
        bounds = [self.vector(first), self.vector(first + 1), self.vector(1)]
        return self.call(
            "STRIDED_SLICE",
            [self.call("SHAPE", [x], (3,), "int32", out_type="INT32"), *bounds],
            (),
            "int32",
            shrink_axis_mask=1,
        )

    def activate_sum(self, *sums: TensorRef) -> TensorRef:
        """Return the activated sum of two products."""
        if self.layer.fused_activation:
            return self.call("ADD", [*sums], (self.layer.batch, UNITS), fused_activation_function=self.layer.activation)
        return self.elementwise(self.layer.activation, self.elementwise("ADD", *sums))

    def number(self, value: int) -> TensorRef:
        return self.constant(np.array(value, np.int32))

    def vector(self, *values: int) -> TensorRef:
        return self.constant(np.array(values, np.int32))

    def elementwise(self, code: str, *inputs: TensorRef) -> TensorRef:
        return self.call(code, list(inputs), (self.layer.batch, UNITS))

    def product(self, x: TensorRef, inputs: int, rows: int, bias: bool, seed: str) -> TensorRef:
        """Add a FULLY_CONNECTED with weights of the layer's dtype."""
        array = random_array(rows, inputs, dtype="float32", seed=self.layer.seed + seed) * 0.4
        biases = (
            [self.constant(random_array(rows, dtype="float32", seed=f"{self.layer.seed}{seed} bias"))]
            if bias
            else [None]
        )
        options = {"fused_activation_function": "TANH"} if self.layer.defect == "products" else {}
        return self.call("FULLY_CONNECTED", [x, self._weight(array), *biases], (self.layer.batch, rows), **options)

    def _weight(self, array: Array) -> TensorRef:
        name, dtype = f"w{len(self.graph.tensors)}", self.layer.weights
        if dtype == "float16":
            half = self.graph.constant(f"{name}/half", array.astype(np.float16))
            return self.call("DEQUANTIZE", [half], array.shape)
        if dtype == "int8":
            step = float(np.abs(array).max()) / 127
            return self.graph.constant(name, np.round(array / step).astype(np.int8), quantization=quant(step))
        return self.constant(array)

    def split_gates(self, sums: TensorRef, count: int) -> list[TensorRef]:
        gates = [
            self.graph.tensor(f"part{len(self.graph.tensors) + k}", (self.layer.batch, UNITS)) for k in range(count)
        ]
        if self.layer.split_by_sizes:
            sizes = self.vector(*[UNITS] * (count - 1), -1)
            self.graph.operator("SPLIT_V", [sums, sizes, self.number(-1)], gates, {"num_splits": count})
        else:
            self.graph.operator("SPLIT", [self.number(1), sums], gates, {"num_splits": count})
        return gates

    def slice_gate(self, sums: TensorRef, k: int) -> TensorRef:
        bounds = [self.vector(0, k * UNITS), self.vector(0, (k + 1) * UNITS), self.vector(1, 1)]
        return self.call("STRIDED_SLICE", [sums, *bounds], (self.layer.batch, UNITS), begin_mask=1, end_mask=1)

    def lstm(self, x: TensorRef, h: TensorRef, c: TensorRef) -> list[TensorRef]:
        rows = 4 * UNITS
        shape = (self.layer.batch, rows)
        recurrent_sums = self.product(h, UNITS, rows, False, "recurrent")
        if self.layer.batch == 1:
            recurrent_sums = self.call("RESHAPE", [recurrent_sums, self.vector(rows)], (rows,))
        sums = self.call("ADD", [self.product(x, self.inputs, rows, False, "inward"), recurrent_sums], shape)
        sums = self.call("ADD", [sums, self.constant(random_array(rows, dtype="float32", seed="b"))], shape)
        i, f, g, o = self.split_gates(sums, 4)
        kept_cells = self.elementwise("MUL", self.elementwise("LOGISTIC", f), h if self.layer.defect == "cells" else c)
        update = self.elementwise("MUL", self.elementwise("LOGISTIC", i), self.elementwise(self.layer.activation, g))
        cells = self.elementwise("ADD", kept_cells, update)
        hidden = self.elementwise(
            "MUL", self.elementwise("LOGISTIC", o), self.elementwise(self.layer.output_activation, cells)
        )
        return [hidden, cells]

    def gru(self, x: TensorRef, h: TensorRef) -> list[TensorRef]:
        recurrent_sums = self.product(h, UNITS, 3 * UNITS, True, "recurrent")
        zx, rx, nx = self.split_gates(self.product(x, self.inputs, 3 * UNITS, True, "inward"), 3)
        z = self.elementwise("LOGISTIC", self.elementwise("ADD", zx, self.slice_gate(recurrent_sums, 0)))
        r = self.elementwise("LOGISTIC", self.elementwise("ADD", rx, self.slice_gate(recurrent_sums, 1)))
        return [
            self._interpolate(
                z, h, self.activate_sum(nx, self.elementwise("MUL", r, self.slice_gate(recurrent_sums, 2)))
            )
        ]

    def early_reset_gru(self, x: TensorRef, h: TensorRef) -> list[TensorRef]:
        recurrent_sums = self.product(h, UNITS, 2 * UNITS, False, "recurrent")
        zx, rx, nx = self.split_gates(self.product(x, self.inputs, 3 * UNITS, True, "inward"), 3)
        z = self.elementwise("LOGISTIC", self.elementwise("ADD", zx, self.slice_gate(recurrent_sums, 0)))
        r = self.elementwise("LOGISTIC", self.elementwise("ADD", rx, self.slice_gate(recurrent_sums, 1)))
        reset = self.product(self.elementwise("MUL", r, h), UNITS, UNITS, False, "reset")
        return [self._interpolate(z, h, self.activate_sum(nx, reset))]

    def _interpolate(self, z: TensorRef, h: TensorRef, update: TensorRef) -> TensorRef:
        update_weight = self.elementwise("SUB", self.constant(np.array(self.layer.weight_sum, np.float32)), z)
        return self.elementwise("ADD", self.elementwise("MUL", z, h), self.elementwise("MUL", update_weight, update))

    def rnn(self, x: TensorRef, h: TensorRef) -> list[TensorRef]:
        inward, recurrent_sums = (
            self.product(x, self.inputs, UNITS, True, "inward"),
            self.product(h, UNITS, UNITS, False, "back"),
        )
        return [self.activate_sum(inward, recurrent_sums)]

    def replace_row(self, array: TensorRef, row: TensorRef, row_index: TensorRef, next_index: TensorRef) -> TensorRef:
        """Return the array with one row replaced.

        The rows before it, the new row, and the rows after it are concatenated.
        """
        batch, flat = self.layer.batch, self.vector(1)
        head_sizes = self.call(
            "CONCATENATION",
            [self.call("RESHAPE", [row_index, flat], (1,), "int32"), self.vector(-1, -1)],
            (3,),
            "int32",
        )
        tail_begin = self.call("RESHAPE", [next_index, flat], (1,), "int32")
        tail_begin = self.call("CONCATENATION", [tail_begin, self.vector(0, 0)], (3,), "int32")
        head = self.call("SLICE", [array, self.vector(0, 0, 0), head_sizes], (None, None, None))
        tail = self.call("SLICE", [array, tail_begin, self.vector(-1, -1, -1)], (None, batch, UNITS))
        return self.call("CONCATENATION", [head, row, tail], (self.layer.time, batch, UNITS), axis=0)


LAYERS: dict[str, Layer] = {
    **{f"{kind}, every output": Layer(kind) for kind in KINDS},
    **{f"{kind}, last output": Layer(kind, all_outputs=False) for kind in KINDS},
    **{f"{kind}, batch of 3 with initial states": Layer(kind, batch=3, initial_state_inputs=True) for kind in KINDS},
    **{f"{kind}, float16 weights": Layer(kind, weights="float16") for kind in KINDS},
    **{f"{kind} with RELU": Layer(kind, activation="RELU", output_activation="RELU") for kind in KINDS},
    **{f"{kind} with fused RELU": Layer(kind, activation="RELU", fused_activation=True) for kind in KINDS[1:]},
    **{f"{kind} with gates split by SPLIT_V": Layer(kind, split_by_sizes=True) for kind in KINDS[:2]},
    "RNN with LOGISTIC": Layer("RNN", activation="LOGISTIC"),
    "LSTM with different activations": Layer(activation="LOGISTIC"),
    **{f"{kind} of two layers": Layer(kind, stages=2) for kind in KINDS},
    **{f"{kind} of dynamic length": Layer(kind, dynamic_length=True) for kind in KINDS},
    **{f"{kind} of dynamic length, last output": Layer(kind, all_outputs=False, dynamic_length=True) for kind in KINDS},
    **{
        f"{kind} of dynamic length with initial states": Layer(kind, initial_state_inputs=True, dynamic_length=True)
        for kind in KINDS
    },
}
SIMILAR: dict[str, Layer] = {
    "fewer steps than the sequence has": Layer(counter_end=TIME - 2),
    "every other time step": Layer("GRU", all_outputs=False, counter_step=2),
    "counter that starts at 1": Layer("RNN", counter_start=1),
    "unsupported update function": Layer("LSTM", activation="SIN"),
    "fused TANH, which the kernel ignores": Layer("RNN", activation="TANH", fused_activation=True),
    "products with fused TANH": Layer("RNN", weights="int8", defect="products"),
    "unsupported GRU update function": Layer("GRU", activation="SIN"),
    "GRU weights that do not sum to 1": Layer("GRU", weight_sum=1.5),
    "cell state without the output gate": Layer("LSTM", defect="cells"),
    "time steps from a different axis": Layer("RNN", dynamic_length=True, all_outputs=False, defect="axis"),
}


def cases() -> Iterator[Case]:
    for name, layer in LAYERS.items():
        opsets = EVERY_OPSET if name.endswith("every output") else (None,)
        yield net("WHILE", f"recurrent layer: {name}", layer.build, opsets=opsets, dynamic_sizes=sizes(layer))
    for name, layer in SIMILAR.items():
        yield net(
            "WHILE",
            f"no recurrent layer: {name}",
            replace(layer, initial_state_inputs=True).build,
            dynamic_sizes=(2, 7),
        )


def sizes(layer: Layer) -> tuple[int, ...]:
    """Return lengths to try; LiteRT cannot return an array without rows."""
    return (0, 2, 7) if layer.dynamic_length and not layer.all_outputs else (2, 7)
