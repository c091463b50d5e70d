"""One model in both runtimes, side by side."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..errors import InvalidModel, VerificationError
from ..graph.metadata import Part, TensorValue, forgets, props, read_origin
from ..graph.serialized import Converted
from ..host import Host
from ..progress import Progress
from ..source import check_source, read
from ..source.authored import Described
from ..source.metadata import described
from ..source.model import Array, Operator, Tensor
from . import inputs as drawing
from . import structure
from .apart import Apart, without_quantization
from .around import Gaps, lacking, own_kernels
from .bisect import smallest
from .borrowed import Borrowed
from .compare import Comparison, Tolerance
from .diverging import Divergence, Search, stateful
from .litert import LiteRTError
from .ort import OnnxRuntime, OrtError
from .part import cut_file
from .processor import depends, multiplies_exactly, processor
from .resolution import resolutions
from .structure import Entry
from .trial import Pairs, Run, Trial
from .user_data import Given
from .weak import Weak
from .widths import NOISY, compared_by_width, widths

if TYPE_CHECKING:
    from onnx import ModelProto

Ran = TypeVar("Ran")

_WIDE = 64  # for open sizes where those of the file are too small to run, as those of images are that it stores as 1
_PRECISE = {"session.x64quantprecision": "1"}  # exact on x86 before VNNI, too
_DEPENDENT = (
    "its int8 weights are exact only where the processor adds uint8 x int8 products exactly; another may differ"
)


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """What came out: ``comparisons`` in the order of the model's outputs, ``kernels`` the kernel sets compared with,
    ``processor`` what both ran on.
    """

    comparisons: tuple[Comparison, ...]
    kernels: tuple[str, ...]
    runs: int
    processor: str = field(default_factory=processor)
    diverging: Divergence | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        verdict, first, *others = [line.strip() for line in self.text.splitlines()][: 1 + len(self.comparisons)]
        more = f"; and {len(others)} outputs more" if others else ""
        return f"<Verification: {verdict}; {first}{more}>"

    @property
    def ok(self) -> bool:
        return all(comparison.ok for comparison in self.comparisons)

    @property
    def text(self) -> str:
        """One line on the whole, one an output, then the first wrong tensor and what may be the reason."""
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        verdict = "within" if self.ok else "NOT within"
        where = "" if self.ok else f", on {self.processor}"
        lines = [f"{verdict} tolerance of LiteRT's {' and '.join(self.kernels)} kernels, {runs}{where}"]
        lines += [f"  {'ok    ' if one.ok else 'FAILED'} {one.name}: {one.text}" for one in self.comparisons]
        if self.diverging:
            lines.append(f"  first outside its tolerance: {self.diverging.text}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def verify(
    tflite: str | os.PathLike[str] | bytes,
    onnx: ModelProto | Converted | str | os.PathLike[str] | bytes,
    *,
    inputs: Given = None,
    seed: int = 0,
    runs: int = 3,
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
    lacks is computed by the kernel that its handler declares (``host``: where handlers are looked for); where there is
    none, ``partial`` takes its results from the ONNX model and compares the rest, and without it nothing is compared.

    Raises InvalidInputs for inputs that do not fit, VerificationError where a model does not run, InvalidModel and
    InvalidOnnx for files that are none, MissingExtra, OSError, TypeError.
    """
    if runs < 1:
        raise ValueError(f"runs is at least 1, not {runs}")
    told = progress or (lambda stage: None)
    told("loading both models")
    examined = Examined(content(tflite), model_of(onnx), signature, tolerance, told)
    gaps = examined.fill(host or Host, partial=partial)
    drawn, expected = examined.expected(inputs, seed, runs, shapes, ranges or {})
    if inputs is None and not shapes:
        examined.extend(drawn, expected, seed)
    operators = examined.operators_apart()
    if operators is not None:
        judged = examined.judged_apart(operators, operators.comparisons(drawn), len(drawn))
        return replace(judged, notes=(*judged.notes, *gaps))
    actual = examined.trial.actual(examined.session, drawn)
    comparisons = compared_by_width(examined.trial, actual, expected, examined.widths)
    notes = (*gaps, *((_NAN,) if _all_nan(actual) else ()), *((_DEPENDENT,) if depends(examined.session.proto) else ()))
    if all(comparison.ok for comparison in comparisons):
        if examined.trial.gaps.borrowed:
            return Verification(comparisons, tuple(expected), len(drawn), notes=notes)
        told("more inputs, for outputs that hardly vary")
        wrong, said = examined.weak(drawn, expected, comparisons)
        return Verification((*comparisons, *wrong), tuple(expected), len(drawn), notes=(*said, *notes))
    told("looking for the first tensor outside its tolerance")
    diverging, reasons = examined.search.divergence(drawn, expected)
    if bisect is not None:
        told("looking for the smallest part that disagrees")
        notes = (examined.bisected(diverging, drawn, Path(bisect)), *notes)
    notes = (*reasons, *examined.hints(drawn, expected), *notes)
    return Verification(comparisons, tuple(expected), len(drawn), diverging=diverging, notes=notes)


