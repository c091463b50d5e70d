"""Fusion of operators that together compute one ONNX operator, before planning."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.api.patterns import Call, Fusion, Match, Region
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.activation import activation_declaration
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph, BoundModel
from onnx_tflite_plugin.binding.declared import OperatorInstance, check_types, fused_activation, resolve_operator
from onnx_tflite_plugin.binding.matching import Finder, reads_computed_variable
from onnx_tflite_plugin.checked import describe
from onnx_tflite_plugin.guard import Failed, Mismatch, WrongResult, attribute_errors
from onnx_tflite_plugin.source.model import Operator, Options, Subgraph, Tensor

_MAX_CHAIN = 4
"""Maximum number of fusions in a chain, each of which matches the result of the one before.

The limit ends cycles: fusions of packs may refer to each other.
"""


@dataclass
class FusedModel:
    """Result of the fusion stage.

    ``applied``: fusion -> number of matches that were fused. ``declined``: a line for each match that was declined, with
    the reason. ``failed``: fusion -> its error; the operators of its matches stay unchanged.
    """

    model: BoundModel
    applied: dict[str, int] = field(default_factory=dict)
    declined: list[str] = field(default_factory=list)
    failed: dict[str, Failed] = field(default_factory=dict)


def fuse(
    model: BoundModel,
    fusions: Iterable[tuple[str, Fusion]],
    target: Target,
    *,
    opset: int | None = None,
    inexact: bool = False,
) -> FusedModel:
    """Apply every fusion wherever it matches and ``opset`` supports it.

    Later fusions can match the results of earlier fusions. ``fusions``: (pack, fusion) in the order of registration.
    ``opset``: the requested opset, or None if the user requested none. ``inexact``: True to also apply fusions that skip a
    rounding.
    """
    result = FusedModel(model)
    stage = _Stage(target, opset or target.opsets[1], opset or target.opsets[2], result, model.subgraphs, {})
    for pack, fusion in _sort_fusions(fusions):
        is_enabled = (fusion.exact or inexact) and (not fusion.trait or getattr(target, fusion.trait))
        if is_enabled:
            fuse_graph = _fuse_graph if fusion.regions is None else _fuse_regions
            graphs = tuple(fuse_graph(graph, pack, fusion, stage) for graph in result.model.graphs)
            result.model = BoundModel(model.source, graphs)
    return result


def _sort_fusions(fusions: Iterable[tuple[str, Fusion]]) -> list[tuple[str, Fusion]]:
    """Return the fusions in the order in which they are applied.

    Exact fusions come before inexact fusions. Within each of these two groups, fusions with region functions come first,
    because they match operators as they are in the file. A fusion comes after the fusions whose results its patterns
    contain. Otherwise the order of registration is kept.
    """
    entries = list(fusions)
    dependencies = {fusion.name: _pattern_codes(fusion).union(fusion.after) for _, fusion in entries}
    rank = dict.fromkeys(dependencies, 0)
    for _ in range(_MAX_CHAIN):
        rank = {
            name: max((rank[code] + 1 for code in codes & rank.keys()), default=0)
            for name, codes in dependencies.items()
        }
    return sorted(entries, key=lambda item: (not item[1].exact, item[1].regions is None, rank[item[1].name]))


@cache
def _pattern_codes(fusion: Fusion) -> frozenset[str]:
    """Return the operator codes in the fusion's patterns."""
    return frozenset[str]().union(*(pattern.codes() for pattern in fusion.patterns))


class _Stage(NamedTuple):
    """Context of the fusion stage.

    ``opset``: the opset that the model gets unless a fusion raises it. ``highest_opset``: the highest opset to which a
    fusion may raise it.
    """

    target: Target
    opset: int
    highest_opset: int
    result: FusedModel
    graphs: Sequence[Subgraph]
    finders: dict[BoundGraph, Finder]

    def max_opset(self, fusion: Fusion) -> int:
        """Return the highest opset that the fusion may need."""
        return self.highest_opset if fusion.raises_opset else self.opset

    def finder(self, graph: BoundGraph) -> Finder:
        """Return the finder of a graph, cached until a fusion changes the graph."""
        if graph not in self.finders:
            self.finders[graph] = Finder(graph, self.graphs)
        return self.finders[graph]


