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

BuildNetwork = Callable[[Any], Any]
ModelChange = Callable[[onnx.ModelProto], None]


@dataclass(frozen=True)
class PlantedError:
    """A network, and a change that plants an error in its ONNX model."""

    build: BuildNetwork
    change_model: ModelChange
    net: type[Net] = Network
    options: tuple[tuple[str, Any], ...] = ()

    def models(self) -> tuple[bytes, onnx.ModelProto, onnx.ModelProto]:
        """Return the TFLite model, and the ONNX model before and after the change."""
        net = self.net()
        output = self.build(net)
        if output is not None:
            net.output(*(output if isinstance(output, tuple) else (output,)))
        data = net.build()
        before = otp.convert(data, **dict(self.options)).proto
        after = onnx.ModelProto()
        after.CopyFrom(before)
        self.change_model(after)
        assert after != before
        return data, before, after


def change_constants(size: int, change: Callable[[Array], Array]) -> ModelChange:
    """Return a function that changes the constants with this number of elements."""

    def change_model(proto: onnx.ModelProto) -> None:
        for initializer in proto.graph.initializer:
            if np.prod(initializer.dims) == size:
                array = change(numpy_helper.to_array(initializer))
                initializer.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), initializer.name))

    return change_model


def change_nodes(op_type: str, change: Callable[[onnx.NodeProto], None]) -> ModelChange:
    """Return a function that changes every node of an operator."""

    def change_model(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            if node.op_type == op_type:
                change(node)

    return change_model


def remove_state_metadata(proto: onnx.ModelProto) -> None:
    """Remove the metadata entry of the states."""
    for entry in [*proto.metadata_props]:
        if entry.key.endswith(".state"):
            proto.metadata_props.remove(entry)


def without_digest(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without its TFLite digest, as earlier versions wrote it."""
    for entry in [*proto.metadata_props]:
        if entry.key.endswith(".digest"):
            proto.metadata_props.remove(entry)
    return proto


def int8_convolutions(net: Network) -> TensorRef:
    """Build two consecutive int8 convolutions."""
    return net.conv(net.conv(net.input(image(1, 11, 7, 5)), 16, name="first"), 8, name="last")
