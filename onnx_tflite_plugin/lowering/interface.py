"""The model's face: names, and the orders asked of graph inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onnx_tflite_plugin.binding.bound import BoundGraph
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.layout.order import Order, permuted, source_order
from onnx_tflite_plugin.layout.spread import Edges
from onnx_tflite_plugin.source.model import Model, Signature, Tensor


@dataclass(frozen=True)
class InterfaceNames:
    """What the graph's inputs and outputs are called, by position."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def entered(model: Model, signature: str | None) -> Model:
    """The model with the signature's subgraph as its main one; as it is without a signature.

    Raises UnsupportedOption for a signature the file does not have.
    """
    chosen = _signature(model, signature)
    return model if chosen is None else replace(model, root=chosen.subgraph)


def interface_names(model: Model, signature: str | None) -> InterfaceNames:
    """The file's names, or those of the signature, whose subgraph is the main one; an empty or repeated one gets ``#index``.

    Raises UnsupportedOption for a signature the file does not have.
    """
    chosen = _signature(model, signature)
    taken: set[str] = set()

    def named(tensor: Tensor, given: Mapping[int, str]) -> str:
        name = given.get(tensor.index, tensor.name)
        while not name or name in taken:
            name = f"{name}#{tensor.index}"
        taken.add(name)
        return name

    by_index = (
        [{index: name for name, index in names.items()} for names in (chosen.inputs, chosen.outputs)]
        if chosen
        else [{}, {}]
    )
    return InterfaceNames(
        tuple(named(tensor, by_index[0]) for tensor in model.main.inputs),
        tuple(named(tensor, by_index[1]) for tensor in model.main.outputs),
    )


def _signature(model: Model, key: str | None) -> Signature | None:
    if key is None:
        return None
    chosen = next((s for s in model.signatures if s.key == key), None)
    if chosen is None:
        listed = ", ".join(repr(s.key) for s in model.signatures) or "none"
        raise UnsupportedOption(f"the model has no signature {key!r}; it has {listed}")
    return chosen


def graph_edges(main: BoundGraph, names: InterfaceNames, layouts: Mapping[str, str], *, free: bool) -> Edges:
    """Orders of graph inputs and outputs: by name those that ``layouts`` ask for, the rest the file's unless ``free``.

    Raises UnsupportedOption for a name the model does not have, or letters that are no order of its axes.
    """
    edges = {tensor: source_order(tensor.dims) for tensor in (*main.inputs, *main.outputs)}
    asked: dict[Tensor, Order] = {}
    by_name = dict(zip((*names.inputs, *names.outputs), (*main.inputs, *main.outputs), strict=True))
    for name, letters in layouts.items():
        if name not in by_name:
            raise UnsupportedOption(
                f"--layout {name}: no graph input or output has that name; there are {', '.join(by_name)}"
            )
        asked[by_name[name]] = _asked(name, letters, by_name[name])
    if free:
        return Edges(asked, frozenset(t for t in edges if t not in asked and t.rank > 1))
    return Edges({**edges, **asked})


def _asked(name: str, layouts: str, tensor: Tensor) -> Order:
    """``"NHWC:NCHW"``: the letters of the tensor's axes, and their wanted order."""
    before, _, after = layouts.partition(":")
    if sorted(before) != sorted(after) or len(set(before)) != len(before) or len(before) != tensor.rank:
        raise UnsupportedOption(
            f"--layout {name}={layouts}: give the same {tensor.rank} letters in both orders, as NHWC:NCHW"
        )
    return permuted(tensor.dims, [before.index(letter) for letter in after])
