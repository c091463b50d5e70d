"""Kernels work on channels in blocks (of 8 with AVX2, of 16 with AVX-512); what is no multiple of a block is slow, or falls
back to a slower kernel. Convolutions get more result channels, with weights of zero, and whoever reads them gets weights of
zero for those: the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.passes.channels.flow import Convolution, Flow, Padding
from onnx_tflite_plugin.passes.graph import BLOCK, Affine, Editor, constant, constant_shape, forget, sizes
from onnx_tflite_plugin.source.model import Array

_IMAGE = 4  # channels of an image at most: its convolution costs next to nothing more
_WASTE = 1.35  # beyond it other dense kernels of more than one tap lose more than the block gains
_LARGER = 1.15  # times as many channels that blocks of 16 may need as blocks of 8
_SMALL = 4096  # elements of a tensor that may be cut back to its original channels
LITTLE = 100_000  # multiplications below which no kernel gains what it takes to read one tensor more


def run(model: ir.Model) -> int:
    """Pad the channels of convolutions; returns how many got more."""
    convolutions = {
        node: convolution for node in model.graph if node.op_type == "Conv" and (convolution := Convolution.of(node))
    }
    widened = {node: wide for node, convolution in convolutions.items() if (wide := wanted(convolution))}
    flow = Flow(convolutions)
    flow.follow(model.graph, widened)
    useful = flow.bound_to(flow.blockwise | {node for node in widened if _slow(convolutions[node])})
    useful &= flow.bound_to({node for node in widened if multiplications(convolutions[node]) >= LITTLE})
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


def multiplications(convolution: Convolution, result: ir.Value | None = None) -> float:
    """How many multiplications a run takes; infinitely many where a size is not known. ``result``: a value of the result's shape."""
    shape = sizes(result or convolution.node.outputs[0])
    if shape is None or None in shape[2:]:
        return math.inf
    return math.prod(size or 0 for size in shape[2:]) * math.prod(convolution.shape)


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
            _spread_operands(editor, node, operands, result)
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

    for slot, value in enumerate(node.inputs[1:], 1):
        if value is not None:
            node.replace_input_with(slot, rebuilt(editor, node, value, spread))
    if convolution.depthwise and result:
        node.attributes["group"] = ir.AttrInt64("group", result.size)


def _spread_operands(editor: Editor, node: ir.Node, operands: list[Padding | None], result: Padding) -> None:
    """Constants with one number a channel, beside padded operands."""

    def spread(array: Array, fill: float) -> Array:
        axis = array.ndim - result.rank + 1
        return result.spread(array, axis, fill) if 0 <= axis < array.ndim else array

    for slot, value in enumerate(node.inputs):
        if value is not None and operands[slot] is None and constant_shape(value):
            node.replace_input_with(slot, rebuilt(editor, node, value, spread))


Spread = Callable[[Array, float], Array]


def rebuilt(editor: Editor, user: ir.Node, value: ir.Value, spread: Spread) -> ir.Value:
    """A constant, and the nodes that dequantize it, with other channels; what is new dequantizes to 0. Stands before ``user``."""
    array, node = constant(value), value.producer()
    if array is not None:
        return editor.stored(spread(array, 0), like=value)
    assert node is not None
    parameters = Affine.of(node) if node.op_type == "DequantizeLinear" else None
    if parameters is None:
        operands = [operand and rebuilt(editor, user, operand, spread) for operand in node.inputs]
    else:
        assert parameters.integers is not None
        scale, zero_point = parameters.scale, parameters.zero_point
        if not parameters.per_tensor:  # runtimes want a bias's scales to be those of the weights
            scale, zero_point = spread(scale, float(scale[0])), spread(zero_point, 0)
        integers = spread(parameters.integers, float(parameters.zero_point.reshape(-1)[0]))
        names = node.inputs
        operands = [editor.stored(a, like=n) for a, n in zip((integers, scale, zero_point), names, strict=True)]
    with editor.replacing(user):
        return editor.emit(node.op_type, *operands, like=node)


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
