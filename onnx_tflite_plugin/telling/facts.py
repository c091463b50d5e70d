"""What a TFLite file says of itself, as the ONNX model carries it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx_tflite_plugin.source.authored import Metadata
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.telling.edges import Edge

_OF_MODEL = ("name", "description", "version", "author", "license")
_GENERATED = ("MLIR Converted.", "TOCO Converted.")  # what the converters write where nobody says anything


def doc_string(model: Model) -> str:
    """The author's name and description of the model, or the file's; empty where a converter wrote it."""
    authored = model.authored or Metadata()
    described = authored.description or written_by_author(model.description)
    return "\n".join(part for part in (authored.name, described) if part)


def written_by_author(description: str) -> str:
    """A file's description; empty where it is what converters write."""
    return "" if description in _GENERATED else description


def facts(model: Model, inputs: Sequence[Edge], outputs: Sequence[Edge]) -> dict[str, Any]:
    """What is known of the model, its inputs and outputs; without what is not known."""
    authored = model.authored or Metadata()
    return {
        **{name: value for name in _OF_MODEL if (value := getattr(authored, name))},
        "inputs": [_edge(edge) for edge in inputs],
        "outputs": [_edge(edge) for edge in outputs],
    }


def _edge(edge: Edge) -> dict[str, Any]:
    """Only what the ONNX model does not say anyway."""
    left = {"dtype", "shape"} | (set() if len(edge.scale) > 1 else {"axis"})
    if edge.tensor == edge.name:
        left.add("tensor")
    return {key: value for key, value in edge.as_dict().items() if key not in left and value not in (None, (), "")}
