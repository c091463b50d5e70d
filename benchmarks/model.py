"""Benchmark one model in LiteRT and, converted by each converter, in ONNX Runtime.

All runs use the same inputs and alternate in one process.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.arithmetic import minimum_seconds
from benchmarks.graph import count_operators
from benchmarks.io_matching import guess_tensors
from benchmarks.measure import interleave_runs
from benchmarks.peers import Converter, NotConverted
from benchmarks.results import Outcome, Row
from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Array, Model, Operator
from onnx_tflite_plugin.verify import Comparison, LiteRT, LiteRTError, OnnxRuntime, generate_inputs
from onnx_tflite_plugin.verify.inputs.random_inputs import Restriction
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.litert import start_litert
from onnx_tflite_plugin.verify.times.bench import Spread

if TYPE_CHECKING:
    from onnx import GraphProto

KINDS = {"int8": "int8", "uint8": "int8", "int16": "int16"}
RUNS = 3  # compared runs, as in verify by default
_CRASHED = "crashes: the process of the converter has ended"


def bench_in_process(source: Path, name: str, converters: Sequence[Converter], rounds: int) -> Row:
    """Benchmark as :func:`bench` does, in a separate process.

    A separate process starts with fresh memory and survives the crash of a runtime. After a crash, the converters are
    run one by one to find those whose models crash. The others are then measured together.
    """
    if row := _run_in_process(source, name, converters, rounds):
        return row
    if not _run_in_process(source, name, (), 1):
        return Row(name, problem=_CRASHED)
    working_converters = [converter for converter in converters if _run_in_process(source, name, [converter], 1)]
    row = _run_in_process(source, name, working_converters, rounds) or Row(name, problem=_CRASHED)
    outcomes = {outcome.converter: outcome for outcome in row.outcomes}
    crashes = (Outcome(converter.name, problem=_CRASHED) for converter in converters)
    return replace(row, outcomes=tuple(outcomes.get(crash.converter, crash) for crash in crashes))


def _run_in_process(source: Path, name: str, converters: Sequence[Converter], rounds: int) -> Row | None:
    """Return the row from another process; None if it crashed."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(bench, source, name, converters, rounds).result()
        except BrokenProcessPool:
            return None
        except Exception as error:
            return Row(name, problem=f"fails: {type(error).__name__}: {error}")


def bench(source: Path, name: str, converters: Sequence[Converter], rounds: int) -> Row:
    """Return the row of one model."""
    try:
        original = OriginalModel(source)
    except ConversionError as error:
        return Row(name, problem=" ".join(f"does not run: {error}".split()))
    outcomes: list[Outcome] = []
    converted_models: dict[int, ConvertedModel] = {}
    with tempfile.TemporaryDirectory() as folder:
        for k, converter in enumerate(converters):
            try:
                converted = ConvertedModel(original, converter, source, Path(folder) / f"{k}.onnx")
            except NotConverted as failure:
                outcomes.append(Outcome(converter.name, problem=" ".join(str(failure).split())))
            else:
                converted_models[k] = converted
                outcomes.append(converted.outcome)
        litert_seconds, *converted_seconds = interleave_runs(
            [original.run, *(converted.run for converted in converted_models.values())], rounds
        )
    for k, seconds in zip(converted_models, converted_seconds, strict=True):
        outcomes[k] = replace(
            outcomes[k],
            seconds=Spread.of(seconds),
            ratio=Spread.of(seconds / litert_seconds),
            best_ratio=float(seconds.min() / litert_seconds.min()),
        )
    return Row(
        name, original.kind, Spread.of(litert_seconds), tuple(outcomes), minimum_seconds=minimum_seconds(original.model)
    )


def kind(model: Model) -> str:
    """Return the kind of quantization: int8, int16, dynamic range or float.

    A model with quantized results has the kind of the most results; uint8 counts as int8. Without quantized results, it
    is dynamic range if an operator has float activations and quantized weights, and float otherwise.
    """
    operators = [operator for subgraph in model.subgraphs for operator in subgraph.operators]
    results = (tensor for operator in operators for tensor in operator.outputs if tensor is not None)
    counts = Counter(
        KINDS[tensor.dtype] for tensor in results if tensor.quantization is not None and tensor.dtype in KINDS
    )
    if counts:
        return counts.most_common(1)[0][0]
    return "dynamic range" if any(map(_is_dynamic_range, operators)) else "float"


