"""Convert convolution weights to int8 with a zero point of 0.

Kernels for such weights take a fifth to a half of the time of other kernels.

Networks trained with quantization have uint8 weights, which range from -z to 255 - z around their zero point z. After z is
subtracted, usually only one weight in thousands exceeds int8.

If all weights fit int8, they are stored with a zero point of 0. Otherwise the input channels with larger weights are
duplicated. The convolutions that compute these channels get copies of output channels, and each weight is split between the
original channel and its copy. Sums and results do not change.
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

MIN_SPEEDUP = 1.05  # minimum product of the speedups on processors with and without symmetric kernels
MAX_WEIGHT = 127  # with -128, int8 kernels for ARM64 are not exact


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[Mapping[ir.Node, Layer]]:
    """Return one place with all quantized convolutions.

    Return no place if all zero points are 0.
    """
    layers = {node: layer for node in nodes_of(model.graph, "Conv") if (layer := Layer.of(node))}
    return [layers] if any(not layer.convolution.symmetric for layer in layers.values()) else []


def check(layers: Mapping[ir.Node, Layer]) -> Mapping[ir.Node, NewWeights] | Decline:
    """Return new weights of the convolutions that change; declines if none changes."""
    new_weights = {node: NewWeights.of(layer).with_zero_point_0() for node, layer in layers.items() if layer.fits_int8}
    for duplication in _worthwhile_duplications(layers):
        duplication.add_weights(new_weights)
    return new_weights or Decline(
        "some weights exceed int8, and duplicated input channels are impossible or cost more time than they save"
    )


def rewrite(editor: Editor, new_weights: Mapping[ir.Node, NewWeights]) -> int:
    """Replace the weights. Return the number of convolutions with a new zero point."""
    for node, weights in new_weights.items():
        weights.apply_to(editor, node)
    return sum(weights.is_centered for weights in new_weights.values())


symmetric_weights = RewriteRule(pattern, check, rewrite)


def _worthwhile_duplications(layers: Mapping[ir.Node, Layer]) -> Iterator[ChannelDuplication]:
    """Yield the groups of values whose channels are worth duplicating."""
    visited: set[ir.Value] = set()
    convolutions = {node: layer.convolution for node, layer in layers.items()}
    for layer in layers.values():
        if layer.needs_split and layer.source not in visited:
            shared = SharedChannels.around(layer.source, convolutions)
            visited |= {layer.source} if shared is None else shared.values
            if shared is not None and (duplication := ChannelDuplication(shared, layers)).is_worthwhile:
                yield duplication


@dataclass(frozen=True)
class Layer:
    """A quantized convolution with int8 weights."""

    quantized_conv: QuantizedConv
    convolution: Convolution

    @classmethod
    def of(cls, node: ir.Node) -> Layer | None:
        quantized_conv, convolution = QuantizedConv.of(node), Convolution.of(node)
        if quantized_conv is None or convolution is None or quantized_conv.weights.integers is None:
            return None
        return cls(quantized_conv, convolution) if quantized_conv.weights.integers.dtype == np.int8 else None

    @cached_property
    def centered_weights(self) -> Array:
        """The weights minus their zero point."""
        return _subtract_zero_point(self.quantized_conv.weights)

    @property
    def source(self) -> ir.Value:
        value = self.quantized_conv.node.inputs[0]
        assert value is not None
        return value

    @property
    def fits_int8(self) -> bool:
        """True if the zero point is not 0, and all weights fit int8 if it becomes 0."""
        return not self.convolution.symmetric and int(np.abs(self.centered_weights).max(initial=0)) <= MAX_WEIGHT

    @property
    def needs_split(self) -> bool:
        """True if the zero point can become 0 only with duplicated input channels."""
        return not self.convolution.symmetric and self.convolution.group == 1 and not self.fits_int8

    @property
    def copies_per_channel(self) -> Array:
        """The number of additional copies that each input channel needs, [channels]."""
        axes = tuple(axis for axis in range(self.centered_weights.ndim) if axis != 1)
        return np.asarray(-(-np.abs(self.centered_weights).max(axis=axes) // MAX_WEIGHT) - 1).clip(0)

    @property
    def positions(self) -> int:
        """The number of output positions, 0 for a dynamic shape."""
        shape = (
            sizes(self.quantized_conv.node.outputs[0]) or sizes(self.quantized_conv.quantize.outputs[0]) or [None] * 3
        )
        return math.prod(size or 0 for size in shape[2:])

    def cost(self, channels: int, features: int, symmetric: bool) -> int:
        """Return the cost, in the unit of ``fold_width.Work.cost``.

        ``channels`` and ``features``: numbers of input and output channels.
        """
        taps = math.prod(self.convolution.shape[2:])
        return Work(self.positions, channels, features, taps).cost(symmetric)


@dataclass(frozen=True)
class ChannelDuplication:
    """A group of values that share channels, some of which are duplicated."""

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
        """The duplicated channels in ascending order, each once per additional copy."""
        copies_per_channel = np.max([layer.copies_per_channel for layer in self.readers if layer.needs_split], axis=0)
        return [int(channel) for channel in np.repeat(np.arange(self.channels), copies_per_channel)]

    @property
    def size(self) -> int:
        """The number of channels including copies, rounded up to a full block."""
        return -(-(self.channels + len(self.channels_to_copy)) // _CHANNEL_BLOCK) * _CHANNEL_BLOCK

    @property
    def is_worthwhile(self) -> bool:
        """True if the combined speedup exceeds ``MIN_SPEEDUP``."""
        symmetric_cost, symmetric_cost_with_copies = self._costs(symmetric_kernels=True)
        fallback_cost, fallback_cost_with_copies = self._costs(symmetric_kernels=False)
        return symmetric_cost_with_copies * fallback_cost_with_copies * MIN_SPEEDUP < symmetric_cost * fallback_cost

    def _costs(self, symmetric_kernels: bool) -> tuple[int, int]:
        """Return the cost without copied channels, and the cost with them.

        ``symmetric_kernels``: the processor has kernels for symmetric weights.
        """
        cost = cost_with_copies = 0
        for layer in self.readers:
            features, symmetric = layer.convolution.features, layer.convolution.symmetric
            cost += layer.cost(self.channels, features, symmetric_kernels and symmetric)
            cost_with_copies += layer.cost(self.size, features, symmetric_kernels and (symmetric or layer.needs_split))
        for layer in map(self.layers.__getitem__, self.shared.producers):
            inputs, symmetric = layer.convolution.shape[1], layer.convolution.symmetric
            cost += layer.cost(inputs, self.channels, symmetric_kernels and symmetric)
            cost_with_copies += layer.cost(inputs, self.size, symmetric_kernels and symmetric)
        for layer in map(self.layers.__getitem__, self.shared.depthwise):
            channel_cost = layer.positions * _DEPTHWISE_COST
            cost += channel_cost * self.channels
            cost_with_copies += channel_cost * self.size
        return cost, cost_with_copies

    def add_weights(self, new_weights: dict[ir.Node, NewWeights]) -> None:
        """Add the new weights of all convolutions that read or compute the channels.

        Also set the new shapes of the values.
        """
        copied_channels, size, layers = self.channels_to_copy, self.size, self.layers
        for node in (*self.shared.producers, *self.shared.depthwise):
            new_weights[node] = new_weights.get(node, NewWeights.of(layers[node])).with_features(copied_channels, size)
        for node in self.shared.readers:
            is_split = layers[node].needs_split
            new_weights[node] = new_weights.get(node, NewWeights.of(layers[node])).with_channels(
                copied_channels, size, split=is_split
            )
        padding = size - self.channels - len(copied_channels)
        self.shared.set_channels([*range(self.channels), *copied_channels, *[-1] * padding])


_CHANNEL_BLOCK = 4
"""Kernels for symmetric weights read multiples of this many channels in place.

