"""Random weights shared by operators of different kinds, in one subgraph, across branches, loops and signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import Case
from conformance.cases.control.branches import CONDITION, CONDITION_RUNS, add_branches
from conformance.cases.control.loops import STEPS, loop
from conformance.models import Net, Spec, constant, net
from onnx_tflite_plugin.source.model import Array
from tests.qa.random_models.draw import FUSED, STORED, Draw, Operand, always, draws
from tests.qa.random_models.windows import bias, bias_type, result_spec

AXES = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 0}
"""The weights' axis of output channels."""
IMAGE = (2, 5, 7)


@dataclass(frozen=True)
class Use:
    """One operator on the shared weights; ``w`` has its shape and scales, and the buffer is shared."""

    kind: str
    x: Spec
    w: Spec
    b: Sequence[Operand | None]
    y: Spec
    options: dict[str, Any]

    def emit(self, graph: GraphBuilder, x: TensorRef, buffer: int) -> TensorRef:
        count = len(graph.tensors)
        w = graph.tensor(f"w{count}", self.w.shape, self.w.dtype, quantization=self.w.quantization, buffer=buffer)
        biases = [None if b is None else add_constant(graph, b.spec, f"b{count}") for b in self.b]
        operands: list[TensorRef | None] = [x, w, *biases]
        if self.kind == "TRANSPOSE_CONV":
            operands = [graph.constant(f"size{count}", np.array(self.y.shape, np.int32)), w, x, *operands[2:]]
        y = graph.tensor(f"t{count}", self.y.shape, self.y.dtype, quantization=self.y.quantization)
        graph.operator(self.kind, operands, [y], self.options)
        return y


def add_constant(graph: GraphBuilder, spec: Spec, name: str) -> TensorRef:
    assert spec.value is not None
    return graph.constant(name, spec.value, spec.dtype, quantization=spec.quantization)


def draw_use(draw: Draw, kind: str, numbers: Array, x_dtype: str, kept: bool = False) -> Use:
    """Draw a use; ``kept``: the result has the parameters of the operand, because a loop carries it."""
    rows, *kernel, depth = numbers.shape
    terms = prod(kernel) * (1 if kind == "DEPTHWISE_CONV_2D" else depth)
    flat = kind == "FULLY_CONNECTED"
    x = Operand(draw.spec((3, terms) if flat else (*IMAGE, depth), x_dtype), np.zeros(0))
    array = numbers.reshape(rows, -1) if flat else numbers
    w = always(weight_of(draw, array, AXES[kind], x_dtype == "float32"))
    channels = array.shape[AXES[kind]]
    y = x.spec if kept else result_spec(draw, x, w, terms).with_shape(*x.spec.shape[:-1], channels)
    more = [] if kind == "TRANSPOSE_CONV" and draw.chance(0.4) else bias(draw, w, x, channels)
    options: dict[str, Any] = {"fused_activation_function": draw.pick(*FUSED)}
    if not flat:
        options |= {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    if kind == "DEPTHWISE_CONV_2D":
        options["depth_multiplier"] = 1
    else:
        options |= bias_type(x, more)
    return Use(kind, x.spec, w.spec, more, y, options)


def weight_of(draw: Draw, numbers: Array, axis: int, dynamic: bool) -> Spec:
    """Return the weights with the parameters of this use: a per-tensor or per-channel scale."""
    if numbers.dtype == np.float32:
        return constant(numbers)
    if numbers.dtype == np.uint8:
        return constant(numbers, None, 0.011, int(draw.pick(0, 128, 255, 119)))
    if not dynamic and draw.chance(0.4):
        return constant(numbers, None, 0.013)
    scales = np.asarray(0.013 * draw.random.uniform(0.3, 1.6, numbers.shape[axis]), np.float32).tolist()
    return constant(numbers, None, scales, [0] * len(scales), axis)


def random_weights(draw: Draw, x_dtype: str, rows: int) -> Array:
    shape = (rows, draw.pick(1, 2, 3), draw.pick(1, 3), draw.pick(1, 2, 3, 8))
    if x_dtype == "uint8":
        return draw.random.integers(0, 256, shape, np.uint8)
    if x_dtype == "float32" and draw.chance(0.7):
        return np.asarray(draw.random.normal(0, 0.3, shape), np.float32)
    return draw.random.integers(-127, 128, shape, np.int8)


@draws("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "IF", "WHILE", rarely=0.25)
def share(draw: Draw, op: str) -> Case:
    x_dtype = draw.pick(*STORED)
    place = op if op in ("IF", "WHILE") else draw.pick("graph", "graph", "IF", "WHILE", "signature")
    inner = "DEPTHWISE_CONV_2D" if place == "WHILE" else op if op in AXES else draw.pick(*AXES)
    outer = draw.pick(*(kind for kind in AXES if kind != inner))
    numbers = random_weights(draw, x_dtype, 1 if "DEPTHWISE_CONV_2D" in (inner, outer) else draw.pick(1, 4))
    first, second = (
        draw_use(draw, kind, numbers, x_dtype, kind == inner and place == "WHILE") for kind in (outer, inner)
    )

    def build(model: Net) -> None:
        graph = model.graph
        buffer = graph.tensors[add_constant(graph, constant(numbers), "numbers")].fields["buffer"]
        x = model.input(first.x)
        y = first.emit(graph, x, buffer)
        if place == "signature":
            other = model.model.subgraph("other")
            v = other.input("v", second.x.shape, second.x.dtype, quantization=second.x.quantization)
            z = second.emit(other, v, buffer)
            other.output(z)
            graph.output(y)
            model.model.signature("first", {"x": x}, {"y": y})
            model.model.signature("other", {"v": v}, {"z": z}, other.index)
            return
        if place == "graph":
            results = [second.emit(graph, model.input(second.x), buffer)]
        else:

            def inside(subgraph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
                return [second.emit(subgraph, values[0], buffer)]

            asked = [model.input(CONDITION)] if place == "IF" else []
            refs = [model.input(second.x)]
            results = (
                add_branches(model, "IF", asked[0], refs, [second.x], [inside, inside], [second.y])
                if asked
                else loop(model, refs, [second.x], inside)
            )
        graph.output(y, *results)

    # Round a loop once: what an integer is off by goes on into the next iteration.
    runs: Any = {"IF": CONDITION_RUNS[:2], "WHILE": STEPS[1::2]}.get(place)
    given = {"given": runs, "runs": len(runs)} if runs else {"runs": 1}
    return net(op, f"drawn, {outer} and {inner} on the same weights: {place}", build, dtype=x_dtype, **given)
