"""Comparison of signatures that differ only in their number of tokens.

For example, a language model has a prefill signature for prompts and a decode signature for one token. Converters
simplify each signature for its sizes: with one token, a Transpose becomes a Reshape, and a Slice of all elements disappears. The
comparison starts at the outputs and goes back to the inputs. It skips views: operators that only reshape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api.declarations import Handler
from onnx_tflite_plugin.binding.bound import label
from onnx_tflite_plugin.binding.declared import subgraph_indices
from onnx_tflite_plugin.codes import COMPOSITE
from onnx_tflite_plugin.source.model import Array, Model, Operator, Signature, Subgraph, Tensor

Location = tuple[int, int]
"""Subgraph and index of a tensor or an operator."""
Shape = tuple[int, ...]
HandlerLookup = Callable[[Operator], Handler | None]
ViewPredicate = Callable[[Operator, Shape, Shape], bool]
"""True if an operator is a view, given the shapes of its operand and result."""


class Misaligned(Exception):
    """Signatures differ in more than the number of tokens; the message says how."""


class SizedSignature(NamedTuple):
    """A signature, run with ``length`` tokens.

    ``stored_length``: the number of tokens for which the file stores the sizes of dynamic dimensions; None
    if all dimensions are static.
    """

    model: Model
    signature: Signature
    length: int
    stored_length: int | None = None

    def sizes(self, tensor: Tensor) -> Shape:
        """Return the shape of a tensor for this number of tokens."""
        pairs = zip(tensor.dims, tensor.shape, strict=True)
        return tuple(size * self.length // (self.stored_length or 1) if dim is None else dim for dim, size in pairs)

    def tensors_by_name(self, names: Mapping[str, int]) -> dict[str, Tensor]:
        """Return name -> tensor of the signature's inputs or outputs (``names``)."""
        tensors = self.model.subgraphs[self.signature.subgraph].tensors
        return {name: tensors[index] for name, index in names.items()}


class SignatureGraph:
    """The subgraph of a signature, with the producer of each tensor and the views.

    A view only reshapes its operand.
    """

    def __init__(self, sized: SizedSignature, is_view: ViewPredicate) -> None:
        self.sized, self.is_view = sized, is_view
        self.producers = {
            location_of(tensor): op
            for graph in sized.model.subgraphs
            for op in graph.operators
            for tensor in op.outputs
            if tensor is not None
        }

    @property
    def key(self) -> str:
        return self.sized.signature.key

    @property
    def subgraph(self) -> Subgraph:
        return self.sized.model.subgraphs[self.sized.signature.subgraph]

    def sizes(self, tensor: Tensor) -> Shape:
        return self.sized.sizes(tensor)

    def producer(self, tensor: Tensor) -> Operator | None:
        return self.producers.get(location_of(tensor))

    def is_view_of(self, op: Operator) -> bool:
        """True if an operator is a view of operand 0."""
        operand, result = op.tensor(0), op.tensor(~0)
        if operand is None or result is None or operand.is_constant:
            return False
        return self.is_view(op, self.sizes(operand), self.sizes(result))

    def views_before(self, tensor: Tensor) -> list[Operator]:
        """Return the chain of views whose result is the tensor, the last view first."""
        views: list[Operator] = []
        while (op := self.producer(tensor)) is not None and self.is_view_of(op):
            views.append(op)
            tensor = op[0]
        return views

    def viewed_tensor(self, tensor: Tensor) -> Tensor:
        """Return the operand of the first view in the chain; without views, the tensor."""
        views = self.views_before(tensor)
        return views[-1][0] if views else tensor


