"""Interface of the model: its signature, and names and layouts of graph inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from onnx_tflite_plugin.binding.bound import BoundGraph
from onnx_tflite_plugin.errors import CONTRADICTION, InvalidModel, Problem, UnsupportedOption
from onnx_tflite_plugin.graph.decoder import NEXT, cache_pairs
from onnx_tflite_plugin.graph.names import resolve_keys, unusable_names
from onnx_tflite_plugin.layout.propagation import InterfaceLayouts
from onnx_tflite_plugin.layout.tensor_layout import TensorLayout, layout_of_permutation, source_layout
from onnx_tflite_plugin.source.model import Model, Signature, Subgraph, Tensor


class InterfaceNames(NamedTuple):
    """Names of graph inputs and outputs, by position."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def select_signature(model: Model, key: str | None) -> Signature | None:
    """Return the signature of that key; without a key the first of the main subgraph, or ``None``.

    Raises UnsupportedOption for a signature that the file does not have.
    """
    if key is None:
        return next((one for one in model.signatures if one.subgraph == model.root), None)
    signature = next((one for one in model.signatures if one.key == key), None)
    if signature is None:
        listed = ", ".join(repr(one.key) for one in model.signatures) or "none; leave --signature out"
        raise UnsupportedOption(f"the model has no signature {key!r}; available signatures: {listed}")
    return signature


def apply_signature(model: Model, signature: Signature | None) -> tuple[Model, InterfaceNames]:
    """Return the model with the signature's subgraph as its main one, and the names of its inputs and outputs.

    Positions are the subgraph's, so that code for ``get_input_details()`` and ``get_output_details()`` finds the same
    tensor; names are the signature's, or else the tensor's. Outputs that only the signature has, which lie inside the
    subgraph, come last. An output with the name of an input, as language models name their caches, becomes
    ``NAME:next``, as states do. An empty or repeated name gets ``#index``.
    """
    if signature is None:
        sides = [[(None, tensor) for tensor in tensors] for tensors in (model.main.inputs, model.main.outputs)]
        return model, _interface_names(*sides)
    model = replace(model, root=signature.subgraph)
    main = model.main
    inputs, outputs = (
        _name_by_signature(main, list(dict.fromkeys(main.inputs)), signature.inputs),
        _signature_outputs(main, signature.outputs),
    )
    ordered = replace(main, inputs=tuple(t for _, t in inputs), outputs=tuple(t for _, t in outputs))
    subgraphs = tuple(ordered if graph is main else graph for graph in model.subgraphs)
    return replace(model, subgraphs=subgraphs), _interface_names(inputs, outputs)


def check_outputs(model: Model, names: InterfaceNames, signature: Signature | None) -> None:
    """Raise InvalidModel for graph outputs that no operator computes, which only a signature can request."""
    main = model.main
    given = {*main.inputs, *(tensor for op in main.operators for tensor in op.outputs if tensor is not None)}
    where = "graph output" if signature is None else f"signature {signature.key!r}, output"
    problems = [
        Problem(
            f"{where} {name!r}",
            f"no operator computes tensor {tensor}, so it has no value in LiteRT either",
            "choose the outputs with --outputs, or another signature with --signature",
        )
        for name, tensor in zip(names.outputs, main.outputs, strict=True)
        if not (tensor in given or tensor.is_constant or tensor.is_variable)
    ]
    if problems:
        raise InvalidModel(CONTRADICTION, problems)


Named = tuple[str | None, Tensor]


def _name_by_signature(graph: Subgraph, side: Sequence[Tensor], names: Mapping[str, int]) -> list[Named]:
    """Return the tensors of one side in the file's order, with their names; a tensor of several names occurs once for each."""
    by_index: dict[int, list[str]] = {}
    for name, index in names.items():
        by_index.setdefault(graph.tensors[index].index, []).append(name)
    return [(name, tensor) for tensor in side for name in by_index.get(tensor.index, [None])]


def _signature_outputs(graph: Subgraph, names: Mapping[str, int]) -> list[Named]:
    """Return the subgraph's outputs, then those that quantizers place inside it; of a called subgraph only the named ones."""
    inside = dict.fromkeys(graph.tensors[index] for index in names.values())
    outputs = list(dict.fromkeys([*graph.outputs, *inside]))
    named = _name_by_signature(graph, outputs, names)
    return named if graph.index == 0 or not names else [one for one in named if one[0] is not None]


