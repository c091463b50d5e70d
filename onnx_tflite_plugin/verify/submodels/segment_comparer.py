"""Comparison of the submodels of a segment with LiteRT.

The reference is the result of the builtin kernels. A submodel that does not match is compared with alternative results of
LiteRT.
"""

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
    measure_summation,
    undecided_reason,
    weight_scale,
)
from onnx_tflite_plugin.verify.comparison.tensors import quantizes_values
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.runtimes.dequantized import as_steps, as_stored, is_quantized
from onnx_tflite_plugin.verify.runtimes.structure import block_scales, is_dynamic_range
from onnx_tflite_plugin.verify.submodels.points import Submodel
from onnx_tflite_plugin.verify.submodels.references import FLOAT_WEIGHTS, PERTURBED, OperandSet, References
from onnx_tflite_plugin.verify.submodels.segment import Segment


class Finding(NamedTuple):
    """The comparison of a submodel, and the operands that it was compared on.

    ``weight_variant``: description of the compared weights if this processor would select others; otherwise "".
    ``only_tolerance``: the error is within the default tolerance, but not within the user's.
    """

    submodel: Submodel
    comparison: Comparison
    operands: OperandSet
    weight_variant: str = ""
    only_tolerance: bool = False


@dataclass
class Decision:
    """Result of the comparison of all submodels.

    ``agreeing``: comparisons that agree, by ONNX value. ``differing``: submodels that differ. ``constants``: weights that
    differ, with their operators. ``undecided``: reasons why submodels could not be compared. ``error``: the reason why
    no submodel was compared. ``operators``: number of compared operators. ``outputs``: LiteRT's outputs in each compared run.
    """

    agreeing: dict[str, Comparison] = field(default_factory=dict)
    differing: list[Finding] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    constants: list[tuple[Operator, Comparison]] = field(default_factory=list)
    error: str = ""
    operators: int = 0
    outputs: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Settings:
    """Settings for all submodels of a conversion.

    ``user_tolerance``: the tolerance that the user gave. ``dequantized``: the ONNX model has floats in place of quantized
    tensors. ``stateful``: the TFLite model has states. ``resets_states``: LiteRT's states are reset before every run.
    """

    trial: Trial
    user_tolerance: Tolerance | None
    dequantized: bool
    stateful: bool
    resets_states: bool

    @cached_property
    def substituted(self) -> frozenset[int]:
        """Indices of operators that kernels of packs or the ONNX model compute."""
        return frozenset({*self.trial.substitutes.pack_kernels, *self.trial.substitutes.from_onnx})

    @cached_property
    def has_dynamic_range(self) -> bool:
        """True if the model has dynamic-range operators."""
        return any(is_dynamic_range(op) for graph in self.trial.model.subgraphs for op in graph.operators)

    @cached_property
    def block_scales(self) -> dict[int, float]:
        """Index of a blockwise quantized tensor -> its largest scale."""
        return block_scales(self.trial.data, self.trial.entry.subgraph.index)


@dataclass(frozen=True)
class _Result:
    """Result of a submodel in ONNX Runtime on one set of operands.

    ``array``: the result, with LiteRT's values in place of saturated elements. ``unmasked``: the unchanged result.
    """

    submodel: Submodel
    operand_set: OperandSet
    array: Array
    unmasked: Array

    @property
    def expected(self) -> Array:
        """Return LiteRT's result with builtin kernels."""
        return self.operand_set.expected[self.submodel.tensor.index]

    @cached_property
    def largest_operand(self) -> float:
        """Return the largest magnitude of operands that may be summed; 0 without sums."""
        if all(len(op.inputs) <= 1 for op in self.submodel.operators):
            return 0.0
        return criteria.largest_magnitude(self.operands)

    @cached_property
    def operands(self) -> list[Array]:
        """Return the operands of the submodel."""
        operands = self.operand_set.operands
        return [operands[index] for index in self.submodel.leaves if index in operands]


