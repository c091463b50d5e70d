"""A TFLite model and its ONNX model, with matched inputs and outputs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from onnx_tflite_plugin.errors import (
    ConversionError,
    InconclusiveError,
    InvalidModel,
    MismatchedModels,
    VerificationError,
)
from onnx_tflite_plugin.graph.decoder import NEXT
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import (
    Part,
    has_reset_states,
    read_digest,
    read_lengths,
    read_origin,
    read_renames,
)
from onnx_tflite_plugin.graph.node_metadata import replace_locations
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.joining import SharedItems
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.authored import InterfaceMetadata
from onnx_tflite_plugin.source.metadata import describe_interface
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.rounding import is_requantizing
from onnx_tflite_plugin.verify.comparison.tensors import values_by_tensor
from onnx_tflite_plugin.verify.comparison.trial import MatchedInterface, Run, Trial, time_limit_after
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.inputs import random_inputs
from onnx_tflite_plugin.verify.inputs.attempts import attempts
from onnx_tflite_plugin.verify.inputs.sizes import InputSizes
from onnx_tflite_plugin.verify.inputs.submodel_sizes import shapes_in_whole_model
from onnx_tflite_plugin.verify.inputs.user_data import InputData
from onnx_tflite_plugin.verify.origin import check_signature, mismatch_without_digest, name_onnx
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.child import record_crashes
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.runtimes.interpreter import RunTimeout
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError, NoKernel, refuses_dtype
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime, OrtError
from onnx_tflite_plugin.verify.runtimes.structure import is_dynamic_range
from onnx_tflite_plugin.verify.runtimes.substitutes import find_substitutes
from onnx_tflite_plugin.verify.verification import OTHER_SIZES

if TYPE_CHECKING:
    from onnx import ModelProto

Outcome = TypeVar("Outcome")

_MAX_CONDITIONS = 3  # all combinations of up to this many boolean inputs run


class ModelPair:
    """A TFLite model and its ONNX model, with matched inputs and outputs.

    The pair also creates the inputs of every run. ``session``: an existing session of the ONNX model. Raises
    MismatchedModels if the models do not match.
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
        self.has_digest = bool(read_digest(props(self.session.proto.metadata_props)))
        self.has_single_signature = not read_lengths(props(self.session.proto.metadata_props))
        model = structure.read(data)
        converted_signature, submodel = self._origin()
        converted_keys = [*read_lengths(props(self.session.proto.metadata_props))]
        if not converted_keys and converted_signature is not None:
            converted_keys = [converted_signature]
        check_signature(model, signature, converted_keys, name_onnx(onnx))
        if signature is None and any(item.key == converted_signature for item in model.signatures):
            signature = converted_signature
        self.entry = structure.entry(model, signature)
        submodel_shapes: Mapping[int, tuple[int, ...]] = {}
        if submodel is not None:
            submodel_shapes = shapes_in_whole_model(data, model, self.entry, submodel.inputs, signature)
            data = self._cut(data, submodel)
            model, signature = structure.read(data), None
            self.entry = structure.entry(model)
        self.entry = self.entry.rename(read_renames(props(self.session.proto.metadata_props)))
        if tolerance is None:
            tolerance = Tolerance.of(model)
        if not isinstance(tolerance, Tolerance):
            tolerance = Tolerance(of_range=tolerance)
        self.trial = Trial(data, model, self.entry, tolerance, signature, progress)
        self.interface = MatchedInterface(self.entry, self.session)
        self.sizes = InputSizes(self.entry, self.interface, submodel_shapes)
        self.stateful = structure.is_stateful(model)
        self.resets_states = self.stateful and has_reset_states(props(self.session.proto.metadata_props))
        self.host: Host | None = None
        # a batch that LiteRT refuses, and each of its elements as a batch of 1
        self.batch: tuple[list[Array], list[list[Array]]] | None = None
        self.reasons: tuple[str, ...] = ()  # why a verdict is inconclusive
        self.notes: tuple[str, ...] = ()  # about inputs that were tried
        self.min_dynamic_size = 0  # minimum of dynamic sizes, except for axis 0
        self.seconds = 0.0  # per run in LiteRT

    def for_signature(
        self, signature: str, tolerance: Tolerance | float | None, progress: Progress, shared: SharedItems | None
    ) -> ModelPair:
        """Return the pair for another signature of a joined model.

        Outputs that the signature does not have are left out. ``shared``: tensors and operators that the model shares
        with the signature; None if the model's values are already named after this signature.
        """
        entry = structure.entry(structure.read(self.trial.data), signature)
        entry = entry.rename(read_renames(props(self.session.proto.metadata_props)))
        proto = type(self.session.proto)()
        proto.CopyFrom(self.session.proto)
        del proto.graph.output[:]
        proto.graph.output.extend(
            info for info in self.session.proto.graph.output if info.name.removesuffix(NEXT) in entry.output_names
        )
        if shared is not None:
            replace_shared_locations(proto, shared)
        session = OnnxRuntime(proto, folder=self.session.folder)
        return ModelPair(self.trial.data, proto, signature, tolerance, progress, session=session)

    def assign_substitutes(self, host: Host | Callable[[], Host]) -> tuple[str, ...]:
        """Assign each operator that LiteRT lacks to a pack's kernel or the ONNX model.

        Return notes for the user. Operators assigned to the ONNX model are not compared; ``reasons`` then says so.
        Raises InconclusiveError if no operator remains to compare.
        """
        self.host = host if isinstance(host, Host) else host()
        substitutes, notes, reasons = find_substitutes(
            self.trial.data, self.trial.model, self.entry, self.onnx, self.session, self.host
        )
        self.trial = replace(self.trial, substitutes=substitutes)
        if substitutes.from_onnx and {tensor.index for tensor in self.entry.outputs} <= substitutes.tensors:
            raise InconclusiveError(f"{'; '.join(reasons)}, and no operator remains to compare")
        self.reasons += tuple(f"{reason}: these operators were not compared" for reason in reasons)
        return notes

    def _origin(self) -> tuple[str | None, Part | None]:
        """Return the signature and the submodel that the ONNX model was converted from.

        Raises VerificationError if the metadata is invalid.
        """
        try:
            return read_origin(props(self.session.proto.metadata_props))
        except ValueError as error:
            raise VerificationError(str(error)) from error

    def _cut(self, data: bytes, submodel: Part) -> bytes:
        """Return the part of the TFLite file that the ONNX model was converted from.

        Raises MismatchedModels if the file lacks a tensor of the submodel.
        """
        count = len(self.entry.subgraph.tensors)
        if not all(0 <= k < count for k in (*submodel.inputs, *submodel.outputs)):
            raise MismatchedModels(f"the ONNX model is a submodel of another file: this file has only {count} tensors")
        return cut_file(data, self.entry.subgraph, submodel.inputs, submodel.outputs)

    def input_metadata(self) -> InterfaceMetadata:
        """Return the metadata of the inputs; empty if the file's metadata cannot be read."""
        try:
            return describe_interface(read(self.trial.data))
        except InvalidModel:
            return {}

    def reference_outputs(
        self,
        inputs: InputData,
        seed: int,
        runs: int,
        shapes: Mapping[str, Sequence[int]] | None,
        ranges: Mapping[str, tuple[float, float]],
    ) -> tuple[list[list[Array]], dict[str, list[Run]]]:
        """Return the inputs and the expected outputs of each run.

        The mapping of outputs has one key: the first kernel set that runs.
        """

        def run_litert(input_runs: list[list[Array]]) -> dict[str, list[Run]]:
            start = time.perf_counter()
            expected = self.trial.reference_outputs(input_runs, resets_states=self.resets_states, first_only=True)
            self.seconds = (time.perf_counter() - start) / len(input_runs)
            return expected

        return self.draw_accepted_inputs(run_litert, inputs, seed, self.run_count(runs), shapes, ranges)

    def draw_accepted_inputs(
        self,
        run_model: Callable[[list[list[Array]]], Outcome],
        inputs: InputData,
        seed: int,
        runs: int = 1,
        shapes: Mapping[str, Sequence[int]] | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> tuple[list[list[Array]], Outcome]:
        """Return the inputs of each run, and the result of ``run_model`` on them.

        If ``run_model`` raises LiteRTError, other random inputs are tried. Raises InconclusiveError if LiteRT cannot run the
        file or accepts no random inputs, LiteRTError if it rejects the user's inputs or shapes, and MismatchedModels if the
        ONNX model belongs to another file.
        """
        requested_shapes = shapes or {}
        refusal: LiteRTError | None = None
        metadata = self.input_metadata() if isinstance(inputs, str | os.PathLike) else None
        for attempt in attempts(self.sizes, has_data=inputs is not None, has_shapes=bool(requested_shapes)):
            self.min_dynamic_size = attempt.min_dynamic_size
            input_runs = random_inputs.generate_inputs(
                self.sizes.as_converted() if inputs is not None else self.entry,
                user_inputs=inputs, shapes={**self.sizes.onnx_shapes(self.min_dynamic_size), **requested_shapes}, seed=seed,
                runs=runs, restriction=attempt.restriction, ranges=ranges, metadata=metadata,
            )  # fmt: skip
            if not self.stateful and _are_equal_runs(input_runs):
                input_runs = input_runs[:1]
            try:
                with record_crashes():
                    return input_runs, run_model(input_runs)
            except NoKernel as error:
                reason = "so there is no reference to compare with"
                if not any(op.code == error.code for op in self.entry.subgraph.operators):
                    reason = "and the operator is in a called subgraph, where no reference kernel can replace it"
                raise InconclusiveError(f"{error}, {reason}") from error
            except LiteRTError as error:
                if refuses_dtype(str(error)):
                    raise InconclusiveError(f"{error}, so there is no reference to compare with") from error
                if isinstance(error, RunTimeout):
                    self.notes = (f"{error}; other random inputs were used",)
                elif refusal is None:
                    self._check_preparation()
                refusal = refusal or error
        raise self._refusal_error(refusal, has_data=inputs is not None, has_shapes=bool(requested_shapes)) from refusal

    def _refusal_error(self, refusal: LiteRTError | None, *, has_data: bool, has_shapes: bool) -> ConversionError:
        """Return the error to raise if LiteRT accepts no inputs.

        ``has_data``: the user gave inputs. ``has_shapes``: the user gave shapes.
        """
        if not has_shapes and (mismatch := self.sizes.mismatch()):
            fact = f"{mismatch}, and LiteRT does not run with the shape of the ONNX model"
            if self.has_digest:
                return InconclusiveError(f"{fact}, so there is no reference to compare with: {refusal}")
            return mismatch_without_digest(fact)
        if has_data:
            return LiteRTError(str(refusal))
        if has_shapes:
            return LiteRTError(f"{refusal}; if the random inputs are the reason, pass your own with --inputs")
        return InconclusiveError(
            f"LiteRT rejects all random inputs, so nothing was compared; if it needs other values, pass your own with --inputs: {refusal}"
        )

    def _check_preparation(self) -> None:
        """Raise InconclusiveError if no kernel set can prepare the file."""
        has_static_inputs = all(None not in tensor.dims for tensor in self.entry.inputs)
        if not has_static_inputs or self.entry.subgraph.index != self.trial.model.main.index:
            return
        with record_crashes():
            if reason := self.trial.preparation_failure():
                raise InconclusiveError(
                    f"LiteRT cannot run this file, so there is no reference to compare with: {reason}"
                )

    def run_count(self, runs: int) -> int:
        """Return the number of runs: ``runs``, or one per combination of conditions."""
        conditions = min(len(random_inputs.condition_names(self.entry)), _MAX_CONDITIONS)
        return runs if runs == 1 else max(runs, 1 << conditions)

    def add_resized_run(self, input_runs: list[list[Array]], expected: dict[str, list[Run]], seed: int) -> str:
        """Add a run with other sizes of the dynamic dimensions, in place.

        Return a note on this run; empty if no run was added. If LiteRT refuses another batch size, or mixes the elements of a
        batch, ``batch`` is set: the ONNX model is then compared with its own results for single elements. Other sizes that
        LiteRT refuses are skipped.
        """
        if self.stateful or not self.has_single_signature:
            return ""
        for shapes in (
            self.sizes.other_sizes(self.min_dynamic_size, per_axis=True),
            self.sizes.other_sizes(self.min_dynamic_size),
        ):
            if shapes and (note := self._try_resized_run(shapes, input_runs, expected, seed)):
                return note
        return ""

    def _try_resized_run(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        input_runs: list[list[Array]],
        expected: dict[str, list[Run]],
        seed: int,
    ) -> str:
        """Add a run with these shapes; return a note, empty if LiteRT refuses them."""
        (arrays,) = random_inputs.generate_inputs(
            self.entry, shapes={**self.sizes.onnx_shapes(self.min_dynamic_size), **shapes}, seed=seed
        )
        sizes = ", ".join(f"{name} {[*shape]}" for name, shape in shapes.items())
        note = f"{OTHER_SIZES}: {sizes}"
        time_limit = time_limit_after(self.seconds)
        try:  # XNNPACK does not check all sizes; builtin kernels do
            outputs = {
                kernels: self.trial.litert_outputs(kernels, [arrays], time_limit=time_limit)[0]
                for kernels in dict.fromkeys([*expected, "builtin"])
            }
            elements = self.sizes.split_batch(arrays, next(iter(outputs.values())))
        except LiteRTError:
            elements = self.sizes.split_batch(arrays, None)
            if not elements:
                return ""
            if self.sizes.is_dynamic_in_file and not self._can_run(arrays):
                return f"both runtimes reject these sizes of dynamic dimensions: {sizes}"
        if elements:
            self.batch = (arrays, elements)
            return f"one more run {note}; LiteRT refuses this batch size, so each element was compared with a batch of 1 in ONNX Runtime"
        input_runs.append(arrays)
        for kernels in expected:
            expected[kernels] = [*expected[kernels], outputs[kernels]]
        return f"run {len(input_runs)} {note}"

    def compare_batch(self) -> tuple[Comparison, ...]:
        """Compare the ONNX model's outputs for a batch with those for its elements.

        Return an empty tuple if LiteRT runs the batch.
        """
        if self.batch is None:
            return ()
        arrays, elements = self.batch
        outputs = zip(*self.trial.onnx_outputs(self.session, elements), strict=True)
        joined_outputs = [np.concatenate(results) for results in outputs]
        return self.trial.compare_outputs(
            self.trial.onnx_outputs(self.session, [arrays]), {"batches of 1": [joined_outputs]}
        )

    def _can_run(self, arrays: list[Array]) -> bool:
        """True if ONNX Runtime runs the model on these inputs."""
        try:
            self.trial.onnx_outputs(self.session, [arrays])
        except OrtError:
            return False
        return True

    @cached_property
    def reason_without_submodels(self) -> str:
        """Return the reason why submodels are not compared; empty if they are."""
        if values_by_tensor(self.entry, self.session):
            return ""
        if not self.has_single_signature:
            return "values of the ONNX model are named after the tensors of another signature"
        return "the ONNX model does not record which tensors its values hold"

    @property
    def has_rounding(self) -> bool:
        """True if operators of the file round to quantized values.

        Small errors then grow along the network.
        """
        operators = (op for graph in self.trial.model.subgraphs for op in graph.operators)
        return any(is_requantizing(op) or is_dynamic_range(op) for op in operators)


def _are_equal_runs(runs: Sequence[Run]) -> bool:
    """True if all runs have equal inputs, for example if the user gave all of them."""
    return all(
        np.array_equal(array, first) for arrays in runs[1:] for array, first in zip(arrays, runs[0], strict=True)
    )


def replace_shared_locations(proto: ModelProto, shared: SharedItems) -> None:
    """Replace tensors and operators in metadata with another signature's, in place."""
    graph = proto.graph
    for item in (*graph.node, *graph.input, *graph.value_info, *graph.output):
        metadata = props(item.metadata_props)
        replace_locations(metadata, shared.tensors, shared.operators)
        for prop in item.metadata_props:
            prop.value = metadata[prop.key]
