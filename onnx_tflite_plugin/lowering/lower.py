"""Lowering: walk the bound operators in execution order, let each handler emit, put plan and result together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import resolve
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.bound import Bound, BoundModel
from onnx_tflite_plugin.errors import ConversionError, HandlerError, Problem
from onnx_tflite_plugin.layout.order import Order, source_order, spelled
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.lowering import interface
from onnx_tflite_plugin.lowering.activation import activated
from onnx_tflite_plugin.lowering.context import Context
from onnx_tflite_plugin.lowering.emitter import Emitter, dtype_of, typed
from onnx_tflite_plugin.lowering.state import States
from onnx_tflite_plugin.lowering.values import FILE, FLOAT, MARK, STORED, Held, Resource, Values
from onnx_tflite_plugin.quantization.plan import Compute, StoragePlan, affine
from onnx_tflite_plugin.source.model import Dims, Tensor
from onnx_tflite_plugin.targets.base import Target

AfterLowering = Callable[[Bound, tuple[ir.Value | None, ...]], None]


class Scope:
    """One subgraph being lowered. Inlined subgraphs have scopes of their own, sharing emitter and states."""

    def __init__(
        self,
        model: BoundModel,
        index: int,
        layout: LayoutPlan,
        storage: StoragePlan,
        target: Target,
        emitter: Emitter,
        states: States,
        problems: list[Problem],
        after: AfterLowering,
        prefix: str = "",
    ) -> None:
        self.model, self.index = model, index
        self.layout, self.storage, self.target = layout, storage, target
        self.emitter, self.states, self.problems, self.after = emitter, states, problems, after
        self.values = Values(emitter, storage, prefix)
        graph = model.graphs[index]
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
                    self._lower(bound)
            except ConversionError as error:
                self.problems.extend(error.problems)
            except Refused as refusal:
                self.problems.append(Problem(bound.label, str(refusal), f"handler {bound.handler.name} in {bound.pack}"))
            except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                text = f"handler {bound.handler.name} of {bound.pack} failed: {type(error).__name__}: {error}"
                self.problems.append(Problem(bound.label, text, f"report it to {bound.pack}"))

    def _label(self, bound: Bound) -> str:
        first = next((t for t in bound.op.outputs if t is not None), None)
        return self.values.name(first) if first is not None else f"{self.values.prefix}{bound.op.code}#{bound.op.index}"

    def _lower(self, bound: Bound) -> None:
        for slot in sorted(bound.handler.requires_constant):
            operand = bound.op.tensor(slot)
            if operand is not None and not operand.constant:
                raise Refused(f"its operand {slot} ({operand.name!r}) must be a constant")
        ctx = Context(self, bound)
        result = bound.handler.lower(ctx, *ctx.inputs)
        results = result if isinstance(result, tuple | list) else () if result is None and not bound.op.outputs else (result,)
        if len(results) != len(bound.op.outputs):
            raise TypeError(f"it returned {len(results)} values for {len(bound.op.outputs)} outputs")
        finished = tuple(self._finish(ctx, k, value) for k, value in enumerate(results))
        self.after(bound, finished)

    def _finish(self, ctx: Context, k: int, value: Held | None) -> ir.Value | None:
        """Activation, quantization, source order for what is indexed by axis, checks; then the tensor has its value."""
        tensor = ctx.op.tensor(~k)
        if tensor is None:
            return None
        if value is None:
            if tensor in self.used:
                raise TypeError(f"it returned nothing for output {k}, which is used")
            return None
        if isinstance(value, Resource):
            self.values.put(tensor, value, (), FILE)
            return None
        form = STORED if ctx.compute is FLOAT or affine(tensor) is None else ctx.compute
        value = activated(ctx, value, tensor)
        value = self._unindexed(ctx, ~k, value)
        self._check(value, tensor, form, k)
        self.values.put(tensor, value, ctx.order(~k), form)
        return value

    def _unindexed(self, ctx: Context, slot: int, value: ir.Value) -> ir.Value:
        of = resolve(ctx.bound.handler.indexed_by_axis, ctx.op).get(slot)
        if of is None:
            return value
        perm = ctx.perm(of)
        back = [perm.index(axis) for axis in range(len(perm))]
        if back == sorted(back):
            return value
        if value.const_value is not None:
            return self.emitter.constant(value.const_value.numpy()[back])
        return ctx.ops.Gather(value, back, axis=0)  # type: ignore[no-any-return]

    def _check(self, value: ir.Value, tensor: Tensor, form: Compute, k: int) -> None:
        storage = self.storage.storage(tensor)
        wanted = dtype_of(storage.dtype if form is STORED else tensor.dtype)
        found = value.type.dtype if value.type is not None else wanted
        if found != wanted:
            raise TypeError(f"output {k} is {found.name.lower()}, the tensor is {wanted.name.lower()}")

    # --- subgraphs ----------------------------------------------------------------------------

    def inline(self, subgraph: int, inputs: Sequence[Held | None], caller: Bound | None) -> list[Held]:
        """Lower a subgraph here; inputs and results are in source order and the file's dtypes."""
        if not 0 <= subgraph < len(self.model.graphs):
            raise LookupError(f"subgraph {subgraph} does not exist; the model has {len(self.model.graphs)}")
        graph = self.model.graphs[subgraph]
        first = None if caller is None else next((t for t in caller.op.outputs if t is not None), None)
        called = "" if caller is None else f"{self.values.name(first) if first is not None else caller.op.code}/"
        scope = Scope(
            self.model, subgraph, self.layout, self.storage, self.target, self.emitter, self.states, self.problems, self.after,
            self.values.prefix + called,
        )  # fmt: skip
        for tensor, value in zip(graph.inputs, inputs, strict=True):
            if value is not None:
                scope.values.put(tensor, value, source_order(tensor.dims), FILE)
        scope.run()
        return [scope.output(tensor) for tensor in graph.outputs]

    def output(self, tensor: Tensor) -> Held:
        """A subgraph's result in source order and the file's dtype. Raises LookupError where its operator failed."""
        return self.values.resource(tensor) or self.values.get(tensor, source_order(tensor.dims), FILE)

    def graph(self, body: Callable[..., Sequence[ir.Value]], inputs: Sequence[tuple[str, str, Dims | None]]) -> ir.Graph:
        names = self.emitter.names
        values = [typed(ir.Value(name=names.unique(name)), dtype, dims) for name, dtype, dims in inputs]
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


