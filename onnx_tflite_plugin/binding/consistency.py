"""Consistency of the file's operators with handler declarations.

LiteRT's kernels perform the same checks in Prepare. Operands and results must have the number and rank that the
handler declares, and dtypes of results must follow from operands. Handlers declare where an operator deviates from
these rules (``result_dtypes``, ``axes``, parameters of the lowering).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from onnx_tflite_plugin.api.declarations import Decline, Handler, out
from onnx_tflite_plugin.api.notation import Group, parse_axes
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.declared import size_of_output, subgraph_indices
from onnx_tflite_plugin.binding.dtypes import find_invalid_dtypes
from onnx_tflite_plugin.binding.invalid_parameters import find_invalid_parameters
from onnx_tflite_plugin.codes import has_custom_name
from onnx_tflite_plugin.errors import (
    CONTRADICTION,
    DECLARATION_MISMATCH,
    AttributedProblem,
    Contradiction,
    HandlerError,
    InvalidModel,
    Problem,
    UnsupportedOperator,
)
from onnx_tflite_plugin.guard import BUILTIN, Failed, definition_location
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Model, Operator, Tensor, agree
from onnx_tflite_plugin.targets import Target

_HINT = "convert the original model again"


@dataclass(frozen=True)
class ArityDecline(Decline):
    """Decline of an operator that lacks a required operand or has too many."""

    problem: Contradiction = field(kw_only=True)


def check_consistency(model: BoundModel, target: Target, opset: int) -> None:
    """Raise InvalidModel with all contradictions between operators and declarations.

    Raises HandlerError if only operators with handlers of packs have contradictions. ``target`` and ``opset`` are passed
    to declarations that are functions.
    """
    graphs = [graph.subgraph for graph in model.graphs if graph.operators or graph is model.main]
    problems: list[Problem] = [
        Contradiction(f"subgraphs[{graph.index}].inputs[{k}]", f"tensor {tensor} is a constant", _HINT)
        for graph in graphs
        for k, tensor in enumerate(graph.inputs)
        if tensor.is_constant
    ]
    problems += [
        _attribute_problem(bound, problem)
        for bound in model.operators()
        for problem in (
            *_check_ranks(bound),
            *_check_shared_axes(bound),
            *_check_indices(bound),
            *_check_subgraph_boundaries(bound, model.source),
            *(
                _contradiction(bound.op, *invalid)
                for invalid in (*find_invalid_dtypes(bound, target, opset), *find_invalid_parameters(bound))
            ),
        )
    ]
    if any(isinstance(problem, Contradiction) for problem in problems):
        raise InvalidModel(CONTRADICTION, problems)
    if problems:
        raise HandlerError(DECLARATION_MISMATCH, problems)
    sizes = [problem for bound in model.main.operators for problem in _check_sizes(bound, target, opset)]
    if sizes:
        raise InvalidModel(CONTRADICTION, sizes)
    interface = (*model.main.inputs, *model.main.outputs)
    handle_problems = [
        Problem(f"tensor {tensor}", f"ONNX has no dtype {tensor.dtype}")
        for tensor in interface
        if tensor.dtype in HANDLES
    ]
    if handle_problems:
        raise UnsupportedOperator("graph inputs and outputs that cannot be converted:", handle_problems)


def _attribute_problem(bound: Bound, problem: Contradiction) -> Problem:
    """Return the problem; if the handler is not built in, attribute it to its pack."""
    if bound.pack == BUILTIN:
        return problem
    reason = f"{problem.reason}, according to the declarations of handler {bound.handler.name} of {bound.pack}"
    return AttributedProblem(f"{bound.label}, {problem.where}", reason, Failed(bound.pack, reason).hint)


def has_empty_tensors(model: Model) -> bool:
    """True if the file stores a tensor without elements.

    Such a file is valid, but kernels do not compute an empty tensor, so its stored shape may be wrong.
    """
    return any(t is not None and 0 in t.shape for op in model.main.operators for t in (*op.inputs, *op.outputs))


def may_lack_shape(op: Operator) -> bool:
    """True if the file stores the shape [] for a result.

    Old converters wrote [] if they did not know the shape.
    """
    return any(t is not None and not t.shape and t.dtype not in HANDLES for t in op.outputs)


def lacks_rank(tensor: Tensor) -> bool:
    """True if a tensor's rank is unknown, because the file stores no shape for it."""
    return not tensor.has_rank and tensor.dtype not in HANDLES


