"""One model from the signatures for prompts and for a single token: the prompt's, for any number of tokens, with all
outputs.

A prompt's signature does not compute scores: the operators downstream of its last caches are missing. They are in the signature of a
single token, in the form for one token. Each equals an operator of an earlier layer; its counterpart for prompts is
known from the alignment and is copied; operators without such a model keep the axis of the tokens where it is.
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
    Form,
    Misaligned,
    Place,
    Views,
    place_of,
)
from onnx_tflite_plugin.normalize.completion import Completion, with_graph
from onnx_tflite_plugin.normalize.resizing import NamedAxes, make_dynamic
from onnx_tflite_plugin.normalize.views import ViewTest
from onnx_tflite_plugin.source.model import Model, Operator, Signature, Tensor
from onnx_tflite_plugin.targets import Target

SEQUENCE = "sequence"
"""Name of the dynamic size."""


class Places(NamedTuple):
    """Tensors and operators of another signature by the places in the joined model that are equal to them."""

    tensors: Mapping[Place, Place]
    operators: Mapping[Place, Place]


class Joined(NamedTuple):
    """A model of several signatures. ``lengths``: the number of tokens in each; ``places``: where the number is an input's size.

    ``head``: the tensor from which scores are computed, each token in isolation; None if there is none. ``equal``: the
    shared tensors of each signature except the prompt's.
    """

    model: Model
    signature: Signature
    lengths: Mapping[str, int]
    places: NamedAxes
    head: Tensor | None
    equal: Mapping[str, Places]


def join_signatures(model: Model, host: Host, target: Target) -> Joined:
    """Return one model of all signatures. Raises Misaligned with the first difference, ConversionError if sizes cannot be derived."""

    def handler_of(op: Operator) -> Handler | None:
        taken = host.take(op, target, target.opsets[2])
        return None if isinstance(taken, Problem) else taken.handler

    single, prompt = _select_signatures(model)
    lengths = {one.key: _length(model, single, one) for one in model.signatures if one is not single}
    length = lengths[prompt.key]
    rooted = _with_ends(model, prompt)
    places = {
        (k, axis): SEQUENCE
        for k, (own, tensor) in enumerate(_pairs(model, single, prompt))
        for axis, (one, size) in enumerate(zip(own.dims, tensor.dims, strict=True))
        if one != size
    }
    dynamic, _ = make_dynamic(rooted, places, host, target)
    is_view = ViewTest(model, host, target)
    alignments = {}
    for signature in model.signatures:
        if signature is not prompt:
            tokens = 1 if signature is single else lengths[signature.key]
            one = Views(Form(model, signature, tokens), is_view)
            two = Views(Form(dynamic, prompt, tokens, stored=length), is_view)
            alignments[signature.key] = alignment = Alignment(one, two, handler_of)
            alignment.compare()
    completion = Completion(alignments[single.key], handler_of)
    joined, outputs = completion.complete()
    signature = replace(prompt, key=single.key, outputs=outputs)
    others = tuple(one for one in model.signatures if one is not single)
    whole = replace(joined, signatures=(*others, signature), root=prompt.subgraph)
    equal = {key: _equal_places(alignment, joined) for key, alignment in alignments.items()}
    return Joined(whole, signature, {**lengths, single.key: 1}, places, completion.head, equal)


def _equal_places(alignment: Alignment, joined: Model) -> Places:
    """Return the tensors of equal elements and shapes, and the operators, that an alignment found; views by what they return."""
    one, two = alignment.one, alignment.two
    operators: dict[Place, Place] = {}
    for place, op in alignment.operators.items():
        operators.setdefault(place_of(op), place)
    tensors: dict[Place, Place] = {}
    found = {(place_of(tensor), two.form.sizes(tensor)): place for place, tensor in alignment.tensors.items()}
    by_root = {place_of(tensor): place for place, tensor in alignment.tensors.items()}
    views: dict[tuple[Place, tuple[int, ...]], Operator] = {}
    for op in one.form.model.subgraphs[one.form.signature.subgraph].operators:
        if one.is_view_of(op):
            views.setdefault((place_of(one.root(op[~0])), one.form.sizes(op[~0])), op)
    for (place, sizes), own in found.items():
        graph, index = own
        if one.form.sizes(one.form.model.subgraphs[graph].tensors[index]) == sizes:
            tensors.setdefault(place, own)
    for op in joined.main.operators:
        if two.is_view_of(op) and (root := by_root.get(place_of(two.root(op[~0])))) is not None:
            view = views.get((root, two.form.sizes(op[~0])))
            if view is not None:
                tensors.setdefault(place_of(op[~0]), place_of(view[~0]))
                operators.setdefault(place_of(op), place_of(view))
    return Places(tensors, operators)


def _select_signatures(model: Model) -> tuple[Signature, Signature]:
    """Return the signature for a single token, which has the most outputs, and the one for the longest prompt. Raises
    Misaligned.
    """

    def elements(one: Signature) -> int:
        return sum(prod(model.subgraphs[one.subgraph].tensors[k].shape) for k in one.inputs.values())

    single = min(model.signatures, key=lambda one: (-len(one.outputs), elements(one)))
    others = [one for one in model.signatures if one is not single]
    for one in others:
        if one.inputs.keys() != single.inputs.keys():
            name = min(one.inputs.keys() ^ single.inputs.keys())
            raise Misaligned(f"signatures {single.key!r} and {one.key!r} have different inputs: {name!r}")
    return single, max(others, key=elements)


def _pairs(model: Model, single: Signature, other: Signature) -> list[tuple[Tensor, Tensor]]:
    """Return the inputs of both signatures, in the order of the second's subgraph."""
    own, names = model.subgraphs[single.subgraph].tensors, {index: name for name, index in other.inputs.items()}
    inputs = [tensor for tensor in model.subgraphs[other.subgraph].inputs if tensor.index in names]
    return [(own[single.inputs[names[tensor.index]]], tensor) for tensor in inputs]


def _length(model: Model, single: Signature, other: Signature) -> int:
    """Return the one size of inputs that is 1 for a single token. Raises Misaligned."""
    found: set[int] = set()
    for own, tensor in _pairs(model, single, other):
        if len(own.dims) != len(tensor.dims):
            found.add(0)
        found |= {
            (size or 0) if one == 1 else 0 for one, size in zip(own.dims, tensor.dims, strict=False) if one != size
        }
    if len(found) != 1 or min(found) < 2:
        raise Misaligned(
            f"inputs of signatures {single.key!r} and {other.key!r} do not differ in one size that is 1 in {single.key!r}"
        )
    return found.pop()


def _with_ends(model: Model, signature: Signature) -> Model:
    """Return the model with the signature's subgraph as its main one, without inputs and outputs that it does not name."""
    graph = model.subgraphs[signature.subgraph]
    inputs = tuple(tensor for tensor in graph.inputs if tensor.index in signature.inputs.values())
    outputs = tuple(tensor for tensor in graph.outputs if tensor.index in signature.outputs.values())
    return with_graph(replace(model, root=graph.index), replace(graph, inputs=inputs, outputs=outputs))
