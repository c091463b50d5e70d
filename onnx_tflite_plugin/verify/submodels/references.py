"""Alternative LiteRT results for submodels that do not match builtin kernels.

A submodel is right if it matches one of these results. If operators may take equal values in any order, one of the results
is computed from operands without equal values.

The result on perturbed operands is not a reference: it only shows how much LiteRT's result changes with the last bits of
the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.runtimes.dequantized import as_float
from onnx_tflite_plugin.verify.runtimes.float_kernels import FloatKernels, as_symmetric
from onnx_tflite_plugin.verify.submodels.operands import perturbed_operands, rounded_operands
from onnx_tflite_plugin.verify.submodels.points import Submodel
from onnx_tflite_plugin.verify.submodels.segment import Segment
from onnx_tflite_plugin.verify.submodels.ties import runner_without_ties, sorted_operands

FLOAT_WEIGHTS, ROUNDED, PERTURBED = "float weights", "rounded operands", "perturbed operands"


class OperandSet(NamedTuple):
    """Operands of one run of all submodels, and the results of builtin kernels.

    ``kind``: "observed", or a kind of random operands. ``inputs``: inputs of the whole model. ``operands`` and ``expected``:
    tensor index -> array.
    """

    kind: str
    inputs: Run
    operands: Mapping[int, Array]
    expected: Mapping[int, Array]


_RunFunction = Callable[[OperandSet], Mapping[int, Array]]


class References:
    """Alternative LiteRT results for the current operand set, computed on demand.

    They come from XNNPACK, from float weights (also on rounded operands), from operands without equal values, from
    perturbed operands, and from float kernels. ``dynamic_range``: the model has operators whose kernels quantize
    activations. ``symmetric``: the ONNX model has symmetric int8 weights and inputs, so float kernels get weights and
    inputs that are rounded to symmetric int8. ``stateful``: states depend on earlier operand sets, which are therefore kept.
    ``resets_states``: each set begins with the initial states.
    """

    def __init__(
        self, segment: Segment, *, dynamic_range: bool, symmetric: bool, stateful: bool, resets_states: bool
    ) -> None:
        self.segment, self.symmetric, self.stateful, self.resets_states = segment, symmetric, stateful, resets_states
        self._reordered_tensors = {f"distinct values of tensor {index}": index for index in sorted_operands(segment)}
        self.names = (
            "xnnpack",
            *((FLOAT_WEIGHTS, ROUNDED) if dynamic_range else ()),
            *self._reordered_tensors,
            PERTURBED,
        )
        self._sessions: dict[str, _RunFunction] = {}
        self._operand_sets: list[OperandSet] = []
        self._next_set_index: dict[str, int] = {}
        self._results: dict[str, Mapping[int, Array]] = {}

    def start_set(self, operand_set: OperandSet) -> None:
        """Continue with the next operand set, and drop the results of the previous one."""
        self._results = {}
        if not self.stateful:
            self._operand_sets.clear()
            self._next_set_index.clear()
        self._operand_sets.append(operand_set)

    def results(self) -> Iterator[tuple[str, Mapping[int, Array]]]:
        """Yield the name and the results of each reference for the current set.

        The results are empty if LiteRT does not run that reference.
        """
        for name in self.names:
            yield name, self._run_pending_sets(name, partial(self._open_session, name))

    def float_result(self, submodel: Submodel) -> Array | None:
        """Return the float kernels' result for the current set; None if they do not run."""
        name = f"float kernels of tensor {submodel.tensor.index}"
        results = self._run_pending_sets(name, partial(self._open_float_session, submodel))
        return results.get(submodel.tensor.index)

    def _run_pending_sets(self, name: str, open_session: Callable[[], _RunFunction]) -> Mapping[int, Array]:
        """Run a reference on its pending operand sets, and return the last results."""
        if name not in self._results:
            for operand_set in self._operand_sets[self._next_set_index.get(name, 0) :]:
                self._results[name] = self._run(name, open_session, operand_set)
            self._next_set_index[name] = len(self._operand_sets)
        return self._results[name]

    def _run(self, name: str, open_session: Callable[[], _RunFunction], operand_set: OperandSet) -> Mapping[int, Array]:
        try:
            if name not in self._sessions or self.resets_states:
                self._sessions[name] = open_session()
            return self._sessions[name](operand_set)
        except ConversionError:
            self._sessions.setdefault(name, lambda _: {})
            return {}

    def _open_float_session(self, submodel: Submodel) -> _RunFunction:
        """Return a function that runs float kernels on the operands of a submodel."""
        tensors = self.segment.points.entry.subgraph.tensors
        rounded_inputs = {*self.segment.inputs} if self.symmetric else set[int]()
        operands = [tensors[index] for index in submodel.leaves if index in self._operand_sets[-1].operands]
        session = FloatKernels(
            self.segment.writer, submodel.operators, operands, submodel.tensor, symmetric=self.symmetric
        )

        def run(operand_set: OperandSet) -> Mapping[int, Array]:
            arrays = [
                (as_symmetric if tensor.index in rounded_inputs else as_float)(
                    tensor, operand_set.operands[tensor.index]
                )
                for tensor in operands
            ]
            result = session.run(arrays)
            return {} if result is None else {submodel.tensor.index: result}

        return run

    def _open_session(self, name: str) -> _RunFunction:
        if name in self._reordered_tensors:
            run_without_ties = runner_without_ties(self.segment, self._reordered_tensors[name])
            return lambda operand_set: run_without_ties(operand_set.operands)
        kernels = "xnnpack" if name == "xnnpack" else "builtin"
        session = self.segment.litert(kernels, floats=name in (FLOAT_WEIGHTS, ROUNDED))
        points = self.segment.points
        tensors = [points.entry.subgraph.tensors[index] for index in (*session.inputs, *session.extra_inputs)]
        change_operands = {ROUNDED: rounded_operands, PERTURBED: perturbed_operands}.get(name)

        def run(operand_set: OperandSet) -> Mapping[int, Array]:
            return session.run(
                change_operands(tensors, operand_set.operands) if change_operands else operand_set.operands
            )

        return run
