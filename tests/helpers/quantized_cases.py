"""Built-in cases with quantized tensors, by operator, for other targets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.variants import number_cases
from onnx_tflite_plugin.source import read


@cache
def quantized_cases_of(op: str, every: int = 1) -> tuple[Case, ...]:
    """Return the quantized cases of an operator.

    ``every``: only every n-th case of each dtype.
    """
    selected = (case for case, number in number_cases(_cases_of(op)) if number % every == 0)
    return tuple(
        case
        for case in selected
        if case.expects_success and _supports_other_targets(case) and _has_quantized_tensors(case)
    )


def _cases_of(op: str) -> Iterator[Case]:
    return (case for case in builtin_cases() if case.op == op)


def _supports_other_targets(case: Case) -> bool:
    """True if the case applies to targets other than ``onnxruntime``."""
    return set(case.targets) != {"onnxruntime"}


def _has_quantized_tensors(case: Case) -> bool:
    return any(t.quantization is not None for graph in read(case.build()).subgraphs for t in graph.tensors)


OPERATORS = sorted({case.op for case in builtin_cases() if case.expects_success})
