"""Processors without VNNI add int8 products of neighboring input channels in 16 bits (see ``products``). If two of them
overflow, another order of the channels may not. The convolutions that compute the channels then write them in that
order, and weights remain int8 on every processor. As uint8 they take 1.1 to 1.6 times as long with AVX2. The sums are
the same.

Networks trained with quantization have few large weights. In others it is mostly convolutions with more input than output
channels, as after a depthwise convolution, for which an order is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.rewrite.channels.padding import LITTLE, Convolution
from onnx_tflite_plugin.rewrite.channels.shared_channels import SharedChannels
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import QuantizedConv, nodes_of
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule
from onnx_tflite_plugin.rewrite.weights.products import PAIR, overflows
from onnx_tflite_plugin.source.model import Array

_LARGE = PAIR // 2  # maximum magnitude of weights that can be neighbors of any weight without overflow
_LEAST = -128  # overflows with any neighbor
_SAMPLE = 256  # columns that are tried first
_FEW = 4  # number of rows that are compared with one at first, and its growth factor


class Reordering(NamedTuple):
    """Values that share channels, their new order, and the number of convolutions that gain by it."""

    shared: SharedChannels
    order: Sequence[int]
    improved: int


def pattern(model: ir.Model, _: RewriteOptions) -> Iterator[tuple[ir.Value, Mapping[ir.Node, Layer], set[ir.Value]]]:
    """Yield the inputs of convolutions that gain by another order, all quantized convolutions, and the values tried so far."""
    layers = {node: layer for node in nodes_of(model.graph, "Conv") if (layer := Layer.of(node))}
    tried: set[ir.Value] = set()
    for node, layer in layers.items():
        source = node.inputs[0]
        if source is not None and source not in tried and layer.gains:
            yield source, layers, tried


def check(place: tuple[ir.Value, Mapping[ir.Node, Layer], set[ir.Value]]) -> Reordering | Decline:
    """Return the order. Declines if channels cannot be reordered, or no order is found."""
    source, layers, tried = place
    shared = SharedChannels.around(source, {node: layer.convolution for node, layer in layers.items()})
    tried |= {source} if shared is None else shared.values
    if shared is None:
        return Decline("the channels are an output, or another operator than convolutions mixes them")
    order, improved = _order([layers[reader] for reader in shared.readers])
    return Reordering(shared, order, improved) if improved else Decline("no channel order without overflow was found")


def rewrite(editor: Editor, reordering: Reordering) -> int:
    """Permute weights and biases, and return the number of convolutions that gain."""
    shared, order, improved = reordering

    def permute_features(array: Array, _: float) -> Array:
        return np.asarray(array[order]) if array.ndim else array

    def permute_channels(array: Array, _: float) -> Array:
        return np.asarray(array[:, order]) if array.ndim > 1 else array

    for node in (*shared.makers, *shared.between):
        editor.rebuild(node, range(1, len(node.inputs)), permute_features)
    for node in shared.readers:
        editor.rebuild(node, [1], permute_channels)
    shared.set_channels(order)
    return improved


reorder_channels = RewriteRule(pattern, check, rewrite)


@dataclass(frozen=True)
class Layer:
    """A quantized convolution; ``weights``: its integers, if they are int8; ``cost``: its multiplications, infinity for a dynamic shape."""

    convolution: Convolution
    weights: Array | None
    cost: float

    @classmethod
    def of(cls, node: ir.Node) -> Self | None:
        unit, convolution = QuantizedConv.of(node), Convolution.of(node)
        if unit is None or convolution is None:
            return None
        integers = unit.weights.integers
        return cls(
            convolution,
            integers if integers is not None and integers.dtype == np.int8 else None,
            convolution.multiplications(unit.quantize.outputs[0]),
        )

    @cached_property
    def rows(self) -> Array:
        """The weights by input channel: [channels, features and taps]."""
        assert self.weights is not None
        return np.moveaxis(self.weights, 1, 0).reshape(self.weights.shape[1], -1)

    @cached_property
    def exact(self) -> bool:
        """True if nothing overflows in the present order of channels."""
        return self.weights is None or not overflows(self.rows.T)

    @property
    def gains(self) -> bool:
        """True if another order could make its weights int8 on all processors, and the convolution is not small."""
        if self.weights is None or self.cost < LITTLE:
            return False
        return not self.exact and not (self.weights == _LEAST).any()


def _order(readers: Sequence[Layer]) -> tuple[list[int], int]:
    """Return an order without overflow for as many convolutions as possible, the costliest first, and their number.

    Convolutions that do not overflow now do not in that order.
    """
    satisfied = [reader.rows for reader in readers if reader.weights is not None and reader.exact]
    order: list[int] = []
    improved = 0
    for reader in sorted((reader for reader in readers if reader.gains), key=lambda reader: -reader.cost):
        better = neighbors(np.concatenate([*satisfied, reader.rows], axis=1))
        if better is not None:
            satisfied.append(reader.rows)
            order, improved = better, improved + 1
    return order, improved


# --- matching of neighbors -------------------------------------------------------------------


def neighbors(rows: Array) -> list[int] | None:
    """Return an order of int8 ``rows`` in which 0 and 1, 2 and 3, ... add without overflow.

    ``None`` if none is found, and for an odd number of rows.

    Greedy: rows with the most large weights choose first, and choose the fitting row with the most large weights. Rows
    without large weights all fit each other.
    """
    if rows.shape[1] > 2 * _SAMPLE and neighbors(rows[:, :_SAMPLE]) is None:
        return None  # if no order exists, usually none exists for a few columns
    hardest, matching = _sort_by_hardness(rows)
    waiting: list[int] = []
    wanted = np.zeros(len(rows), bool)
    for row in range(matching.hard):
        if matching.partner[row] < 0 and not matching.join_first(row):
            waiting.append(row)
            wanted |= matching.fitting(row)
            if len(waiting) > wanted.sum():  # the waiting rows fit no other waiting row: there are too few partners
                return None
    easy = [row for row in matching.in_order.tolist() if matching.partner[row] < 0 and row >= matching.hard]
    if len(easy) % 2:
        waiting.append(easy.pop())
    for one, other in zip(easy[::2], easy[1::2], strict=True):
        matching.join(one, other)
    while waiting:
        one = waiting.pop()
        exchanged = next((other for other in waiting if matching.exchange(one, other)), None)
        if exchanged is None:
            return None
        waiting.remove(exchanged)
    partner = hardest[matching.partner[matching.in_order]].tolist()
    return [channel for one, other in enumerate(partner) if one < other for channel in (one, other)]


def _sort_by_hardness(rows: Array) -> tuple[Array, _Matching]:
    """Return the rows with the most large weights first, and a matching of them in that order."""
    both = np.concatenate([np.maximum(rows, 0), -np.minimum(rows, 0)], axis=1).view(np.uint8)  # two of 127 fit
    magnitudes = both[:, both.max(axis=0, initial=0) > _LARGE]  # elsewhere any two fit
    large = (magnitudes > _LARGE).sum(axis=1)
    hardest = np.argsort(-large, kind="stable")
    return hardest, _Matching(magnitudes[hardest], int(np.count_nonzero(large)), np.argsort(hardest))


class _Matching:
    """The ``partner`` of each row of magnitudes, or -1; the first ``hard`` rows have large weights.

    ``in_order``: the rows in their original order.
    """

    def __init__(self, magnitudes: Array, hard: int, in_order: Array) -> None:
        self.magnitudes, self.hard, self.in_order = magnitudes, hard, in_order
        self.partner = np.full(len(magnitudes), -1)

    def fitting(self, row: int, others: Array | slice = slice(None)) -> Array:
        """Return for each of ``others`` if it adds to a row without overflow; False for the row itself."""
        fits = (self.magnitudes[others] + self.magnitudes[row]).max(axis=1, initial=0) <= PAIR
        if isinstance(others, slice):
            fits[row] = False
        return np.asarray(fits)

    def join(self, one: int, other: int) -> None:
        self.partner[one], self.partner[other] = other, one

    def join_first(self, row: int) -> bool:
        """Join a row with the first free one that fits, mostly one of a few; False if there is none."""
        free = np.flatnonzero(self.partner < 0)
        free = free[free != row]
        start, size = 0, _FEW
        while start < len(free):
            some = free[start : start + size]
            fits = self.fitting(row, some)
            if fits.any():
                self.join(row, int(some[fits.argmax()]))
                return True
            start, size = start + size, size * _FEW
        return False

    def exchange(self, one: int, other: int) -> bool:
        """Exchange partners with a joined pair that fits these two rows; False if there is none."""
        joined = self.in_order[self.partner[self.in_order] >= 0]
        exchangeable = joined[self.fitting(one, joined) & self.fitting(other, self.partner[joined])]
        if not len(exchangeable):
            return False
        first = int(exchangeable[0])
        second = int(self.partner[first])
        self.join(one, first)
        self.join(other, second)
        return True
