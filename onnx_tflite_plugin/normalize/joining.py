"""Joining of a language model's signatures into one model.

The prefill signature processes prompts; the decode signature, one token. The joined model is the prefill graph for any
number of tokens. The prefill signature does not compute scores: it has no operators after its last caches. The decode
signature has these operators. Most of them are similar to an operator of an earlier layer; the prefill counterpart of
that operator is copied. The other operators are copied only if they keep the token axis in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple

from onnx_tflite_plugin.api.declarations import Handler
from onnx_tflite_plugin.errors import Problem
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.alignment import (
    Alignment,
    Location,
    Misaligned,
    SignatureGraph,
    SizedSignature,
    location_of,
)
from onnx_tflite_plugin.normalize.completion import Completion, with_graph
from onnx_tflite_plugin.normalize.resizing import NamedAxes, make_dynamic
from onnx_tflite_plugin.normalize.views import ViewTest
from onnx_tflite_plugin.source.model import Model, Operator, Signature, Tensor
from onnx_tflite_plugin.targets import Target

SEQUENCE = "sequence"
"""Name of the dynamic dimension: the number of tokens."""


class SharedItems(NamedTuple):
    """Tensors and operators that a signature shares with the joined model.

    Keys are locations in the joined model, values are locations in the signature.
    """

    tensors: Mapping[Location, Location]
    operators: Mapping[Location, Location]


class JoinedModel(NamedTuple):
    """A model of several signatures.

    ``lengths``: the number of tokens in each signature. ``named_axes``: token axes of inputs. ``head``: the tensor from
    which scores are computed, each token in isolation; None if there is none. ``shared``: tensors and operators that
    each signature except the longest prefill signature shares with the joined model.
    """

    model: Model
    signature: Signature
    lengths: Mapping[str, int]
    named_axes: NamedAxes
    head: Tensor | None
    shared: Mapping[str, SharedItems]


def join_signatures(model: Model, host: Host, target: Target) -> JoinedModel:
    """Return one model of all signatures.

    Raises Misaligned with the first difference, ConversionError if sizes cannot be derived.
    """

    def handler_of(op: Operator) -> Handler | None:
        bound = host.bind_operator(op, target, target.opsets[2])
        return None if isinstance(bound, Problem) else bound.handler

    decode, prefill = _select_signatures(model)
    prefill_signatures = tuple(signature for signature in model.signatures if signature is not decode)
    lengths = {signature.key: _token_count(model, decode, signature) for signature in prefill_signatures}
    prefill_length = lengths[prefill.key]
    prefill_model = _with_signature_interface(model, prefill)
    named_axes = {
        (k, axis): SEQUENCE
        for k, (decode_tensor, tensor) in enumerate(_input_pairs(model, decode, prefill))
        for axis, (decode_size, size) in enumerate(zip(decode_tensor.dims, tensor.dims, strict=True))
        if decode_size != size
    }
    dynamic_prefill, _ = make_dynamic(prefill_model, named_axes, host, target)
    is_view = ViewTest(model, host, target)
    alignments = {}
    for signature in model.signatures:
        if signature is not prefill:
            tokens = 1 if signature is decode else lengths[signature.key]
            graph = SignatureGraph(SizedSignature(model, signature, tokens), is_view)
            sized_prefill = SizedSignature(dynamic_prefill, prefill, tokens, stored_length=prefill_length)
            alignment = Alignment(graph, SignatureGraph(sized_prefill, is_view), handler_of)
            alignments[signature.key] = alignment
            alignment.compare()
    completion = Completion(alignments[decode.key], handler_of)
    completed, outputs = completion.complete()
    joined_signature = replace(prefill, key=decode.key, outputs=outputs)
    joined = replace(completed, signatures=(*prefill_signatures, joined_signature), root=prefill.subgraph)
    shared = {key: _find_shared_items(alignment, completed) for key, alignment in alignments.items()}
    return JoinedModel(joined, joined_signature, {**lengths, decode.key: 1}, named_axes, completion.head, shared)


def _find_shared_items(alignment: Alignment, joined: Model) -> SharedItems:
    """Return the operators and tensors that a signature and the joined model share.

    Tensors are equal if they have equal elements and shapes. Views are equal if they return elements of the same tensor
    in the same shape.
    """
    signature, prefill = alignment.signature, alignment.prefill
    operators: dict[Location, Location] = {}
    for location, op in alignment.operators.items():
        operators.setdefault(location_of(op), location)
    tensors: dict[Location, Location] = {}
    matching_locations = {
        (location_of(tensor), prefill.sizes(tensor)): location for location, tensor in alignment.tensors.items()
    }
    for (prefill_location, sizes), location in matching_locations.items():
        subgraph_index, tensor_index = location
        if signature.sizes(signature.sized.model.subgraphs[subgraph_index].tensors[tensor_index]) == sizes:
            tensors.setdefault(prefill_location, location)
    for op, view in _shared_views(alignment, joined):
        tensors.setdefault(location_of(op[~0]), location_of(view[~0]))
        operators.setdefault(location_of(op), location_of(view))
    return SharedItems(tensors, operators)


def _shared_views(alignment: Alignment, joined: Model) -> Iterator[tuple[Operator, Operator]]:
    """Yield pairs of a view in the joined model and an equal view in the signature."""
    signature, prefill = alignment.signature, alignment.prefill
    signature_location = {location_of(tensor): location for location, tensor in alignment.tensors.items()}
    views: dict[tuple[Location, tuple[int, ...]], Operator] = {}
    for op in signature.subgraph.operators:
        if signature.is_view_of(op):
            views.setdefault((location_of(signature.viewed_tensor(op[~0])), signature.sizes(op[~0])), op)
    for op in joined.main.operators:
        viewed = signature_location.get(location_of(prefill.viewed_tensor(op[~0]))) if prefill.is_view_of(op) else None
        view = None if viewed is None else views.get((viewed, prefill.sizes(op[~0])))
        if view is not None:
            yield op, view


def _select_signatures(model: Model) -> tuple[Signature, Signature]:
    """Return the decode signature and the prefill signature of the longest prompt.

    The decode signature has the most outputs. Raises Misaligned if the inputs of signatures differ.
    """

    def input_elements(signature: Signature) -> int:
        return sum(prod(model.subgraphs[signature.subgraph].tensors[k].shape) for k in signature.inputs.values())

    decode = min(model.signatures, key=lambda signature: (-len(signature.outputs), input_elements(signature)))
    prefill_signatures = [signature for signature in model.signatures if signature is not decode]
    for signature in prefill_signatures:
        if signature.inputs.keys() != decode.inputs.keys():
            name = min(signature.inputs.keys() ^ decode.inputs.keys())
            raise Misaligned(f"signatures {decode.key!r} and {signature.key!r} have different inputs: {name!r}")
    return decode, max(prefill_signatures, key=input_elements)


def _input_pairs(model: Model, decode: Signature, signature: Signature) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of inputs with equal names, in the second signature's order."""
    decode_tensors = model.subgraphs[decode.subgraph].tensors
    input_names = {index: name for name, index in signature.inputs.items()}
    inputs = [tensor for tensor in model.subgraphs[signature.subgraph].inputs if tensor.index in input_names]
    return [(decode_tensors[decode.inputs[input_names[tensor.index]]], tensor) for tensor in inputs]