def _fuse_graph(graph: BoundGraph, pack: str, fusion: Fusion, stage: _Stage) -> BoundGraph:
    root_codes = {pattern.code for pattern in fusion.patterns}
    if not any(bound.handler.code in root_codes for bound in graph.operators):
        return graph
    finder = stage.finder(graph)
    operators = list(graph.operators)
    replaced: set[Bound] = set()  # operators whose outputs the replacements compute
    inner: set[Bound] = set()
    unavailable: set[Bound] = set()  # operators that no further match may contain
    applied = stage.result.applied
    for root in reversed(graph.operators):  # from the end, so that the longest match is fused
        if root.handler.code not in root_codes or root in unavailable:
            continue
        for pattern in fusion.patterns:
            match = finder.find(pattern, root, unavailable) if pattern.code == root.handler.code else None
            if match is None:
                continue
            try:
                replacement = _bind_match(fusion, pack, pattern, match, root, finder, stage)
            except Failed as failed:
                stage.result.failed[fusion.name] = failed
                stage.result.declined.append(f"{fusion.name} at {root.label}: {failed.reason}")
                return graph.with_operators(_remaining_operators(graph, operators, replaced, inner))
            if replacement is not None:
                output_operators = {finder.bound_of(match.calls[call]) for call in (pattern, *pattern.siblings)}
                members = {finder.bound_of(op) for op in match.calls.values()}
                unavailable |= output_operators | members - finder.reusable_members(match)
                replaced |= output_operators
                inner |= members - output_operators
                operators[finder.insertion_index(pattern, match)] = replacement
                applied[fusion.name] = applied.get(fusion.name, 0) + 1
            break
    return graph.with_operators(_remaining_operators(graph, operators, replaced, inner)) if replaced else graph


def _remaining_operators(
    graph: BoundGraph, operators: Sequence[Bound], replaced: set[Bound], inner: set[Bound]
) -> tuple[Bound, ...]:
    """Return the operators that remain after a fusion.

    ``operators``: the graph's operators, with replacements at some positions. Operators in ``replaced`` are dropped, and
    operators in ``inner`` if no remaining operator uses their results.
    """
    remaining: list[Bound] = []
    used = set(graph.outputs)
    for bound, original in reversed(list(zip(operators, graph.operators, strict=True))):
        if bound is original and (bound in replaced or (bound in inner and used.isdisjoint(bound.op.outputs))):
            continue
        remaining.append(bound)
        used.update(tensor for tensor in bound.op.inputs if tensor is not None)
    return tuple(reversed(remaining))


def _bind_match(
    fusion: Fusion, pack: str, pattern: Call, match: Match, root: Bound, finder: Finder, stage: _Stage
) -> Bound | None:
    """Return the operator that replaces a match, or None if the match is declined."""
    outcome = (
        _check_types(fusion, pack, match, root, stage)
        or _check_activations(fusion, match, finder, stage)
        or _match_options(fusion, pack, match, root)
    )
    if isinstance(outcome, Decline):
        if outcome.reason:
            stage.result.declined.append(f"{fusion.name} at {root.label}: {outcome.reason}")
        return None
    members = [finder.bound_of(op) for op in dict.fromkeys(match.calls.values())]
    results = [tensor for call in (pattern, *pattern.siblings) for tensor in match.calls[call].outputs]
    operands = tuple(match.tensors.get(operand) for operand in fusion.inputs)
    return _bind_region(fusion, pack, Region(operands, results, outcome), root, members, stage)


