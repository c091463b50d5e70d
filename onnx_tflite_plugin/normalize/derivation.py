"""Tensor shapes, derived from the shapes of graph inputs.

Each operator is lowered in isolation, with the new shapes of its operands and dynamic shapes of its results; ONNX's shape
inference then gives the results' shapes. A handler whose lowering takes sizes from the file declares ``sizes``. Small
integer tensors that depend only on sizes are computed, because shapes may depend on them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Bound, Declared, label
from onnx_tflite_plugin.binding.consistency import declared_rank, may_lack_shape
from onnx_tflite_plugin.binding.declared import resolve, resolve_operator, size_of_output
from onnx_tflite_plugin.binding.evaluation import Evaluated
from onnx_tflite_plugin.binding.rewriting import final
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, Problem, UnsupportedOperator
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.plan import plan_layout, tensor_bytes
from onnx_tflite_plugin.layout.propagation import InterfaceLayouts
from onnx_tflite_plugin.layout.tensor_layout import source_layout
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.interface import InterfaceNames
from onnx_tflite_plugin.lowering.lower import lower
from onnx_tflite_plugin.normalize.changes import resize_tensor, with_main
from onnx_tflite_plugin.normalize.equality import MOST_NUMBERS, describe_shapes, reads_no_subgraph
from onnx_tflite_plugin.normalize.fixed_sizes import check_free, check_scales, check_states
from onnx_tflite_plugin.normalize.held_sizes import fill_declared, replace_axis, replace_batch
from onnx_tflite_plugin.normalize.inference import infer, skeleton
from onnx_tflite_plugin.quantization.plan import plan_storage
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Array, Dims, Model, Operator, Subgraph, Tensor, agree
from onnx_tflite_plugin.targets import Target

_REMEDY = "keep the stored size, or leave the operator out with --outputs TENSOR"
_REMEDY_OF_STATE = "keep the stored batch: omit --dynamic-batch"
HIGHEST_RANK = 6  # the last rank that is tried


class Sizes:
    """Derives the shapes of a model's tensors. ``message``: the start of an error.

    ``operators_without_batch``: operators with constants that hold the size of axis 0, which is replaced because it is
    dynamic. ``named``: stored sizes that are dynamic by name; constants that hold them are replaced regardless of the axis.
    ``inner``: the shapes of tensors in called subgraphs, by the subgraph's index.
    """

    def __init__(self, model: Model, host: Host, target: Target, message: str, *, named: Collection[int] = ()) -> None:
        self.model, self.host, self.target, self.message, self.named = model, host, target, message, named
        self.operators_without_batch: dict[Operator, Operator] = {}
        self.inner: dict[int, dict[Tensor, Dims]] = {}
        self.batches: Mapping[int, int] = {}
        self.known: dict[Hashable, tuple[Sequence[Array | None], Sequence[Dims | None]]] = {}

    def propagate(self, given: Mapping[Tensor, Dims], batches: Mapping[int, int] | None = None) -> dict[Tensor, Dims]:
        """Return the shapes of these graph inputs and of every tensor that depends on them.

        ``batches``: sample sizes of a dynamic axis 0, with the stored size that each replaces. Raises UnsupportedOperator for the
        first operator whose output shapes cannot be derived.
        """
        self.batches, self.inner = batches or {}, {}
        dims, numbers = dict(given), dict[Tensor, Array]()
        for op in self.model.main.operators:
            affected = any(tensor in dims or tensor in numbers for tensor in op.inputs if tensor is not None)
            if not (
                affected or may_lack_shape(op) or (op.outputs and all(_may_hold_sizes(tensor) for tensor in op.outputs))
            ):
                continue
            try:
                results = self._results_at_stored_rank(self._without_stored_sizes(op, dims), dims, numbers)
            except (ConversionError, Refusal) as error:
                if not affected:
                    continue
                problems = error.problems if isinstance(error, ConversionError) else ()
                reason = _describe_broadcast(problems[0].reason if problems else str(error), op, dims)
                problem = self._describe_state(op, reason) or Problem(label(op), reason, _REMEDY)
                raise UnsupportedOperator(self.message, [problem]) from error
            is_resized = any(tensor in dims for tensor in op.inputs if tensor is not None)
            for tensor, (sizes, value) in results.items():
                if is_resized or sizes != tensor.dims:
                    dims[tensor] = sizes
                if value is not None:
                    numbers[tensor] = value
        for inner in self.inner.values():
            dims |= inner
        return dims

    def _describe_state(self, op: Operator, reason: str) -> Problem | None:
        """Return the problem of an operator whose state has a batch of its own; None if another reason declines it."""
        state = next((tensor for tensor in op.inputs if tensor is not None and tensor.is_variable), None)
        if not self.batches or state is None or not state.dims or f"state {state.name!r}" not in reason:
            return None
        text = f"state {state.name!r} of shape {list(state.dims)} fixes the batch at {state.dims[0]}"
        return Problem(label(op), text, _REMEDY_OF_STATE)

    def _results_at_stored_rank(
        self, op: Operator, dims: Mapping[Tensor, Dims], numbers: Mapping[Tensor, Array]
    ) -> dict[Tensor, tuple[Dims, Array | None]]:
        """Return ``results`` at the stored ranks or, if these do not fit, at derived ranks or at ranks that differ by
        one.

        If ``[]`` is stored, or another rank follows, all ranks are tried because a layout may depend on the rank.
        """
        stored, failure = dict[Tensor, tuple[Dims, Array | None]](), None
        try:
            stored = self.results(op, dims, numbers)
            doubtful = [tensor for tensor, (sizes, _) in stored.items() if len(sizes) != tensor.rank]
            ranks = [*(len(stored[tensor][0]) for tensor in doubtful), *candidate_ranks(op, dims)]
        except (ConversionError, Refusal) as error:
            failure = error
            doubtful = [tensor for tensor in op.outputs if tensor is not None and not tensor.shape]
            ranks = list(candidate_ranks(op, dims))
            if not doubtful and isinstance(error, InvalidModel) and len(op.outputs) == 1:
                doubtful = [tensor for tensor in op.outputs if tensor is not None]
                ranks = [rank for tensor in doubtful for rank in (tensor.rank - 1, tensor.rank + 1)]
        found = self._results_at_any_rank(op, dims, numbers, doubtful, ranks) if doubtful else {}
        if failure is not None and not found:
            raise failure
        return found or stored

    def _results_at_any_rank(
        self,
        op: Operator,
        dims: Mapping[Tensor, Dims],
        numbers: Mapping[Tensor, Array],
        doubtful: Collection[Tensor],
        ranks: Iterable[int],
    ) -> dict[Tensor, tuple[Dims, Array | None]]:
        """Return ``results`` at the first rank that the doubtful tensors get again; nothing if there is none."""
        outputs = tuple(replace(t, has_rank=False) if t is not None and t in doubtful else t for t in op.outputs)
        for rank in dict.fromkeys(ranks):
            try:
                found = self.results(replace(op, outputs=outputs), dims, numbers, rank)
            except (ConversionError, Failed, Refusal):
                continue
            results = {t: found[o] for t, o in zip(op.outputs, outputs, strict=True) if t is not None and o in found}
            if all(len(sizes) == rank for t, (sizes, _) in results.items() if t in doubtful):
                return results
        return {}

    def _without_stored_sizes(self, op: Operator, dims: Mapping[Tensor, Dims]) -> Operator:
        """Return the operator with dynamic sizes in constants and options that hold stored sizes of an operand."""
        first = {t: dims[t][0] or 0 for t in op.inputs if t is not None and t.shape and dims.get(t)}
        carried = {t.shape[0] for t, size in first.items() if self.batches.get(size) == t.shape[0]}
        whole = dims.get(op[0]) if self.named and op.tensor(0) is not None else None
        bound = self.host.take(op, self.target, self.target.opsets[2]) if carried or whole else None
        if not isinstance(bound, Bound) or not bound.handler.holds_batch:
            return op
        found = replace_batch(op, bound.handler, carried)
        if found is op and whole:
            found = replace_axis(op, bound.handler, whole, self.named)
        if found is not op:
            self.operators_without_batch[op] = found
        return found

    def shapes(self, op: Operator) -> dict[Tensor, Dims]:
        """Return the shapes of an operator's results that follow from the stored ones of its operands.

        Raises ConversionError and Refusal if none follow.
        """
        return {tensor: dims for tensor, (dims, _) in self.results(op, {}, {}, values=False).items()}

    def results(
        self,
        op: Operator,
        dims: Mapping[Tensor, Dims],
        numbers: Mapping[Tensor, Array],
        rank: int | None = None,
        *,
        values: bool = True,
    ) -> dict[Tensor, tuple[Dims, Array | None]]:
        """Return the shape of each result, and the value of small integer results that no runtime value changes.

        ``rank``: the rank of results that have no stored rank. ``values``: False returns only shapes. Raises
        ConversionError and Refusal if nothing can be derived.
        """
        operands = {
            tensor: _with_value(resize_tensor(tensor, dims.get(tensor, tensor.dims)), numbers.get(tensor))
            for tensor in op.inputs
            if tensor is not None
        }
        opened = [
            None if t is None else resize_tensor(t, (None,) * (_rank(t, op, operands) if t.has_rank else rank or 0))
            for t in op.outputs
        ]
        alone = replace(op, inputs=tuple(None if t is None else operands[t] for t in op.inputs), outputs=tuple(opened))
        bound = self.bind(alone)
        sizes = self._declared_shape(bound)
        handles = any(tensor.dtype in HANDLES for tensor in operands)
        if handles and sizes is not None:
            return {op[~0]: (sizes, None)}
        resized = [t for t in operands if dims.get(t, t.dims) not in (t.dims, t.shape)]
        if (handles or bound.declared.accesses_states) and not resized:
            passed = {t: self._forwarded_shape(bound.declared, t, k) for k, t in enumerate(op.outputs) if t is not None}
            if all(sizes is not None for sizes in passed.values()):
                return {tensor: (sizes or (), None) for tensor, sizes in passed.items()}
        if resized and bound.declared.subgraphs and not handles:
            return {tensor: (sizes, None) for tensor, sizes in self._subgraph_results(op, bound.declared, dims).items()}
        if any(tensor in dims for tensor in operands):
            check_free(bound, [tensor for tensor in resized if tensor.shape or bound.declared.accesses_states])
        if handles:
            raise Refusal("the resource has a fixed size")
        if sizes is not None and opened[0] is not None:
            opened[0] = resize_tensor(opened[0], sizes)
            alone = replace(alone, outputs=tuple(opened))
        tensors = [tensor for tensor in op.outputs if tensor is not None]  # states follow them
        wanted = values and all(_may_hold_sizes(t) for t in op.outputs)
        computed, shapes = self._lower_results(alone, bound, values=wanted, resized=bool(resized))
        results: dict[Tensor, tuple[Dims, Array | None]] = {}
        for tensor, inferred, value in zip(tensors, shapes, computed, strict=False):
            declared = declared_rank(bound, op.outputs.index(tensor))
            if inferred is None and not tensor.has_rank and (declared is None or declared != rank):
                raise Refusal(f"the rank of {tensor.name!r} is known only at runtime")
            own = sizes if tensor is op.outputs[0] else None
            found = (None,) * (tensor.rank if tensor.has_rank else rank or 0) if inferred is None else inferred
            found = fill_declared(found, own)[: -1 if inferred and tensor.dtype.startswith("complex") else None]
            check_scales(tensor, found)
            results[tensor] = found, value
        return results

    def _lower_results(
        self, op: Operator, bound: Bound, *, values: bool, resized: bool
    ) -> tuple[Sequence[Array | None], Sequence[Dims | None]]:
        """Return the constant values, if requested, and the shapes of results; equal operators are lowered once."""
        repeats = reads_no_subgraph(op) and not (bound.declared.subgraphs or bound.declared.accesses_states)
        key = (describe_shapes(op), values) if repeats else None
        if key in self.known:
            return self.known[key]
        model = self.lower_in_isolation(op)
        computed = _constant_results(model) if values else [None] * len(op.outputs)
        shapes = infer(skeleton(model))
        if resized:
            check_states(model, shapes)
        for constant in model.graph.initializers.values():
            constant.const_value = None  # weights; the model is part of a reference cycle
        if key is not None:
            self.known[key] = computed, shapes
        return computed, shapes

    def _subgraph_results(self, op: Operator, declared: Declared, dims: Mapping[Tensor, Dims]) -> dict[Tensor, Dims]:
        """Return the shapes of results that an operator's subgraphs compute from operands of other shapes.

        A size that differs between iterations of a loop or between branches is dynamic. Raises Refusal for a rank that differs,
        and for a subgraph that is called with other shapes elsewhere.
        """
        first, loops = (declared.boundary.first, declared.boundary.loops) if declared.boundary else (0, False)
        given = [None if tensor is None else dims.get(tensor, tensor.dims) for tensor in op.inputs[first:]]
        before = dict(self.inner)
        while True:
            results = [self._subgraph_outputs(index, given, before) for index in declared.subgraphs]
            if not loops:
                break
            carried = [_merge_shapes(own, other) for own, other in zip(given, results[-1], strict=True)]
            if carried == given:
                break
            given = carried
        found = given if loops else [reduce(_merge_shapes, each) for each in zip(*results, strict=True)]
        return {t: sizes for t, sizes in zip(op.outputs, found, strict=False) if t is not None and sizes is not None}

    def _subgraph_outputs(
        self, index: int, given: Sequence[Dims | None], before: Mapping[int, Mapping[Tensor, Dims]]
    ) -> list[Dims]:
        """Return the shapes of a subgraph's outputs for these inputs; ``before``: shapes of subgraphs called earlier."""
        graph = self.model.subgraphs[index]
        nested = Sizes(replace(self.model, root=index), self.host, self.target, self.message, named=self.named)
        nested.operators_without_batch, nested.known = self.operators_without_batch, self.known
        inputs = {tensor: sizes for tensor, sizes in zip(graph.inputs, given, strict=False) if sizes is not None}
        dims = nested.propagate(inputs, self.batches)
        for called, shapes in {**nested.inner, index: dims}.items():
            if before.get(called, shapes) != shapes:
                raise Refusal(f"subgraph {called} is called with other shapes by another operator")
            self.inner[called] = shapes
        return [dims.get(tensor, tensor.dims) for tensor in graph.outputs]

    def _forwarded_shape(self, declared: Declared, tensor: Tensor, output: int) -> Dims | None:
        """Return the stored shape of an operator's output, else of its subgraphs' outputs; None if unknown."""
        loops = declared.boundary is not None and declared.boundary.loops
        indices = declared.subgraphs[-1:] if loops else declared.subgraphs
        if tensor.shape or any(index >= len(self.model.subgraphs) for index in indices):
            return tensor.dims if tensor.has_rank else None
        inner = [self.model.subgraphs[index].outputs[output : output + 1] for index in indices]
        results = [result for outputs in inner for result in outputs if result.has_rank]
        if not results or len(results) < len(indices) or len({result.rank for result in results}) > 1:
            return tensor.dims if tensor.has_rank else None
        sizes = zip(*(result.dims for result in results), strict=True)
        return tuple(own[0] if len(set(own)) == 1 else None for own in sizes)

    def bind(self, op: Operator) -> Bound:
        """Return the operator bound to its handler. Raises UnsupportedOperator if that fails."""
        bound = self.host.take(op, self.target, self.target.opsets[2])
        if isinstance(bound, Problem):
            raise UnsupportedOperator(self.message, [bound])
        try:
            return resolve_operator(bound, self.target, self.target.opsets[2])
        except Failed as failed:
            raise UnsupportedOperator(self.message, [failed.problem(label(op))]) from failed

    def _declared_shape(self, bound: Bound) -> Dims | None:
        """Return the shape of output 0 that the handler declares; None if it declares none."""
        opset = self.target.opsets[2]
        try:
            return size_of_output(final(bound, self.target, opset), self.target, opset)
        except Failed as failed:
            raise UnsupportedOperator(self.message, [failed.problem(label(bound.op))]) from failed

    def lower_in_isolation(self, op: Operator) -> ir.Model:
        """Return an ONNX model of one operator, in the file's layout."""
        inputs = tuple(dict.fromkeys(t for t in op.inputs if t is not None and not t.is_constant))
        outputs = tuple(t for t in op.outputs if t is not None)
        opset = self.target.opsets[2]
        if reads_no_subgraph(op):  # others take time, each of hundreds
            alone = replace(self.model, subgraphs=(Subgraph(0, "", (), inputs, outputs, (op,)),), root=0)
        else:
            alone = with_main(self.model, Subgraph(self.model.root, "", (), inputs, outputs, (op,)))
        model = resolve(self.host.bind(alone, self.target, opset), self.target, opset)
        edges = InterfaceLayouts({tensor: source_layout(tensor.dims) for tensor in (*inputs, *outputs)})
        layout = plan_layout(model, bytes_of=tensor_bytes, prices=self.target.price, interface=edges, local=True)
        names = InterfaceNames(tuple(f"x{k}" for k in range(len(inputs))), tuple(f"y{k}" for k in range(len(outputs))))
        emitter = Emitter(opset, UniqueNames(), self.target.widens)
        return lower(model, layout, plan_storage(model, self.target), self.target, emitter, names=names)


