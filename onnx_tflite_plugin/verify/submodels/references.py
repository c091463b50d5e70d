"""Alternative LiteRT results for submodels that do not match builtin kernels.

A submodel is right if it matches one of these results. If operators may take equal values in any order, one of the results
is computed from operands without equal values.

The result on perturbed operands is no reference: it only shows how much LiteRT's result changes with the last bits of the
operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.submodels.operands import perturbed_operands, rounded_operands
from onnx_tflite_plugin.verify.submodels.segment import Segment
from onnx_tflite_plugin.verify.submodels.ties import session_without_ties, sorted_operands

FLOAT_WEIGHTS, ROUNDED, PERTURBED = "float weights", "rounded operands", "perturbed operands"


class OperandSet(NamedTuple):
    """Operands of one run of all submodels, and the results of builtin kernels.

    ``kind``: "observed", or a kind of random operands. ``inputs``: of the whole model. ``operands`` and ``expected``:
    arrays by tensor index.
    """

    kind: str
    inputs: Run
    operands: Mapping[int, Array]
    expected: Mapping[int, Array]


class References:
    """Alternative LiteRT results for the current operand set, computed on demand.

    They come from XNNPACK, from float weights (also on rounded operands), from operands without equal values, and from
    perturbed operands. ``dynamic_range``: the model has operators whose kernels quantize activations. ``stateful``:
    states depend on earlier operand sets, which are therefore kept. ``resets_states``: each set begins with the
    initial states.
    """

    def __init__(self, segment: Segment, *, dynamic_range: bool, stateful: bool, resets_states: bool) -> None:
        self.segment, self.stateful, self.resets_states = segment, stateful, resets_states
        self._reordered_tensors = {f"distinct values of tensor {index}": index for index in sorted_operands(segment)}
        self.names = (
            "xnnpack",
            *((FLOAT_WEIGHTS, ROUNDED) if dynamic_range else ()),
            *self._reordered_tensors,
            PERTURBED,
        )
        self._sessions: dict[str, Callable[[OperandSet], Mapping[int, Array]]] = {}
        self._pending_sets: dict[str, list[OperandSet]] = {name: [] for name in self.names}
        self._results: dict[str, Mapping[int, Array]] = {}

    def start_set(self, operand_set: OperandSet) -> None:
        """Continue with the next operand set, and drop the results of the last one."""
        self._results = {}
        for pending_sets in self._pending_sets.values():
            if not self.stateful:
                pending_sets.clear()
            pending_sets.append(operand_set)

    def results(self) -> Iterator[tuple[str, Mapping[int, Array]]]:
        """Yield the name and the results of each reference for the current set.

        The results are empty if LiteRT does not run that reference.
        """
        for name in self.names:
            if name not in self._results:
                for operand_set in self._pending_sets[name]:
                    self._results[name] = self._run(name, operand_set)
                self._pending_sets[name].clear()
            yield name, self._results[name]

    def _run(self, name: str, operand_set: OperandSet) -> Mapping[int, Array]:
        try:
            if name not in self._sessions or self.resets_states:
                self._sessions[name] = self._open_session(name)
            return self._sessions[name](operand_set)
        except ConversionError:
            self._sessions.setdefault(name, lambda _: {})
            return {}

    def _open_session(self, name: str) -> Callable[[OperandSet], Mapping[int, Array]]:
        if name in self._reordered_tensors:
            run_without_ties = session_without_ties(self.segment, self._reordered_tensors[name])
            return lambda operand_set: run_without_ties(operand_set.operands)
        kernels = "xnnpack" if name == "xnnpack" else "builtin"
        session = self.segment.litert(kernels, floats=name in (FLOAT_WEIGHTS, ROUNDED))
        points = self.segment.points
        tensors = [points.entry.subgraph.tensors[index] for index in (*session.inputs, *session.extra_inputs)]
        modify = {ROUNDED: rounded_operands, PERTURBED: perturbed_operands}.get(name)

        def run(operand_set: OperandSet) -> Mapping[int, Array]:
            return session.run(modify(tensors, operand_set.operands) if modify else operand_set.operands)

        return run
