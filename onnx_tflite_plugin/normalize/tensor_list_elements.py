"""Element types of tensor lists that the file does not store.

Files of converters before TensorFlow 2.13 have no ``variant_tensors``. The type is derived from the declarations of
handlers. A list becomes an array whose leading axis counts its tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from onnx_tflite_plugin.api.declarations import Handler, ListContents
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import label
from onnx_tflite_plugin.binding.declared import OperatorInstance, subgraph_indices
from onnx_tflite_plugin.guard import Failed, WrongResult, attribute_errors
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.changes import with_tensors
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Dims, Model, Operator, Tensor, agree
from onnx_tflite_plugin.targets import Target

VARIANT = "variant"


class _Candidate(NamedTuple):
    """An operator with a handler that may convert it, and the pack of the handler."""

    op: Operator
    handler: Handler
    pack: str


def complete_lists(model: Model, host: Host, target: Target) -> Model:
    """Return the model with arrays in place of variants of known dtype and rank."""
    if not any(tensor.dtype == VARIANT for graph in model.subgraphs for tensor in graph.tensors):
        return model
    lists = _Lists()
    candidates = list(_candidates(model, host))
    for candidate in candidates:
        for first, second in _equal_tensor_pairs(model, candidate):
            lists.join(first, second)
    for candidate in candidates:
        variants = [t for t in (*candidate.op.inputs, *candidate.op.outputs) if t is not None and t.dtype == VARIANT]
        if candidate.handler.list_contents is None or not variants:
            continue
        for variant in variants[1:]:
            lists.join(variants[0], variant)
        lists.add_contents(variants[0], _declared_contents(candidate, host, target))
    return with_tensors(model, lists.arrays())


def _candidates(model: Model, host: Host) -> Iterator[_Candidate]:
    """Yield each operator with a variant tensor, once per registered handler."""
    operators = [
        op
        for graph in model.subgraphs
        for op in graph.operators
        if any(tensor is not None and tensor.dtype == VARIANT for tensor in (*op.inputs, *op.outputs))
    ]
    for op in operators:
        yield from (_Candidate(op, handler, pack) for pack, handler in host.registered_handlers(op.code))


def _equal_tensor_pairs(model: Model, candidate: _Candidate) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pairs of tensors with equal contents: across a call, or in a loop."""
    op, handler = candidate.op, candidate.handler
    boundary = handler.boundary
    inlined = (handler.inlined_subgraph,) if handler.inlined_subgraph else ()
    options = inlined if boundary is None else handler.subgraphs
    graphs = [model.subgraphs[k] for k in subgraph_indices(options, op) if 0 <= k < len(model.subgraphs)]
    first_slot, loops = (boundary.first_slot, boundary.loops) if boundary else (0, False)
    operands = op.inputs[first_slot:]
    pairs: list[tuple[Tensor | None, Tensor | None]] = []
    for graph in graphs:
        pairs += zip(operands, graph.inputs, strict=False)
    for graph in graphs[-1:] if loops else graphs:
        pairs += zip(op.outputs, graph.outputs, strict=False)
        if loops:
            pairs += zip(operands, graph.outputs, strict=False)
    for outer, inner in pairs:
        if outer is not None and inner is not None and VARIANT in (outer.dtype, inner.dtype):
            yield outer, inner


def _declared_contents(candidate: _Candidate, host: Host, target: Target) -> ListContents:
    """Return the declared contents of an operator's lists; empty after a failure."""
    function, op = candidate.handler.list_contents, candidate.op
    assert function is not None
    try:
        with attribute_errors(f"contents of handler {candidate.handler.name}", candidate.pack, function, label(op)):
            try:
                contents = function(OperatorInstance(op, target, target.opsets[2]))
            except Refusal:
                return ListContents()
            if not isinstance(contents, ListContents):
                raise WrongResult(f"the function returned {type(contents).__name__}, expected ListContents")
            return contents
    except Failed as failed:
        host.warn(f"{failed.reason}; the declaration is ignored")
        return ListContents()


class _Group:
    """Tensors of one list, and its contents; None after a contradiction."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensors = [tensor]
        self.contents: ListContents | None = ListContents()
        if tensor.dtype not in HANDLES:  # the file stores an array
            self.contents = (
                ListContents(tensor.dtype, tensor.dims[1:] if tensor.has_rank else None) if tensor.dims else None
            )


class _Lists:
    """Groups of tensors; each group is one list."""

    def __init__(self) -> None:
        self._groups: dict[Tensor, _Group] = {}

    def join(self, tensor: Tensor, other_tensor: Tensor) -> None:
        """Merge the groups of two tensors."""
        group, smaller = self._group(tensor), self._group(other_tensor)
        if group is smaller:
            return
        if len(group.tensors) < len(smaller.tensors):
            group, smaller = smaller, group
        group.contents = merge(group.contents, smaller.contents)
        group.tensors += smaller.tensors
        self._groups.update(dict.fromkeys(smaller.tensors, group))

    def add_contents(self, tensor: Tensor, contents: ListContents) -> None:
        """Add an operator's declaration about a list."""
        group = self._group(tensor)
        group.contents = merge(group.contents, contents)

    def arrays(self) -> dict[Tensor, Tensor]:
        """Return the array for each variant of known dtype and rank."""
        arrays = {}
        for tensor, group in self._groups.items():
            contents = group.contents
            if tensor.dtype != VARIANT or contents is None or contents.dims is None:
                continue
            if contents.dtype not in (None, *HANDLES):
                arrays[tensor] = list_array(tensor, str(contents.dtype), contents.dims)
        return arrays

    def _group(self, tensor: Tensor) -> _Group:
        if tensor not in self._groups:
            self._groups[tensor] = _Group(tensor)
        return self._groups[tensor]


def merge(first: ListContents | None, second: ListContents | None) -> ListContents | None:
    """Return the combined contents of two declarations; None if they contradict."""
    if first is None or second is None or (first.dtype and second.dtype and first.dtype != second.dtype):
        return None
    dtype = first.dtype or second.dtype
    if first.dims is None or second.dims is None:
        return ListContents(dtype, second.dims if first.dims is None else first.dims)
    if not agree(first.dims, second.dims):
        return None
    return ListContents(dtype, tuple(a if b is None else b for a, b in zip(first.dims, second.dims, strict=True)))


def list_array(tensor: Tensor, dtype: str, dims: Dims) -> Tensor:
    """Return the array that replaces a list; axis 0 counts the list's tensors."""
    dims = (None, *dims)
    shape = tuple(1 if size is None else size for size in dims)
    return replace(tensor, dtype=dtype, shape=shape, dims=dims, has_rank=True)