def is_consistent(stored: Dims, derived: Dims) -> bool:
    """Return True if a stored shape agrees with the derived one, and no 0 is stored for a dynamic size."""
    return agree(derived, stored) and (0, None) not in zip(stored, derived, strict=True)


def _merge_shapes(one: Dims | None, other: Dims | None) -> Dims | None:
    """Return the shape of a tensor that has either; differing sizes become dynamic. Raises Refusal if the ranks differ."""
    if one is None or other is None:
        return None
    if len(one) != len(other):
        raise Refusal(f"a tensor has shape {list(one)} or {list(other)}, depending on the subgraph")
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _rank(tensor: Tensor, op: Operator, operands: Mapping[Tensor, Tensor]) -> int:
    """Return a result's rank: the first operand's, if their stored ranks are equal."""
    first = next((t for t in op.inputs if t is not None), None)
    return operands[first].rank if first is not None and first.rank == tensor.rank else tensor.rank


def candidate_ranks(op: Operator, dims: Mapping[Tensor, Dims]) -> Iterator[int]:
    """Yield ranks to try for a result: the operands' first, highest first, since a lower rank may be any Reshape."""
    ranks = {len(dims.get(tensor, tensor.dims)) for tensor in op.inputs if tensor is not None}
    yield from dict.fromkeys((*sorted(ranks, reverse=True), *range(HIGHEST_RANK + 1)))


