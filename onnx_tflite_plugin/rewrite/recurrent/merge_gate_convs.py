"""A convolutional recurrent layer has a convolution of few output channels for each gate, of the input and of the last output. In
blocks of 8 or 16 channels each takes as long as a whole block; convolutions of one image are merged, and their sum is split.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, first_node, integer, nodes_of, only_user, producer
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match
from onnx_tflite_plugin.source.model import Array

_WIDTH = 8  # channels of a block with AVX2, half of one with AVX-512
_FEWEST = 3  # gates


def _body_graphs(model: ir.Model) -> list[ir.Graph]:
    bodies = {node.graph: None for node in model.graph.all_nodes() if node.graph is not model.graph}
    return [graph for graph in bodies if isinstance(graph, ir.Graph)]


# --- convolutions -----------------------------------------------------------------------------


class Kernel(NamedTuple):
    """Weights and bias of a convolution as stored, float16 or float32."""

    weights: Array
    bias: Array | None

    @classmethod
    def of(cls, node: ir.Node) -> Kernel | None:
        """Return the kernel of a convolution; ``None`` if an operand is computed."""
        weights, *bias = map(_quantized_constant, node.inputs[1:])
        if weights is None or any(one is None for one in bias):
            return None
        return cls(weights, bias[0] if bias else None)


def pattern(model: ir.Model, _: RewriteOptions) -> Iterator[Sequence[ir.Node]]:
    """Yield the convolutions of each image in the bodies of loops, grouped by all but the values of their kernels."""
    for graph in _body_graphs(model):
        groups: dict[Hashable, list[ir.Node]] = {}
        for node in nodes_of(graph, "Conv"):
            kernel = Kernel.of(node) if integer(node, "group", 1) == 1 else None
            if kernel is not None:
                options = tuple(sorted((name, str(a.value)) for name, a in node.attributes.items()))
                key = node.inputs[0], options, kernel.weights.shape[1:], kernel.weights.dtype.name, kernel.bias is None
                groups.setdefault(key, []).append(node)
        yield from groups.values()


def check(convs: Sequence[ir.Node]) -> Sequence[ir.Node] | Decline:
    """Return the convolutions. Declines unless they have fewer blocks together."""
    features = [len(kernel.weights) for kernel in map(Kernel.of, convs) if kernel is not None]
    if len(convs) < _FEWEST or _blocks(sum(features)) >= sum(map(_blocks, features)):
        return Decline(f"an image has fewer than {_FEWEST} convolutions, or they fill their blocks")
    return convs


def rewrite(editor: Editor, convs: Sequence[ir.Node]) -> None:
    """Emit one convolution, and the Split of its output channels."""
    kernels = [kernel for kernel in map(Kernel.of, convs) if kernel is not None]
    lengths = np.asarray([len(kernel.weights) for kernel in kernels], np.int64)
    biases = [kernel.bias for kernel in kernels if kernel.bias is not None]
    with editor.replacing(convs[0]):
        stored = [np.concatenate([kernel.weights for kernel in kernels]), *([np.concatenate(biases)] if biases else [])]
        operands = [one if one.dtype == np.float32 else editor.emit("Cast", one, to="float32") for one in stored]
        features = editor.emit("Conv", convs[0].inputs[0], *operands, like=convs[0])
        parts = editor.emitter.emit("Split", [features, lengths], {"axis": 1}, outputs=len(convs))
    for node, part in zip(convs, parts, strict=True):
        editor.replace_value(node.outputs[0], part)


merge_gate_convs = RewriteRule(pattern, check, rewrite)


def _blocks(features: int) -> int:
    return -(-features // _WIDTH)


def _quantized_constant(value: ir.Value | None) -> Array | None:
    cast = producer(value, "Cast")
    return constant(value if cast is None else cast.inputs[0])


# --- sums of their parts ----------------------------------------------------------------------


class Sums(NamedTuple):
    """Two Splits of convolutions with parts that are added pair by pair."""

    split: ir.Node
    other: ir.Node
    adds: Sequence[ir.Node]


def splits(model: ir.Model, _: RewriteOptions) -> Iterable[ir.Node]:
    """Yield the Splits in the bodies of loops."""
    return [node for graph in _body_graphs(model) for node in nodes_of(graph, "Split")]


def check_sums(split: ir.Node) -> Sums:
    """Return the match, if all parts of two convolutions are added pair by pair, and read by nothing else."""
    adds = [require_match(only_user(part, "Add"), "a part is not added to another") for part in split.outputs]
    others = [add.inputs[add.inputs[0] is part] for add, part in zip(adds, split.outputs, strict=True)]
    other = require_match(producer(others[0], "Split"))
    require(other is not split and [*other.outputs] == others, "the parts are not added in the order of another Split")
    require(_is_same_split(split, other), "the Splits are not of convolutions, or have other lengths")
    require(any(add.outputs[0].uses() or add.outputs[0].is_graph_output() for add in adds))  # else added from the other
    have_single_users = all(only_user(part, "Add") is add for part, add in zip(other.outputs, adds, strict=True))
    require(have_single_users, "a part has other users")
    return Sums(split, other, adds)


def rewrite_sums(editor: Editor, sums: Sums) -> None:
    """Emit one Add before one Split."""
    split, other, adds = sums
    with editor.replacing(first_node(adds)):
        whole = editor.emit("Add", split.inputs[0], other.inputs[0])
        parts = editor.emitter.emit("Split", [whole, split.inputs[1]], {"axis": 1}, outputs=len(adds))
    for add, part in zip(adds, parts, strict=True):
        editor.replace_value(add.outputs[0], part)


add_before_split = RewriteRule(splits, check_sums, rewrite_sums)


def _is_same_split(one: ir.Node, other: ir.Node) -> bool:
    """True if both split the output channels of convolutions at the same places."""
    of_features = all(producer(node.inputs[0], "Conv") and integer(node, "axis", 0) == 1 for node in (one, other))
    weights, others = (constant(node.inputs[1]) if len(node.inputs) > 1 else None for node in (one, other))
    return of_features and weights is not None and others is not None and np.array_equal(weights, others)