class SegmentComparer:
    """Compares the submodels of one segment, and records the results in ``decision``."""

    def __init__(self, settings: Settings, segment: Segment, decision: Decision) -> None:
        self.settings, self.segment, self.decision = settings, segment, decision
        self._saturation_masks: dict[Submodel, Array] = {}
        self._has_compared_saturating = False  # True: the weights for saturating processors were compared
        self.references = References(
            segment,
            dynamic_range=settings.has_dynamic_range,
            symmetric=settings.dequantized and quantizes_values(segment.points.session.proto.graph),
            stateful=settings.stateful and not settings.resets_states,
            resets_states=settings.resets_states,
        )

    def compare_run(self, inputs: Run, tensors: Mapping[int, Array]) -> OperandSet | None:
        """Compare all submodels on LiteRT's tensors of one run, and return the operands.

        ``tensors``: tensor index -> array. Return None if a tensor has no memory in this run.
        """
        if not self.segment.operands <= tensors.keys():
            return None
        graph_inputs = self.segment.points.inputs_by_index(inputs)
        operands = {index: graph_inputs[index] for index in self.segment.inputs}
        operands |= {index: tensors[index] for index in self.segment.operands}
        expected = {index: tensors[index] for index in self.segment.results if index in tensors}
        if self.settings.dequantized:
            self._saturation_masks = {
                submodel: _saturated_elements(submodel, tensors)
                for submodel in self.segment.submodels
                if submodel.inner_tensors
            }
        operand_set = OperandSet("observed", inputs, operands, expected)
        self.compare(operand_set, self.segment.submodels)
        if not self._has_compared_saturating and self.segment.saturating_cut is not None:
            actual = self.segment.saturating_cut.run(operand_set.inputs, operand_set.operands)
            self._compare_results(operand_set, self.segment.submodels, actual, "with the weights for other processors")
        self._has_compared_saturating = True
        return operand_set

    def compare(self, operand_set: OperandSet, submodels: Sequence[Submodel]) -> None:
        """Compare submodels on one set of operands. Raises OrtError if they do not run."""
        actual = self.segment.cut.run(operand_set.inputs, operand_set.operands)
        self.references.start_set(operand_set)
        self._compare_results(operand_set, submodels, actual)

    def _compare_results(
        self,
        operand_set: OperandSet,
        submodels: Sequence[Submodel],
        actual: Mapping[str, Array],
        weight_variant: str = "",
    ) -> None:
        """Compare results of the ONNX model, and record the comparisons.

        ``weight_variant``: as in ``Finding``.
        """
        for submodel in submodels:
            name = submodel.value.name
            if name not in actual or submodel.tensor.index not in operand_set.expected:
                continue
            expected = operand_set.expected[submodel.tensor.index]
            masked = self._without_saturated(submodel, actual[name], expected)
            result = _Result(submodel, operand_set, array=masked, unmasked=actual[name])
            comparison = self._compare_with(result, expected, "builtin")
            match = comparison if comparison.ok else self._find_match(result)
            if match is not None:
                self.decision.agreeing.setdefault(name, match)
            else:
                self._record_mismatch(submodel, operand_set, comparison, weight_variant)

    def _without_saturated(self, submodel: Submodel, actual: Array, expected: Array) -> Array:
        """Return the result with LiteRT's elements where LiteRT saturated an inner tensor."""
        mask = self._saturation_masks.get(submodel)
        if mask is None or actual.shape != expected.shape or actual.shape != mask.shape:
            return actual
        return np.where(mask, expected, actual).astype(actual.dtype)

    def _compare_with(
        self,
        result: _Result,
        expected: Array,
        kernels: str,
        tolerance: Tolerance | None = None,
        unstable_errors: Sequence[float] = (),
    ) -> Comparison:
        """Compare a result with one result of LiteRT.

        ``tolerance``: replaces the default. ``unstable_errors``: further absolute errors that are allowed.
        """
        submodel, kind, actual = result.submodel, result.operand_set.kind, result.array
        tolerance = tolerance or self.settings.user_tolerance or self._default_tolerance(submodel)
        if kind != "observed" or actual.dtype == np.int16:
            actual, expected = criteria.without_overflow(actual, expected, wide=kind == "wide")
        points = self.segment.points
        absolute_errors = [
            criteria.CANCELLATION * result.largest_operand,
            *unstable_errors,
            *(points.kernel_errors.get(op.index, 0.0) for op in submodel.operators),
            inherited_step(submodel.tensor, points.producers, tolerance, points.input_tensors),
        ]
        if kernels != FLOAT_WEIGHTS:
            absolute_errors.append(self._dynamic_quantization_error(result))
        step = inherited_step(submodel.tensor, points.producers, criteria.ONE_STEP, points.input_tensors)
        return compare(
            str(submodel.tensor), [actual], {kernels: [expected]}, tolerance, floor=max(absolute_errors), step=step
        )

    def _default_tolerance(self, submodel: Submodel) -> Tolerance:
        return criteria.submodel_tolerance(
            len(submodel.operators),
            roundings=sum(map(is_requantizing, submodel.operators)),
            recurrent=submodel.is_recurrent,
            dequantized=self.settings.dequantized,
        )

    def _dynamic_quantization_error(self, result: _Result) -> float:
        """Return the absolute error of activations that LiteRT rounds to 8 bits."""
        scale = max(weight_scale(op, self.settings.block_scales) for op in result.submodel.operators)
        return criteria.ROUNDED * _merged_results(result.submodel) * result.largest_operand * scale

    def _find_match(self, result: _Result) -> Comparison | None:
        """Return the comparison with the first LiteRT result that matches; None if none."""
        substituted = self.settings.substituted
        if substituted and (self.settings.stateful or result.submodel not in self.segment.litert_submodels):
            return None
        index = result.submodel.tensor.index
        lacks_float_kernel = False
        for name, results in self.references.results():
            lacks_float_kernel |= name == FLOAT_WEIGHTS and index not in results
            if index not in results:
                continue
            if name == PERTURBED:
                errors = _unstable_errors(result, results[index])
                comparison = self._compare_with(result, result.expected, "builtin", unstable_errors=errors)
            else:
                comparison = self._compare_with(result, results[index], name)
            if comparison.ok:
                return comparison
        if (match := self._match_float_kernels(result)) is not None:
            return match
        if not lacks_float_kernel:
            return None
        # without a float kernel, as for a fused TANH, allow the error of dynamic quantization in a whole network
        comparison = self._compare_with(result, result.expected, "builtin", self.settings.trial.tolerance)
        return comparison if comparison.ok else None

    def _match_float_kernels(self, result: _Result) -> Comparison | None:
        """Return the comparison with LiteRT's float kernels; None if they differ."""
        result = replace(result, array=result.unmasked)  # float kernels do not saturate
        tensor, shape = result.submodel.tensor, result.expected.shape
        if not (self.settings.dequantized or is_quantized(tensor)) or result.array.shape != shape:
            return None
        float_array = self.references.float_result(result.submodel)
        if float_array is None or float_array.shape != shape:
            return None
        if not self.settings.dequantized:
            return self._match_rounded(result, float_array)
        comparison = self._compare_with(result, as_stored(tensor, float_array), "float kernels")
        return comparison if comparison.ok else None

    def _match_rounded(self, result: _Result, float_array: Array) -> Comparison | None:
        """Return the comparison if the result of one operator is correctly rounded.

        It then equals the float result rounded to the nearest step, and differs from the builtin result by at most one
        step. LiteRT may round an element halfway between two steps either way. Return None otherwise.
        """
        submodel = result.submodel
        error = float(np.abs(result.array.astype(np.int64) - result.expected).max(initial=0))
        rounding = np.abs(as_steps(submodel.tensor, float_array) - result.array).max(initial=0)
        if len(submodel.operators) > 1 or error > criteria.STEPS or rounding > criteria.NEAREST:
            return None
        comparison = self._compare_with(result, result.expected, "builtin")
        if undecided_reason(submodel.operators, comparison):
            return None
        return replace(comparison, problem="", max_error=error)

    def _record_mismatch(
        self, submodel: Submodel, operand_set: OperandSet, comparison: Comparison, weight_variant: str
    ) -> None:
        """Record a submodel as differing, or as undecided with the reason.

        Submodels that are undecided on random operands are not recorded.
        """
        codes = " and ".join(dict.fromkeys(op.code for op in submodel.operators))
        if reason := undecided_reason(submodel.operators, comparison):
            if operand_set.kind == "observed":
                self.decision.undecided.append(f"{submodel.tensor.name!r} of {codes}: {reason}")
            return
        suffix = f", {weight_variant}" if weight_variant else ""
        name = f"{submodel.tensor.name} of {codes} with LiteRT's values as inputs{suffix}"
        leaves = submodel.leaves | submodel.onnx_leaves
        operands = {index: array for index, array in operand_set.operands.items() if index in leaves}
        submodel_set = operand_set._replace(operands=operands)
        only_tolerance = self.settings.user_tolerance is not None and self._is_within_default(submodel, comparison)
        self.decision.differing.append(
            Finding(submodel, replace(comparison, name=name), submodel_set, weight_variant, only_tolerance)
        )

    def _is_within_default(self, submodel: Submodel, comparison: Comparison) -> bool:
        """True if a float result is within the default tolerance of its submodel."""
        limit = self._default_tolerance(submodel).of_range
        return comparison.unit == "range" and not comparison.problem and comparison.max_error <= limit


