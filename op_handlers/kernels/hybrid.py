"""Operators with hybrid kernels, which round float32 activations to 8 bits.

LiteRT runs a hybrid kernel if the activations are float32 and the weights are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from functools import wraps
from math import prod
from typing import TypeVar
from weakref import WeakKeyDictionary

from onnx_tflite_plugin.api import Operator, Quantization, Subgraph, Tensor

T = TypeVar("T")
WEIGHT_DTYPES = ("int8", "uint8", "int4", "int2")
MAX_LAYERS, MAX_ELEMENTS = 24, 2**17
"""Limits for rounding activations as in LiteRT: the number of layers, and the number of elements of their activations.

Kernels add the terms of a float32 sum in different orders, so an activation is occasionally rounded differently. After
about 50 convolutions these differences are as large as those from not rounding at all.
"""
MAX_BLOCKWISE_WEIGHTS = 2**17
"""Maximum number of blockwise weights that are multiplied as floats, with rounded activations.

ONNX Runtime's blockwise operator rounds activations per block. A float product takes 1.0 to 1.3 times as long
as that operator with 2**17 weights, and 1.7 times as long with 2**19 weights. Float weights take eight times as much space.
"""


def is_hybrid(op: Operator) -> bool:
    """True for a non-constant float32 operand and constant weights of at most 8 bits."""
    weights = op.tensor(1)
    if weights is None or weights.dtype not in WEIGHT_DTYPES or not weights.is_constant:
        return False
    has_scales = is_small_block_matrix(weights) if weights.blocks else isinstance(weights.quantization, Quantization)
    return has_scales and bool(float_activations(op))


def is_small_block_matrix(weights: Tensor) -> bool:
    """True for a small blockwise quantized matrix with blocks of a multiple of 32.

    Products with larger matrices use an operator that rounds activations per block.
    """
    return (
        weights.blocks is not None
        and weights.blocks.block_size % 32 == 0
        and prod(weights.shape) <= MAX_BLOCKWISE_WEIGHTS
    )


def activation_elements(op: Operator) -> int:
    """Return the size of the largest activation; dynamic dimensions count as 1."""
    return max(prod(size or 1 for size in tensor.dims) for tensor in float_activations(op))


def float_activations(op: Operator) -> list[Tensor]:
    """Return the non-constant float32 operands."""
    return [
        tensor for tensor in op.inputs if tensor is not None and tensor.dtype == "float32" and not tensor.is_constant
    ]


def cache_per_subgraph(compute: Callable[[Subgraph], T]) -> Callable[[Subgraph], T]:
    """Return the function with results cached for the lifetime of each subgraph."""
    results: WeakKeyDictionary[Subgraph, T] = WeakKeyDictionary()

    @wraps(compute)
    def cached(graph: Subgraph) -> T:
        if graph not in results:
            results[graph] = compute(graph)
        return results[graph]

    return cached


@cache_per_subgraph
def rounding_layers(graph: Subgraph) -> tuple[int, int]:
    """Count the layers that round activations, and the elements that they round."""
    layers = [op for op in graph.operators if is_hybrid(op)]
    return len(layers), sum(map(activation_elements, layers))


def is_shallow(graph: Subgraph) -> bool:
    """True if so few layers round activations that the rounding can be reproduced."""
    layers, elements = rounding_layers(graph)
    return layers <= MAX_LAYERS or elements <= MAX_ELEMENTS


_CLAMPING = ("ADD", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MUL")
"""Float operators that apply a fused RELU or RELU6."""
_NONNEGATIVE = ("LOGISTIC", "RELU", "RELU6", "RELU_0_TO_1", "SOFTMAX")
_KEEPS_SIGN = ("AVERAGE_POOL_2D", "CONCATENATION", "MAX_POOL_2D", "MEAN", "PAD", "RESHAPE")
"""Operators that return nonnegative values for nonnegative operands."""


def is_nonnegative(graph: Subgraph, tensor: Tensor) -> bool:
    """True if the values of a float tensor are never negative."""
    return tensor.index in nonnegative_tensors(graph)


@cache_per_subgraph
def nonnegative_tensors(graph: Subgraph) -> Set[int]:
    """Return the indices of float tensors whose producers never return negatives."""
    nonnegative: set[int] = set()
    for op in graph.operators:
        if _has_nonnegative_result(op, nonnegative):
            nonnegative.update(
                result.index for result in op.outputs if result is not None and result.dtype == "float32"
            )
    return nonnegative


def _has_nonnegative_result(op: Operator, nonnegative: Collection[int]) -> bool:
    """True if an operator has no negative results.

    ``nonnegative``: indices of tensors without negative values.
    """
    if op.code in _CLAMPING:
        return op.options.fused_activation_function in ("RELU", "RELU6")
    operands = [tensor.index for tensor in op.inputs if tensor is not None and tensor.dtype == "float32"]
    return op.code in _NONNEGATIVE or (op.code in _KEEPS_SIGN and all(index in nonnegative for index in operands))
