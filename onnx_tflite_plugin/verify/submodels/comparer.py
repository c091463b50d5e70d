"""Comparison of all submodels of a conversion, one segment at a time."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from onnx_tflite_plugin.errors import ConversionError, InvalidModel
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import is_causal
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.tensors import is_dequantized
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT, LiteRTError
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.submodels.points import CutPoints
from onnx_tflite_plugin.verify.submodels.random_sets import random_sets
from onnx_tflite_plugin.verify.submodels.references import OperandSet
from onnx_tflite_plugin.verify.submodels.segment import Segment
from onnx_tflite_plugin.verify.submodels.segment_comparer import Decision, SegmentComparer, Settings

_SEGMENT_BYTES = 1 << 26
"""Bytes of a segment's tensors and weights; both runtimes and all operand sets need several times as much. BirdNET 2.4, whose
tensors take 160 MB, needs 1.5 GB and 11 s as one segment, but 0.9 GB and 6 s in segments of 64 MB.
"""
_MAX_RANDOM_BYTES = 1 << 29
"""Bytes of a segment's tensors beyond which it is not compared on random operands. Each kind of operands takes as long as a run."""
_MAX_SECONDS = 20
"""Seconds after which no further run is compared. Builtin 4-bit kernels take 45 s for a prompt of 128 tokens."""


class _Unreadable(ConversionError):
    """LiteRT cannot return a tensor at which the model was cut."""