def _is_dynamic_range(operator: Operator) -> bool:
    operands = [operand for operand in operator.inputs if operand is not None]
    has_integer_weights = any(
        operand.is_constant and operand.quantization is not None and "int" in operand.dtype for operand in operands
    )
    return has_integer_weights and any(
        not operand.is_constant and operand.dtype.startswith("float") for operand in operands
    )


class OriginalModel:
    """The TFLite model in LiteRT: default kernels with XNNPACK, one thread.

    ``inputs`` are random or, if LiteRT refuses random inputs, ones or zeros. Raises LiteRTError if the model does not
    run.
    """

    def __init__(self, source: Path) -> None:
        self.data = source.read_bytes()
        self.model = structure.read(self.data)
        self.entry = structure.entry(self.model)
        self.kind = kind(self.model)
        self.inputs, session = self._start()
        self.run = session.prepare(self.inputs)

    def _start(self) -> tuple[list[Array], LiteRT]:
        refusal: LiteRTError | None = None
        restrictions: tuple[Restriction, ...] = ("none", "ones", "zeros")
        for restriction in restrictions:
            (inputs,) = generate_inputs(self.entry, runs=1, restriction=restriction)
            try:
                return inputs, start_litert(self.data, inputs, known=self.model)
            except LiteRTError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal


class ConvertedModel:
    """A converter's model in ONNX Runtime: default optimizations, one thread.

    Raises NotConverted if the converter's model does not exist, load or run.
    """

    def __init__(self, original: OriginalModel, converter: Converter, source: Path, target: Path) -> None:
        converter.convert(source, target)
        optimized = target.with_suffix(".optimized.onnx")
        with _report_failure("does not load"):
            session = OnnxRuntime(target, optimized=optimized)
        with _report_failure("has another interface"):
            session.tensor_values = session.tensor_values or tuple(guess_tensors(original.entry, session))
            pair = ModelPair(original.data, target, None, None, lambda stage: None, session=session)
        with _report_failure("does not run"):
            comparisons = _compare_outputs(pair)
        session.reset()
        self._session, self._feeds = session.session, session.feeds(pair.interface.feeds(original.inputs))
        largest_error = max(comparisons, key=lambda comparison: (not comparison.ok, comparison.max_error), default=None)
        self.outcome = Outcome(
            converter.name,
            graph=count_operators(_graph(optimized)),
            error=_describe_error(largest_error) if largest_error else "",
            within_tolerance=not any(map(is_wrong, comparisons)),
        )

    def run(self) -> object:
        return self._session.run(None, self._feeds)


MAX_MEAN = {"step": 1.0, "range": 0.005, "value": 0.0}
"""Unit -> mean error above which an output that exceeds its tolerance is wrong.

Smaller mean errors are explained by rounding, which accumulates in deep networks. Of 60 correct networks, two exceed
the tolerance on random inputs, with mean errors of 0.02 steps and 0.001 of the range.
"""


def is_wrong(comparison: Comparison) -> bool:
    """True if an output exceeds its tolerance by more than rounding errors."""
    return not comparison.ok and bool(comparison.problem or comparison.mean_error > MAX_MEAN[comparison.unit])


def _compare_outputs(pair: ModelPair) -> Sequence[Comparison]:
    """Return one comparison per output, as in ``verify``.

    If the converter lost the states of a stateful model, only the first run is compared.
    """
    runs = 1 if pair.stateful and not pair.session.states else RUNS
    inputs, expected = pair.reference_outputs(None, 0, runs, None, {})
    actual = pair.trial.onnx_outputs(pair.session, inputs)
    return pair.trial.compare_outputs(actual, expected)


@contextlib.contextmanager
def _report_failure(problem: str) -> Iterator[None]:
    """Replace a ConversionError in the block with NotConverted with the failed step."""
    try:
        yield
    except ConversionError as error:
        raise NotConverted(f"{problem}: {error.__cause__ or error}") from error


def _graph(path: Path) -> GraphProto:
    import onnx

    return onnx.load(path, load_external_data=False).graph


def _describe_error(comparison: Comparison) -> str:
    """Return an error as text, such as ``1 step`` or ``2.1e-06 of range``."""
    if comparison.problem:
        return comparison.problem
    error = comparison.max_error
    if not error:
        return "equal"
    if comparison.unit == "range":
        return f"{error:.1e} of range"
    return plural(round(error), "step") if comparison.unit == "step" else f"{error:g} apart"
