"""Scores of the last token only: the operators that compute them read the last row of their operand."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.graph.metadata import read_tensor
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.source.model import Tensor


def keep_last_token(model: ir.Model, head: Tensor | None) -> None:
    """Reduce the operand of the operators that compute scores, each row in isolation, to its last row.

    Raises UnsupportedOption if the model has no such operand.
    """
    found = None if head is None else next((v for v in _values(model) if _holds(v, head)), None)
    if head is None or found is None or found.shape is None:
        raise UnsupportedOption(
            "--logits last: what computes the scores is not an operator on each token in isolation; use --logits all"
        )
    held = read_tensor("", found.metadata_props)
    axis = head.dims.index(None)
    axis = axis if held is None or held.order is None else held.order.index(axis)
    users = [(use.node, use.idx) for use in found.uses()]
    editor, maker = Editor(model), found.producer()
    assert maker is not None
    with editor.replacing(maker, after=True):
        last = editor.emit("Gather", found, np.asarray([-1]), axis=axis)
    last.type = found.type
    last.shape = ir.Shape([1 if k == axis else size for k, size in enumerate(found.shape)])
    for node, slot in users:
        node.replace_input_with(slot, last)
    _set_one_row(model, last)


def _values(model: ir.Model) -> list[ir.Value]:
    return [value for node in model.graph for value in node.outputs]


def _holds(value: ir.Value, tensor: Tensor) -> bool:
    held = read_tensor("", value.metadata_props)
    return held is not None and (held.subgraph, held.tensor) == (tensor.subgraph, tensor.index)


def _set_one_row(model: ir.Model, last: ir.Value) -> None:
    """Set the only dynamic size of values downstream, the number of rows, to 1."""
    reached = {last}
    for node in model.graph:
        if reached.isdisjoint(value for value in node.inputs if value is not None):
            continue
        for value in node.outputs:
            reached.add(value)
            if value.shape is not None:
                value.shape = ir.Shape([size if isinstance(size, int) else 1 for size in value.shape])
