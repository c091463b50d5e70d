"""Scope of one subgraph while it is lowered: the values of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.inlining import Location, call_path
from onnx_tflite_plugin.binding.states import overwritten_variables
from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.errors import Problem
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.layout.tensor_layout import TensorLayout, source_layout
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.ir_values import require_value, set_type
from onnx_tflite_plugin.lowering.state import States
from onnx_tflite_plugin.lowering.values import FILE, FLOAT, STORED, ValueOrResource, Values
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.quantization.storage import Encoding
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Dims, Tensor

AfterOperator = Callable[[Bound, tuple[ir.Value | None, ...]], Sequence[Problem]]


MAX_DEPTH, MAX_INLINED = 64, 10_000  # limits of nested subgraph calls, and of operators in inlined subgraphs


@dataclass
class Job:
    """State shared by all scopes of one conversion.

    ``after_operator``: function called with each lowered operator and its outputs. ``lower_operators``: function that
    lowers all operators of a scope. ``problems``, ``causes``: failures and their exceptions. ``placeholders``: results
    of operators that failed. ``uses_placeholders``: True while an operator is lowered that has a placeholder as
    operand. ``downstream_refusals``: refusals of such operators. ``inlined``: number of operators in inlined subgraphs.
    """

    model: BoundModel
    layout: LayoutPlan
    storage: StoragePlan
    target: Target
    emitter: Emitter
    states: States
    after_operator: AfterOperator
    lower_operators: Callable[[Scope], None]
    problems: list[Problem] = field(default_factory=list)
    causes: list[Exception] = field(default_factory=list)
    downstream_refusals: list[Problem] = field(default_factory=list)
    placeholders: set[Tensor] = field(default_factory=set)
    uses_placeholders: bool = False
    inlined: int = 0


class MissingOutput(Exception):
    """An output of a called subgraph is missing, because its operator failed."""


class Scope:
    """Scope of one subgraph.

    Each inlined subgraph has a scope of its own. All scopes of a conversion share its :class:`Job`. ``results``:
    tensors to compute; the outputs by default. ``callers``: locations of the enclosing calls, the outermost first.
    """

    def __init__(
        self,
        job: Job,
        index: int,
        prefix: str = "",
        depth: int = 0,
        results: Collection[Tensor] | None = None,
        callers: tuple[Location, ...] = (),
    ) -> None:
        self.job, self.index, self.depth, self.callers = job, index, depth, callers
        self.model, self.layout, self.storage, self.target = job.model, job.layout, job.storage, job.target
        self.emitter, self.states = job.emitter, job.states
        self.values = Values(job.emitter, job.storage, prefix)
        self.conversions = self.values.conversions
        graph = job.model.graphs[index]
        self.operators = graph.operators if results is None else _required_operators(graph.operators, results)
        self.used_tensors = {t for bound in self.operators for t in bound.op.inputs if t is not None}
        self.used_tensors.update(graph.outputs if results is None else results)
        self.overwritten_variables = overwritten_variables(self.operators)

    # --- values of tensors --------------------------------------------------------------------

    def label(self, bound: Bound) -> str:
        """Return the name prefix of the operator's nodes.

        Tensor names are not used, because they may have hundreds of characters.
        """
        return f"{self.values.prefix}op{bound.op.index}"

    def assign(self, tensor: Tensor, value: ir.Value, layout: TensorLayout, encoding: Encoding) -> None:
        """Set the next value of a variable tensor, for later readers and for the next run."""
        if not tensor.is_variable:
            raise Refusal(f"the operator writes to operand {tensor.name!r}, which is not a variable tensor")
        if encoding is FLOAT and affine(tensor) is not None:
            value = self.conversions.quantize(value, self.storage.storage(tensor), layout)
        self.put(tensor, value, layout, STORED if encoding is FLOAT else encoding)

    def put(self, tensor: Tensor, value: ir.Value, layout: TensorLayout, encoding: Encoding) -> None:
        """Set a tensor's value; for a variable tensor, also the next value of its state.

        A variable tensor has no state if nothing reads it, or if every run writes it before reading it.
        """
        self.values.put(tensor, value, layout, encoding)
        if tensor.is_variable and tensor in self.used_tensors and tensor not in self.overwritten_variables:
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
        """Lower a subgraph in place and return ``results``, by default its outputs.

        Inputs and results have planned layouts and the file's dtypes. Raises Refusal if calls are nested too deep or
        inlined subgraphs have too many operators.
        """
        if not 0 <= subgraph < len(self.model.graphs):
            count = plural(len(self.model.graphs), "subgraph")
            raise LookupError(f"subgraph {subgraph} does not exist; the model has {count}, numbered from 0")
        graph = self.model.graphs[subgraph]
        self.job.inlined += len(graph.operators)
        if self.depth >= MAX_DEPTH:
            raise Refusal(f"subgraph calls are nested more than {MAX_DEPTH} levels deep")
        if self.job.inlined > MAX_INLINED:
            raise Refusal(f"with all subgraph calls inlined, the model has more than {MAX_INLINED} operators")
        prefix = "" if caller is None else f"{self.label(caller)}/"
        callers = self.callers if caller is None else (*self.callers, *call_path(caller.op))
        scope = Scope(self.job, subgraph, prefix, self.depth + 1, results, callers)
        for tensor, value in zip(graph.inputs, inputs, strict=True):
            if value is not None:
                scope.values.put(tensor, value, self.layout.interface_layout(tensor), FILE, outer=True)
        self.job.lower_operators(scope)
        return [scope.output(tensor) for tensor in (graph.outputs if results is None else results)]

    def output(self, tensor: Tensor) -> ValueOrResource:
        """Return a subgraph's output in planned layout and the file's dtype.

        Raises MissingOutput if the operator that computes it failed.
        """
        if self.job.problems and not self.values.has(tensor):
            raise MissingOutput
        return self.values.resource(tensor) or self.values.get(tensor, self.layout.interface_layout(tensor), FILE)

    def graph(self, body: Callable[..., Sequence[Value]], inputs: Sequence[tuple[str, str, Dims | None]]) -> ir.Graph:
        """Return an inner ONNX graph whose nodes ``body`` emits.

        ``inputs``: name, dtype and shape of each graph input.
        """
        names = self.emitter.names
        graph_inputs = [
            self.emitter.register(set_type(ir.Value(name=names.unique(name)), dtype, dims))
            for name, dtype, dims in inputs
        ]
        with self.emitter.collect_inner_nodes() as nodes:
            outputs: list[ir.Value] = []
            results = [require_value(value) for value in body(*graph_inputs)]
            node_outputs = {output for node in nodes for output in node.outputs}
            for value in results:
                # ONNX requires each output of an inner graph to come from a node of that graph, under its own name.
                if value in outputs or value not in node_outputs:
                    original = value
                    value = self.emitter.emit("Identity", [original], {})[0]
                    value.type, value.shape = original.type, original.shape
                outputs.append(value)
        return ir.Graph(graph_inputs, outputs, nodes=nodes, name=names.unique("graph"))


def _required_operators(operators: Sequence[Bound], results: Collection[Tensor]) -> tuple[Bound, ...]:
    """Return the operators that results depend on, and operators with side effects."""
    needed, required = set(results), list[Bound]()
    for bound in reversed(operators):
        inputs = [tensor for tensor in bound.op.inputs if tensor is not None]
        writes_variable = any(tensor is not None and tensor.is_variable for tensor in (*inputs, *bound.op.outputs))
        has_effects = bound.declared.effects is not None or writes_variable
        if has_effects or not needed.isdisjoint(bound.op.outputs):
            required.append(bound)
            needed.update(inputs)
    return tuple(reversed(required))
