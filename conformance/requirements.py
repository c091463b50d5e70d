"""Check what a case requires of the model: nodes, fusions, number of Transposes.

The model is that of the least-cost plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conformance.case import Case
from conformance.unmatched import explain_unloaded, explain_unmatched
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Model


def describe_unmet_requirements(case: Case, conversion: Conversion, model: Model, host: Host) -> Iterator[str]:
    """Yield a message per requirement of the case that the conversion does not meet."""
    yield from _excess_transposes(case, conversion)
    yield from _missing_nodes_and_fusions(case, conversion, model, host)


def _excess_transposes(case: Case, conversion: Conversion) -> Iterator[str]:
    limit, report = case.max_transposes, conversion.report
    if limit is not None and report.transposes > limit and not report.transposed_for_speed:
        yield f"the least-cost plan has {report.transposes} Transposes; the case allows {limit}"


def _missing_nodes_and_fusions(case: Case, conversion: Conversion, model: Model, host: Host) -> Iterator[str]:
    """Yield a message per node and fusion that the conversion lacks."""
    report = conversion.report
    nodes = case.nodes if isinstance(case.nodes, Mapping) else dict.fromkeys(case.nodes)
    for name, expected in nodes.items():
        count = report.nodes.get(name, 0)
        if count != expected and (expected is not None or not count):
            all_nodes_text = ", ".join(f"{node} ({number})" for node, number in report.nodes.items())
            yield f"expected {'at least 1' if expected is None else expected} {name} nodes, found {count}; all nodes: {all_nodes_text}"
    for name in case.fusions:
        if name not in report.fused:
            declined = "; ".join(text for text in report.fusions_declined if text.startswith(f"{name} "))
            applied = f" (applied: {', '.join(report.fused)})" if report.fused else ""
            if unloaded := explain_unloaded(name, model, host):
                yield f"the fusion {name} was not loaded: {unloaded}{applied}"
            else:
                reason = declined or explain_unmatched(name, model, host)
                yield f"the fusion {name} did not apply: {reason}{applied}"