def check_arity(handler: Handler, op: Operator) -> ArityDecline | None:
    """Return an ArityDecline if an operator lacks a required operand or has too many."""
    if has_custom_name(op.code):
        return None
    required, maximum, rest_required = _arity(handler.lower)
    count = len(op.inputs)
    if (count < len(required) and any(required[count:])) or (maximum is not None and count > maximum):
        expected = (
            f"{len(required)} or more"
            if maximum is None
            else f"{len(required)}"
            if len(required) == maximum
            else f"{len(required)} to {maximum}"
        )
        contradiction = _contradiction(op, "inputs", f"{count} operands, but {op.code} requires {expected}")
        return ArityDecline(contradiction.reason, problem=contradiction)
    all_required = (*required, *[rest_required] * (count - len(required)))
    absent_slot = next((slot for slot, tensor in enumerate(op.inputs) if tensor is None and all_required[slot]), None)
    if absent_slot is None:
        return None
    contradiction = _contradiction(op, f"inputs[{absent_slot}]", f"the operand is absent, but {op.code} requires it")
    return ArityDecline(contradiction.reason, problem=contradiction)


class _Arity(NamedTuple):
    """Number of operands that a lowering takes.

    ``required``: for each parameter without a default, True if the operand must be present. ``maximum``: the maximum
    number of operands, or None for any number. ``rest_required``: True if all operands of ``*args`` must be present.
    """

    required: tuple[bool, ...]
    maximum: int | None
    rest_required: bool


@cache
def _arity(lower: object) -> _Arity:
    """Return the number of operands that a lowering takes.

    An operand is optional if its parameter is unused (leading underscore) or annotated with None.
    """
    try:
        _, *parameters = inspect.signature(lower).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return _Arity((), None, rest_required=False)
    required: list[bool] = []
    maximum = 0
    for parameter in parameters:
        is_required = not (parameter.name.startswith("_") or "None" in str(parameter.annotation))
        if parameter.kind is parameter.VAR_POSITIONAL:
            return _Arity(tuple(required), None, is_required and parameter.annotation is not parameter.empty)
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            maximum += 1
            if parameter.default is parameter.empty:
                required.append(is_required)
    return _Arity(tuple(required), maximum, rest_required=False)


# --- ranks ------------------------------------------------------------------------------------


def _check_ranks(bound: Bound) -> Iterator[Contradiction]:
    """Yield a contradiction for each tensor whose rank differs from the declared axes.

    Axes that a function returns are not checked.
    """
    if not isinstance(bound.handler.axes, str) or has_custom_name(bound.op.code):
        return
    inputs, outputs = _axis_counts(bound.handler.axes)
    for name, counts, tensors in (("inputs", inputs, bound.op.inputs), ("outputs", outputs, bound.op.outputs)):
        for k, (count, tensor) in enumerate(zip(counts, tensors, strict=False)):
            if count is not None and tensor is not None and tensor.has_rank and tensor.rank != count:
                reason = f"tensor {tensor} of shape {list(tensor.shape)} has rank {tensor.rank}, but {bound.op.code} requires {count}"
                yield _contradiction(bound.op, f"{name}[{k}]", reason)


def declared_rank(bound: Bound, output: int) -> int | None:
    """Return the rank that the declared axes give an output; None if unknown."""
    counts = _axis_counts(bound.declared.axes)[1] if bound.declared.axes else ()
    return counts[output] if output < len(counts) else None


def _check_shared_axes(bound: Bound) -> Iterator[Contradiction]:
    """Yield a contradiction for operands with different sizes along a shared axis.

    Weights and bias, for example, share the axis of output channels.
    """
    if not isinstance(bound.handler.axes, str) or has_custom_name(bound.op.code):
        return
    sizes: dict[str, tuple[int, int]] = {}
    for slot, text in enumerate(bound.handler.axes.partition("->")[0].split(",")):
        tensor, letters = bound.op.tensor(slot), re.findall(r"[A-Za-z]\w*", text)
        if tensor is None or not re.fullmatch(r"[\sA-Za-z]*", text) or tensor.rank != len(letters):
            continue
        for letter, size in zip(letters, tensor.dims, strict=True):
            if size is None:
                continue
            first_slot, first_size = sizes.setdefault(letter, (slot, size))
            if size != first_size:
                reason = (
                    f"tensor {tensor} has size {size} along {letter}, but inputs[{first_slot}] has size {first_size}"
                )
                yield _contradiction(bound.op, f"inputs[{slot}]", reason)


