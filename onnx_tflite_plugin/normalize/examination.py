"""Examination of a model: contradictions between the file and its operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from onnx_tflite_plugin.api.layouts import Transparent
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.consistency import check_consistency, may_lack_shape
from onnx_tflite_plugin.binding.declared import resolve_operator
from onnx_tflite_plugin.binding.dtypes import stale_dtypes
from onnx_tflite_plugin.errors import AttributedProblem, Contradiction, ConversionError
from onnx_tflite_plugin.guard import BUILTIN, Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.constraints import default_axes
from onnx_tflite_plugin.normalize.derivation import ShapeDerivation, is_consistent
from onnx_tflite_plugin.normalize.ranks import broadcast_shape
from onnx_tflite_plugin.source.model import Dims, Model, Tensor
from onnx_tflite_plugin.targets import Target

Dtypes = Mapping[tuple[int, int], str]
"""(subgraph, tensor) -> dtype."""


class Examination(NamedTuple):
    """A model and the obstacles to converting it.

    ``bound``: the bound model; None if binding failed. ``error``: to be raised if it remains after all repairs.
    ``dtypes``: correct dtypes of the results whose dtype in the file is wrong.
    """

    model: Model
    bound: BoundModel | None
    error: ConversionError | Failed | None
    dtypes: Dtypes


def examine(model: Model, host: Host, target: Target, opset: int) -> Examination:
    """Bind a model and check its shapes and dtypes. ``opset``: the highest allowed."""
    dtypes: Dtypes = {}
    bound: BoundModel | None = None
    try:
        bound = host.bind(model, target, opset)
        dtypes = {
            key: dtype for operator in bound.main.operators for key, dtype in stale_dtypes(operator, target, opset)
        }
        check_consistency(bound, target, opset)
        bound = _with_declarations(bound, target, opset)
    except (ConversionError, Failed) as error:
        return Examination(model, bound, error, dtypes)
    return Examination(model, bound, None, dtypes)


def _with_declarations(model: BoundModel, target: Target, opset: int) -> BoundModel:
    """Read the declarations of main operators, except those that cannot be read."""
    operators = []
    for bound in model.main.operators:
        try:
            operators.append(resolve_operator(bound, target, opset))
        except (Failed, Refusal):  # the pipeline reads the declarations again, and reports all failures together
            operators.append(bound)
    main = model.main.with_operators(tuple(operators))
    return BoundModel(model.source, tuple(main if graph is model.main else graph for graph in model.graphs))


def may_have_stale_shapes(examination: Examination, host: Host, target: Target) -> bool:
    """True if a stored shape contradicts an operator, or may cause the error."""
    model = examination.model
    if not all(tensor.has_rank for tensor in model.main.tensors):
        return True
    if examination.bound is None or examination.error is not None:
        return _is_file_error(examination.error) or any(map(may_lack_shape, model.main.operators))
    derivation = ShapeDerivation(model, host, target, "")
    return any(has_stale_shape(bound, derivation) for bound in examination.bound.main.operators)


def _is_file_error(error: ConversionError | Failed | None) -> bool:
    problems = error.problems if isinstance(error, ConversionError) else ()
    return any(isinstance(p, Contradiction) or (isinstance(p, AttributedProblem) and p.to_converter) for p in problems)


def has_stale_shape(bound: Bound, derivation: ShapeDerivation) -> bool:
    """True if the stored shape of an output contradicts the operands.

    Declared shapes are skipped, because ``check_consistency`` compares them. Shapes of elementwise operators follow by
    broadcasting. Other operators of built-in handlers are lowered in isolation. Handlers of packs may emit wrong
    shapes, so their operators are skipped.
    """
    if bound.resolved is None or (bound.handler.result_shape is not None and len(bound.op.outputs) == 1):
        return False
    broadcast = broadcast_results(bound)
    if broadcast is None and bound.pack != BUILTIN:
        return False
    try:
        results = broadcast.items() if broadcast is not None else list(_derive_results(bound, derivation))
    except Refusal:
        return False
    except (ConversionError, Failed):
        return True
    return any(tensor.has_rank and not is_consistent(tensor.dims, dims) for tensor, dims in results)


def _derive_results(bound: Bound, derivation: ShapeDerivation) -> Iterator[tuple[Tensor, Dims]]:
    for op in bound.members:
        if op is bound.op or op.outputs == bound.op.outputs:  # skips intermediate operators of a rewrite
            yield from derivation.shapes(op).items()


def broadcast_results(bound: Bound) -> Mapping[Tensor, Dims] | None:
    """Return the output shapes of an elementwise operator; None for other operators."""
    if not bound.declared.aligned or not isinstance(bound.declared.layout, Transparent) or bound.handler.result_shape:
        return None
    slots = default_axes(bound)
    operands = [bound.op[slot] for slot in slots if slot >= 0]
    if not operands or not all(tensor.has_rank for tensor in operands):
        return None
    dims = broadcast_shape([tensor.dims for tensor in operands])
    return {bound.op[slot]: dims for slot in slots if slot < 0}