def _interface_names(inputs: Sequence[Named], outputs: Sequence[Named]) -> InterfaceNames:
    """Return unique names of graph inputs and outputs."""
    taken: set[str] = set()
    entering = {given for given, _ in inputs if given}

    def unique_name(name: str, tensor: Tensor) -> str:
        while not name or name in taken:
            name = f"{name}#{tensor.index}"
        taken.add(name)
        return name

    def leaving(given: str | None, tensor: Tensor) -> str:
        return tensor.name if given is None else f"{given}{NEXT}" if given in entering else given

    return InterfaceNames(
        tuple(unique_name(tensor.name if given is None else given, tensor) for given, tensor in inputs),
        tuple(unique_name(leaving(given, tensor), tensor) for given, tensor in outputs),
    )


def rename_interface(names: InterfaceNames, main: BoundGraph, renames: Mapping[str, str], flag: str) -> InterfaceNames:
    """Return the names after renames, given by name, by the TFLite tensor's name, or by position.

    Raises UnsupportedOption for a name that the model does not have, and for a new name that is empty or taken.
    """
    every = (*names.inputs, *names.outputs)
    new = resolve_keys(renames, every, [tensor.name for tensor in (*main.inputs, *main.outputs)], flag)
    unusable = unusable_names([*new.values()], every)
    for name, wanted in new.items():
        if name not in every:
            raise UnsupportedOption(
                f"{flag} {name}: no graph input or output has this name; available names: {', '.join(every)}"
            )
        if wanted in unusable:
            taken = "it is empty" if not wanted else "another input or output has that name"
            raise UnsupportedOption(f"{flag} {name}={wanted}: {taken}; choose another name")
    return InterfaceNames(*(tuple(new.get(name, name) for name in side) for side in names))


def interface_layouts(
    main: BoundGraph,
    names: InterfaceNames,
    layouts: Mapping[str, str],
    *,
    free: bool,
    channels_first: bool = False,
    free_caches: bool = False,
) -> InterfaceLayouts:
    """Return layouts of graph inputs and outputs: requested ones by name, others the file's unless ``free``.

    ``channels_first``: tensors of rank 4 get their last axis after the first, unless a layout is requested for them.
    ``free_caches``: inputs and outputs of one name may follow the plan.

    Raises UnsupportedOption for a name that the model does not have, or letters that do not permute its axes.
    """
    edges = {tensor: source_layout(tensor.dims) for tensor in (*main.inputs, *main.outputs)}
    ends = (*main.inputs, *main.outputs)
    stored = [tensor.name for tensor in ends]
    layouts = resolve_keys(layouts, (*names.inputs, *names.outputs), stored, "--layout", len(main.inputs))
    asked: dict[Tensor, TensorLayout] = {}
    by_name = dict(zip((*names.inputs, *names.outputs), ends, strict=True))
    for name, letters in layouts.items():
        if name not in by_name:
            raise UnsupportedOption(
                f"--layout {name}: no graph input or output has this name; available names: {', '.join(by_name)}"
            )
        asked[by_name[name]] = _parse_layout(name, letters, by_name[name])
    if channels_first:
        images = (tensor for tensor in ends if tensor.rank == 4 and tensor not in asked)
        asked.update({tensor: layout_of_permutation(tensor.dims, [0, 3, 1, 2]) for tensor in images})
    if free:
        return InterfaceLayouts(asked, frozenset(t for t in edges if t not in asked and t.rank > 1))
    if free_caches:
        pairs = cache_pairs(names.inputs, names.outputs)
        caches = {by_name[name] for name in (*pairs, *pairs.values())} - asked.keys()
        fixed = {tensor: layout for tensor, layout in edges.items() if tensor not in caches}
        return InterfaceLayouts({**fixed, **asked}, frozenset(caches))
    return InterfaceLayouts({**edges, **asked})


def _parse_layout(name: str, layouts: str, tensor: Tensor) -> TensorLayout:
    """Return the layout for ``"NHWC:NCHW"``: the letters of the tensor's axes, and their requested order."""
    before, _, after = layouts.partition(":")
    if sorted(before) != sorted(after) or len(set(before)) != len(before) or len(before) != tensor.rank:
        raise UnsupportedOption(
            f"--layout {name}={layouts}: give the same {tensor.rank} letters on both sides, as in NHWC:NCHW"
        )
    return layout_of_permutation(tensor.dims, [before.index(letter) for letter in after])
