"""One model: LiteRT and every converter's result on the same inputs, in one process."""

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

from benchmarks.arithmetic import least_seconds
from benchmarks.graph import count_operators
from benchmarks.measure import interleave_runs
from benchmarks.peers import Converter, Unconverted
from benchmarks.ports import guess_tensors
from benchmarks.results import Outcome, Row
from onnx_tflite_plugin.cli.output import plural
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Array, Model, Operator
from onnx_tflite_plugin.verify import Comparison, LiteRT, LiteRTError, OnnxRuntime, draw
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.litert import start_litert
from onnx_tflite_plugin.verify.times.bench import Spread

if TYPE_CHECKING:
    from onnx import GraphProto

KINDS = {"int8": "int8", "uint8": "int8", "int16": "int16"}
RUNS = 3  # that the error is taken over, as verify's are by default
_CRASHED = "crashes: the process that ran it is gone"


def bench_in_process(source: Path, name: str, converters: Sequence[Converter], rounds: int) -> Row:
    """Benchmark as :func:`bench` does, in a separate process.

    Its memory starts at zero, and a runtime may crash. After a crash the model that caused it is found, and the others are
    measured without it.
    """
    if row := _run_in_process(source, name, converters, rounds):
        return row
    if not _run_in_process(source, name, (), 1):
        return Row(name, problem=_CRASHED)
    sound = [one for one in converters if _run_in_process(source, name, [one], 1)]
    row = _run_in_process(source, name, sound, rounds) or Row(name, problem=_CRASHED)
    by_converter = {outcome.converter: outcome for outcome in row.outcomes}
    crashed = (Outcome(one.name, problem=_CRASHED) for one in converters)
    return replace(row, outcomes=tuple(by_converter.get(one.converter, one) for one in crashed))


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
        original = Original(source)
    except ConversionError as error:
        return Row(name, problem=" ".join(f"does not run: {error}".split()))
    outcomes: list[Outcome] = []
    running: dict[int, Converted] = {}
    with tempfile.TemporaryDirectory() as folder:
        for k, converter in enumerate(converters):
            try:
                converted = Converted(original, converter, source, Path(folder) / f"{k}.onnx")
            except Unconverted as failure:
                outcomes.append(Outcome(converter.name, problem=" ".join(str(failure).split())))
            else:
                running[k] = converted
                outcomes.append(converted.outcome)
        reference, *others = interleave_runs([original.run, *(one.run for one in running.values())], rounds)
    for k, seconds in zip(running, others, strict=True):
        outcomes[k] = replace(
            outcomes[k],
            seconds=Spread.of(seconds),
            ratio=Spread.of(seconds / reference),
            best=float(seconds.min() / reference.min()),
        )
    return Row(name, original.kind, Spread.of(reference), tuple(outcomes), least=least_seconds(original.model))


def kind(model: Model) -> str:
    """int8 (also for uint8) or int16 by the majority of quantized results; else dynamic range, if a kernel quantizes
    float operands for integer weights; else float.
    """
    operators = [operator for graph in model.subgraphs for operator in graph.operators]
    results = (tensor for operator in operators for tensor in operator.outputs if tensor is not None)
    quantized = Counter(KINDS[one.dtype] for one in results if one.quantization is not None and one.dtype in KINDS)
    if quantized:
        return quantized.most_common(1)[0][0]
    return "dynamic range" if any(map(_dynamic_range, operators)) else "float"


def _dynamic_range(operator: Operator) -> bool:
    slots = [slot for slot in operator.inputs if slot is not None]
    weights = any(slot.is_constant and slot.quantization is not None and "int" in slot.dtype for slot in slots)
    return weights and any(not slot.is_constant and slot.dtype.startswith("float") for slot in slots)


class Original:
    """The TFLite model in LiteRT: default kernels with XNNPACK, one thread. Raises LiteRTError where it does not run.

    ``inputs`` are random, from a smaller range if LiteRT refuses the first.
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
        for caution in range(3):
            (inputs,) = draw(self.entry, runs=1, caution=caution)
            try:
                return inputs, start_litert(self.data, inputs, known=self.model)
            except LiteRTError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal


class Converted:
    """A converter's model in ONNX Runtime: default optimizations, one thread. Raises Unconverted if there is none."""

    def __init__(self, original: Original, converter: Converter, source: Path, target: Path) -> None:
        converter.convert(source, target)
        optimized = target.with_suffix(".optimized.onnx")
        with _failing("does not load"):
            session = OnnxRuntime(target, optimized=optimized)
        with _failing("has another interface"):
            session.tensor_values = session.tensor_values or tuple(guess_tensors(original.entry, session))
            pair = ModelPair(original.data, target, None, None, lambda stage: None, session=session)
        with _failing("does not run"):
            comparisons = _compare_outputs(pair)
        session.reset()
        self._session, self._feeds = session.session, session.feeds(pair.pairs.feeds(original.inputs))
        worst = max(comparisons, key=lambda one: (not one.ok, one.distance), default=None)
        self.outcome = Outcome(
            converter.name,
            graph=count_operators(_graph(optimized)),
            error=_describe_error(worst) if worst else "",
            within=not any(map(is_wrong, comparisons)),
        )

    def run(self) -> object:
        return self._session.run(None, self._feeds)


MAX_MEAN = {"step": 1.0, "range": 0.005, "value": 0.0}
"""Mean error, in the unit of the comparison, below which an output beyond its tolerance counts as a rounding
difference.

Rounding errors accumulate in deep networks: of 60 networks, two correct ones exceed the tolerance on random inputs,
with mean errors of 0.02 steps and 0.001 of the range.
"""


def is_wrong(comparison: Comparison) -> bool:
    """True if an output is beyond its tolerance by more than single roundings."""
    return not comparison.ok and bool(comparison.problem or comparison.mean > MAX_MEAN[comparison.unit])


def _compare_outputs(pair: ModelPair) -> Sequence[Comparison]:
    """Return one comparison per output, as in ``verify``; models that lost their states are run once."""
    runs = 1 if pair.stateful and not pair.session.states else RUNS
    inputs, expected = pair.reference_outputs(None, 0, runs, None, {})
    actual = pair.trial.actual(pair.session, inputs)
    return pair.trial.compare_outputs(actual, expected)


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    """Return a failure of the converted model as an error text."""
    try:
        yield
    except ConversionError as error:
        raise Unconverted(f"{what}: {error.__cause__ or error}") from error


def _graph(path: Path) -> GraphProto:
    import onnx

    return onnx.load(path, load_external_data=False).graph


def _describe_error(comparison: Comparison) -> str:
    """Return an error as text: ``1 step``, ``2.1e-06 of the range``."""
    if comparison.problem:
        return comparison.problem
    distance = comparison.distance
    if not distance:
        return "equal"
    if comparison.unit == "range":
        return f"{distance:.1e} of range"
    return plural(round(distance), "step") if comparison.unit == "step" else f"{distance:g} apart"