class SubmodelComparer:
    """Compares all submodels of one conversion, one segment after the other.

    ``skipped``: tensors that are not compared. ``user_tolerance``: the tolerance that the user gave. ``stateful``: the TFLite
    model has states. ``resets_states``: LiteRT's states are reset before every run. Raises ConversionError if a cut model does
    not run.
    """

    def __init__(
        self,
        trial: Trial,
        session: OnnxRuntime,
        *,
        skipped: Collection[int] = (),
        user_tolerance: Tolerance | None = None,
        stateful: bool,
        resets_states: bool,
        time_limit: float | None = None,
    ) -> None:
        self.trial, self.session, self.skipped, self.time_limit = trial, session, skipped, time_limit
        dequantized = is_dequantized(trial.model, trial.entry, session)
        self.settings = Settings(
            trial, user_tolerance, dequantized=dequantized, stateful=stateful, resets_states=resets_states
        )
        self.writer = SubmodelWriter(trial.data, trial.entry.subgraph)
        self.decision = Decision()

    def compare_runs(self, runs: Sequence[Run]) -> Decision:
        """Compare every submodel with LiteRT's values as inputs, then with random inputs.

        ``runs``: the inputs of each run of the whole model.
        """
        points = CutPoints(self.trial.entry, self.session, skipped=self.skipped)
        if not (self.settings.stateful or self.session.states or self.settings.substituted):
            groups = points.segments(_SEGMENT_BYTES, self._shapes(runs))
            if len(groups) > 1:
                try:
                    segments = [Segment(points, self.writer, group, whole_model=False) for group in groups]
                    self._compare_segments(segments, runs)
                    return self._finish(points)
                except (_Unreadable, InvalidModel):  # the whole model runs instead
                    self.decision = Decision()
        return self._finish(self._compare_whole_model(points, runs))

    def _finish(self, points: CutPoints) -> Decision:
        """Set the number of compared operators, and return the decision."""
        self.decision.operators = len({op.index for submodel in points.submodels for op in submodel.operators})
        return self.decision

    def _shapes(self, runs: Sequence[Run]) -> Mapping[int, Sequence[int]]:
        """Return the shapes of LiteRT's tensors in the run with the largest inputs.

        Return an empty mapping if the shapes in the file are right.
        """
        entry = self.trial.entry
        largest = max(runs, key=lambda arrays: sum(array.size for array in arrays))
        has_file_shapes = all(array.shape == tensor.shape for array, tensor in zip(largest, entry.inputs, strict=True))
        if has_file_shapes and not any(None in tensor.dims for tensor in entry.subgraph.tensors):
            return {}
        session = self.trial.litert_session("builtin", time_limit=self.time_limit)
        assert isinstance(session, LiteRT), "no operator is substituted"
        return session.shapes(largest)

    # --- whole model, or one segment after the other ------------------------------------------------------------

    def _compare_whole_model(self, points: CutPoints, runs: Sequence[Run]) -> CutPoints:
        """Compare all submodels as one segment; states are carried from run to run.

        Return the cut points without tensors that LiteRT cannot return.
        """
        comparer = first_set = None
        for inputs, tensors in self._litert_tensors(runs):
            if comparer is None:
                if not all(points.is_readable(value, tensors) for value in points.values):
                    points = CutPoints(self.trial.entry, self.session, arrays=tensors, skipped=self.skipped)
                segment = Segment(
                    points, self.writer, points.submodels, whole_model=True, substituted=self.settings.substituted
                )
                comparer = SegmentComparer(self.settings, segment, self.decision)
            operand_set = comparer.compare_run(inputs, tensors)
            first_set = first_set or operand_set
        assert comparer is not None, "there is at least one run"
        self._compare_random(comparer, first_set)
        return points

    def _litert_tensors(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Mapping[int, Array]]]:
        """Yield the inputs and LiteRT's tensors of each run.

        Stop early if runs take long, or if LiteRT refuses a run after the first.
        """
        session = self.trial.litert_session("builtin", preserve=True, time_limit=self.time_limit)
        start = time.monotonic()
        for k, inputs in enumerate(runs):
            if k and self.settings.resets_states:
                session = self.trial.litert_session("builtin", preserve=True, time_limit=self.time_limit)
            self.trial.progress(f"LiteRT (builtin), all tensors, run {k + 1} of {len(runs)}")
            try:
                self.decision.outputs.append(session.run(inputs))
            except LiteRTError:
                if not k:
                    raise
                return
            yield inputs, session.tensors()
            if time.monotonic() - start > _MAX_SECONDS:
                break

    def _compare_segments(self, segments: list[Segment], runs: Sequence[Run]) -> None:
        """Compare one segment after the other.

        A run keeps only the tensors that later segments read. Raises _Unreadable if LiteRT cannot return a tensor that an
        ONNX value holds, or computes an operand after its reader.
        """
        outputs = {tensor.index for tensor in self.trial.entry.outputs}
        last_reader = {index: k for k, segment in enumerate(segments) for index in segment.operands}
        partial_runs = [_PartialRun(inputs) for inputs in distinct_runs(runs)]
        for k in range(len(segments)):
            segment = segments.pop(0)  # frees its sessions after use
            first_op, last_op = segment.operators[0], segment.operators[-1]
            self.trial.progress(f"operators {first_op.index} to {last_op.index} on the same inputs")
            partial_runs = self._compare_segment(segment, partial_runs)
            for run in partial_runs:
                run.drop(index for index in {*run.tensors} - outputs if last_reader.get(index, -1) <= k)
        if len(partial_runs) == len(runs) and all(outputs <= run.tensors.keys() for run in partial_runs):
            self.decision.outputs = [
                [run.tensors[tensor.index] for tensor in self.trial.entry.outputs] for run in partial_runs
            ]

    def _compare_segment(self, segment: Segment, partial_runs: Sequence[_PartialRun]) -> list[_PartialRun]:
        """Compare the submodels of one segment.

        Return the runs that LiteRT accepts, with the segment's results added.
        """
        if not all(run.tensors.keys() >= {*segment.earlier_operands} for run in partial_runs):
            raise _Unreadable("an operand is computed later")
        session = segment.sequential_litert(returns_inner_tensors=self.settings.dequantized)
        comparer = SegmentComparer(self.settings, segment, self.decision)
        first_set = None
        for k, run in enumerate(partial_runs):
            try:
                results = session.run({**segment.points.inputs_by_index(run.inputs), **run.tensors})
            except LiteRTError:
                if not k:
                    raise
                partial_runs = partial_runs[:k]
                break
            if not all(segment.points.is_readable(submodel.value, results) for submodel in segment.submodels):
                raise _Unreadable("a tensor has a different rank")
            run.tensors |= results
            operand_set = comparer.compare_run(run.inputs, run.tensors)
            first_set = first_set or operand_set
        self._compare_random(comparer, first_set)
        return [*partial_runs]

    def _compare_random(self, comparer: SegmentComparer, observed: OperandSet | None) -> None:
        """Compare submodels on random operands with the shapes of ``observed``.

        Submodels that read different tensors in the two models are skipped. Nothing is compared if operators are substituted, if
        masks were declared causal, or if the ONNX model has floats in place of quantized tensors, which do not saturate.
        """
        causal = is_causal(props(self.session.proto.metadata_props))
        submodels = [submodel for submodel in comparer.segment.submodels if submodel.is_comparable]
        if observed is None or not submodels or causal or self.settings.substituted or self.settings.dequantized:
            return
        arrays = (*observed.inputs, *observed.operands.values(), *observed.expected.values())
        if sum(array.nbytes for array in arrays) > _MAX_RANDOM_BYTES:
            return
        comparer.segment.cut.reset()
        results = sorted({submodel.tensor.index for submodel in submodels})
        for operand_set in random_sets(comparer.segment, observed, results, resets_states=self.settings.resets_states):
            # ONNX Runtime may refuse random operands, for example an index beyond the end
            with suppress(ConversionError):
                comparer.compare(operand_set, submodels)


@dataclass
class _PartialRun:
    """Inputs of a run, and index -> LiteRT's tensor that later segments read."""

    inputs: Run
    tensors: dict[int, Array] = field(default_factory=dict)

    def drop(self, indices: Iterable[int]) -> None:
        for index in [*indices]:
            del self.tensors[index]


def distinct_runs(runs: Sequence[Run]) -> list[Run]:
    """Return one run per combination of input shapes and boolean inputs.

    Long models are compared only on these runs, to save time.
    """
    by_key: dict[tuple[object, ...], Run] = {}
    for inputs in runs:
        key = tuple((array.shape, array.tobytes() if array.dtype == bool else b"") for array in inputs)
        by_key.setdefault(key, inputs)
    return [*by_key.values()]
