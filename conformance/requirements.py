"""Check the nodes, fusions, names and number of Transposes that a case requires.

The model converted with the least-cost plan must meet these requirements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conformance.case import Case
from conformance.declared import declarations_of, find_operators
from conformance.fusion_causes import applied_pack_fusions
from conformance.unmatched import explain_unloaded, explain_unmatched
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.graph.model_metadata import read_renames
from onnx_tflite_plugin.guard import BUILTIN
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.offers import canonical_name
from onnx_tflite_plugin.source.model import Model


def describe_unmet_requirements(case: Case, conversion: Conversion, model: Model, host: Host) -> Iterator[str]:
    """Yield a message per requirement of the case that the conversion does not meet."""
    yield from _missing_fusions(case, conversion, model, host)  # the cause of the messages after it
    yield from _missing_nodes(case, conversion, model, host)
    yield from _excess_transposes(case, conversion, model, host)
    yield from _wrong_names(case, conversion, host)


def tested_packs(host: Host) -> set[str]:
    """Return the canonical names of the packs that the host selects, if any."""
    return {*host.prefer, *(host.allowed_packs or ())} - {BUILTIN}


def _wrong_names(case: Case, conversion: Conversion, host: Host) -> Iterator[str]:
    """Yield a message for each graph input or output without the expected name.

    If a hook that renames failed, only its failure is yielded.
    """
    renames = read_renames(conversion.model.metadata_props)
    wrong_names = {
        old: (renames.get(old, old), new) for old, new in case.renames.items() if renames.get(old, old) != new
    }
    tested, skipped = tested_packs(host), host.hooks.skipped("rename")
    failures = [failed.reason for pack, failed in skipped.items() if canonical_name(pack) in tested]
    if wrong_names and failures:
        yield from failures
        return
    for old, (actual, expected) in wrong_names.items():
        fact = (
            f"keeps its name, but {expected!r} is expected"
            if actual == old
            else f"is renamed to {actual!r}, not to {expected!r}"
        )
        yield f"the graph input or output {old!r} {fact}; correct the hook `rename`, or `renames` of the case"


def _excess_transposes(case: Case, conversion: Conversion, model: Model, host: Host) -> Iterator[str]:
    limit, report = case.max_transposes, conversion.report
    if limit is not None and report.transposes > limit and not report.transposed_for_speed:
        layouts = "; ".join(dict.fromkeys(_declared_layouts(case, model, host)))
        remedy = (
            f"if the lowering emits a Transpose itself, give the case max_transposes={report.transposes}; otherwise the axes may be "
            "declared in the wrong order, or the layout is stricter than necessary"
        )
        yield (
            f"the least-cost plan has {report.transposes} Transposes; the case allows {limit}{layouts and f'; {layouts}; {remedy}'}"
        )


def _declared_layouts(case: Case, model: Model, host: Host) -> Iterator[str]:
    """Yield the layouts that handlers of packs declare for the operator under test."""
    for op in find_operators(model, case.op):
        packs = [pack for pack, _ in host.registered_handlers(op.code) if pack != BUILTIN]
        declared = declarations_of(op, host) if packs else None
        if declared is not None:
            axes = "" if declared.axes is None else f", axes={declared.axes!r}"
            yield f"the handler of {packs[0]} declares layout={declared.layout!r}{axes}"


def _missing_nodes(case: Case, conversion: Conversion, model: Model, host: Host) -> Iterator[str]:
    """Yield a message for each required node that the conversion lacks."""
    report = conversion.report
    nodes = case.nodes if isinstance(case.nodes, Mapping) else dict.fromkeys(case.nodes)
    for name, expected in nodes.items():
        count = report.nodes.get(name, 0)
        if count != expected and (expected is not None or not count):
            all_nodes_text = ", ".join(f"{node} ({number})" for node, number in report.nodes.items())
            fusions_text = "".join(f"; {applied.text}" for applied in applied_pack_fusions(conversion, model, host))
            expected_text = "at least 1" if expected is None else expected
            yield f"expected {expected_text} {name} nodes, found {count}; all nodes: {all_nodes_text}{fusions_text}"


def _missing_fusions(case: Case, conversion: Conversion, model: Model, host: Host) -> Iterator[str]:
    """Yield a message for each required fusion that did not apply."""
    report = conversion.report
    for name in case.fusions:
        if name not in report.fused:
            declined_reasons = "; ".join(text for text in report.fusions_declined if text.startswith(f"{name} "))
            applied = f" (applied: {', '.join(report.fused)})" if report.fused else ""
            if unloaded := explain_unloaded(name, model, host):
                yield f"the fusion {name} was not loaded: {unloaded}{applied}"
            else:
                reason = declined_reasons or explain_unmatched(name, model, host)
                yield f"the fusion {name} did not apply: {reason}{applied}"
