"""One model in both runtimes, side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.errors import InconclusiveError
from onnx_tflite_plugin.graph.names import resolve_keys
from onnx_tflite_plugin.graph.randomness import random_nodes, random_operators
from onnx_tflite_plugin.graph.serialized import Converted
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import VerifyOptions
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source import Section, Source, check_source, read_bytes
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tolerance import Tolerance
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.examined import Examined
from onnx_tflite_plugin.verify.inputs import rounded
from onnx_tflite_plugin.verify.inputs.causal import causal_inputs
from onnx_tflite_plugin.verify.inputs.user_data import Given
from onnx_tflite_plugin.verify.inputs.widths import compared_by_width
from onnx_tflite_plugin.verify.operators import singly
from onnx_tflite_plugin.verify.operators.bisect import smallest
from onnx_tflite_plugin.verify.operators.diverging import Divergence
from onnx_tflite_plugin.verify.operators.per_operator import compare_operators, settle_outputs
from onnx_tflite_plugin.verify.operators.weak import Weak
from onnx_tflite_plugin.verify.runtimes.child import recorded_crashes
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError
from onnx_tflite_plugin.verify.runtimes.processor import depends
from onnx_tflite_plugin.verify.verification import Verification

if TYPE_CHECKING:
    from onnx import ModelProto

_DEPENDENT = (
    "its int8 weights are exact only where the processor adds uint8 x int8 products exactly; another may differ"
)
_NAN = "every output is NaN in both runtimes on these inputs; give others with --inputs or --range"
_RANDOM = "the model draws random numbers, which no two runtimes do alike"


def verify(
    tflite: str | os.PathLike[str] | bytes | Section,
    onnx: ModelProto | Converted | str | os.PathLike[str] | bytes,
    *,
    inputs: Given = None,
    seed: int = VerifyOptions.seed,
    runs: int = VerifyOptions.runs,
    tolerance: Tolerance | float | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    bisect: str | os.PathLike[str] | None = None,
    partial: bool = False,
    host: Host | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Run a TFLite model in LiteRT and its conversion in ONNX Runtime on the same inputs, and compare every output.

    ``inputs``: arrays by name, a list of such mappings (one a run), an .npz, .npy or image file, or a folder of these
    (one a run); an array of several inputs stacked along its first axis is as many runs. What they leave out is drawn
    from ``seed``, within ``ranges`` (least and largest value by input name). ``runs`` successive invocations share one
    session a runtime, so that states are carried as they would be; loading costs far more than two more runs. One more
    run has other sizes where the ONNX model leaves some open, LiteRT takes them, and neither ``inputs`` nor ``shapes``
    sets them. ``tolerance`` is a share of the range for float outputs, or a whole ``Tolerance``; the default follows from
    the model. ``shapes`` sets dynamic sizes by input name. ``signature``: by default the one that was converted.
    ``progress`` is called with what is being run. On failure the first tensor outside its tolerance is looked for;
    ``bisect`` is a folder for the smallest part of the model that disagrees, for a bug report. An operator that LiteRT
    lacks is computed by the kernel that its handler declares (``host``: where handlers are looked for); if there is
    none, the rest is compared and the verdict is inconclusive, which ``partial`` accepts.

    Raises InvalidInputs for inputs that do not fit, VerificationError where a model does not run, InvalidModel and
    InvalidOnnx for files that are none, MissingExtra, OSError, TypeError.
    """
    if runs < 1:
        raise ValueError(f"runs is at least 1, not {runs}")
    told = progress or (lambda stage: None)
    told("loading both models")
    examined = Examined(content(tflite), model_of(onnx), signature, tolerance, told)
    entry = examined.entry
    stored = [tensor.name for tensor in entry.inputs]
    ranges = resolve_keys(ranges or {}, entry.input_names, stored, "--range")
    shapes = None if shapes is None else resolve_keys(shapes, entry.input_names, stored, "--input-shape")
    inputs = causal_inputs(examined.session, runs) if inputs is None else inputs
    asked = _Asked(inputs, seed, runs, shapes, ranges, tolerance is None, bisect, host)
    with recorded_crashes() as crashes:
        try:
            verification = _compared(examined, asked, told)
        except InconclusiveError as error:
            verification = Verification((), (), 0, reasons=(error.message,))
    reasons = (*examined.reasons, *(one for one in verification.reasons if one not in examined.reasons))
    notes = (*verification.notes, *dict.fromkeys(crashes))
    return replace(verification, notes=notes, reasons=reasons, partial=partial)


