"""Operators apart: what a model without quantization makes, tensor by tensor, of the values LiteRT had before each.

Without quantization nothing is rounded and nothing saturates, so the values of a deep network leave LiteRT's although
every operator is right. Fed with LiteRT's own values each operator is on trial alone: its result,
quantized as LiteRT's is, is at most a few quantization steps away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.graph.metadata import TensorValue, belongs_to, props
from onnx_tflite_plugin.source.model import Array, Quantization, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison, compare
from onnx_tflite_plugin.verify.comparison.tolerance import Tolerance, inherited_step
from onnx_tflite_plugin.verify.comparison.trial import Pairs, Run, Trial, restored_dtype
from onnx_tflite_plugin.verify.operators.diverging import preserving
from onnx_tflite_plugin.verify.runtimes.dequantized import as_float, as_stored, is_float
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry, producers

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
    """The ONNX model cut at every value that holds a tensor: each is an output, and whoever reads it is given LiteRT's.

    ``values``: those that are to be cut and compared, by tensor; by default all. ``kept``: LiteRT's tensors in the last run;
    ``fed``: those that the ONNX model is given, by index.
    """

    def __init__(
        self,
        trial: Trial,
        session: OnnxRuntime,
        tolerance: Tolerance = NEAR,
        values: Mapping[int, Sequence[TensorValue]] | None = None,
    ) -> None:
        self.entry, self.tolerance, graph = trial.entry, tolerance, session.proto.graph
        self.producers = producers(self.entry.subgraph)
        self.original = preserving(trial, most=1)[0]
        self.pairs = Pairs(self.entry, session)
        computed = {name for node in graph.node for name in node.output}
        read = {name for node in graph.node for name in node.input}
        lowered = {index for node in graph.node for index in belongs_to(props(node.metadata_props))}
        index = self.entry.subgraph.index
        infos = {info.name: info for info in (*graph.value_info, *graph.output)}
        chosen = session.tensor_values if values is None else [v for each in values.values() for v in each]
        self.values = [v for v in chosen if v.subgraph == index and v.name in computed and v.name in infos]
        self.floats = {name for name, info in infos.items() if is_float(info)}
        self.kept: Mapping[int, Array] = {}
        shared = {value.name for value in self.values if self._shared(value, lowered)}
        self.given = {value.name: value.name + GIVEN for value in self.values if value.name in read - shared}
        self.fed = {value.tensor for value in self.values if value.name in self.given}
        self.session = OnnxRuntime(_cut(session.proto, self.given), keep=[value.name for value in self.values])
        carried = {state.output: state.input for state in self.session.states}
        self.states = {carried[value.name]: value for value in self.values if value.name in carried}

    def _shared(self, value: TensorValue, lowered: Collection[int]) -> bool:
        """Whether a tensor's operator has no nodes, where others have: its values are those of the tensor that it is made of.

        Given one of both, operators that read the other would have it as well.
        """
        producer = self.producers.get(value.tensor)
        return producer is not None and bool(lowered) and producer.index not in lowered

    def comparisons(self, runs: Sequence[Run]) -> Iterator[tuple[Comparison, TensorValue]]:
        """Every tensor that LiteRT keeps and the ONNX model computes, run by run.

        Raises LiteRTError or OrtError where a model that keeps them does not run.
        """
        for arrays in runs:
            last = self.kept
            self.original.run(arrays)
            self.kept = self.original.tensors()
            yield from self.compared(self.pairs.feeds(arrays), self.kept, last)

    def _fed(self, value: TensorValue, kept: Mapping[int, Array]) -> Array:
        """LiteRT's tensor as the ONNX value holds it."""
        array = kept[value.tensor]
        return value.apply(
            as_float(self.entry.subgraph.tensors[value.tensor], array) if value.name in self.floats else array
        )

    def compared(
        self, arrays: Mapping[str, Array], kept: Mapping[int, Array], last: Mapping[int, Array]
    ) -> Iterator[tuple[Comparison, TensorValue]]:
        """Of one run: ``arrays`` are the model's inputs by ONNX name, ``kept`` and ``last`` LiteRT's tensors now and before it."""
        tensors = self.entry.subgraph.tensors
        feeds = {
            self.given[value.name]: self._fed(value, kept)
            for value in self.values
            if value.name in self.given
            and value.tensor in kept
            and _readable(tensors[value.tensor], value, kept[value.tensor])
        }
        states = {name: self._fed(value, last) for name, value in self.states.items() if value.tensor in last}
        if len(feeds) < len(self.given):
            return
        exact = self.fed | kept.keys() - self.producers.keys()
        self.session.run({**arrays, **feeds, **states})
        returned = self.session.values()
        for value in self.values:
            tensor = tensors[value.tensor]
            if tensor.is_variable:  # what a whole sequence added up, rounded at every time step
                continue
            array = returned[value.name]
            restored = value.restore(array, restored_dtype(tensor, array))
            if restored is not None and value.tensor in kept:
                step = inherited_step(tensor, self.producers, self.tolerance, exact)
                actual, expected = as_stored(tensor, np.asarray(restored)), {"builtin": [kept[value.tensor]]}
                yield compare(str(tensor), [actual], expected, self.tolerance, step=step), value


def _readable(tensor: Tensor, value: TensorValue, array: Array) -> bool:
    """Whether a tensor's array can be brought to the order of the value: it has the rank that the order was made for."""
    return array.ndim == tensor.rank or (
        not tensor.has_rank and (value.order is None or array.ndim == len(value.order))
    )


def _cut(proto: ModelProto, given: Mapping[str, str]) -> ModelProto:
    """A copy in which nodes read an input, ``given``, instead of each of these values."""
    cut = type(proto)()
    cut.CopyFrom(proto)
    for node in cut.graph.node:
        for k, name in enumerate(node.input):
            if name in given:
                node.input[k] = given[name]
    infos = {info.name: info for info in (*cut.graph.value_info, *cut.graph.output)}
    for name, fed in given.items():
        info = cut.graph.input.add()
        info.CopyFrom(infos[name])
        info.name = fed
        del info.metadata_props[:]
    return cut
