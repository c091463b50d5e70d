"""Models with small planted errors that verification must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import Net
from onnx_tflite_plugin.source.model import Array
from tests.helpers.passes_networks import Network, image

Draw = Callable[[Any], Any]
Spoil = Callable[[onnx.ModelProto], None]


@dataclass(frozen=True)
class Wrong:
    """A network, and a function that plants an error in its ONNX model."""

    draw: Draw
    spoil: Spoil
    net: type[Net] = Network
    options: tuple[tuple[str, Any], ...] = ()

    def models(self) -> tuple[bytes, onnx.ModelProto, onnx.ModelProto]:
        net = self.net()
        output = self.draw(net)
        if output is not None:
            net.output(*(output if isinstance(output, tuple) else (output,)))
        data = net.build()
        before = otp.convert(data, **dict(self.options)).proto
        after = onnx.ModelProto()
        after.CopyFrom(before)
        self.spoil(after)
        assert after != before
        return data, before, after


def change_constants(size: int, change: Callable[[Array], Array]) -> Spoil:
    """Return a function that changes the constants with this number of elements."""

    def spoil(proto: onnx.ModelProto) -> None:
        for stored in proto.graph.initializer:
            if np.prod(stored.dims) == size:
                array = change(numpy_helper.to_array(stored))
                stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), stored.name))

    return spoil


def change_nodes(op_type: str, change: Callable[[onnx.NodeProto], None]) -> Spoil:
    """Return a function that changes every node of an operator."""

    def spoil(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            if node.op_type == op_type:
                change(node)

    return spoil


def forget_state(proto: onnx.ModelProto) -> None:
    """Remove the metadata entry of the states."""
    for entry in [*proto.metadata_props]:
        if entry.key.endswith(".state"):
            proto.metadata_props.remove(entry)


def integers(net: Network) -> TensorRef:
    return net.conv(net.conv(net.input(image(1, 11, 7, 5)), 16, name="first"), 8, name="last")
