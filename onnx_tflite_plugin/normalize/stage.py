"""Normalization stage: final submodel, dtypes and shapes, before planning.

Shapes and dtypes become those that LiteRT computes. The model is bound and repaired until nothing changes. Operators
are lowered in isolation to learn their shapes; the whole model is not planned or lowered here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.consistency import has_empty_tensors, lacks_rank
from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.errors import InvalidModel, Problem, SignaturesDiffer, UnsupportedOperator
from onnx_tflite_plugin.graph.model_metadata import Part
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.lowering.interface import InterfaceNames, apply_signature, check_outputs, select_signature
from onnx_tflite_plugin.normalize.alignment import Misaligned
from onnx_tflite_plugin.normalize.changes import with_dtypes
from onnx_tflite_plugin.normalize.cutting import cut
from onnx_tflite_plugin.normalize.examination import Examination, examine, may_have_stale_shapes
from onnx_tflite_plugin.normalize.joining import JoinedModel, join_signatures
from onnx_tflite_plugin.normalize.ranks import complete_shapes
from onnx_tflite_plugin.normalize.resizing import NamedAxes, derive_shapes, resize_inputs
from onnx_tflite_plugin.normalize.tensor_list_elements import complete_lists
from onnx_tflite_plugin.options import ALL, ConvertOptions, flag
from onnx_tflite_plugin.source.model import Dims, Model, Signature, Tensor
from onnx_tflite_plugin.targets import Target

_SINGLE_SIGNATURE_OPTIONS = ("input_shape", "dynamic_batch", "inputs_at", "outputs")
"""Options that do not apply to several signatures."""


@dataclass(frozen=True)
class Normalized:
    """A model with bound operators and final ranks, shapes and dtypes.

    ``file``: the model as it was read. ``names``: names of graph inputs and outputs. ``part``: the tensors between which the
    model was cut. ``dimensions``: names of dynamic sizes. ``repairs``: one line per repaired tensor. ``stored_dims``: shapes
    of the inputs before ``--input-shape``. For a model that joins signatures, ``lengths``: the number of tokens in each
    signature, and ``head``: the tensor from which scores are computed, each token in isolation.
    """

    file: Model
    model: Model
    bound: BoundModel
    signature: Signature | None
    names: InterfaceNames
    part: Part | None
    dimensions: NamedAxes
    repairs: tuple[str, ...]
    stored_dims: tuple[Dims, ...]
    lengths: Mapping[str, int] = field(default_factory=dict)
    head: Tensor | None = None

    def sequence_axes(self, tensor: Tensor) -> list[int]:
        """Return the token axes of a tensor in a model of several signatures.

        A token axis is dynamic, and its stored size is the length of the longest signature.
        """
        longest = max(self.lengths.values(), default=0)
        return [axis for axis, size in enumerate(tensor.dims) if size is None and tensor.shape[axis] == longest]


_NO_OUTPUT = "name tensors that become the outputs with --outputs, or export the original model again"


def normalize(model: Model, host: Host, options: ConvertOptions, target: Target) -> Normalized:
    """Return the part of the model to convert, repaired and resized as requested.

    Raises ConversionError with all contradictions of the file or of the requested sizes.
    """
    file = model
    joined = join_all(file, options, host, target)
    if joined is None:
        signature = select_signature(model, options.signature)
    else:
        model, signature = joined.model, joined.signature
    model, names = apply_signature(model, signature)
    if not model.main.outputs:
        remedy = _NO_OUTPUT if model.main.operators else "export the original model again"
        fact = "the model has no output" if model.main.operators else "the model has neither operators nor outputs"
        raise InvalidModel("nothing to convert:", [Problem(f"subgraphs[{model.root}].outputs", fact, remedy)])
    repairs = _Repairs(host, target, options.opset or target.opsets[2])
    examination = repairs.apply(model)
    model, names, part = cut(examination.model, names, options.inputs_at, options.outputs)
    check_outputs(model, names, signature)
    if part is not None:
        examination = repairs.apply(model)
    stored_dims = tuple(tensor.dims for tensor in examination.model.main.inputs)
    if joined is None:
        model, dimensions = resize_inputs(
            examination.model, options.input_shape, options.dynamic_batch, names, host, target
        )
    else:
        model, dimensions = examination.model, joined.named_axes
    if model is not examination.model:
        is_consistent = examination.error is None
        examination = examine(model, host, target, repairs.opset)
        if is_consistent and isinstance(examination.error, InvalidModel):
            raise contradictory_sizes_error(examination.error, options) from examination.error
    if examination.error is not None:
        raise examination.error
    assert examination.bound is not None
    return Normalized(
        file,
        examination.model,
        examination.bound,
        signature,
        names,
        part,
        dimensions,
        tuple(repairs.lines),
        stored_dims,
        {} if joined is None else joined.lengths,
        None if joined is None else joined.head,
    )


def join_all(model: Model, options: ConvertOptions, host: Host, target: Target) -> JoinedModel | None:
    """Return all signatures as one model, or None if the options do not request it.

    Raises SignaturesDiffer with the first difference.
    """
    keys = [signature.key for signature in model.signatures]
    if options.signature != ALL or ALL in keys:
        return None
    if len(keys) < 2:
        raise SignaturesDiffer(f"the file has {plural(len(keys), 'signature')}", "leave the option out")
    conflicting = [name for name in _SINGLE_SIGNATURE_OPTIONS if getattr(options, name)]
    if conflicting:
        raise SignaturesDiffer(f"{flag(conflicting[0])} applies to a single signature only")
    if target.needs_static_shapes:
        raise SignaturesDiffer(f"target {target.name} needs static shapes")
    try:
        return join_signatures(model, host, target)
    except (Misaligned, UnsupportedOperator) as error:
        reason = error if isinstance(error, Misaligned) or not error.problems else error.problems[0]
        raise SignaturesDiffer(f"the signatures cannot be joined into one model: {reason}") from error


def contradictory_sizes_error(error: InvalidModel, options: ConvertOptions) -> UnsupportedOperator:
    """Return the error for requested sizes that contradict a consistent model."""
    flag = "--input-shape" if options.input_shape else "--dynamic-batch"
    problems = [Problem(problem.where, problem.reason) for problem in error.problems]
    return UnsupportedOperator(f"{flag} leads to contradictory sizes:", problems)


class _Repairs:
    """Repairs of stale shapes and dtypes. ``lines``: one per repaired tensor."""

    def __init__(self, host: Host, target: Target, opset: int) -> None:
        self.host, self.target, self.opset = host, target, opset
        self.lines: list[str] = []

    def apply(self, model: Model) -> Examination:
        """Return the examination of the model after all repairs, with the remaining error."""
        model = self._complete(model)
        examination = examine(model, self.host, self.target, self.opset)
        repaired: set[tuple[int, int]] = set()
        has_derived_shapes = False
        while True:
            if not examination.dtypes.keys() <= repaired:
                repaired |= examination.dtypes.keys()
                model = with_dtypes(examination.model, examination.dtypes)
                self._record(examination.model, model)
            elif not has_derived_shapes and may_have_stale_shapes(examination, self.host, self.target):
                has_derived_shapes = True
                derived = derive_shapes(examination.model, self.host, self.target)
                if derived is None:
                    return examination
                model = derived
                self._record(examination.model, model)
            else:
                return examination
            examination = examine(model, self.host, self.target, self.opset)

    def _complete(self, model: Model) -> Model:
        """Return the model with list contents and ranks that the file does not store."""
        completed = complete_lists(model, self.host, self.target)
        if any(map(lacks_rank, completed.main.outputs)):
            completed = complete_shapes(completed, self.host)
        if has_empty_tensors(completed):
            completed = derive_shapes(completed, self.host, self.target, strict=True) or completed
        self._record(model, completed)
        return completed

    def _record(self, before: Model, after: Model) -> None:
        """Add a line for each tensor of the main subgraph that a repair changed."""
        for old, new in zip(before.main.tensors, after.main.tensors, strict=True):
            if old.dtype != new.dtype:
                self.lines.append(f"tensor {new}: the file stores {old.dtype}, but LiteRT computes {new.dtype}")
            elif old.dims != new.dims or old.has_rank != new.has_rank:
                self.lines.append(
                    f"tensor {new}: the file stores shape {list(old.dims)}, but the operator computes {list(new.dims)}"
                )
