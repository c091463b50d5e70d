"""The model's face: names, and the orders asked of graph inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.layout.order import Order, permuted, source_order
from onnx_tflite_plugin.layout.plan import Edges
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.source.model import Model, Tensor


def interface_names(model: Model, signature: str | None) -> dict[Tensor, str]:
    """Names of the graph's inputs and outputs: the file's, or the signature's; empty or repeated ones get ``#index``.

    Raises UnsupportedOption for a signature the file does not have, or of another subgraph.
    """
    given: dict[int, str] = {}
    if signature is not None:
        found = next((s for s in model.signatures if s.key == signature), None)
        if found is None:
            known = ", ".join(repr(s.key) for s in model.signatures) or "none"
            raise UnsupportedOption(f"the model has no signature {signature!r}; it has {known}")
        if found.subgraph != 0:
            raise UnsupportedOption(f"signature {signature!r} is subgraph {found.subgraph}'s; only the main one is converted")
        given = {index: name for names in (found.inputs, found.outputs) for name, index in names.items()}
    names: dict[Tensor, str] = {}
    for tensor in (*model.main.inputs, *model.main.outputs):
        if tensor in names:
            continue
        name = given.get(tensor.index, tensor.name)
        names[tensor] = f"{name}#{tensor.index}" if not name or name in names.values() else name
    return names


def graph_edges(model: Model, names: Mapping[Tensor, str], options: ConvertOptions) -> Edges:
    """Orders of graph inputs and outputs that are asked for; the rest is the file's, or free under ``--io-layout onnx``."""
    edges = {tensor: source_order(tensor.dims) for tensor in (*model.main.inputs, *model.main.outputs)}
    asked: dict[Tensor, Order] = {}
    by_name = {name: tensor for tensor, name in names.items()}
    for name, layouts in options.layout.items():
        if name not in by_name:
            raise UnsupportedOption(f"--layout {name}: no graph input or output has that name; there are {', '.join(by_name)}")
        asked[by_name[name]] = _asked(name, layouts, by_name[name])
    if options.io_layout == "onnx":
        return Edges(asked, frozenset(t for t in edges if t not in asked and t.rank > 1))
    return Edges({**edges, **asked})


def _asked(name: str, layouts: str, tensor: Tensor) -> Order:
    """``"NHWC:NCHW"``: the letters of the tensor's axes, and their wanted order."""
    before, _, after = layouts.partition(":")
    if sorted(before) != sorted(after) or len(set(before)) != len(before) or len(before) != tensor.rank:
        raise UnsupportedOption(f"--layout {name}={layouts}: give the same {tensor.rank} letters in both orders, as NHWC:NCHW")
    return permuted(tensor.dims, [before.index(letter) for letter in after])
