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
from onnx_tflite_plugin.binding.rewriting import final_operator
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, Problem, UnsupportedOperator
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.changes import resize_tensor
from onnx_tflite_plugin.normalize.derivation_failures import describe_failure
from onnx_tflite_plugin.normalize.equality import MAX_SIZES, reads_no_subgraph, shape_key
from onnx_tflite_plugin.normalize.fixed_sizes import check_resizable, check_scales, check_states
from onnx_tflite_plugin.normalize.inference import infer, skeleton
from onnx_tflite_plugin.normalize.isolated_operator import constant_results, lower_in_isolation
from onnx_tflite_plugin.normalize.stored_sizes import fill_declared, replace_axis, replace_batch
from onnx_tflite_plugin.normalize.subgraph_shapes import forwarded_shape, subgraph_results
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Array, ArrayData, Dims, Model, Operator, Tensor, agree
from onnx_tflite_plugin.targets import Target

_REMEDY = "keep the stored size"
MAX_TRIED_RANK = 6


class ShapeDerivation:
    """Derivation of the shapes of a model's tensors.

    ``message``: the first line of an error. ``remedy``: the first remedy in an error. ``named_sizes``: name of a
    dynamic dimension -> stored size. ``replaced_operators``: replacements of operators that store a dynamic size in a constant
    or option. ``subgraph_shapes``: index of a called subgraph -> shapes of its tensors.
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

        ``batches``: sample size of axis 0 -> stored size that it replaces. Raises
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
                problem = describe_failure(op, error, dims, self.model, self.batches.values(), self.remedy)
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
        isolated = _with_dynamic_results(op, operands, rank)
        bound = self.bind(isolated)
        declared_shape = self._declared_shape(bound)
        resized = [t for t in operands if dims.get(t, t.dims) not in (t.dims, t.shape)]
        known_shapes = self._shapes_without_lowering(op, bound, dims, declared_shape, resized)
        if known_shapes is not None:
            return {tensor: (shape, None) for tensor, shape in known_shapes.items()}
        if any(tensor in dims for tensor in operands):
            check_resizable(bound, [tensor for tensor in resized if tensor.shape or bound.declared.accesses_states])
        if _has_handle(op):
            raise Refusal("the resource has a fixed size")
        if declared_shape is not None and isolated.outputs[0] is not None:
            first_output = resize_tensor(isolated.outputs[0], declared_shape)
            isolated = replace(isolated, outputs=(first_output, *isolated.outputs[1:]))
        computes_values = with_values and all(_may_hold_sizes(t) for t in op.outputs)
        values, shapes = self._lower_results(isolated, bound, with_values=computes_values, resized=bool(resized))
        # The outputs of the lowered model begin with these tensors; states follow.
        tensors = [(slot, tensor) for slot, tensor in enumerate(op.outputs) if tensor is not None]
        results: dict[Tensor, tuple[Dims, Array | None]] = {}
        for (slot, tensor), inferred, value in zip(tensors, shapes, values, strict=False):
            if inferred is None and not tensor.has_rank and (rank is None or declared_rank(bound, slot) != rank):
                raise Refusal(f"the rank of {tensor.name!r} is known only at runtime")
            shape = (None,) * (tensor.rank if tensor.has_rank else rank or 0) if inferred is None else inferred
            shape = fill_declared(shape, declared_shape if slot == 0 else None)
            if inferred and tensor.dtype.startswith("complex"):
                shape = shape[:-1]  # the last axis has the real and the imaginary part
            check_scales(tensor, shape)
            results[tensor] = shape, value
        return results

    def _shapes_without_lowering(
        self,
        op: Operator,
        bound: Bound,
        dims: Mapping[Tensor, Dims],
        declared_shape: Dims | None,
        resized: Collection[Tensor],
    ) -> Mapping[Tensor, Dims] | None:
        """Return the results' shapes if they are known without lowering, else None.

        This is the case for operators that access resources or states, or call subgraphs. ``resized``: operands with new
        sizes.
        """
        has_handle = _has_handle(op)
        if has_handle and declared_shape is not None:
            return {op[~0]: declared_shape}
        if (has_handle or bound.declared.accesses_states) and not resized:
            outputs = [(k, tensor) for k, tensor in enumerate(op.outputs) if tensor is not None]
            shapes = {tensor: forwarded_shape(self.model, bound.declared, tensor, k) for k, tensor in outputs}
            known_shapes = {tensor: shape for tensor, shape in shapes.items() if shape is not None}
            if len(known_shapes) == len(shapes):
                return known_shapes
        if resized and bound.declared.subgraphs and not has_handle:
            return self._results_of_subgraphs(op, bound, dims)
        return None

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
    """True if a stored shape agrees with a derived shape; 0 must not become dynamic."""
    return agree(derived, stored) and (0, None) not in zip(stored, derived, strict=True)


def _has_handle(op: Operator) -> bool:
    return any(tensor is not None and tensor.dtype in HANDLES for tensor in op.inputs)


def _with_dynamic_results(op: Operator, operands: Mapping[Tensor, Tensor], rank: int | None) -> Operator:
    """Return the operator with new operands and with results of dynamic shape.

    ``rank``: the rank of results without a stored rank.
    """
    outputs: list[Tensor | None] = []
    for tensor in op.outputs:
        if tensor is None:
            outputs.append(None)
        else:
            result_rank = _result_rank(tensor, op, operands) if tensor.has_rank else rank or 0
            outputs.append(resize_tensor(tensor, (None,) * result_rank))
    inputs = tuple(None if tensor is None else operands[tensor] for tensor in op.inputs)
    return replace(op, inputs=inputs, outputs=tuple(outputs))


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


def _may_hold_sizes(tensor: Tensor | None) -> bool:
    """True if a result may hold sizes: few integers of static shape."""
    return (
        tensor is not None
        and tensor.dtype in ("int32", "int64")
        and tensor.is_static
        and prod(tensor.shape) <= MAX_SIZES
    )


def _with_value(tensor: Tensor, value: Array | None) -> Tensor:
    return tensor if value is None else replace(tensor, data=ArrayData(value))