Multiples of 16 save no further time, and cost more on other processors.
"""
_DEPTHWISE_COST = 250  # heuristic: cost of an output element of a depthwise convolution, in multiplications


@dataclass(frozen=True)
class NewWeights:
    """New weights and bias of a convolution.

    ``is_centered``: the zero point of the weights becomes 0.
    """

    weights: Affine
    bias: Affine | None
    depthwise: bool
    is_centered: bool = False

    @classmethod
    def of(cls, layer: Layer) -> NewWeights:
        return cls(layer.quantized_conv.weights, layer.quantized_conv.bias, layer.convolution.depthwise)

    def with_zero_point_0(self, centered: Array | None = None) -> NewWeights:
        """Return these weights with a zero point of 0.

        ``centered``: the new weights; by default, the current weights minus their zero point.
        """
        integers = (_subtract_zero_point(self.weights) if centered is None else centered).astype(np.int8)
        return replace(
            self, weights=Affine(integers, self.weights.scale, np.zeros_like(self.weights.zero_point)), is_centered=True
        )

    def with_features(self, copied_channels: list[int], size: int) -> NewWeights:
        """Return the weights with copies of output channels.

        Zeros are appended up to ``size`` channels.
        """
        weights = _extend_constant(self.weights, copied_channels, size)
        bias = self.bias and _extend_constant(self.bias, copied_channels, size)
        return replace(self, weights=weights, bias=bias)

    def with_channels(self, copied_channels: list[int], size: int, split: bool) -> NewWeights:
        """Return the weights with additional input channels for the copies.

        ``split``: the copies get the excess of the weights over ``MAX_WEIGHT``; otherwise their weights are zero. Zeros are
        appended up to ``size`` channels.
        """
        remainder = _subtract_zero_point(self.weights)
        extended = np.zeros((remainder.shape[0], size, *remainder.shape[2:]), np.int64)
        if not split:
            extended[:, : remainder.shape[1]] = remainder
            integers = (extended + _broadcast_zero_point(self.weights)).astype(np.int8)
            return replace(self, weights=self.weights._replace(integers=integers))
        for k, channel in enumerate([*range(remainder.shape[1]), *copied_channels]):
            extended[:, k] = remainder[:, channel].clip(-MAX_WEIGHT, MAX_WEIGHT)
            remainder[:, channel] -= extended[:, k]
        return self.with_zero_point_0(extended)

    def apply_to(self, editor: Editor, node: ir.Node) -> None:
        """Replace the weights and the bias of a convolution."""
        with editor.replacing(node):
            values = [editor.dequantize(self.weights), *([editor.dequantize(self.bias)] if self.bias else [])]
        for slot, value in enumerate(values, 1):
            node.replace_input_with(slot, value)
        assert self.weights.integers is not None
        if self.depthwise:
            node.attributes["group"] = ir.AttrInt64("group", len(self.weights.integers))


def _broadcast_zero_point(weights: Affine) -> Array:
    """Return the zero points in a shape that broadcasts to the weights."""
    assert weights.integers is not None
    zero_point = weights.zero_point.astype(np.int64)
    return zero_point.reshape(-1, *[1] * (weights.integers.ndim - 1)) if zero_point.ndim else zero_point


def _subtract_zero_point(weights: Affine) -> Array:
    """Return the weights minus their zero point."""
    assert weights.integers is not None
    return weights.integers.astype(np.int64) - _broadcast_zero_point(weights)


def _extend_constant(constant: Affine, copied_channels: list[int], size: int) -> Affine:
    """Return a constant with copied features, and zeros up to ``size`` features."""
    integers, scale, zero_point = constant.integers, constant.scale, constant.zero_point
    assert integers is not None

    def append_channels(array: Array, fill: Array) -> Array:
        padding = size - len(array) - len(copied_channels)
        return np.concatenate([array, array[copied_channels], np.repeat(fill[None], padding, axis=0)]).astype(
            array.dtype
        )

    if scale.ndim and len(scale) == len(integers):
        scale, zero_point = append_channels(scale, scale[0]), append_channels(zero_point, zero_point[0])
    fill = np.broadcast_to(zero_point.reshape(-1)[0], integers.shape[1:])
    return Affine(append_channels(integers, fill), scale, zero_point)
