"""Further answers of LiteRT for submodels that do not match its builtin kernels; one match is enough.

The answer on perturbed operands is no reference: it shows how far LiteRT's own result moves with the last bits of the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.submodels.operands import perturbed_operands, rounded_operands
from onnx_tflite_plugin.verify.submodels.segment import Segment

FLOAT_WEIGHTS, ROUNDED, PERTURBED = "float weights", "rounded operands", "perturbed operands"


class OperandSet(NamedTuple):
    """Operands of one run of all submodels, inputs of the model included, and LiteRT's builtin results, by tensor index."""

    kind: str
    inputs: Run
    operands: Mapping[int, Array]
    expected: Mapping[int, Array]


class References:
    """LiteRT's other answers for operand sets: XNNPACK, float weights, float weights on rounded operands, perturbed operands.

    ``dynamic_range``: the model has operators whose kernels quantize activations. ``stateful``: a set needs those before
    it, which are kept. ``fresh``: each set begins with the initial states.
    """

    def __init__(self, segment: Segment, *, dynamic_range: bool, stateful: bool, fresh: bool) -> None:
        self.segment, self.stateful, self.fresh = segment, stateful, fresh
        self.names = ("xnnpack", *((FLOAT_WEIGHTS, ROUNDED) if dynamic_range else ()), PERTURBED)
        self._sessions: dict[str, Callable[[OperandSet], Mapping[int, Array]]] = {}
        self._waiting: dict[str, list[OperandSet]] = {name: [] for name in self.names}
        self._answers: dict[str, Mapping[int, Array]] = {}

    def begin(self, one: OperandSet) -> None:
        """Go on to the next set; answers of the last one are dropped."""
        self._answers = {}
        for waiting in self._waiting.values():
            if not self.stateful:
                waiting.clear()
            waiting.append(one)

    def answers(self) -> Iterator[tuple[str, Mapping[int, Array]]]:
        """Yield the answers for the current set with their names; a reference that does not run gives none."""
        for name in self.names:
            if name not in self._answers:
                for one in self._waiting[name]:
                    self._answers[name] = self._run(name, one)
                self._waiting[name].clear()
            yield name, self._answers[name]

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
        session = self.segment.litert(kernels, floats=name in (FLOAT_WEIGHTS, ROUNDED))
        points = self.segment.points
        tensors = [points.entry.subgraph.tensors[index] for index in (*session.inputs, *session.given)]
        change = {ROUNDED: rounded_operands, PERTURBED: perturbed_operands}.get(name)

        def run(one: OperandSet) -> Mapping[int, Array]:
            return session.run(change(tensors, one.operands) if change else one.operands)

        return run