class Alignment:
    """Comparison of a signature with the prefill signature, tensor by tensor.

    ``tensors``: location of a tensor -> matching tensor of the prefill signature. ``operators``: location of an operator ->
    matching operator of the prefill signature. ``input_pairs``: locations of matching inputs of
    the signatures and of subgraphs that they call.
    """

    def __init__(self, signature: SignatureGraph, prefill: SignatureGraph, handler_of: HandlerLookup) -> None:
        self.signature, self.prefill, self.handler_of = signature, prefill, handler_of
        self.tensors: dict[Location, Tensor] = {}
        self.operators: dict[Location, Operator] = {}
        self.compared: set[tuple[Location, Location]] = set()
        self.pending: list[tuple[Tensor, Tensor]] = []
        self.input_pairs: dict[Location, Location] = {}
        self.differences: list[tuple[int, str]] = []

    def compare(self) -> None:
        """Compare all outputs of the prefill signature.

        Raises Misaligned with the first difference.
        """
        sized, sized_prefill = self.signature.sized, self.prefill.sized
        keys = f"signatures {self.signature.key!r} and {self.prefill.key!r}"
        prefill_inputs = sized_prefill.tensors_by_name(sized_prefill.signature.inputs)
        prefill_outputs = sized_prefill.tensors_by_name(sized_prefill.signature.outputs)
        inputs = sized.tensors_by_name(sized.signature.inputs)
        outputs = sized.tensors_by_name(sized.signature.outputs)
        if prefill_inputs.keys() != inputs.keys():
            raise Misaligned(f"{keys} have different inputs: {min(prefill_inputs.keys() ^ inputs.keys())!r}")
        if not prefill_outputs.keys() <= outputs.keys():
            raise Misaligned(f"{keys} have different outputs: {min(prefill_outputs.keys() - outputs.keys())!r}")
        for name, tensor in prefill_inputs.items():
            self.input_pairs[location_of(inputs[name])] = location_of(tensor)
            if sized.sizes(inputs[name]) != sized_prefill.sizes(tensor) or inputs[name].dtype != tensor.dtype:
                raise Misaligned(f"{keys}: input {name!r} has different sizes or dtypes")
            self.tensors[location_of(inputs[name])] = tensor
        for name, tensor in prefill_outputs.items():
            if sized.sizes(outputs[name]) != sized_prefill.sizes(tensor):
                raise Misaligned(f"{keys}: output {name!r} has different sizes")
            self._add(outputs[name], tensor)
        while self.pending:
            self._compare(*self.pending.pop())
        if self.differences:
            raise Misaligned(f"{keys}: {min(self.differences)[1]}")

    def _add(self, tensor: Tensor, prefill_tensor: Tensor) -> None:
        """Queue two tensors for comparison, if not done yet; skip the views before them."""
        pair = self.signature.viewed_tensor(tensor), self.prefill.viewed_tensor(prefill_tensor)
        key = location_of(pair[0]), location_of(pair[1])
        if key not in self.compared:
            self.compared.add(key)
            self.pending.append(pair)

    def _compare(self, tensor: Tensor, prefill_tensor: Tensor) -> None:
        """Compare two tensors and the operators that compute them."""
        producer, prefill_producer = self.signature.producer(tensor), self.prefill.producer(prefill_tensor)
        main = self.signature.sized.signature.subgraph
        after_all_operators = 1 << 30
        is_in_main = producer is not None and producer.subgraph == main
        position = producer.index if producer is not None and is_in_main else after_all_operators
        if not self._have_equal_sizes(tensor, prefill_tensor):
            pairs = (self.signature.sized, tensor), (self.prefill.sized, prefill_tensor)
            descriptions = [f"{list(sized.sizes(t))} of {t.dtype}" for sized, t in pairs]
            self.differences.append((position, f"tensor {tensor} is {' and '.join(descriptions)}"))
        elif tensor.is_variable or prefill_tensor.is_variable:
            self.differences.append((position, f"tensor {tensor} is a state"))
        elif producer is None or prefill_producer is None:
            if producer is not prefill_producer or self.input_pairs.get(location_of(tensor)) != location_of(
                prefill_tensor
            ):
                self.differences.append((position, f"tensor {tensor} is not computed from the same input"))
        elif reason := self._compare_operators(
            producer,
            prefill_producer,
            same_slot=producer.outputs.index(tensor) == prefill_producer.outputs.index(prefill_tensor),
        ):
            self.differences.append((position, f"{label(producer)}: {reason}"))
        else:
            self.tensors.setdefault(location_of(tensor), prefill_tensor)

    def _have_equal_sizes(self, tensor: Tensor, prefill_tensor: Tensor) -> bool:
        """True if dtypes, quantizations and sizes are equal, except for axes of size 1."""
        if (tensor.dtype, tensor.quantization) != (prefill_tensor.dtype, prefill_tensor.quantization):
            return False
        return squeeze(self.signature.sizes(tensor)) == squeeze(self.prefill.sizes(prefill_tensor))

    def _compare_operators(self, op: Operator, prefill_op: Operator, same_slot: bool) -> str:
        """Return the difference of two operators, or queue their operands for comparison."""
        key = self.prefill.key
        kinds = [(x.code, x.version, len(x.inputs)) for x in (op, prefill_op)]
        if kinds[0] != kinds[1] or not same_slot:
            return f"the corresponding operator in {key!r} is {label(prefill_op)}"
        handler = self.handler_of(op)
        if handler is None:
            return "the operator is not supported"
        size_options = (name for name in handler.dynamic_batch_values if isinstance(name, str))
        skipped = {*handler.subgraphs, *handler.shape_options, *size_options}
        for name in op.options.keys() | prefill_op.options.keys():
            if name not in skipped and op.options.get(name) != prefill_op.options.get(name):
                return f"option {name} is {op.options.get(name)}, but {prefill_op.options.get(name)} in {key!r}"
        if op.custom_options != prefill_op.custom_options:
            return f"the custom options differ from those in {key!r}"
        for slot, (operand, prefill_operand) in enumerate(zip(op.inputs, prefill_op.inputs, strict=True)):
            any_size = handler.dynamic_batch_values.get(slot)
            if difference := self._compare_operands(operand, prefill_operand, any_size):
                return f"operand {slot}{difference}"
        self.operators.setdefault(location_of(op), prefill_op)
        return self._compare_called_subgraphs(handler, op, prefill_op)

    def _compare_operands(self, operand: Tensor | None, prefill_operand: Tensor | None, any_size: int | None) -> str:
        """Return the difference of two operands, or queue them for comparison.

        ``any_size``: the number that the operator accepts in place of any size; None if it accepts none.
        """
        key = self.prefill.key
        if operand is None or prefill_operand is None or operand.is_constant != prefill_operand.is_constant:
            return "" if operand is prefill_operand else " is constant or absent in one signature only"
        if operand.is_constant:
            values, prefill_values = operand.array, prefill_operand.array
            if are_equal_constants(operand, prefill_operand) or (
                any_size is not None and _are_equal_except_any_size(values, prefill_values, any_size)
            ):
                return ""
            return f", a constant, is {_describe_array(values)}, but {_describe_array(prefill_values)} in {key!r}"
        if not self._have_equal_sizes(operand, prefill_operand):
            sizes, prefill_sizes = self.signature.sizes(operand), self.prefill.sizes(prefill_operand)
            return f" has sizes {list(sizes)}, but {list(prefill_sizes)} in {key!r}"
        self._add(operand, prefill_operand)
        return ""

    def _compare_called_subgraphs(self, handler: Handler, op: Operator, prefill_op: Operator) -> str:
        """Return the difference of two subgraphs' interfaces, or queue their outputs."""
        if op.code.startswith(COMPOSITE):
            return ""  # name and attributes define a composite; its subgraph may be simplified for the sizes
        indices = subgraph_indices(handler.subgraphs, op), subgraph_indices(handler.subgraphs, prefill_op)
        for index, prefill_index in zip(*indices, strict=True):
            graph = self.signature.sized.model.subgraphs[index]
            prefill_graph = self.prefill.sized.model.subgraphs[prefill_index]
            if (len(graph.inputs), len(graph.outputs)) != (len(prefill_graph.inputs), len(prefill_graph.outputs)):
                return (
                    f"the operators call subgraphs {index} and {prefill_index}, which have different inputs or outputs"
                )
            for tensor, prefill_tensor in zip(graph.inputs, prefill_graph.inputs, strict=True):
                prefill_location = location_of(prefill_tensor)
                if self.input_pairs.setdefault(location_of(tensor), prefill_location) != prefill_location:
                    return f"the operator calls subgraph {index} in place of several subgraphs of {self.prefill.key!r}"
            for tensor, prefill_tensor in zip(graph.outputs, prefill_graph.outputs, strict=True):
                self._add(tensor, prefill_tensor)
        return ""


