"""Tensor shapes, derived from the shapes of graph inputs.

Each operator is lowered in isolation, with the new shapes of its operands and dynamic shapes of its results. ONNX's
shape inference then gives the results' shapes. A handler declares ``sizes`` if its lowering takes sizes from the file.
Small integer tensors that depend only on sizes are computed, because shapes may depend on them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Bound, label
from onnx_tflite_plugin.binding.consistency import declared_rank, may_lack_shape
from onnx_tflite_plugin.binding.declared import resolve_operator, size_of_output
from onnx_tflite_plugin.binding.evaluation import EvaluatedData
from onnx_tflite_plugin.binding.rewriting import final_operator
from onnx_tflite_plugin.checked import format_shape
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, Problem, UnsupportedOperator
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.changes import resize_tensor
from onnx_tflite_plugin.normalize.equality import MAX_SIZES, reads_no_subgraph, shape_key
from onnx_tflite_plugin.normalize.fixed_sizes import check_resizable, check_scales, check_states
from onnx_tflite_plugin.normalize.inference import infer, skeleton
from onnx_tflite_plugin.normalize.isolated_operator import constant_results, lower_in_isolation
from onnx_tflite_plugin.normalize.stored_sizes import fill_declared, replace_axis, replace_batch
from onnx_tflite_plugin.normalize.subgraph_shapes import forwarded_shape, subgraph_results
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Array, Dims, Model, Operator, Tensor, agree
from onnx_tflite_plugin.targets import Target

_REMEDY = "keep the stored size"
_OTHER_REMEDY = "or leave the operator out with --outputs TENSOR"
_STATE_REMEDY = "keep the stored batch: omit --dynamic-batch"
MAX_TRIED_RANK = 6


class ShapeDerivation:
    """Derivation of the shapes of a model's tensors.

    ``message``: the first line of an error. ``remedy``: the first remedy in an error. ``named_sizes``: stored sizes of
    named dynamic dimensions. ``replaced_operators``: replacements of operators that store a dynamic size in a constant
    or option. ``subgraph_shapes``: the shapes of tensors in called subgraphs, by subgraph index.
    """

    def __init__(
        self,
        model: Model,
        host: Host,
        target: Target,
        message: str,
        *,
        named_sizes: Collection[int] = (),
        remedy: str = _REMEDY,
    ) -> None:
        self.model, self.host, self.target, self.message, self.named_sizes = model, host, target, message, named_sizes
        self.remedy = remedy
        self.replaced_operators: dict[Operator, Operator] = {}
        self.subgraph_shapes: dict[int, dict[Tensor, Dims]] = {}
        self.batches: Mapping[int, int] = {}
        self._lowered: dict[Hashable, tuple[Sequence[Array | None], Sequence[Dims | None]]] = {}

    def propagate(
        self, input_shapes: Mapping[Tensor, Dims], batches: Mapping[int, int] | None = None
    ) -> dict[Tensor, Dims]:
        """Return the shapes of the resized inputs and of tensors that depend on them.

        ``batches``: for each sample size of axis 0, the stored size that it replaces. Raises
        UnsupportedOperator for the first operator whose output shapes cannot be derived.
        """
        self.batches, self.subgraph_shapes = batches or {}, {}
        dims, size_values = dict(input_shapes), dict[Tensor, Array]()
        for op in self.model.main.operators:
            affected = any(tensor in dims or tensor in size_values for tensor in op.inputs if tensor is not None)
            computes_sizes = bool(op.outputs) and all(_may_hold_sizes(tensor) for tensor in op.outputs)
            if not (affected or may_lack_shape(op) or computes_sizes):
                continue
            try:
                results = self._results_at_stored_rank(self._without_stored_sizes(op, dims), dims, size_values)
            except (ConversionError, Refusal) as error:
                if not affected:
                    continue
                problems = error.problems if isinstance(error, ConversionError) else ()
                reason = _describe_broadcast(problems[0].reason if problems else str(error), op, dims)
                hint = next((problem.hint for problem in problems if problem.hint), f"{self.remedy}, {_OTHER_REMEDY}")
                problem = self._describe_state_batch(op, reason, dims) or Problem(label(op), reason, hint)
                raise UnsupportedOperator(self.message, [problem]) from error
            is_resized = any(tensor in dims for tensor in op.inputs if tensor is not None)
            for tensor, (sizes, value) in results.items():
                if is_resized or sizes != tensor.dims:
                    dims[tensor] = sizes
                if value is not None:
                    size_values[tensor] = value
        for shapes in self.subgraph_shapes.values():
            dims |= shapes
        return dims

    def _describe_state_batch(self, op: Operator, reason: str, dims: Mapping[Tensor, Dims]) -> Problem | None:
        """Return the problem of a state that fixes the batch; None for other reasons."""
        if not self.batches:
            return None
        state = next((tensor for tensor in op.inputs if tensor is not None and tensor.is_variable), None)
        if state is not None and state.dims and f"state {state.name!r}" in reason:
            text = f"state {state.name!r} of shape {list(state.dims)} fixes the batch at {state.dims[0]}"
            return Problem(label(op), text, _STATE_REMEDY)
        for operand in op.inputs:
            if operand is None or operand in dims or not operand.dims or operand.dims[0] not in self.batches.values():
                continue
            if (name := self._find_state(operand)) is not None:
                fact = f"operand {operand.name!r} of shape {list(operand.dims)} is read from state {name!r}"
                return Problem(label(op), f"{fact}, which fixes the batch at {operand.dims[0]}", _STATE_REMEDY)
        return None

    def _find_state(self, tensor: Tensor) -> str | None:
        """Return the name of the state that a tensor is computed from; None without one."""
        producers = {result: op for op in self.model.main.operators for result in op.outputs if result is not None}
        pending, visited = [tensor], set[Tensor]()
        while pending:
            current = pending.pop()
            if current.is_variable or current.dtype in HANDLES:
                return current.name
            visited.add(current)
            operator = producers.get(current)
            pending += [t for t in (operator.inputs if operator else ()) if t is not None and t not in visited]
        return None

    def _results_at_stored_rank(
        self, op: Operator, dims: Mapping[Tensor, Dims], size_values: Mapping[Tensor, Array]
    ) -> dict[Tensor, tuple[Dims, Array | None]]:
        """Return ``results`` at the stored ranks or, if these do not fit, at other ranks.

        All ranks are tried if ``[]`` is stored or another rank is derived, because a layout may depend on the rank. If
        the stored rank contradicts the file, the ranks that differ by one are tried.
        """
        stored_rank_results, failure = dict[Tensor, tuple[Dims, Array | None]](), None
        try:
            stored_rank_results = self.results(op, dims, size_values)
            uncertain = [tensor for tensor, (sizes, _) in stored_rank_results.items() if len(sizes) != tensor.rank]
            ranks = [*(len(stored_rank_results[tensor][0]) for tensor in uncertain), *candidate_ranks(op, dims)]
        except (ConversionError, Refusal) as error:
            failure = error
            uncertain = [tensor for tensor in op.outputs if tensor is not None and not tensor.shape]
            ranks = list(candidate_ranks(op, dims))
            if not uncertain and isinstance(error, InvalidModel) and len(op.outputs) == 1:
                uncertain = [tensor for tensor in op.outputs if tensor is not None]
                ranks = [rank for tensor in uncertain for rank in (tensor.rank - 1, tensor.rank + 1)]
        results = self._results_at_any_rank(op, dims, size_values, uncertain, ranks) if uncertain else {}
        if failure is not None and not results:
            raise failure
        return results or stored_rank_results

    def _results_at_any_rank(
        self,
        op: Operator,
        dims: Mapping[Tensor, Dims],
        size_values: Mapping[Tensor, Array],
        uncertain: Collection[Tensor],
        ranks: Iterable[int],
    ) -> dict[Tensor, tuple[Dims, Array | None]]:
        """Return ``results`` at the first confirmed rank; empty if there is none.

        A rank is confirmed if the derived shapes of all uncertain tensors have it.
        """
        outputs = tuple(replace(t, has_rank=False) if t is not None and t in uncertain else t for t in op.outputs)
        for rank in dict.fromkeys(ranks):
            try:
                derived = self.results(replace(op, outputs=outputs), dims, size_values, rank)
            except (ConversionError, Failed, Refusal):
                continue
            pairs = zip(op.outputs, outputs, strict=True)
            results = {t: derived[output] for t, output in pairs if t is not None and output in derived}
            if all(len(sizes) == rank for t, (sizes, _) in results.items() if t in uncertain):
                return results
        return {}

    def _without_stored_sizes(self, op: Operator, dims: Mapping[Tensor, Dims]) -> Operator:
        """Return the operator with dynamic sizes in its constants and options."""
        leading_sizes = {t: dims[t][0] or 0 for t in op.inputs if t is not None and t.shape and dims.get(t)}
        batch_sizes = {t.shape[0] for t, size in leading_sizes.items() if self.batches.get(size) == t.shape[0]}
        operand_dims = dims.get(op[0]) if self.named_sizes and op.tensor(0) is not None else None
        bound = self.host.bind_operator(op, self.target, self.target.opsets[2]) if batch_sizes or operand_dims else None
        if not isinstance(bound, Bound) or not bound.handler.dynamic_batch_values:
            return op
        replaced = replace_batch(op, bound.handler, batch_sizes)
        if replaced is op and operand_dims:
            replaced = replace_axis(op, bound.handler, operand_dims, self.named_sizes)
        if replaced is not op:
            self.replaced_operators[op] = replaced
        return replaced

    def shapes(self, op: Operator) -> dict[Tensor, Dims]:
        """Return the shapes of results, derived from stored shapes of operands.

        Raises ConversionError and Refusal if they cannot be derived.
        """
        return {tensor: dims for tensor, (dims, _) in self.results(op, {}, {}, with_values=False).items()}

    def results(
        self,
        op: Operator,
        dims: Mapping[Tensor, Dims],
        size_values: Mapping[Tensor, Array],
        rank: int | None = None,
        *,
        with_values: bool = True,
    ) -> dict[Tensor, tuple[Dims, Array | None]]:
        """Return each result's shape and value; the value is None if it holds no sizes.

        Values are computed for small integer results that depend only on sizes. ``rank``: the rank of results without
        a stored rank. ``with_values``: False returns shapes only. Raises ConversionError and Refusal if nothing can be
        derived.
        """
        operands = {
            tensor: _with_value(resize_tensor(tensor, dims.get(tensor, tensor.dims)), size_values.get(tensor))
            for tensor in op.inputs
            if tensor is not None
        }
        inputs = tuple(None if t is None else operands[t] for t in op.inputs)
        ranks = [None if t is None else _result_rank(t, op, operands) if t.has_rank else rank or 0 for t in op.outputs]
        outputs = [
            None if t is None or result_rank is None else resize_tensor(t, (None,) * result_rank)
            for t, result_rank in zip(op.outputs, ranks, strict=True)
        ]
        isolated = replace(op, inputs=inputs, outputs=tuple(outputs))
        bound = self.bind(isolated)
        declared_shape = self._declared_shape(bound)
        has_handle = any(tensor.dtype in HANDLES for tensor in operands)
        if has_handle and declared_shape is not None:
            return {op[~0]: (declared_shape, None)}
        resized = [t for t in operands if dims.get(t, t.dims) not in (t.dims, t.shape)]
        if (has_handle or bound.declared.accesses_states) and not resized:
            forwarded = {
                t: forwarded_shape(self.model, bound.declared, t, k) for k, t in enumerate(op.outputs) if t is not None
            }
            if all(sizes is not None for sizes in forwarded.values()):
                return {tensor: (sizes or (), None) for tensor, sizes in forwarded.items()}
        if resized and bound.declared.subgraphs and not has_handle:
            return {tensor: (sizes, None) for tensor, sizes in self._results_of_subgraphs(op, bound, dims).items()}
        if any(tensor in dims for tensor in operands):
            check_resizable(bound, [tensor for tensor in resized if tensor.shape or bound.declared.accesses_states])
        if has_handle:
            raise Refusal("the resource has a fixed size")
        if declared_shape is not None and outputs[0] is not None:
            outputs[0] = resize_tensor(outputs[0], declared_shape)
            isolated = replace(isolated, outputs=tuple(outputs))
        # The outputs of the lowered model begin with these tensors; states follow.
        tensors = [tensor for tensor in op.outputs if tensor is not None]
        computes_values = with_values and all(_may_hold_sizes(t) for t in op.outputs)
        values, shapes = self._lower_results(isolated, bound, with_values=computes_values, resized=bool(resized))
        results: dict[Tensor, tuple[Dims, Array | None]] = {}
        for tensor, inferred, value in zip(tensors, shapes, values, strict=False):
            axes_rank = declared_rank(bound, op.outputs.index(tensor))
            if inferred is None and not tensor.has_rank and (axes_rank is None or axes_rank != rank):
                raise Refusal(f"the rank of {tensor.name!r} is known only at runtime")
            shape = (None,) * (tensor.rank if tensor.has_rank else rank or 0) if inferred is None else inferred
            shape = fill_declared(shape, declared_shape if tensor is op.outputs[0] else None)
            if inferred and tensor.dtype.startswith("complex"):
                shape = shape[:-1]
            check_scales(tensor, shape)
            results[tensor] = shape, value
        return results

    def _lower_results(
        self, op: Operator, bound: Bound, *, with_values: bool, resized: bool
    ) -> tuple[Sequence[Array | None], Sequence[Dims | None]]:
        """Return the constant values, if requested, and the shapes of results.

        Equal operators are lowered once.
        """
        is_cacheable = reads_no_subgraph(op) and not (bound.declared.subgraphs or bound.declared.accesses_states)
        key = (shape_key(op), with_values) if is_cacheable else None
        if key in self._lowered:
            return self._lowered[key]
        model = lower_in_isolation(op, self.model, self.host, self.target)
        values = constant_results(model) if with_values else [None] * len(op.outputs)
        shapes = infer(skeleton(model))
        if resized:
            check_states(model, shapes)
        for constant in model.graph.initializers.values():
            constant.const_value = None  # frees the weights, which a reference cycle would keep
        if key is not None:
            self._lowered[key] = values, shapes
        return values, shapes

    def _results_of_subgraphs(self, op: Operator, bound: Bound, dims: Mapping[Tensor, Dims]) -> dict[Tensor, Dims]:
        """Return the shapes of results that subgraphs compute from resized operands.

        Raises Refusal if a rank differs from the stored one, or if another operator calls the subgraph with other shapes.
        """
        previous_calls = dict(self.subgraph_shapes)

        def output_shapes(index: int, operand_shapes: Sequence[Dims | None]) -> list[Dims]:
            return self._subgraph_outputs(index, operand_shapes, previous_calls)

        return subgraph_results(op, bound.declared, dims, output_shapes)

    def _subgraph_outputs(
        self, index: int, operand_shapes: Sequence[Dims | None], previous_calls: Mapping[int, Mapping[Tensor, Dims]]
    ) -> list[Dims]:
        """Return the shapes of a subgraph's outputs for operands of these shapes.

        ``previous_calls``: shapes of the tensors in subgraphs that other operators call.
        """
        graph = self.model.subgraphs[index]
        nested = ShapeDerivation(
            replace(self.model, root=index),
            self.host,
            self.target,
            self.message,
            named_sizes=self.named_sizes,
            remedy=self.remedy,
        )
        nested.replaced_operators, nested._lowered = self.replaced_operators, self._lowered
        pairs = zip(graph.inputs, operand_shapes, strict=False)
        inputs = {tensor: sizes for tensor, sizes in pairs if sizes is not None}
        dims = nested.propagate(inputs, self.batches)
        for called_index, shapes in {**nested.subgraph_shapes, index: dims}.items():
            if previous_calls.get(called_index, shapes) != shapes:
                raise Refusal(f"subgraph {called_index} is called with other shapes by another operator")
            self.subgraph_shapes[called_index] = shapes
        return [dims.get(tensor, tensor.dims) for tensor in graph.outputs]

    def bind(self, op: Operator) -> Bound:
        """Return the operator with its handler, or raise UnsupportedOperator."""
        bound = self.host.bind_operator(op, self.target, self.target.opsets[2])
        if isinstance(bound, Problem):
            raise UnsupportedOperator(self.message, [bound])
        try:
            return resolve_operator(bound, self.target, self.target.opsets[2])
        except Failed as failed:
            raise UnsupportedOperator(self.message, [failed.problem(label(op))]) from failed

    def _declared_shape(self, bound: Bound) -> Dims | None:
        """Return the declared shape of output 0; None if the handler declares none."""
        opset = self.target.opsets[2]
        try:
            return size_of_output(final_operator(bound, self.target, opset), self.target, opset)
        except Failed as failed:
            raise UnsupportedOperator(self.message, [failed.problem(label(bound.op))]) from failed


def is_consistent(stored: Dims, derived: Dims) -> bool:
    """True if a stored shape agrees with a derived shape, and no 0 becomes dynamic."""
    return agree(derived, stored) and (0, None) not in zip(stored, derived, strict=True)


def _result_rank(tensor: Tensor, op: Operator, operands: Mapping[Tensor, Tensor]) -> int:
    """Return the rank of a result for the new ranks of its operands.

    This is the new rank of operand 0 if the stored ranks of operand 0 and the result are equal. Otherwise, it is the
    stored rank of the result.
    """
    first = next((t for t in op.inputs if t is not None), None)
    return operands[first].rank if first is not None and first.rank == tensor.rank else tensor.rank


def candidate_ranks(op: Operator, dims: Mapping[Tensor, Dims]) -> Iterator[int]:
    """Yield ranks to try: the operands' ranks, highest first, then all other ranks."""
    ranks = {len(dims.get(tensor, tensor.dims)) for tensor in op.inputs if tensor is not None}
    yield from dict.fromkeys((*sorted(ranks, reverse=True), *range(MAX_TRIED_RANK + 1)))


def _describe_broadcast(reason: str, op: Operator, dims: Mapping[Tensor, Dims]) -> str:
    """Return the reason, with the operands' shapes if they do not broadcast.

    ONNX's message does not name the shapes.
    """
    if reason != "Incompatible dimensions":
        return reason
    shapes = [format_shape(dims.get(tensor, tensor.dims)) for tensor in op.inputs if tensor is not None]
    return f"the operands of shapes {' and '.join(shapes)} do not broadcast"


def _may_hold_sizes(tensor: Tensor | None) -> bool:
    """True if a result may hold sizes: few integers of static shape."""
    return (
        tensor is not None
        and tensor.dtype in ("int32", "int64")
        and tensor.is_static
        and prod(tensor.shape) <= MAX_SIZES
    )


def _with_value(tensor: Tensor, value: Array | None) -> Tensor:
    return tensor if value is None else replace(tensor, data=EvaluatedData(value))