def _bind_region(
    fusion: Fusion, pack: str, region: Region, root: Bound, members: Collection[Bound], stage: _Stage
) -> Bound | None:
    """Return the operator that replaces ``members``; None if it cannot be converted.

    The new operator takes the place of the operator ``root``.
    """
    op = root.op
    intermediates = [tensor for member in sorted(members, key=_index) for tensor in member.op.intermediates]
    fused = Operator(
        op.subgraph, op.index, fusion.name, fusion.name, 1, Options(fusion.name, region.options),
        tuple(region.inputs), tuple(region.outputs), tuple(intermediates),
    )  # fmt: skip
    try:
        bound = resolve_operator(
            Bound(fused, fusion.handler, pack, _source_operators(members)), stage.target, stage.highest_opset
        )
    except Refusal as refusal:
        stage.result.declined.append(f"{fusion.name} at {root.label}: {refusal}")
        return None
    if bound.declared.min_opset > stage.max_opset(fusion):
        opsets = f"needs opset {bound.declared.min_opset}, the model has opset {stage.max_opset(fusion)}"
        stage.result.declined.append(f"{fusion.name} at {root.label}: {opsets}")
        return None
    return bound


def _source_operators(members: Collection[Bound]) -> tuple[Operator, ...]:
    """Return the TFLite operators of ``members``, fusions expanded, in file order."""
    operators = dict.fromkeys(op for bound in members for op in bound.members)
    return tuple(sorted(operators, key=lambda op: op.index))


def _index(bound: Bound) -> int:
    return bound.op.index


def _check_types(fusion: Fusion, pack: str, match: Match, root: Bound, stage: _Stage) -> Decline | None:
    """Return a Decline if an operand dtype is unsupported by the fusion.

    If ``types`` is a function, it is called with an operator without options, because they are not known yet.
    """
    op = root.op
    operands = tuple(match.tensors.get(operand) for operand in fusion.inputs)
    probe = Operator(op.subgraph, op.index, fusion.name, fusion.name, 1, Options(), operands, op.outputs)
    reason = check_types(fusion.handler, pack, OperatorInstance(probe, stage.target, stage.highest_opset))
    return Decline(reason) if reason else None


def _check_activations(fusion: Fusion, match: Match, finder: Finder, stage: _Stage) -> Decline | None:
    """Return a Decline if the fused activation of a matched operator would be lost.

    The activation is kept if the call in the pattern requires a value of the activation option, or if the fusion declares
    an activation itself.
    """
    if fusion.handler.activation is not None:
        return None
    for call, op in match.calls.items():
        bound = finder.bound_of(op)
        declared = activation_declaration(bound.handler)
        if declared is None or declared.option in call.options:
            continue
        activation = fused_activation(bound, stage.target, stage.highest_opset)
        if activation != "NONE":
            return Decline(
                f"op {op.index} {op.code} has the fused activation {activation}, which the fusion does not compute"
            )
    return None


def _match_options(fusion: Fusion, pack: str, match: Match, root: Bound) -> Mapping[str, Any] | Decline:
    """Return the result of the fusion's ``check``: options, or a Decline.

    A Refusal becomes a Decline. Raises Failed if the function fails.
    """
    with attribute_errors(f"check of fusion {fusion.name}", pack, fusion.check, root.label):
        try:
            options = fusion.check(match)
        except Refusal as refusal:
            return Decline(str(refusal))
        if not isinstance(options, Mapping | Decline):
            raise WrongResult(f"it returned {describe(options)}, not a mapping of options or a Decline")
        return options


# --- regions ----------------------------------------------------------------------------------


