"""Measurements in both runtimes: the comparison of every tensor, and the time of each operator."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.errors import InconclusiveError
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.graph.names import resolve_keys
from onnx_tflite_plugin.graph.randomness import random_nodes
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import VerifyOptions
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tensors import held_values
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.run import verify
from onnx_tflite_plugin.verify.runtimes.structure import producers
from onnx_tflite_plugin.verify.submodels.decision import decide
from onnx_tflite_plugin.verify.times.nodes import node_times
from onnx_tflite_plugin.verify.verification import Verification

if TYPE_CHECKING:
    from onnx import ModelProto

_LISTED = 4  # names of outputs with equal results


def measure_errors(
    tflite: bytes, onnx: ModelProto, runs: int, options: VerifyOptions | None = None
) -> tuple[list[dict[str, Any]], str, bool, dict[int, float], float]:
    """Return tensor errors in execution order, the verdict, True for a failure, and seconds per run: by operator, others.

    ``options``: data and tolerance. The verdict is on all of the data, the errors of tensors and the times on the first inputs.
    Raises ConversionError if a model does not run, InvalidInputs for data that do not fit, MissingExtra without the runtimes.
    """
    options = options or VerifyOptions()
    verification = verify(tflite, onnx, host=Host(), **vars(options))
    verdict, wrong = _sentence(verification), verification.verdict == "differs"
    pair = ModelPair(tflite, onnx, None, options.tolerance, lambda stage: None)
    entry = pair.entry
    ranges = resolve_keys(options.ranges, entry.input_names, [tensor.name for tensor in entry.inputs], "--range")
    try:
        pair.fill(Host)
        samples, _ = pair.reference_outputs(options.inputs, options.seed, 1, None, ranges)
        samples = samples[:1]
    except InconclusiveError:
        return [], verdict, wrong, {}, 0.0
    tensors = pair.entry.subgraph.tensors
    errors = [
        {
            "tensor": value.tensor,
            "name": tensors[value.tensor].name,
            "distance": comparison.distance if math.isfinite(comparison.distance) else None,
            "tolerance": comparison.tolerance,
            "ok": comparison.ok,
            "text": comparison.text,
        }
        for comparison, value in _errors(pair, samples)
    ]
    seconds, rest = _by_operator(onnx, pair.pairs.feeds(samples[0]), runs)
    return errors, verdict, wrong, seconds, rest


def _errors(pair: ModelPair, samples: Sequence[Run]) -> list[tuple[Comparison, TensorValue]]:
    """Return the error of every tensor, on LiteRT's operands."""
    random = any(True for _ in random_nodes(pair.session.proto.graph))
    decision = decide(pair, samples, random=random, exact=True)
    values = {value.name: value for values in held_values(pair.entry, pair.session).values() for value in values}
    wrong = {one.submodel.value.name: one.comparison for one in decision.differing}
    made = producers(pair.entry.subgraph)
    found = [(one, values[name]) for name, one in {**decision.agreed, **wrong}.items()]
    return sorted(found, key=lambda one: made[one[1].tensor].index)


def _sentence(verification: Verification) -> str:
    """Return a verdict in one line; outputs with the same text are grouped."""
    names: dict[str, list[str]] = {}
    for one in verification.comparisons:
        names.setdefault(one.text, []).append(one.name)
    outputs = [
        f"{', '.join(named[:_LISTED])}{f' and {len(named) - _LISTED} more' if len(named) > _LISTED else ''}: {text}"
        for text, named in names.items()
    ]
    if verification.verdict == "inconclusive":
        return f"inconclusive: {'; '.join((*verification.reasons, *outputs, *verification.notes))}"
    return "; ".join((verification.text.splitlines()[0], *outputs, *verification.notes))


def _by_operator(onnx: ModelProto, feeds: dict[str, Any], runs: int) -> tuple[dict[int, float], float]:
    """Return seconds per run of each TFLite operator, and of nodes that belong to none."""
    seconds: dict[int, float] = defaultdict(float)
    rest = 0.0
    for node in node_times(onnx, feeds, runs):
        if node.operator is None:
            rest += node.seconds
        else:
            seconds[node.operator] += node.seconds
    return dict(seconds), rest