def _token_count(model: Model, decode: Signature, signature: Signature) -> int:
    """Return the number of tokens of a prefill signature.

    This is the input size that is 1 in ``decode``. Raises Misaligned if the inputs of the signatures differ in several
    sizes.
    """
    sizes: set[int] = set()
    for decode_tensor, tensor in _input_pairs(model, decode, signature):
        if len(decode_tensor.dims) != len(tensor.dims):
            sizes.add(0)
        sizes |= {
            (size or 0) if decode_size == 1 else 0
            for decode_size, size in zip(decode_tensor.dims, tensor.dims, strict=False)
            if decode_size != size
        }
    if len(sizes) != 1 or min(sizes) < 2:
        raise Misaligned(
            "only the signatures of a language model can be joined, one for a single token and one for several; "
            f"the inputs of {decode.key!r} and {signature.key!r} do not differ in this way"
        )
    return sizes.pop()


def _with_signature_interface(model: Model, signature: Signature) -> Model:
    """Return the model whose main subgraph, inputs and outputs are the signature's."""
    graph = model.subgraphs[signature.subgraph]
    inputs = tuple(tensor for tensor in graph.inputs if tensor.index in signature.inputs.values())
    outputs = tuple(tensor for tensor in graph.outputs if tensor.index in signature.outputs.values())
    return with_graph(replace(model, root=graph.index), replace(graph, inputs=inputs, outputs=outputs))
