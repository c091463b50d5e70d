"""Metadata of a TFLite file that the conversion copies to the ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx_tflite_plugin.presentation.graph_io import GraphValue
from onnx_tflite_plugin.source.authored import Metadata
from onnx_tflite_plugin.source.model import Model

_MODEL_FIELDS = ("name", "description", "version", "author", "license")
_GENERATED = ("MLIR Converted.", "TOCO Converted.")  # default descriptions of converters


def doc_string(model: Model) -> str:
    """Return the model's name and description by its author.

    If the author wrote no description, use the file's, unless a converter generated it.
    """
    authored = model.authored or Metadata()
    description = authored.description or author_description(model.description)
    return "\n".join(part for part in (authored.name, description) if part)


def author_description(description: str) -> str:
    """Return the file's description; empty if it is the default text of a converter."""
    return "" if description in _GENERATED else description


def facts(model: Model, inputs: Sequence[GraphValue], outputs: Sequence[GraphValue]) -> dict[str, Any]:
    """Return what the file states about the model, its inputs and outputs."""
    authored = model.authored or Metadata()
    return {
        **{name: value for name in _MODEL_FIELDS if (value := getattr(authored, name))},
        "inputs": [_graph_value(graph_value) for graph_value in inputs],
        "outputs": [_graph_value(graph_value) for graph_value in outputs],
    }


def _graph_value(graph_value: GraphValue) -> dict[str, Any]:
    """Return the fields of an input or output that ONNX itself does not store."""
    omitted_keys = {"dtype", "shape"} | (set() if len(graph_value.scale) > 1 else {"axis"})
    if graph_value.tensor == graph_value.name:
        omitted_keys.add("tensor")
    return {
        key: value
        for key, value in graph_value.as_dict().items()
        if key not in omitted_keys and value not in (None, (), "")
    }
