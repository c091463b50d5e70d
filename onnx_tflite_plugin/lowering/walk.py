"""Walks a subgraph's operators: gives each handler its context, and finishes what it returns."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.binding.inlining import places
from onnx_tflite_plugin.errors import Contradiction, Problem
from onnx_tflite_plugin.graph.metadata import node_props
from onnx_tflite_plugin.guard import BUILTIN, Failed, Mismatch, guarded
from onnx_tflite_plugin.layout.tensor_layout import source_layout
from onnx_tflite_plugin.lowering.context import Context
from onnx_tflite_plugin.lowering.emitter import dtype_of
from onnx_tflite_plugin.lowering.results import Contradicted, finished, results_by_table
from onnx_tflite_plugin.lowering.scope import NotLowered, Scope
from onnx_tflite_plugin.lowering.values import FILE, STORED
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Tensor


def walk(scope: Scope) -> None:
    """Lower every operator; failures are gathered, and operators that need what failed are passed over."""
    for bound in scope.operators:
        for tensor in bound.op.inputs:
            if tensor is not None:
                begin(scope, tensor)
        if not all(scope.values.has(t) for t in bound.op.inputs if t is not None):
            continue
        try:
            with scope.emitter.within(scope.label(bound), _provenance(scope, bound)):
                outputs = _guarded(scope, bound)
        except Failed as failed:
            scope.job.problems.append(failed.problem(bound.label))
            scope.job.causes.append(failed)
            continue
        if outputs is not None:
            scope.job.problems.extend(scope.job.after(bound, outputs))


def begin(scope: Scope, tensor: Tensor) -> None:
    """Give a variable tensor that nothing has assigned yet what it remembers."""
    if tensor.is_variable and not scope.values.has(tensor):
        state = scope.states.variable(tensor, scope.values.name(tensor))
        scope.values.put(tensor, state.get(), source_layout(tensor.dims), FILE)


def _guarded(scope: Scope, bound: Bound) -> tuple[ir.Value | None, ...] | None:
    """The operator's finished outputs; None where its handler refused it. Raises Failed where it failed."""
    with guarded(f"handler {bound.handler.name}", bound.pack, bound.handler.lower, bound.label):
        try:
            return _lower(scope, bound)
        except NotLowered:
            return None
        except Contradicted as wrong:
            where = f"subgraphs[{bound.op.subgraph}].operators[{bound.op.index}].{wrong.field}"
            scope.job.problems.append(Contradiction(where, str(wrong), "convert the original model again"))
            return None
        except Refused as refusal:
            whose = f"handler {bound.handler.name} in {bound.pack}"
            scope.job.problems.append(Problem(bound.label, str(refusal), whose))
            return None


def _lower(scope: Scope, bound: Bound) -> tuple[ir.Value | None, ...]:
    for slot in sorted(bound.declared.requires_constant):
        operand = bound.op.tensor(slot)
        if operand is not None and not operand.constant:
            raise Refused(f"its operand {slot} ({operand.name!r}) must be a constant")
    if _computes_nothing(bound):
        return tuple(_put_empty(scope, tensor) for tensor in bound.op.outputs if tensor is not None)
    ctx = Context(scope, bound)
    calls = bound.declared.subgraphs  # a subgraph's operators see the operands as tensors of their own
    given = [(x, _described(x)) for x in ctx.inputs if isinstance(x, ir.Value) and not calls]
    table = bound.declared.quantization.lookup_table
    if table is not None and ctx.integers:
        result: object = results_by_table(ctx, table)
    else:
        result = bound.handler.lower(ctx, *ctx.inputs)
    for x, before in given:
        if _described(x) != before:
            raise Mismatch(f"it changed its operand {before[0]!r}, which others use")
    results = (
        result if isinstance(result, tuple | list) else () if result is None and not bound.op.outputs else (result,)
    )
    if len(results) != len(bound.op.outputs):
        if bound.pack == BUILTIN:
            raise Contradicted("outputs", f"{len(bound.op.outputs)} results, and {bound.op.code} gives {len(results)}")
        raise Mismatch(f"it returned {len(results)} values for {len(bound.op.outputs)} outputs")
    return tuple(finished(ctx, k, value) for k, value in enumerate(results))


def _computes_nothing(bound: Bound) -> bool:
    """Whether no result has an element: runtimes refuse many operators on such shapes, and nothing is left to compute."""
    empty = all(t is not None and t.static and 0 in t.shape and _plain(t) for t in bound.op.outputs)
    return bool(bound.op.outputs) and empty and not bound.declared.hands_on


def _put_empty(scope: Scope, tensor: Tensor) -> ir.Value:
    """A constant without elements."""
    nothing = np.zeros(tensor.shape, dtype_of(scope.storage.storage(tensor).dtype).numpy())
    value = scope.emitter.constant(nothing)
    scope.values.put(tensor, value, source_layout(tensor.dims), STORED)
    return value


def _described(value: ir.Value) -> tuple[object, ...]:
    """What a handler must leave alone of its operands."""
    return value.name, value.dtype, None if value.shape is None else tuple(value.shape)


def _plain(tensor: Tensor) -> bool:
    return tensor.dtype != "string" and not tensor.dtype.startswith("complex") and tensor.dtype not in HANDLES


def _provenance(scope: Scope, bound: Bound) -> dict[str, str]:
    name = next((tensor.name for tensor in bound.op.outputs if tensor is not None), "")
    within = dict.fromkeys(place for op in bound.members for place in (*scope.within, *places(op)))
    return node_props(within, bound.handler.name, bound.pack, name)
