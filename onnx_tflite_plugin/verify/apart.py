"""Operators apart: what a model without quantization makes, tensor by tensor, of the values LiteRT had before each.

Without quantization nothing is rounded and nothing saturates, so the values of a deep network leave LiteRT's although
every operator is right. Fed with LiteRT's own values each operator is on trial alone: its result,
quantized as LiteRT's is, is at most a few quantization steps away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..graph.metadata import TensorValue
from ..source.model import Array, Quantization, Tensor
from .compare import Comparison, Tolerance, compare, inherited_step
from .dequantized import as_float, as_stored, is_float
from .ort import OnnxRuntime
from .structure import Entry, producers

if TYPE_CHECKING:
    from onnx import ModelProto

GIVEN = ":given"
# Kernels rescale in fixed point, and read some functions of int16 from tables.
NEAR = Tolerance(of_range=1e-3, steps=3, int16_steps=200)


def without_quantization(proto: ModelProto, values: Mapping[str, TensorValue], entry: Entry) -> bool:
    """Whether the ONNX model has floats where the TFLite model has quantized integers."""
    floats = {
        info.name
        for infos in (proto.graph.input, proto.graph.value_info, proto.graph.output)
        for info in infos
        if is_float(info)
    }
    tensors = entry.subgraph.tensors
    return any(
        value.name in floats and value.form == "stored" and _quantized(tensors[value.tensor])
        for value in values.values()
        if value.subgraph == entry.subgraph.index and 0 <= value.tensor < len(tensors)
    )


def _quantized(tensor: Tensor) -> bool:
    return isinstance(tensor.quantization, Quantization) and "int" in tensor.dtype


class Apart:
    """The ONNX model cut at every value that holds a tensor: each is an output, and whoever reads it is given LiteRT's."""

    def __init__(self, proto: ModelProto, values: Sequence[TensorValue], entry: Entry) -> None:
        self.entry = entry
        self.producers = producers(entry.subgraph)
        computed = {name for node in proto.graph.node for name in node.output}
        self.values = [v for v in values if v.subgraph == entry.subgraph.index and v.name in computed]
        self.given = {value.name: value.name + GIVEN for value in self.values}
        self.session = OnnxRuntime(self._cut(proto), keep=list(self.given))
        carried = {state.output: state.input for state in self.session.states}
        self.states = {carried[value.name]: value for value in self.values if value.name in carried}
        self.last: Mapping[int, Array] = {}

    def _cut(self, proto: ModelProto) -> ModelProto:
        cut = type(proto)()
        cut.CopyFrom(proto)
        read = set()
        for node in cut.graph.node:
            for k, name in enumerate(node.input):
                if name in self.given:
                    node.input[k] = self.given[name]
                    read.add(name)
        infos = {info.name: info for info in (*cut.graph.value_info, *cut.graph.output)}
        for name in sorted(read):
            info = cut.graph.input.add()
            info.CopyFrom(infos[name])
            info.name = self.given[name]
            del info.metadata_props[:]
        self.given = {name: self.given[name] for name in read}
        return cut

    def compared(
        self, arrays: Mapping[str, Array], kept: Mapping[int, Array]
    ) -> Iterator[tuple[Comparison, TensorValue]]:
        """One comparison for each tensor LiteRT kept; ``arrays`` are the model's inputs by ONNX name."""
        tensors = self.entry.subgraph.tensors
        feeds = {
            self.given[value.name]: value.apply(as_float(tensors[value.tensor], kept[value.tensor]))
            for value in self.values
            if value.name in self.given and value.tensor in kept
        }
        states = {
            name: value.apply(as_float(tensors[value.tensor], self.last[value.tensor]))
            for name, value in self.states.items()
            if value.tensor in self.last
        }
        self.last = kept
        if len(feeds) < len(self.given):
            return
        self.session.run({**arrays, **feeds, **states})
        returned = self.session.values()
        for value in self.values:
            tensor = tensors[value.tensor]
            if tensor.is_variable:  # what a whole sequence added up, rounded at every time step
                continue
            restored = value.restore(returned[value.name], returned[value.name].dtype)
            if restored is not None and value.tensor in kept:
                step = inherited_step(tensor, self.producers, NEAR)
                actual, expected = as_stored(tensor, np.asarray(restored)), {"builtin": [kept[value.tensor]]}
                yield compare(str(tensor), [actual], expected, NEAR, step=step), value