def _saturated_elements(submodel: Submodel, tensors: Mapping[int, Array]) -> Array:
    """Return a mask of the result's elements that an inner tensor saturates.

    An element is saturated if the inner tensor is at a limit of its dtype's range at the same position.
    """
    shape = submodel.tensor.shape if submodel.tensor.index not in tensors else tensors[submodel.tensor.index].shape
    saturated = np.zeros(shape, np.bool_)
    for tensor in submodel.inner_tensors:
        array = tensors.get(tensor.index)
        if array is not None and array.shape == shape:
            limits = np.iinfo(array.dtype)
            saturated |= (array == limits.min) | (array == limits.max)
    return saturated


def _unstable_errors(result: _Result, perturbed: Array) -> list[float]:
    """Return the errors that float32 rounding in LiteRT may cause.

    ``perturbed``: LiteRT's result if the last bits of the operands change.
    """
    change = _largest_change(perturbed, result.expected)
    operands = result.operands
    summation_error = measure_summation(operands[0], result.expected) if len(operands) == 1 else 0.0
    return [
        min(criteria.PERTURBED * change, criteria.MAX_PERTURBED * result.largest_operand),
        criteria.SUMMED * summation_error,
    ]


def _merged_results(submodel: Submodel) -> int:
    """Return the largest number of intermediate results that a result may combine.

    A rotary embedding combines two, for example.
    """
    computed = {tensor.index for op in submodel.operators for tensor in op.outputs if tensor is not None}
    computed_operand_counts = (
        sum(t is not None and t.index in computed for t in op.inputs) for op in submodel.operators
    )
    return 1 + sum(count > 1 for count in computed_operand_counts)


def _largest_change(result: Array, expected: Array) -> float:
    """Return the largest difference of finite floats; 0 for other dtypes or shapes."""
    if result.dtype.kind != "f" or result.shape != expected.shape:
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        return criteria.largest_magnitude([result - expected])
