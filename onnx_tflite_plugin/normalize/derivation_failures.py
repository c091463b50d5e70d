"""Description of an operator whose output shapes cannot be derived."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import label
from onnx_tflite_plugin.checked import format_shape
from onnx_tflite_plugin.errors import ConversionError, Problem
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Dims, Model, Operator, Tensor

_OTHER_REMEDY = "or leave the operator out with --outputs TENSOR"
_STATE_REMEDY = "keep the stored batch: omit --dynamic-batch"


def describe_failure(
    op: Operator,
    error: ConversionError | Refusal,
    dims: Mapping[Tensor, Dims],
    model: Model,
    stored_batches: Collection[int],
    remedy: str,
) -> Problem:
    """Return the problem of an operator of ``model``.

    ``dims``: the new shapes of tensors. ``stored_batches``: the batch sizes that become dynamic. ``remedy``: the first remedy,
    unless the error has its own.
    """
    problems = error.problems if isinstance(error, ConversionError) else ()
    reason = _describe_broadcast(problems[0].reason if problems else str(error), op, dims)
    hint = next((problem.hint for problem in problems if problem.hint), f"{remedy}, {_OTHER_REMEDY}")
    return _state_batch_problem(op, reason, dims, model, stored_batches) or Problem(label(op), reason, hint)


def _state_batch_problem(
    op: Operator, reason: str, dims: Mapping[Tensor, Dims], model: Model, stored_batches: Collection[int]
) -> Problem | None:
    """Return the problem of a state that fixes the batch; None for other reasons."""
    if not stored_batches:
        return None
    state = next((tensor for tensor in op.inputs if tensor is not None and tensor.is_variable), None)
    if state is not None and state.dims and f"state {state.name!r}" in reason:
        text = f"state {state.name!r} of shape {list(state.dims)} fixes the batch at {state.dims[0]}"
        return Problem(label(op), text, _STATE_REMEDY)
    for operand in op.inputs:
        if operand is None or operand in dims or not operand.dims or operand.dims[0] not in stored_batches:
            continue
        if (name := _find_state(operand, model)) is not None:
            fact = f"operand {operand.name!r} of shape {list(operand.dims)} is read from state {name!r}"
            return Problem(label(op), f"{fact}, which fixes the batch at {operand.dims[0]}", _STATE_REMEDY)
    return None


def _find_state(tensor: Tensor, model: Model) -> str | None:
    """Return the name of the state that a tensor is computed from; None without one."""
    producers = {result: op for op in model.main.operators for result in op.outputs if result is not None}
    pending, visited = [tensor], set[Tensor]()
    while pending:
        current = pending.pop()
        if current.is_variable or current.dtype in HANDLES:
            return current.name
        visited.add(current)
        operator = producers.get(current)
        pending += [t for t in (operator.inputs if operator else ()) if t is not None and t not in visited]
    return None


def _describe_broadcast(reason: str, op: Operator, dims: Mapping[Tensor, Dims]) -> str:
    """Return the reason, with the operands' shapes if they do not broadcast.

    ONNX's message does not name the shapes.
    """
    if reason != "Incompatible dimensions":
        return reason
    shapes = [format_shape(dims.get(tensor, tensor.dims)) for tensor in op.inputs if tensor is not None]
    return f"the operands of shapes {' and '.join(shapes)} do not broadcast"
