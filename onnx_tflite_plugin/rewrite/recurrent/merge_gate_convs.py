"""Merge the convolutions of one image in a convolutional recurrent layer.

For each gate, such a layer computes a convolution of the input and a convolution of the previous output, and adds the results. Both
have few output channels. Kernels compute blocks of 8 or 16 channels, so fewer channels take as long as a full block. This module
merges the convolutions of one image into one convolution and a Split. The results are then added before they are split.
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

_BLOCK = 8  # channels per block with AVX2; a block with AVX-512 has twice as many
_MIN_GATES = 3


def _body_graphs(model: ir.Model) -> list[ir.Graph]:
    graphs = {node.graph: None for node in model.graph.all_nodes() if node.graph is not model.graph}
    return [graph for graph in graphs if isinstance(graph, ir.Graph)]


# --- convolutions -----------------------------------------------------------------------------


class Kernel(NamedTuple):
    """The stored weights and bias of a convolution, in float16 or float32."""

    weights: Array
    bias: Array | None

    @classmethod
    def of(cls, node: ir.Node) -> Kernel | None:
        """Return the kernel of a convolution, or ``None`` if an operand is computed."""
        weights, *bias = map(_stored_constant, node.inputs[1:])
        if weights is None or any(array is None for array in bias):
            return None
        return cls(weights, bias[0] if bias else None)


def pattern(model: ir.Model, _: RewriteOptions) -> Iterator[Sequence[ir.Node]]:
    """Yield groups of inner-graph convolutions that differ only in their weights."""
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
    """Return the convolutions to merge.

    Declines if there are too few, or if the merged convolution would have as many blocks of channels as the separate ones.
    """
    features = [len(kernel.weights) for kernel in map(Kernel.of, convs) if kernel is not None]
    if len(convs) < _MIN_GATES or _block_count(sum(features)) >= sum(map(_block_count, features)):
        return Decline(
            f"fewer than {_MIN_GATES} convolutions read the image, or merging them saves no block of channels"
        )
    return convs


def rewrite(editor: Editor, convs: Sequence[ir.Node]) -> None:
    """Emit the merged convolution, and a Split of its output channels."""
    kernels = [kernel for kernel in map(Kernel.of, convs) if kernel is not None]
    lengths = np.asarray([len(kernel.weights) for kernel in kernels], np.int64)
    biases = [kernel.bias for kernel in kernels if kernel.bias is not None]
    with editor.replacing(convs[0]):
        arrays = [np.concatenate([kernel.weights for kernel in kernels]), *([np.concatenate(biases)] if biases else [])]
        operands = [
            array if array.dtype == np.float32 else editor.emit("Cast", array, to="float32") for array in arrays
        ]
        features = editor.emit("Conv", convs[0].inputs[0], *operands, like=convs[0])
        parts = editor.emitter.emit("Split", [features, lengths], {"axis": 1}, outputs=len(convs))
    for node, part in zip(convs, parts, strict=True):
        editor.replace_value(node.outputs[0], part)


merge_gate_convs = RewriteRule(pattern, check, rewrite)


def _block_count(features: int) -> int:
    return -(-features // _BLOCK)


def _stored_constant(value: ir.Value | None) -> Array | None:
    cast = producer(value, "Cast")
    return constant(value if cast is None else cast.inputs[0])


# --- sums of the split results ----------------------------------------------------------------


class Sums(NamedTuple):
    """Splits of two convolutions, whose parts are added pair by pair."""

    split: ir.Node
    other_split: ir.Node
    adds: Sequence[ir.Node]


def splits(model: ir.Model, _: RewriteOptions) -> Iterable[ir.Node]:
    """Return the Splits in inner graphs."""
    return [node for graph in _body_graphs(model) for node in nodes_of(graph, "Split")]


def check_sums(split: ir.Node) -> Sums:
    """Return the match if the parts of two convolutions are only added pair by pair."""
    adds = [
        require_match(only_user(part, "Add"), "an output of the Split is not added to another tensor")
        for part in split.outputs
    ]
    other_parts = [add.inputs[add.inputs[0] is part] for add, part in zip(adds, split.outputs, strict=True)]
    other_split = require_match(producer(other_parts[0], "Split"))
    in_order = other_split is not split and [*other_split.outputs] == other_parts
    require(in_order, "the outputs of the Split are not added, in order, to the outputs of another Split")
    require(
        _has_equal_parts(split, other_split),
        "the two Splits do not split the results of convolutions into equal lengths",
    )
    is_used = any(add.outputs[0].uses() or add.outputs[0].is_graph_output() for add in adds)
    require(is_used)  # otherwise the rule has rewritten the sums before, starting from the other Split
    have_single_users = all(only_user(part, "Add") is add for part, add in zip(other_split.outputs, adds, strict=True))
    require(have_single_users, "an output of the other Split has other users")
    return Sums(split, other_split, adds)


def rewrite_sums(editor: Editor, sums: Sums) -> None:
    """Emit one Add, and one Split of the sum."""
    split, other_split, adds = sums
    with editor.replacing(first_node(adds)):
        total = editor.emit("Add", split.inputs[0], other_split.inputs[0])
        parts = editor.emitter.emit("Split", [total, split.inputs[1]], {"axis": 1}, outputs=len(adds))
    for add, part in zip(adds, parts, strict=True):
        editor.replace_value(add.outputs[0], part)


add_before_split = RewriteRule(splits, check_sums, rewrite_sums)


def _has_equal_parts(split: ir.Node, other_split: ir.Node) -> bool:
    """True if both nodes split the output channels of convolutions into equal lengths."""
    splits_channels = all(
        producer(node.inputs[0], "Conv") and integer(node, "axis", 0) == 1 for node in (split, other_split)
    )
    lengths, other_lengths = (
        constant(node.inputs[1]) if len(node.inputs) > 1 else None for node in (split, other_split)
    )
    if lengths is None or other_lengths is None:
        return False
    return splits_channels and np.array_equal(lengths, other_lengths)
