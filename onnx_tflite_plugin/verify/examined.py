"""Both models, their inputs and outputs paired, and the inputs of every run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from onnx_tflite_plugin.errors import InconclusiveError, InvalidModel, VerificationError
from onnx_tflite_plugin.graph.metadata import Part, TensorValue, forgets, props, read_origin, read_renames
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.authored import Described
from onnx_tflite_plugin.source.metadata import describe_interface
from onnx_tflite_plugin.source.model import Array, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.resolution import resolutions
from onnx_tflite_plugin.verify.comparison.tolerance import Tolerance
from onnx_tflite_plugin.verify.comparison.trial import Pairs, Run, Trial
from onnx_tflite_plugin.verify.inputs import drawn as drawing
from onnx_tflite_plugin.verify.inputs.sizes import InputSizes
from onnx_tflite_plugin.verify.inputs.user_data import Given
from onnx_tflite_plugin.verify.inputs.widths import NOISY, widths
from onnx_tflite_plugin.verify.operators.apart import NEAR, Apart, without_quantization
from onnx_tflite_plugin.verify.operators.diverging import Divergence, Search, stateful
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.gaps import find_gaps
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError, NoKernel
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime, OrtError
from onnx_tflite_plugin.verify.runtimes.part import cut_file
from onnx_tflite_plugin.verify.runtimes.processor import multiplies_exactly
from onnx_tflite_plugin.verify.verification import Verification

if TYPE_CHECKING:
    from onnx import ModelProto

Ran = TypeVar("Ran")

_WIDE = 64  # for open sizes where those of the file are too small to run, as those of images are that it stores as 1
_CONDITIONS = 3  # that are met in all combinations
_PRECISE = {"session.x64quantprecision": "1"}  # exact on x86 before VNNI, too


class _Neither(LiteRTError):
    """Neither runtime takes sizes that the file leaves open."""


class Examined:
    """The two models, their inputs and outputs paired, and the inputs of every run.

    ``session``: of the ONNX model, where there is one already.
    """

    def __init__(
        self,
        data: bytes,
        onnx: ModelProto | bytes | Path,
        signature: str | None,
        tolerance: Tolerance | float | None,
        progress: Progress,
        *,
        threads: int = 1,
        session: OnnxRuntime | None = None,
    ) -> None:
        self.onnx = onnx
        self.session = session or OnnxRuntime(onnx, threads=threads)
        model = structure.read(data)
        converted, part = self._origin()
        if signature is None and any(one.key == converted for one in model.signatures):
            signature = converted
        self.entry = structure.entry(model, signature)
        if part is not None:
            data = self._cut(data, part)
            model, signature = structure.read(data), None
            self.entry = structure.entry(model)
        self.entry = self.entry.renamed(read_renames(props(self.session.proto.metadata_props)))
        if tolerance is None:
            tolerance = Tolerance.of(model)
        if not isinstance(tolerance, Tolerance):
            tolerance = Tolerance(of_range=tolerance)
        floors = resolutions(self.session.proto, self.session.tensor_values, self.entry.subgraph.index)
        self.trial = Trial(data, model, self.entry, tolerance, signature, progress, floors)
        self.pairs = Pairs(self.entry, self.session)
        self.sizes = InputSizes(self.entry, self.pairs)
        self.stateful = stateful(model)
        self.fresh = self.stateful and forgets(props(self.session.proto.metadata_props))
        self.widths = widths(self.entry, tolerance)
        self.host: Host | None = None
        self.reasons: tuple[str, ...] = ()  # why a verdict is inconclusive
        self.least = 0  # of open sizes behind axis 0

    def fill(self, host: Host | Callable[[], Host]) -> tuple[str, ...]:
        """Assign each operator that LiteRT lacks to the kernel of its pack, or to the ONNX model; return the notes.

        What the ONNX model computes itself is not compared, which is added to ``reasons``. Raises InconclusiveError if
        nothing is left to compare.
        """
        self.host = host if isinstance(host, Host) else host()
        gaps, notes, reasons = find_gaps(
            self.trial.data, self.trial.model, self.entry, self.onnx, self.session, self.host
        )
        self.trial = replace(self.trial, gaps=gaps)
        if gaps.borrowed and {tensor.index for tensor in self.entry.outputs} <= gaps.tensors:
            raise InconclusiveError(f"{'; '.join(reasons)}, and nothing is left to compare")
        self.reasons += tuple(f"{reason}: not compared, the rest is" for reason in reasons)
        return notes

    @cached_property
    def search(self) -> Search:
        """Looks into the model, beyond its outputs."""
        return Search(self.trial, self.onnx, self.session, fresh=self.fresh)

    def _origin(self) -> tuple[str | None, Part | None]:
        """The signature and the part that the ONNX model was converted from. Raises VerificationError."""
        try:
            return read_origin(props(self.session.proto.metadata_props))
        except ValueError as error:
            raise VerificationError(str(error)) from error

    def _cut(self, data: bytes, part: Part) -> bytes:
        """The same part of the file. Raises VerificationError where it has no such tensors."""
        count = len(self.entry.subgraph.tensors)
        if not all(0 <= k < count for k in (*part.inputs, *part.outputs)):
            raise VerificationError(f"the ONNX model is a part of another file: this one has only {count} tensors")
        return cut_file(data, self.entry.subgraph, part.inputs, part.outputs)

    def described(self) -> Described:
        """What the metadata says of the inputs; nothing where the file cannot be read for it."""
        try:
            return describe_interface(read(self.trial.data))
        except InvalidModel:
            return {}

    def expected(
        self,
        inputs: Given,
        seed: int,
        runs: int,
        shapes: Mapping[str, Sequence[int]] | None,
        ranges: Mapping[str, tuple[float, float]],
    ) -> tuple[list[list[Array]], dict[str, list[list[Array]]]]:
        """Each run's inputs, and each kernel set's outputs."""

        def run(drawn: list[list[Array]]) -> dict[str, list[list[Array]]]:
            return self.trial.expected(drawn, fresh=self.fresh)

        return self.accepted(run, inputs, seed, self.enough(runs), shapes, ranges)

    def accepted(
        self,
        run: Callable[[list[list[Array]]], Ran],
        inputs: Given,
        seed: int,
        runs: int = 1,
        shapes: Mapping[str, Sequence[int]] | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> tuple[list[list[Array]], Ran]:
        """Each run's inputs, and what ``run`` makes of them; drawn inputs that it refuses by a LiteRTError are drawn anew."""
        asked = shapes or {}
        refusal: LiteRTError | None = None
        told = self.described() if isinstance(inputs, str | os.PathLike) else None
        for avoided, caution, self.least in ((0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 2, 0), (0, 0, _WIDE)):
            if avoided and (inputs is not None or not drawing.whole(self.entry)):
                continue
            if self.least and (inputs is not None or asked or self.sizes.fixed(self.least) == self.sizes.fixed(0)):
                break
            drawn = drawing.draw(
                self.sizes.as_converted() if inputs is not None else self.entry,
                given=inputs, shapes={**self.sizes.fixed(self.least), **asked}, seed=seed, runs=runs, caution=caution,
                avoided=avoided, ranges=ranges, described=told, widths=self.widths, meets=not self.trial.tolerance.unbiased,
            )  # fmt: skip
            if not self.stateful and _repeated(drawn):
                drawn = drawn[:1]
            try:
                return drawn, run(drawn)
            except NoKernel as error:
                inside = any(op.code == error.code for op in self.entry.subgraph.operators)
                called = "which stands in a subgraph that others call: there no kernel of a pack takes its place"
                reason = "so that there is nothing to compare with" if inside else called
                raise InconclusiveError(f"{error}, {reason}") from error
            except LiteRTError as error:
                refusal = refusal or error
        hint = "" if inputs is not None else "; where the drawn inputs are the reason, give some"
        raise LiteRTError(f"{refusal}{hint}") from refusal

    def enough(self, runs: int) -> int:
        """As many runs as are asked for, or as it takes to tell an offset from noise, or to meet conditions in all combinations."""
        if runs == 1:
            return runs
        noisy = len(NOISY) if self.trial.tolerance.unbiased and not self.stateful else 1
        return max(runs, noisy, 1 << min(len(drawing.conditions(self.entry)), _CONDITIONS))

    def extend(self, drawn: list[list[Array]], expected: dict[str, list[list[Array]]], seed: int) -> str:
        """Add a run in which each size that the ONNX model leaves open is another, and say which; empty where there is none.

        A batch that LiteRT does not take, or whose rows it joins, it is given row by row; other sizes it does not take are
        left out, and so are those that are open in the file and that neither runtime takes.
        """
        if self.stateful:
            return ""
        for others in (self.sizes.open(self.least, apart=True), self.sizes.open(self.least)):
            if others and (said := self._resized(others, drawn, expected, seed)):
                return said
        return ""

    def _resized(
        self,
        others: Mapping[str, tuple[int, ...]],
        drawn: list[list[Array]],
        expected: dict[str, list[list[Array]]],
        seed: int,
    ) -> str:
        """Add a run of these shapes, and say so; empty where LiteRT does not take them."""
        (more,) = drawing.draw(self.entry, shapes={**self.sizes.fixed(self.least), **others}, seed=seed)
        sizes = ", ".join(f"{name} {[*shape]}" for name, shape in others.items())
        try:
            outputs = {kernels: self._batch(kernels, more) for kernels in expected}
        except _Neither:
            return f"neither runtime takes other sizes: {sizes}"
        except LiteRTError:
            return ""
        drawn.append(more)
        for kernels, run in outputs.items():
            expected[kernels] = [*expected[kernels], run]
        return f"run {len(drawn)} had open sizes changed: {sizes}"

    def _batch(self, kernels: str, arrays: list[Array]) -> list[Array]:
        """A run of other sizes, whole or row by row. Raises LiteRTError where LiteRT takes neither."""
        try:
            (whole,) = self.trial.litert(kernels, [arrays])
        except LiteRTError as error:
            if not (rows := self.sizes.rows(arrays, None)):
                raise
            if self.sizes.open_in_file and not self._runs(arrays):
                raise _Neither(str(error)) from error
        else:
            if not (rows := self.sizes.rows(arrays, whole)):
                return whole
        return [np.concatenate(outputs) for outputs in zip(*self.trial.litert(kernels, rows), strict=True)]

    def _runs(self, arrays: list[Array]) -> bool:
        """Whether the ONNX model runs on these inputs."""
        try:
            self.trial.actual(self.session, [arrays])
        except OrtError:
            return False
        return True

    def operators_apart(self) -> Apart | None:
        """Compares operator by operator, where the ONNX model has floats for the TFLite model's quantized integers."""
        if not without_quantization(self.session.proto, self.pairs.values, self.entry):
            return None
        return Apart(self.trial, self.session)

    def judged_apart(
        self,
        operators: Apart,
        compared: Iterable[tuple[Comparison, TensorValue]],
        runs: int,
        whole: Callable[[], Mapping[str, Comparison]] = dict,
    ) -> Verification:
        """What comes of operators by themselves: every output, and the first tensor that is wrong; outputs that no operator by itself
        tells of as the ``whole`` model makes them, by name.
        """
        outputs: dict[str, Comparison] = {}
        diverging = None
        told: set[Tensor] = set()
        for comparison, value in compared:
            tensor = self.entry.subgraph.tensors[value.tensor]
            told.add(tensor)
            if tensor in self.entry.outputs and (value.name not in outputs or not comparison.ok):
                outputs[value.name] = replace(comparison, name=value.name)
            if not comparison.ok and diverging is None:
                diverging = Divergence(tensor, operators.producers[tensor.index], value.name, comparison)
        if not told.issuperset(self.entry.outputs):
            ends = zip(self.entry.outputs, self.entry.output_names, strict=True)
            names = {name for tensor, name in ends if tensor not in told}
            outputs |= {name: comparison for name, comparison in whole().items() if name in names}
        wrong = () if diverging is None else (diverging.comparison,)
        note = (
            "without quantization values diverge along a network, so each operator was compared on LiteRT's own inputs"
        )
        kernels = (operators.original.kernels,)
        return Verification((*outputs.values(), *wrong), kernels, runs, diverging=diverging, notes=(note,))

    def whole_apart(self, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]]) -> dict[str, Comparison]:
        """The outputs of the whole model by name, as near as operators by themselves must be."""
        trial = replace(self.trial, tolerance=NEAR)
        return {one.name: one for one in trial.compared(trial.actual(self.session, runs), expected)}

    def hints(self, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]]) -> tuple[str, ...]:
        """Whether it is the processor: x86 before VNNI saturates sums of uint8 x int8 products."""
        if multiplies_exactly():
            return ()
        try:
            actual = self.trial.actual(OnnxRuntime(self.onnx, config=_PRECISE), runs)
        except OrtError:
            return ()
        if not all(comparison.ok for comparison in self.trial.compared(actual, expected)):
            return ()
        reason = "this processor saturates its int8 products (with session.x64quantprecision=1 it passes)"
        return (f"{reason}: convert it with --weights-dtype auto or uint8",)


def _repeated(runs: Sequence[Run]) -> bool:
    """Whether every run has the same inputs, as when the user gave them all or there are none."""
    return all(np.array_equal(one, other) for arrays in runs[1:] for one, other in zip(arrays, runs[0], strict=True))
