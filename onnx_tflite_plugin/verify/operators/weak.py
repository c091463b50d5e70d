"""Outputs that say little: the softmax of a thousand classes has all of its numbers at 0 or 1 of 256 steps, whatever the network
before it makes. There the tensors before are compared too, and the last operator on inputs of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Quantization, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.operators.diverging import Search
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError
from onnx_tflite_plugin.verify.runtimes.ort import OrtError
from onnx_tflite_plugin.verify.runtimes.structure import entering

if TYPE_CHECKING:
    from onnx import ModelProto

SPAN = 16
"""Steps below which an output says little."""
_FAR = 2
"""Tolerances by which a tensor in between must be off on average: what a deep network's differ by stays below one."""
_OFTEN = 0.25
"""Steps that an output of few may be off on average: more than rounding is."""


class Verdict(Protocol):
    """What comes of a part of both models."""

    @property
    def comparisons(self) -> Sequence[Comparison]: ...


class Weak:
    """Looks behind the outputs of a trial that hardly move. ``alone`` verifies a part of both models on inputs of its own."""

    def __init__(self, search: Search, alone: Callable[[bytes, ModelProto], Verdict]) -> None:
        self.search, self.alone = search, alone

    def examine(
        self, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]], comparisons: Sequence[Comparison]
    ) -> tuple[list[Comparison], list[str]]:
        """Comparisons that fail though those of the outputs do not, and a line on each output that says little."""
        outputs = list(self._outputs(expected))
        if not outputs:
            return [], []
        wrong = [_judged(comparisons[k]) for k, _, _ in outputs if comparisons[k].mean > _often(comparisons[k])]
        wrong += self._before(runs[:1])
        for _, tensor, _ in outputs:
            wrong += self._last(tensor)
        notes = [f"{tensor.name!r} spans {steps} of 256 steps on these inputs" for _, tensor, steps in outputs]
        return wrong, [f"{note}: tensors before it were compared too" for note in notes]

    def _outputs(self, expected: Mapping[str, Sequence[Run]]) -> Iterator[tuple[int, Tensor, int]]:
        """Quantized 8-bit outputs of more than one element, by position, with the steps they span."""
        for k, tensor in enumerate(self.search.trial.entry.outputs):
            if tensor.dtype not in ("int8", "uint8") or not isinstance(tensor.quantization, Quantization):
                continue
            arrays = [run[k] for runs in expected.values() for run in runs if run[k].size]
            if not arrays or max(array.size for array in arrays) < 2:
                continue
            steps = int(max(array.max() for array in arrays)) - int(min(array.min() for array in arrays)) + 1
            if steps < SPAN:
                yield k, tensor, steps

    def _before(self, runs: Sequence[Run]) -> list[Comparison]:
        """The first tensor in between that is far off, unless what makes it is right by itself.

        Then it made much of small differences, as a reciprocal root of a variance of a few steps does; kernel sets that are not
        asked for tensors in between may differ there as much.
        """
        try:
            for comparison, value in self.search.comparisons(runs):
                if not (comparison.problem or comparison.mean > _FAR * comparison.band):
                    continue
                tensor = self.search.trial.entry.subgraph.tensors[value.tensor]
                alone = None if comparison.problem else self._alone(tensor, value.name)
                if alone is not None and all(other.ok for other in alone):
                    return []
                off = f"off by {comparison.in_unit(comparison.mean)} on average"
                return [replace(comparison, problem=comparison.problem or off)]
        except (LiteRTError, OrtError):
            return []
        return []

    def _last(self, tensor: Tensor) -> list[Comparison]:
        """The operator that makes an output, on inputs that make it move."""
        code = self.search.producers[tensor.index].code if tensor.index in self.search.producers else ""
        alone = self._alone(tensor, self.search.stored(tensor)) or ()
        return [replace(other, name=f"{tensor.name} of {code} alone") for other in alone if not other.ok]

    def _alone(self, tensor: Tensor, value: str) -> Sequence[Comparison] | None:
        """What comes of the operator that makes a tensor, on inputs of its own; ``None`` where it cannot be tried."""
        operator = self.search.producers.get(tensor.index)
        inputs = entering([operator]) if operator is not None else []
        part = self.search.part(inputs, tensor, value) if inputs else None
        if part is None:
            return None
        try:
            return self.alone(*part).comparisons
        except ConversionError:  # it does not run by itself
            return None


def _often(comparison: Comparison) -> float:
    return max(_OFTEN, 2 * comparison.mean_spread)


def _judged(comparison: Comparison) -> Comparison:
    return replace(comparison, problem=f"off by {comparison.mean:.2g} LSB on average, in an output that spans few")
