"""Masks of -100 before Softmax, as in Swin, become -120, so that masked weights are 0 and not subnormal numbers.

exp(-100) is the smallest subnormal number. Intel processors multiply subnormal numbers by microcode: the product of 192 x 49 x 49
weights and values runs at 6 GMAC/s in place of 45. LiteRT's XNNPACK kernels treat subnormal numbers as zeros (DISABLE_DENORMALS,
operator-run.c).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor, clear_metadata
from onnx_tflite_plugin.rewrite.matching import constant, integer, only_user, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array

_SUBNORMAL_FROM, _SUBNORMAL_TO = -104.0, -87.0
"""Range whose exponentials are subnormal in float32."""
_LOWERED_BY = 20.0
_VISIBLE_FROM = -50.0
"""Smallest value of an entry that is not masked. Each row needs one, because a row of masked entries alone is not masked."""
_MAX_STEPS = 8


class Match(NamedTuple):
    """An Add with its mask as operand ``slot``, and the lowered mask."""

    add: ir.Node
    slot: int
    lowered: Array


def check(softmax: ir.Node) -> Match:
    """Return the match, if a mask is added to the operand of a Softmax of the last axis."""
    whole = require_match(sizes(softmax.inputs[0]))
    require(integer(softmax, "axis", -1) in (-1, len(whole) - 1))
    for add in _additions(softmax):
        for slot, value in enumerate(add.inputs):
            mask = constant(value)
            if mask is None or mask.dtype != np.float32 or not mask.ndim or mask.shape[-1] != whole[-1]:
                continue
            masked = (mask > _SUBNORMAL_FROM) & (mask < _SUBNORMAL_TO)
            if masked.any():
                visible = (mask >= _VISIBLE_FROM).any(axis=-1).all()
                require(visible, "a row of the mask hides all of its elements")
                return Match(add, slot, np.where(masked, mask - np.float32(_LOWERED_BY), mask))
    return require_match(None)


def rewrite(editor: Editor, match: Match) -> None:
    """Store the lowered mask. The sums are no tensors of the file any more."""
    add, slot, lowered = match
    add.replace_input_with(slot, editor.store(lowered, like=add.inputs[slot]))
    node: ir.Node | None = add
    while node is not None:
        clear_metadata(node.outputs[0])
        node = only_user(node.outputs[0], "Add", "Reshape")


lower_masks = RewriteRule(nodes("Softmax"), check, rewrite)


def _additions(softmax: ir.Node) -> Iterator[ir.Node]:
    """Yield the additions upstream of a Softmax whose sums reach nothing else, also through reshapes of earlier axes."""
    value, last = softmax.inputs[0], require_match(sizes(softmax.inputs[0]))[-1]
    for _ in range(_MAX_STEPS):
        node = producer(value, "Add", "Reshape")
        if node is None or value is None or only_user(value, "Add", "Reshape", "Softmax") is None:
            return
        if node.op_type == "Add":
            yield node
        value = next((each for each in node.inputs if each is not None and constant(each) is None), None)
        shape = sizes(value)
        if shape is None or shape[-1] != last:
            return
