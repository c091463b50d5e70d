"""The prompt's graph with copies of the operators that only the single token's has, in their form for prompts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from math import prod

from onnx_tflite_plugin.binding.bound import label
from onnx_tflite_plugin.binding.declared import subgraph_indices
from onnx_tflite_plugin.codes import COMPOSITE
from onnx_tflite_plugin.normalize.alignment import Alignment, HandlerOf, Misaligned, Place, equal_constants, place_of
from onnx_tflite_plugin.source.model import Model, Operator, Subgraph, Tensor

MOST_NUMBERS = 64
"""Elements of an integer constant that is a list of sizes or axes; larger ones are data."""


class Completion:
    """The prompt's graph with copies of the operators that only the single token's has.

    ``head``: the operand of the last operators, which compute each token in isolation.
    """

    def __init__(self, alignment: Alignment, handler_of: HandlerOf) -> None:
        self.alignment, self.handler_of = alignment, handler_of
        self.one, self.two = alignment.one, alignment.two
        self.graph = self.two.form.model.subgraphs[self.two.form.signature.subgraph]
        self.tensors, self.operators = list(self.graph.tensors), list(self.graph.operators)
        self.known: dict[Place, Tensor] = dict(alignment.tensors)
        self.copied: dict[tuple[Place, Tensor], Tensor] = {}
        self.head: Tensor | None = None
        self.users: dict[Place, list[Operator]] = {}
        for op in self.graph.operators:
            if op.tensor(0) is not None:
                self.users.setdefault(place_of(op[0]), []).append(op)
        source = self.one.form.model.subgraphs[self.one.form.signature.subgraph]
        self.source = source
        self.patterns: dict[Hashable, list[Operator]] = {}
        for op in source.operators:
            if place_of(op) in alignment.operators:
                self.patterns.setdefault(self._pattern(op), []).append(op)

    def complete(self) -> tuple[Model, Mapping[str, int]]:
        """Return the model, and all outputs by name. Raises Misaligned for an operator whose form for prompts is not known."""
        ends = self.one.form.ends(self.one.form.signature.outputs)
        own = self.two.form.signature.outputs
        missing = {name: tensor for name, tensor in ends.items() if name not in own}
        for op in self._missing(missing.values()):
            if self.one.is_view_of(op):
                continue  # copied with its user, in the user's form
            if self._copy_known(op):
                self.head = None
            elif not self._copy_in_place(op):
                raise Misaligned(
                    f"{label(op)} is only in {self.one.form.signature.key!r}, and its counterpart for several tokens is unknown"
                )
        made = {name: self.known.get(place_of(tensor)) for name, tensor in missing.items()}
        lost = next((name for name, tensor in made.items() if tensor is None), None)
        if lost is not None:
            raise Misaligned(
                f"output {lost!r} of {self.one.form.signature.key!r} has no counterpart for several tokens"
            )
        added = {name: tensor for name, tensor in made.items() if tensor is not None}
        graph = replace(
            self.graph,
            tensors=tuple(self.tensors),
            operators=tuple(self.operators),
            outputs=(*self.graph.outputs, *added.values()),
        )
        outputs = {**own, **{name: tensor.index for name, tensor in added.items()}}
        return with_graph(self.two.form.model, graph), outputs

    def _missing(self, ends: Iterable[Tensor]) -> list[Operator]:
        """Return the operators that the prompt does not have, in order; views before others are left to their users."""
        wanted = {place_of(tensor) for tensor in ends}
        found: list[Operator] = []
        for op in reversed(self.source.operators):
            places = [place_of(tensor) for tensor in op.outputs if tensor is not None]
            if wanted.isdisjoint(places) or all(place in self.known for place in places):
                continue
            found.append(op)
            for tensor in op.inputs:
                if tensor is not None and not tensor.is_constant:
                    wanted.add(place_of(tensor))
        return found[::-1]

    # --- copies of operators of earlier layers --------------------------------------------------

    def _pattern(self, op: Operator) -> Hashable:
        """Return a key that equal operators of the single token share."""
        handler = self.handler_of(op)
        calls = set() if handler is None else {*handler.subgraphs}
        options = repr(sorted((name, value) for name, value in op.options.items() if name not in calls))
        operands = tuple(None if t is None else self._operand_pattern(t) for t in op.inputs)
        return op.code, op.version, options, operands, tuple(t and (t.dims, t.dtype) for t in op.outputs)

    def _operand_pattern(self, tensor: Tensor) -> Hashable:
        if not tensor.is_constant:
            return tensor.dims, tensor.dtype
        return tensor.dims, tensor.dtype, tensor.array.tobytes() if _is_list(tensor) else None

    def _copy_known(self, op: Operator) -> bool | None:
        """Copy the prompt's form of an equal operator; None if there is none with operands of these shapes."""
        for similar in reversed(self.patterns.get(self._pattern(op), ())):
            form = self.alignment.operators[place_of(similar)]
            inputs = self._inputs(op, similar, form)
            if inputs is not None and self._calls_equal(op, similar):
                self._append(replace(form, inputs=tuple(inputs)), op)
                return True
        return None

    def _inputs(self, op: Operator, similar: Operator, form: Operator) -> list[Tensor | None] | None:
        """Return the operands of a copy; None if an operand and the copied operator's operand have different shapes."""
        chains: list[tuple[Tensor, list[Operator]] | Tensor | None] = []
        for own, other, shaped in zip(op.inputs, similar.inputs, form.inputs, strict=True):
            if own is None or other is None or shaped is None:
                if own is not other or own is not shaped:
                    return None
                chains.append(None)
            elif own.is_constant:
                kept = shaped if _is_list(own) or equal_constants(own, other) else own
                if kept.dims != shaped.dims:
                    return None
                chains.append(replace(kept, subgraph=kept.subgraph))
            else:
                start, views = self.known.get(place_of(self.one.root(own))), self.two.views(shaped)
                if start is None or start.dims not in (shaped.dims, (views[-1][0] if views else shaped).dims):
                    return None
                chains.append((start, [] if start.dims == shaped.dims else views))
        return [self._copy_views(*one) if isinstance(one, tuple) else self._constant(one) for one in chains]

    def _calls_equal(self, op: Operator, similar: Operator) -> bool:
        """True if two operators of the single token call equal subgraphs."""
        handler = self.handler_of(op)
        names = () if handler is None or op.code.startswith(COMPOSITE) else handler.subgraphs
        pairs = zip(subgraph_indices(names, op), subgraph_indices(names, similar), strict=True)
        return all(
            one == two or _are_equal(*(self.one.form.model.subgraphs[k] for k in (one, two))) for one, two in pairs
        )

    def _copy_views(self, start: Tensor, views: list[Operator]) -> Tensor:
        """Return a tensor after copies of the same views."""
        tensor = start
        for op in reversed(views):
            key = place_of(op), tensor
            if key not in self.copied:
                same = next((user for user in self.users.get(place_of(tensor), ()) if _returns_same(user, op)), None)
                copied = replace(op, inputs=(tensor, *op.inputs[1:]))
                self.copied[key] = self._append(copied, None) if same is None else same[~0]
            tensor = self.copied[key]
        return tensor

    # --- other operators ------------------------------------------------------------------------

    def _copy_in_place(self, op: Operator) -> bool | None:
        """Copy an operator of one computed operand that keeps the axis of the tokens; None for others."""
        computed = [t for t in op.inputs if t is not None and not t.is_constant]
        if len({*computed}) != 1 or len(op.outputs) != 1 or op[0] is not computed[0]:
            return None
        tensor = self.known.get(place_of(op[0]))
        result = op[~0]
        if tensor is None or len(tensor.dims) != len(op[0].dims) or result.rank != tensor.rank:
            return None
        axes = [axis for axis, size in enumerate(tensor.dims) if size is None]
        same = all(size in (None, own) for size, own in zip(tensor.dims, op[0].dims, strict=True))
        if (
            len(axes) != 1
            or not same
            or op[0].dims[: axes[0] + 1] != result.dims[: axes[0] + 1]
            or axes[0] == result.rank - 1
        ):
            return None
        handler = self.handler_of(op)
        if (
            handler is None
            or handler.subgraphs
            or any(_is_list(t) for t in op.inputs if t is not None and t.is_constant)
        ):
            return None
        dims = tuple(None if axis == axes[0] else size for axis, size in enumerate(result.dims))
        shape = tuple(tensor.shape[axes[0]] if axis == axes[0] else size for axis, size in enumerate(result.shape))
        inputs = tuple(tensor if t is op[0] else self._constant(t) for t in op.inputs)
        self._append(replace(op, inputs=inputs, outputs=(replace(result, dims=dims, shape=shape),)), op)
        self.head = self.head or tensor
        return True

    # --- the graph ------------------------------------------------------------------------------

    def _constant(self, tensor: Tensor | None) -> Tensor | None:
        """Return a constant as a tensor of the prompt's graph."""
        if tensor is None or tensor.subgraph == self.graph.index:
            return tensor
        key = place_of(tensor)
        if key not in self.known:
            self.known[key] = self._add_tensor(tensor)
        return self.known[key]

    def _add_tensor(self, tensor: Tensor) -> Tensor:
        added = replace(tensor, subgraph=self.graph.index, index=len(self.tensors))
        self.tensors.append(added)
        return added

    def _append(self, op: Operator, source: Operator | None) -> Tensor:
        """Append a copy of an operator with new results, modeled on the results of ``source``; return its first result."""
        outputs = tuple(None if t is None else self._add_tensor(t) for t in op.outputs)
        self.operators.append(replace(op, subgraph=self.graph.index, index=len(self.operators), outputs=outputs))
        if source is not None:
            self.alignment.operators[place_of(source)] = self.operators[-1]
        for own, made in zip(source.outputs if source else (), outputs, strict=False):
            if own is not None and made is not None:
                self.known[place_of(own)] = self.alignment.tensors[place_of(own)] = made
        assert outputs[0] is not None
        return outputs[0]


