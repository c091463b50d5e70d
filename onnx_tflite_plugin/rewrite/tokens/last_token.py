"""Restriction of a language model's output to the scores of the last token."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.graph.value_metadata import read_tensor
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.source.model import Tensor


def keep_last_token(model: ir.Model, head: Tensor | None) -> None:
    """Let the operators that compute scores read only the last row of ``head``.

    ``head``: the TFLite tensor from which the scores of each token are computed; None if there is none. Raises
    UnsupportedOption if the model has no such tensor.
    """
    scores_operand = (
        None if head is None else next((value for value in _values(model) if _stores_tensor(value, head)), None)
    )
    if head is None or scores_operand is None or scores_operand.shape is None:
        raise UnsupportedOption(
            "--logits last: the operators that compute the scores do not process each token separately; use --logits all"
        )
    metadata = read_tensor("", scores_operand.metadata_props)
    axis = head.dims.index(None)
    axis = axis if metadata is None or metadata.order is None else metadata.order.index(axis)
    users = [(use.node, use.idx) for use in scores_operand.uses()]
    editor, producer_node = Editor(model), scores_operand.producer()
    assert producer_node is not None
    with editor.replacing(producer_node, after=True):
        last_row = editor.emit("Gather", scores_operand, np.asarray([-1]), axis=axis)
    last_row.type = scores_operand.type
    last_row.shape = ir.Shape([1 if k == axis else size for k, size in enumerate(scores_operand.shape)])
    for node, slot in users:
        node.replace_input_with(slot, last_row)
    _set_one_row(model, last_row)


def _values(model: ir.Model) -> list[ir.Value]:
    return [value for node in model.graph for value in node.outputs]


def _stores_tensor(value: ir.Value, tensor: Tensor) -> bool:
    metadata = read_tensor("", value.metadata_props)
    return metadata is not None and (metadata.subgraph, metadata.tensor) == (tensor.subgraph, tensor.index)


def _set_one_row(model: ir.Model, last_row: ir.Value) -> None:
    """Set the dynamic dimension of downstream values, the number of rows, to 1."""
    downstream = {last_row}
    for node in model.graph:
        if downstream.isdisjoint(value for value in node.inputs if value is not None):
            continue
        for value in node.outputs:
            downstream.add(value)
            if value.shape is not None:
                value.shape = ir.Shape([size if isinstance(size, int) else 1 for size in value.shape])
