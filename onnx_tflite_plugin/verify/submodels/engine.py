"""Comparison of all submodels on the same operands, in segments of the model: the decision of a verification."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from onnx_tflite_plugin.errors import ConversionError, InvalidModel
from onnx_tflite_plugin.graph.metadata import is_causal, props
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.tensors import is_dequantized
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT, LiteRTError
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.submodels.judge import Decision, Judge, Settings
from onnx_tflite_plugin.verify.submodels.points import CutPoints
from onnx_tflite_plugin.verify.submodels.random_sets import random_sets
from onnx_tflite_plugin.verify.submodels.references import OperandSet
from onnx_tflite_plugin.verify.submodels.segment import Segment

_BYTES = 1 << 26
"""Bytes of a segment's tensors and weights. Both runtimes, other answers and operands are several times as many; of BirdNET
2.4, whose tensors take 160 MB, a segment of all takes 1.5 GB and 11 s, segments of 64 MB 0.9 GB and 6 s.
"""
_MOST_RANDOM = 1 << 29
"""Bytes of a segment's tensors beyond which it gets no random operands: each kind of them takes as long as a run."""
_LONG = 20
"""Seconds after which no further run is observed: builtin kernels of 4 bits take 45 s for a prompt of 128 tokens."""


class _Unreadable(ConversionError):
    """LiteRT does not have a tensor at which the model was cut."""


