"""Operators apart: what a model in real numbers makes, tensor by tensor, of the values LiteRT had before each.

Without quantization nothing is rounded and nothing saturates, so the values of a deep network leave LiteRT's although
every operator is right. Fed with LiteRT's own values each operator is on trial alone: what it makes, rounded to the
steps LiteRT has, is at most a few of them away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..source.model import Array, Quantization, Tensor
from .compare import Comparison, Tolerance, compare, inherited_step
from .ort import OnnxRuntime, Place
from .real import as_real, as_stored, is_real
from .structure import Entry, producers

if TYPE_CHECKING:
    from onnx import ModelProto

GIVEN = ":given"
# Kernels rescale in fixed point, and read some functions of 16 bit integers from tables.
NEAR = Tolerance(real=1e-3, steps=3, words=200)


def in_real_numbers(proto: ModelProto, places: Mapping[str, Place], entry: Entry) -> bool:
    """Whether the ONNX model has real numbers where the TFLite model has quantized ones."""
    real = {
        info.name
        for infos in (proto.graph.input, proto.graph.value_info, proto.graph.output)
        for info in infos
        if is_real(info)
    }
    tensors = entry.subgraph.tensors
    return any(
        place.value in real and place.form == "stored" and _quantized(tensors[place.tensor])
        for place in places.values()
        if place.subgraph == entry.subgraph.index and 0 <= place.tensor < len(tensors)
    )


def _quantized(tensor: Tensor) -> bool:
    return isinstance(tensor.quantization, Quantization) and "int" in tensor.dtype


class Apart:
    """The ONNX model cut at every value that holds a tensor: each is an output, and whoever reads it is given LiteRT's."""

    def __init__(self, proto: ModelProto, places: Sequence[Place], entry: Entry) -> None:
        self.entry = entry
        self.producers = producers(entry.subgraph)
        made = {name for node in proto.graph.node for name in node.output}
        self.places = [place for place in places if place.subgraph == entry.subgraph.index and place.value in made]
        self.given = {place.value: place.value + GIVEN for place in self.places}
        self.session = OnnxRuntime(self._cut(proto), keep=list(self.given))
        carried = {state.output: state.input for state in self.session.states}
        self.states = {carried[place.value]: place for place in self.places if place.value in carried}
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
        known = {info.name: info for info in (*cut.graph.value_info, *cut.graph.output)}
        for name in sorted(read):
            info = cut.graph.input.add()
            info.CopyFrom(known[name])
            info.name = self.given[name]
            del info.metadata_props[:]
        self.given = {name: self.given[name] for name in read}
        return cut

    def compared(self, arrays: Mapping[str, Array], kept: Mapping[int, Array]) -> Iterator[tuple[Comparison, Place]]:
        """One comparison for each tensor LiteRT kept; ``arrays`` are the model's inputs by ONNX name."""
        tensors = self.entry.subgraph.tensors
        feeds = {
            self.given[place.value]: place.apply(as_real(tensors[place.tensor], kept[place.tensor]))
            for place in self.places
            if place.value in self.given and place.tensor in kept
        }
        states = {
            name: place.apply(as_real(tensors[place.tensor], self.last[place.tensor]))
            for name, place in self.states.items()
            if place.tensor in self.last
        }
        self.last = kept
        if len(feeds) < len(self.given):
            return
        self.session.step({**arrays, **feeds, **states})
        values = self.session.values()
        for place in self.places:
            tensor = tensors[place.tensor]
            if tensor.is_variable:  # what a whole sequence added up, of which every step was rounded
                continue
            restored = place.restore(values[place.value], values[place.value].dtype)
            if restored is not None and place.tensor in kept:
                step = inherited_step(tensor, self.producers, NEAR)
                actual, expected = as_stored(tensor, np.asarray(restored)), {"builtin": [kept[place.tensor]]}
                yield compare(str(tensor), [actual], expected, NEAR, step=step), place
