"""Explanation of outputs that differ end to end although every operator agrees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from onnx_tflite_plugin.checked import list_first
from onnx_tflite_plugin.graph.selection import selecting_operators
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE
from onnx_tflite_plugin.source.model import Operator, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tensors import is_dequantized, quantizes_values
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.runtimes.dequantized import is_quantized
from onnx_tflite_plugin.verify.runtimes.interpreter import describe_kernels
from onnx_tflite_plugin.verify.runtimes.structure import producers

_MAX_NAMES = 3  # names of outputs or operators in a line
_VERDICT = "the conversion is right, but the output depends on rounding"
_RANDOM_INPUTS = "the inputs were random; compare on your own data with --inputs FILE"


def explain_errors(
    pair: ModelPair,
    outputs: Sequence[Comparison],
    verdict_comparisons: Sequence[Comparison],
    litert_outputs: Mapping[str, Sequence[Run]],
    *,
    has_data: bool,
) -> tuple[str, ...]:
    """Return lines about outputs that differ: the error, the cause, the next step.

    There is no next step if all errors are small. ``outputs``: the end-to-end comparisons. ``verdict_comparisons``: the
    comparisons that the verdict is based on. ``litert_outputs``: kernel set -> outputs of each run. ``has_data``: the user gave
    inputs.
    """
    exceeding_outputs = _exceeding_outputs(outputs, verdict_comparisons)
    if not exceeding_outputs:
        return ()
    verb = "differs" if len(exceeding_outputs) == 1 else "differ"
    names = list_first([repr(output.name) for output in exceeding_outputs], _MAX_NAMES)
    subject = f"{'output' if len(exceeding_outputs) == 1 else 'outputs'} {names} {verb}{describe_error(pair, outputs, verdict_comparisons)}"
    output_names = {output.name for output in exceeding_outputs}
    causes = "; ".join([*_causes(pair, output_names), *_kernel_differences(pair, output_names, litert_outputs)])
    lines = [f"{subject} end to end, although every operator agrees: {_VERDICT}", f"cause: {causes}"]
    if not all(output.is_small for output in exceeding_outputs):
        accuracy = "measure the accuracy of both models on labeled data"
        next_step = accuracy if has_data else f"{_RANDOM_INPUTS}; if the error remains, {accuracy}"
        lines.append(f"to judge the effect: {next_step}")
    return tuple(lines)


def describe_error(pair: ModelPair, outputs: Sequence[Comparison], verdict_comparisons: Sequence[Comparison]) -> str:
    """Return the largest end-to-end error: `` by up to 3 quantization steps``.

    Return an empty string if no output differs.
    """
    exceeding_outputs = _exceeding_outputs(outputs, verdict_comparisons)
    if not exceeding_outputs:
        return ""
    worst_output = max(
        exceeding_outputs, key=lambda output: (bool(output.problem), output.unit == "value", output.max_error)
    )
    if worst_output.problem:
        return f": {worst_output.problem}"
    amount = (
        _describe_steps(pair, worst_output)
        if worst_output.unit == "step"
        else worst_output.in_unit(worst_output.max_error)
    )
    return f" by up to {amount}"


def _exceeding_outputs(outputs: Sequence[Comparison], verdict_comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the outputs that exceed their tolerance end to end."""
    names = {comparison.name for comparison in verdict_comparisons if comparison.end_to_end}
    return [output for output in outputs if output.name in names]


def _describe_steps(pair: ModelPair, output: Comparison) -> str:
    """Return an error in steps, the dtype's range, and the fraction that differs."""
    tensors = dict(zip(pair.entry.output_names, pair.entry.outputs, strict=True))
    low, high = INTEGER_RANGE[tensors[output.name].dtype] if output.name in tensors else (0, 0)
    amount = (
        f"{output.max_error:g} of {high - low} quantization steps" if high > low else output.in_unit(output.max_error)
    )
    return f"{amount} ({output.differing_text})"


def _causes(pair: ModelPair, output_names: set[str]) -> Iterator[str]:
    """Yield the causes: different arithmetic, accumulated rounding, operators that select."""
    if is_dequantized(pair.trial.model, pair.entry, pair.session):
        is_requantized = quantizes_values(pair.session.proto.graph)
        yield (
            "LiteRT rounds the result of each operator to quantized values; the ONNX model rounds with different scales"
            if is_requantized
            else "LiteRT rounds each result and clips it to the range in the file; the ONNX model does neither"
        )
    elif pair.has_rounding:
        yield "rounding differences of quantized operators add up"
    else:
        yield "rounding differences of floats add up"
    codes = list(dict.fromkeys(op.code for op in _upstream_selections(pair, output_names)))
    if codes:
        verbs = "compares or selects" if len(codes) == 1 else "compare or select"
        yield f"{list_first(codes, _MAX_NAMES)} {verbs} values, so a small difference can change the whole result"


def _kernel_differences(
    pair: ModelPair, output_names: set[str], litert_outputs: Mapping[str, Sequence[Run]]
) -> Iterator[str]:
    """Yield the largest error between two kernel sets of LiteRT, if they differ."""
    if len(litert_outputs) < 2:
        return
    (first, first_outputs), (second, second_outputs), *_ = litert_outputs.items()
    comparisons = pair.trial.compare_outputs(first_outputs, {second: second_outputs})
    differing = [output for output in comparisons if output.name in output_names and 0 < output.max_error < math.inf]
    if differing:
        worst_output = max(differing, key=lambda output: output.max_error)
        amount = worst_output.in_unit(worst_output.max_error)
        yield f"LiteRT's own {describe_kernels([first, second])} differ by up to {amount}"


def _upstream_selections(pair: ModelPair, output_names: set[str]) -> list[Operator]:
    """Return the operators that compare or select computed real values.

    They are upstream of the outputs; the last operator comes first.
    """
    selecting_indices, producer = selecting_operators(pair.session.proto.graph), producers(pair.entry.subgraph)
    pending = [
        tensor for name, tensor in zip(pair.entry.output_names, pair.entry.outputs, strict=True) if name in output_names
    ]
    visited: dict[int, Operator] = {}
    while pending:
        op = producer.get(pending.pop().index)
        if op is not None and op.index not in visited:
            visited[op.index] = op
            pending += [tensor for tensor in op.inputs if tensor is not None]
    upstream = [visited[index] for index in sorted(visited, reverse=True)]
    return [op for op in upstream if op.index in selecting_indices and any(map(_is_computed_real, op.inputs))]


def _is_computed_real(tensor: Tensor | None) -> bool:
    if tensor is None or tensor.is_constant:
        return False
    return "float" in tensor.dtype or is_quantized(tensor)
