"""Replace an Add before LayerNormalization with a Sum.

ONNX Runtime fuses Add and LayerNormalization into SkipLayerNormalization, but not Sum and LayerNormalization. The fused kernel is slow
from ONNX Runtime 1.30 on. Times for 197 rows of 192 elements on an Intel Xeon with AVX-512:

=================  =================  ======================================
ONNX Runtime       fused              separate nodes
=================  =================  ======================================
1.22 to 1.26       31 us              34 us
1.27 to 1.29                          140 us for LayerNormalization alone
1.30 to 1.32       166 us             24 us
=================  =================  ======================================
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, only_user, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match


def check(norm: ir.Node) -> ir.Node:
    """Return the Add of two computed tensors before a LayerNormalization.

    Raises Refusal if the sum has other users, or an addend is constant or broadcast.
    """
    add = require_match(producer(norm.inputs[0], "Add"))
    require(only_user(add.outputs[0], "LayerNormalization") is norm, "the sum has other users")
    first, second = map(sizes, add.inputs)
    require(first is not None and first == second, "an addend is broadcast")
    require(all(constant(value) is None for value in add.inputs), "an addend is constant")
    return add


def rewrite(editor: Editor, add: ir.Node) -> None:
    """Replace the Add with a Sum."""
    with editor.replacing(add):
        sum_value = editor.emit("Sum", *add.inputs)
    editor.replace_value(add.outputs[0], sum_value)


sum_before_norm = RewriteRule(nodes("LayerNormalization"), check, rewrite)
