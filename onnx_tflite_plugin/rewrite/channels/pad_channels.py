"""Pad the channels of convolutions to full blocks of the kernels.

Kernels work on blocks of 8 (AVX2) or 16 (AVX-512) channels. For other channel counts the kernels are slow, or a slower
kernel runs. Convolutions get more output channels, and all operators that read them get more input channels. The weights
of added channels are zero, so the results are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.graph.value_metadata import write_channels
from onnx_tflite_plugin.rewrite.channels.padding import MIN_MULTIPLICATIONS, Convolution, Padding, PaddingFlow
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import BLOCK, constant_shape, nodes_of, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule
from onnx_tflite_plugin.source.model import Array

# Heuristics:
_MAX_IMAGE_CHANNELS = 4  # maximum input channels of a convolution for which padding costs almost nothing
_MAX_PADDING_RATIO = 1.35  # maximum ratio of padded to original channels, for other convolutions larger than 1 x 1
_MAX_BLOCK_RATIO = 1.15
"""Maximum ratio of channels rounded up to a multiple of 16 to channels rounded up to a multiple of 8.

With 1.35, face_detection_back takes 0.83 of the time on AVX-512 (Xeon, Sapphire Rapids), but 1.31 of the time on AVX2. The
means over 12 networks are 0.97 and 1.05.
"""
_MAX_CROPPED_ELEMENTS = 4096  # maximum elements of a tensor whose padding may be cropped again


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[tuple[ir.Graph, Mapping[ir.Node, Convolution]]]:
    """Return one place: the main graph with its convolutions.

    Return no place if the graph has no convolutions.
    """
    convolutions = {
        node: convolution for node in nodes_of(model.graph, "Conv") if (convolution := Convolution.of(node))
    }
    return [(model.graph, convolutions)] if convolutions else []


def check(place: tuple[ir.Graph, Mapping[ir.Node, Convolution]]) -> PaddingFlow | Decline:
    """Return the paddings that save time; declines if there are none."""
    graph, convolutions = place
    widened = {
        node: features for node, convolution in convolutions.items() if (features := padded_features(convolution))
    }
    if not widened:
        return Decline("every channel count already has a fast path, or padding would waste too much")
    flow = PaddingFlow(convolutions)
    flow.propagate(graph, widened)
    slow = {node for node in widened if _is_slow(convolutions[node])}
    large = {node for node in widened if convolutions[node].multiplications() >= MIN_MULTIPLICATIONS}
    useful = flow.connected_convolutions(flow.far_reaching | slow) & flow.connected_convolutions(large)
    while rejected := (widened.keys() - useful) | _costly_convolutions(flow):
        widened = {node: features for node, features in widened.items() if node not in rejected}
        flow.propagate(graph, widened)
    return (
        flow
        if widened
        else Decline("the padding would have to be cropped, or the convolutions are too small to save time")
    )


def rewrite(editor: Editor, flow: PaddingFlow) -> int:
    """Pad weights and biases. Return the number of convolutions that were widened."""
    for node in list(editor.graph):
        operands, result = flow.operands(node), flow.padded.get(node.outputs[0])
        convolution = flow.convolutions.get(node)
        if convolution is not None and (result or operands[0]):
            _pad_convolution(editor, convolution, operands[0], result)
        elif result is not None and node.op_type != "Concat":
            _pad_operands(editor, node, result)
    for value, padding in flow.padded.items():
        _update_value(editor, flow, value, padding)
    return len(flow.widened)


pad_channels = RewriteRule(pattern, check, rewrite)


def padded_features(convolution: Convolution) -> int | None:
    """Return the padded number of output channels.

    Return ``None`` if padding is useless, unsupported or too wasteful.
    """
    features, channels, *kernel = convolution.shape
    padded = round_up(features)
    if padded == features or convolution.group != 1 or (convolution.quantized and not convolution.symmetric):
        return None
    is_wasteful = math.prod(kernel) > 1 and padded > _MAX_PADDING_RATIO * features
    return None if is_wasteful and channels > _MAX_IMAGE_CHANNELS and not _is_slow(convolution) else padded


def round_up(features: int) -> int:
    """Return the number of features rounded up to a multiple of 16 or 8.

    A multiple of 8 is used if a multiple of 16 costs too much on processors with blocks of 8.
    """
    small, large = (-(-features // block) * block for block in (BLOCK // 2, BLOCK))
    return large if large <= _MAX_BLOCK_RATIO * small else small


def _is_slow(convolution: Convolution) -> bool:
    """True if a kernel that computes or reads the channels has no fast path for them."""
    return convolution.features % 4 != 0 or (convolution.quantized and convolution.features < BLOCK)


def _costly_convolutions(flow: PaddingFlow) -> frozenset[ir.Node]:
    """Return the convolutions whose padding costs more to cut off than it saves."""
    costly: frozenset[ir.Node] = frozenset()
    for value, padding in flow.padded.items():
        shape = sizes(value)
        is_small = shape is not None and math.prod(size or 1 for size in shape) <= _MAX_CROPPED_ELEMENTS
        if not is_small and (flow.unpadded_uses(value) or value.is_graph_output()):
            costly |= {node for node in padding.origins if not _saves_gathering(flow.convolutions[node])}
    return costly


def _saves_gathering(convolution: Convolution) -> bool:
    """True if the integer kernel must gather its input unless the channels are padded.

    Gathering costs more than a Slice of the result.
    """
    return convolution.quantized and _is_slow(convolution) and math.prod(convolution.shape[2:]) > 1


def _pad_convolution(editor: Editor, convolution: Convolution, operand: Padding | None, result: Padding | None) -> None:
    """Pad weights and bias of a convolution for new input and output channels."""
    node = convolution.node

    def pad(array: Array, fill: float) -> Array:
        if operand and array.ndim > 1 and not convolution.depthwise:
            array = operand.pad(array, 1, fill)
        return result.pad(array, 0, fill) if result and array.ndim else array

    editor.rebuild(node, range(1, len(node.inputs)), pad)
    if convolution.depthwise and result:
        node.attributes["group"] = ir.AttrInt64("group", result.size)


def _pad_operands(editor: Editor, node: ir.Node, result: Padding) -> None:
    """Pad the per-channel constants of a node that has a padded operand."""

    def pad(array: Array, fill: float) -> Array:
        axis = array.ndim - result.rank + 1
        return result.pad(array, axis, fill) if 0 <= axis < array.ndim else array

    editor.rebuild(node, [k for k, value in enumerate(node.inputs) if constant_shape(value)], pad)


def _update_value(editor: Editor, flow: PaddingFlow, value: ir.Value, padding: Padding) -> None:
    """Set shape and metadata of a padded value.

    The padding is cut off for graph outputs, and for users that do not support it.
    """
    producer_node, uses, shape = value.producer(), flow.unpadded_uses(value), sizes(value)
    assert producer_node is not None
    if uses or value.is_graph_output():
        with editor.replacing(producer_node, after=True):
            if padding.is_at_end:
                unpadded = editor.emit("Slice", value, [0], [len(padding.positions)], [1])
            else:
                unpadded = editor.emit("Gather", value, np.asarray(padding.positions), axis=1)
        editor.replace_uses(value, unpadded, uses)
    channels = np.full(padding.size, -1)
    channels[list(padding.positions)] = np.arange(len(padding.positions))
    write_channels(value.metadata_props, channels.tolist())
    if shape is not None:
        value.shape = ir.Shape([shape[0], padding.size, *shape[2:]])
