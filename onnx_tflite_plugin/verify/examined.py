"""Both models, their inputs and outputs paired, and the inputs of every run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from onnx_tflite_plugin.errors import InconclusiveError, InvalidModel, VerificationError
from onnx_tflite_plugin.graph.decoder import NEXT
from onnx_tflite_plugin.graph.int8_faults import describe_int8_fault
from onnx_tflite_plugin.graph.metadata import (
    Part,
    forgets,
    props,
    read_lengths,
    read_origin,
    read_renames,
    replace_places,
)
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.joining import Places
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.authored import Described
from onnx_tflite_plugin.source.metadata import describe_interface
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.rounding import rounds
from onnx_tflite_plugin.verify.comparison.tensors import HeldTensors
from onnx_tflite_plugin.verify.comparison.trial import Pairs, Run, Trial, patience_after
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.inputs import drawn as drawing
from onnx_tflite_plugin.verify.inputs.part_sizes import shapes_in_whole
from onnx_tflite_plugin.verify.inputs.sizes import InputSizes
from onnx_tflite_plugin.verify.inputs.user_data import Given
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.child import record_crashes
from onnx_tflite_plugin.verify.runtimes.gaps import find_gaps
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError, NoKernel
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime, OrtError
from onnx_tflite_plugin.verify.runtimes.packages import optional
from onnx_tflite_plugin.verify.runtimes.part import cut_file
from onnx_tflite_plugin.verify.runtimes.processor import multiplies_exactly
from onnx_tflite_plugin.verify.runtimes.structure import is_dynamic_range

if TYPE_CHECKING:
    from onnx import ModelProto

Ran = TypeVar("Ran")

_WIDE = 64  # for dynamic sizes where those of the file are too small to run, as those of images are that it stores as 1
_LONG = 2048  # for sounds, of which a model takes at least a window of some 500 samples
_MOST = 2**23  # elements of such an input: two dynamic sizes, not three
_CONDITIONS = 3  # that are met in all combinations
_MOST_BYTES = 1 << 29  # of all tensors, which both runtimes keep
_MOST_VALUES = 10_000  # ONNX Runtime takes quadratic time over the outputs of a model: 0.12 s for 3,000
_PRECISE = {"session.x64quantprecision": "1"}  # exact on x86 before VNNI, too


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
        self.single = not read_lengths(props(self.session.proto.metadata_props))
        model = structure.read(data)
        converted, part = self._origin()
        if signature is None and any(one.key == converted for one in model.signatures):
            signature = converted
        self.entry = structure.entry(model, signature)
        known: Mapping[int, tuple[int, ...]] = {}
        if part is not None:
            known = shapes_in_whole(data, model, self.entry, part.inputs, signature)
            data = self._cut(data, part)
            model, signature = structure.read(data), None
            self.entry = structure.entry(model)
        self.entry = self.entry.rename(read_renames(props(self.session.proto.metadata_props)))
        if tolerance is None:
            tolerance = Tolerance.of(model)
        if not isinstance(tolerance, Tolerance):
            tolerance = Tolerance(of_range=tolerance)
        self.trial = Trial(data, model, self.entry, tolerance, signature, progress)
        self.pairs = Pairs(self.entry, self.session)
        self.sizes = InputSizes(self.entry, self.pairs, known)
        self.stateful = structure.is_stateful(model)
        self.fresh = self.stateful and forgets(props(self.session.proto.metadata_props))
        self.host: Host | None = None
        self.batch: tuple[list[Array], list[list[Array]]] | None = None  # a run that LiteRT does not take, and its rows
        self.reasons: tuple[str, ...] = ()  # why a verdict is inconclusive
        self.least = 0  # of dynamic sizes behind axis 0
        self.seconds = 0.0  # of a run in LiteRT

    def other(
        self, signature: str, tolerance: Tolerance | float | None, progress: Progress, equal: Places | None
    ) -> Examined:
        """Return the same model with another signature that it is of: without the outputs that this does not have.

        ``equal``: what it has of the signature; None for the one whose tensors its values are named after.
        """
        names = structure.entry(structure.read(self.trial.data), signature)
        names = names.rename(read_renames(props(self.session.proto.metadata_props)))
        proto = type(self.session.proto)()
        proto.CopyFrom(self.session.proto)
        del proto.graph.output[:]
        proto.graph.output.extend(
            one for one in self.session.proto.graph.output if one.name.removesuffix(NEXT) in names.output_names
        )
        if equal is not None:
            rename_places(proto, equal)
        session = OnnxRuntime(proto, folder=self.session.folder)
        return Examined(self.trial.data, proto, signature, tolerance, progress, session=session)

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
    def tensors(self) -> HeldTensors:
        """Return the tensors that values of the ONNX model hold."""
        return HeldTensors(self.trial, self.session, fresh=self.fresh)

    def _origin(self) -> tuple[str | None, Part | None]:
        """Return the signature and the part that the ONNX model was converted from. Raises VerificationError."""
        try:
            return read_origin(props(self.session.proto.metadata_props))
        except ValueError as error:
            raise VerificationError(str(error)) from error

    def _cut(self, data: bytes, part: Part) -> bytes:
        """Return the same part of the file. Raises VerificationError if the file has no such tensors."""
        count = len(self.entry.subgraph.tensors)
        if not all(0 <= k < count for k in (*part.inputs, *part.outputs)):
            raise VerificationError(f"the ONNX model is a part of another file: this one has only {count} tensors")
        return cut_file(data, self.entry.subgraph, part.inputs, part.outputs)

    def input_metadata(self) -> Described:
        """Return the metadata of the inputs; nothing if the file's metadata cannot be read."""
        try:
            return describe_interface(read(self.trial.data))
        except InvalidModel:
            return {}

    def reference_outputs(
        self,
        inputs: Given,
        seed: int,
        runs: int,
        shapes: Mapping[str, Sequence[int]] | None,
        ranges: Mapping[str, tuple[float, float]],
    ) -> tuple[list[list[Array]], dict[str, list[Run]]]:
        """Return each run's inputs, and the outputs of the first kernel set that runs."""

        def run(drawn: list[list[Array]]) -> dict[str, list[Run]]:
            start = time.perf_counter()
            expected = self.trial.reference_outputs(drawn, fresh=self.fresh, first=True)
            self.seconds = (time.perf_counter() - start) / len(drawn)
            return expected

        return self.draw_accepted_inputs(run, inputs, seed, self.enough(runs), shapes, ranges)

    def draw_accepted_inputs(
        self,
        run: Callable[[list[list[Array]]], Ran],
        inputs: Given,
        seed: int,
        runs: int = 1,
        shapes: Mapping[str, Sequence[int]] | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> tuple[list[list[Array]], Ran]:
        """Return each run's inputs and the result of ``run`` on them. If it raises LiteRTError, random inputs are drawn again."""
        asked = shapes or {}
        refusal: LiteRTError | None = None
        told = self.input_metadata() if isinstance(inputs, str | os.PathLike) else None
        for avoided, caution, self.least in (
            (0, 0, 0),
            (1, 0, 0),
            (2, 0, 0),
            (0, 1, 0),
            (0, 2, 0),
            (0, 0, _WIDE),
            (0, 0, 1),
            (0, 0, _LONG),
        ):
            if avoided and (inputs is not None or not drawing.whole(self.entry)):
                continue
            if self.least and (
                inputs is not None or asked or self.sizes.onnx_shapes(self.least) == self.sizes.onnx_shapes(0)
            ):
                continue
            if self.least == _LONG and max(map(prod, self.sizes.onnx_shapes(_LONG).values())) > _MOST:
                continue
            drawn = drawing.draw(
                self.sizes.as_converted() if inputs is not None else self.entry,
                given=inputs, shapes={**self.sizes.onnx_shapes(self.least), **asked}, seed=seed, runs=runs, caution=caution,
                avoided=avoided, ranges=ranges, described=told,
            )  # fmt: skip
            if not self.stateful and _are_equal_runs(drawn):
                drawn = drawn[:1]
            try:
                with record_crashes():
                    return drawn, run(drawn)
            except NoKernel as error:
                inside = any(op.code == error.code for op in self.entry.subgraph.operators)
                called = "which stands in a subgraph that others call: there no kernel of a pack takes its place"
                reason = "so that there is nothing to compare with" if inside else called
                raise InconclusiveError(f"{error}, {reason}") from error
            except LiteRTError as error:
                refusal = refusal or error
        if not asked and (mismatch := self.sizes.mismatch()):
            raise VerificationError(
                f"{mismatch}, with which LiteRT does not run: is that the conversion of another model? ({refusal})"
            ) from refusal
        hint = "" if inputs is not None else "; where the random inputs are the reason, give some"
        raise LiteRTError(f"{refusal}{hint}") from refusal

    def enough(self, runs: int) -> int:
        """Return the number of runs: as many as requested, or as it takes to meet conditions in all combinations."""
        return runs if runs == 1 else max(runs, 1 << min(len(drawing.conditions(self.entry)), _CONDITIONS))

    def extend(self, drawn: list[list[Array]], expected: dict[str, list[Run]], seed: int) -> str:
        """Add a run in which each size that the ONNX model leaves open is another, and say which; empty where there is none.

        A batch that LiteRT does not take, or whose rows it joins, is compared with the ONNX model's own rows (``batch``); other
        sizes that LiteRT does not take are left out, and so are those that the file leaves open and neither runtime takes.
        """
        if self.stateful or not self.single:
            return ""
        for others in (self.sizes.open(self.least, apart=True), self.sizes.open(self.least)):
            if others and (said := self._add_resized_run(others, drawn, expected, seed)):
                return said
        return ""

    def _add_resized_run(
        self,
        others: Mapping[str, tuple[int, ...]],
        drawn: list[list[Array]],
        expected: dict[str, list[Run]],
        seed: int,
    ) -> str:
        """Add a run of these shapes, and say so; empty where LiteRT does not take them."""
        (more,) = drawing.draw(self.entry, shapes={**self.sizes.onnx_shapes(self.least), **others}, seed=seed)
        sizes = ", ".join(f"{name} {[*shape]}" for name, shape in others.items())
        note = f"had dynamic sizes changed: {sizes}"
        patience = patience_after(self.seconds)
        try:  # XNNPACK does not check all sizes; builtin kernels do
            outputs = {
                kernels: self.trial.litert(kernels, [more], patience=patience)[0]
                for kernels in {**expected, "builtin": ()}
            }
            rows = self.sizes.rows(more, next(iter(outputs.values())))
        except LiteRTError:
            rows = self.sizes.rows(more, None)
            if not rows:
                return ""
            if self.sizes.open_in_file and not self._runs(more):
                return f"neither runtime takes other sizes: {sizes}"
        if rows:
            self.batch = (more, rows)
            return f"one more run {note}; LiteRT takes no such batch, so that it was compared with its own rows"
        drawn.append(more)
        for kernels in expected:
            expected[kernels] = [*expected[kernels], outputs[kernels]]
        return f"run {len(drawn)} {note}"

    def compare_batch(self) -> tuple[Comparison, ...]:
        """Compare the outputs of a batch with those of its rows, both by the ONNX model; empty where LiteRT takes it."""
        if self.batch is None:
            return ()
        more, rows = self.batch
        joined = [np.concatenate(outputs) for outputs in zip(*self.trial.actual(self.session, rows), strict=True)]
        return self.trial.compare_outputs(self.trial.actual(self.session, [more]), {"rows": [joined]})

    def _runs(self, arrays: list[Array]) -> bool:
        """True if the ONNX model runs on these inputs."""
        try:
            self.trial.actual(self.session, [arrays])
        except OrtError:
            return False
        return True

    @cached_property
    def reason_without_submodels(self) -> str:
        """Return why submodels are not compared; empty if they are."""
        tensors = self.entry.subgraph.tensors
        size = sum(4 * prod(tensor.shape) for tensor in tensors if not tensor.is_constant)
        count = sum(map(len, self.tensors.values.values()))
        if not count and not self.single:
            return "values of the ONNX model are named after the tensors of another signature"
        if not count:
            return "the ONNX model does not say which tensors its values hold"
        if size <= _MOST_BYTES and count <= _MOST_VALUES:
            return ""
        many = f"they make {count} tensors" if count > _MOST_VALUES else f"they make {size >> 20} MiB"
        return f"{many}"

    @property
    def rounds(self) -> bool:
        """True if operators of the file round to quantized numbers, so that small errors grow along the network."""
        operators = (op for graph in self.trial.model.subgraphs for op in graph.operators)
        return any(rounds(op) or is_dynamic_range(op) for op in operators)

    def differs_by_fusion(
        self, outputs: Sequence[Comparison], runs: Sequence[Run], expected: Mapping[str, Sequence[Run]]
    ) -> bool:
        """True if numbers that fail agree without ONNX Runtime's graph optimizations, which submodels do not show."""
        if not any(not one.ok and one.unit != "value" for one in outputs):
            return False
        try:
            plain = self.trial.actual(OnnxRuntime(self.onnx, optimizes=False, folder=self.session.folder), runs)
        except OrtError:
            return False
        return all(one.ok for one in self.trial.compare_outputs(plain, expected))

    def hints(self, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]]) -> tuple[str, ...]:
        """Return a hint if the processor is the cause: a fault of ONNX Runtime on it, or 16-bit sums of 8-bit products."""
        if fault := describe_int8_fault(optional("onnxruntime")):
            return (fault,)
        if multiplies_exactly():
            return ()
        try:
            actual = self.trial.actual(OnnxRuntime(self.onnx, config=_PRECISE, folder=self.session.folder), runs)
        except OrtError:
            return ()
        if not all(comparison.ok for comparison in self.trial.compare_outputs(actual, expected)):
            return ()
        reason = "this processor saturates its int8 products (with session.x64quantprecision=1 it passes)"
        return (f"{reason}: convert it with --weights-dtype auto or uint8",)


def _are_equal_runs(runs: Sequence[Run]) -> bool:
    """True if every run has the same inputs, as when the user gave them all or there are none."""
    return all(np.array_equal(one, other) for arrays in runs[1:] for one, other in zip(arrays, runs[0], strict=True))


def rename_places(proto: ModelProto, equal: Places) -> None:
    """Name the tensors and operators of another signature in the metadata of nodes and values."""
    graph = proto.graph
    for one in (*graph.node, *graph.input, *graph.value_info, *graph.output):
        given = props(one.metadata_props)
        replace_places(given, equal.tensors, equal.operators)
        for entry in one.metadata_props:
            entry.value = given[entry.key]