def _fuse_regions(graph: BoundGraph, pack: str, fusion: Fusion, stage: _Stage) -> BoundGraph:
    assert fusion.regions is not None
    location = f"{fusion.name} in subgraph {graph.subgraph.index}"
    try:
        with attribute_errors(f"regions of fusion {fusion.name}", pack, fusion.regions, location):
            regions = list(fusion.regions(tuple(bound.op for bound in graph.operators)))
            if invalid := next((item for item in regions if not isinstance(item, Region)), None):
                raise WrongResult(f"it returned {describe(invalid)}, not a Region")
            for region in regions:
                graph = _fuse_region(graph, pack, fusion, region, stage)
    except Failed as failed:
        stage.result.failed[fusion.name] = failed
        stage.result.declined.append(f"{location}: {failed.reason}")
    return graph


def _fuse_region(graph: BoundGraph, pack: str, fusion: Fusion, region: Region, stage: _Stage) -> BoundGraph:
    """Return the graph with a region replaced by one operator.

    Operators of the region are kept if operators outside the region use their results.
    """
    producers = {tensor: bound for bound in graph.operators for tensor in bound.op.outputs if tensor is not None}
    members = _region_members(region, producers)
    output_operators = {producers[tensor] for tensor in region.outputs if tensor is not None and tensor in producers}
    root = _region_root(graph, region, members, output_operators, producers)
    if isinstance(root, Decline):
        stage.result.declined.append(f"{fusion.name}: {root.reason}")
        return graph
    fused = _bind_region(fusion, pack, region, root, members, stage)
    if fused is None:
        return graph
    stage.result.applied[fusion.name] = stage.result.applied.get(fusion.name, 0) + 1
    operators = [fused if bound is root else bound for bound in graph.operators]
    return graph.with_operators(_remaining_operators(graph, operators, output_operators, members - output_operators))


def _region_root(
    graph: BoundGraph,
    region: Region,
    members: set[Bound],
    output_operators: set[Bound],
    producers: Mapping[Tensor, Bound],
) -> Bound | Decline:
    """Return the operator of the region whose position the fused operator takes.

    The operands of the region must be computed before this position, and the region's results used only after it.
    Otherwise return a Decline. ``output_operators``: the operators that compute the results.
    """
    if reads_computed_variable((bound.op for bound in members), producers):
        return Decline("an operator of the region reads a variable tensor that an operator writes")
    results = {tensor for tensor in region.outputs if tensor is not None}
    remaining = _remaining_operators(graph, graph.operators, output_operators, members - output_operators)
    side_results = {tensor for bound in output_operators for tensor in bound.op.outputs} - results
    if not side_results.isdisjoint({*graph.outputs}.union(*(bound.op.inputs for bound in remaining)) - {None}):
        return Decline("the last operator of the region has a result that is used but is not an output of the region")
    positions = {bound: position for position, bound in enumerate(graph.operators)}
    users = (bound for bound in remaining if not results.isdisjoint(bound.op.inputs))
    first_user = min((positions[bound] for bound in users), default=len(positions))
    operands = [tensor for tensor in region.inputs if tensor is not None]
    last_producer = max((positions[producers[tensor]] for tensor in operands if tensor in producers), default=-1)
    removed = members.difference(remaining)
    candidates = [bound for bound in removed if last_producer < positions[bound] < first_user]
    reason = "an operator reads a result of the region before all operands of the region are computed"
    return max(candidates, key=lambda bound: positions[bound], default=Decline(reason))


def _region_members(region: Region, producers: Mapping[Tensor, Bound]) -> set[Bound]:
    """Return the operators that compute a region's outputs from its inputs.

    Raises Mismatch if they also need a tensor that is neither an input of the region nor computed by an operator.
    """
    members, pending = set[Bound](), list(region.outputs)
    while pending:
        tensor = pending.pop()
        if tensor is None or tensor in region.inputs or tensor.is_constant:
            continue
        if tensor not in producers:
            raise Mismatch(f"tensor {tensor} is not an operand of the matched operators, and no operator computes it")
        producer = producers[tensor]
        if producer not in members:
            members.add(producer)
            pending += producer.op.inputs
    return members
