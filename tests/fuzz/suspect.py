"""What the classes of models are decided from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onnx_tflite_plugin.diagnosis.litert import Probed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Model, Operator, Quantization, Tensor


class Suspect(NamedTuple):
    """A file. ``told``: the shapes that LiteRT computes; ``dtypes``: those of its tensors as LiteRT's kernels are prepared,
    ``None`` where they refuse that without XNNPACK.
    """

    model: Model
    told: Probed
    dtypes: dict[int, str] | None
    host: Host

    @property
    def tensors(self) -> Iterator[Tensor]:
        return (tensor for graph in self.model.subgraphs for tensor in graph.tensors)

    @property
    def operators(self) -> Iterator[Operator]:
        return (op for graph in self.model.subgraphs for op in graph.operators)

    @property
    def steps(self) -> list[Operator]:
        """What loops do again and again."""
        loops = [op.options.body_subgraph_index for op in self.operators if op.code == "WHILE"]
        return [op for graph in self.model.subgraphs if graph.index in loops for op in graph.operators]


def scales_of(tensor: Tensor | None) -> tuple[float, ...]:
    return tensor.quantization.scale if tensor is not None and isinstance(tensor.quantization, Quantization) else ()