def _describe_broadcast(reason: str, op: Operator, dims: Mapping[Tensor, Dims]) -> str:
    """Return a reason with the operands' shapes instead of ONNX's text about operands that do not broadcast."""
    if reason != "Incompatible dimensions":
        return reason
    known = (dims.get(tensor, tensor.dims) for tensor in op.inputs if tensor is not None)
    shapes = [f"[{', '.join('?' if size is None else str(size) for size in sizes)}]" for sizes in known]
    return f"the operands of shapes {' and '.join(shapes)} do not broadcast"


def _may_hold_sizes(tensor: Tensor | None) -> bool:
    """Return True if a result may hold sizes: few integers of static shape."""
    return (
        tensor is not None
        and tensor.dtype in ("int32", "int64")
        and tensor.is_static
        and prod(tensor.shape) <= MOST_NUMBERS
    )


def _with_value(tensor: Tensor, value: Array | None) -> Tensor:
    return tensor if value is None else replace(tensor, data=Evaluated(value))


def _constant_results(model: ir.Model) -> Sequence[Array | None]:
    """Return the value of each graph output; None for all if a graph input is used."""
    used = {value for node in model.graph.all_nodes() for value in node.inputs}
    if used & set(model.graph.inputs):
        return [None] * len(model.graph.outputs)
    from onnx.reference import ReferenceEvaluator

    results = ReferenceEvaluator(ir.to_proto(model)).run(
        None, {str(value.name): _placeholder(value) for value in model.graph.inputs}
    )
    return [np.asarray(result) for result in results]


def _placeholder(value: ir.Value) -> Array:
    """Return an array for a graph input that no node uses."""
    return np.zeros((), value.type.dtype.numpy() if value.type is not None else np.float32)
