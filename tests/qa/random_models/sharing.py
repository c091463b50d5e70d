"""Random weights that operators of different kinds share.

They are in one subgraph, or in several branches, loops or signatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import Case
from conformance.cases.control.branches import CONDITION, CONDITION_RUNS, add_branches
from conformance.cases.control.loops import PLANS, loop
from conformance.models import Net, Spec, constant, net
from onnx_tflite_plugin.source.model import Array
from tests.qa.random_models.draw import ACTIVATION_DTYPES, FUSED, Draw, Operand, case_generator, weight_operand
from tests.qa.random_models.windows import bias, bias_type, result_spec

AXES = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 0}
"""The weights' axis of output channels."""
IMAGE = (2, 5, 7)


@dataclass(frozen=True)
class Use:
    """One operator on the shared weights.

    ``w`` has the operator's own shape and scales; only the buffer is shared.
    """

    kind: str
    x: Spec
    w: Spec
    b: Sequence[Operand | None]
    y: Spec
    options: dict[str, Any]

    def emit(self, graph: GraphBuilder, x: TensorRef, buffer: int) -> TensorRef:
        count = len(graph.tensors)
        w = graph.tensor(f"w{count}", self.w.shape, self.w.dtype, quantization=self.w.quantization, buffer=buffer)
        biases = [None if bias is None else add_constant(graph, bias.spec, f"b{count}") for bias in self.b]
        operands: list[TensorRef | None] = [x, w, *biases]
        if self.kind == "TRANSPOSE_CONV":
            operands = [graph.constant(f"size{count}", np.array(self.y.shape, np.int32)), w, x, *operands[2:]]
        y = graph.tensor(f"t{count}", self.y.shape, self.y.dtype, quantization=self.y.quantization)
        graph.operator(self.kind, operands, [y], self.options)
        return y


def add_constant(graph: GraphBuilder, spec: Spec, name: str) -> TensorRef:
    assert spec.value is not None
    return graph.constant(name, spec.value, spec.dtype, quantization=spec.quantization)


def draw_use(draw: Draw, kind: str, weights: Array, x_dtype: str, keeps_parameters: bool = False) -> Use:
    """Return a random use.

    ``keeps_parameters``: the result has the operand's parameters, because a loop carries it.
    """
    rows, *kernel, depth = weights.shape
    terms = prod(kernel) * (1 if kind == "DEPTHWISE_CONV_2D" else depth)
    flat = kind == "FULLY_CONNECTED"
    x = Operand(draw.spec((3, terms) if flat else (*IMAGE, depth), x_dtype), np.zeros(0))
    array = weights.reshape(rows, -1) if flat else weights
    w = weight_operand(weight_of(draw, array, AXES[kind], x_dtype == "float32"))
    channels = array.shape[AXES[kind]]
    y = x.spec if keeps_parameters else result_spec(draw, x, w, terms).with_shape(*x.spec.shape[:-1], channels)
    biases = [] if kind == "TRANSPOSE_CONV" and draw.chance(0.4) else bias(draw, w, x, channels)
    options: dict[str, Any] = {"fused_activation_function": draw.pick(*FUSED)}
    if not flat:
        options |= {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    if kind == "DEPTHWISE_CONV_2D":
        options["depth_multiplier"] = 1
    else:
        options |= bias_type(x, biases)
    return Use(kind, x.spec, w.spec, biases, y, options)


def weight_of(draw: Draw, weights: Array, axis: int, dynamic: bool) -> Spec:
    """Return the weights with a per-tensor or per-channel scale of this use."""
    if weights.dtype == np.float32:
        return constant(weights)
    if weights.dtype == np.uint8:
        return constant(weights, None, 0.011, int(draw.pick(0, 128, 255, 119)))
    if not dynamic and draw.chance(0.4):
        return constant(weights, None, 0.013)
    scales = np.asarray(0.013 * draw.random.uniform(0.3, 1.6, weights.shape[axis]), np.float32).tolist()
    return constant(weights, None, scales, [0] * len(scales), axis)


def random_weights(draw: Draw, x_dtype: str, rows: int) -> Array:
    shape = (rows, draw.pick(1, 2, 3), draw.pick(1, 3), draw.pick(1, 2, 3, 8))
    if x_dtype == "uint8":
        return draw.random.integers(0, 256, shape, np.uint8)
    if x_dtype == "float32" and draw.chance(0.7):
        return np.asarray(draw.random.normal(0, 0.3, shape), np.float32)
    return draw.random.integers(-127, 128, shape, np.int8)


@case_generator("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "IF", "WHILE", rarely=0.25)
def shared_weights(draw: Draw, op: str) -> Case:
    x_dtype = draw.pick(*ACTIVATION_DTYPES)
    location = op if op in ("IF", "WHILE") else draw.pick("graph", "graph", "IF", "WHILE", "signature")
    inner_op = "DEPTHWISE_CONV_2D" if location == "WHILE" else op if op in AXES else draw.pick(*AXES)
    outer_op = draw.pick(*(code for code in AXES if code != inner_op))
    weights = random_weights(draw, x_dtype, 1 if "DEPTHWISE_CONV_2D" in (inner_op, outer_op) else draw.pick(1, 4))
    first, second = (
        draw_use(draw, code, weights, x_dtype, code == inner_op and location == "WHILE")
        for code in (outer_op, inner_op)
    )

    def build(model: Net) -> None:
        graph = model.graph
        buffer = graph.tensors[add_constant(graph, constant(weights), "numbers")].fields["buffer"]
        x = model.input(first.x)
        y = first.emit(graph, x, buffer)
        if location == "signature":
            other_subgraph = model.model.subgraph("other")
            v = other_subgraph.input("v", second.x.shape, second.x.dtype, quantization=second.x.quantization)
            z = second.emit(other_subgraph, v, buffer)
            other_subgraph.output(z)
            graph.output(y)
            model.model.signature("first", {"x": x}, {"y": y})
            model.model.signature("other", {"v": v}, {"z": z}, other_subgraph.index)
            return
        if location == "graph":
            results = [second.emit(graph, model.input(second.x), buffer)]
        else:

            def body(subgraph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
                return [second.emit(subgraph, values[0], buffer)]

            conditions = [model.input(CONDITION)] if location == "IF" else []
            refs = [model.input(second.x)]
            results = (
                add_branches(model, "IF", conditions[0], refs, [second.x], [body, body], [second.y])
                if conditions
                else loop(model, refs, [second.x], body)
            )
        graph.output(y, *results)

    # Run a loop once, because rounding errors of integers accumulate over iterations.
    runs: Any = {"IF": CONDITION_RUNS[:2], "WHILE": PLANS[1::2]}.get(location)
    input_options = {"input_arrays": runs, "runs": len(runs)} if runs else {"runs": 1}
    return net(
        op, f"random, {outer_op} and {inner_op} on the same weights: {location}", build, dtype=x_dtype, **input_options
    )
