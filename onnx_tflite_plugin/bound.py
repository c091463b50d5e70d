"""A model whose operators have their handlers: what the planners and the lowering read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from onnx_tflite_plugin.api.declarations import Handler
from onnx_tflite_plugin.source.model import Model, Operator, Subgraph, Tensor


@dataclass(frozen=True, eq=False)
class Bound:
    """One operator and who lowers it. ``members`` are the TFLite operators it stands for: itself, or those fused."""

    op: Operator
    handler: Handler
    pack: str
    members: tuple[Operator, ...]

    @property
    def label(self) -> str:
        """``op 12 CONV_2D v3 'tensor name'``, for messages."""
        named = next((f" {t.name!r}" for t in self.op.outputs if t is not None), "")
        where = f"subgraph {self.op.subgraph} " if self.op.subgraph else ""
        return f"{where}op {self.op.index} {self.op.code} v{self.op.version}{named}"


@dataclass(frozen=True, eq=False)
class BoundGraph:
    subgraph: Subgraph
    operators: tuple[Bound, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.subgraph.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return self.subgraph.outputs

    def with_operators(self, operators: tuple[Bound, ...]) -> BoundGraph:
        return replace(self, operators=operators)


@dataclass(frozen=True, eq=False)
class BoundModel:
    """``graphs`` has one entry per subgraph; subgraphs no operator calls have no bound operators."""

    source: Model
    graphs: tuple[BoundGraph, ...]

    @property
    def main(self) -> BoundGraph:
        return self.graphs[0]

    def operators(self) -> Iterator[Bound]:
        for graph in self.graphs:
            yield from graph.operators


def called(bound: Bound) -> list[int]:
    """Indices of the subgraphs an operator calls, as its handler's ``subgraphs`` options hold them."""
    held = [bound.op.options.get(name) for name in bound.handler.subgraphs]
    flat = [index for field in held for index in (field if isinstance(field, tuple) else (field,))]
    return [index for index in flat if isinstance(index, int) and index >= 0]
