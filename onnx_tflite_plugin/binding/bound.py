"""A model whose operators have their handlers: what the planners and the lowering read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from onnx_tflite_plugin.api.declarations import (
    Along,
    Axes,
    Borders,
    Effects,
    Handler,
    Layout,
)
from onnx_tflite_plugin.api.quantization import Behaviour, OutputBehaviour
from onnx_tflite_plugin.errors import CONTRADICTION, Contradiction, InvalidModel
from onnx_tflite_plugin.source.flatbuffer import REFUSED
from onnx_tflite_plugin.source.model import Dims, Model, Operator, Subgraph, Tensor


class Declared(NamedTuple):
    """One operator's declarations. ``axes`` is None where its slots share no axes that can be followed.

    ``activation``: the fused activation that is applied, by the host or, where ``activates_inside``, by the lowering.
    ``aligned``: nothing is declared of axes, so the host aligns all operands that hold data from the right.
    ``subgraphs``: indices of those it calls. ``state``: the key of the state that output 0, a resource, stands for.
    """

    layout: Layout
    axes: Axes
    aligned: bool
    along: Along | None
    indexed_by_axis: Mapping[int, int]
    holds_axes: frozenset[int]
    reshapes: Mapping[int, Dims]
    requires_constant: frozenset[int]
    quantization: Behaviour
    output_quantization: Mapping[int, OutputBehaviour]
    activation: str
    activates_inside: bool
    min_opset: int
    subgraphs: tuple[int, ...]
    borders: Borders | None
    effects: Effects | None
    state: str | None

    @property
    def hands_on(self) -> bool:
        """Whether it calls subgraphs or touches states, whose tensors others see as they are."""
        return bool(self.subgraphs) or self.effects is not None


@dataclass(frozen=True, eq=False)
class Bound:
    """One operator and who lowers it. ``members`` are the TFLite operators it stands for: itself, those fused, or the one
    that was rewritten to it.

    ``resolved``: what the handler declares of it, once that is read.
    """

    op: Operator
    handler: Handler
    pack: str
    members: tuple[Operator, ...]
    resolved: Declared | None = None

    @property
    def declared(self) -> Declared:
        """What the handler declares of this operator. Raises LookupError before declarations are read."""
        if self.resolved is None:
            raise LookupError(f"the declarations of {self.label} are not read yet")
        return self.resolved

    @property
    def label(self) -> str:
        """``op 12 CONV_2D v3 'tensor name'``, for messages: the file's operator, where one became this."""
        return label(self.members[0] if len(self.members) == 1 else self.op)


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
        return self.graphs[self.source.root]

    @property
    def subgraphs(self) -> tuple[Subgraph, ...]:
        """The subgraphs with the operators that are bound, whose operands may be known where the file computes them."""
        return tuple(replace(graph.subgraph, operators=tuple(b.op for b in graph.operators)) for graph in self.graphs)

    def called(self) -> BoundModel:
        """Without the operators of subgraphs that no operator calls any more. Declarations are read by now."""
        reached, waiting = {self.source.root}, [self.source.root]
        while waiting:
            for bound in self.graphs[waiting.pop()].operators:
                new = set(bound.declared.subgraphs) - reached
                reached |= new
                waiting += new
        graphs = [g if k in reached else g.with_operators(()) for k, g in enumerate(self.graphs)]
        return BoundModel(self.source, tuple(graphs))

    def operators(self) -> Iterator[Bound]:
        for graph in self.graphs:
            yield from graph.operators


def label(op: Operator) -> str:
    """``op 12 CONV_2D v3 'tensor name'``, for messages."""
    named = next((f" {t.name!r}" for t in op.outputs if t is not None), "")
    where = f"subgraph {op.subgraph} " if op.subgraph else ""
    return f"{where}op {op.index} {op.code} v{op.version}{named}"


def called_in_vain(op: Operator, indices: Sequence[int], subgraphs: int) -> list[Contradiction]:
    """Subgraphs that an operator calls and the model, which has so many, does not have."""
    reason = f"{op.code} calls subgraph {{}}; the model has {subgraphs}"
    where = f"subgraphs[{op.subgraph}].operators[{op.index}]"
    return [Contradiction(where, reason.format(k), "the file is damaged") for k in indices if not 0 <= k < subgraphs]


def check_calls(calls: Mapping[tuple[int, Operator], Sequence[int]]) -> None:
    """``calls``: (subgraph, operator in it) to the subgraphs that it calls. Raises InvalidModel for one that calls itself.

    LiteRT would run out of memory: what an operator calls is a part of it, and ends before it does.
    """
    reached: dict[int, set[int]] = {}
    for (index, _), indices in calls.items():
        reached.setdefault(index, set()).update(indices)
    for (index, op), indices in calls.items():
        seen, waiting = set[int](), list(indices)
        while waiting:
            callee = waiting.pop()
            if callee == index:
                where = f"subgraphs[{index}].operators[{op.index}]"
                reason = f"{op.code} calls subgraph {index}, of which it is a part"
                raise InvalidModel(CONTRADICTION, [Contradiction(where, reason, "the file is damaged")])
            if callee not in seen:
                seen.add(callee)
                waiting.extend(reached.get(callee, ()))


def check_filled(graphs: Iterable[BoundGraph]) -> None:
    """Raise InvalidModel for an operand that holds no data and that nothing computes; LiteRT does not run such a file."""
    for graph in graphs:
        results = (tensor for bound in graph.operators for tensor in bound.op.outputs if tensor is not None)
        filled = {*graph.inputs, *results}
        for op in (bound.op for bound in graph.operators):
            for slot, tensor in enumerate(op.inputs):
                if tensor is None or tensor.constant or tensor.is_variable or tensor in filled:
                    continue
                where = f"subgraphs[{op.subgraph}].operators[{op.index}].inputs[{slot}]"
                reason = f"tensor {tensor} holds no data and nothing computes it"
                raise InvalidModel(CONTRADICTION, [Contradiction(where, reason, REFUSED)])
