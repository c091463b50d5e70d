"""What a file says of an operator, held against what its handler declares: the kernels refuse the same as they prepare.

Operands and results come in the number and rank that the handler takes, and dtypes of results follow from operands'.
Nothing here depends on an operator; what differs between them is declared (``converts``, ``axes``, the parameters of the lowering).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from onnx_tflite_plugin.api.declarations import Decline, Handler
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.axes import slots_of
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.declared import called, sized
from onnx_tflite_plugin.binding.dtypes import odd_dtypes
from onnx_tflite_plugin.binding.numbers import odd_numbers
from onnx_tflite_plugin.codes import named_by_the_file
from onnx_tflite_plugin.errors import (
    CONTRADICTION,
    UNFIT,
    Blamed,
    Contradiction,
    HandlerError,
    InvalidModel,
    Problem,
    UnsupportedOperator,
)
from onnx_tflite_plugin.guard import BUILTIN, Failed
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Model, Operator, Tensor, agree
from onnx_tflite_plugin.targets import Target

_HINT = "convert the original model again"


@dataclass(frozen=True)
class Unfit(Decline):
    """Declined for operands that the file gives or leaves out."""

    problem: Contradiction = field(kw_only=True)


def check_consistent(model: BoundModel, target: Target, opset: int) -> None:
    """Raises InvalidModel with every operand that contradicts its operator, HandlerError where only packs' handlers say so.

    ``opset``: as declared functions are told.
    """
    graphs = [graph.subgraph for graph in model.graphs if graph.operators or graph is model.main]
    problems: list[Problem] = [
        Contradiction(f"subgraphs[{graph.index}].inputs[{k}]", f"tensor {tensor} is a constant", _HINT)
        for graph in graphs
        for k, tensor in enumerate(graph.inputs)
        if tensor.constant
    ]
    problems += [
        _declared(bound, problem)
        for bound in model.operators()
        for problem in (
            *_ranks(bound),
            *_shared(bound),
            *_indices(bound),
            *_passed(bound, model.source),
            *(_problem(bound.op, *odd) for odd in (*odd_dtypes(bound, target, opset), *odd_numbers(bound))),
        )
    ]
    if any(isinstance(problem, Contradiction) for problem in problems):
        raise InvalidModel(CONTRADICTION, problems)
    if problems:
        raise HandlerError(UNFIT, problems)
    sizes = [problem for bound in model.main.operators for problem in _sizes(bound, target, opset)]
    if sizes:
        raise InvalidModel(CONTRADICTION, sizes)
    edges = (*model.main.inputs, *model.main.outputs)
    handles = [
        Problem(f"tensor {tensor}", f"ONNX has no dtype {tensor.dtype}") for tensor in edges if tensor.dtype in HANDLES
    ]
    if handles:
        raise UnsupportedOperator("graph inputs and outputs that cannot be converted:", handles)


def _declared(bound: Bound, problem: Contradiction) -> Problem:
    """The file's fault by what a built-in handler declares; what a pack's declares may itself be false."""
    if bound.pack == BUILTIN:
        return problem
    reason = f"{problem.reason}, by what handler {bound.handler.name} of {bound.pack} declares"
    return Blamed(f"{bound.label}, {problem.where}", reason, Failed(bound.pack, reason).hint)


def doubtful(model: Model) -> bool:
    """Whether the file gives a tensor no elements: it may, but then nothing is computed that would show other sizes."""
    return any(t is not None and 0 in t.shape for op in model.main.operators for t in (*op.inputs, *op.outputs))


def perhaps_shapeless(op: Operator) -> bool:
    """True if a result is stored as a scalar: converters wrote ``[]`` for unknown shapes."""
    return any(t is not None and not t.shape and t.dtype not in HANDLES for t in op.outputs)


def lacks_rank(tensor: Tensor) -> bool:
    """Whether the file tells no shape of what has one."""
    return not tensor.has_rank and tensor.dtype not in HANDLES


def unfit(handler: Handler, op: Operator) -> Unfit | None:
    """Why the operands are too few or too many for a handler, or lack one; ``None`` where they are what it takes."""
    if named_by_the_file(op.code):
        return None
    needed, most, each = _arity(handler.lower)
    given = len(op.inputs)
    if (given < len(needed) and any(needed[given:])) or (most is not None and given > most):
        takes = (
            f"{len(needed)} or more"
            if most is None
            else f"{len(needed)}"
            if len(needed) == most
            else f"{len(needed)} to {most}"
        )
        wrong = _problem(op, "inputs", f"{given} operands, and {op.code} takes {takes}")
        return Unfit(wrong.reason, problem=wrong)
    required = (*needed, *[each] * (given - len(needed)))
    absent = next((slot for slot, tensor in enumerate(op.inputs) if tensor is None and required[slot]), None)
    if absent is None:
        return None
    wrong = _problem(op, f"inputs[{absent}]", f"it is absent, and {op.code} cannot do without")
    return Unfit(wrong.reason, problem=wrong)


class _Arity(NamedTuple):
    """What a lowering takes: whether each operand without a default must be there, how many there may be at most
    (``None``: any number), and whether each of any number must be there.
    """

    needed: tuple[bool, ...]
    most: int | None
    each: bool


@cache
def _arity(lower: object) -> _Arity:
    """One may be absent where its parameter begins with an underscore, for it is not used, or is annotated with None."""
    try:
        _, *parameters = inspect.signature(lower).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return _Arity((), None, each=False)
    needed: list[bool] = []
    most = 0
    for parameter in parameters:
        required = not (parameter.name.startswith("_") or "None" in str(parameter.annotation))
        if parameter.kind is parameter.VAR_POSITIONAL:
            return _Arity(tuple(needed), None, required and parameter.annotation is not parameter.empty)
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            most += 1
            if parameter.default is parameter.empty:
                needed.append(required)
    return _Arity(tuple(needed), most, each=False)


# --- ranks ------------------------------------------------------------------------------------


def _ranks(bound: Bound) -> Iterator[Contradiction]:
    """Operands whose rank is not that of the axes which the handler gives them for any instance."""
    if not isinstance(bound.handler.axes, str) or named_by_the_file(bound.op.code):
        return
    inputs, outputs = _axis_counts(bound.handler.axes)
    for name, counts, tensors in (("inputs", inputs, bound.op.inputs), ("outputs", outputs, bound.op.outputs)):
        for k, (count, tensor) in enumerate(zip(counts, tensors, strict=False)):
            if count is not None and tensor is not None and tensor.has_rank and tensor.rank != count:
                reason = f"tensor {tensor} of shape {list(tensor.shape)} has rank {tensor.rank}, {bound.op.code} takes {count}"
                yield _problem(bound.op, f"{name}[{k}]", reason)


def declared_rank(bound: Bound, output: int) -> int | None:
    """The rank that a handler's axes give an output of this instance; None if they give none."""
    counts = _axis_counts(bound.declared.axes)[1] if bound.declared.axes else ()
    return counts[output] if output < len(counts) else None


