"""Position and mask inputs of language models with a declared causal mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.decoder import GraphInput, recognize_decoder
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import is_causal
from onnx_tflite_plugin.source.model import Array

if TYPE_CHECKING:
    from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime

_DTYPES = {1: "float32", 6: "int32", 7: "int64", 9: "bool"}


def causal_inputs(session: OnnxRuntime, runs: int, length: int | None = None) -> list[Mapping[str, Array]] | None:
    """Return name -> position or mask input, for each run.

    Return None for models without a causal mask. The first run fills the last slots of the KV caches; later runs fill
    earlier slots. ``length``: the number of tokens, if it is dynamic.
    """
    if not is_causal(props(session.proto.metadata_props)):
        return None
    graph_inputs = [
        GraphInput(
            info.name,
            _DTYPES.get(info.type.tensor_type.elem_type, ""),
            tuple(size.dim_value or None for size in info.type.tensor_type.shape.dim),
        )
        for info in session.inputs
    ]
    decoder = recognize_decoder(graph_inputs, [info.name for info in session.outputs], heads_first=True)
    count = length if decoder is None else decoder.length or length
    if decoder is None or count is None:
        return None
    last_start = decoder.slots - count
    return [decoder.position_inputs(last_start * (runs - run) // runs, count) for run in range(runs)]
