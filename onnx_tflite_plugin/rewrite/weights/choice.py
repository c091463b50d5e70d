"""What is chosen by processor as the model loads: the probe, and an ``If`` on it that ONNX Runtime folds away."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.lowering.emitter import typed
from onnx_tflite_plugin.rewrite.graph import Editor
from onnx_tflite_plugin.rewrite.weights.forms import EXACT, PROBE, factors

Emit = Callable[[], Sequence[ir.Value]]


def probed(editor: Editor) -> ir.Value:
    """Whether the products of the largest uint8 and int8 add up; the model's one probe, written where it is missing."""
    values = (value for node in editor.graph for value in node.outputs)
    probe = next((value for value in values if value.name == PROBE), None)
    if probe is None:
        with editor.replacing(editor.graph[0], label=PROBE, props={}):
            sums = editor.emit("MatMulInteger", *factors())
            least = editor.emit("ReduceMin", sums, keepdims=0)  # of all axes, whatever the opset
            probe = typed(editor.emit("Equal", least, np.asarray(EXACT, np.int32)), "bool", ())
        probe.name = PROBE
    return probe


def chosen(editor: Editor, probe: ir.Value, exact: Emit, other: Emit) -> list[ir.Value]:
    """What ``exact`` emits where the processor adds products in 32 bits, else what ``other`` emits: as many values of the same shapes."""
    then = _branch(editor, "int8", exact)
    attributes = {"then_branch": then, "else_branch": _branch(editor, "uint8", other)}
    values = editor.emitter.emit("If", [probe], attributes, outputs=len(then.outputs))
    for value, inner in zip(values, then.outputs, strict=True):
        value.shape = inner.shape
    return values


def _branch(editor: Editor, name: str, emit: Emit) -> ir.Graph:
    with editor.emitter.nested() as nodes:
        values = emit()
    editor.register(operand for node in nodes for operand in node.inputs)
    return ir.Graph([], values, nodes=nodes, name=name)
