"""Groups of values with shared channels, which can only be changed together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import onnx_ir as ir

from onnx_tflite_plugin.graph.value_metadata import write_channels
from onnx_tflite_plugin.rewrite.channels.padding import CHANNELWISE, Convolution, is_per_tensor
from onnx_tflite_plugin.rewrite.matching import sizes


@dataclass
class SharedChannels:
    """Values that share channels (axis 1), and the convolutions around them.

    ``rank`` and ``channels``: rank and number of channels of every value. ``producers`` and ``readers``: dense
    convolutions that compute and read the values. ``depthwise``: depthwise convolutions between two of the values.
    """

    rank: int
    channels: int
    values: set[ir.Value] = field(default_factory=set)
    producers: dict[ir.Node, Convolution] = field(default_factory=dict)
    readers: dict[ir.Node, Convolution] = field(default_factory=dict)
    depthwise: dict[ir.Node, Convolution] = field(default_factory=dict)

    @classmethod
    def around(cls, value: ir.Value, convolutions: Mapping[ir.Node, Convolution]) -> Self | None:
        """Return the values that share channels with ``value``.

        Return ``None`` if an operator other than ``convolutions`` mixes the channels. Also return ``None`` if a value is a
        graph input or output, or is captured by an inner graph.
        """
        shape = sizes(value)
        if shape is None or shape[1] is None:
            return None
        shared, pending = cls(len(shape), shape[1]), [value]
        while pending:
            value = pending.pop()
            if value in shared.values:
                continue
            shared.values.add(value)
            producer_node = value.producer()
            if producer_node is None or value.is_graph_output() or producer_node.graph is None:
                return None
            if producer_node in convolutions and convolutions[producer_node].group == 1:
                shared.producers[producer_node] = convolutions[producer_node]
            elif not shared._propagate(producer_node, convolutions, pending):
                return None
            for use in value.uses():
                if use.node.graph is not producer_node.graph:
                    return None
                if use.node in convolutions and convolutions[use.node].group == 1:
                    shared.readers[use.node] = convolutions[use.node]
                elif not shared._propagate(use.node, convolutions, pending):
                    return None
        return shared

    def _propagate(self, node: ir.Node, convolutions: Mapping[ir.Node, Convolution], pending: list[ir.Value]) -> bool:
        """Add operands and result of a node to ``pending`` if they share channels.

        Return False if the node mixes channels.
        """
        operands: list[ir.Value | None]
        if node in convolutions and convolutions[node].depthwise:
            self.depthwise[node] = convolutions[node]
            operands = [node.inputs[0]]
        elif node.domain == "" and node.op_type in CHANNELWISE and is_per_tensor(node) and len(node.outputs) == 1:
            operands = [node.inputs[0]]
        elif node.domain == "" and node.op_type == "Add" and all(map(self._has_channels, node.inputs)):
            operands = [*node.inputs]
        else:
            return False
        pending += [value for value in (*operands, node.outputs[0]) if value is not None]
        return True

    def _has_channels(self, value: ir.Value | None) -> bool:
        """True if a value has the rank and the number of channels of the group."""
        shape = sizes(value)
        return shape is not None and len(shape) == self.rank and shape[1] == self.channels

    def set_channels(self, channels: Sequence[int]) -> None:
        """Set shape and metadata of all values.

        ``channels``: the former index of each channel, -1 for a new channel.
        """
        for value in self.values:
            if value.shape is not None:
                value.shape = ir.Shape([value.shape[0], len(channels), *list(value.shape)[2:]])
            write_channels(value.metadata_props, channels)