def _marks(bound: Bound) -> dict[str, str]:
    operators = ",".join(f"{op.subgraph}:{op.index}" for op in bound.members)
    return {MARK + "operators": operators, MARK + "handler": bound.handler.name, MARK + "pack": bound.pack}


def lower(
    model: BoundModel,
    layout: LayoutPlan,
    storage: StoragePlan,
    target: Target,
    emitter: Emitter,
    *,
    names: interface.Names,
    after: AfterLowering = lambda bound, outputs: None,
) -> ir.Model:
    """Emit the whole model. ``names``: what the graph's inputs and outputs are called.

    Raises HandlerError with every operator that failed.
    """
    problems: list[Problem] = []
    states = States(emitter, layout)
    for name in (*names.inputs, *names.outputs):
        emitter.names.unique(name)
    scope = Scope(model, 0, layout, storage, target, emitter, states, problems, after)
    inputs = [
        _graph_input(scope, tensor, name, layout.edge(tensor))
        for tensor, name in zip(model.main.inputs, names.inputs, strict=True)
    ]
    scope.run()
    if problems:
        raise HandlerError("the model cannot be converted:", problems)
    outputs: list[ir.Value] = []
    for tensor, name in zip(model.main.outputs, names.outputs, strict=True):
        outputs.append(_graph_output(scope, tensor, name, layout.edge(tensor), outputs))
    state_inputs, state_outputs, defaults, described = states.interface(outputs)
    graph = ir.Graph(
        [*inputs, *state_inputs],
        [*outputs, *state_outputs],
        nodes=_needed(emitter.nodes, [*outputs, *state_outputs]),
        opset_imports=dict(emitter.domains),
        name=model.main.subgraph.name or "main",
    )
    for value in [*defaults, *_constants(graph)]:
        graph.register_initializer(value)
    result = ir.Model(graph, ir_version=ir_version(emitter.opset), producer_name="onnx-tflite-plugin")
    if state_inputs:
        result.metadata_props[MARK + "state"] = described
    return result


def _graph_input(scope: Scope, tensor: Tensor, name: str, order: Order) -> ir.Value:
    value = ir.Value(name=name, metadata_props=_edge_marks(tensor, order))
    scope.values.put(tensor, value, order, FILE)
    return value


def _graph_output(scope: Scope, tensor: Tensor, name: str, order: Order, before: Sequence[ir.Value]) -> ir.Value:
    """The tensor in its edge's order and the file's dtype, under the tensor's own name."""
    value = scope.values.get(tensor, order, FILE)
    if value.producer() is None or value in before or value.producer() not in scope.emitter.nodes:
        kept = value
        value = scope.emitter.emit("Identity", [kept], {})[0]
        value.type, value.shape = kept.type, kept.shape
    for mark in ("tensor", "form", "order", "shift"):  # it may stand for a tensor before it too, in another order
        value.metadata_props.pop(MARK + mark, None)
    value.metadata_props.update(_edge_marks(tensor, order))
    value.name = name
    return value


def _edge_marks(tensor: Tensor, order: Order) -> dict[str, str]:
    marks = {MARK + "tensor": f"{tensor.subgraph}:{tensor.index}", MARK + "form": "stored"}
    return marks if order == source_order(tensor.dims) else {**marks, MARK + "order": spelled(order)}


def _needed(nodes: Sequence[ir.Node], outputs: Sequence[ir.Value]) -> list[ir.Node]:
    """The nodes that an output depends on, in their order."""
    wanted = set(outputs)
    kept: list[ir.Node] = []
    for node in reversed(nodes):
        if any(out in wanted for out in node.outputs):
            kept.append(node)
            wanted.update(_used_by(node))
    return kept[::-1]


def _used_by(node: ir.Node) -> set[ir.Value]:
    used = {value for value in node.inputs if value is not None}
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            inner = attribute.as_graph()
            used.update(inner.outputs)
            for node_ in inner:
                used |= _used_by(node_)
    return used


def _constants(graph: ir.Graph) -> list[ir.Value]:
    """Every constant that a node, here or in an inner graph, uses."""
    used: dict[ir.Value, None] = {}
    for node in graph:
        for value in sorted(_used_by(node), key=lambda v: v.name or ""):
            if value.const_value is not None and value not in graph.inputs:
                used[value] = None
    return list(used)


def ir_version(opset: int) -> int:
    """The first IR version that has an opset."""
    import onnx

    return max(8, *(row[1] for row in onnx.helper.VERSION_TABLE if row[2] == opset))
