"""Fold casts of half-precision constants, which clutter graphs that people read."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from onnx_tflite_plugin.api.budget import spend_budget

_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class FoldCasts(InPlacePass):
    """Replace each Cast of a half-precision constant to float32 by a float32 constant."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        folded: dict[ir.Value, ir.Value] = {}
        for node in [node for node in graph.all_nodes() if node.op_type == "Cast" and not node.domain]:
            half, result = node.inputs[0], node.outputs[0]
            if half is None or not _is_half_constant(half) or node.attributes["to"].as_int() != ir.DataType.FLOAT:
                continue
            if result.is_graph_output():
                continue
            if half not in folded:
                folded[half] = _widen(half)
            result.replace_all_uses_with(folded[half])
            assert node.graph is not None
            node.graph.remove(node, safe=True)
        for half, constant in folded.items():
            if half.uses() or half.is_graph_output():
                constant.name = f"{half.name}/float32"
            else:
                del graph.initializers[half.name or ""]
            graph.register_initializer(constant)
        return PassResult(model, bool(folded))


def _is_half_constant(value: ir.Value) -> bool:
    return value.is_initializer() and not value.is_graph_input() and value.dtype in _HALF


def _widen(value: ir.Value) -> ir.Value:
    assert value.const_value is not None
    spend_budget(value.const_value.size, 4, f"constant {value.name!r} as float32")
    array = np.asarray(value.const_value.numpy()).astype(np.float32)
    tensor = ir.Tensor(array, name=value.name)
    return ir.Value(name=value.name, shape=value.shape, type=ir.TensorType(ir.DataType.FLOAT), const_value=tensor)
