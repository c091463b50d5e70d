"""One model of the signatures for prompts and for a single token.

It is the prompt's graph, for any number of tokens. A prompt's signature does not compute scores: the operators
downstream of its last caches are missing. The signature for a single token has them, for one token. Most of them are
similar to an operator of an earlier layer, whose counterpart for prompts is known from the alignment and is copied.
The other operators are copied only if they keep the token axis in place.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    SizedSignature,
    Views,
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
    """Tensors and operators that another signature shares with the joined model.

    The key is the location in the joined model; the value, that in the signature.
    """

    tensors: Mapping[Location, Location]
    operators: Mapping[Location, Location]


class Joined(NamedTuple):
    """A model of several signatures.

    ``lengths``: the number of tokens in each signature. ``named_axes``: axes of inputs whose size is the number of
    tokens. ``head``: the tensor from which scores are computed, each token in isolation; None if there is none.
    ``shared``: tensors and operators that each signature except the prompt's shares with the joined model.
    """

    model: Model
    signature: Signature
    lengths: Mapping[str, int]
    named_axes: NamedAxes
    head: Tensor | None
    shared: Mapping[str, SharedItems]


def join_signatures(model: Model, host: Host, target: Target) -> Joined:
    """Return one model of all signatures.

    Raises Misaligned with the first difference, ConversionError if sizes cannot be derived.
    """

    def handler_of(op: Operator) -> Handler | None:
        bound = host.bind_operator(op, target, target.opsets[2])
        return None if isinstance(bound, Problem) else bound.handler

    single, prompt = _select_signatures(model)
    others = tuple(signature for signature in model.signatures if signature is not single)
    lengths = {signature.key: _token_count(model, single, signature) for signature in others}
    prompt_length = lengths[prompt.key]
    prompt_model = _with_signature_interface(model, prompt)
    named_axes = {
        (k, axis): SEQUENCE
        for k, (single_tensor, tensor) in enumerate(_input_pairs(model, single, prompt))
        for axis, (single_size, size) in enumerate(zip(single_tensor.dims, tensor.dims, strict=True))
        if single_size != size
    }
    dynamic, _ = make_dynamic(prompt_model, named_axes, host, target)
    is_view = ViewTest(model, host, target)
    alignments = {}
    for signature in model.signatures:
        if signature is not prompt:
            tokens = 1 if signature is single else lengths[signature.key]
            other_views = Views(SizedSignature(model, signature, tokens), is_view)
            prompt_views = Views(SizedSignature(dynamic, prompt, tokens, stored_length=prompt_length), is_view)
            alignments[signature.key] = alignment = Alignment(other_views, prompt_views, handler_of)
            alignment.compare()
    completion = Completion(alignments[single.key], handler_of)
    completed, outputs = completion.complete()
    joined_signature = replace(prompt, key=single.key, outputs=outputs)
    joined = replace(completed, signatures=(*others, joined_signature), root=prompt.subgraph)
    shared = {key: _find_shared_items(alignment, completed) for key, alignment in alignments.items()}
    return Joined(joined, joined_signature, {**lengths, single.key: 1}, named_axes, completion.head, shared)


def _find_shared_items(alignment: Alignment, joined: Model) -> SharedItems:
    """Return the operators and tensors that are equal in both signatures.

    Tensors are equal if they have equal elements and shapes. Views are equal if they have the same root and return the
    same shape.
    """
    other, prompt = alignment.other, alignment.prompt
    operators: dict[Location, Location] = {}
    for location, op in alignment.operators.items():
        operators.setdefault(location_of(op), location)
    tensors: dict[Location, Location] = {}
    locations = {
        (location_of(tensor), prompt.sized.sizes(tensor)): location for location, tensor in alignment.tensors.items()
    }
    by_root = {location_of(tensor): location for location, tensor in alignment.tensors.items()}
    views: dict[tuple[Location, tuple[int, ...]], Operator] = {}
    for op in other.sized.model.subgraphs[other.sized.signature.subgraph].operators:
        if other.is_view_of(op):
            views.setdefault((location_of(other.root(op[~0])), other.sized.sizes(op[~0])), op)
    for (location, sizes), other_location in locations.items():
        graph, index = other_location
        if other.sized.sizes(other.sized.model.subgraphs[graph].tensors[index]) == sizes:
            tensors.setdefault(location, other_location)
    for op in joined.main.operators:
        if prompt.is_view_of(op) and (root := by_root.get(location_of(prompt.root(op[~0])))) is not None:
            view = views.get((root, prompt.sized.sizes(op[~0])))
            if view is not None:
                tensors.setdefault(location_of(op[~0]), location_of(view[~0]))
                operators.setdefault(location_of(op), location_of(view))
    return SharedItems(tensors, operators)


def _select_signatures(model: Model) -> tuple[Signature, Signature]:
    """Return the signatures for a single token and for the longest prompt.

    The signature for a single token has the most outputs. Raises Misaligned if their inputs differ.
    """

    def elements(signature: Signature) -> int:
        return sum(prod(model.subgraphs[signature.subgraph].tensors[k].shape) for k in signature.inputs.values())

    single = min(model.signatures, key=lambda signature: (-len(signature.outputs), elements(signature)))
    others = [signature for signature in model.signatures if signature is not single]
    for signature in others:
        if signature.inputs.keys() != single.inputs.keys():
            name = min(signature.inputs.keys() ^ single.inputs.keys())
            raise Misaligned(f"signatures {single.key!r} and {signature.key!r} have different inputs: {name!r}")
    return single, max(others, key=elements)


def _input_pairs(model: Model, single: Signature, signature: Signature) -> list[tuple[Tensor, Tensor]]:
    """Return the matching inputs of both signatures.

    The pairs are in the order of the second signature's subgraph.
    """
    single_tensors = model.subgraphs[single.subgraph].tensors
    input_names = {index: name for name, index in signature.inputs.items()}
    inputs = [tensor for tensor in model.subgraphs[signature.subgraph].inputs if tensor.index in input_names]
    return [(single_tensors[single.inputs[input_names[tensor.index]]], tensor) for tensor in inputs]


def _token_count(model: Model, single: Signature, signature: Signature) -> int:
    """Return the number of tokens of a prompt.

    The number is the size of an input that is 1 for a single token. Raises Misaligned if inputs differ in several sizes.
    """
    sizes: set[int] = set()
    for single_tensor, tensor in _input_pairs(model, single, signature):
        if len(single_tensor.dims) != len(tensor.dims):
            sizes.add(0)
        sizes |= {
            (size or 0) if single_size == 1 else 0
            for single_size, size in zip(single_tensor.dims, tensor.dims, strict=False)
            if single_size != size
        }
    if len(sizes) != 1 or min(sizes) < 2:
        raise Misaligned(
            f"{single.key!r} and {signature.key!r} are not for one token and several tokens, as the signatures of a language model are"
        )
    return sizes.pop()


def _with_signature_interface(model: Model, signature: Signature) -> Model:
    """Return the model with the signature's subgraph as its main one.

    Inputs and outputs that the signature does not name are left out.
    """
    graph = model.subgraphs[signature.subgraph]
    inputs = tuple(tensor for tensor in graph.inputs if tensor.index in signature.inputs.values())
    outputs = tuple(tensor for tensor in graph.outputs if tensor.index in signature.outputs.values())
    return with_graph(replace(model, root=graph.index), replace(graph, inputs=inputs, outputs=outputs))
