"""The built-in cases that hold quantized tensors, by operator: what is tried again under other targets and options."""

from __future__ import annotations

from functools import cache

from conformance.case import Case
from conformance.cases import builtin
from onnx_tflite_plugin.source import read


@cache
def quantized(op: str) -> tuple[Case, ...]:
    return tuple(
        case for case in builtin() if case.op == op and case.counts and _holds_integers(case) and _for_any(case)
    )


def _for_any(case: Case) -> bool:
    """Whether it asks nothing that ONNX Runtime's target alone promises."""
    return set(case.targets) != {"onnxruntime"}


def _holds_integers(case: Case) -> bool:
    return any(t.quantization is not None for graph in read(case.build()).subgraphs for t in graph.tensors)


OPERATORS = sorted({case.op for case in builtin() if case.counts})
