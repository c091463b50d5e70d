"""Explain why a fusion matches nowhere in a model: the operator at which the most promising match ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import permutations

from onnx_tflite_plugin.api.patterns import Call, Fusion, Operand, Output
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph, BoundModel
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.cli.output import limit_lines
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.offers import FUSIONS, Offer
from onnx_tflite_plugin.source.model import Model, Tensor
from onnx_tflite_plugin.targets import target_named

Progress = tuple[int, str]
"""The number of operators that matched, and what did not match; empty if everything did."""


def explain_unloaded(name: str, source: Model, host: Host) -> str:
    """Return the reason why a fusion was not loaded for a file; empty if it was."""
    named = {offer: fusion.name for offer in host.offers if offer.group == FUSIONS and (fusion := _load(offer))}
    offers = [offer for offer, one in named.items() if one == name]
    if not offers:
        failed = [text for text in host.warnings if "left out" in text]
        names = ", ".join(limit_lines(sorted({*named.values()}), 4, "the command handlers lists them"))
        near = did_you_mean(name, named.values()) or f"; their fusions: {names}"
        return "; ".join(failed) or f"no entry point of an installed pack has a fusion of this name{near}"
    codes = {op.code for graph in source.subgraphs for op in graph.operators}
    if all(offer.needs and not offer.needs & codes and not offer.needs & {*named.values()} for offer in offers):
        listed = ", ".join(sorted(code for offer in offers for code in offer.needs))
        return f"its entry point lists [{listed}], and the model has no such operator; list one of the pattern's"
    return ""


def _load(offer: Offer) -> Fusion | None:
    with suppress(Failed):
        return offer.fusion()
    return None


def explain_unmatched(name: str, source: Model, host: Host) -> str:
    """Return the reason why a fusion applies nowhere in a file, by its operators before any fusion."""
    fusion = next((one for _, one in host.fusions() if one.name == name), None)
    if fusion is None:
        return "it is not installed"
    target = target_named("onnxruntime")
    model = resolve(host.bind(source, target, target.opsets[2]), target, target.opsets[2])
    return describe_mismatch(model, fusion) or "it found no region"


def describe_mismatch(model: BoundModel, fusion: Fusion) -> str:
    """Return the reason why no operator of a model matches a fusion's patterns; empty for a fusion of regions."""
    if fusion.regions is not None:
        return ""
    tried = [
        _match_root(graph, bound, pattern)
        for graph in model.graphs
        for bound in graph.operators
        for pattern in fusion.patterns
    ]
    found = [progress for progress in tried if progress[0]]
    if not found:
        ends = " or ".join(sorted({pattern.code for pattern in fusion.patterns}))
        return f"the model has no {ends}, the last operator of the pattern"
    return max(found, key=lambda progress: progress[0])[1] or "an inner result is used outside the match"


def _match_root(graph: BoundGraph, bound: Bound, pattern: Call) -> Progress:
    makers = {tensor: one for one in graph.operators for tensor in one.op.outputs if tensor is not None}
    return _match(pattern, bound, makers, {})[0] if bound.handler.code == pattern.code else (0, "")


def _match(
    pattern: Call, bound: Bound, makers: Mapping[Tensor, Bound], seen: Mapping[Operand, Tensor]
) -> tuple[Progress, Mapping[Operand, Tensor]]:
    """Return how far an operator matches a call, and the tensors of the pattern's operands."""
    if bound.handler.code != pattern.code:
        return (0, f"{bound.label} is no {pattern.code}, which the pattern has in its place"), seen
    present = [tensor for tensor in bound.op.inputs if tensor is not None]
    if len(present) != len(pattern.operands):
        return (
            1,
            f"{bound.label} has {len(present)} operands, the pattern's {pattern.code} has {len(pattern.operands)}",
        ), seen
    for name, value in pattern.options.items():
        if (given := bound.op.options.get(name)) != value:
            return (1, f"{bound.label} has {name}={given!r}, the pattern has {name}={value!r}"), seen
    return max((_match_operands(pattern, order, bound, makers, seen) for order in _orders(pattern)), key=_rank)


def _orders(pattern: Call) -> Iterator[tuple[int, ...]]:
    yield from permutations(range(len(pattern.operands))) if pattern.commutes else [tuple(range(len(pattern.operands)))]


def _rank(result: tuple[Progress, Mapping[Operand, Tensor]]) -> tuple[bool, int]:
    (count, reason), _ = result
    return not reason, count


def _match_operands(
    pattern: Call, order: tuple[int, ...], bound: Bound, makers: Mapping[Tensor, Bound], seen: Mapping[Operand, Tensor]
) -> tuple[Progress, Mapping[Operand, Tensor]]:
    present, count = [tensor for tensor in bound.op.inputs if tensor is not None], 1
    for operand, k in zip(pattern.operands, order, strict=True):
        tensor, where = present[k], f"operand {k} of {bound.label}"
        if isinstance(operand, Operand):
            if operand.constant and not tensor.is_constant:
                return (count, f"{where} is not constant, but the pattern's {operand.name!r} is"), seen
            if (first := seen.get(operand, tensor)) is not tensor and not tensor.is_constant:
                return (
                    count,
                    f"{where} is {tensor.name!r}, but {operand.name!r} of the pattern is {first.name!r} elsewhere",
                ), seen
            seen = {**seen, operand: tensor}
            continue
        call = operand.call if isinstance(operand, Output) else operand
        if (maker := makers.get(tensor)) is None:
            kind = "a constant" if tensor.is_constant else "a graph input"
            return (count, f"{where} is {kind}, the pattern has {call.code} there"), seen
        (matched, reason), seen = _match(call, maker, makers, seen)
        count += matched
        if reason:
            return (count, reason), seen
    return (count, ""), seen