def location_of(item: Tensor | Operator) -> Location:
    return item.subgraph, item.index


def squeeze(sizes: Shape) -> Shape:
    """Return the sizes other than 1."""
    return tuple(size for size in sizes if size != 1)


def are_equal_constants(first: Tensor, second: Tensor) -> bool:
    """True if constants are equal, except for axes of size 1."""
    if first.dtype != second.dtype or squeeze(first.shape) != squeeze(second.shape):
        return False
    if not _have_same_quantization(first, second):
        return False
    if first.data is second.data:
        return True
    return np.array_equal(first.array.reshape(-1), second.array.reshape(-1), equal_nan=_is_float(first))


def _is_float(tensor: Tensor) -> bool:
    return tensor.dtype in ("float16", "float32", "float64")


def _have_same_quantization(first: Tensor, second: Tensor) -> bool:
    if first.blocks is None or second.blocks is None:
        return first.quantization == second.quantization
    same_block_size = first.blocks.block_size == second.blocks.block_size
    return same_block_size and np.array_equal(first.blocks.scales.array, second.blocks.scales.array)


def _are_equal_except_any_size(sizes: Array, prefill_sizes: Array, any_size: int) -> bool:
    """True if two lists of sizes differ only where the second list has ``any_size``.

    ``any_size``: the number that the operator accepts in place of any size.
    """
    return sizes.shape == prefill_sizes.shape and bool(((sizes == prefill_sizes) | (prefill_sizes == any_size)).all())


def _describe_array(array: Array) -> str:
    return str(array.tolist()) if array.size <= 8 else f"{array.dtype} {list(array.shape)}"
