"""Metadata of a node: its TFLite operators and its handler.

:mod:`onnx_tflite_plugin.graph.metadata` lists the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

from onnx_tflite_plugin.graph.metadata import PREFIX
from onnx_tflite_plugin.graph.value_metadata import read_tensor

_ASSUMED = PREFIX + "assumed"


def node_props(
    operators: Iterable[tuple[int, int]], handler: str, pack: str, name: str, assumed: Iterable[tuple[int, int]] = ()
) -> dict[str, str]:
    """Return the metadata of a node.

    ``operators``: (subgraph, operator) of each TFLite operator that it was lowered from, preceded by the calls that
    contain it. ``handler``, ``pack``: the handler that lowered it, and its pack. ``name``: the operator's name in
    TFLite. ``assumed``: (subgraph, tensor) of each operand whose values the handler makes an assumption about.
    """
    texts = _join_locations(operators)
    props = {PREFIX + "operators": texts, PREFIX + "handler": handler, PREFIX + "pack": pack, PREFIX + "name": name}
    return props | ({_ASSUMED: text} if (text := _join_locations(assumed)) else {})


def _join_locations(locations: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{subgraph}:{index}" for subgraph, index in locations)


def _split_locations(text: str) -> tuple[tuple[int, int], ...]:
    pairs = (location.partition(":") for location in text.split(",") if location)
    return tuple((int(subgraph), int(index)) for subgraph, _, index in pairs)


def source_operators(metadata: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Return (subgraph, operator) of each TFLite operator of a node; () if unknown."""
    return _split_locations(metadata.get(PREFIX + "operators", ""))


def assumed_tensors(metadata: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Return (subgraph, tensor) of the operands whose values the handler assumed."""
    return _split_locations(metadata.get(_ASSUMED, ""))


def converted_operators(metadata: Mapping[str, str]) -> tuple[int, ...]:
    """Return the operators in the converted subgraph that a node was lowered from.

    An operator of a called subgraph is replaced by its call.
    """
    operators = source_operators(metadata)
    return tuple(index for subgraph, index in operators if subgraph == operators[0][0])


def fused_operators(metadata: Mapping[str, str]) -> tuple[int, ...]:
    """Return the operators that a node was lowered from, without their callers."""
    operators = source_operators(metadata)
    return tuple(index for subgraph, index in operators if subgraph == operators[-1][0])


def replace_locations(
    metadata: MutableMapping[str, str],
    tensors: Mapping[tuple[int, int], tuple[int, int]],
    operators: Mapping[tuple[int, int], tuple[int, int]],
) -> None:
    """Replace the locations of the tensor and the operators.

    The location of a tensor is kept if it is not in the mapping; that of an operator is removed.
    """
    value = read_tensor("", metadata)
    if value is not None and (value.subgraph, value.tensor) in tensors:
        graph, index = tensors[value.subgraph, value.tensor]
        metadata[PREFIX + "tensor"] = f"{graph}:{index}"
    if PREFIX + "operators" in metadata:
        locations = [operators[location] for location in source_operators(metadata) if location in operators]
        metadata[PREFIX + "operators"] = _join_locations(locations)
    if _ASSUMED in metadata:
        metadata[_ASSUMED] = _join_locations(tensors.get(location, location) for location in assumed_tensors(metadata))


def source_handler(metadata: Mapping[str, str]) -> tuple[str, str]:
    """Return the handler and the pack of a node; empty strings if unknown."""
    return metadata.get(PREFIX + "handler", ""), metadata.get(PREFIX + "pack", "")


def source_name(metadata: Mapping[str, str]) -> str:
    """Return the name of a node's TFLite operator; empty if unknown."""
    return metadata.get(PREFIX + "name", "")
