"""Extraction of a submodel between named values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.model_metadata import remove_origin
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs

if TYPE_CHECKING:
    import onnx


def extract_submodel(model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto | None:
    """Return the submodel that computes ``outputs`` from ``inputs``.

    The submodel keeps the constants and metadata of the model. Return ``None`` if the submodel needs another input of
    the model, or if a name is not a value of the main graph with a known dtype. Also return ``None`` if one of
    ``inputs`` is unused but a value upstream of it is read, for example after two reshapes were merged.
    """
    graph = model.graph
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    if any(name not in infos for name in (*inputs, *outputs)):
        return None
    needed, nodes = {*outputs} - {*inputs}, []
    for node in reversed(graph.node):
        if any(name in needed for name in node.output):
            nodes.append(node)
            needed |= {*operand_names(node)} - {*inputs}
    used = {name for node in nodes for name in operand_names(node)}
    unused = {*inputs} - used
    if unused and not used.isdisjoint(_upstream_values(model, unused)):
        return None
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    available = {name for node in nodes for name in node.output} | {tensor.name for tensor in constants}
    if needed - available:
        return None
    submodel = empty_copy(model)
    submodel.graph.node.extend(reversed(nodes))
    submodel.graph.initializer.extend(constants)
    submodel.graph.input.extend(infos[name] for name in inputs)
    submodel.graph.output.extend(infos[name] for name in outputs)
    submodel.graph.value_info.extend(info for info in graph.value_info if info.name in available - {*outputs})
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    remove_origin(metadata)
    for key, value in metadata.items():
        submodel.metadata_props.add(key=key, value=value)
    return submodel


def empty_copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the opsets and functions of ``model`` and nothing else."""
    copy = type(model)(
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        opset_import=model.opset_import,
        functions=model.functions,
    )
    copy.graph.name = model.graph.name
    return copy


def _upstream_values(model: onnx.ModelProto, values: Collection[str]) -> set[str]:
    """Return these values and all values that they are computed from."""
    needed = {*values}
    for node in reversed(model.graph.node):
        if any(name in needed for name in node.output):
            needed.update(operand_names(node))
    return needed


def operand_names(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, including captures of its subgraphs."""
    yield from (name for name in node.input if name)
    for subgraph in node_subgraphs(node):
        defined = {info.name for info in subgraph.input} | {tensor.name for tensor in subgraph.initializer}
        defined |= {name for inner_node in subgraph.node for name in inner_node.output}
        used = [name for inner_node in subgraph.node for name in operand_names(inner_node)]
        used += [info.name for info in subgraph.output]
        yield from (name for name in used if name not in defined)
