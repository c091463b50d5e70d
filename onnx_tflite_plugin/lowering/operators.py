"""Lowering of one subgraph's operators by their handlers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.binding.declared import refusal_problem
from onnx_tflite_plugin.binding.inlining import call_path
from onnx_tflite_plugin.checked import describe_arity_mismatch, plural
from onnx_tflite_plugin.errors import Contradiction, InvalidModel
from onnx_tflite_plugin.graph.names import first_operation
from onnx_tflite_plugin.graph.node_metadata import node_props
from onnx_tflite_plugin.guard import BUILTIN, Failed, Mismatch, WrongResult, attribute_errors
from onnx_tflite_plugin.layout.tensor_layout import source_layout
from onnx_tflite_plugin.lowering.arrays import physical_dims
from onnx_tflite_plugin.lowering.context import Context
from onnx_tflite_plugin.lowering.ir_values import onnx_dtype, set_type
from onnx_tflite_plugin.lowering.results import ResultContradiction, emit_table_lookup, finish_output
from onnx_tflite_plugin.lowering.scope import MissingOutput, Scope
from onnx_tflite_plugin.lowering.value_misuse import explain_value_misuse
from onnx_tflite_plugin.lowering.values import FILE, STORED
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Tensor


def lower_operators(scope: Scope) -> None:
    """Lower every operator and collect the failures.

    The results of an operator that failed are replaced by placeholders, so that the refusals of all operators are
    found. An operator that uses placeholders may fail because of them, so only its refusals are reported.
    """
    job = scope.job
    for bound in scope.operators:
        for tensor in bound.op.inputs:
            if tensor is not None:
                initialize_variable(scope, tensor)
        operands = [tensor for tensor in bound.op.inputs if tensor is not None]
        if not all(scope.values.has(tensor) for tensor in operands):
            continue
        outer_uses_placeholders, job.uses_placeholders = (
            job.uses_placeholders,
            job.uses_placeholders or not job.placeholders.isdisjoint(operands),
        )
        try:
            _lower_or_put_placeholders(scope, bound)
        finally:
            job.uses_placeholders = outer_uses_placeholders


def _lower_or_put_placeholders(scope: Scope, bound: Bound) -> None:
    """Lower an operator; put placeholders if it fails or an operand is a placeholder."""
    job = scope.job
    try:
        with label_nodes(scope, bound):
            outputs = _lower_guarded(scope, bound)
    except Failed as failed:
        if not job.uses_placeholders:
            job.problems.append(failed.problem(bound.label))
            job.causes.append(failed)
        outputs = None
    except InvalidModel:
        if not job.uses_placeholders:
            raise
        outputs = None
    if outputs is not None and not job.uses_placeholders:
        job.problems.extend(job.after_operator(bound, outputs))
    elif job.uses_placeholders or not isinstance(job.problems[-1], Contradiction):
        _put_placeholders(scope, bound)  # after a contradiction in the file, operators downstream are skipped


def label_nodes(scope: Scope, bound: Bound) -> AbstractContextManager[None]:
    """Give nodes emitted inside this context the label and metadata of an operator."""
    return scope.emitter.label_nodes(scope.label(bound), _node_metadata(scope, bound))


def _put_placeholders(scope: Scope, bound: Bound) -> None:
    """Create placeholders of planned dtype and layout for results without a value."""
    for k, tensor in enumerate(bound.op.outputs):
        if tensor is None or tensor.dtype in HANDLES:
            continue
        scope.job.placeholders.add(tensor)
        if not scope.values.has(tensor):
            layout = scope.layout.layout(bound, ~k)
            value = scope.emitter.register(ir.Value(name=scope.emitter.names.unique(scope.values.name(tensor))))
            set_type(value, scope.storage.storage(tensor).dtype, physical_dims(tensor, layout))
            scope.values.put(tensor, value, layout, STORED)


def initialize_variable(scope: Scope, tensor: Tensor) -> None:
    """Set a variable tensor without a value to the value of its state."""
    if tensor.is_variable and not scope.values.has(tensor):
        state = scope.states.variable_state(tensor, scope.values.state_name(tensor))
        scope.values.put(tensor, state.get(), source_layout(tensor.dims), FILE)


def _lower_guarded(scope: Scope, bound: Bound) -> tuple[ir.Value | None, ...] | None:
    """Return the operator's finished outputs; None if its handler refused it.

    Raises Failed if the handler failed.
    """
    with attribute_errors(f"handler {bound.handler.name}", bound.pack, bound.handler.lower, bound.label):
        try:
            return _lower_operator(scope, bound)
        except MissingOutput:
            return None
        except ResultContradiction as contradiction:
            if not scope.job.uses_placeholders:
                location = f"subgraphs[{bound.op.subgraph}].operators[{bound.op.index}].{contradiction.field}"
                scope.job.problems.append(
                    Contradiction(location, str(contradiction), "convert the original model again")
                )
            return None
        except Refusal as refusal:
            problems = scope.job.downstream_refusals if scope.job.uses_placeholders else scope.job.problems
            problems.append(refusal_problem(bound, refusal))
            return None


def _lower_operator(scope: Scope, bound: Bound) -> tuple[ir.Value | None, ...]:
    for slot in sorted(bound.declared.requires_constant):
        tensor = bound.op.tensor(slot)
        if tensor is not None and not tensor.is_constant:
            raise Refusal(f"operand {slot} ({tensor.name!r}) must be a constant")
    if _is_empty(bound):
        return tuple(_emit_empty(scope, tensor) for tensor in bound.op.outputs if tensor is not None)
    ctx = Context(scope, bound)
    has_subgraphs = bool(bound.declared.subgraphs)  # lowering a subgraph renames the operands
    operands = [] if has_subgraphs else [value for value in ctx.inputs if isinstance(value, ir.Value)]
    properties = list(map(_operand_properties, operands))
    table = bound.declared.quantization.lookup_table
    if table is not None and ctx.uses_integers:
        result: object = emit_table_lookup(ctx, table)
    else:
        if bound.pack != BUILTIN and (
            arity_error := describe_arity_mismatch(bound.handler.lower, len(ctx.inputs), "lowering")
        ):
            raise Mismatch(arity_error)
        with explain_value_misuse():
            result = bound.handler.lower(ctx, *ctx.inputs)
    for operand, before in zip(operands, properties, strict=True):
        if _operand_properties(operand) != before:
            raise Mismatch(f"the lowering changed operand {before[0]!r}, which other operators use")
    results: Sequence[Any] = (result,)
    if isinstance(result, tuple | list):
        results = result
    elif result is None and not bound.op.outputs:
        results = ()
    if len(results) != len(bound.op.outputs):
        if bound.pack == BUILTIN:
            raise ResultContradiction(
                "outputs", f"{len(bound.op.outputs)} outputs, but {bound.op.code} has {len(results)}"
            )
        raise WrongResult(
            f"the lowering returned {plural(len(results), 'value')}, but the operator has {plural(len(bound.op.outputs), 'output')}"
        )
    return tuple(finish_output(ctx, k, value) for k, value in enumerate(results))


def _is_empty(bound: Bound) -> bool:
    """True if no output has elements.

    Runtimes refuse many operators on such shapes, and nothing needs computing.
    """
    has_only_empty_outputs = all(
        t is not None and t.is_static and 0 in t.shape and _is_numeric(t) for t in bound.op.outputs
    )
    return bool(bound.op.outputs) and has_only_empty_outputs and not bound.declared.accesses_states


def _emit_empty(scope: Scope, tensor: Tensor) -> ir.Value:
    """Return a constant without elements as the tensor's value."""
    empty = np.zeros(tensor.shape, onnx_dtype(scope.storage.storage(tensor).dtype).numpy())
    value = scope.emitter.constant(empty)
    scope.values.put(tensor, value, source_layout(tensor.dims), STORED)
    return value


def _operand_properties(value: ir.Value) -> tuple[object, ...]:
    """Return the properties of an operand that a handler must not change."""
    return value.name, value.dtype, None if value.shape is None else tuple(value.shape)


def _is_numeric(tensor: Tensor) -> bool:
    return tensor.dtype != "string" and not tensor.dtype.startswith("complex") and tensor.dtype not in HANDLES


def _node_metadata(scope: Scope, bound: Bound) -> dict[str, str]:
    name = first_operation(next((tensor.name for tensor in bound.op.outputs if tensor is not None), ""))
    locations = dict.fromkeys(location for op in bound.members for location in (*scope.callers, *call_path(op)))
    operands = (bound.op.tensor(slot) for slot in bound.handler.value_dependent_slots)
    assumed_tensors = [(tensor.subgraph, tensor.index) for tensor in operands if tensor is not None]
    return node_props(locations, bound.handler.name, bound.pack, name, assumed_tensors)
