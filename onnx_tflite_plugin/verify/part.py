"""A part of a TFLite file as a file of its own, for LiteRT to run beside the ONNX model of that part."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..shapes.cutting import needed
from ..source.model import Subgraph
from .packages import optional


def cut_file(data: bytes, subgraph: Subgraph, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """The model whose ``subgraph`` is only what computes tensors ``outputs`` from tensors ``inputs``, by index.

    It is the first subgraph then; constants that nothing needs any more are left out, and so are signatures.
    """
    import flatbuffers

    schema = optional("ai_edge_litert.schema_py_generated")
    operators = needed(subgraph, [subgraph.tensors[k] for k in inputs], [subgraph.tensors[k] for k in outputs])
    kept = [operator.index for operator in operators]
    model = schema.ModelT.InitFromPackedBuf(data)
    part = model.subgraphs[subgraph.index]
    part.inputs, part.outputs = list(inputs), list(outputs)
    part.operators = [part.operators[k] for k in kept]
    model.signatureDefs = []
    if subgraph.index:
        model.subgraphs[0], model.subgraphs[subgraph.index] = part, model.subgraphs[0]
    _empty(model, _buffers(model))
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _buffers(model: Any) -> set[int]:
    """The buffers of tensors that an operator or an end of a subgraph names."""
    used = {entry.buffer for entry in model.metadata or ()}
    for subgraph in model.subgraphs:
        lists = [subgraph.inputs, subgraph.outputs]
        for operator in subgraph.operators or ():
            lists += [operator.inputs, operator.outputs, operator.intermediates]
        slots = {int(k) for listed in lists if listed is not None for k in listed if k >= 0}
        used |= {
            tensor.buffer for k, tensor in enumerate(subgraph.tensors) if k in slots or _scales(tensor) is not None
        }
    return used


def _scales(tensor: Any) -> Any:
    """Details of a quantization whose scales are tensors themselves."""
    return None if tensor.quantization is None else tensor.quantization.details


def _empty(model: Any, used: Collection[int]) -> None:
    for k, buffer in enumerate(model.buffers):
        if k not in used:
            buffer.data = None
