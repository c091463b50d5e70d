"""Training with weight decay leaves weights of 1e-40 and such. Processors multiply these subnormal numbers by microcode, some
hundred times as slowly as others, unless they are told to take them for zeros: XNNPACK tells them (DISABLE_DENORMALS,
operator-run.c), ONNX Runtime by default does not. So zeros are stored.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, nodes_of, rewrite

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_NORMAL = np.finfo(np.float32).smallest_normal


def run(model: ir.Model) -> int:
    """Store zeros for subnormal weights of products; returns in how many constants."""
    weights: dict[ir.Value, list[tuple[ir.Node, int]]] = {}
    for node in nodes_of(model.graph.all_nodes(), *_PRODUCTS):
        for slot, value in enumerate(node.inputs[:2]):
            if value is not None and value.dtype == ir.DataType.FLOAT and constant(value) is not None:
                weights.setdefault(value, []).append((node, slot))
    return rewrite(model, list(weights.items()), _flush)


def _flush(editor: Editor, place: tuple[ir.Value, list[tuple[ir.Node, int]]]) -> bool:
    value, users = place
    array = constant(value)
    assert array is not None
    small = np.abs(array) < _NORMAL
    if not small.any():  # as in most networks
        return False
    subnormal = small & (array != 0)
    if not subnormal.any():
        return False
    flushed = editor.stored(np.where(subnormal, np.float32(0), array), like=value)
    for node, slot in users:
        node.replace_input_with(slot, flushed)
    return True
