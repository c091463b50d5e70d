"""What a conversion did, as data; the command prints it, tests read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True)
class Report:
    """Counts, the layout plan, and everything a user should know about a conversion.

    ``layout`` is ``"least"`` (provably), ``"heuristic"`` or ``"local"``; ``transposes`` counts Transpose nodes in the
    model; ``transposed`` names the tensors and who forced each. ``bought``: operators for whose speed the plan is not
    the one that moves the fewest bytes, with the byte equivalents (8 kB a microsecond) each saves. ``passes``: rewrites
    for speed, with the number of places each changed. ``weights``: 8-bit products by the dtype of their weights.
    """

    target: str
    opset: int
    operators: Mapping[str, int]
    nodes: Mapping[str, int]
    layout: str
    layout_cost: int
    transposes: int
    transposed: tuple[Transposed, ...]
    bought: tuple[tuple[str, int], ...] = ()
    fused: Mapping[str, int] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    declined: tuple[str, ...] = ()
    packs: Mapping[str, int] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    storage: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def node_counts(model: ir.Model) -> dict[str, int]:
    """Nodes by operator, inner graphs included, most frequent first."""
    counted: Counter[str] = Counter()
    for node in model.graph.all_nodes():
        counted[f"{node.domain}.{node.op_type}" if node.domain else node.op_type] += 1
    return dict(counted.most_common())
