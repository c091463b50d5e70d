"""Signatures of a file that compute the same function for different numbers of tokens, such as the prompt and the
single token of a language model.

Converters simplify each signature by its sizes: with one token, a Transpose is a Reshape and a Slice of everything is nothing. Therefore
operators are compared without those that change no element, from the outputs of one signature to the common inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api.declarations import Handler
from onnx_tflite_plugin.binding.bound import label
from onnx_tflite_plugin.binding.declared import subgraph_indices
from onnx_tflite_plugin.codes import COMPOSITE
from onnx_tflite_plugin.source.model import Array, Model, Operator, Signature, Tensor

Place = tuple[int, int]
"""A tensor or an operator: its subgraph, and its index there."""
Sizes = tuple[int, ...]
HandlerOf = Callable[[Operator], Handler | None]
IsView = Callable[[Operator, Sizes, Sizes], bool]
"""True for an operator that returns the elements of its operand in order, by the sizes of operand and result."""


class Misaligned(Exception):
    """Signatures that differ in more than one size; the message names the first difference."""


class Form(NamedTuple):
    """A signature's graph for one number of tokens.

    ``stored``: the number for which dynamic dimensions have their stored size; None if all are static.
    """

    model: Model
    signature: Signature
    length: int
    stored: int | None = None

    def sizes(self, tensor: Tensor) -> Sizes:
        """Return the sizes of a tensor for the number of tokens."""
        pairs = zip(tensor.dims, tensor.shape, strict=True)
        return tuple(size * self.length // (self.stored or 1) if dim is None else dim for dim, size in pairs)

    def ends(self, names: Mapping[str, int]) -> dict[str, Tensor]:
        """Return the tensors of one side of the signature, by name."""
        tensors = self.model.subgraphs[self.signature.subgraph].tensors
        return {name: tensors[index] for name, index in names.items()}


class Views:
    """The operators of a form, and which of them change no element."""

    def __init__(self, form: Form, is_view: IsView) -> None:
        self.form, self.is_view = form, is_view
        self.makers = {
            place_of(tensor): op
            for graph in form.model.subgraphs
            for op in graph.operators
            for tensor in op.outputs
            if tensor is not None
        }

    def maker(self, tensor: Tensor) -> Operator | None:
        return self.makers.get(place_of(tensor))

    def is_view_of(self, op: Operator) -> bool:
        """True if an operator returns the elements of its operand in order."""
        operand, result = op.tensor(0), op.tensor(~0)
        if operand is None or result is None or operand.is_constant:
            return False
        return self.is_view(op, self.form.sizes(operand), self.form.sizes(result))

    def views(self, tensor: Tensor) -> list[Operator]:
        """Return the views that end in a tensor, the last first."""
        found: list[Operator] = []
        while (op := self.maker(tensor)) is not None and self.is_view_of(op):
            found.append(op)
            tensor = op[0]
        return found

    def root(self, tensor: Tensor) -> Tensor:
        """Return the tensor that holds the same elements before views."""
        views = self.views(tensor)
        return views[-1][0] if views else tensor


class Alignment:
    """Comparison of two signatures, tensor pair by tensor pair.

    ``tensors``: tensors of the prompt by the place of the matching tensor of ``other``. ``operators``: likewise.
    """

    def __init__(self, other: Views, prompt: Views, handler_of: HandlerOf) -> None:
        self.one, self.two, self.handler_of = other, prompt, handler_of
        self.tensors: dict[Place, Tensor] = {}
        self.operators: dict[Place, Operator] = {}
        self.pairs: set[tuple[Place, Place]] = set()
        self.waiting: list[tuple[Tensor, Tensor]] = []
        self.given: dict[Place, Place] = {}
        self.differences: list[tuple[int, str]] = []

    def compare(self) -> None:
        """Compare all outputs of the prompt. Raises Misaligned with the first difference."""
        one, two = self.one.form, self.two.form
        keys = f"signatures {one.signature.key!r} and {two.signature.key!r}"
        inputs, own = two.ends(two.signature.inputs), one.ends(one.signature.inputs)
        outputs, more = two.ends(two.signature.outputs), one.ends(one.signature.outputs)
        if inputs.keys() != own.keys():
            raise Misaligned(f"{keys} have different inputs: {min(inputs.keys() ^ own.keys())!r}")
        if not outputs.keys() <= more.keys():
            raise Misaligned(f"{keys} have different outputs: {min(outputs.keys() - more.keys())!r}")
        for name, tensor in inputs.items():
            self.given[place_of(own[name])] = place_of(tensor)
            if one.sizes(own[name]) != two.sizes(tensor) or own[name].dtype != tensor.dtype:
                raise Misaligned(f"{keys}: input {name!r} has different sizes or dtypes")
            self.tensors[place_of(own[name])] = tensor
        for name, tensor in outputs.items():
            if one.sizes(more[name]) != two.sizes(tensor):
                raise Misaligned(f"{keys}: output {name!r} has different sizes")
            self._add(more[name], tensor)
        while self.waiting:
            self._compare(*self.waiting.pop())
        if self.differences:
            raise Misaligned(f"{keys}: {min(self.differences)[1]}")

    def _add(self, one: Tensor, two: Tensor) -> None:
        """Compare the elements of two tensors later, once."""
        pair = self.one.root(one), self.two.root(two)
        key = place_of(pair[0]), place_of(pair[1])
        if key not in self.pairs:
            self.pairs.add(key)
            self.waiting.append(pair)

    def _compare(self, one: Tensor, two: Tensor) -> None:
        """Compare two tensors and the operators that compute them."""
        maker, second = self.one.maker(one), self.two.maker(two)
        where = maker.index if maker is not None and maker.subgraph == self.one.form.signature.subgraph else 1 << 30
        if not self._fits(one, two):
            texts = [f"{list(form.sizes(t))} of {t.dtype}" for form, t in ((self.one.form, one), (self.two.form, two))]
            self.differences.append((where, f"tensor {one} is {' and '.join(texts)}"))
        elif one.is_variable or two.is_variable:
            self.differences.append((where, f"tensor {one} is a state"))
        elif maker is None or second is None:
            if maker is not second or self.given.get(place_of(one)) != place_of(two):
                self.differences.append((where, f"tensor {one} is not computed from the same input"))
        elif reason := self._compare_operators(maker, second, maker.outputs.index(one) == second.outputs.index(two)):
            self.differences.append((where, f"{label(maker)}: {reason}"))
        else:
            self.tensors.setdefault(place_of(one), two)

    def _fits(self, one: Tensor, two: Tensor) -> bool:
        """True if two tensors have the same dtype and, ignoring sizes of 1, the same shape."""
        sizes = squeeze(self.one.form.sizes(one)), squeeze(self.two.form.sizes(two))
        return one.dtype == two.dtype and one.quantization == two.quantization and sizes[0] == sizes[1]

    def _compare_operators(self, one: Operator, two: Operator, same_slot: bool) -> str:
        """Return how two operators differ; empty if they do not, and their operands are compared later."""
        if (one.code, one.version, len(one.inputs)) != (two.code, two.version, len(two.inputs)) or not same_slot:
            return f"is {label(two)} in {self.two.form.signature.key!r}"
        handler = self.handler_of(one)
        if handler is None:
            return "is not supported"
        sizes = (name for name in handler.holds_batch if isinstance(name, str))
        skipped = {*handler.subgraphs, *handler.shape_options, *sizes}
        for name in one.options.keys() | two.options.keys():
            if name not in skipped and one.options.get(name) != two.options.get(name):
                return f"option {name} is {one.options.get(name)} against {two.options.get(name)}"
        if one.custom_options != two.custom_options:
            return "has other options"
        for slot, (own, other) in enumerate(zip(one.inputs, two.inputs, strict=True)):
            if own is None or other is None or own.is_constant != other.is_constant:
                if own is not other:
                    return f"operand {slot} is constant or absent in one signature only"
            elif own.is_constant:
                number = handler.holds_batch.get(slot)
                if not (
                    equal_constants(own, other) or (number is not None and _holds_size(own.array, other.array, number))
                ):
                    return f"operand {slot}, a constant, is {_brief(own.array)} against {_brief(other.array)}"
            elif not self._fits(own, other):
                return f"operand {slot} has sizes {list(self.one.form.sizes(own))} against {list(self.two.form.sizes(other))}"
            else:
                self._add(own, other)
        self.operators.setdefault(place_of(one), two)
        return self._compare_bodies(handler, one, two)

    def _compare_bodies(self, handler: Handler, one: Operator, two: Operator) -> str:
        """Compare the subgraphs that two operators call; return how their interfaces differ."""
        if one.code.startswith(
            COMPOSITE
        ):  # name and attributes define it; converters simplify its subgraph by the sizes
            return ""
        indices = subgraph_indices(handler.subgraphs, one), subgraph_indices(handler.subgraphs, two)
        for index, other in zip(*indices, strict=True):
            graph, second = self.one.form.model.subgraphs[index], self.two.form.model.subgraphs[other]
            if (len(graph.inputs), len(graph.outputs)) != (len(second.inputs), len(second.outputs)):
                return f"calls subgraphs {index} and {other}, which have different inputs or outputs"
            for own, second_tensor in zip(graph.inputs, second.inputs, strict=True):
                if self.given.setdefault(place_of(own), place_of(second_tensor)) != place_of(second_tensor):
                    return f"calls subgraph {index} for several subgraphs of {self.two.form.signature.key!r}"
            for own, second_tensor in zip(graph.outputs, second.outputs, strict=True):
                self._add(own, second_tensor)
        return ""


def place_of(one: Tensor | Operator) -> Place:
    return one.subgraph, one.index


def squeeze(sizes: Sizes) -> Sizes:
    return tuple(size for size in sizes if size != 1)


def equal_constants(one: Tensor, two: Tensor) -> bool:
    """True if two constants have the same values and quantization, and the same shape except for sizes of 1."""
    if one.dtype != two.dtype or squeeze(one.shape) != squeeze(two.shape) or not _same_quantization(one, two):
        return False
    return one.data is two.data or np.array_equal(one.array.reshape(-1), two.array.reshape(-1), equal_nan=_has_nan(one))


def _has_nan(tensor: Tensor) -> bool:
    return tensor.dtype in ("float16", "float32", "float64")


def _same_quantization(one: Tensor, two: Tensor) -> bool:
    if one.blocks is None or two.blocks is None:
        return one.quantization == two.quantization
    sizes = one.blocks.block_size == two.blocks.block_size
    return sizes and np.array_equal(one.blocks.scales.array, two.blocks.scales.array)


def _holds_size(own: Array, other: Array, number: int) -> bool:
    """True if two lists of sizes differ only where the second has the number for any size."""
    return own.shape == other.shape and bool(((own == other) | (other == number)).all())


def _brief(array: Array) -> str:
    return str(array.tolist()) if array.size <= 8 else f"{array.dtype} {list(array.shape)}"
