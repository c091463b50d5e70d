"""Keys in ``metadata_props`` of a converted model.

The texts are written and read in three modules: ``model_metadata``, ``node_metadata`` and ``value_metadata``.

| stored in | key | text |
|---|---|---|
| model | ``state`` | JSON, an object per state: see ``CarriedState``; empty if every run resets the states |
| model | ``weights`` | JSON, ``{weight dtype: number of 8-bit products}`` |
| model | ``runtime`` | the runtime for which the model was converted, if an If selects its weights |
| model | ``attention`` | ``causal`` if masks were declared causal, so that caches are written in place |
| model | ``signature`` | the key of the converted signature |
| model | ``lengths`` | JSON, ``{signature key: sequence length in tokens}``, if the model joins several signatures |
| model | ``activations`` | the number of bytes of all intermediate tensors; absent if a size is dynamic |
| model | ``renamed`` | JSON, ``{TFLite name: new name}`` of graph inputs and outputs |
| model | ``part`` | JSON, ``{"inputs": [...], "outputs": [...]}``: the tensors between which the subgraph was cut |
| model | ``digest`` | the SHA-256 of the TFLite model itself, not of its bundle; hexadecimal |
| model | ``source`` | JSON, the author's description of the model: see ``write_author_metadata`` |
| node | ``operators`` | its TFLite operators as ``subgraph:operator,...``; a call comes before the operators of the called subgraph |
| node | ``handler``, ``pack`` | the handler that lowered it, and the handler's pack |
| node | ``name`` | the name of the TFLite operator's first output, cut at the first ``;`` (TFLite joins fused names with it) |
| node | ``assumed`` | operands about whose values the handler makes assumptions, ``subgraph:tensor,...`` |
| value | ``tensor``, ``form``, ``order``, ``shift``, ``channels`` | see :class:`~onnx_tflite_plugin.graph.tensor_value.TensorValue` |

Every key has the prefix :data:`PREFIX`. These modules import neither onnx nor onnx_ir.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Protocol

PREFIX = "onnx_tflite_plugin."


class Entry(Protocol):
    """One entry of a protobuf's ``metadata_props``."""

    key: str
    value: str


def props(entries: Iterable[Entry]) -> dict[str, str]:
    """Return a protobuf's ``metadata_props`` as a mapping, as in onnx_ir."""
    return {entry.key: entry.value for entry in entries}


def converter_entries(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the entries that the converter wrote."""
    return {key: text for key, text in metadata.items() if key.startswith(PREFIX)}


def remove_converter_entries(metadata: MutableMapping[str, str]) -> None:
    """Remove the entries that the converter wrote, because they are no longer valid."""
    for key in converter_entries(metadata):
        del metadata[key]
