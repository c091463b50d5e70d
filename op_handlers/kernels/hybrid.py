"""Operators that round their float32 activations to 8 bits, for their weights are integers: LiteRT's "hybrid" kernels."""

from __future__ import annotations

from math import prod
from weakref import WeakKeyDictionary

from onnx_tflite_plugin.api import Operator, Quantization, Subgraph, Tensor

NARROW = ("int8", "uint8", "int4", "int2")
SHALLOW, SMALL = 24, 2**17
"""Layers of a network, or elements that all of them take, up to which rounding them is worth its time.

In float32 a sum depends on the order of its terms, so that now and then an activation is rounded the other way. After some 50
convolutions the results differ as if they had not been rounded at all, and so do those of LiteRT's own kernels.
"""
SMALL_BLOCKS = 2**17
"""Weights with a scale per block up to which they are multiplied as real numbers, on rows that are rounded.

The operator that ONNX Runtime has for blocks rounds activations by block. A product of 2**17 weights in its place takes 1.0 to
1.3 times as long; of 2**19 1.7 times, and the file is eight times as large.
"""


def hybrid(op: Operator) -> bool:
    """Whether the kernel rounds activations: a computed float32 operand beside weights of 8 bits or less."""
    weights = op.tensor(1)
    if weights is None or weights.dtype not in NARROW or not weights.constant:
        return False
    scaled = in_small_blocks(weights) if weights.blocks else isinstance(weights.quantization, Quantization)
    return scaled and bool(floats(op))


def in_small_blocks(weights: Tensor) -> bool:
    """Few weights in blocks that all kernels take; large ones are left to an operator that rounds by block."""
    return weights.blocks is not None and weights.blocks.block_size % 32 == 0 and prod(weights.shape) <= SMALL_BLOCKS


def taken(op: Operator) -> int:
    """Elements of the activations; an unknown size counts as 1."""
    return max(prod(size or 1 for size in slot.dims) for slot in floats(op))


def floats(op: Operator) -> list[Tensor]:
    return [slot for slot in op.inputs if slot is not None and slot.dtype == "float32" and not slot.constant]


_LAYERS: WeakKeyDictionary[Subgraph, tuple[int, int]] = WeakKeyDictionary()


def rounding_layers(graph: Subgraph) -> tuple[int, int]:
    """How many layers of a subgraph round, and how many elements they take together; counted once a subgraph."""
    if graph not in _LAYERS:
        layers = [op for op in graph.operators if hybrid(op)]
        _LAYERS[graph] = len(layers), sum(map(taken, layers))
    return _LAYERS[graph]


def shallow(graph: Subgraph) -> bool:
    """Whether so few layers round that each rounding can be seen in the results."""
    layers, together = rounding_layers(graph)
    return layers <= SHALLOW or together <= SMALL
