"""Store zeros in place of subnormal weights.

Training with weight decay leaves weights such as 1e-40. Many processors multiply these subnormal numbers in microcode, up to a
hundred times slower than other numbers. A convolution with 1 % subnormal weights takes 29 times as long as one without (Intel Xeon).
AMD Zen 4 multiplies subnormal numbers at full speed. XNNPACK, which LiteRT uses, treats subnormal numbers as zeros
(DISABLE_DENORMALS, operator-run.c); by default, ONNX Runtime does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, nodes_of
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match
from onnx_tflite_plugin.source.model import Array

_MULTIPLICATIONS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_BLOCK = 1 << 20  # number of weights tested at once, which limits the memory of the test
_NORMAL = np.finfo(np.float32).smallest_normal

Uses = tuple[ir.Value, Sequence[tuple[ir.Node, int]]]
"""A constant, and the convolutions and multiplications that read it, with the operand slot."""


class Match(NamedTuple):
    """A constant with its uses. ``flushed``: its array, with subnormals set to zero."""

    uses: Uses
    flushed: Array


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[Uses]:
    """Return the float constants that convolutions and multiplications read."""
    weights: dict[ir.Value, list[tuple[ir.Node, int]]] = {}
    for node in nodes_of(model.graph.all_nodes(), *_MULTIPLICATIONS):
        for slot, value in enumerate(node.inputs[:2]):
            if value is not None and value.dtype == ir.DataType.FLOAT and constant(value) is not None:
                weights.setdefault(value, []).append((node, slot))
    return list(weights.items())


def check(uses: Uses) -> Match:
    """Return the match if some elements of the constant are subnormal."""
    array = require_match(constant(uses[0]))
    flat = array.reshape(-1)
    require(any(_is_subnormal(flat[start : start + _BLOCK]).any() for start in range(0, flat.size, _BLOCK)))
    return Match(uses, np.where(_is_subnormal(array), np.float32(0), array))


def _is_subnormal(array: Array) -> Array:
    """Return a mask of the subnormal elements."""
    return np.asarray((np.abs(array) < _NORMAL) & (array != 0))


def rewrite(editor: Editor, match: Match) -> None:
    """Replace the constant with its flushed array for the nodes in its uses."""
    value, users = match.uses
    flushed = editor.store(match.flushed, like=value)
    for node, slot in users:
        node.replace_input_with(slot, flushed)


zero_subnormals = RewriteRule(pattern, check, rewrite)
