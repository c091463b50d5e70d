"""Kernels work on channels in blocks (of 8 with AVX2, of 16 with AVX-512); what is no multiple of a block is slow, or falls
back to a slower kernel. Convolutions get more result channels, with weights of zero, and whoever reads them gets weights of
zero for those: the same numbers.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.passes.channels.flow import LITTLE, Convolution, Flow, Padding
from onnx_tflite_plugin.passes.graph import BLOCK, Editor, constant_shape, forget, nodes_of, sizes
from onnx_tflite_plugin.source.model import Array

_IMAGE = 4  # channels of an image at most: its convolution costs next to nothing more
_WASTE = 1.35  # beyond it other dense kernels of more than one tap lose more than the block gains
_LARGER = 1.15  # times as many channels that blocks of 16 may need as blocks of 8
_SMALL = 4096  # elements of a tensor that may be cut back to its original channels


def run(model: ir.Model) -> int:
    """Pad the channels of convolutions; returns how many got more."""
    convolutions = {node: found for node in nodes_of(model.graph, "Conv") if (found := Convolution.of(node))}
    widened = {node: wide for node, convolution in convolutions.items() if (wide := wanted(convolution))}
    flow = Flow(convolutions)
    flow.follow(model.graph, widened)
    useful = flow.bound_to(flow.blockwise | {node for node in widened if _slow(convolutions[node])})
    useful &= flow.bound_to({node for node in widened if convolutions[node].multiplications() >= LITTLE})
    while rejected := (widened.keys() - useful) | _costly(flow):
        widened = {node: wide for node, wide in widened.items() if node not in rejected}
        flow.follow(model.graph, widened)
    if widened:
        _write(Editor(model), flow)
    return len(widened)


def wanted(convolution: Convolution) -> int | None:
    """How many channels the result could have instead of its own."""
    features, channels, *kernel = convolution.shape
    wide = width(features)
    if wide == features or convolution.group != 1 or (convolution.quantized and not convolution.symmetric):
        return None
    wasteful = math.prod(kernel) > 1 and wide > _WASTE * features
    return None if wasteful and channels > _IMAGE and not _slow(convolution) else wide


def width(features: int) -> int:
    """The multiple of a block that is least for the worse of both processors: those with blocks of 8 channels lose what others,
    whose blocks have 16, gain.
    """
    small, large = (-(-features // block) * block for block in (BLOCK // 2, BLOCK))
    return large if large <= _LARGER * small else small


def _slow(convolution: Convolution) -> bool:
    """Whether a kernel has no fast path for so few channels, or its readers none for a number that four does not divide."""
    return convolution.features % 4 != 0 or (convolution.quantized and convolution.features < BLOCK)


def _costly(flow: Flow) -> frozenset[ir.Node]:
    """The convolutions whose padding would have to be cut off again, where that costs more than it gains."""
    costly: frozenset[ir.Node] = frozenset()
    for value, padding in flow.padded.items():
        shape = sizes(value)
        small = shape is not None and math.prod(size or 1 for size in shape) <= _SMALL
        if not small and (flow.whole(value) or value.is_graph_output()):
            costly |= {node for node in padding.origins if not _gathers(flow.convolutions[node])}
    return costly


def _gathers(convolution: Convolution) -> bool:
    """Whether the integer kernel for so few channels gathers its input first, which costs more than a Slice behind it."""
    return convolution.quantized and _slow(convolution) and math.prod(convolution.shape[2:]) > 1


def _write(editor: Editor, flow: Flow) -> None:
    for node in list(editor.graph):
        operands, result = flow.operands(node), flow.padded.get(node.outputs[0])
        convolution = flow.convolutions.get(node)
        if convolution is not None and (result or operands[0]):
            _widen(editor, convolution, operands[0], result)
        elif result is not None and node.op_type != "Concat":
            _spread_operands(editor, node, result)
    for value, padding in flow.padded.items():
        _settle(editor, flow, value, padding)
    editor.tidy()


def _widen(editor: Editor, convolution: Convolution, operand: Padding | None, result: Padding | None) -> None:
    """Weights and bias with zeros for the channels that are new in front and behind."""
    node = convolution.node

    def spread(array: Array, fill: float) -> Array:
        if operand and array.ndim > 1 and not convolution.depthwise:
            array = operand.spread(array, 1, fill)
        return result.spread(array, 0, fill) if result and array.ndim else array

    editor.rebuild(node, range(1, len(node.inputs)), spread)
    if convolution.depthwise and result:
        node.attributes["group"] = ir.AttrInt64("group", result.size)


def _spread_operands(editor: Editor, node: ir.Node, result: Padding) -> None:
    """Constants with one number a channel, beside padded operands."""

    def spread(array: Array, fill: float) -> Array:
        axis = array.ndim - result.rank + 1
        return result.spread(array, axis, fill) if 0 <= axis < array.ndim else array

    editor.rebuild(node, [k for k, value in enumerate(node.inputs) if constant_shape(value)], spread)


def _settle(editor: Editor, flow: Flow, value: ir.Value, padding: Padding) -> None:
    """Shape and metadata of a padded value, and the tensor as it was for whoever needs it."""
    maker, users, shape = value.producer(), flow.whole(value), sizes(value)
    assert maker is not None
    if users or value.is_graph_output():
        with editor.replacing(maker, after=True):
            if padding.is_behind:
                whole = editor.emit("Slice", value, [0], [len(padding.positions)], [1])
            else:
                whole = editor.emit("Gather", value, np.asarray(padding.positions), axis=1)
        editor.replace_uses(value, whole, users)
    forget(value)
    if shape is not None:
        value.shape = ir.Shape([shape[0], padding.size, *shape[2:]])
