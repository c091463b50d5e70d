"""Find the declaration or function that causes a failure of a case.

Where possible, a cause is tested by converting the case without the fusion, or in float arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from conformance.bias_scales import bias_scale_messages
from conformance.declared import find_operators, has_quantized_activations, is_looked_up
from conformance.differences import Difference, describe_difference, describe_wrong_parameters
from conformance.explanation import (
    ComparableCase,
    Runs,
    describe_sides,
    explain_values,
    explain_wrong_table,
    reference_name,
)
from conformance.failures import Failures
from conformance.fusion_causes import messages_on_fusions
from conformance.layout_errors import messages_for_every_layout, messages_on_axis_sizes, wrong_layout_message
from conformance.unread_operands import operands_that_only_the_kernel_reads
from conformance.variants import Variant
from onnx_tflite_plugin.api import Quantization
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.guard import BUILTIN
from onnx_tflite_plugin.verify import Tolerance
from onnx_tflite_plugin.verify.criteria import DEQUANTIZED_INT16_STEPS, DEQUANTIZED_STEPS

_FLOAT_TOLERANCE = Tolerance(of_range=2e-2, steps=DEQUANTIZED_STEPS, int16_steps=DEQUANTIZED_INT16_STEPS)
"""Tolerance for a conversion to float arithmetic, because it does not round where the kernel rounds."""


def find_causes(
    trial: ComparableCase,
    variants: Sequence[Variant],
    outputs: Mapping[Variant, Runs],
    failed_conversions: Mapping[Variant, Conversion | None],
    plan_differences: Mapping[Variant, int],
) -> Failures:
    """Return messages on the most certain cause of a case's failures.

    ``outputs``: variant that runs -> its outputs. ``failed_conversions``: variant that fails -> its conversion; None if the
    variant does not convert. ``plan_differences``: variant -> number of operators that its plan and the plan
    "local" give different layouts.
    """
    causes = Failures()
    attempted_variants = [*outputs, *failed_conversions]
    if attempted_variants:
        causes.add(attempted_variants[0], *messages_on_axis_sizes(trial.case.op, trial.source, trial.host))
    if outputs:
        causes.add(next(iter(outputs)), *bias_scale_messages(trial.case.op, trial.source, trial.host))
    wrong_conversions = {
        variant: conversion for variant, conversion in failed_conversions.items() if conversion and variant in outputs
    }
    if wrong_conversions and causes.status == "passed":
        variant, conversion = next(iter(wrong_conversions.items()))
        causes.add(variant, *messages_on_fusions(trial, variant, conversion))
        all_variants_are_wrong = len(wrong_conversions) == len(failed_conversions) == len(outputs)
        if all_variants_are_wrong and causes.status == "passed":
            causes.add(variant, *_messages_on_values(trial, variant, outputs[variant]))
    for variant, failed_conversion in failed_conversions.items() if causes.status == "passed" else ():
        least_cost = variant._replace(plan="least")
        in_source_layout = least_cost if plan_differences.get(least_cost) == 0 else variant._replace(plan="local")
        if in_source_layout not in failed_conversions and (
            in_source_layout in outputs or (len(variants) > 1 and trial.passes(in_source_layout))
        ):
            message = wrong_layout_message(trial.case.op, trial.source, trial.host, failed_conversion)
            causes.add(variant, *filter(None, [message]))
    if wrong_conversions and causes.status == "passed":
        variant = next(iter(wrong_conversions))
        causes.add(variant, *explain_values(trial, outputs[variant]))
    return causes


def _messages_on_values(trial: ComparableCase, variant: Variant, actual: Runs) -> Iterator[str]:
    """Yield how results that differ in every variant differ, and the likely cause."""
    if wrong_table := explain_wrong_table(trial):
        yield wrong_table
        return
    difference = _describe_first_difference(trial, actual)
    if difference is not None and not difference.is_layout:
        yield f"{difference.text}; correct {describe_sides(trial)}"
        return
    if difference is None and _agrees_in_float(trial, variant):
        is_table = any(is_looked_up(op, trial.host) for op in find_operators(trial.source, trial.case.op))
        order = (
            "; the table begins with the results of 0 and positive values, then those of negative values"
            if is_table
            else ""
        )
        yield (
            "wrong integer arithmetic: with --quantization float the result agrees, so layout and axes are right; correct what "
            f"computes quantized values (rounding, zero points, scales) in {describe_sides(trial)}{order}"
        )
        yield from explain_values(trial, actual)
        return
    for pack, handler in trial.host.registered_handlers(trial.case.op):
        for name in operands_that_only_the_kernel_reads(handler) if pack != BUILTIN else ():
            yield f"the lowering of {trial.case.op} does not read its operand {name!r}, but the reference kernel does"
            return
    symptom = "" if difference is None else difference.text
    messages = [*messages_for_every_layout(trial.case.op, trial.source, trial.host, symptom)]
    yield from messages
    if messages:
        yield from explain_values(trial, actual)


def _describe_first_difference(trial: ComparableCase, actual: Runs) -> Difference | None:
    """Return how the first wrong output differs; None if the pattern is unknown."""
    expected = trial.reference_outputs
    for k, comparison in enumerate(trial.compare(actual, expected)):
        if comparison.ok or comparison.nearest not in expected:
            continue
        quantization = trial.entry.outputs[k].quantization
        zero_point = int(quantization.zero_point[0]) if isinstance(quantization, Quantization) else None
        ours, theirs = ([np.asarray(arrays[k]) for arrays in runs] for runs in (actual, expected[comparison.nearest]))
        reference = reference_name(comparison.nearest.partition(",")[0])
        wrong_parameters = None
        if isinstance(quantization, Quantization) and comparison.unit == "step":
            operand_parameters = _operand_parameters(trial, quantization)
            wrong_parameters = describe_wrong_parameters(
                comparison.name, ours, theirs, quantization, operand_parameters
            )
        return wrong_parameters or describe_difference(comparison.name, ours, theirs, reference, zero_point)
    return None


def _operand_parameters(trial: ComparableCase, quantization: Quantization) -> dict[str, Quantization]:
    """Return operand -> scale and zero point, if they differ from the result's."""
    return {
        f"operand {slot}": tensor.quantization
        for op in find_operators(trial.source, trial.case.op)
        for slot, tensor in enumerate(op.inputs)
        if tensor is not None
        and isinstance(tensor.quantization, Quantization)
        and len(tensor.quantization.scale) == 1
        and (tensor.quantization.scale[0], tensor.quantization.zero_point[0])
        != (quantization.scale[0], quantization.zero_point[0])
    }


def _agrees_in_float(trial: ComparableCase, variant: Variant) -> bool:
    """True if a quantized model, converted to floats, agrees with the reference."""
    operators = find_operators(trial.source, trial.case.op)
    if not any(map(has_quantized_activations, operators)) or "quantization" in trial.case.options:
        return False
    options = {**trial.case.options, "quantization": "float"}
    case = replace(trial.case, options=options, tolerance=_FLOAT_TOLERANCE, tolerance_reason="float arithmetic")
    return trial.replaced(case, trial.host).passes(variant)
