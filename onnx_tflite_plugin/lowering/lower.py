"""Lowering of a whole model, with its inputs, outputs and states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext

import onnx_ir as ir

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.errors import CONTRADICTION, REFUSED, Contradiction, HandlerError, InvalidModel
from onnx_tflite_plugin.graph.model_metadata import write_states
from onnx_tflite_plugin.graph.value_metadata import write_tensor
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.layout.tensor_layout import TensorLayout, format_layout, source_layout
from onnx_tflite_plugin.lowering.arrays import physical_dims
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.interface import InterfaceNames
from onnx_tflite_plugin.lowering.ir_values import set_type
from onnx_tflite_plugin.lowering.operators import initialize_variable, label_nodes, lower_operators
from onnx_tflite_plugin.lowering.scope import AfterOperator, Job, Scope
from onnx_tflite_plugin.lowering.state import States
from onnx_tflite_plugin.lowering.values import FILE, outer_scopes
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.source.model import Tensor


def lower(
    model: BoundModel,
    layout: LayoutPlan,
    storage: StoragePlan,
    target: Target,
    emitter: Emitter,
    *,
    names: InterfaceNames,
    reset: bool = False,
    after_operator: AfterOperator = lambda bound, outputs: (),
) -> ir.Model:
    """Return the ONNX model, without unused nodes and constants.

    ``names``: names of graph inputs and outputs. ``reset``: every run starts from the initial states, so states are not
    inputs and outputs. ``after_operator``: called with each lowered operator and its outputs; returns problems. Raises
    HandlerError with every operator that failed, InvalidModel if all failures are contradictions in the file.
    """
    emitter.outer_scopes = outer_scopes(model.source)
    states = States(emitter, layout, storage, reset)
    for name in (*names.inputs, *names.outputs):
        emitter.names.unique(name)
    job = Job(model, layout, storage, target, emitter, states, after_operator, lower_operators)
    scope = Scope(job, model.source.root)
    inputs = [
        _graph_input(scope, tensor, name, layout.interface_layout(tensor))
        for tensor, name in zip(model.main.inputs, names.inputs, strict=True)
    ]
    lower_operators(scope)
    if job.problems and all(isinstance(problem, Contradiction) for problem in job.problems):
        raise InvalidModel(CONTRADICTION, job.problems)
    if job.problems:
        raise HandlerError(REFUSED, [*job.problems, *job.downstream_refusals]) from next(iter(job.causes), None)
    outputs: dict[ir.Value, None] = {}
    producers = {tensor: bound for bound in model.main.operators for tensor in bound.op.outputs}
    for tensor, name in zip(model.main.outputs, names.outputs, strict=True):
        initialize_variable(scope, tensor)
        producer = producers.get(tensor)
        with nullcontext() if producer is None else label_nodes(scope, producer):
            outputs[_graph_output(scope, tensor, name, layout.interface_layout(tensor), outputs)] = None
    state_inputs, state_outputs, initial_states, state_metadata = states.interface(outputs)
    nodes = _reachable_nodes(emitter.nodes, [*outputs, *state_outputs])
    _detach(set(emitter.nodes).difference(nodes))
    graph = ir.Graph(
        [*inputs, *state_inputs],
        [*outputs, *state_outputs],
        nodes=nodes,
        opset_imports=dict(emitter.domains),
        name=model.main.subgraph.name or "main",
    )
    for value in [*initial_states, *_constants_in_use(graph)]:
        graph.register_initializer(value)
    result = ir.Model(graph, ir_version=ir_version(emitter.opset), producer_name="onnx-tflite-plugin")
    write_states(result.metadata_props, state_metadata, reset=reset)
    _infer_missing_shapes(result)
    scope.values.clear()
    emitter.clear()
    return result


def _infer_missing_shapes(model: ir.Model) -> None:
    """Set the missing shapes of graph inputs and outputs, which ONNX requires.

    An output whose shape cannot be inferred becomes a scalar, because a file that does not store ranks has ``[]`` for
    scalars as well as for unknown shapes.
    """
    for value in model.graph.inputs:
        value.shape = ir.Shape(()) if value.shape is None else value.shape
    unshaped = {value.name: value for value in model.graph.outputs if value.shape is None}
    if not unshaped:
        return
    import onnx

    for info in onnx.shape_inference.infer_shapes(ir.to_proto(model)).graph.output:
        if info.name in unshaped and info.type.tensor_type.HasField("shape"):
            dims = info.type.tensor_type.shape.dim
            shape = ir.Shape([d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims])
            unshaped.pop(info.name).shape = shape
    for value in unshaped.values():
        value.shape = ir.Shape(())


def _graph_input(scope: Scope, tensor: Tensor, name: str, layout: TensorLayout) -> ir.Value:
    value = scope.emitter.register(ir.Value(name=name))
    _describe(value, tensor, layout)
    rounding = tensor.fake_quantization
    if rounding is None:
        scope.values.put(tensor, value, layout, FILE)
    else:
        set_type(value, tensor.dtype, physical_dims(tensor, layout))
        scope.values.put(tensor, scope.conversions.fake_quantize(value, rounding, layout), layout, FILE)
    return value


def _graph_output(
    scope: Scope, tensor: Tensor, name: str, layout: TensorLayout, earlier: Collection[ir.Value]
) -> ir.Value:
    """Return the graph output: the tensor in ``layout`` and the file's dtype.

    ``earlier``: the graph outputs before this one. A value that is one of them keeps its name and is copied by Identity.
    """
    value = scope.values.get(tensor, layout, FILE)
    producer = value.producer()
    # The producer has a graph only if it is in an inner graph.
    if producer is None or value in earlier or producer.graph is not None:
        original = value
        value = scope.emitter.emit("Identity", [original], {})[0]
        value.type, value.shape = original.type, original.shape
    _describe(value, tensor, layout)  # replaces metadata of another tensor that has the same value
    value.name = name
    return value


def _describe(value: ir.Value, tensor: Tensor, layout: TensorLayout) -> None:
    text = "" if layout == source_layout(tensor.dims) else format_layout(layout)
    write_tensor(value.metadata_props, tensor.subgraph, tensor.index, order=text)


def _reachable_nodes(nodes: Sequence[ir.Node], outputs: Sequence[ir.Value]) -> list[ir.Node]:
    """Return the nodes that an output depends on, in unchanged order."""
    needed = set(outputs)
    reachable: list[ir.Node] = []
    for node in reversed(nodes):
        if any(output in needed for output in node.outputs):
            reachable.append(node)
            needed.update(_operands_and_captures(node))
    return reachable[::-1]


def _detach(nodes: Iterable[ir.Node]) -> None:
    """Disconnect nodes and the nodes of their inner graphs from their inputs."""
    for node in nodes:
        node.resize_inputs(0)
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _detach(attribute.as_graph())


def _operands_and_captures(node: ir.Node) -> set[ir.Value]:
    used = {value for value in node.inputs if value is not None}
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            inner = attribute.as_graph()
            used.update(inner.outputs)
            for inner_node in inner:
                used |= _operands_and_captures(inner_node)
    return used


def _constants_in_use(graph: ir.Graph) -> list[ir.Value]:
    """Return the constants that nodes of the graph and its inner graphs use."""
    used: dict[ir.Value, None] = {}
    for node in graph:
        for value in sorted(_operands_and_captures(node), key=lambda v: v.name or ""):
            if value.const_value is not None:
                used[value] = None
    return list(used)


def ir_version(opset: int) -> int:
    """Return the first IR version that supports an opset; at least 8 from opset 13 on.

    The version is 8 for an opset unknown to the installed onnx.
    """
    import onnx

    versions = [row[1] for row in onnx.helper.VERSION_TABLE if row[2] == opset]
    return min(versions) if versions and opset < 13 else max([8, *versions])
