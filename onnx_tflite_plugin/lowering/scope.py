"""One subgraph being lowered: the values of its tensors, and what it shares with all others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.inlining import Place, places
from onnx_tflite_plugin.errors import Problem
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.layout.tensor_layout import TensorLayout, source_layout
from onnx_tflite_plugin.lowering.emitter import Emitter, own_value, typed
from onnx_tflite_plugin.lowering.state import States
from onnx_tflite_plugin.lowering.values import FILE, FLOAT, STORED, Held, Values
from onnx_tflite_plugin.quantization.plan import Form, StoragePlan
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Dims, Tensor

AfterLowering = Callable[[Bound, tuple[ir.Value | None, ...]], Sequence[Problem]]


DEEPEST, MOST_INLINED = 64, 10_000  # subgraphs inside each other, and operators of all that are inlined


@dataclass
class Job:
    """What all scopes of one conversion share; ``problems`` and their ``causes`` are gathered here.

    ``after`` is told of each operator that was lowered; ``walk`` lowers every operator of a scope.
    """

    model: BoundModel
    layout: LayoutPlan
    storage: StoragePlan
    target: Target
    emitter: Emitter
    states: States
    after: AfterLowering
    walk: Callable[[Scope], None]
    problems: list[Problem] = field(default_factory=list)
    causes: list[Exception] = field(default_factory=list)
    inlined: int = 0


class NotLowered(Exception):
    """A called subgraph's result is missing because an operator in it failed, which is told already."""


class Scope:
    """One subgraph being lowered. Inlined subgraphs have scopes of their own, sharing emitter and states.

    ``within``: the places of the calls that it is lowered for, the outermost first.
    """

    def __init__(
        self,
        job: Job,
        index: int,
        prefix: str = "",
        depth: int = 0,
        results: Collection[Tensor] | None = None,
        within: tuple[Place, ...] = (),
    ) -> None:
        self.job, self.index, self.depth, self.within = job, index, depth, within
        self.model, self.layout, self.storage, self.target = job.model, job.layout, job.storage, job.target
        self.emitter, self.states = job.emitter, job.states
        self.values = Values(job.emitter, job.storage, prefix)
        graph = job.model.graphs[index]
        self.operators = graph.operators if results is None else _needed(graph.operators, results)
        self.used = {t for bound in self.operators for t in bound.op.inputs if t is not None}
        self.used.update(graph.outputs if results is None else results)

    # --- values of tensors --------------------------------------------------------------------

    def label(self, bound: Bound) -> str:
        """What the operator's nodes are named after: short, for TFLite's names of tensors run to hundreds of characters."""
        return f"{self.values.prefix}op{bound.op.index}"

    def assign(self, tensor: Tensor, value: ir.Value, order: TensorLayout, form: Form) -> None:
        """The next value of a variable tensor, for who reads it later and for the next run."""
        if not tensor.is_variable:
            raise Refused(f"it writes to its operand {tensor.name!r}, which is no variable tensor")
        if form is FLOAT and affine(tensor) is not None:
            value = self.values.quantize(value, self.storage.storage(tensor), order)
        self.values.put(tensor, value, order, STORED if form is FLOAT else form)
        state = self.states.variable(tensor, self.values.name(tensor))
        state.set(self.values.get(tensor, source_layout(tensor.dims), FILE))

    # --- subgraphs ----------------------------------------------------------------------------

    def inline(
        self,
        subgraph: int,
        inputs: Sequence[Held | None],
        caller: Bound | None,
        results: Sequence[Tensor] | None = None,
    ) -> list[Held]:
        """Lower a subgraph here; inputs and results, its outputs unless told, are in planned order and the file's dtypes."""
        if not 0 <= subgraph < len(self.model.graphs):
            raise LookupError(f"subgraph {subgraph} does not exist; the model has {len(self.model.graphs)}")
        graph = self.model.graphs[subgraph]
        self.job.inlined += len(graph.operators)
        if self.depth >= DEEPEST:
            raise Refused(f"subgraphs are called {DEEPEST} deep, one from the other")
        if self.job.inlined > MOST_INLINED:
            raise Refused(f"with what is called again and again, the model has more than {MOST_INLINED} operators")
        prefix = "" if caller is None else f"{self.label(caller)}/"
        within = self.within if caller is None else (*self.within, *places(caller.op))
        scope = Scope(self.job, subgraph, prefix, self.depth + 1, results, within)
        for tensor, value in zip(graph.inputs, inputs, strict=True):
            if value is not None:
                scope.values.put(tensor, value, self.layout.interface_layout(tensor), FILE, outer=True)
        self.job.walk(scope)
        return [scope.output(tensor) for tensor in (graph.outputs if results is None else results)]

    def output(self, tensor: Tensor) -> Held:
        """A subgraph's result in planned order and the file's dtype. Raises NotLowered where its operator failed."""
        if self.job.problems and not self.values.has(tensor):
            raise NotLowered
        return self.values.resource(tensor) or self.values.get(tensor, self.layout.interface_layout(tensor), FILE)

    def graph(self, body: Callable[..., Sequence[Value]], inputs: Sequence[tuple[str, str, Dims | None]]) -> ir.Graph:
        names = self.emitter.names
        values = [
            self.emitter.own(typed(ir.Value(name=names.unique(name)), dtype, dims)) for name, dtype, dims in inputs
        ]
        with self.emitter.nested() as nodes:
            outputs: list[ir.Value] = []
            results = [own_value(value) for value in body(*values)]
            produced = {out for node in nodes for out in node.outputs}
            for value in results:
                if value in outputs or value not in produced:
                    kept = value
                    value = self.emitter.emit("Identity", [kept], {})[0]
                    value.type, value.shape = kept.type, kept.shape
                outputs.append(value)
        return ir.Graph(values, outputs, nodes=nodes, name=names.unique("graph"))


def _needed(operators: Sequence[Bound], results: Collection[Tensor]) -> tuple[Bound, ...]:
    """The operators that results come from, and those that do something else than give one."""
    wanted, kept = set(results), list[Bound]()
    for bound in reversed(operators):
        inputs = [tensor for tensor in bound.op.inputs if tensor is not None]
        acts = bound.declared.effects is not None or any(tensor.is_variable for tensor in inputs)
        if acts or not wanted.isdisjoint(bound.op.outputs):
            kept.append(bound)
            wanted.update(inputs)
    return tuple(reversed(kept))