class _Asked(NamedTuple):
    """The arguments of ``verify``. ``exact``: no tolerance was given besides the model's own."""

    inputs: Given
    seed: int
    runs: int
    shapes: Mapping[str, Sequence[int]] | None
    ranges: Mapping[str, tuple[float, float]]
    exact: bool
    bisect: str | os.PathLike[str] | None
    host: Host | None


def _compared(examined: Examined, asked: _Asked, told: Progress) -> Verification:
    """Run both models and compare every output, then what lies before outputs that agree or do not."""
    gaps = examined.fill(asked.host or Host)
    if any(True for _ in random_nodes(examined.session.proto.graph)):
        return _compare_beside_random(examined, asked, gaps)
    drawn, expected = examined.expected(asked.inputs, asked.seed, asked.runs, asked.shapes, asked.ranges)
    resized = examined.extend(drawn, expected, asked.seed) if asked.inputs is None and not asked.shapes else ""
    around = (resized, *gaps) if resized else gaps
    operators = examined.operators_apart()
    if operators is not None:
        judged = examined.judged_apart(
            operators, operators.comparisons(drawn), len(drawn), lambda: examined.whole_apart(drawn, expected)
        )
        return replace(judged, notes=(*judged.notes, *around))
    actual = examined.trial.actual(examined.session, drawn)
    comparisons = compared_by_width(examined.trial, actual, expected, examined.widths)
    notes = (
        *around,
        *((_DEPENDENT,) if depends(examined.session.proto) else ()),
    )
    if _all_nan(actual) and any(array.size for arrays in drawn for array in arrays):
        examined.reasons = (*examined.reasons, _NAN)
    if examined.trial.tolerance.unbiased and not all(comparison.ok for comparison in comparisons):
        told("how far rounded activations move the outputs")
        comparisons, why = rounded.judged(
            examined.trial, drawn, actual, expected, examined.widths, comparisons, fresh=examined.fresh
        )
        notes = (*why, *notes)
    if all(comparison.ok for comparison in comparisons):
        if examined.trial.gaps.borrowed:
            return Verification(comparisons, tuple(expected), len(drawn), notes=notes)
        told("more inputs, for outputs that hardly vary")
        wrong, said = _weak(examined, drawn, expected, comparisons)
        if not wrong:
            told("operators one by one")
            wrong, untried = _singly(examined, drawn, exact=asked.exact)
            notes = (untried, *notes) if untried else notes
        return Verification((*comparisons, *wrong), tuple(expected), len(drawn), notes=(*said, *notes))
    told("looking for the first tensor outside its tolerance")
    diverging, reasons = examined.search.divergence(drawn, expected)
    allowed = singly.tolerance_of(examined.trial.tolerance)
    settled, why = settle_outputs(examined.search, drawn, comparisons, allowed, _alone(examined, allowed))
    if settled:
        return Verification(settled, tuple(expected), len(drawn), notes=(*why, *notes))
    if asked.bisect is not None:
        told("looking for the smallest part that disagrees")
        notes = (_bisected(examined, diverging, drawn, Path(asked.bisect)), *notes)
    notes = (*reasons, *examined.hints(drawn, expected), *notes)
    return Verification(comparisons, tuple(expected), len(drawn), diverging=diverging, notes=notes)


def _compare_beside_random(examined: Examined, asked: _Asked, notes: tuple[str, ...]) -> Verification:
    """Compare the operators that draw no random numbers, on LiteRT's own operands. Raises InconclusiveError if none can be."""
    random = random_operators(examined.session.proto.graph)
    if not random:
        raise InconclusiveError(_RANDOM)
    examined.reasons = (*examined.reasons, f"{_RANDOM}; its other operators were compared on LiteRT's own operands")
    drawn, expected = examined.expected(asked.inputs, asked.seed, asked.runs, asked.shapes, asked.ranges)
    skipped = {t.index for k in random for t in examined.entry.subgraph.operators[k].outputs if t is not None}
    allowed = singly.tolerance_of(examined.trial.tolerance)
    operators = compare_operators(examined.search, drawn, allowed, _alone(examined, allowed), skipped)
    outputs = {value: name for name, value in examined.search.output_values().items()}
    agreed = (replace(one, name=outputs[name]) for name, one in operators.agreed.items() if name in outputs)
    wrong = () if operators.differing is None else (operators.differing,)
    return Verification((*agreed, *wrong), tuple(expected), len(drawn), notes=notes)


