"""Kernels work on channels in blocks (of 8 with AVX2, of 16 with AVX-512); other numbers of channels are slow, or fall back to a
slower kernel. Convolutions get more output channels, with weights of zero, and so do all operators that read them: the results
are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.graph.metadata import write_channels
from onnx_tflite_plugin.rewrite.channels.padding import LITTLE, Convolution, Padding, PaddingFlow
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import BLOCK, constant_shape, nodes_of, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule
from onnx_tflite_plugin.source.model import Array

# Heuristics:
_IMAGE = 4  # maximum channels of an image: padding its convolution costs almost nothing
_WASTE = 1.35  # factor of channels above which other dense kernels of more than one tap lose more than the block gains
_LARGER = 1.15  # maximum ratio of channels padded to 16 and to 8
# With 1.35 face_detection_back takes 0.83 of the time on AVX-512 (Xeon, Sapphire Rapids) but 1.31 on AVX2; the mean of 12
# networks is 0.97 and 1.05.
_SMALL = 4096  # maximum elements of a tensor that may be cut back to its original channels


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[tuple[ir.Graph, Mapping[ir.Node, Convolution]]]:
    """Yield the main graph with its convolutions, if it has some."""
    convolutions = {node: found for node in nodes_of(model.graph, "Conv") if (found := Convolution.of(node))}
    return [(model.graph, convolutions)] if convolutions else []


def check(place: tuple[ir.Graph, Mapping[ir.Node, Convolution]]) -> PaddingFlow | Decline:
    """Return the padding that gains more than it costs. Declines if there is none."""
    graph, convolutions = place
    widened = {node: wide for node, convolution in convolutions.items() if (wide := width_to_pad_to(convolution))}
    if not widened:
        return Decline("all convolutions have numbers of channels with a fast path, or padding wastes too much")
    flow = PaddingFlow(convolutions)
    flow.propagate(graph, widened)
    useful = flow.joined_convolutions(flow.blockwise | {node for node in widened if _is_slow(convolutions[node])})
    useful &= flow.joined_convolutions({node for node in widened if convolutions[node].multiplications() >= LITTLE})
    while rejected := (widened.keys() - useful) | _costly(flow):
        widened = {node: wide for node, wide in widened.items() if node not in rejected}
        flow.propagate(graph, widened)
    return flow if widened else Decline("the padding would be cut off again, or the convolutions are too small to gain")


def rewrite(editor: Editor, flow: PaddingFlow) -> int:
    """Pad weights and biases, and return the number of convolutions with more output channels."""
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


def width_to_pad_to(convolution: Convolution) -> int | None:
    """Return the number of output channels to pad to; ``None`` if padding is useless or too wasteful."""
    features, channels, *kernel = convolution.shape
    wide = round_up(features)
    if wide == features or convolution.group != 1 or (convolution.quantized and not convolution.symmetric):
        return None
    wasteful = math.prod(kernel) > 1 and wide > _WASTE * features
    return None if wasteful and channels > _IMAGE and not _is_slow(convolution) else wide


def round_up(features: int) -> int:
    """Return the next multiple of 16, or of 8 if a multiple of 16 costs too much on processors with blocks of 8."""
    small, large = (-(-features // block) * block for block in (BLOCK // 2, BLOCK))
    return large if large <= _LARGER * small else small


def _is_slow(convolution: Convolution) -> bool:
    """True if the kernel has no fast path for so few channels, or its readers have none because the channels are not a
    multiple of four.
    """
    return convolution.features % 4 != 0 or (convolution.quantized and convolution.features < BLOCK)


def _costly(flow: PaddingFlow) -> frozenset[ir.Node]:
    """Return the convolutions with padding that costs more to cut off again than it gains."""
    costly: frozenset[ir.Node] = frozenset()
    for value, padding in flow.padded.items():
        shape = sizes(value)
        small = shape is not None and math.prod(size or 1 for size in shape) <= _SMALL
        if not small and (flow.unpadded_uses(value) or value.is_graph_output()):
            costly |= {node for node in padding.origins if not _gathers(flow.convolutions[node])}
    return costly


def _gathers(convolution: Convolution) -> bool:
    """True if the integer kernel for so few channels gathers its input, which costs more than a Slice after it."""
    return convolution.quantized and _is_slow(convolution) and math.prod(convolution.shape[2:]) > 1


def _pad_convolution(editor: Editor, convolution: Convolution, operand: Padding | None, result: Padding | None) -> None:
    """Pad weights and bias with zeros for new input and output channels."""
    node = convolution.node

    def pad(array: Array, fill: float) -> Array:
        if operand and array.ndim > 1 and not convolution.depthwise:
            array = operand.pad(array, 1, fill)
        return result.pad(array, 0, fill) if result and array.ndim else array

    editor.rebuild(node, range(1, len(node.inputs)), pad)
    if convolution.depthwise and result:
        node.attributes["group"] = ir.AttrInt64("group", result.size)


def _pad_operands(editor: Editor, node: ir.Node, result: Padding) -> None:
    """Pad per-channel constants beside padded operands."""

    def pad(array: Array, fill: float) -> Array:
        axis = array.ndim - result.rank + 1
        return result.pad(array, axis, fill) if 0 <= axis < array.ndim else array

    editor.rebuild(node, [k for k, value in enumerate(node.inputs) if constant_shape(value)], pad)


def _update_value(editor: Editor, flow: PaddingFlow, value: ir.Value, padding: Padding) -> None:
    """Update shape and metadata of a padded value, and cut off the padding for users that cannot take it."""
    maker, uses, shape = value.producer(), flow.unpadded_uses(value), sizes(value)
    assert maker is not None
    if uses or value.is_graph_output():
        with editor.replacing(maker, after=True):
            if padding.is_at_end:
                original = editor.emit("Slice", value, [0], [len(padding.positions)], [1])
            else:
                original = editor.emit("Gather", value, np.asarray(padding.positions), axis=1)
        editor.replace_uses(value, original, uses)
    channels = np.full(padding.size, -1)
    channels[list(padding.positions)] = np.arange(len(padding.positions))
    write_channels(value.metadata_props, channels.tolist())
    if shape is not None:
        value.shape = ir.Shape([shape[0], padding.size, *shape[2:]])
