"""A model bound to handlers, and what its file stores falsely: what the repairs start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from onnx_tflite_plugin.api.declarations import Transparent
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.consistency import check_consistent, perhaps_shapeless
from onnx_tflite_plugin.binding.declared import resolved
from onnx_tflite_plugin.binding.dtypes import stale_dtypes
from onnx_tflite_plugin.errors import Blamed, Contradiction, ConversionError
from onnx_tflite_plugin.guard import BUILTIN, Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.constraints import default_axes
from onnx_tflite_plugin.normalize.derivation import Sizes, follows
from onnx_tflite_plugin.normalize.ranks import broadcast_shape
from onnx_tflite_plugin.source.model import Dims, Model, Tensor
from onnx_tflite_plugin.targets import Target

Dtypes = Mapping[tuple[int, int], str]
"""Dtypes of tensors, by subgraph and index."""


class Examined(NamedTuple):
    """A model and what stands in the way of converting it.

    ``bound``: its operators with their handlers; None if binding failed. ``error``: what is raised if nothing is repaired.
    ``dtypes``: those that LiteRT's kernels give results for which the file stores another.
    """

    model: Model
    bound: BoundModel | None
    error: ConversionError | Failed | None
    dtypes: Dtypes


def examine(model: Model, host: Host, target: Target, opset: int) -> Examined:
    """Bind a model, and check that what its file stores fits its operators. ``opset``: the highest it may be given."""
    dtypes: Dtypes = {}
    bound: BoundModel | None = None
    try:
        bound = host.bind(model, target, opset)
        dtypes = {key: dtype for one in bound.main.operators for key, dtype in stale_dtypes(one, target, opset)}
        check_consistent(bound, target, opset)
        bound = _with_declarations(bound, target, opset)
    except (ConversionError, Failed) as error:
        return Examined(model, bound, error, dtypes)
    return Examined(model, bound, None, dtypes)


def _with_declarations(model: BoundModel, target: Target, opset: int) -> BoundModel:
    """Return the model with the declarations of the main subgraph's operators, but for those that fail or refuse."""
    operators = []
    for bound in model.main.operators:
        try:
            operators.append(resolved(bound, target, opset))
        except (Failed, Refused):  # raised again, with all others, when the pipeline reads them
            operators.append(bound)
    main = model.main.with_operators(tuple(operators))
    return BoundModel(model.source, tuple(main if graph is model.main else graph for graph in model.graphs))


def may_have_stale_shapes(examined: Examined, host: Host, target: Target) -> bool:
    """True if a stored shape does not follow from its operator's operands, or may be the cause of the error."""
    model = examined.model
    if not all(tensor.has_rank for tensor in model.main.tensors):
        return True
    if examined.bound is None or examined.error is not None:
        return _is_about_the_file(examined.error) or any(map(perhaps_shapeless, model.main.operators))
    sizes = Sizes(model, host, target, "")
    return any(has_stale_shape(bound, sizes) for bound in examined.bound.main.operators)


def _is_about_the_file(error: ConversionError | Failed | None) -> bool:
    problems = error.problems if isinstance(error, ConversionError) else ()
    return any(isinstance(p, Contradiction) or (isinstance(p, Blamed) and p.ours) for p in problems)


def has_stale_shape(bound: Bound, sizes: Sizes) -> bool:
    """True if the stored shape of one of an operator's results does not follow from its operands.

    Shapes that a handler declares were compared by ``check_consistent``; those of elementwise operators follow by
    broadcasting; any other built-in operator is lowered in isolation. What a pack's handler emits may itself be wrong.
    """
    if bound.resolved is None or (bound.handler.sizes is not None and len(bound.op.outputs) == 1):
        return False
    implied = broadcast_results(bound)
    if implied is None and bound.pack != BUILTIN:
        return False
    try:
        results = implied.items() if implied is not None else list(_derived_results(bound, sizes))
    except Refused:
        return False
    except (ConversionError, Failed):
        return True
    return any(tensor.has_rank and not follows(tensor.dims, dims) for tensor, dims in results)


def _derived_results(bound: Bound, sizes: Sizes) -> Iterator[tuple[Tensor, Dims]]:
    for op in bound.members:
        if op is bound.op or op.outputs == bound.op.outputs:  # else one of several that a rewrite put in its place
            yield from sizes.shapes(op).items()


def broadcast_results(bound: Bound) -> Mapping[Tensor, Dims] | None:
    """Return the shapes of an elementwise operator's results; None for any other operator."""
    if not bound.declared.aligned or not isinstance(bound.declared.layout, Transparent) or bound.handler.sizes:
        return None
    slots = default_axes(bound)
    operands = [bound.op[slot] for slot in slots if slot >= 0]
    if not operands or not all(tensor.has_rank for tensor in operands):
        return None
    dims = broadcast_shape([tensor.dims for tensor in operands])
    return {bound.op[slot]: dims for slot in slots if slot < 0}
