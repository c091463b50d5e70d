"""The smallest part of a model that disagrees, as files for a bug report."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin import files
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Array, Operator
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.operators.diverging import Divergence, Search, preserving
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.structure import entering, operands

if TYPE_CHECKING:
    from onnx import ModelProto


PARTS = ("part.tflite", "part.onnx", "part.npz")
"""The files of a part: both models, and the inputs of one run."""


@dataclass(frozen=True, slots=True)
class Smallest:
    """``operators`` of the TFLite model, with what LiteRT computes for their operands as ``inputs``, one mapping a run."""

    tflite: bytes
    onnx: ModelProto
    inputs: list[dict[str, Array]]
    operators: tuple[Operator, ...]

    def save(self, folder: Path) -> list[Path]:
        """Write :data:`PARTS`, which ``verify`` takes. Returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        inputs = io.BytesIO()
        np.savez(inputs, **self.inputs[0])  # type: ignore[arg-type]
        paths = [folder / name for name in PARTS]
        for path, content in zip(paths, (self.tflite, self.onnx.SerializeToString(), inputs.getvalue()), strict=True):
            files.write(path, content)
        return paths


Agrees = Callable[[bytes, "ModelProto", Mapping[str, Array]], bool]
"""Whether a part of both models agrees on one run's inputs."""


def smallest(search: Search, divergence: Divergence, runs: Sequence[Run], agrees: Agrees) -> Smallest | None:
    """Around the first tensor outside its tolerance: its operator alone, then with what comes before, until it disagrees.

    ``None`` where no part does, or none can be taken out of the ONNX model.
    """
    original = preserving(search.trial, most=1)[0]
    kept: list[dict[int, Array]] = []
    for arrays in runs:
        original.run(arrays)
        kept.append(original.tensors())
    for operators in _growing(search, divergence.operator):
        inputs = entering(operators)
        if any(tensor.index not in kept[0] for tensor in inputs):
            continue
        part = search.part(inputs, divergence.tensor, divergence.value)
        if part is None:
            continue
        names = structure.entry(structure.read(part[0])).input_names
        for tensors in kept:
            given = {name: tensors[tensor.index] for name, tensor in zip(names, inputs, strict=True)}
            try:
                if not agrees(*part, given):
                    return Smallest(*part, [given], operators)
            except ConversionError:  # it does not run by itself
                continue
    return None


def _growing(search: Search, last: Operator) -> Iterator[tuple[Operator, ...]]:
    """The operator, then with those that compute its operands, and so on to the model's inputs."""
    chosen = {last}
    while True:
        yield tuple(op for op in search.trial.entry.subgraph.operators if op in chosen)
        computed = [t.index for op in chosen for t in operands(op) if t.index in search.producers]
        before = {search.producers[index] for index in computed} - chosen
        if not before:
            return
        chosen |= before
