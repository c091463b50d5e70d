"""Shapes of intermediate tensors at which a submodel begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Model, Tensor
from onnx_tflite_plugin.verify.inputs.random_inputs import generate_inputs
from onnx_tflite_plugin.verify.inputs.sizes import plausible_shape
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT
from onnx_tflite_plugin.verify.runtimes.structure import Entry


def shapes_in_whole_model(
    data: bytes, model: Model, entry: Entry, inputs: Sequence[int], signature: str | None
) -> Mapping[int, tuple[int, ...]]:
    """Return index -> shape in a run of the whole model, for tensors ``inputs``.

    Return an empty mapping if all shapes are static, or if LiteRT does not run the model.
    """
    tensors = entry.subgraph.tensors
    if not any(_is_dynamic(tensors[index]) for index in inputs if 0 <= index < len(tensors)):
        return {}
    shapes = {name: plausible_shape(t) for name, t in zip(entry.input_names, entry.inputs, strict=True)}
    try:
        session = LiteRT(data, "builtin", signature=signature, preserve=True, known=model)
        session.run(generate_inputs(entry, shapes=shapes)[0])
        arrays = session.tensors()
    except ConversionError:
        return {}
    return {index: arrays[index].shape for index in inputs if index in arrays}


def _is_dynamic(tensor: Tensor) -> bool:
    return None in tensor.dims or not tensor.shape
