"""The smallest part of a model that disagrees, as files for a bug report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ConversionError
from ..graph.extraction import extracted
from ..graph.metadata import TensorValue
from ..source.model import Array, Operator, Tensor
from . import structure
from .diverging import Divergence, preserving
from .part import cut_file
from .structure import operands
from .trial import Run, Trial

if TYPE_CHECKING:
    from onnx import ModelProto

    from .ort import OnnxRuntime


@dataclass(frozen=True, slots=True)
class Smallest:
    """``operators`` of the TFLite model, with what LiteRT computes for their operands as ``inputs``, one mapping a run."""

    tflite: bytes
    onnx: ModelProto
    inputs: list[dict[str, Array]]
    operators: tuple[Operator, ...]

    def save(self, folder: Path) -> list[Path]:
        """Write ``part.tflite``, ``part.onnx`` and ``part.npz``, which ``verify`` takes. Returns the files."""
        import onnx

        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"part.{suffix}" for suffix in ("tflite", "onnx", "npz")]
        files[0].write_bytes(self.tflite)
        onnx.save(self.onnx, files[1])
        np.savez(files[2], **self.inputs[0])  # type: ignore[arg-type]
        return files


Agrees = Callable[[bytes, "ModelProto", Mapping[str, Array]], bool]
"""Whether a part of both models agrees on one run's inputs."""


def smallest(
    trial: Trial, session: OnnxRuntime, divergence: Divergence, runs: Sequence[Run], agrees: Agrees
) -> Smallest | None:
    """Around the first tensor outside its tolerance: its operator alone, then with what comes before, until it disagrees.

    ``None`` where no part does, or none can be taken out of the ONNX model.
    """
    values = _values(session.tensor_values)
    original = preserving(trial)[0]
    kept: list[dict[int, Array]] = []
    for arrays in runs:
        original.run(arrays)
        kept.append(original.tensors())
    for operators in _growing(trial.entry.subgraph.operators, divergence.operator):
        inputs = _entering(operators)
        if any(tensor.index not in values or tensor.index not in kept[0] for tensor in inputs):
            continue
        names = [values[tensor.index].name for tensor in inputs]
        part = extracted(session.proto, names, [divergence.value])
        if part is None:
            continue
        indices = [tensor.index for tensor in inputs]
        data = cut_file(trial.data, trial.entry.subgraph, indices, [divergence.tensor.index])
        entry = structure.entry(structure.read(data))
        given = [{name: held[k] for name, k in zip(entry.input_names, indices, strict=True)} for held in kept]
        for chosen in given:
            try:
                if not agrees(data, part, chosen):
                    return Smallest(data, part, [chosen], operators)
            except ConversionError:  # it does not run by itself
                continue
    return None


def _values(found: Sequence[TensorValue]) -> dict[int, TensorValue]:
    """The value that stands for each tensor as the file stores it, the first where there are several."""
    chosen: dict[int, TensorValue] = {}
    for value in found:
        if value.form == "stored":
            chosen.setdefault(value.tensor, value)
    return chosen


def _growing(operators: Sequence[Operator], last: Operator) -> Iterator[tuple[Operator, ...]]:
    """The operator, then with those that compute its operands, and so on to the model's inputs."""
    made = {index: op for op in operators for index in [t.index for t in op.outputs if t is not None]}
    chosen = {last}
    while True:
        yield tuple(op for op in operators if op in chosen)
        before = {made[t.index] for op in chosen for t in operands(op) if t.index in made} - chosen
        if not before:
            return
        chosen |= before


def _entering(operators: Sequence[Operator]) -> list[Tensor]:
    """What the operators take and none of them computes."""
    made = {tensor.index for op in operators for tensor in op.outputs if tensor is not None}
    return list({t.index: t for op in operators for t in operands(op) if t.index not in made}.values())