def _all_nan(actual: Sequence[Run]) -> bool:
    arrays = [array for run in actual for array in run if array.size]
    return bool(arrays) and all(array.dtype.kind == "f" and bool(np.isnan(array).all()) for array in arrays)


def _weak(
    examined: Examined, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]], comparisons: Sequence[Comparison]
) -> tuple[list[Comparison], list[str]]:
    """What is wrong behind outputs that hardly move, and which those are."""

    def alone(tflite: bytes, onnx: ModelProto) -> Verification:
        """A part of both models, on inputs of its own."""
        part = Examined(tflite, onnx, None, examined.trial.tolerance, lambda stage: None)
        part.fill(examined.host or Host)
        drawn, expected = part.expected(None, 0, 3, None, {})
        return _judged(part, part.trial.actual(part.session, drawn), drawn, expected)

    return Weak(examined.search, alone).examine(runs, expected, comparisons)


def _singly(examined: Examined, runs: Sequence[Run], *, exact: bool) -> tuple[list[Comparison], str]:
    """The first operator that is wrong behind outputs that agree, and why none was tried; ``exact``: nobody allowed for more."""
    whole = examined.trial.tolerance
    tolerance = singly.tolerance_of(whole) if exact else whole
    return singly.wrong(examined.search, runs[: 3 if examined.stateful else 1], tolerance, _alone(examined, tolerance))


def _alone(examined: Examined, tolerance: Tolerance) -> singly.Alone:
    """Verifies a part of both models on given inputs."""

    def alone(tflite: bytes, onnx: ModelProto, given: Mapping[str, Array]) -> Verification:
        part = Examined(tflite, onnx, None, tolerance, lambda stage: None)
        part.fill(examined.host or Host)
        drawn, expected = part.expected([given], 0, 1, None, {})
        ((actual,),), others = part.trial.actual(part.session, drawn), expected.values()
        settled = singly.without_overflow(actual, next(iter(others))[0][0])
        return _judged(part, [[settled]], drawn, expected)

    return alone


def _judged(
    part: Examined, actual: Sequence[Run], runs: Sequence[Run], expected: Mapping[str, Sequence[Run]]
) -> Verification:
    """What comes of a part; where it seems wrong, by LiteRT's reference kernels: the others add zero points to products
    narrowed to 16 bits, which wrap (MulElementwise, optimized/integer_ops/mul.h).
    """
    first = Verification(part.trial.compared(actual, expected), tuple(expected), len(runs))
    if first.ok or "reference" in expected:
        return first
    try:
        reference = {"reference": part.trial.litert("reference", runs)}
    except LiteRTError:
        return first
    again = Verification(part.trial.compared(actual, reference), tuple(reference), len(runs))
    return again if again.ok else first


def _bisected(examined: Examined, divergence: Divergence | None, runs: Sequence[Run], folder: Path) -> str:
    """Writes the smallest part that disagrees, and says where it is."""

    def agrees(tflite: bytes, onnx: ModelProto, given: Mapping[str, Array]) -> bool:
        return verify(tflite, onnx, inputs=[given], tolerance=examined.trial.tolerance, host=examined.host).ok

    part = None if divergence is None else smallest(examined.search, divergence, runs, agrees)
    if part is None:
        return "no part of the model disagrees by itself"
    files = ", ".join(map(str, part.save(folder)))
    codes = ", ".join(operator.code for operator in part.operators[:3])
    more = f" and {len(part.operators) - 3} more" if len(part.operators) > 3 else ""
    return f"the smallest part that disagrees, {codes}{more}: {files}"


def content(tflite: Source) -> bytes:
    check_source(tflite)
    return read_bytes(tflite)


def model_of(onnx: Any) -> ModelProto | bytes | Path:
    if isinstance(onnx, str | os.PathLike):
        return Path(onnx)
    proto = getattr(onnx, "proto", onnx)
    if not isinstance(proto, bytes) and not hasattr(proto, "graph"):
        raise TypeError(
            f"an ONNX model is given by path or content, as ModelProto or Conversion, not as {type(onnx).__name__}"
        )
    return proto  # type: ignore[no-any-return]