def with_graph(model: Model, graph: Subgraph) -> Model:
    return replace(model, subgraphs=tuple(graph if one.index == graph.index else one for one in model.subgraphs))


def _is_list(tensor: Tensor) -> bool:
    """True for a constant that may hold sizes or axes."""
    return tensor.dtype in ("int32", "int64") and prod(tensor.shape) <= MOST_NUMBERS


def _returns_same(one: Operator, two: Operator) -> bool:
    """True if two operators of one operand and constants return the same for the same operand."""
    if (one.code, one.version, len(one.inputs)) != (two.code, two.version, len(two.inputs)):
        return False
    pairs = list(zip(one.inputs[1:], two.inputs[1:], strict=True))
    equal = all(a is b or (a and b and a.is_constant and b.is_constant and equal_constants(a, b)) for a, b in pairs)
    return equal and dict(one.options) == dict(two.options) and one[~0].dims == two[~0].dims


def _are_equal(one: Subgraph, two: Subgraph) -> bool:
    """True if two subgraphs have the same operators on the same constants."""
    if len(one.operators) != len(two.operators):
        return False
    paired = dict(zip(map(place_of, one.inputs), map(place_of, two.inputs), strict=False))
    for own, other in zip(one.operators, two.operators, strict=True):
        if (own.code, own.version, len(own.inputs)) != (other.code, other.version, len(other.inputs)):
            return False
        if dict(own.options) != dict(other.options) or own.custom_options != other.custom_options:
            return False
        for a, b in zip(own.inputs, other.inputs, strict=True):
            if a is None or b is None:
                if a is not b:
                    return False
            elif a.is_constant and b.is_constant:
                if a.dims != b.dims or not equal_constants(a, b):
                    return False
            elif paired.get(place_of(a)) != place_of(b):
                return False
        paired |= {place_of(a): place_of(b) for a, b in zip(own.outputs, other.outputs, strict=False) if a and b}
    return [paired.get(place_of(a)) for a in one.outputs] == [place_of(b) for b in two.outputs]
