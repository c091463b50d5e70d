"""Interface of the model: signature, names and layouts of inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from onnx_tflite_plugin.binding.bound import BoundGraph
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.errors import CONTRADICTION, InvalidModel, Problem, UnsupportedOption
from onnx_tflite_plugin.graph.decoder import NEXT, cache_pairs
from onnx_tflite_plugin.graph.names import describe_key, resolve_keys, unusable_names
from onnx_tflite_plugin.layout.propagation import InterfaceLayouts
from onnx_tflite_plugin.layout.tensor_layout import TensorLayout, layout_of_permutation, source_layout
from onnx_tflite_plugin.source.model import Model, Signature, Subgraph, Tensor


class InterfaceNames(NamedTuple):
    """Names of graph inputs and outputs, by position."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def select_signature(model: Model, key: str | None) -> Signature | None:
    """Return the signature with a key; by default, the first of the main subgraph.

    Without a key, the result is None if the main subgraph has no signature. Raises UnsupportedOption if the file has no
    signature with this key.
    """
    if key is None:
        return next((signature for signature in model.signatures if signature.subgraph == model.root), None)
    signature = next((candidate for candidate in model.signatures if candidate.key == key), None)
    if signature is None:
        keys = ", ".join(repr(signature.key) for signature in model.signatures) or "none; leave --signature out"
        raise UnsupportedOption(
            f"the model has no signature {key!r}{did_you_mean(key, (signature.key for signature in model.signatures)) or ';'} "
            f"available signatures: {keys}"
        )
    return signature


def apply_signature(model: Model, signature: Signature | None) -> tuple[Model, InterfaceNames]:
    """Return the model with the signature's subgraph as main, and the interface names.

    Inputs and outputs are in the subgraph's order, as in ``get_input_details()`` and ``get_output_details()``. Outputs
    that are in the signature but not in the subgraph come last. Names come from the signature, or else from the tensor.
    An output with the name of an input, such as a cache of a language model, becomes ``NAME:next``, like a state.
    ``#index`` is appended to an empty or repeated name.
    """
    if signature is None:
        sides = [[(None, tensor) for tensor in tensors] for tensors in (model.main.inputs, model.main.outputs)]
        return model, _interface_names(*sides)
    model = replace(model, root=signature.subgraph)
    main = model.main
    inputs = _name_by_signature(main, list(dict.fromkeys(main.inputs)), signature.inputs)
    outputs = _signature_outputs(main, signature.outputs)
    new_main = replace(main, inputs=tuple(t for _, t in inputs), outputs=tuple(t for _, t in outputs))
    subgraphs = tuple(new_main if graph is main else graph for graph in model.subgraphs)
    return replace(model, subgraphs=subgraphs), _interface_names(inputs, outputs)


def check_outputs(model: Model, names: InterfaceNames, signature: Signature | None) -> None:
    """Raise InvalidModel for graph outputs that no operator computes."""
    main = model.main
    available = {*main.inputs, *(tensor for op in main.operators for tensor in op.outputs if tensor is not None)}
    location = "graph output" if signature is None else f"signature {signature.key!r}, output"
    problems = [
        Problem(
            f"{location} {name!r}",
            f"no operator computes tensor {tensor}, so it has no value in LiteRT either",
            "choose the outputs with --outputs, or another signature with --signature",
        )
        for name, tensor in zip(names.outputs, main.outputs, strict=True)
        if not (tensor in available or tensor.is_constant or tensor.is_variable)
    ]
    if problems:
        raise InvalidModel(CONTRADICTION, problems)


NamedTensor = tuple[str | None, Tensor]


def _name_by_signature(graph: Subgraph, tensors: Sequence[Tensor], names: Mapping[str, int]) -> list[NamedTensor]:
    """Return (name, tensor) for each name in the signature; None for unnamed tensors."""
    by_index: dict[int, list[str]] = {}
    for name, index in names.items():
        by_index.setdefault(graph.tensors[index].index, []).append(name)
    return [(name, tensor) for tensor in tensors for name in by_index.get(tensor.index, [None])]


def _signature_outputs(graph: Subgraph, names: Mapping[str, int]) -> list[NamedTensor]:
    """Return the outputs of the subgraph, then the signature's other outputs.

    Quantizers write signatures whose outputs are intermediate tensors. For subgraphs other than the first, only outputs
    named in the signature are returned.
    """
    signature_outputs = dict.fromkeys(graph.tensors[index] for index in names.values())
    outputs = list(dict.fromkeys([*graph.outputs, *signature_outputs]))
    named_outputs = _name_by_signature(graph, outputs, names)
    if graph.index == 0 or not names:
        return named_outputs
    return [(name, tensor) for name, tensor in named_outputs if name is not None]


