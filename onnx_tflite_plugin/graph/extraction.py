"""Extraction of a submodel between named values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.metadata import remove_origin

if TYPE_CHECKING:
    import onnx


def extract_submodel(model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto | None:
    """Return the submodel that computes ``outputs`` from ``inputs``, with its constants and metadata.

    Returns ``None`` if the submodel needs another input of the model, if it bypasses one of ``inputs`` and reads a value
    upstream of it (as after two reshapes were merged), or if a name is not a value of the main graph with a known dtype.
    """
    graph = model.graph
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    if any(name not in infos for name in (*inputs, *outputs)):
        return None
    needed, nodes = {*outputs} - {*inputs}, []
    for node in reversed(graph.node):
        if any(name in needed for name in node.output):
            nodes.append(node)
            needed |= {*_input_names(node)} - {*inputs}
    read = {name for node in nodes for name in _input_names(node)}
    unread = {*inputs} - read
    if unread and not read.isdisjoint(_upstream_values(model, unread)):
        return None
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    available = {name for node in nodes for name in node.output} | {tensor.name for tensor in constants}
    if needed - available:
        return None
    part = start_part(model)
    part.graph.node.extend(reversed(nodes))
    part.graph.initializer.extend(constants)
    part.graph.input.extend(infos[name] for name in inputs)
    part.graph.output.extend(infos[name] for name in outputs)
    part.graph.value_info.extend(info for info in graph.value_info if info.name in available - {*outputs})
    kept = {entry.key: entry.value for entry in model.metadata_props}
    remove_origin(kept)
    for key, value in kept.items():
        part.metadata_props.add(key=key, value=value)
    return part


def start_part(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without nodes and metadata, with the opsets and functions of ``model``."""
    part = type(model)(
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        opset_import=model.opset_import,
        functions=model.functions,
    )
    part.graph.name = model.graph.name
    return part


def _upstream_values(model: onnx.ModelProto, values: Collection[str]) -> set[str]:
    """Return these values and all values of the main graph that they are computed from."""
    needed = {*values}
    for node in reversed(model.graph.node):
        if any(name in needed for name in node.output):
            needed.update(_input_names(node))
    return needed


def _input_names(node: onnx.NodeProto) -> Iterator[str]:
    """Return the values that a node reads, including captures of its inner graphs."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inner = attribute.g
            own = {info.name for info in inner.input} | {tensor.name for tensor in inner.initializer}
            own |= {name for each in inner.node for name in each.output}
            taken = [name for each in inner.node for name in _input_names(each)] + [info.name for info in inner.output]
            yield from (name for name in taken if name not in own)
