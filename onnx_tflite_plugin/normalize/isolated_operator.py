"""One operator, lowered without the rest of its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.dataflow import tensor_bytes
from onnx_tflite_plugin.layout.plan import plan_layout
from onnx_tflite_plugin.layout.propagation import InterfaceLayouts
from onnx_tflite_plugin.layout.tensor_layout import source_layout
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.interface import InterfaceNames
from onnx_tflite_plugin.lowering.lower import lower
from onnx_tflite_plugin.normalize.changes import with_main
from onnx_tflite_plugin.normalize.equality import reads_no_subgraph
from onnx_tflite_plugin.quantization.plan import plan_storage
from onnx_tflite_plugin.source.model import Array, Model, Operator, Subgraph
from onnx_tflite_plugin.targets import Target


def lower_in_isolation(op: Operator, model: Model, host: Host, target: Target) -> ir.Model:
    """Return an ONNX model of one operator of ``model``, in the file's layout."""
    inputs = tuple(dict.fromkeys(t for t in op.inputs if t is not None and not t.is_constant))
    outputs = tuple(t for t in op.outputs if t is not None)
    opset = target.opsets[2]
    if reads_no_subgraph(op):  # leave out the subgraphs, which would be bound again for each operator
        isolated = replace(model, subgraphs=(Subgraph(0, "", (), inputs, outputs, (op,)),), root=0)
    else:
        isolated = with_main(model, Subgraph(model.root, "", (), inputs, outputs, (op,)))
    resolved = resolve(host.bind(isolated, target, opset), target, opset)
    interface = InterfaceLayouts({tensor: source_layout(tensor.dims) for tensor in (*inputs, *outputs)})
    layout = plan_layout(resolved, bytes_of=tensor_bytes, prices=target.price, interface=interface, local=True)
    names = InterfaceNames(tuple(f"x{k}" for k in range(len(inputs))), tuple(f"y{k}" for k in range(len(outputs))))
    emitter = Emitter(opset, UniqueNames(), target.wider_dtypes)
    return lower(resolved, layout, plan_storage(resolved, target), target, emitter, names=names)


def constant_results(model: ir.Model) -> Sequence[Array | None]:
    """Return the value of each graph output; None for all if a graph input is used."""
    used = {value for node in model.graph.all_nodes() for value in node.inputs}
    if used & set(model.graph.inputs):
        return [None] * len(model.graph.outputs)
    from onnx.reference import ReferenceEvaluator

    results = ReferenceEvaluator(ir.to_proto(model)).run(
        None, {str(value.name): _placeholder(value) for value in model.graph.inputs}
    )
    return [np.asarray(result) for result in results]


def _placeholder(value: ir.Value) -> Array:
    """Return an array for a graph input that no node uses."""
    return np.zeros((), value.type.dtype.numpy() if value.type is not None else np.float32)