def _check_indices(bound: Bound) -> Iterator[Contradiction]:
    """Yield a contradiction for each operand that indexes axes and is invalid.

    A constant with one entry per axis must have as many entries as its tensor has axes: kernels refuse other lengths, or
    read beyond the end. Axis numbers must be int32 or int64: kernels misread other dtypes.
    """
    for slot in bound.handler.axis_number_slots:
        axes = bound.op.tensor(slot)
        if axes is not None and axes.dtype not in ("int32", "int64"):
            yield _contradiction(
                bound.op, f"inputs[{slot}]", f"tensor {axes} is {axes.dtype}, but axis numbers must be int32 or int64"
            )
    declared = bound.handler.indexed_by_axis
    for slot, indexed_slot in () if callable(declared) else declared.items():
        index, tensor = bound.op.tensor(slot), bound.op.tensor(indexed_slot)
        if slot < 0 or index is None or tensor is None or not index.is_constant or not tensor.has_rank:
            continue
        if index.rank == 0 or index.shape[0] != tensor.rank:
            is_short = index.rank == 0 or index.shape[0] < tensor.rank
            text = f"{'fewer' if is_short else 'more'} entries than the {tensor.rank} axes"
            reason = f"tensor {index} of shape {list(index.shape)} has {text}"
            yield _contradiction(bound.op, f"inputs[{slot}]", reason)


@cache
def _axis_counts(text: str) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """Return the numbers of axes of inputs and outputs; None for a slot if unknown.

    ``text``: declared axes, such as ``"n h w c, o -> n o"``.
    """
    inputs, outputs = parse_axes(text)
    return tuple(map(_axis_count, inputs)), tuple(map(_axis_count, outputs))


def _axis_count(axes: Sequence[Group] | None) -> int | None:
    return None if axes is None or ("...",) in axes else len(axes)


def _check_sizes(bound: Bound, target: Target, opset: int) -> Iterator[Contradiction]:
    """Yield a contradiction if output 0 is stored with another shape than declared."""
    tensor = bound.op.tensor(out(0))
    if bound.handler.result_shape is None or tensor is None or not tensor.has_rank:
        return
    try:
        derived = size_of_output(bound, target, opset)
    except (Failed, Refusal):
        return
    if derived is None or agree(derived, tensor.dims):
        return
    fact = f"tensor {tensor} has shape {list(tensor.dims)}, but"
    if bound.pack == BUILTIN:
        yield _contradiction(bound.op, "outputs[0]", f"{fact} the operands imply {list(derived)}")
    else:
        location = definition_location(bound.handler.result_shape)
        reason = f"{fact} result_shape= of handler {bound.handler.name} returned {list(derived)}, at {location}"
        yield replace(
            _contradiction(bound.op, "outputs[0]", reason), hint="correct result_shape= if the model is right"
        )


def _check_subgraph_boundaries(bound: Bound, model: Model) -> Iterator[Contradiction]:
    """Yield a contradiction for each invalid input or output of a called subgraph.

    Each must have the dtype of the call's operand or result, and in loops also its rank. Outputs must not be variables,
    because LiteRT reuses the memory of variables when the subgraph ends.
    """
    handler, op = bound.handler, bound.op
    if not (handler.boundary or handler.inlined_subgraph):
        return
    graphs = [model.subgraphs[index] for index in subgraph_indices(handler.subgraphs, op)]
    first_slot, loops = (handler.boundary.first_slot, handler.boundary.loops) if handler.boundary else (0, False)
    for graph in graphs:
        results = op.outputs if graph is graphs[-1] or not loops else ()  # a loop's condition returns only a boolean
        for side, call_tensors, subgraph_tensors in (
            ("inputs", op.inputs[first_slot:], graph.inputs),
            ("outputs", results, graph.outputs),
        ):
            role = "operand" if side == "inputs" else "result"
            for k, (outer, inner) in enumerate(zip(call_tensors, subgraph_tensors, strict=False)):
                if loops and outer is not None and outer.has_rank and inner.has_rank and outer.rank != inner.rank:
                    reason = f"tensor {inner} has shape {list(inner.dims)}, but the {role} of {op.code} is {list(outer.dims)}"
                    yield Contradiction(f"subgraphs[{graph.index}].{side}[{k}]", reason, _HINT)
                if side == "outputs" and inner.is_variable:
                    reason = f"tensor {inner} is a variable, which cannot be a result of {op.code}"
                    yield Contradiction(f"subgraphs[{graph.index}].{side}[{k}]", reason, _HINT)
                if outer is not None and outer.dtype != inner.dtype:
                    reason = f"tensor {inner} is {inner.dtype}, but the {role} of {op.code} is {outer.dtype}"
                    yield Contradiction(f"subgraphs[{graph.index}].{side}[{k}]", reason, _HINT)


def _contradiction(op: Operator, field: str, reason: str) -> Contradiction:
    return Contradiction(f"subgraphs[{op.subgraph}].operators[{op.index}].{field}", reason, _HINT)
