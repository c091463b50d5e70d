"""Find results whose expected values never vary, so that no case tests them.

A single case may have such a result, for example to test a limit. Each dtype of results needs a case with different
values. Only results are checked that must vary with the operands: floats and quantized values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import signature

import numpy as np

from conformance.case import Case
from conformance.declared import find_operators
from conformance.runner import CaseTrial
from onnx_tflite_plugin.api import Handler, Operator
from onnx_tflite_plugin.guard import Terminated
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array

SATURATED_FRACTION = 0.95
"""Fraction of values at the limits of the dtype from which a case does not test values."""


def constant_results(op: str, handler: Handler, cases: Sequence[Case], host: Host) -> Iterator[str]:
    """Yield a message for each dtype of results whose expected values never vary.

    An operator that ignores its operands is not checked: all parameters of its kernel begin with an underscore.
    """
    if _ignores_operands(handler):
        return
    messages: dict[str, str] = {}
    varying: set[str] = set()
    for case in cases:
        for dtype, text in _expected_values(case, op, varying, host):
            if text:
                messages.setdefault(dtype, f"{text} in {case.id}")
            else:
                varying.add(dtype)
    for dtype, text in messages.items():
        if dtype not in varying:
            yield (
                f"{text}, so no case tests values of {dtype} results; change the scale of the result, the input_range or the "
                "input_arrays of a case"
            )


def _ignores_operands(handler: Handler) -> bool:
    names = [*signature(handler.kernel or handler.lower).parameters][1:]
    return all(name.startswith("_") for name in names)


def _expected_values(case: Case, op: str, known_dtypes: set[str], host: Host) -> Iterator[tuple[str, str]]:
    """Yield (dtype, text) for each output of a case.

    The text describes constant values; it is "" if the values vary. Outputs whose dtype is in ``known_dtypes`` are
    omitted. Nothing is yielded for a case without expected outputs, because it fails when it runs.
    """
    try:
        trial = CaseTrial(case, host)
        outputs = {k: tensor for k, tensor in enumerate(trial.entry.outputs) if tensor.dtype not in known_dtypes}
        outputs = {k: t for k, t in outputs.items() if t.dtype.startswith("float") or t.quantization is not None}
        if not outputs or not any(map(_reads_several_values, find_operators(trial.source, op))):
            return
        runs = next(iter(trial.reference_outputs.values()))
    except (KeyboardInterrupt, Terminated):
        raise
    except BaseException:  # reported when the case runs, which may raise anything
        return
    for k, tensor in outputs.items():
        values = np.concatenate([np.asarray(arrays[k]).reshape(-1) for arrays in runs])
        if values.size > 1:
            yield tensor.dtype, _describe_constant(trial.entry.output_names[k], values)


def _reads_several_values(op: Operator) -> bool:
    """True if a runtime operand has several floats or quantized values."""
    return any(
        tensor is not None
        and not tensor.is_constant
        and (tensor.dtype.startswith("float") or tensor.quantization is not None)
        and tensor.dims != (1,) * len(tensor.dims)
        for tensor in op.inputs
    )


def _describe_constant(name: str, values: Array) -> str:
    """Describe values that are all equal or NaN, or mostly at their dtype's limits."""
    if values.dtype.kind == "f":
        values = values[~np.isnan(values)]
        if not values.size:
            return f"all expected values of {name} are NaN"
    elif values.dtype.kind in "iu":
        limits = np.iinfo(values.dtype)
        is_saturated = (values == limits.min) | (values == limits.max)
        if is_saturated.mean() >= SATURATED_FRACTION:
            found = " or ".join(map(str, np.unique(values[is_saturated])))
            quantity = "all" if is_saturated.all() else "nearly all"
            return f"{quantity} expected values of {name} are {found}, at the limits of {values.dtype}"
    return f"all expected values of {name} are {values[0]:g}" if np.all(values == values[0]) else ""
