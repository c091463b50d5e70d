"""One subgraph being lowered: walk its operators, give each handler its context, finish what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.checked import described
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.errors import Problem
from onnx_tflite_plugin.guard import Failed, Mismatch, guarded
from onnx_tflite_plugin.layout.order import Order, source_order
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.lowering.activation import activated
from onnx_tflite_plugin.lowering.context import Context
from onnx_tflite_plugin.lowering.emitter import Emitter, dtype_of, typed
from onnx_tflite_plugin.lowering.state import States
from onnx_tflite_plugin.lowering.values import FILE, FLOAT, MARK, STORED, Held, Resource, Values
from onnx_tflite_plugin.quantization.plan import Arithmetic, Form, StoragePlan
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Dims, Tensor
from onnx_tflite_plugin.targets.base import Target

AfterLowering = Callable[[Bound, tuple[ir.Value | None, ...]], Sequence[Problem]]


DEEPEST, MOST_INLINED = 64, 20_000  # subgraphs inside each other, and operators of all that are inlined


@dataclass
class Job:
    """What all scopes of one conversion share; ``problems`` and their ``causes`` are gathered here."""

    model: BoundModel
    layout: LayoutPlan
    storage: StoragePlan
    target: Target
    emitter: Emitter
    states: States
    after: AfterLowering
    problems: list[Problem] = field(default_factory=list)
    causes: list[Exception] = field(default_factory=list)
    inlined: int = 0


class _NotLowered(Exception):
    """A called subgraph's result is missing because an operator in it failed, which is told already."""