class Engine:
    """Compares the submodels of one conversion. ``skipped``: tensors that are not compared. ``allowed``: the tolerance
    that a user gave. ``fresh``: LiteRT forgets its states every run. Raises ConversionError if either model does not run in this form.
    """

    def __init__(
        self,
        trial: Trial,
        session: OnnxRuntime,
        *,
        skipped: Collection[int] = (),
        allowed: Tolerance | None = None,
        stateful: bool,
        fresh: bool,
        time_limit: float | None = None,
    ) -> None:
        self.trial, self.session, self.skipped, self.time_limit = trial, session, skipped, time_limit
        dequantized = is_dequantized(trial.model, trial.entry, session)
        self.settings = Settings(trial, allowed, dequantized=dequantized, stateful=stateful, fresh=fresh)
        self.writer = SubmodelWriter(trial.data, trial.entry.subgraph)
        self.decision = Decision()

    def decide(self, runs: Sequence[Run]) -> Decision:
        """Compare every submodel on LiteRT's own operands in these runs, then on random ones."""
        points = CutPoints(self.trial.entry, self.session, skipped=self.skipped)
        if not (self.settings.stateful or self.session.states or self.settings.is_substituted):
            segments = points.segments(_BYTES, self._shapes(runs))
            if len(segments) > 1:
                try:
                    self._compare_segments([Segment(points, self.writer, one, whole=False) for one in segments], runs)
                    return self._count(points)
                except (_Unreadable, InvalidModel):
                    self.decision = Decision()
        return self._count(self._compare_whole(points, runs))

    def _count(self, points: CutPoints) -> Decision:
        self.decision.operators = len({op.index for one in points.submodels for op in one.operators})
        return self.decision

    def _shapes(self, runs: Sequence[Run]) -> Mapping[int, Sequence[int]]:
        """Return the shapes of LiteRT's tensors in the run with the largest inputs; none if those in the file hold."""
        entry = self.trial.entry
        largest = max(runs, key=lambda arrays: sum(array.size for array in arrays))
        stored = all(array.shape == tensor.shape for array, tensor in zip(largest, entry.inputs, strict=True))
        if stored and not any(None in tensor.dims for tensor in entry.subgraph.tensors):
            return {}
        session = self.trial.litert_session("builtin", time_limit=self.time_limit)
        assert isinstance(session, LiteRT), "nothing is substituted"
        return session.shapes(largest)

    # --- the whole model, or one segment after the other --------------------------------------------------------

    def _compare_whole(self, points: CutPoints, runs: Sequence[Run]) -> CutPoints:
        """Compare all submodels together, and return the points without unreadable tensors; states are carried from run to run."""
        judge = first = None
        for arrays, kept in self._observe_whole(runs):
            if judge is None:
                if not all(points.is_readable(value, kept) for value in points.values):
                    points = CutPoints(self.trial.entry, self.session, kept=kept, skipped=self.skipped)
                judge = Judge(self.settings, Segment(points, self.writer, points.submodels, whole=True), self.decision)
            one = judge.observe(arrays, kept)
            first = first or one
        assert judge is not None, "there is at least one run"
        self._compare_random(judge, first)
        return points

    def _observe_whole(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Mapping[int, Array]]]:
        """Yield each run's inputs and LiteRT's tensors; fewer runs if they take long, or if LiteRT refuses one after the first."""
        session = self.trial.litert_session("builtin", preserve=True, time_limit=self.time_limit)
        start = time.monotonic()
        for k, arrays in enumerate(runs):
            if k and self.settings.fresh:
                session = self.trial.litert_session("builtin", preserve=True, time_limit=self.time_limit)
            self.trial.progress(f"LiteRT (builtin), all tensors, run {k + 1} of {len(runs)}")
            try:
                self.decision.outputs.append(session.run(arrays))
            except LiteRTError:
                if not k:
                    raise
                return
            yield arrays, session.tensors()
            if time.monotonic() - start > _LONG:
                break

    def _compare_segments(self, segments: list[Segment], runs: Sequence[Run]) -> None:
        """Compare one segment after the other, and keep of each run the tensors that later ones read.

        Raises _Unreadable if LiteRT lacks a tensor that an ONNX value holds, or computes an operand later than its reader.
        """
        ends = {tensor.index for tensor in self.trial.entry.outputs}
        last = {index: k for k, segment in enumerate(segments) for index in segment.operands}
        observed = [_ObservedRun(arrays) for arrays in distinct_runs(runs)]
        for k in range(len(segments)):
            segment = segments.pop(0)  # its sessions are freed with it
            first, last_op = segment.operators[0], segment.operators[-1]
            self.trial.progress(f"operators {first.index} to {last_op.index} on the same operands")
            observed = self._compare_segment(segment, observed)
            for run in observed:
                run.drop(index for index in {*run.kept} - ends if last.get(index, -1) <= k)
        if len(observed) == len(runs) and all(ends <= run.kept.keys() for run in observed):
            outputs = self.trial.entry.outputs
            self.decision.outputs = [[run.kept[tensor.index] for tensor in outputs] for run in observed]

    def _compare_segment(self, segment: Segment, observed: Sequence[_ObservedRun]) -> list[_ObservedRun]:
        """Compare the submodels of one segment; return the runs that LiteRT accepts, with the results kept."""
        if not all(run.kept.keys() >= {*segment.entering} for run in observed):
            raise _Unreadable("an operand is computed later")
        session, judge = segment.successive(), Judge(self.settings, segment, self.decision)
        first = None
        for k, run in enumerate(observed):
            try:
                results = session.run({**segment.points.by_index(run.inputs), **run.kept})
            except LiteRTError:
                if not k:
                    raise
                observed = observed[:k]
                break
            if not all(segment.points.is_readable(one.value, results) for one in segment.submodels):
                raise _Unreadable("a tensor has another rank")
            run.kept |= results
            one = judge.observe(run.inputs, run.kept)
            first = first or one
        self._compare_random(judge, first)
        return [*observed]

    def _compare_random(self, judge: Judge, first: OperandSet | None) -> None:
        """Compare on random operands, of the shapes of ``first``, the submodels that read the same tensors in both models.

        Compares nothing if LiteRT lacks operators, if nothing saturates as in LiteRT, or if masks were declared causal.
        """
        causal = is_causal(props(self.session.proto.metadata_props))
        chosen = [one for one in judge.segment.submodels if one.is_comparable]
        if first is None or not chosen or causal or self.settings.is_substituted or self.settings.dequantized:
            return
        given = (*first.inputs, *first.operands.values(), *first.expected.values())
        if sum(array.nbytes for array in given) > _MOST_RANDOM:
            return
        judge.segment.cut.reset()
        results = sorted({one.tensor.index for one in chosen})
        for drawn in random_sets(judge.segment, first, results, fresh=self.settings.fresh):
            with suppress(ConversionError):  # ONNX Runtime refuses them, as an index beyond the end
                judge.compare(drawn, chosen)


@dataclass
class _ObservedRun:
    """Inputs of a run, and LiteRT's tensors that later segments read."""

    inputs: Run
    kept: dict[int, Array] = field(default_factory=dict)

    def drop(self, indices: Iterable[int]) -> None:
        for index in [*indices]:
            del self.kept[index]


def distinct_runs(runs: Sequence[Run]) -> list[Run]:
    """Return one run for each combination of input shapes and boolean inputs; for a long model, that is enough."""
    chosen: dict[tuple[object, ...], Run] = {}
    for arrays in runs:
        key = tuple((array.shape, array.tobytes() if array.dtype == bool else b"") for array in arrays)
        chosen.setdefault(key, arrays)
    return [*chosen.values()]
