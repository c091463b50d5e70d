"""Scope of one subgraph that is lowered: the values of its tensors.

All scopes share the state of the conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.inlining import Location, call_path
from onnx_tflite_plugin.errors import Problem
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.layout.tensor_layout import TensorLayout, source_layout
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.ir_values import require_value, set_type
from onnx_tflite_plugin.lowering.state import States
from onnx_tflite_plugin.lowering.values import FILE, FLOAT, STORED, ValueOrResource, Values
from onnx_tflite_plugin.quantization.plan import Form, StoragePlan
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Dims, Tensor

AfterLowering = Callable[[Bound, tuple[ir.Value | None, ...]], Sequence[Problem]]


MAX_DEPTH, MAX_INLINED = 64, 10_000  # nesting depth of subgraphs, and total operators of inlined subgraphs


@dataclass
class Job:
    """State shared by all scopes of one conversion.

    ``problems`` and their ``causes`` are collected here. ``after`` is called with each operator that was lowered;
    ``lower_operators`` lowers every operator of a scope. ``downstream``: refusals of operators that use
    ``placeholders``, the results of operators that failed. ``uses_placeholders``: True while such an operator is
    lowered.
    """

    model: BoundModel
    layout: LayoutPlan
    storage: StoragePlan
    target: Target
    emitter: Emitter
    states: States
    after: AfterLowering
    lower_operators: Callable[[Scope], None]
    problems: list[Problem] = field(default_factory=list)
    causes: list[Exception] = field(default_factory=list)
    downstream: list[Problem] = field(default_factory=list)
    placeholders: set[Tensor] = field(default_factory=set)
    uses_placeholders: bool = False
    inlined: int = 0


class NotLowered(Exception):
    """Raised if the output of a called subgraph is missing.

    An operator in it failed, which is reported already.
    """


class Scope:
    """Scope of one subgraph.

    Inlined subgraphs have separate scopes with the same emitter and states.

    ``within``: locations of the calls that contain it, the outermost first.
    """

    def __init__(
        self,
        job: Job,
        index: int,
        prefix: str = "",
        depth: int = 0,
        results: Collection[Tensor] | None = None,
        within: tuple[Location, ...] = (),
    ) -> None:
        self.job, self.index, self.depth, self.within = job, index, depth, within
        self.model, self.layout, self.storage, self.target = job.model, job.layout, job.storage, job.target
        self.emitter, self.states = job.emitter, job.states
        self.values = Values(job.emitter, job.storage, prefix)
        graph = job.model.graphs[index]
        self.operators = graph.operators if results is None else _required_operators(graph.operators, results)
        self.used = {t for bound in self.operators for t in bound.op.inputs if t is not None}
        self.used.update(graph.outputs if results is None else results)

    # --- values of tensors --------------------------------------------------------------------

    def label(self, bound: Bound) -> str:
        """Return the name prefix of the operator's nodes.

        It is short, because TFLite's tensor names may have hundreds of characters.
        """
        return f"{self.values.prefix}op{bound.op.index}"

    def assign(self, tensor: Tensor, value: ir.Value, layout: TensorLayout, form: Form) -> None:
        """Set the next value of a variable tensor, for later readers and for the next run."""
        if not tensor.is_variable:
            raise Refusal(f"the operator writes to operand {tensor.name!r}, which is not a variable tensor")
        if form is FLOAT and affine(tensor) is not None:
            value = self.values.quantize(value, self.storage.storage(tensor), layout)
        self.values.put(tensor, value, layout, STORED if form is FLOAT else form)
        state = self.states.variable_state(tensor, self.values.state_name(tensor))
        state.set(self.values.get(tensor, source_layout(tensor.dims), FILE))

    # --- subgraphs ----------------------------------------------------------------------------

    def inline(
        self,
        subgraph: int,
        inputs: Sequence[ValueOrResource | None],
        caller: Bound | None,
        results: Sequence[Tensor] | None = None,
    ) -> list[ValueOrResource]:
        """Lower a subgraph here and return ``results``, by default its outputs.

        Inputs and results are in planned layout and the file's dtypes. Raises Refusal for calls that are nested too
        deep or too large.
        """
        if not 0 <= subgraph < len(self.model.graphs):
            raise LookupError(f"subgraph {subgraph} does not exist; the model has {len(self.model.graphs)}")
        graph = self.model.graphs[subgraph]
        self.job.inlined += len(graph.operators)
        if self.depth >= MAX_DEPTH:
            raise Refusal(f"subgraph calls are nested more than {MAX_DEPTH} deep")
        if self.job.inlined > MAX_INLINED:
            raise Refusal(f"with all subgraph calls inlined, the model has more than {MAX_INLINED} operators")
        prefix = "" if caller is None else f"{self.label(caller)}/"
        within = self.within if caller is None else (*self.within, *call_path(caller.op))
        scope = Scope(self.job, subgraph, prefix, self.depth + 1, results, within)
        for tensor, value in zip(graph.inputs, inputs, strict=True):
            if value is not None:
                scope.values.put(tensor, value, self.layout.interface_layout(tensor), FILE, outer=True)
        self.job.lower_operators(scope)
        return [scope.output(tensor) for tensor in (graph.outputs if results is None else results)]

    def output(self, tensor: Tensor) -> ValueOrResource:
        """Return a subgraph's output in planned layout and the file's dtype.

        Raises NotLowered if its operator failed.
        """
        if self.job.problems and not self.values.has(tensor):
            raise NotLowered
        return self.values.resource(tensor) or self.values.get(tensor, self.layout.interface_layout(tensor), FILE)

    def graph(self, body: Callable[..., Sequence[Value]], inputs: Sequence[tuple[str, str, Dims | None]]) -> ir.Graph:
        """Return an inner ONNX graph whose nodes ``body`` emits.

        ``inputs``: name, dtype and shape of each.
        """
        names = self.emitter.names
        values = [
            self.emitter.register(set_type(ir.Value(name=names.unique(name)), dtype, dims))
            for name, dtype, dims in inputs
        ]
        with self.emitter.collect_inner_nodes() as nodes:
            outputs: list[ir.Value] = []
            results = [require_value(value) for value in body(*values)]
            produced = {out for node in nodes for out in node.outputs}
            for value in results:
                if value in outputs or value not in produced:
                    original = value
                    value = self.emitter.emit("Identity", [original], {})[0]
                    value.type, value.shape = original.type, original.shape
                outputs.append(value)
        return ir.Graph(values, outputs, nodes=nodes, name=names.unique("graph"))


def _required_operators(operators: Sequence[Bound], results: Collection[Tensor]) -> tuple[Bound, ...]:
    """Return the operators that the results depend on, and those with side effects."""
    needed, required = set(results), list[Bound]()
    for bound in reversed(operators):
        inputs = [tensor for tensor in bound.op.inputs if tensor is not None]
        has_effects = bound.declared.effects is not None or any(tensor.is_variable for tensor in inputs)
        if has_effects or not needed.isdisjoint(bound.op.outputs):
            required.append(bound)
            needed.update(inputs)
    return tuple(reversed(required))
