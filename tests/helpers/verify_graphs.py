"""TFLite graphs as objects, for tests of verification without a file."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from onnx_tflite_plugin.source.model import Array, Model, Operator, Options, Quantization, Signature, Subgraph, Tensor
from onnx_tflite_plugin.verify.runtimes.structure import Entry, StoredConstant

Slots = Sequence[Tensor | None]


def slot(
    index: int,
    dtype: str = "float32",
    shape: tuple[int | None, ...] = (2, 3),
    scale: float | tuple[float, ...] | None = None,
    *,
    zero_point: int = 0,
    values: Array | None = None,
    variable: bool = False,
    graph: int = 0,
) -> Tensor:
    """Return a tensor, constant if it has ``values``; None in a shape is stored as 1."""
    scales = () if scale is None else scale if isinstance(scale, tuple) else (scale,)
    data = None
    if values is not None:
        data_bytes = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        data = StoredConstant(SimpleNamespace(DataLength=lambda: data_bytes.size, DataAsNumpy=lambda: data_bytes))
    stored_shape = tuple(1 if size is None else size for size in shape)
    quantization = Quantization(scales, (zero_point,) * len(scales)) if scales else None
    return Tensor(graph, index, f"t{index}", dtype, stored_shape, shape, data, quantization, variable)


def operator(inputs: Slots, outputs: Slots, *, graph: int = 0, index: int = 0, code: str = "OP") -> Operator:
    return Operator(graph, index, code, code, 1, Options(), tuple(inputs), tuple(outputs))


def subgraph(
    *operators: Operator, inputs: Sequence[Tensor] = (), outputs: Sequence[Tensor] = (), index: int = 0
) -> Subgraph:
    tensors_by_index = {t.index: t for op in operators for t in (*op.inputs, *op.outputs) if t is not None}
    tensors_by_index |= {t.index: t for t in (*inputs, *outputs)}
    return Subgraph(
        index,
        "",
        tuple(tensors_by_index[k] for k in sorted(tensors_by_index)),
        tuple(inputs),
        tuple(outputs),
        operators,
    )


def model(*graphs: Subgraph, signatures: Sequence[Signature] = ()) -> Model:
    return Model(graphs, tuple(signatures))


def entry_of(graph: Subgraph) -> Entry:
    interface = graph.inputs, graph.outputs
    names = (tuple(tensor.name for tensor in side) for side in interface)
    return Entry(graph, *interface, *names)
