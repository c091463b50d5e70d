"""Processors without VNNI add int8 products of neighbouring input channels in 16 bits (see ``products``). Where two of them
overflow, each may still fit another neighbour: channels are put into an order in which none do, by whatever makes them,
so that weights stay int8 on every processor, which as uint8 take 1.1 to 1.6 times as long there. The sums are the same.

Networks trained with quantization have few weights that are large; elsewhere it is convolutions of more channels than
features, as behind a convolution by channel, whose channels find neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.passes.channels.flow import LITTLE, Convolution
from onnx_tflite_plugin.passes.channels.joint import JointChannels
from onnx_tflite_plugin.passes.graph import Editor, QuantizedConv, nodes_of
from onnx_tflite_plugin.passes.weights.products import PAIR, overflows
from onnx_tflite_plugin.source.model import Array

_LARGE = PAIR // 2  # two weights of at most so much always fit
_LEAST = -128  # exact with no neighbour
_AT_ONCE = 32  # channels that are compared with one
_SAMPLE = 256  # columns


def run(model: ir.Model) -> int:
    """Put channels into such orders; returns how many convolutions have int8 weights for it that no processor overflows."""
    layers = {node: layer for node in nodes_of(model.graph, "Conv") if (layer := Layer.of(node))}
    orders = list(_orders(layers))
    if orders:
        editor = Editor(model)
        for joint, order, _ in orders:
            _write(editor, joint, order)
        editor.tidy()
    return sum(gaining for _, _, gaining in orders)


@dataclass(frozen=True)
class Layer:
    """A convolution that an integer kernel computes, in so many multiplications (infinitely many where a size is not known);
    ``weights`` are the stored integers, ``None`` where those are not int8.
    """

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
        """What each channel is multiplied by: [channels, features and taps]."""
        assert self.weights is not None
        return np.moveaxis(self.weights, 1, 0).reshape(self.weights.shape[1], -1)

    @cached_property
    def exact(self) -> bool:
        """Whether nothing overflows with the neighbours that its channels have."""
        return self.weights is None or not overflows(self.rows.T)

    @property
    def gains(self) -> bool:
        """Whether other neighbours could make its weights int8 on all processors, where that is worth anything."""
        if self.weights is None or self.cost < LITTLE:
            return False
        return not self.exact and not (self.weights == _LEAST).any()


def _orders(layers: Mapping[ir.Node, Layer]) -> Iterator[tuple[JointChannels, list[int], int]]:
    """Values that meet in one network, the order of their channels, and how many convolutions gain by it."""
    convolutions = {node: layer.convolution for node, layer in layers.items()}
    seen: set[ir.Value] = set()
    for node, layer in layers.items():
        source = node.inputs[0]
        if source is None or source in seen or not layer.gains:
            continue
        joint = JointChannels.around(source, convolutions)
        seen |= {source} if joint is None else joint.values
        if joint is not None:
            order, gaining = _order([layers[reader] for reader in joint.readers])
            if gaining:
                yield joint, order, gaining


def _order(readers: Sequence[Layer]) -> tuple[list[int], int]:
    """An order for as many of the costliest as there is one for, and how many those are; what does not overflow goes on so."""
    satisfied = [reader.rows for reader in readers if reader.weights is not None and reader.exact]
    order: list[int] = []
    gaining = 0
    for reader in sorted((reader for reader in readers if reader.gains), key=lambda reader: -reader.cost):
        better = neighbours(np.concatenate([*satisfied, reader.rows], axis=1))
        if better is not None:
            satisfied.append(reader.rows)
            order, gaining = better, gaining + 1
    return order, gaining


def _write(editor: Editor, joint: JointChannels, order: list[int]) -> None:
    def features(array: Array, _fill: float) -> Array:
        return np.asarray(array[order]) if array.ndim else array

    def channels(array: Array, _fill: float) -> Array:
        return np.asarray(array[:, order]) if array.ndim > 1 else array

    for node in (*joint.makers, *joint.between):
        editor.rebuild(node, range(1, len(node.inputs)), features)
    for node in joint.readers:
        editor.rebuild(node, [1], channels)
    joint.changed(joint.channels)


# --- who fits whom ----------------------------------------------------------------------------


def neighbours(rows: Array) -> list[int] | None:
    """An order of int8 ``rows`` in which 0 and 1, 2 and 3, ... add up without overflow; ``None`` where none is found, and of an
    odd number, of which one is left over.

    Those with the most large weights choose first, of those that fit them the one with the most; those that have none all fit
    each other.
    """
    if rows.shape[1] > 2 * _SAMPLE and neighbours(rows[:, :_SAMPLE]) is None:
        return None  # most of those that have no order have none of a few columns
    matching = _Matching(rows)
    waiting: list[int] = []
    wanted: set[int] = set()
    for channel in matching.hardest.tolist():
        if matching.partner[channel] < 0 and matching.hard[channel] and not matching.joins(channel):
            waiting.append(channel)
            wanted |= {*matching.fitting(channel, np.delete(matching.hardest, matching.hardest == channel)).tolist()}
            if len(waiting) > len(wanted):  # none of which is among them: there are not enough for all
                return None
    easy = np.flatnonzero((matching.partner < 0) & (matching.hard == 0)).tolist()
    if len(easy) % 2:
        waiting.append(easy.pop())
    for one, other in zip(easy[::2], easy[1::2], strict=True):
        matching.join(one, other)
    while waiting:
        one = waiting.pop()
        exchanged = next((other for other in waiting if matching.exchanges(one, other)), None)
        if exchanged is None:
            return None
        waiting.remove(exchanged)
    partner = matching.partner.tolist()
    return [channel for one, other in enumerate(partner) if one < other for channel in (one, other)]


class _Matching:
    """``partner`` of each channel, or -1; ``hard`` how many large weights each has, ``hardest`` all of them, those with the most first."""

    def __init__(self, rows: Array) -> None:
        both = np.concatenate([np.maximum(rows, 0), -np.minimum(rows, 0)], axis=1).view(np.uint8)  # two of 127 fit
        self.magnitudes = np.ascontiguousarray(both[:, both.max(axis=0, initial=0) > _LARGE])  # elsewhere any two fit
        self.by_weight = np.ascontiguousarray(self.magnitudes.T)
        self.large = self.magnitudes > _LARGE
        self.hard = self.large.sum(axis=1)
        self.hardest = np.argsort(-self.hard, kind="stable")
        self.partner = np.full(len(rows), -1)

    def fitting(self, channel: int, others: Array) -> Array:
        """Those of ``others`` that add up with a channel without overflow."""
        sums = self.magnitudes[others] + self.magnitudes[channel]
        return np.asarray(others[sums.max(axis=1, initial=0) <= PAIR])

    def join(self, one: int, other: int) -> None:
        self.partner[one], self.partner[other] = other, one

    def joins(self, channel: int) -> bool:
        """Whether one that fits is free; it is taken then."""
        weights = np.flatnonzero(self.large[channel])
        rest = PAIR - self.magnitudes[channel, weights]
        might = (self.by_weight[weights] <= rest[:, np.newaxis]).all(axis=0) & (self.partner < 0)
        might[channel] = False
        others = self.hardest[might[self.hardest]]
        for some in (others[:1], *(others[k : k + _AT_ONCE] for k in range(1, len(others), _AT_ONCE))):
            if len(fits := self.fitting(channel, some)):
                self.join(channel, fits[0])
                return True
        return False

    def exchanges(self, one: int, other: int) -> bool:
        """Whether two that fit each other fit these two as well; they are parted then."""
        joined = np.flatnonzero(self.partner >= 0)
        also = {*self.fitting(other, joined).tolist()}
        for first in self.fitting(one, joined).tolist():
            second = int(self.partner[first])
            if second in also:
                self.join(one, first)
                self.join(other, second)
                return True
        return False
