"""Kernels of int8 weights whose zero point is 0 take a fifth to a half of the time of others. uint8 weights, which TFLite's
networks trained with quantization have, reach from -z to 255 - z around theirs; mostly one weight of thousands is
more than int8 holds.

Where all fit, they are written with a zero point of 0. Else input channels that meet such weights are made twice, by
whatever convolutions make them, and the weight is split between both: the sums are the same, so are the results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.passes.channels.flow import Convolution
from onnx_tflite_plugin.passes.channels.joint import JointChannels
from onnx_tflite_plugin.passes.graph import Affine, Editor, QuantizedConv, nodes_of, sizes
from onnx_tflite_plugin.passes.images.fold_width import Work
from onnx_tflite_plugin.source.model import Array

WORTH = 1.05  # the least share that both together are to save
MOST = 127  # -128 is exact on no ARM64 kernel of int8


def run(model: ir.Model) -> int:
    """Give weights zero points of 0; returns how many convolutions have others now."""
    layers = {node: layer for node in nodes_of(model.graph, "Conv") if (layer := Layer.of(node))}
    written = {node: Written.of(layer).around_zero() for node, layer in layers.items() if layer.fits}
    for doubling in _doublings(layers):
        doubling.write(written)
    if written:
        editor = Editor(model)
        for node, changed in written.items():
            changed.replace(editor, node)
        editor.tidy()
    return sum(changed.centered for changed in written.values())


def _doublings(layers: Mapping[ir.Node, Layer]) -> Iterator[Doubling]:
    """Those that pay, of values that meet in one network each once."""
    seen: set[ir.Value] = set()
    convolutions = {node: layer.convolution for node, layer in layers.items()}
    for layer in layers.values():
        if layer.splits and layer.source not in seen:
            joint = JointChannels.around(layer.source, convolutions)
            seen |= {layer.source} if joint is None else joint.values
            if joint is not None and (doubling := Doubling(joint, layers)).pays:
                yield doubling


@dataclass(frozen=True)
class Layer:
    """A convolution that an integer kernel computes."""

    unit: QuantizedConv
    convolution: Convolution

    @classmethod
    def of(cls, node: ir.Node) -> Layer | None:
        unit, convolution = QuantizedConv.of(node), Convolution.of(node)
        if unit is None or convolution is None or unit.weights.integers is None:
            return None
        return cls(unit, convolution) if unit.weights.integers.dtype == np.int8 else None

    @cached_property
    def centered(self) -> Array:
        """The distances of its weights from their zero point."""
        return _centered(self.unit.weights)

    @property
    def source(self) -> ir.Value:
        value = self.unit.conv.inputs[0]
        assert value is not None
        return value

    @property
    def fits(self) -> bool:
        """Whether its zero point is another than 0 and need not be."""
        return not self.convolution.symmetric and int(np.abs(self.centered).max(initial=0)) <= MOST

    @property
    def splits(self) -> bool:
        """Whether input channels made twice would give it a zero point of 0."""
        return not self.convolution.symmetric and self.convolution.group == 1 and not self.fits

    @property
    def copies(self) -> Array:
        """How often each input channel is needed once more: [i]."""
        axes = tuple(axis for axis in range(self.centered.ndim) if axis != 1)
        return np.asarray(-(-np.abs(self.centered).max(axis=axes) // MOST) - 1).clip(0)

    @property
    def positions(self) -> int:
        """Of the result; 0 where a size is not known."""
        shape = sizes(self.unit.conv.outputs[0]) or sizes(self.unit.quantize.outputs[0]) or [None] * 3
        return math.prod(size or 0 for size in shape[2:])

    def cost(self, channels: int, features: int, symmetric: bool) -> int:
        """With so many input channels and features, as ``fold_width`` counts."""
        taps = math.prod(self.convolution.shape[2:])
        return Work(self.positions, channels, features, taps).cost(symmetric)


@dataclass(frozen=True)
class Doubling:
    """Values that have the same channels, some of which are made once more."""

    joint: JointChannels
    layers: Mapping[ir.Node, Layer]

    @property
    def channels(self) -> int:
        return self.joint.channels

    @property
    def readers(self) -> list[Layer]:
        return [self.layers[node] for node in self.joint.readers]

    @property
    def copied(self) -> list[int]:
        """Which channels are made once more, in their order."""
        copies = np.max([layer.copies for layer in self.readers if layer.splits], axis=0)
        return [int(channel) for channel in np.repeat(np.arange(self.channels), copies)]

    @property
    def size(self) -> int:
        """How many channels there are then: what kernels take whole blocks of."""
        return -(-(self.channels + len(self.copied)) // _BLOCK) * _BLOCK

    @property
    def pays(self) -> bool:
        """Whether processors whose kernels tell weights around 0 apart save a larger share than others lose by more channels."""
        (before, after), (others_before, others_after) = self._costs(True), self._costs(False)
        return after * others_after * WORTH < before * others_before

    def _costs(self, apart: bool) -> tuple[int, int]:
        """Without and with further channels; ``apart``: of a processor that tells weights around 0 apart."""
        before = after = 0
        for layer in self.readers:
            features, symmetric = layer.convolution.features, layer.convolution.symmetric
            before += layer.cost(self.channels, features, apart and symmetric)
            after += layer.cost(self.size, features, apart and (symmetric or layer.splits))
        for layer in map(self.layers.__getitem__, self.joint.makers):
            inputs, symmetric = layer.convolution.shape[1], layer.convolution.symmetric
            before += layer.cost(inputs, self.channels, apart and symmetric)
            after += layer.cost(inputs, self.size, apart and symmetric)
        for layer in map(self.layers.__getitem__, self.joint.between):
            a_channel = layer.positions * _DEPTHWISE
            before, after = before + a_channel * self.channels, after + a_channel * self.size
        return before, after

    def write(self, written: dict[ir.Node, Written]) -> None:
        """Note what becomes of every convolution around; the values get their shape."""
        copied, size, layers = self.copied, self.size, self.layers
        for node in (*self.joint.makers, *self.joint.between):
            written[node] = written.get(node, Written.of(layers[node])).with_features(copied, size)
        for node in self.joint.readers:
            split = layers[node].splits
            written[node] = written.get(node, Written.of(layers[node])).with_channels(copied, size, split=split)
        self.joint.changed(size)


_BLOCK = 4  # channels that kernels of weights around 0 read in place; whole blocks gain nothing, and cost other processors more
_DEPTHWISE = 250  # of an element that a convolution by channel makes, in multiplications


@dataclass(frozen=True)
class Written:
    """What a convolution's weights and bias become; ``centered``: its zero point becomes 0."""

    weights: Affine
    bias: Affine | None
    depthwise: bool
    centered: bool = False

    @classmethod
    def of(cls, layer: Layer) -> Written:
        return cls(layer.unit.weights, layer.unit.bias, layer.convolution.depthwise)

    def around_zero(self, centered: Array | None = None) -> Written:
        """With a zero point of 0; ``centered`` are the weights then, by default as they are."""
        integers = (_centered(self.weights) if centered is None else centered).astype(np.int8)
        return replace(
            self, weights=Affine(integers, self.weights.scale, np.zeros_like(self.weights.zero_point)), centered=True
        )

    def with_features(self, copied: list[int], size: int) -> Written:
        """Result channels once more, and up to ``size`` such as are always 0."""
        weights, bias = _extended(self.weights, copied, size), self.bias and _extended(self.bias, copied, size)
        return replace(self, weights=weights, bias=bias)

    def with_channels(self, copied: list[int], size: int, split: bool) -> Written:
        """Input channels once more, which take what is too much for one weight, and up to ``size`` such as nothing depends on."""
        left = _centered(self.weights)
        wide = np.zeros((left.shape[0], size, *left.shape[2:]), np.int64)
        if not split:
            wide[:, : left.shape[1]] = left
            integers = (wide + _points(self.weights)).astype(np.int8)
            return replace(self, weights=self.weights._replace(integers=integers))
        for k, channel in enumerate([*range(left.shape[1]), *copied]):
            wide[:, k] = left[:, channel].clip(-MOST, MOST)
            left[:, channel] -= wide[:, k]
        return self.around_zero(wide)

    def replace(self, editor: Editor, node: ir.Node) -> None:
        """Give the convolution these weights and this bias."""
        with editor.replacing(node):
            values = [editor.dequantized(self.weights), *([editor.dequantized(self.bias)] if self.bias else [])]
        for slot, value in enumerate(values, 1):
            node.replace_input_with(slot, value)
        assert self.weights.integers is not None
        if self.depthwise:
            node.attributes["group"] = ir.AttrInt64("group", len(self.weights.integers))


def _points(weights: Affine) -> Array:
    """Zero points, in the shape of the weights."""
    assert weights.integers is not None
    points = weights.zero_point.astype(np.int64)
    return points.reshape(-1, *[1] * (weights.integers.ndim - 1)) if points.ndim else points


def _centered(weights: Affine) -> Array:
    """How far weights are from their zero point."""
    assert weights.integers is not None
    return weights.integers.astype(np.int64) - _points(weights)


def _extended(stored: Affine, copied: list[int], size: int) -> Affine:
    """A constant's features, those copied, and zeros up to ``size``; parameters per feature too."""
    integers, scale, zero_point = stored.integers, stored.scale, stored.zero_point
    assert integers is not None

    def extended(array: Array, fill: Array) -> Array:
        behind = size - len(array) - len(copied)
        return np.concatenate([array, array[copied], np.repeat(fill[None], behind, axis=0)]).astype(array.dtype)

    if scale.ndim and len(scale) == len(integers):
        scale, zero_point = extended(scale, scale[0]), extended(zero_point, zero_point[0])
    fill = np.broadcast_to(zero_point.reshape(-1)[0], integers.shape[1:])
    return Affine(extended(integers, fill), scale, zero_point)
