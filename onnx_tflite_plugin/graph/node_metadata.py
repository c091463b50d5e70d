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

    ``operators``: (subgraph, operator) of each TFLite operator from which the node was lowered. An operator of a called
    subgraph comes after its calls. ``handler``, ``pack``: the handler that lowered it, and its pack. ``name``: the
    operator's name in TFLite. ``assumed``: (subgraph, tensor) of each operand about whose values the handler makes
    assumptions.
    """
    operator_text = _join_locations(operators)
    props = {
        PREFIX + "operators": operator_text,
        PREFIX + "handler": handler,
        PREFIX + "pack": pack,
        PREFIX + "name": name,
    }
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
    """Return (subgraph, tensor) of operands whose values the handler relies on."""
    return _split_locations(metadata.get(_ASSUMED, ""))


def top_level_operators(metadata: Mapping[str, str]) -> tuple[int, ...]:
    """Return the top-level operators from which a node was lowered.

    They are in the converted subgraph: the call stands for an operator of a called subgraph.
    """
    operators = source_operators(metadata)
    return tuple(index for subgraph, index in operators if subgraph == operators[0][0])


def innermost_operators(metadata: Mapping[str, str]) -> tuple[int, ...]:
    """Return the operators from which a node was lowered, without the calls."""
    operators = source_operators(metadata)
    return tuple(index for subgraph, index in operators if subgraph == operators[-1][0])


def replace_locations(
    metadata: MutableMapping[str, str],
    tensors: Mapping[tuple[int, int], tuple[int, int]],
    operators: Mapping[tuple[int, int], tuple[int, int]],
) -> None:
    """Replace the tensor and operator locations in the metadata of a value or a node.

    A tensor location that is not in ``tensors`` is kept. An operator location that is not in ``operators`` is removed.
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
