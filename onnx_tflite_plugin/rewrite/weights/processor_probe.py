"""The processor probe, and the If nodes that depend on it.

The probe multiplies two constant matrices to test whether the processor computes exact sums. ONNX Runtime constant-folds the probe and
each ``If`` on it when it loads a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.lowering.ir_values import set_type
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.weights.dtypes import EXACT_SUM, PROBE, probe_operands

Emit = Callable[[], Sequence[ir.Value]]


def emit_probe(editor: Editor) -> ir.Value:
    """Return the probe of the model, which is emitted on the first call.

    The probe is True if 255 * 127 + ... + 255 * 127 is exact. It multiplies matrices of the largest uint8 and int8 values.
    """
    values = (value for node in editor.graph for value in node.outputs)
    probe = next((value for value in values if value.name == PROBE), None)
    if probe is None:
        with editor.replacing(editor.graph[0], label=PROBE, props={}):
            sums = editor.emit("MatMulInteger", *probe_operands())
            minimum = editor.emit("ReduceMin", sums, keepdims=0)
            probe = set_type(editor.emit("Equal", minimum, np.asarray(EXACT_SUM, np.int32)), "bool", ())
        probe.name = PROBE
    return probe


def emit_choice(editor: Editor, probe: ir.Value, exact: Emit, fallback: Emit) -> list[ir.Value]:
    """Emit an ``If`` that selects one of two branches by the probe.

    ``exact`` emits the branch for processors that sum in 32 bits, ``fallback`` the branch for other processors. Both functions
    must emit the same number of values, with the same shapes.
    """
    then_branch = _branch(editor, "int8", exact)
    attributes = {"then_branch": then_branch, "else_branch": _branch(editor, "uint8", fallback)}
    values = editor.emitter.emit("If", [probe], attributes, outputs=len(then_branch.outputs))
    for value, branch_output in zip(values, then_branch.outputs, strict=True):
        value.shape = branch_output.shape
    return values


def _branch(editor: Editor, name: str, emit: Emit) -> ir.Graph:
    with editor.emitter.collect_inner_nodes() as nodes:
        values = emit()
    editor.register(operand for node in nodes for operand in node.inputs)
    return ir.Graph([], values, nodes=nodes, name=name)