def _interface_names(inputs: Sequence[NamedTensor], outputs: Sequence[NamedTensor]) -> InterfaceNames:
    """Return unique names of graph inputs and outputs."""
    used_names: set[str] = set()
    input_names = {signature_name for signature_name, _ in inputs if signature_name}

    def unique_name(name: str, tensor: Tensor) -> str:
        while not name or name in used_names:
            name = f"{name}#{tensor.index}"
        used_names.add(name)
        return name

    def output_name(signature_name: str | None, tensor: Tensor) -> str:
        if signature_name is None:
            return tensor.name
        return f"{signature_name}{NEXT}" if signature_name in input_names else signature_name

    return InterfaceNames(
        tuple(
            unique_name(tensor.name if signature_name is None else signature_name, tensor)
            for signature_name, tensor in inputs
        ),
        tuple(unique_name(output_name(signature_name, tensor), tensor) for signature_name, tensor in outputs),
    )


def rename_interface(names: InterfaceNames, main: BoundGraph, renames: Mapping[str, str], flag: str) -> InterfaceNames:
    """Return the names of graph inputs and outputs after renames.

    A key of ``renames`` is the name of a graph input or output, the name of its TFLite tensor, or a position. Raises
    UnsupportedOption for a name that the model does not have, and for a new name that is empty or used.
    """
    all_names = (*names.inputs, *names.outputs)
    new_names = resolve_keys(renames, all_names, [tensor.name for tensor in (*main.inputs, *main.outputs)], flag)
    unusable = unusable_names([*new_names.values()], all_names)
    for name, new_name in new_names.items():
        if name not in all_names:
            raise UnsupportedOption(
                f"{flag} {name}: no graph input or output has this {describe_key(name, all_names)}; "
                f"available names: {', '.join(all_names)}{did_you_mean(name, all_names)}"
            )
        if new_name in unusable:
            reason = "it is empty" if not new_name else "another input or output has that name"
            raise UnsupportedOption(f"{flag} {name}={new_name}: {reason}; choose another name")
    return InterfaceNames(*(tuple(new_names.get(name, name) for name in side) for side in names))


def interface_layouts(
    main: BoundGraph,
    names: InterfaceNames,
    layouts: Mapping[str, str],
    *,
    plan_all: bool,
    channels_first: bool = False,
    plan_caches: bool = False,
) -> InterfaceLayouts:
    """Return the layouts of graph inputs and outputs.

    ``layouts``: name -> requested layout. All other tensors keep the file's layout. ``plan_all``: the layout plan
    chooses their layouts instead. ``plan_caches``: the layout plan chooses the layouts of caches. ``channels_first``:
    the last axis of each rank-4 tensor becomes its second axis; a layout requested by name takes precedence. Raises
    UnsupportedOption for a name that the model does not have, and for letters that are not a permutation of the
    tensor's axes.
    """
    file_layouts = {tensor: source_layout(tensor.dims) for tensor in (*main.inputs, *main.outputs)}
    tensors = (*main.inputs, *main.outputs)
    tensor_names = [tensor.name for tensor in tensors]
    layouts = resolve_keys(layouts, (*names.inputs, *names.outputs), tensor_names, "--layout", len(main.inputs))
    requested: dict[Tensor, TensorLayout] = {}
    by_name = dict(zip((*names.inputs, *names.outputs), tensors, strict=True))
    for name, letters in layouts.items():
        if name not in by_name:
            raise UnsupportedOption(
                f"--layout {name}: no graph input or output has this {describe_key(name, by_name)}; "
                f"available names: {', '.join(by_name)}{did_you_mean(name, by_name)}"
            )
        requested[by_name[name]] = _parse_layout(name, letters, by_name[name])
    if channels_first:
        images = (tensor for tensor in tensors if tensor.rank == 4 and tensor not in requested)
        requested.update({tensor: layout_of_permutation(tensor.dims, [0, 3, 1, 2]) for tensor in images})
    if plan_all:
        return InterfaceLayouts(requested, frozenset(t for t in file_layouts if t not in requested and t.rank > 1))
    if plan_caches:
        pairs = cache_pairs(names.inputs, names.outputs)
        caches = {by_name[name] for name in (*pairs, *pairs.values())} - requested.keys()
        fixed = {tensor: layout for tensor, layout in file_layouts.items() if tensor not in caches}
        return InterfaceLayouts({**fixed, **requested}, frozenset(caches))
    return InterfaceLayouts({**file_layouts, **requested})


def _parse_layout(name: str, text: str, tensor: Tensor) -> TensorLayout:
    """Return the layout for text such as ``"NHWC:NCHW"``: file axes, requested axes."""
    axes, _, requested_axes = text.partition(":")
    if sorted(axes) != sorted(requested_axes) or len(set(axes)) != len(axes) or len(axes) != tensor.rank:
        raise UnsupportedOption(
            f"--layout {name}={text}: give the same {tensor.rank} letters on both sides, as in NHWC:NCHW"
        )
    return layout_of_permutation(tensor.dims, [axes.index(letter) for letter in requested_axes])
