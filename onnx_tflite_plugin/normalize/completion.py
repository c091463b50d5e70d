"""Completion of the prefill graph with operators of the decode graph.

The decode operators are adapted to several tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from math import prod

from onnx_tflite_plugin.binding.bound import label
from onnx_tflite_plugin.binding.declared import subgraph_indices
from onnx_tflite_plugin.codes import COMPOSITE
from onnx_tflite_plugin.normalize.alignment import (
    Alignment,
    HandlerLookup,
    Location,
    Misaligned,
    are_equal_constants,
    location_of,
)
from onnx_tflite_plugin.normalize.equality import MAX_SIZES
from onnx_tflite_plugin.source.model import Model, Operator, Subgraph, Tensor


class Completion:
    """The prefill graph, with copies of the operators that only the decode graph has.

    ``counterparts``: location of a decode tensor -> matching prefill tensor. ``view_copies``: results of
    copied views, by the view and its operand. ``aligned_operators``: decode operators that the prefill graph has too, by
    pattern. ``users``: prefill operators by the location of their first operand. ``head``: the operand of the last
    operators, which compute each token in isolation.
    """

    def __init__(self, alignment: Alignment, handler_of: HandlerLookup) -> None:
        self.alignment, self.handler_of = alignment, handler_of
        self.decode, self.prefill = alignment.signature, alignment.prefill
        self.tensors, self.operators = list(self.prefill.subgraph.tensors), list(self.prefill.subgraph.operators)
        self.counterparts: dict[Location, Tensor] = dict(alignment.tensors)
        self.view_copies: dict[tuple[Location, Tensor], Tensor] = {}
        self.head: Tensor | None = None
        self.users: dict[Location, list[Operator]] = {}
        for op in self.prefill.subgraph.operators:
            if op.tensor(0) is not None:
                self.users.setdefault(location_of(op[0]), []).append(op)
        self.aligned_operators: dict[Hashable, list[Operator]] = {}
        for op in self.decode.subgraph.operators:
            if location_of(op) in alignment.operators:
                self.aligned_operators.setdefault(self._pattern(op), []).append(op)

    def complete(self) -> tuple[Model, Mapping[str, int]]:
        """Return the model, and output name -> tensor index.

        Raises Misaligned for an operator that cannot be adapted to several tokens.
        """
        decode_outputs = self.decode.sized.tensors_by_name(self.decode.sized.signature.outputs)
        prefill_outputs = self.prefill.sized.signature.outputs
        missing_outputs = {name: tensor for name, tensor in decode_outputs.items() if name not in prefill_outputs}
        for op in self._missing_operators(missing_outputs.values()):
            if self.decode.is_view_of(op):
                continue  # copied together with its user
            if self._copy_similar(op):
                self.head = None
            elif not self._copy_tokenwise(op):
                raise Misaligned(
                    f"{label(op)} is only in {self.decode.key!r}, and its counterpart for several tokens is unknown"
                )
        counterparts = {name: self.counterparts.get(location_of(tensor)) for name, tensor in missing_outputs.items()}
        unmatched = next((name for name, tensor in counterparts.items() if tensor is None), None)
        if unmatched is not None:
            raise Misaligned(f"output {unmatched!r} of {self.decode.key!r} has no counterpart for several tokens")
        new_outputs = {name: tensor for name, tensor in counterparts.items() if tensor is not None}
        graph = replace(
            self.prefill.subgraph,
            tensors=tuple(self.tensors),
            operators=tuple(self.operators),
            outputs=(*self.prefill.subgraph.outputs, *new_outputs.values()),
        )
        outputs = {**prefill_outputs, **{name: tensor.index for name, tensor in new_outputs.items()}}
        return with_graph(self.prefill.sized.model, graph), outputs

    def _missing_operators(self, outputs: Iterable[Tensor]) -> list[Operator]:
        """Return the decode operators that ``outputs`` need and the prefill graph lacks."""
        needed = {location_of(tensor) for tensor in outputs}
        missing: list[Operator] = []
        for op in reversed(self.decode.subgraph.operators):
            locations = [location_of(tensor) for tensor in op.outputs if tensor is not None]
            if needed.isdisjoint(locations) or all(location in self.counterparts for location in locations):
                continue
            missing.append(op)
            for tensor in op.inputs:
                if tensor is not None and not tensor.is_constant:
                    needed.add(location_of(tensor))
        return missing[::-1]

    # --- copies of operators of earlier layers --------------------------------------------------

    def _pattern(self, op: Operator) -> Hashable:
        """Return a key that is equal for corresponding operators of different layers."""
        handler = self.handler_of(op)
        subgraph_options = set() if handler is None else {*handler.subgraphs}
        options = repr(sorted((name, value) for name, value in op.options.items() if name not in subgraph_options))
        operands = tuple(None if t is None else self._operand_pattern(t) for t in op.inputs)
        return op.code, op.version, options, operands, tuple(t and (t.dims, t.dtype) for t in op.outputs)

    def _operand_pattern(self, tensor: Tensor) -> Hashable:
        if not tensor.is_constant:
            return tensor.dims, tensor.dtype
        return tensor.dims, tensor.dtype, tensor.array.tobytes() if _is_list(tensor) else None

    def _copy_similar(self, op: Operator) -> bool:
        """Copy the prefill counterpart of a similar decode operator.

        Return False if no similar operator has operands of these shapes.
        """
        for similar in reversed(self.aligned_operators.get(self._pattern(op), ())):
            prefill_op = self.alignment.operators[location_of(similar)]
            inputs = self._operands_of_copy(op, similar, prefill_op)
            if inputs is not None and self._call_equal_subgraphs(op, similar):
                self._append(replace(prefill_op, inputs=tuple(inputs)), op)
                return True
        return False

    def _operands_of_copy(self, op: Operator, similar: Operator, prefill_op: Operator) -> list[Tensor | None] | None:
        """Return the operands with which a copy of ``prefill_op`` computes ``op``.

        Return None if an operand's shape differs from that in ``prefill_op``.
        """
        sources: list[tuple[Tensor, list[Operator]] | Tensor | None] = []
        for operand, similar_operand, prefill_operand in zip(op.inputs, similar.inputs, prefill_op.inputs, strict=True):
            if operand is None or similar_operand is None or prefill_operand is None:
                if operand is not similar_operand or operand is not prefill_operand:
                    return None
                sources.append(None)
            elif operand.is_constant:
                is_shared = _is_list(operand) or are_equal_constants(operand, similar_operand)
                constant = prefill_operand if is_shared else operand
                if constant.dims != prefill_operand.dims:
                    return None
                sources.append(constant)
            else:
                start = self.counterparts.get(location_of(self.decode.viewed_tensor(operand)))
                views = self.prefill.views_before(prefill_operand)
                viewed = views[-1][0] if views else prefill_operand
                if start is None or start.dims not in (prefill_operand.dims, viewed.dims):
                    return None
                sources.append((start, [] if start.dims == prefill_operand.dims else views))
        return [
            self._copy_views(*source) if isinstance(source, tuple) else self._constant(source) for source in sources
        ]

    def _call_equal_subgraphs(self, op: Operator, similar: Operator) -> bool:
        """True if two decode operators call equal subgraphs."""
        handler = self.handler_of(op)
        names = () if handler is None or op.code.startswith(COMPOSITE) else handler.subgraphs
        pairs = zip(subgraph_indices(names, op), subgraph_indices(names, similar), strict=True)
        graphs = self.decode.sized.model.subgraphs
        return all(a == b or _are_equal_subgraphs(graphs[a], graphs[b]) for a, b in pairs)

    def _copy_views(self, start: Tensor, views: list[Operator]) -> Tensor:
        """Return the result of copies of views on ``start``. Existing copies are reused."""
        tensor = start
        for op in reversed(views):
            key = location_of(op), tensor
            if key not in self.view_copies:
                users = self.users.get(location_of(tensor), ())
                existing = next((user for user in users if _have_same_result(user, op)), None)
                copy = replace(op, inputs=(tensor, *op.inputs[1:]))
                self.view_copies[key] = self._append(copy, None) if existing is None else existing[~0]
            tensor = self.view_copies[key]
        return tensor

    # --- other operators ------------------------------------------------------------------------

    def _copy_tokenwise(self, op: Operator) -> bool:
        """Copy an operator that computes each token in isolation.

        Operand 0 and the result have the token axis at the same position; all other operands are constants. Return False
        for other operators.
        """
        computed_operands = [t for t in op.inputs if t is not None and not t.is_constant]
        if len({*computed_operands}) != 1 or len(op.outputs) != 1 or op[0] is not computed_operands[0]:
            return False
        tensor = self.counterparts.get(location_of(op[0]))
        result = op[~0]
        if tensor is None or len(tensor.dims) != len(op[0].dims) or result.rank != tensor.rank:
            return False
        dynamic_axes = [axis for axis, size in enumerate(tensor.dims) if size is None]
        pairs = zip(tensor.dims, op[0].dims, strict=True)
        has_same_shape = all(size in (None, decode_size) for size, decode_size in pairs)
        if len(dynamic_axes) != 1 or not has_same_shape:
            return False
        token_axis = dynamic_axes[0]
        if op[0].dims[: token_axis + 1] != result.dims[: token_axis + 1] or token_axis == result.rank - 1:
            return False
        handler = self.handler_of(op)
        if (
            handler is None
            or handler.subgraphs
            or any(_is_list(t) for t in op.inputs if t is not None and t.is_constant)
        ):
            return False
        dims = tuple(None if axis == token_axis else size for axis, size in enumerate(result.dims))
        shape = tuple(tensor.shape[axis] if axis == token_axis else size for axis, size in enumerate(result.shape))
        inputs = tuple(tensor if t is op[0] else self._constant(t) for t in op.inputs)
        self._append(replace(op, inputs=inputs, outputs=(replace(result, dims=dims, shape=shape),)), op)
        self.head = self.head or tensor
        return True

    # --- the graph ------------------------------------------------------------------------------

    def _constant(self, tensor: Tensor | None) -> Tensor | None:
        """Return a constant as a tensor of the prefill graph."""
        if tensor is None or tensor.subgraph == self.prefill.subgraph.index:
            return tensor
        key = location_of(tensor)
        if key not in self.counterparts:
            self.counterparts[key] = self._add_tensor(tensor)
        return self.counterparts[key]

    def _add_tensor(self, tensor: Tensor) -> Tensor:
        added = replace(tensor, subgraph=self.prefill.subgraph.index, index=len(self.tensors))
        self.tensors.append(added)
        return added

    def _append(self, op: Operator, source: Operator | None) -> Tensor:
        """Append a copy of an operator with new results; return its first result.

        ``source``: the decode operator that the copy corresponds to.
        """
        outputs = tuple(None if t is None else self._add_tensor(t) for t in op.outputs)
        self.operators.append(
            replace(op, subgraph=self.prefill.subgraph.index, index=len(self.operators), outputs=outputs)
        )
        if source is not None:
            self.alignment.operators[location_of(source)] = self.operators[-1]
        for tensor, copy in zip(source.outputs if source else (), outputs, strict=False):
            if tensor is not None and copy is not None:
                self.counterparts[location_of(tensor)] = self.alignment.tensors[location_of(tensor)] = copy
        assert outputs[0] is not None
        return outputs[0]


def with_graph(model: Model, graph: Subgraph) -> Model:
    return replace(model, subgraphs=tuple(graph if g.index == graph.index else g for g in model.subgraphs))


def _is_list(tensor: Tensor) -> bool:
    """True for a constant that may hold sizes or axes."""
    return tensor.dtype in ("int32", "int64") and prod(tensor.shape) <= MAX_SIZES


def _have_same_result(first: Operator, second: Operator) -> bool:
    """True if two operators return equal results whenever their operands 0 are equal.

    All other operands must be equal constants.
    """
    if (first.code, first.version, len(first.inputs)) != (second.code, second.version, len(second.inputs)):
        return False
    pairs = list(zip(first.inputs[1:], second.inputs[1:], strict=True))
    have_equal_constants = all(
        a is b or (a and b and a.is_constant and b.is_constant and are_equal_constants(a, b)) for a, b in pairs
    )
    return have_equal_constants and dict(first.options) == dict(second.options) and first[~0].dims == second[~0].dims


def _are_equal_subgraphs(first: Subgraph, second: Subgraph) -> bool:
    """True if two subgraphs have the same operators on the same constants."""
    if len(first.operators) != len(second.operators):
        return False
    matches = dict(zip(map(location_of, first.inputs), map(location_of, second.inputs), strict=False))
    for op, second_op in zip(first.operators, second.operators, strict=True):
        if (op.code, op.version, len(op.inputs)) != (second_op.code, second_op.version, len(second_op.inputs)):
            return False
        if dict(op.options) != dict(second_op.options) or op.custom_options != second_op.custom_options:
            return False
        for a, b in zip(op.inputs, second_op.inputs, strict=True):
            if a is None or b is None:
                if a is not b:
                    return False
            elif a.is_constant and b.is_constant:
                if a.dims != b.dims or not are_equal_constants(a, b):
                    return False
            elif matches.get(location_of(a)) != location_of(b):
                return False
        matches |= {
            location_of(a): location_of(b) for a, b in zip(op.outputs, second_op.outputs, strict=False) if a and b
        }
    return [matches.get(location_of(a)) for a in first.outputs] == [location_of(b) for b in second.outputs]
