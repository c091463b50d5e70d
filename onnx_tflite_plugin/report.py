"""What a conversion did, as data; the command prints it, tests read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.telling.edges import Edge

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class Transposed:
    """One tensor the plan transposes: between which operators, and how many bytes."""

    tensor: str
    perm: str
    bytes: int
    producer: str
    consumers: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Report:
    """Counts, the layout plan, and everything a user should know about a conversion.

    ``layout`` is ``"least"`` (provably), ``"heuristic"`` or ``"local"``; ``transposes`` counts Transpose nodes before
    any rewrite; ``transposed`` names the tensors and who forced each. ``moved`` counts operators in another order than the
    file's or the one their ONNX operator has; without any, the plan is the local one. ``transposed_for_speed``: operators
    for whose speed the plan is not the one that moves the fewest bytes, with the byte equivalents (8 kB a microsecond)
    each saves. ``passes``: rewrites for speed, with the number of places each changed. ``fusions_declined``: fusions that
    did not apply, and why. ``finished_by``: packs whose hook was handed the finished model. ``weights``: 8-bit products by the
    dtype of their weights.
    ``repairs``: what the file stores falsely, and what was taken in its place.
    ``domains``: those of operators for which a library of kernels must be loaded into the session.
    ``signature``: the key of the signature that was converted, and ``other_signatures`` those that were not.
    """

    target: str
    opset: int
    operators: Mapping[str, int]
    nodes: Mapping[str, int]
    layout: str
    layout_cost: int
    moved: int
    transposes: int
    transposed: tuple[Transposed, ...]
    inputs: tuple[Edge, ...] = ()
    outputs: tuple[Edge, ...] = ()
    signature: str | None = None
    other_signatures: tuple[str, ...] = ()
    transposed_for_speed: tuple[tuple[str, int], ...] = ()
    fused: Mapping[str, int] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    fusions_declined: tuple[str, ...] = ()
    packs: Mapping[str, int] = field(default_factory=dict)
    finished_by: tuple[str, ...] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    storage: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    repairs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Report: {self.line}>"

    @property
    def line(self) -> str:
        """What became of what, in a few words."""
        operators, nodes = sum(self.operators.values()), sum(self.nodes.values())
        ends = f"{_first(self.inputs)} → {_first(self.outputs)}"
        left = "1 Transpose" if self.transposes == 1 else f"{self.transposes} Transposes"
        return f"{ends}; {self.target}, opset {self.opset}; {operators} operators as {nodes} nodes, {left}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _first(edges: Sequence[Edge]) -> str:
    """The names of the first three, and how many there are more."""
    more = f" and {len(edges) - 3} more" if len(edges) > 3 else ""
    return ", ".join(edge.name for edge in edges[:3]) + more


def node_counts(model: ir.Model) -> dict[str, int]:
    """Nodes by operator, inner graphs included, most frequent first."""
    counted: Counter[str] = Counter()
    for node in model.graph.all_nodes():
        counted[f"{node.domain}.{node.op_type}" if node.domain else node.op_type] += 1
    return dict(counted.most_common())