class Scope:
    """One subgraph being lowered. Inlined subgraphs have scopes of their own, sharing emitter and states."""

    def __init__(self, job: Job, index: int, prefix: str = "", depth: int = 0) -> None:
        self.job, self.index, self.depth = job, index, depth
        self.model, self.layout, self.storage, self.target = job.model, job.layout, job.storage, job.target
        self.emitter, self.states = job.emitter, job.states
        self.values = Values(job.emitter, job.storage, prefix)
        graph = job.model.graphs[index]
        self.used = {t for bound in graph.operators for t in bound.op.inputs if t is not None} | set(graph.outputs)

    # --- walking ------------------------------------------------------------------------------

    def run(self) -> None:
        """Lower every operator; failures are gathered, and operators that need what failed are passed over."""
        for bound in self.model.graphs[self.index].operators:
            for tensor in bound.op.inputs:
                if tensor is not None and tensor.is_variable and not self.values.has(tensor):
                    state = self.states.variable(tensor, self.values.name(tensor))
                    self.values.put(tensor, state.get(), source_order(tensor.dims), FILE)
            if not all(self.values.has(t) for t in bound.op.inputs if t is not None):
                continue
            try:
                with self.emitter.within(self._label(bound), _marks(bound)):
                    outputs = self._guarded(bound)
            except Failed as failed:
                self.job.problems.append(failed.problem(bound.label))
                self.job.causes.append(failed)
                continue
            if outputs is not None:
                self.job.problems.extend(self.job.after(bound, outputs))

    def _guarded(self, bound: Bound) -> tuple[ir.Value | None, ...] | None:
        """The operator's finished outputs; None where its handler refused it. Raises Failed where it failed."""
        with guarded(f"handler {bound.handler.name}", bound.pack, bound.handler.lower, bound.label):
            try:
                return self._lower(bound)
            except _NotLowered:
                return None
            except Refused as refusal:
                whose = f"handler {bound.handler.name} in {bound.pack}"
                self.job.problems.append(Problem(bound.label, str(refusal), whose))
                return None

    def _label(self, bound: Bound) -> str:
        first = next((t for t in bound.op.outputs if t is not None), None)
        return self.values.name(first) if first is not None else f"{self.values.prefix}{bound.op.code}#{bound.op.index}"

    def _lower(self, bound: Bound) -> tuple[ir.Value | None, ...]:
        for slot in sorted(bound.declared.requires_constant):
            operand = bound.op.tensor(slot)
            if operand is not None and not operand.constant:
                raise Refused(f"its operand {slot} ({operand.name!r}) must be a constant")
        if self._computes_nothing(bound):
            return tuple(self._put_empty(tensor) for tensor in bound.op.outputs if tensor is not None)
        ctx = Context(self, bound)
        calls = bound.declared.subgraphs  # a subgraph's operators see the operands as tensors of their own
        given = [(x, _described(x)) for x in ctx.inputs if isinstance(x, ir.Value) and not calls]
        result = bound.handler.lower(ctx, *ctx.inputs)
        for x, before in given:
            if _described(x) != before:
                raise Mismatch(f"it changed its operand {before[0]!r}, which others use")
        results = (
            result if isinstance(result, tuple | list) else () if result is None and not bound.op.outputs else (result,)
        )
        if len(results) != len(bound.op.outputs):
            raise Mismatch(f"it returned {len(results)} values for {len(bound.op.outputs)} outputs")
        return tuple(self._finish(ctx, k, value) for k, value in enumerate(results))

    def _computes_nothing(self, bound: Bound) -> bool:
        """Whether no result has an element: runtimes refuse many operators on such shapes, and nothing is left to compute."""
        empty = all(t is not None and t.static and 0 in t.shape and _plain(t) for t in bound.op.outputs)
        return bool(bound.op.outputs) and empty and not bound.declared.hands_on

    def _put_empty(self, tensor: Tensor) -> ir.Value:
        """A constant without elements."""
        nothing = np.zeros(tensor.shape, dtype_of(self.storage.storage(tensor).dtype).numpy())
        value = self.emitter.constant(nothing)
        self.values.put(tensor, value, source_order(tensor.dims), STORED)
        return value

    def assign(self, tensor: Tensor, value: ir.Value, order: Order, form: Form) -> None:
        """The next value of a variable tensor, for who reads it later and for the next run."""
        if not tensor.is_variable:
            raise Refused(f"it writes to its operand {tensor.name!r}, which is no variable tensor")
        if form is FLOAT and affine(tensor) is not None:
            value = self.values.quantize(value, self.storage.storage(tensor), order)
        self.values.put(tensor, value, order, STORED if form is FLOAT else form)
        state = self.states.variable(tensor, self.values.name(tensor))
        state.set(self.values.get(tensor, source_order(tensor.dims), FILE))

    def _finish(self, ctx: Context, k: int, value: Held | None) -> ir.Value | None:
        """Activation, quantization, source order for what is indexed by axis, checks; then the tensor has its value."""
        tensor = ctx.op.tensor(~k)
        if tensor is None:
            return None
        if tensor.is_variable and tensor in self.used:  # those who use what is known have a constant in its place
            text = f"it computes the variable tensor {tensor.name!r} in every run"
            raise Refused(f"{text}, which is implemented of constants only, for its first value")
        if value is None:
            if tensor in self.used:
                raise Mismatch(f"it returned nothing for output {k}, which is used")
            return None
        if isinstance(value, Resource):
            self.values.put(tensor, value, (), FILE)
            return None
        if not isinstance(value, ir.Value):
            raise Mismatch(f"it returned {described(value)} for output {k}, not a value; constants: ctx.constant_value")
        if not self.emitter.owns(value):
            raise Mismatch(f"it returned {value.name!r} for output {k}, which is no value of this model")
        form = STORED if ctx.arithmetic is Arithmetic.FLOAT or affine(tensor) is None else ctx.arithmetic.form
        value = activated(ctx, value, tensor)
        value = self._unindexed(ctx, ~k, value)
        self._check(value, tensor, form, k)
        self.values.put(tensor, value, ctx.order(~k), form)
        return value

    def _unindexed(self, ctx: Context, slot: int, value: ir.Value) -> ir.Value:
        of = ctx.bound.declared.indexed_by_axis.get(slot)
        if of is None:
            return value
        perm = ctx.perm(of)
        back = [perm.index(axis) for axis in range(len(perm))]
        if back == sorted(back):
            return value
        if value.const_value is not None:
            return self.emitter.constant(value.const_value.numpy()[back])
        return ctx.ops.Gather(value, back, axis=0)  # type: ignore[no-any-return]

    def _check(self, value: ir.Value, tensor: Tensor, form: Form, k: int) -> None:
        storage = self.storage.storage(tensor)
        wanted = dtype_of(storage.dtype if form is STORED else tensor.dtype)
        found = value.type.dtype if value.type is not None else wanted
        if found != wanted:
            raise Mismatch(f"output {k} is {found.name.lower()}, the tensor is {wanted.name.lower()}")

    # --- subgraphs ----------------------------------------------------------------------------

    def inline(self, subgraph: int, inputs: Sequence[Held | None], caller: Bound | None) -> list[Held]:
        """Lower a subgraph here; inputs and results are in source order and the file's dtypes."""
        if not 0 <= subgraph < len(self.model.graphs):
            raise LookupError(f"subgraph {subgraph} does not exist; the model has {len(self.model.graphs)}")
        graph = self.model.graphs[subgraph]
        self.job.inlined += len(graph.operators)
        if self.depth >= DEEPEST:
            raise Refused(f"subgraphs are called {DEEPEST} deep, one from the other")
        if self.job.inlined > MOST_INLINED:
            raise Refused(f"with what is called again and again, the model has more than {MOST_INLINED} operators")
        prefix = "" if caller is None else f"{self._label(caller)}/"
        scope = Scope(self.job, subgraph, prefix, self.depth + 1)
        for tensor, value in zip(graph.inputs, inputs, strict=True):
            if value is not None:
                scope.values.put(tensor, value, source_order(tensor.dims), FILE, outer=True)
        scope.run()
        return [scope.output(tensor) for tensor in graph.outputs]

    def output(self, tensor: Tensor) -> Held:
        """A subgraph's result in source order and the file's dtype. Raises _NotLowered where its operator failed."""
        if self.job.problems and not self.values.has(tensor):
            raise _NotLowered
        return self.values.resource(tensor) or self.values.get(tensor, source_order(tensor.dims), FILE)

    def graph(
        self, body: Callable[..., Sequence[ir.Value]], inputs: Sequence[tuple[str, str, Dims | None]]
    ) -> ir.Graph:
        names = self.emitter.names
        values = [
            self.emitter.own(typed(ir.Value(name=names.unique(name)), dtype, dims)) for name, dtype, dims in inputs
        ]
        with self.emitter.nested() as nodes:
            made = set(values)
            outputs: list[ir.Value] = []
            results = body(*values)
            produced = {out for node in nodes for out in node.outputs}
            for value in results:
                if value in outputs or value in made or value not in produced:
                    kept = value
                    value = self.emitter.emit("Identity", [kept], {})[0]
                    value.type, value.shape = kept.type, kept.shape
                outputs.append(value)
        return ir.Graph(values, outputs, nodes=nodes, name=names.unique("graph"))


def _described(value: ir.Value) -> tuple[object, ...]:
    """What a handler must leave alone of its operands."""
    return value.name, value.dtype, None if value.shape is None else tuple(value.shape)


def _plain(tensor: Tensor) -> bool:
    return tensor.dtype != "string" and not tensor.dtype.startswith("complex") and tensor.dtype not in HANDLES


def _marks(bound: Bound) -> dict[str, str]:
    operators = ",".join(f"{op.subgraph}:{op.index}" for op in bound.members)
    return {MARK + "operators": operators, MARK + "handler": bound.handler.name, MARK + "pack": bound.pack}