_NAN = "every output is NaN throughout in both: such inputs say nothing, give some with --inputs or --range"


def _all_nan(actual: Sequence[Run]) -> bool:
    arrays = [array for run in actual for array in run if array.size]
    return bool(arrays) and all(array.dtype.kind == "f" and bool(np.isnan(array).all()) for array in arrays)


def content(tflite: str | os.PathLike[str] | bytes) -> bytes:
    check_source(tflite)
    return Path(tflite).read_bytes() if isinstance(tflite, str | os.PathLike) else bytes(tflite)


def model_of(onnx: Any) -> ModelProto | bytes | Path:
    if isinstance(onnx, str | os.PathLike):
        return Path(onnx)
    proto = getattr(onnx, "proto", onnx)
    if not isinstance(proto, bytes) and not hasattr(proto, "graph"):
        raise TypeError(
            f"an ONNX model is given by path or content, as ModelProto or Conversion, not as {type(onnx).__name__}"
        )
    return proto  # type: ignore[no-any-return]


class Examined:
    """The two models, their inputs and outputs paired, and the inputs of every run."""

    def __init__(
        self,
        data: bytes,
        onnx: ModelProto | bytes | Path,
        signature: str | None,
        tolerance: Tolerance | float | None,
        progress: Progress,
        *,
        threads: int = 1,
    ) -> None:
        self.onnx = onnx
        self.session = OnnxRuntime(onnx, threads=threads)
        model = structure.read(data)
        converted, part = self._origin()
        if signature is None and any(one.key == converted for one in model.signatures):
            signature = converted
        self.entry = structure.entry(model, signature)
        if part is not None:
            data = self._cut(data, part)
            model, signature = structure.read(data), None
            self.entry = structure.entry(model)
        if tolerance is None:
            tolerance = Tolerance.of(model)
        if not isinstance(tolerance, Tolerance):
            tolerance = Tolerance(of_range=tolerance)
        floors = resolutions(self.session.proto, self.session.tensor_values, self.entry.subgraph.index)
        self.trial = Trial(data, model, self.entry, tolerance, signature, progress, floors)
        self.pairs = Pairs(self.entry, self.session)
        self.stateful = stateful(model)
        self.fresh = self.stateful and forgets(props(self.session.proto.metadata_props))
        self.widths = widths(self.entry, tolerance)
        self.host: Host | None = None
        self.least = 0  # of open sizes behind axis 0

    def fill(self, host: Host | Callable[[], Host], *, partial: bool) -> tuple[str, ...]:
        """Has somebody compute each operator that LiteRT lacks: a pack's kernel, or with ``partial`` the ONNX model.

        Returns what is to be said of it. Raises VerificationError where there is nobody, or nothing is left to compare.
        """
        data = self.trial.data
        missing = lacking(data, self.entry)
        if not missing:
            return ()
        self.host = host if isinstance(host, Host) else host()
        own = own_kernels(read(data), self.entry.subgraph.index, [op.index for op in missing], self.host)
        borrowed = {op.index: op for op in missing if op.index not in own}
        notes = (
            [f"{_codes(one.op for one in own.values())}: their packs' kernels compute them, LiteRT the rest"]
            if own
            else []
        )
        if borrowed:
            codes = _codes(borrowed.values())
            if not partial:
                raise VerificationError(
                    f"neither LiteRT nor an installed pack has a kernel of {codes}: "
                    "--verify=partial compares all but these (kernel= of the handler would compare them too)"
                )
            notes.append(f"not compared: {codes}, of which there is no kernel; their results are the ONNX model's")
        borrow = Borrowed(self.onnx, self.entry, self.session, borrowed.values()) if borrowed else None
        self.trial = replace(self.trial, gaps=Gaps(own, borrowed, borrow))
        if {tensor.index for tensor in self.entry.outputs} <= self.trial.gaps.tensors:
            raise VerificationError(f"every output is one of {_codes(borrowed.values())}, of which there is no kernel")
        return tuple(notes)

    @cached_property
    def search(self) -> Search:
        """Looks into the model, beyond its outputs."""
        return Search(self.trial, self.onnx, self.session, fresh=self.fresh)

    def _origin(self) -> tuple[str | None, Part | None]:
        """The signature and the part that the ONNX model was converted from. Raises VerificationError."""
        try:
            return read_origin(props(self.session.proto.metadata_props))
        except ValueError as error:
            raise VerificationError(str(error)) from error

    def _cut(self, data: bytes, part: Part) -> bytes:
        """The same part of the file. Raises VerificationError where it has no such tensors."""
        count = len(self.entry.subgraph.tensors)
        if not all(0 <= k < count for k in (*part.inputs, *part.outputs)):
            raise VerificationError(f"the ONNX model is a part of another file: this one has only {count} tensors")
        return cut_file(data, self.entry.subgraph, part.inputs, part.outputs)

    def as_converted(self) -> Entry:
        """The entry with the sizes of the ONNX model, which given arrays must fit."""
        sizes = {name: dims for _, name, dims in self._dims()}
        inputs = tuple(
            replace(tensor, dims=tuple(size if isinstance(size, int) else None for size in sizes[name]))
            if len(sizes[name]) == tensor.rank
            else tensor
            for tensor, name in zip(self.entry.inputs, self.entry.input_names, strict=True)
        )
        return replace(self.entry, inputs=inputs)

    def described(self) -> Described:
        """What the metadata says of the inputs; nothing where the file cannot be read for it."""
        try:
            return described(read(self.trial.data))
        except InvalidModel:
            return {}

    def expected(
        self,
        inputs: Given,
        seed: int,
        runs: int,
        shapes: Mapping[str, Sequence[int]] | None,
        ranges: Mapping[str, tuple[float, float]],
    ) -> tuple[list[list[Array]], dict[str, list[list[Array]]]]:
        """Each run's inputs, and each kernel set's outputs."""

        def run(drawn: list[list[Array]]) -> dict[str, list[list[Array]]]:
            return self.trial.expected(drawn, fresh=self.fresh)

        return self.accepted(run, inputs, seed, self.enough(runs), shapes, ranges)

    def accepted(
        self,
        run: Callable[[list[list[Array]]], Ran],
        inputs: Given,
        seed: int,
        runs: int = 1,
        shapes: Mapping[str, Sequence[int]] | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> tuple[list[list[Array]], Ran]:
        """Each run's inputs, and what ``run`` makes of them; drawn inputs that it refuses by a LiteRTError are drawn anew."""
        asked = shapes or {}
        refusal: LiteRTError | None = None
        told = self.described() if isinstance(inputs, str | os.PathLike) else None
        for caution, self.least in ((0, 0), (1, 0), (2, 0), (0, _WIDE)):
            if self.least and (inputs is not None or asked or self.shapes() == self.shapes(0)):
                break
            drawn = drawing.draw(
                self.as_converted() if inputs is not None else self.entry,
                given=inputs, shapes={**self.shapes(), **asked}, seed=seed, runs=runs, caution=caution,
                ranges=ranges, described=told, widths=self.widths,
            )  # fmt: skip
            if not self.stateful and _repeated(drawn):
                drawn = drawn[:1]
            try:
                return drawn, run(drawn)
            except LiteRTError as error:
                refusal = refusal or error
        hint = "" if inputs is not None else "; where the drawn inputs are the reason, give some"
        raise LiteRTError(f"{refusal}{hint}") from refusal

    def enough(self, runs: int) -> int:
        """As many runs as are asked for, or as it takes to tell an offset from noise."""
        return max(runs, len(NOISY) if self.trial.tolerance.unbiased and runs > 1 and not self.stateful else 1)

    def extend(self, drawn: list[list[Array]], expected: dict[str, list[list[Array]]], seed: int) -> None:
        """Add a run in which each size that the ONNX model leaves open is another, if LiteRT takes such sizes."""
        others = self._others()
        if not others or self.stateful:
            return
        (more,) = drawing.draw(self.entry, shapes={**self.shapes(), **others}, seed=seed)
        try:
            outputs = {kernels: self.trial.litert(kernels, [more]) for kernels in expected}
        except LiteRTError:
            return
        drawn.append(more)
        for kernels, run in outputs.items():
            expected[kernels] = [*expected[kernels], *run]

    def operators_apart(self) -> Apart | None:
        """Compares operator by operator, where the ONNX model has floats for the TFLite model's quantized integers."""
        if not without_quantization(self.session.proto, self.pairs.values, self.entry):
            return None
        return Apart(self.trial, self.session)

    def judged_apart(
        self, operators: Apart, compared: Iterable[tuple[Comparison, TensorValue]], runs: int
    ) -> Verification:
        """What comes of operators by themselves: every output, and the first tensor that is wrong."""
        outputs: dict[str, Comparison] = {}
        diverging = None
        for comparison, value in compared:
            tensor = self.entry.subgraph.tensors[value.tensor]
            if tensor in self.entry.outputs and (value.name not in outputs or not comparison.ok):
                outputs[value.name] = replace(comparison, name=value.name)
            if not comparison.ok and diverging is None:
                diverging = Divergence(tensor, operators.producers[tensor.index], value.name, comparison)
        wrong = () if diverging is None else (diverging.comparison,)
        note = (
            "without quantization values diverge along a network, so each operator was compared on LiteRT's own inputs"
        )
        kernels = (operators.original.kernels,)
        return Verification((*outputs.values(), *wrong), kernels, runs, diverging=diverging, notes=(note,))

    def weak(
        self, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]], comparisons: Sequence[Comparison]
    ) -> tuple[list[Comparison], list[str]]:
        """What is wrong behind outputs that hardly move, and which those are."""
        return Weak(self.search, self._alone).examine(runs, expected, comparisons)

    def _alone(self, tflite: bytes, onnx: ModelProto) -> Verification:
        """A part of both models, on inputs of its own."""
        examined = Examined(tflite, onnx, None, self.trial.tolerance, lambda stage: None)
        examined.fill(self.host or Host, partial=False)
        drawn, expected = examined.expected(None, 0, 3, None, {})
        comparisons = examined.trial.compared(examined.trial.actual(examined.session, drawn), expected)
        return Verification(comparisons, tuple(expected), len(drawn))

    def bisected(self, divergence: Divergence | None, runs: Sequence[Run], folder: Path) -> str:
        """Writes the smallest part that disagrees, and says where it is."""
        part = None
        if divergence is not None:
            part = smallest(self.search, divergence, runs, self._agrees)
        if part is None:
            return "no part of the model disagrees by itself"
        files = ", ".join(map(str, part.save(folder)))
        codes = ", ".join(operator.code for operator in part.operators[:3])
        more = f" and {len(part.operators) - 3} more" if len(part.operators) > 3 else ""
        return f"the smallest part that disagrees, {codes}{more}: {files}"

    def _agrees(self, tflite: bytes, onnx: ModelProto, given: Mapping[str, Array]) -> bool:
        return verify(tflite, onnx, inputs=[given], tolerance=self.trial.tolerance, host=self.host).ok

    def hints(self, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]]) -> tuple[str, ...]:
        """Whether it is the processor: x86 before VNNI saturates sums of uint8 x int8 products."""
        if multiplies_exactly():
            return ()
        try:
            actual = self.trial.actual(OnnxRuntime(self.onnx, config=_PRECISE), runs)
        except OrtError:
            return ()
        if not all(comparison.ok for comparison in self.trial.compared(actual, expected)):
            return ()
        reason = "this processor saturates its int8 products (with session.x64quantprecision=1 it passes)"
        return (f"{reason}: convert it with --weights-dtype auto or uint8",)

    def _others(self) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs with sizes that the ONNX model leaves open: by name of the size, one more than is stored."""
        sizes: dict[str, int] = {}
        shapes = {}
        for tensor, name, dims in self._dims():
            if len(dims) == tensor.rank and any(isinstance(size, str) for size in dims):
                for axis, (size, stored) in enumerate(zip(dims, tensor.shape, strict=True)):
                    if isinstance(size, str):
                        sizes.setdefault(size, max(stored, self.least if axis else 0) + 1)
                shapes[name] = tuple(sizes[size] if isinstance(size, str) else size for size in dims)
        return shapes

    def shapes(self, least: int | None = None) -> dict[str, tuple[int, ...]]:
        """The shapes of inputs that the ONNX model fixes otherwise than the TFLite file stores them; open sizes at ``least``."""
        least = self.least if least is None else least
        return {
            name: tuple(
                size if isinstance(size, int) else max(stored, least if axis else 0)
                for axis, (size, stored) in enumerate(zip(dims, tensor.shape, strict=True))
            )
            for tensor, name, dims in self._dims()
            if len(dims) == tensor.rank
        }

    def _dims(self) -> Iterator[tuple[Tensor, str, list[int | str]]]:
        """Each input with its name and its sizes in the ONNX model, in the file's order; an open one by its name."""
        for tensor, name, info in zip(self.entry.inputs, self.entry.input_names, self.pairs.inputs, strict=True):
            sizes: list[int | str] = [
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{name}:{axis}"
                for axis, dim in enumerate(info.type.tensor_type.shape.dim)
            ]
            if tensor.dtype.startswith("complex"):
                sizes = sizes[:-1]
            value = self.pairs.values.get(info.name)
            if value is not None and value.order is not None and len(value.order) == len(sizes):
                sizes = [sizes[k] for k in np.argsort(value.order)]
            yield tensor, name, sizes


def _codes(ops: Iterable[Operator]) -> str:
    """Operators by code with their number: ``CUSTOM.X (2)``."""
    return ", ".join(f"{code} ({count})" for code, count in Counter(op.code for op in ops).items())


def _repeated(runs: Sequence[Run]) -> bool:
    """Whether every run has the same inputs, as when the user gave them all or there are none."""
    return all(np.array_equal(one, other) for arrays in runs[1:] for one, other in zip(arrays, runs[0], strict=True))
