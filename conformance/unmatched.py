"""Explain why a fusion matches nowhere: the operator where the longest match ends."""

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
"""(number of operators that matched, reason why the next operator does not match); "" if the match is complete."""


def explain_unloaded(name: str, source: Model, host: Host) -> str:
    """Return the reason why a fusion was not loaded for a model; "" if it was loaded."""
    fusion_names = {offer: fusion.name for offer in host.offers if offer.group == FUSIONS and (fusion := _load(offer))}
    offers = [offer for offer, fusion_name in fusion_names.items() if fusion_name == name]
    if not offers:
        warnings = [text for text in host.warnings if "skipped" in text]
        names_text = ", ".join(limit_lines(sorted({*fusion_names.values()}), 4, "the command handlers lists them"))
        hint = did_you_mean(name, fusion_names.values()) or f"; their fusions: {names_text}"
        return "; ".join(warnings) or f"no entry point of an installed pack has a fusion of this name{hint}"
    codes = {op.code for graph in source.subgraphs for op in graph.operators}
    if all(offer.needs and not offer.needs & codes and not offer.needs & {*fusion_names.values()} for offer in offers):
        names_text = ", ".join(sorted(code for offer in offers for code in offer.needs))
        return f"its entry point lists [{names_text}], but the model has none of these operators; list an operator of the pattern"
    return ""


def _load(offer: Offer) -> Fusion | None:
    with suppress(Failed):
        return offer.fusion()
    return None


def explain_unmatched(name: str, source: Model, host: Host) -> str:
    """Return the reason why a fusion does not apply to any operators of a model.

    Patterns are compared with the operators as they are before any fusion.
    """
    fusion = next((entry for _, entry in host.fusions() if entry.name == name), None)
    if fusion is None:
        return "no installed pack has this fusion"
    target = target_named("onnxruntime")
    model = resolve(host.bind(source, target, target.opsets[2]), target, target.opsets[2])
    return describe_mismatch(model, fusion) or "no region of the model matches the fusion"


def describe_mismatch(model: BoundModel, fusion: Fusion) -> str:
    """Return the reason why no operator of a model matches a fusion's patterns.

    Return "" if the fusion has a region function instead of patterns.
    """
    if fusion.regions is not None:
        return ""
    attempts = [
        _match_root(graph, bound, pattern)
        for graph in model.graphs
        for bound in graph.operators
        for pattern in fusion.patterns
    ]
    partial = [progress for progress in attempts if progress[0]]
    if not partial:
        roots = " or ".join(sorted({pattern.code for pattern in fusion.patterns}))
        return f"the model has no {roots}, the last operator of the pattern"
    return (
        max(partial, key=lambda progress: progress[0])[1]
        or "an operator outside the region reads an intermediate result of the region"
    )


def _match_root(graph: BoundGraph, bound: Bound, pattern: Call) -> Progress:
    producers = {
        tensor: producer for producer in graph.operators for tensor in producer.op.outputs if tensor is not None
    }
    return _match(pattern, bound, producers, {})[0] if bound.handler.code == pattern.code else (0, "")


def _match(
    pattern: Call, bound: Bound, producers: Mapping[Tensor, Bound], bindings: Mapping[Operand, Tensor]
) -> tuple[Progress, Mapping[Operand, Tensor]]:
    """Return the progress of matching a call with an operator, and tensors by operand.

    ``bindings``: tensors that earlier operands of the pattern matched.
    """
    if bound.handler.code != pattern.code:
        return (0, f"the pattern has {pattern.code} where the model has {bound.label}"), bindings
    input_tensors = [tensor for tensor in bound.op.inputs if tensor is not None]
    if len(input_tensors) != len(pattern.operands):
        return (
            1,
            f"{bound.label} has {len(input_tensors)} operands, but {pattern.code} has {len(pattern.operands)} in the pattern",
        ), bindings
    for name, value in pattern.options.items():
        if (actual := bound.op.options.get(name)) != value:
            return (1, f"{bound.label} has {name}={actual!r}, but the pattern has {name}={value!r}"), bindings
    return max(
        (_match_operands(pattern, order, bound, producers, bindings) for order in _operand_orders(pattern)),
        key=_completeness,
    )


def _operand_orders(pattern: Call) -> Iterator[tuple[int, ...]]:
    yield from permutations(range(len(pattern.operands))) if pattern.commutes else [tuple(range(len(pattern.operands)))]


def _completeness(result: tuple[Progress, Mapping[Operand, Tensor]]) -> tuple[bool, int]:
    (count, reason), _ = result
    return not reason, count


def _match_operands(
    pattern: Call,
    order: tuple[int, ...],
    bound: Bound,
    producers: Mapping[Tensor, Bound],
    bindings: Mapping[Operand, Tensor],
) -> tuple[Progress, Mapping[Operand, Tensor]]:
    input_tensors, count = [tensor for tensor in bound.op.inputs if tensor is not None], 1
    for operand, k in zip(pattern.operands, order, strict=True):
        tensor, operand_label = input_tensors[k], f"operand {k} of {bound.label}"
        if isinstance(operand, Operand):
            if operand.constant and not tensor.is_constant:
                return (
                    count,
                    f"{operand_label} is computed, but {operand.name!r} of the pattern must be constant",
                ), bindings
            if (bound_tensor := bindings.get(operand, tensor)) is not tensor and not tensor.is_constant:
                return (
                    count,
                    f"{operand_label} is {tensor.name!r}, but the pattern's operand {operand.name!r} already matched {bound_tensor.name!r}",
                ), bindings
            bindings = {**bindings, operand: tensor}
            continue
        call = operand.call if isinstance(operand, Output) else operand
        if (producer := producers.get(tensor)) is None:
            kind = "a constant" if tensor.is_constant else "a graph input"
            return (count, f"{operand_label} is {kind}, but the pattern has a result of {call.code}"), bindings
        (producer_count, reason), bindings = _match(call, producer, producers, bindings)
        count += producer_count
        if reason:
            return (count, reason), bindings
    return (count, ""), bindings