def _shared(bound: Bound) -> Iterator[Contradiction]:
    """Operands that share an axis, as weights and bias do, and have other sizes along it."""
    if not isinstance(bound.handler.axes, str) or named_by_the_file(bound.op.code):
        return
    sizes: dict[str, tuple[int, int]] = {}
    for slot, text in enumerate(bound.handler.axes.partition("->")[0].split(",")):
        tensor, letters = bound.op.tensor(slot), re.findall(r"[A-Za-z]\w*", text)
        if tensor is None or not re.fullmatch(r"[\sA-Za-z]*", text) or tensor.rank != len(letters):
            continue
        for letter, size in zip(letters, tensor.dims, strict=True):
            if size is None:
                continue
            first, other = sizes.setdefault(letter, (slot, size))
            if size != other:
                reason = f"tensor {tensor} has {size} along {letter}, and inputs[{first}] has {other}"
                yield _problem(bound.op, f"inputs[{slot}]", reason)


def _indices(bound: Bound) -> Iterator[Contradiction]:
    """Constants with an entry for each axis of another tensor that have other entries, which kernels refuse or read beyond;
    numbers of axes that are no whole numbers, which they take them for.
    """
    for slot in bound.handler.holds_axes:
        axes = bound.op.tensor(slot)
        if axes is not None and axes.dtype not in ("int32", "int64"):
            yield _problem(bound.op, f"inputs[{slot}]", f"tensor {axes} is {axes.dtype}, and holds numbers of axes")
    declared = bound.handler.indexed_by_axis
    for slot, of in () if callable(declared) else declared.items():
        index, tensor = bound.op.tensor(slot), bound.op.tensor(of)
        if slot < 0 or index is None or tensor is None or not index.constant or not tensor.has_rank:
            continue
        if index.rank == 0 or index.shape[0] != tensor.rank:
            few = index.rank == 0 or index.shape[0] < tensor.rank
            has = f"{'no entry for each of' if few else 'entries for more than'} {tensor.rank} axes"
            reason = f"tensor {index} of shape {list(index.shape)} has {has}"
            yield _problem(bound.op, f"inputs[{slot}]", reason)


