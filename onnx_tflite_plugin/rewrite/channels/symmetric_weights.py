"""Kernels for int8 weights with a zero point of 0 take a fifth to a half of the time of other kernels. uint8 weights,
which networks trained with quantization have, range from -z to 255 - z around their zero point z; mostly one weight of
thousands exceeds int8.

If all fit, they are written with a zero point of 0. Otherwise the input channels of weights that do not fit are doubled
by the convolutions that compute them, and the weight is split between both channels: sums and results do not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.rewrite.channels.padding import Convolution
from onnx_tflite_plugin.rewrite.channels.shared_channels import SharedChannels
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.images.fold_width import Work
from onnx_tflite_plugin.rewrite.matching import Affine, QuantizedConv, nodes_of, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule
from onnx_tflite_plugin.source.model import Array

WORTH = 1.05  # minimum combined speedup on processors with and without such kernels
MOST = 127  # -128 is exact on no ARM64 kernel of int8


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[Mapping[ir.Node, Layer]]:
    """Yield the quantized convolutions, if a zero point is not 0."""
    layers = {node: layer for node in nodes_of(model.graph, "Conv") if (layer := Layer.of(node))}
    return [layers] if any(not layer.convolution.symmetric for layer in layers.values()) else []


def check(layers: Mapping[ir.Node, Layer]) -> Mapping[ir.Node, Written] | Decline:
    """Return the new weights of each convolution that changes. Declines if none does."""
    written = {node: Written.of(layer).around_zero() for node, layer in layers.items() if layer.fits}
    for doubling in _doublings(layers):
        doubling.write(written)
    return written or Decline(
        "weights do not fit int8, and more input channels are impossible or cost more than they gain"
    )


def rewrite(editor: Editor, written: Mapping[ir.Node, Written]) -> int:
    """Replace the weights, and return the number of convolutions with another zero point."""
    for node, changed in written.items():
        changed.replace(editor, node)
    return sum(changed.centered for changed in written.values())


symmetric_weights = RewriteRule(pattern, check, rewrite)


def _doublings(layers: Mapping[ir.Node, Layer]) -> Iterator[Doubling]:
    """Yield the groups of values for which doubling channels gains more than it costs."""
    seen: set[ir.Value] = set()
    convolutions = {node: layer.convolution for node, layer in layers.items()}
    for layer in layers.values():
        if layer.splits and layer.source not in seen:
            shared = SharedChannels.around(layer.source, convolutions)
            seen |= {layer.source} if shared is None else shared.values
            if shared is not None and (doubling := Doubling(shared, layers)).gains:
                yield doubling


@dataclass(frozen=True)
class Layer:
    """A convolution with int8 weights that an integer kernel computes."""

    unit: QuantizedConv
    convolution: Convolution

    @classmethod
    def of(cls, node: ir.Node) -> Layer | None:
        unit, convolution = QuantizedConv.of(node), Convolution.of(node)
        if unit is None or convolution is None or unit.weights.integers is None:
            return None
        return cls(unit, convolution) if unit.weights.integers.dtype == np.int8 else None

    @cached_property
    def weights_around_zero(self) -> Array:
        """The weights minus their zero point."""
        return _subtract_zero_point(self.unit.weights)

    @property
    def source(self) -> ir.Value:
        value = self.unit.conv.inputs[0]
        assert value is not None
        return value

    @property
    def fits(self) -> bool:
        """True if the zero point is not 0, and all weights fit int8 if it becomes 0."""
        return not self.convolution.symmetric and int(np.abs(self.weights_around_zero).max(initial=0)) <= MOST

    @property
    def splits(self) -> bool:
        """True if doubled input channels would give it a zero point of 0."""
        return not self.convolution.symmetric and self.convolution.group == 1 and not self.fits

    @property
    def copies(self) -> Array:
        """The number of further copies needed of each input channel: [i]."""
        axes = tuple(axis for axis in range(self.weights_around_zero.ndim) if axis != 1)
        return np.asarray(-(-np.abs(self.weights_around_zero).max(axis=axes) // MOST) - 1).clip(0)

    @property
    def positions(self) -> int:
        """The number of output positions; 0 for a dynamic shape."""
        shape = sizes(self.unit.conv.outputs[0]) or sizes(self.unit.quantize.outputs[0]) or [None] * 3
        return math.prod(size or 0 for size in shape[2:])

    def cost(self, channels: int, features: int, symmetric: bool) -> int:
        """Return the cost with so many input channels and features, in the unit of ``fold_width``."""
        taps = math.prod(self.convolution.shape[2:])
        return Work(self.positions, channels, features, taps).cost(symmetric)


@dataclass(frozen=True)
class Doubling:
    """Values that share channels, with some channels doubled."""

    shared: SharedChannels
    layers: Mapping[ir.Node, Layer]

    @property
    def channels(self) -> int:
        return self.shared.channels

    @property
    def readers(self) -> list[Layer]:
        return [self.layers[node] for node in self.shared.readers]

    @property
    def channels_to_copy(self) -> list[int]:
        """The channels that are doubled, in ascending order."""
        copies = np.max([layer.copies for layer in self.readers if layer.splits], axis=0)
        return [int(channel) for channel in np.repeat(np.arange(self.channels), copies)]

    @property
    def size(self) -> int:
        """The number of channels after doubling, rounded up to a whole block."""
        return -(-(self.channels + len(self.channels_to_copy)) // _BLOCK) * _BLOCK

    @property
    def gains(self) -> bool:
        """True if processors with kernels for symmetric weights save a larger share than others lose by more channels."""
        (before, after), (others_before, others_after) = self._costs(True), self._costs(False)
        return after * others_after * WORTH < before * others_before

    def _costs(self, symmetric_kernels: bool) -> tuple[int, int]:
        """Return the costs without and with doubled channels, on a processor with or without kernels for symmetric weights."""
        before = after = 0
        for layer in self.readers:
            features, symmetric = layer.convolution.features, layer.convolution.symmetric
            before += layer.cost(self.channels, features, symmetric_kernels and symmetric)
            after += layer.cost(self.size, features, symmetric_kernels and (symmetric or layer.splits))
        for layer in map(self.layers.__getitem__, self.shared.makers):
            inputs, symmetric = layer.convolution.shape[1], layer.convolution.symmetric
            before += layer.cost(inputs, self.channels, symmetric_kernels and symmetric)
            after += layer.cost(inputs, self.size, symmetric_kernels and symmetric)
        for layer in map(self.layers.__getitem__, self.shared.between):
            a_channel = layer.positions * _DEPTHWISE
            before, after = before + a_channel * self.channels, after + a_channel * self.size
        return before, after

    def write(self, written: dict[ir.Node, Written]) -> None:
        """Add the new weights of all convolutions around, and set the shapes of the values."""
        copied, size, layers = self.channels_to_copy, self.size, self.layers
        for node in (*self.shared.makers, *self.shared.between):
            written[node] = written.get(node, Written.of(layers[node])).with_features(copied, size)
        for node in self.shared.readers:
            split = layers[node].splits
            written[node] = written.get(node, Written.of(layers[node])).with_channels(copied, size, split=split)
        added = size - self.channels - len(copied)
        self.shared.set_channels([*range(self.channels), *copied, *[-1] * added])


_BLOCK = 4  # channels that kernels of symmetric weights read in place; blocks of 16 gain nothing, and cost other processors more
_DEPTHWISE = 250  # cost of an output element of a depthwise convolution, in multiplications


@dataclass(frozen=True)
class Written:
    """New weights and bias of a convolution; ``centered``: its zero point becomes 0."""

    weights: Affine
    bias: Affine | None
    depthwise: bool
    centered: bool = False

    @classmethod
    def of(cls, layer: Layer) -> Written:
        return cls(layer.unit.weights, layer.unit.bias, layer.convolution.depthwise)

    def around_zero(self, centered: Array | None = None) -> Written:
        """Return these weights, or ``centered``, with a zero point of 0."""
        integers = (_subtract_zero_point(self.weights) if centered is None else centered).astype(np.int8)
        return replace(
            self, weights=Affine(integers, self.weights.scale, np.zeros_like(self.weights.zero_point)), centered=True
        )

    def with_features(self, copied: list[int], size: int) -> Written:
        """Return these with copied output channels, and zeros up to ``size`` channels."""
        weights, bias = (
            _extend_constant(self.weights, copied, size),
            self.bias and _extend_constant(self.bias, copied, size),
        )
        return replace(self, weights=weights, bias=bias)

    def with_channels(self, copied: list[int], size: int, split: bool) -> Written:
        """Return these with copied input channels, which take the excess of a weight if ``split``, and unused ones up to ``size``."""
        left = _subtract_zero_point(self.weights)
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
        """Replace the weights and the bias of a convolution."""
        with editor.replacing(node):
            values = [editor.dequantize(self.weights), *([editor.dequantize(self.bias)] if self.bias else [])]
        for slot, value in enumerate(values, 1):
            node.replace_input_with(slot, value)
        assert self.weights.integers is not None
        if self.depthwise:
            node.attributes["group"] = ir.AttrInt64("group", len(self.weights.integers))


def _points(weights: Affine) -> Array:
    """Return the zero points, broadcastable to the weights."""
    assert weights.integers is not None
    points = weights.zero_point.astype(np.int64)
    return points.reshape(-1, *[1] * (weights.integers.ndim - 1)) if points.ndim else points


def _subtract_zero_point(weights: Affine) -> Array:
    """Return the weights minus their zero point."""
    assert weights.integers is not None
    return weights.integers.astype(np.int64) - _points(weights)


def _extend_constant(stored: Affine, copied: list[int], size: int) -> Affine:
    """Return a constant with copied features, and zeros up to ``size`` features."""
    integers, scale, zero_point = stored.integers, stored.scale, stored.zero_point
    assert integers is not None

    def append_channels(array: Array, fill: Array) -> Array:
        filled = size - len(array) - len(copied)
        return np.concatenate([array, array[copied], np.repeat(fill[None], filled, axis=0)]).astype(array.dtype)

    if scale.ndim and len(scale) == len(integers):
        scale, zero_point = append_channels(scale, scale[0]), append_channels(zero_point, zero_point[0])
    fill = np.broadcast_to(zero_point.reshape(-1)[0], integers.shape[1:])
    return Affine(append_channels(integers, fill), scale, zero_point)
