"""Reorder channels so that sums of neighboring int8 products do not overflow.

Processors without VNNI add the products of two neighboring input channels in 16 bits (see ``int8_operands``). Another order
of the channels may avoid an overflow of such sums. The convolutions that compute the channels then write them in the new order,
and the weights stay int8 on every processor. Results do not change. Without the rule, the weights become uint8, and a
convolution takes 1.1 to 1.6 times as long as with int8 weights (AVX2).

Networks trained with quantization have few large weights, so a suitable order often exists. In other networks, it mostly
exists for convolutions with more input than output channels, for example after a depthwise convolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.rewrite.channels.padding import MIN_MULTIPLICATIONS, Convolution
from onnx_tflite_plugin.rewrite.channels.shared_channels import SharedChannels
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import QuantizedConv, nodes_of
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule
from onnx_tflite_plugin.rewrite.weights.int8_operands import INT8_MIN, MAX_PAIR_SUM, overflows
from onnx_tflite_plugin.source.model import Array

_MAX_COMPATIBLE = MAX_PAIR_SUM // 2  # two weights up to this magnitude never overflow; weights above it are "large"
_SAMPLE_COLUMNS = 256  # number of columns for which an order is searched first, to fail fast
_FIRST_BATCH = 4  # rows in the first batch to compare; each further batch is this many times as large


class Reordering(NamedTuple):
    """A new channel order of ``shared``.

    ``improved_count``: number of convolutions that become exact: none of their sums overflows.
    """

    shared: SharedChannels
    order: Sequence[int]
    improved_count: int


def pattern(model: ir.Model, _: RewriteOptions) -> Iterator[tuple[ir.Value, Mapping[ir.Node, Layer], set[ir.Value]]]:
    """Yield the inputs of convolutions that may become exact in another channel order.

    Each input comes with all layers, and with the set of values tried so far, which ``check`` extends.
    """
    layers = {node: layer for node in nodes_of(model.graph, "Conv") if (layer := Layer.of(node))}
    tried: set[ir.Value] = set()
    for node, layer in layers.items():
        source = node.inputs[0]
        if source is not None and source not in tried and layer.can_gain:
            yield source, layers, tried


def check(place: tuple[ir.Value, Mapping[ir.Node, Layer], set[ir.Value]]) -> Reordering | Decline:
    """Return the new order of the channels.

    Declines if the channels cannot be reordered, or no order without overflow is found.
    """
    source, layers, tried = place
    shared = SharedChannels.around(source, {node: layer.convolution for node, layer in layers.items()})
    tried |= {source} if shared is None else shared.values
    if shared is None:
        return Decline(
            "the channels belong to a graph input or output, or an operator other than a convolution mixes them"
        )
    order, improved_count = _exact_order([layers[reader] for reader in shared.readers])
    return (
        Reordering(shared, order, improved_count)
        if improved_count
        else Decline("no channel order without overflow was found")
    )


def rewrite(editor: Editor, reordering: Reordering) -> int:
    """Permute weights and biases. Return the number of convolutions that become exact."""
    shared, order, improved_count = reordering

    def permute_features(array: Array, _: float) -> Array:
        return np.asarray(array[order]) if array.ndim else array

    def permute_channels(array: Array, _: float) -> Array:
        return np.asarray(array[:, order]) if array.ndim > 1 else array

    for node in (*shared.producers, *shared.depthwise):
        editor.rebuild(node, range(1, len(node.inputs)), permute_features)
    for node in shared.readers:
        editor.rebuild(node, [1], permute_channels)
    shared.set_channels(order)
    return improved_count


reorder_channels = RewriteRule(pattern, check, rewrite)


@dataclass(frozen=True)
class Layer:
    """A quantized convolution.

    ``weights``: the quantized weights if they are int8. ``cost``: the number of multiplications, infinity for a dynamic
    shape.
    """

    convolution: Convolution
    weights: Array | None
    cost: float

    @classmethod
    def of(cls, node: ir.Node) -> Self | None:
        quantized_conv, convolution = QuantizedConv.of(node), Convolution.of(node)
        if quantized_conv is None or convolution is None:
            return None
        integers = quantized_conv.weights.integers
        return cls(
            convolution,
            integers if integers is not None and integers.dtype == np.int8 else None,
            convolution.multiplications(quantized_conv.quantize.outputs[0]),
        )

    @cached_property
    def rows(self) -> Array:
        """The weights as [input channels, features * taps]."""
        assert self.weights is not None
        return np.moveaxis(self.weights, 1, 0).reshape(self.weights.shape[1], -1)

    @cached_property
    def exact(self) -> bool:
        """True if no sum of two products overflows in the current channel order."""
        return self.weights is None or not overflows(self.rows.T)

    @property
    def can_gain(self) -> bool:
        """True if a different channel order may make the int8 weights exact.

        Small convolutions are excluded, because they save too little time.
        """
        if self.weights is None or self.cost < MIN_MULTIPLICATIONS:
            return False
        return not self.exact and not (self.weights == INT8_MIN).any()


def _exact_order(readers: Sequence[Layer]) -> tuple[list[int], int]:
    """Return a channel order, and the number of convolutions that it makes exact.

    Greedy: convolutions are made exact one after the other, the most expensive first. Convolutions that are exact in the
    current order stay exact.
    """
    exact_rows = [reader.rows for reader in readers if reader.weights is not None and reader.exact]
    order: list[int] = []
    improved_count = 0
    for reader in sorted((reader for reader in readers if reader.can_gain), key=lambda reader: -reader.cost):
        extended_order = pair_rows(np.concatenate([*exact_rows, reader.rows], axis=1))
        if extended_order is not None:
            exact_rows.append(reader.rows)
            order, improved_count = extended_order, improved_count + 1
    return order, improved_count


# --- matching of neighbors -------------------------------------------------------------------


def pair_rows(rows: Array) -> list[int] | None:
    """Return an order of int8 rows in which neighbors add without overflow.

    Neighbors are rows 0 and 1, 2 and 3, and so on. Return ``None`` if no order is found, and for an odd number of
    rows. Greedy: rows are paired in descending order of their number of large weights. The partner is the compatible row
    with the most large weights. Any two rows without large weights are compatible.
    """
    if rows.shape[1] > 2 * _SAMPLE_COLUMNS and pair_rows(rows[:, :_SAMPLE_COLUMNS]) is None:
        return None  # no order for a few columns, hence none for all
    row_order, matching = _sort_by_large_weights(rows)
    unpaired: list[int] = []
    candidates = np.zeros(len(rows), bool)
    for row in range(matching.restricted_count):
        if matching.partner[row] < 0 and not matching.pair_first(row):
            unpaired.append(row)
            candidates |= matching.compatible_mask(row)
            # Unpaired rows are not compatible with each other, so each needs its own partner among the candidates.
            if len(unpaired) > candidates.sum():
                return None
    unrestricted = [
        row
        for row in matching.original_order.tolist()
        if matching.partner[row] < 0 and row >= matching.restricted_count
    ]
    if len(unrestricted) % 2:
        unpaired.append(unrestricted.pop())
    for row, other_row in zip(unrestricted[::2], unrestricted[1::2], strict=True):
        matching.pair(row, other_row)
    while unpaired:
        row = unpaired.pop()
        exchanged_row = next((other_row for other_row in unpaired if matching.exchange(row, other_row)), None)
        if exchanged_row is None:
            return None
        unpaired.remove(exchanged_row)
    partner = row_order[matching.partner[matching.original_order]].tolist()
    return [channel for row, other_row in enumerate(partner) if row < other_row for channel in (row, other_row)]


def _sort_by_large_weights(rows: Array) -> tuple[Array, _Matching]:
    """Return rows in descending number of large weights, and a matching without pairs."""
    # uint8 represents 127 + 127
    both_signs = np.concatenate([np.maximum(rows, 0), -np.minimum(rows, 0)], axis=1).view(np.uint8)
    # In all other columns, any two weights are compatible.
    has_large_weights = both_signs.max(axis=0, initial=0) > _MAX_COMPATIBLE
    magnitudes = both_signs[:, has_large_weights]
    large_counts = (magnitudes > _MAX_COMPATIBLE).sum(axis=1)
    row_order = np.argsort(-large_counts, kind="stable")
    return row_order, _Matching(magnitudes[row_order], int(np.count_nonzero(large_counts)), np.argsort(row_order))


class _Matching:
    """Pairs of rows of ``magnitudes``.

    ``partner``: the partner of each row, or -1. ``restricted_count``: the number of rows with large weights, which come first.
    ``original_order``: the index in ``magnitudes`` of each original row.
    """

    def __init__(self, magnitudes: Array, restricted_count: int, original_order: Array) -> None:
        self.magnitudes, self.restricted_count, self.original_order = magnitudes, restricted_count, original_order
        self.partner = np.full(len(magnitudes), -1)

    def compatible_mask(self, row: int, other_rows: Array | slice = slice(None)) -> Array:
        """Return a mask of ``other_rows`` that add to ``row`` without overflow.

        By default, ``other_rows`` are all rows except ``row``.
        """
        is_compatible = (self.magnitudes[other_rows] + self.magnitudes[row]).max(axis=1, initial=0) <= MAX_PAIR_SUM
        if isinstance(other_rows, slice):
            is_compatible[row] = False
        return np.asarray(is_compatible)

    def pair(self, first: int, second: int) -> None:
        self.partner[first], self.partner[second] = second, first

    def pair_first(self, row: int) -> bool:
        """Pair a row with the first free compatible row. Return False if there is none."""
        free_rows = np.flatnonzero(self.partner < 0)
        free_rows = free_rows[free_rows != row]
        start, size = 0, _FIRST_BATCH
        while start < len(free_rows):
            batch = free_rows[start : start + size]
            is_compatible = self.compatible_mask(row, batch)
            if is_compatible.any():
                self.pair(row, int(batch[is_compatible.argmax()]))
                return True
            start, size = start + size, size * _FIRST_BATCH
        return False

    def exchange(self, row: int, other_row: int) -> bool:
        """Split an existing pair, and pair its rows with the two given rows.

        Return False if no existing pair has compatible rows.
        """
        paired_rows = self.original_order[self.partner[self.original_order] >= 0]
        exchangeable = paired_rows[
            self.compatible_mask(row, paired_rows) & self.compatible_mask(other_row, self.partner[paired_rows])
        ]
        if not len(exchangeable):
            return False
        first = int(exchangeable[0])
        second = int(self.partner[first])
        self.pair(row, first)
        self.pair(other_row, second)
        return True