@cache
def _axis_counts(text: str) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """How many axes ``"n h w c, o -> n o"`` gives each input and output; ``None`` where it does not tell."""
    inputs, outputs = slots_of(text)
    return tuple(map(_axis_count, inputs)), tuple(map(_axis_count, outputs))


def _axis_count(axes: Sequence[str]) -> int | None:
    return None if axes == ["_"] or any("..." in axis for axis in axes) else len(axes)


def _sizes(bound: Bound, target: Target, opset: int) -> Iterator[Contradiction]:
    """Output 0 where its stored sizes are not those that the handler derives: kernels ask nobody for them."""
    tensor = bound.op.tensor(~0)
    if bound.handler.sizes is None or tensor is None or not tensor.has_rank:
        return
    try:
        follows = sized(bound, target, opset)
    except (Failed, Refused):
        return
    if follows is not None and not agree(follows, tensor.dims):
        yield _problem(
            bound.op, "outputs[0]", f"tensor {tensor} is of shape {list(tensor.dims)}, {list(follows)} follows"
        )


def _passed(bound: Bound, model: Model) -> Iterator[Contradiction]:
    """What a called subgraph takes and gives, where it is of another dtype than the call's operand or result.

    Or a variable that it gives: what that holds belongs to the subgraph, whose memory another takes as it ends.
    """
    handler, op = bound.handler, bound.op
    if not (handler.borders or handler.inlines):
        return
    graphs = [model.subgraphs[index] for index in called(handler.subgraphs, op)]
    first, loops = (handler.borders.first, handler.borders.loops) if handler.borders else (0, False)
    for graph in graphs:
        results = op.outputs if graph is graphs[-1] or not loops else ()
        for side, own, theirs in (("inputs", op.inputs[first:], graph.inputs), ("outputs", results, graph.outputs)):
            for k, (outer, inner) in enumerate(zip(own, theirs, strict=False)):
                if loops and outer is not None and outer.has_rank and inner.has_rank and outer.rank != inner.rank:
                    reason = f"tensor {inner} is of shape {list(inner.dims)}, and {op.code} of {list(outer.dims)}"
                    yield Contradiction(f"subgraphs[{graph.index}].{side}[{k}]", reason, _HINT)
                if side == "outputs" and inner.is_variable:
                    reason = f"tensor {inner} is a variable, and no result of {op.code}"
                    yield Contradiction(f"subgraphs[{graph.index}].{side}[{k}]", reason, _HINT)
                if outer is not None and outer.dtype != inner.dtype:
                    reason = f"tensor {inner} is {inner.dtype}, and {op.code} hands it {outer.dtype}"
                    yield Contradiction(f"subgraphs[{graph.index}].{side}[{k}]", reason, _HINT)


def _problem(op: Operator, field: str, reason: str) -> Contradiction:
    return Contradiction(f"subgraphs[{op.subgraph}].operators[{op.index}].{field}", reason, _HINT)
