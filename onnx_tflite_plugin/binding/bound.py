"""Model with a handler bound to each operator, for planners and lowering."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from onnx_tflite_plugin.api.behavior import Behavior
from onnx_tflite_plugin.api.declarations import Axes, Effects, Handler
from onnx_tflite_plugin.api.layouts import AxisPrice, Layout, SubgraphBoundary
from onnx_tflite_plugin.api.quantization import OutputBehavior
from onnx_tflite_plugin.errors import CONTRADICTION, Contradiction, InvalidModel
from onnx_tflite_plugin.source.flatbuffer import REFUSED
from onnx_tflite_plugin.source.model import Dims, Model, Operator, Subgraph, Tensor


class Declared(NamedTuple):
    """Declarations of one operator.

    ``axes``: None if operands and results share no axes. ``aligned``: True if the handler declares no axes: the host then
    aligns the last axes of all data operands, as in broadcasting. ``activation``: name of the fused activation. The host
    applies it, or the lowering if ``activation_in_lowering`` is True. ``subgraphs``: indices of the subgraphs that the
    operator calls. ``state_key``: state key of the resource in output 0.
    """

    layout: Layout
    axes: Axes
    aligned: bool
    axis_price: AxisPrice | None
    indexed_by_axis: Mapping[int, int]
    axis_number_slots: frozenset[int]
    reshapes: Mapping[int, Dims]
    requires_constant: frozenset[int]
    quantization: Behavior
    output_quantization: Mapping[int, OutputBehavior]
    activation: str
    activation_in_lowering: bool
    min_opset: int
    subgraphs: tuple[int, ...]
    boundary: SubgraphBoundary | None
    effects: Effects | None
    state_key: str | None

    @property
    def accesses_states(self) -> bool:
        """True if the operator may access states: directly, or in a called subgraph."""
        return bool(self.subgraphs) or self.effects is not None


@dataclass(frozen=True, eq=False)
class Bound:
    """One operator and the handler that lowers it.

    ``members``: the operators of the file that ``op`` replaces: ``op`` itself, the operators of a fusion, or the operator
    that a handler rewrote. ``resolved``: the handler's declarations for ``op``; None before they are read.
    """

    op: Operator
    handler: Handler
    pack: str
    members: tuple[Operator, ...]
    resolved: Declared | None = None

    @property
    def declared(self) -> Declared:
        """Return the handler's declarations. Raises LookupError before they are read."""
        if self.resolved is None:
            raise LookupError(f"the declarations of {self.label} are not read yet")
        return self.resolved

    @property
    def label(self) -> str:
        """Return ``op 12 CONV_2D v3 'tensor name'`` for messages.

        If ``op`` replaces a single operator of the file, the text names the operator of the file.
        """
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
    """A bound model. ``graphs`` has one entry per subgraph.

    Subgraphs that no operator calls have no bound operators.
    """

    source: Model
    graphs: tuple[BoundGraph, ...]

    @property
    def main(self) -> BoundGraph:
        return self.graphs[self.source.root]

    @property
    def subgraphs(self) -> tuple[Subgraph, ...]:
        """Return the subgraphs with their bound operators and folded constants."""
        return tuple(replace(graph.subgraph, operators=tuple(b.op for b in graph.operators)) for graph in self.graphs)

    def drop_uncalled_graphs(self) -> BoundModel:
        """Return the model without the operators of subgraphs that no operator calls.

        The declarations must have been read.
        """
        reached, pending = {self.source.root}, [self.source.root]
        while pending:
            for bound in self.graphs[pending.pop()].operators:
                new_indices = set(bound.declared.subgraphs) - reached
                reached |= new_indices
                pending += new_indices
        graphs = [g if k in reached else g.with_operators(()) for k, g in enumerate(self.graphs)]
        return BoundModel(self.source, tuple(graphs))

    def operators(self) -> Iterator[Bound]:
        for graph in self.graphs:
            yield from graph.operators


def label(op: Operator) -> str:
    """Return ``op 12 CONV_2D v3 'tensor name'`` for messages."""
    name = next((f" {t.name!r}" for t in op.outputs if t is not None), "")
    where = f"subgraph {op.subgraph} " if op.subgraph else ""
    return f"{where}op {op.index} {op.code} v{op.version}{name}"


def find_missing_subgraphs(op: Operator, indices: Sequence[int], subgraph_count: int) -> list[Contradiction]:
    """Return a contradiction for each called subgraph that does not exist.

    ``subgraph_count``: the number of subgraphs in the model.
    """
    reason = f"{op.code} calls subgraph {{}}; the model has {subgraph_count} subgraphs"
    where = f"subgraphs[{op.subgraph}].operators[{op.index}]"
    return [
        Contradiction(where, reason.format(k), "the file is damaged") for k in indices if not 0 <= k < subgraph_count
    ]


def check_calls(calls: Mapping[tuple[int, Operator], Sequence[int]]) -> None:
    """Raise InvalidModel for a recursive call, which would exhaust LiteRT's memory.

    ``calls``: (index of a subgraph, operator in this subgraph) → indices of the subgraphs that the operator calls.
    """
    callees: dict[int, set[int]] = {}
    for (index, _), indices in calls.items():
        callees.setdefault(index, set()).update(indices)
    for (index, op), indices in calls.items():
        seen, pending = set[int](), list(indices)
        while pending:
            callee = pending.pop()
            if callee == index:
                where = f"subgraphs[{index}].operators[{op.index}]"
                reason = f"{op.code} calls subgraph {index}, which contains the call: calls must not be recursive"
                raise InvalidModel(CONTRADICTION, [Contradiction(where, reason, "the file is damaged")])
            if callee not in seen:
                seen.add(callee)
                pending.extend(callees.get(callee, ()))


def check_operand_sources(graphs: Iterable[BoundGraph]) -> None:
    """Raise InvalidModel for an operand without data that nothing computes."""
    for graph in graphs:
        results = (tensor for bound in graph.operators for tensor in bound.op.outputs if tensor is not None)
        available = {*graph.inputs, *results}
        for op in (bound.op for bound in graph.operators):
            for slot, tensor in enumerate(op.inputs):
                if tensor is None or tensor.is_constant or tensor.is_variable or tensor in available:
                    continue
                where = f"subgraphs[{op.subgraph}].operators[{op.index}].inputs[{slot}]"
                reason = f"tensor {tensor} holds no data and nothing computes it"
                raise InvalidModel(CONTRADICTION, [Contradiction(where, reason, REFUSED)])
