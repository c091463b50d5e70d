"""Comparison of the submodels of a segment with LiteRT's builtin kernels, and of what does not match with its other answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.source.model import Array, Operator
from onnx_tflite_plugin.verify import criteria
from onnx_tflite_plugin.verify.comparison.compare import Comparison, compare
from onnx_tflite_plugin.verify.comparison.rounding import (
    inherited_step,
    is_requantizing,
    undecided_reason,
    weight_scale,
)
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.runtimes.structure import block_scales, is_dynamic_range
from onnx_tflite_plugin.verify.submodels.points import Submodel
from onnx_tflite_plugin.verify.submodels.references import FLOAT_WEIGHTS, PERTURBED, OperandSet, References
from onnx_tflite_plugin.verify.submodels.segment import Segment


class Finding(NamedTuple):
    """The comparison of a submodel, and the operands that it was compared on."""

    submodel: Submodel
    comparison: Comparison
    operands: OperandSet


@dataclass
class Decision:
    """Comparisons that agree, by ONNX value; submodels and constants that differ; reasons why some are undecided, or all.

    ``operators``: the number of operators compared. ``outputs``: LiteRT's in each run that was observed.
    """

    agreed: dict[str, Comparison] = field(default_factory=dict)
    differing: list[Finding] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    constants: list[tuple[Operator, Comparison]] = field(default_factory=list)
    error: str = ""
    operators: int = 0
    outputs: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Settings:
    """Settings of all submodels of a conversion.

    ``allowed``: the tolerance that a user gave. ``dequantized``: the ONNX model has floats in place of quantized integers.
    ``stateful``: a run needs those before it. ``fresh``: LiteRT forgets its states every run.
    """

    trial: Trial
    allowed: Tolerance | None
    dequantized: bool
    stateful: bool
    fresh: bool

    @property
    def is_substituted(self) -> bool:
        """True if operators that LiteRT lacks are computed by kernels of packs or the ONNX model, so that there is one answer."""
        return bool(self.trial.substitutes.pack_kernels or self.trial.substitutes.from_onnx)

    @cached_property
    def is_dynamic_range(self) -> bool:
        return any(is_dynamic_range(op) for graph in self.trial.model.subgraphs for op in graph.operators)

    @cached_property
    def block_scales(self) -> dict[int, float]:
        return block_scales(self.trial.data, self.trial.entry.subgraph.index)


class Judge:
    """Compares the submodels of one segment, and enters what it finds in ``decision``."""

    def __init__(self, settings: Settings, segment: Segment, decision: Decision) -> None:
        self.settings, self.segment, self.decision = settings, segment, decision
        self._compared_saturating = False
        self.references = References(
            segment,
            dynamic_range=settings.is_dynamic_range,
            stateful=settings.stateful and not settings.fresh,
            fresh=settings.fresh,
        )

    def observe(self, arrays: Run, kept: Mapping[int, Array]) -> OperandSet | None:
        """Compare all submodels on LiteRT's tensors in one run; return None if a tensor has no memory in this run."""
        if not self.segment.operands <= kept.keys():
            return None
        entered = self.segment.points.by_index(arrays)
        operands = {index: entered[index] for index in self.segment.inputs}
        operands |= {index: kept[index] for index in self.segment.operands}
        expected = {index: kept[index] for index in self.segment.results if index in kept}
        one = OperandSet("observed", arrays, operands, expected)
        self.compare(one, self.segment.submodels)
        if not self._compared_saturating and self.segment.saturating_cut is not None:
            actual = self.segment.saturating_cut.run(one.inputs, one.operands)
            self._compare_results(one, self.segment.submodels, actual, ", with the weights for other processors")
        self._compared_saturating = True
        return one

    def compare(self, one: OperandSet, submodels: Sequence[Submodel]) -> None:
        """Compare submodels on one set of operands. Raises OrtError."""
        actual = self.segment.cut.run(one.inputs, one.operands)
        self.references.begin(one)
        self._compare_results(one, submodels, actual)

    def _compare_results(
        self, one: OperandSet, submodels: Sequence[Submodel], actual: Mapping[str, Array], form: str = ""
    ) -> None:
        """Compare results of the ONNX model, and record what is found. ``form``: of its weights, for a message."""
        for submodel in submodels:
            name = submodel.value.name
            if name not in actual or submodel.tensor.index not in one.expected:
                continue
            found = self._compare_with(submodel, one, actual[name], one.expected[submodel.tensor.index], "builtin")
            matched = found if found.ok else self._find_match(submodel, one, actual[name])
            if matched is not None:
                self.decision.agreed.setdefault(name, matched)
            else:
                self._record_mismatch(submodel, one, found, form)

    def _compare_with(
        self,
        submodel: Submodel,
        one: OperandSet,
        actual: Array,
        expected: Array,
        kernels: str,
        allowed: Tolerance | None = None,
        *,
        change: float = 0.0,
    ) -> Comparison:
        """Compare a result with one answer of LiteRT. ``change``: how far it moves with the last bits of the operands."""
        tolerance = (
            allowed
            or self.settings.allowed
            or criteria.submodel_tolerance(
                len(submodel.operators),
                roundings=sum(map(is_requantizing, submodel.operators)),
                recurrent=submodel.recurrent,
                dequantized=self.settings.dequantized,
            )
        )
        if one.kind != "observed" or actual.dtype == np.int16:
            actual, expected = criteria.without_overflow(actual, expected, wide=one.kind == "wide")
        points = self.segment.points
        sums = any(len(op.inputs) > 1 for op in submodel.operators)
        largest = (
            criteria.largest_of([one.operands[index] for index in submodel.leaves if index in one.operands])
            if sums
            else 0.0
        )
        floor = max(
            criteria.CANCELLATION * largest,
            min(criteria.PERTURBED * change, criteria.MOST_PERTURBED * largest),
            *(points.kernel_errors.get(op.index, 0.0) for op in submodel.operators),
            inherited_step(submodel.tensor, points.producers, tolerance, points.given_tensors),
        )
        if kernels != FLOAT_WEIGHTS:
            scale = max(weight_scale(op, self.settings.block_scales) for op in submodel.operators)
            floor = max(floor, criteria.ROUNDED * largest * scale)
        return compare(str(submodel.tensor), [actual], {kernels: [expected]}, tolerance, floor=floor)

    def _find_match(self, submodel: Submodel, one: OperandSet, actual: Array) -> Comparison | None:
        """Return the comparison with the first answer that a submodel matches; None if it matches none."""
        if self.settings.is_substituted:
            return None
        index = submodel.tensor.index
        expected = one.expected[index]
        missing = False
        for name, answer in self.references.answers():
            missing |= name == FLOAT_WEIGHTS and index not in answer
            if index not in answer:
                continue
            if name == PERTURBED:
                change = _largest_change(answer[index], expected)
                found = self._compare_with(submodel, one, actual, expected, "builtin", change=change)
            else:
                found = self._compare_with(submodel, one, actual, answer[index], name)
            if found.ok:
                return found
        if not missing:
            return None
        # float kernels refuse the operator, as one with a fused TANH: what dynamic quantization makes of a network
        allowed = self.settings.trial.tolerance
        found = self._compare_with(submodel, one, actual, expected, "builtin", allowed)
        return found if found.ok else None

    def _record_mismatch(self, submodel: Submodel, one: OperandSet, found: Comparison, form: str) -> None:
        """Record a submodel as differing, or as undecided with the reason; random operands alone say nothing then."""
        codes = " and ".join(dict.fromkeys(op.code for op in submodel.operators))
        if reason := undecided_reason(submodel.operators, found):
            if one.kind == "observed":
                self.decision.undecided.append(f"{submodel.tensor.name!r} of {codes}: {reason}")
            return
        name = f"{submodel.tensor.name} of {codes} in isolation{form}"
        read = {index: array for index, array in one.operands.items() if index in submodel.leaves}
        self.decision.differing.append(Finding(submodel, replace(found, name=name), one._replace(operands=read)))


def _largest_change(answer: Array, expected: Array) -> float:
    """Return the largest absolute difference of finite floats; 0 for other dtypes or shapes."""
    if answer.dtype.kind != "f" or answer.shape != expected.shape:
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        return criteria.largest_of([answer - expected])
