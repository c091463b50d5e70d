"""A convolutional recurrent layer has a convolution of few features for each gate, of the input and of the last output. In blocks of
8 or 16 features each takes as long as for a whole block; those of one image are one convolution, and what they add up to is split.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, first, integer, nodes_of, only_user, producer, rewrite
from onnx_tflite_plugin.source.model import Array

_WIDTH = 8  # features of a block with AVX2, half a one with AVX-512
_FEWEST = 3  # gates


class Kernel(NamedTuple):
    """Weights and bias of a convolution as they lie in the file, which may be float16."""

    weights: Array
    bias: Array | None


def run(model: ir.Model) -> int:
    """Join convolutions in the bodies of loops; returns how many they have become, and sums."""
    bodies = {node.graph: None for node in model.graph.all_nodes() if node.graph is not model.graph}
    graphs = [graph for graph in bodies if isinstance(graph, ir.Graph)]
    joined = rewrite(model, [group for graph in graphs for group in _groups(graph)], _join)
    return joined and joined + rewrite(model, [node for graph in graphs for node in nodes_of(graph, "Split")], _add)


def _groups(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Convolutions of one image by kernels of constants that differ in their numbers only."""
    groups: dict[Hashable, list[ir.Node]] = {}
    for node in nodes_of(graph, "Conv"):
        kernel = _kernel(node) if integer(node, "group", 1) == 1 else None
        if kernel is not None:
            options = tuple(sorted((name, str(a.value)) for name, a in node.attributes.items()))
            key = node.inputs[0], options, kernel.weights.shape[1:], kernel.weights.dtype.name, kernel.bias is None
            groups.setdefault(key, []).append(node)
    for nodes in groups.values():
        features = [len(kernel.weights) for kernel in map(_kernel, nodes) if kernel is not None]
        if len(nodes) >= _FEWEST and _blocks(sum(features)) < sum(map(_blocks, features)):
            yield nodes


def _blocks(features: int) -> int:
    return -(-features // _WIDTH)


def _kernel(node: ir.Node) -> Kernel | None:
    """``None`` where an operand is no constant."""
    weights, *bias = map(_stored, node.inputs[1:])
    return None if weights is None or any(one is None for one in bias) else Kernel(weights, bias[0] if bias else None)


def _stored(value: ir.Value | None) -> Array | None:
    cast = producer(value, "Cast")
    return constant(value if cast is None else cast.inputs[0])


def _join(editor: Editor, nodes: Sequence[ir.Node]) -> bool:
    kernels = [kernel for kernel in map(_kernel, nodes) if kernel is not None]
    lengths = np.asarray([len(kernel.weights) for kernel in kernels], np.int64)
    biases = [kernel.bias for kernel in kernels if kernel.bias is not None]
    with editor.replacing(nodes[0]):
        stored = [np.concatenate([kernel.weights for kernel in kernels]), *([np.concatenate(biases)] if biases else [])]
        operands = [one if one.dtype == np.float32 else editor.emit("Cast", one, to="float32") for one in stored]
        features = editor.emit("Conv", nodes[0].inputs[0], *operands, like=nodes[0])
        parts = editor.emitter.emit("Split", [features, lengths], {"axis": 1}, outputs=len(nodes))
    for node, part in zip(nodes, parts, strict=True):
        editor.replace_value(node.outputs[0], part)
    return True


def _add(editor: Editor, node: ir.Node) -> bool:
    """What is added part by part to another Split's parts is added before they are split."""
    sums = [only_user(part, "Add") for part in node.outputs]
    others = [
        None if add is None else add.inputs[add.inputs[0] is part] for add, part in zip(sums, node.outputs, strict=True)
    ]
    other = producer(others[0], "Split")
    if other is None or other is node or [*other.outputs] != others or None in sums or not _alike(node, other):
        return False
    adds = [add for add in sums if add is not None]
    if not any(
        add.outputs[0].uses() or add.outputs[0].is_graph_output() for add in adds
    ):  # they were, from the other Split
        return False
    if any(only_user(part, "Add") is not add for part, add in zip(other.outputs, adds, strict=True)):
        return False
    with editor.replacing(first(adds)):
        whole = editor.emit("Add", node.inputs[0], other.inputs[0])
        parts = editor.emitter.emit("Split", [whole, node.inputs[1]], {"axis": 1}, outputs=len(adds))
    for add, part in zip(adds, parts, strict=True):
        editor.replace_value(add.outputs[0], part)
    return True


def _alike(one: ir.Node, other: ir.Node) -> bool:
    """Whether both split the features of convolutions, in the same places."""
    of_features = all(producer(node.inputs[0], "Conv") and integer(node, "axis", 0) == 1 for node in (one, other))
    mine, others = (constant(node.inputs[1]) if len(node.inputs) > 1 else None for node in (one, other))
    return of_features and mine is not None and others is not None and np.array_equal(mine, others)
