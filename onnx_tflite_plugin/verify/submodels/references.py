"""Further answers of LiteRT for submodels that do not match its builtin kernels; one match is enough."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Array, Tensor
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.submodels.expand import Expanded
from onnx_tflite_plugin.verify.submodels.operands import rounded_operands

FLOAT_WEIGHTS = "float weights"


class OperandSet(NamedTuple):
    """Operands of one run of all submodels, and LiteRT's builtin results, by tensor index."""

    kind: str
    inputs: Run
    operands: Mapping[int, Array]
    expected: Mapping[int, Array]


class References:
    """LiteRT's other answers for operand sets: XNNPACK, float weights, and float weights on rounded operands.

    ``dynamic_range``: the model has operators whose kernels quantize activations. ``stateful``: a set needs those before
    it. ``fresh``: each set begins with the initial states.
    """

    def __init__(
        self,
        trial: Trial,
        cut: Collection[int],
        results: Sequence[int],
        *,
        dynamic_range: bool,
        stateful: bool,
        fresh: bool,
    ) -> None:
        self.trial, self.cut, self.results = trial, cut, results
        self.stateful, self.fresh = stateful, fresh
        self.tensors: list[Tensor] = [trial.entry.subgraph.tensors[index] for index in cut]
        self.names = ("xnnpack", *((FLOAT_WEIGHTS, "rounded operands") if dynamic_range else ()))
        self._answers: dict[tuple[str, int], Mapping[int, Array]] = {}
        self._sessions: dict[str, Callable[[OperandSet], Mapping[int, Array]]] = {}

    def of(self, sets: Sequence[OperandSet], k: int) -> Iterator[tuple[str, Mapping[int, Array]]]:
        """Yield the answers for set ``k`` with their names; a reference that does not run gives none."""
        for name in self.names:
            yield name, self._answer(name, sets, k)

    def _answer(self, name: str, sets: Sequence[OperandSet], k: int) -> Mapping[int, Array]:
        if (name, k) not in self._answers:
            before = [j for j in range(k) if (name, j) not in self._answers] if self.stateful else []
            for j in [*before, k]:
                self._answers[name, j] = self._run(name, sets[j])
        return self._answers[name, k]

    def _run(self, name: str, one: OperandSet) -> Mapping[int, Array]:
        try:
            if name not in self._sessions or self.fresh:
                self._sessions[name] = self._session(name)
            return self._sessions[name](one)
        except ConversionError:
            self._sessions.setdefault(name, lambda _: {})
            return {}

    def _session(self, name: str) -> Callable[[OperandSet], Mapping[int, Array]]:
        kernels = "xnnpack" if name == "xnnpack" else "builtin"
        session = Expanded(self.trial, self.cut, self.results, kernels, floats=name != "xnnpack")
        if name != "rounded operands":
            return lambda one: session.run(one.inputs, one.operands)
        inputs = self.trial.entry.inputs

        def run(one: OperandSet) -> Mapping[int, Array]:
            entered = {t.index: array for t, array in zip(inputs, one.inputs, strict=True)}
            rounded = rounded_operands([*inputs, *self.tensors], {**entered, **one.operands})
            return session.run([rounded[t.index] for t in inputs], rounded)

        return run
