"""The stage before planning: settles the part of the model, its dtypes and its shapes, as LiteRT would run it.

Models are bound, and handlers asked, until nothing changes any more. Nothing here plans a layout, lowers the model or
catches an error of a later stage.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.consistency import doubtful, lacks_rank
from onnx_tflite_plugin.errors import InvalidModel, Problem, UnsupportedOperator
from onnx_tflite_plugin.graph.metadata import Part
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.lowering.interface import InterfaceNames, apply_signature, check_outputs, select_signature
from onnx_tflite_plugin.normalize.changes import retyped
from onnx_tflite_plugin.normalize.contents import complete_lists
from onnx_tflite_plugin.normalize.cutting import cut
from onnx_tflite_plugin.normalize.examination import Examined, examine, may_have_stale_shapes
from onnx_tflite_plugin.normalize.ranks import completed
from onnx_tflite_plugin.normalize.resizing import Places, rederived, resized
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.source.model import Model, Signature
from onnx_tflite_plugin.targets import Target


@dataclass(frozen=True)
class Normalized:
    """A model whose operators are bound to handlers and whose ranks, shapes and dtypes are final.

    ``names``: those of graph inputs and outputs. ``part``: where the model was cut. ``dimensions``: names of dynamic sizes.
    ``repairs``: what was stored falsely, one line each.
    """

    model: Model
    bound: BoundModel
    signature: Signature | None
    names: InterfaceNames
    part: Part | None
    dimensions: Places
    repairs: tuple[str, ...]


def normalize(model: Model, host: Host, options: ConvertOptions, target: Target) -> Normalized:
    """Return the part of a model that is converted, repaired and in the sizes that are asked for.

    Raises ConversionError with all that is wrong with the file or with the sizes.
    """
    signature = select_signature(model, options.signature)
    model, names = apply_signature(model, signature)
    if not model.main.outputs:
        raise InvalidModel(
            "there is nothing to convert:", [Problem(f"subgraphs[{model.root}].outputs", "the model has no output")]
        )
    repairs = _Repairs(host, target, options.opset or target.opsets[2])
    examined = repairs.apply(model)
    model, names, part = cut(examined.model, names, options.inputs_at, options.outputs)
    check_outputs(model, names, signature)
    if part is not None:
        examined = repairs.apply(model)
    model, dimensions = resized(examined.model, options.input_shape, options.dynamic_batch, names, host, target)
    if model is not examined.model:
        is_consistent = examined.error is None
        examined = examine(model, host, target, repairs.opset)
        if is_consistent and isinstance(examined.error, InvalidModel):
            raise contradicting_sizes(examined.error, options) from examined.error
    if examined.error is not None:
        raise examined.error
    assert examined.bound is not None
    return Normalized(examined.model, examined.bound, signature, names, part, dimensions, tuple(repairs.made))


def contradicting_sizes(error: InvalidModel, options: ConvertOptions) -> UnsupportedOperator:
    """Return the error for a file that contradicts itself in the requested sizes alone."""
    flag = "--input-shape" if options.input_shape else "--dynamic-batch"
    problems = [Problem(problem.where, problem.reason) for problem in error.problems]
    return UnsupportedOperator(f"sizes that do not go together under {flag}:", problems)


class _Repairs:
    """Corrects what a file stores falsely. ``made``: what was corrected, one line each."""

    def __init__(self, host: Host, target: Target, opset: int) -> None:
        self.host, self.target, self.opset = host, target, opset
        self.made: list[str] = []

    def apply(self, model: Model) -> Examined:
        """Return the model after all repairs, with what is still wrong."""
        model = self._completed(model)
        examined = examine(model, self.host, self.target, self.opset)
        seen: set[tuple[int, int]] = set()
        derived = False
        while True:
            if not examined.dtypes.keys() <= seen:
                seen |= examined.dtypes.keys()
                model = retyped(examined.model, examined.dtypes)
                self._record("dtypes", examined.model, model)
            elif not derived and may_have_stale_shapes(examined, self.host, self.target):
                derived = True
                current = rederived(examined.model, self.host, self.target)
                if current is None:
                    return examined
                model = current
                self._record("shapes", examined.model, model)
            else:
                return examined
            examined = examine(model, self.host, self.target, self.opset)

    def _completed(self, model: Model) -> Model:
        """Return the model with the contents of lists and the ranks that the file does not store."""
        full = complete_lists(model, self.host, self.target)
        if any(map(lacks_rank, full.main.outputs)):
            full = completed(full, self.host)
        if doubtful(full):
            full = rederived(full, self.host, self.target, insist=True) or full
        self._record("shapes", model, full)
        return full

    def _record(self, what: str, before: Model, after: Model) -> None:
        """Add a line for each tensor of the main subgraph that a repair changed."""
        for old, new in zip(before.main.tensors, after.main.tensors, strict=True):
            if old.dtype != new.dtype:
                self.made.append(f"tensor {new}: the file stores {old.dtype}, LiteRT computes {new.dtype}")
            elif old.dims != new.dims or old.has_rank != new.has_rank:
                self.made.append(f"tensor {new}: the file stores shape {list(old.dims)}, {list(new.dims)} follows")
