"""Table-driven tests of rewrite rules.

The outputs of ONNX Runtime before and after the rule must be equal within the tolerance of the case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_tflite_plugin.rewrite import RULES
from onnx_tflite_plugin.rewrite.rule import Outcome, load_rule
from onnx_tflite_plugin.source.model import Array
from tests.helpers.changed_models import feeds_of, run_model
from tests.helpers.passes_networks import BuildNetwork, RewriteTrial, parse_model

SCALE_AND_ZERO_POINT = {"s": np.float32(0.05), "p": np.uint8(120)}
Source = BuildNetwork | Callable[[], ir.Model]


@dataclass(frozen=True)
class Case:
    """A network or an ONNX graph, and the expected result of a rule."""

    text: str  # test id
    source: Any  # adds operators to a network, or returns an ONNX model if it has no parameter
    count: int = 1  # number of places that the rule changes
    reason: str = ""  # part of the reason if the rule declines
    tolerance: float = 0.0  # maximum error relative to the largest output
    nodes: Mapping[str, int] = field(default_factory=dict)  # node counts by operator after the rule
    fused: Mapping[str, int] = field(default_factory=dict)  # node counts after the optimizations of ONNX Runtime
    batch: int | None = None  # size of a dynamic batch at runtime


def declines(text: str, source: Source, reason: str = "") -> Case:
    """Return a case that the rule declines.

    ``reason`` is empty if the rule does not match at all.
    """
    return Case(text, source, 0, reason)


def graph(text: str, opset: int = 21, **constants: Any) -> Callable[[], ir.Model]:
    """Return a function that parses ONNX's text format, with constants by name.

    The format is ``(inputs) => (outputs) {nodes}``.
    """
    return lambda: parse_model(text, opset, **{name: np.asarray(array) for name, array in constants.items()})


def rule_test(rule: str, *cases: Case) -> Callable[[Case], None]:
    """Return a parametrized test of a rule, or of consecutive rules.

    Consecutive rules are written ``first + second``.
    """

    @pytest.mark.parametrize("case", cases, ids=[case.text for case in cases])
    def test(case: Case) -> None:
        is_network = case.source.__code__.co_argcount > 0
        outcomes, after, fused = _run_network(rule, case) if is_network else _run_graph(rule, case)
        reasons = [reason for outcome in outcomes for reason in outcome.declined]
        assert sum(outcome.applied for outcome in outcomes) == case.count, reasons
        if not case.count and case.reason:
            assert any(case.reason in reason for reason in reasons), reasons
        operators = Counter(node.op_type for node in after.graph.node)
        assert {name: operators[name] for name in case.nodes} == case.nodes
        if case.fused:
            fused_counts = fused()
            assert {name: fused_counts[name] for name in case.fused} == case.fused

    return test


def _run_network(rule: str, case: Case) -> tuple[list[Outcome], onnx.ModelProto, Callable[[], Counter[str]]]:
    trial = RewriteTrial(rule, case.source, case.batch)
    if case.count:
        assert trial.is_within(case.tolerance) if case.tolerance else trial.has_equal_outputs
    else:
        assert trial.after == ir.to_proto(ir.from_proto(trial.before))
    return trial.outcomes, trial.after, lambda: trial.ort_op_counts


def _run_graph(rule: str, case: Case) -> tuple[list[Outcome], onnx.ModelProto, Callable[[], Counter[str]]]:
    model = case.source()
    before = ir.to_proto(model)
    outcomes = [load_rule(RULES[name]).apply(model) for name in rule.split(" + ")]
    after = ir.to_proto(model)
    if not case.count:
        assert after == before
        return outcomes, after, Counter
    feeds = feeds_of(before)
    expected = run_model(before, feeds)
    if expected is not None:
        computed = run_model(after, feeds)
        assert computed is not None
        for key, array in expected.items():
            assert _is_close(computed[key], array, case.tolerance or 1e-5), key
    return outcomes, after, Counter


def _is_close(computed: Array, expected: Array, tolerance: float) -> bool:
    if computed.shape != expected.shape or computed.dtype != expected.dtype:
        return False
    error = np.abs(computed.astype(np.float64) - expected).max(initial=0)
    return bool(error <= (tolerance * np.abs(expected).max(initial=0) if expected.dtype.kind == "f" else 1))
