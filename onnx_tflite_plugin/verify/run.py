"""One model in both runtimes, side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import VerificationError
from ..source.model import Array, Model, Operator, Tensor
from . import apart, structure
from . import inputs as drawing
from .compare import Comparison, Tolerance, as_pairs, compare, inherited_step
from .litert import LiteRT, LiteRTError
from .ort import OnnxRuntime, OrtError, Place
from .processor import depends, multiplies_exactly, processor
from .real import as_real, as_stored, is_real

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

_SLOW = 1.0  # seconds a step: beyond it the reference kernels, some 50 times slower, are not asked
_PRECISE = {"session.x64quantprecision": "1"}  # exact on x86 before VNNI, too
_DEPENDENT = (
    "its int8 weights are exact only where the processor adds uint8 x int8 products exactly; another may differ"
)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first tensor, in execution order, that leaves its band: where to look."""

    tensor: Tensor
    operator: Operator
    value: str
    comparison: Comparison

    @property
    def text(self) -> str:
        where = f"operator {self.operator.index} {self.operator.code}"
        return f"tensor {self.tensor} of {where} (ONNX value {self.value!r}): {self.comparison.text}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What came out: ``comparisons`` in the order of the model's outputs, ``kernels`` the kernel sets compared with,
    ``processor`` what both ran on.
    """

    comparisons: tuple[Comparison, ...]
    kernels: tuple[str, ...]
    steps: int
    processor: str = field(default_factory=processor)
    diverging: Divergence | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(comparison.ok for comparison in self.comparisons)

    @property
    def text(self) -> str:
        """One line on the whole, one an output, then where it parts and what may be the reason."""
        runs = "1 run" if self.steps == 1 else f"{self.steps} runs"
        verdict = "within" if self.ok else "NOT within"
        lines = [f"{verdict} the band of LiteRT's {' and '.join(self.kernels)} kernels, {runs}, on {self.processor}"]
        lines += [f"  {'ok    ' if one.ok else 'FAILED'} {one.name}: {one.text}" for one in self.comparisons]
        if self.diverging:
            lines.append(f"  first outside its band: {self.diverging.text}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def verify(
    tflite: bytes | Path,
    onnx: ModelProto | bytes | Path,
    *,
    inputs: drawing.Given = None,
    seed: int = 0,
    runs: int = 3,
    tolerance: Tolerance | float | None = None,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Verification:
    """Run both models on the same inputs and compare every output.

    ``inputs`` are arrays by name, a list of such mappings (one a run) or an .npy or .npz file; what they leave out is
    drawn from ``seed``. ``runs`` successive invocations share one session a runtime, so that states are carried as
    they would be; loading costs far more than two more runs. One more run has other sizes where the ONNX model leaves
    some open, LiteRT takes them, and neither ``inputs`` nor ``shapes`` sets them. ``tolerance`` is a share of the range for float
    outputs, or a whole ``Tolerance``; the default follows from the model. ``shapes`` sets dynamic sizes by input name.
    On failure the first tensor that leaves its band is looked for.
    """
    case = _Case(tflite, onnx, signature, tolerance)
    steps, expected = case.expected(inputs, seed, runs, shapes)
    if inputs is None and not shapes:
        case.extend(steps, expected, seed)
    if apart.in_real_numbers(case.session.proto, case.places, case.entry):
        return case.apart(steps)
    actual = [case.onnx_step(case.session, arrays) for arrays in steps]
    comparisons = case.compared(actual, expected)
    dependent = (_DEPENDENT,) if depends(case.session.proto) else ()
    if all(comparison.ok for comparison in comparisons):
        return Verification(comparisons, tuple(expected), len(steps), notes=dependent)
    diverging, notes = case.diverging(steps)
    notes = (*notes, *case.hints(steps, expected), *dependent)
    return Verification(comparisons, tuple(expected), len(steps), diverging=diverging, notes=notes)


class _Case:
    """The two models with their inputs and outputs paired."""

    def __init__(
        self,
        tflite: bytes | Path,
        onnx: ModelProto | bytes | Path,
        signature: str | None,
        tolerance: Tolerance | float | None,
    ) -> None:
        self.data = tflite if isinstance(tflite, bytes) else tflite.read_bytes()
        self.model = structure.read(self.data)
        self.entry = structure.entry(self.model, signature)
        self.signature = signature
        if tolerance is None:
            tolerance = Tolerance.of(self.model)
        self.tolerance = tolerance if isinstance(tolerance, Tolerance) else Tolerance(real=tolerance)
        self.onnx = onnx
        self.session = OnnxRuntime(onnx)
        self.places = {place.value: place for place in self.session.places}
        self.inputs = paired("input", self.entry.input_names, self.session.inputs)
        self.outputs = paired("output", self.entry.output_names, self.session.outputs)
        self.producers = structure.producers(self.entry.subgraph)

    def expected(
        self, inputs: drawing.Given, seed: int, runs: int, shapes: Mapping[str, Sequence[int]] | None
    ) -> tuple[list[list[Array]], dict[str, list[list[Array]]]]:
        """Each run's inputs, and each kernel set's outputs: XNNPACK and builtin, or reference where neither runs."""
        shapes = {**self._shapes(), **(shapes or {})}
        refusals = []
        for caution in range(3):
            steps = drawing.draw(
                self.entry, given=inputs, shapes=shapes, seed=seed, steps=max(runs, 1), caution=caution
            )
            if not self.session.states and _repeated(steps):
                steps = steps[:1]
            found: dict[str, list[list[Array]]] = {}
            failures = []
            for kernels in ("xnnpack", "builtin", "reference"):
                if kernels == "reference" and found:
                    break
                try:
                    found[kernels] = self.litert(kernels, steps)
                except LiteRTError as error:
                    failures.append(str(error))
            if found:
                return steps, found
            refusals.append(failures)
        hint = "" if inputs is not None else "; where the drawn inputs are the reason, give some"
        raise LiteRTError("\n".join(dict.fromkeys(refusals[0])) + hint)

    def extend(self, steps: list[list[Array]], expected: dict[str, list[list[Array]]], seed: int) -> None:
        """Add a run in which each size that the ONNX model leaves open is another, if LiteRT takes such sizes."""
        others = self._others()
        if not others or self.session.states:
            return
        (more,) = drawing.draw(self.entry, shapes={**self._shapes(), **others}, seed=seed)
        try:
            found = {kernels: self.litert(kernels, [more]) for kernels in expected}
        except LiteRTError:
            return
        steps.append(more)
        for kernels, outputs in found.items():
            expected[kernels] = [*expected[kernels], *outputs]

    def litert(self, kernels: str, steps: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """The outputs of each run; a model converted without its states starts afresh each time."""
        outputs = []
        session = None
        for arrays in steps:
            if session is None or (not self.session.states and _stateful(self.model)):
                session = LiteRT(self.data, kernels, signature=self.signature, known=self.model)
            outputs.append(session.step(arrays))
        return outputs

    def feeds(self, arrays: Sequence[Array]) -> dict[str, Array]:
        """A run's inputs as the ONNX model takes them, by name."""
        feeds = {}
        for array, info, tensor in zip(arrays, self.inputs, self.entry.inputs, strict=True):
            place = self.places.get(info.name)
            value = as_pairs(array) if array.dtype.kind == "c" else array
            if is_real(info):
                value = as_real(tensor, value)
            feeds[info.name] = place.apply(value) if place is not None else value
        return feeds

    def onnx_step(self, session: OnnxRuntime, arrays: Sequence[Array]) -> list[Array]:
        """One run in ONNX Runtime, from and to arrays as the TFLite model has them."""
        feeds = self.feeds(arrays)
        found = dict(zip((info.name for info in session.outputs), session.step(feeds), strict=True))
        results = []
        for info, tensor in zip(self.outputs, self.entry.outputs, strict=True):
            array, place = found[info.name], self.places.get(info.name)
            restored = place.restore(array, _dtype(tensor, array)) if place is not None else array
            results.append(as_stored(tensor, array if restored is None else restored))
        return results

    def compared(
        self, actual: Sequence[Sequence[Array]], expected: Mapping[str, Sequence[Sequence[Array]]]
    ) -> tuple[Comparison, ...]:
        """One comparison an output, over all runs."""
        return tuple(
            compare(
                name,
                [arrays[k] for arrays in actual],
                {kernels: [arrays[k] for arrays in runs] for kernels, runs in expected.items()},
                self.tolerance,
                step=inherited_step(tensor, self.producers, self.tolerance),
            )
            for k, (tensor, name) in enumerate(zip(self.entry.outputs, self.entry.output_names, strict=True))
        )

    def apart(self, steps: Sequence[Sequence[Array]]) -> Verification:
        """A model without quantization, each operator by itself: every output, and the first tensor that is wrong."""
        trial = apart.Apart(self.session.proto, self.session.places, self.entry)
        kernels = _preserving(self.data, self.model, self.signature)[0]
        outputs: dict[str, Comparison] = {}
        diverging = None
        for arrays in steps:
            kernels.step(arrays)
            for comparison, place in trial.compared(self.feeds(arrays), kernels.tensors()):
                tensor = self.entry.subgraph.tensors[place.tensor]
                if tensor in self.entry.outputs and (place.value not in outputs or not comparison.ok):
                    outputs[place.value] = replace(comparison, name=place.value)
                if not comparison.ok and diverging is None:
                    diverging = Divergence(tensor, self.producers[tensor.index], place.value, comparison)
        wrong = () if diverging is None else (diverging.comparison,)
        note = "without quantization the values of a network leave LiteRT's: each operator was given LiteRT's own"
        return Verification(
            (*outputs.values(), *wrong), (kernels.kernels,), len(steps), diverging=diverging, notes=(note,)
        )

    def diverging(self, steps: Sequence[Sequence[Array]]) -> tuple[Divergence | None, tuple[str, ...]]:
        """The first tensor outside its band, in the first run that has one; and what is to say where there is none."""
        held: dict[int, list[Place]] = {}
        for place in self.session.places:
            if self._holds(place):
                held.setdefault(place.tensor, []).append(place)
        if not held:
            return None, ("the ONNX model does not say which tensors its values hold: no tensor to point at",)
        try:
            return self._scan(steps, held)
        except (LiteRTError, OrtError) as error:
            return None, (f"the first tensor outside its band cannot be found: {error}",)

    def _holds(self, place: Place) -> bool:
        """Whether a value holds what LiteRT's tensor holds: the stored integers, or real numbers on both sides."""
        graph = self.entry.subgraph
        if place.subgraph != graph.index or not 0 <= place.tensor < len(graph.tensors):
            return False
        return place.form == "stored" or graph.tensors[place.tensor].quantization is None

    def _scan(
        self, steps: Sequence[Sequence[Array]], held: Mapping[int, Sequence[Place]]
    ) -> tuple[Divergence | None, tuple[str, ...]]:
        session = OnnxRuntime(self.onnx, keep=[place.value for places in held.values() for place in places])
        originals = _preserving(self.data, self.model, self.signature)
        fresh = not self.session.states and _stateful(self.model)
        for arrays in steps:
            if fresh:
                originals = _preserving(self.data, self.model, self.signature)
            self.onnx_step(session, arrays)
            expected = {}
            for original in list(originals):
                start = time.perf_counter()
                original.step(arrays)
                expected[original.kernels] = original.tensors()
                if time.perf_counter() - start > _SLOW:
                    originals = originals[:1]
                    break
            for comparison, place in self._tensors(session.values(), expected, held):
                if not comparison.ok:
                    tensor = self.entry.subgraph.tensors[place.tensor]
                    return Divergence(tensor, self.producers[tensor.index], place.value, comparison), ()
        return None, ("with every tensor kept none leaves its band: a fusion of ONNX Runtime makes the difference",)

    def _tensors(
        self,
        values: Mapping[str, Array],
        expected: Mapping[str, Mapping[int, Array]],
        held: Mapping[int, Sequence[Place]],
    ) -> Iterator[tuple[Comparison, Place]]:
        """The comparisons of what both runtimes kept, in execution order."""
        for operator in self.entry.subgraph.operators:
            for tensor in operator.outputs:
                if tensor is None:
                    continue
                known = {kernels: [kept[tensor.index]] for kernels, kept in expected.items() if tensor.index in kept}
                for place in held.get(tensor.index, ()):
                    if not known or place.value not in values:
                        continue
                    array = values[place.value]
                    restored = place.restore(array, _dtype(tensor, array))
                    if restored is not None:
                        restored = as_stored(tensor, restored)
                    if restored is None or restored.ndim != next(iter(known.values()))[0].ndim:
                        continue
                    step = inherited_step(tensor, self.producers, self.tolerance)
                    yield compare(str(tensor), [restored], known, self.tolerance, step=step), place

    def hints(
        self, steps: Sequence[Sequence[Array]], expected: Mapping[str, Sequence[Sequence[Array]]]
    ) -> tuple[str, ...]:
        """Whether it is the processor: x86 before VNNI saturates sums of uint8 x int8 products."""
        if multiplies_exactly():
            return ()
        try:
            session = OnnxRuntime(self.onnx, config=_PRECISE)
            comparisons = self.compared([self.onnx_step(session, arrays) for arrays in steps], expected)
        except OrtError:
            return ()
        if not all(comparison.ok for comparison in comparisons):
            return ()
        reason = "this processor saturates its int8 products (with session.x64quantprecision=1 it passes)"
        return (f"{reason}: convert it with --weights-dtype auto or uint8",)

    def _others(self) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs with sizes that the ONNX model leaves open: by name of the size, one more than is stored."""
        sizes: dict[str, int] = {}
        shapes = {}
        for tensor, name, dims in self._dims():
            if len(dims) == tensor.rank and any(isinstance(size, str) for size in dims):
                for size, stored in zip(dims, tensor.shape, strict=True):
                    if isinstance(size, str):
                        sizes.setdefault(size, stored + 1)
                shapes[name] = tuple(sizes[size] if isinstance(size, str) else size for size in dims)
        return shapes

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of inputs that the ONNX model fixes otherwise than the TFLite file stores them."""
        return {
            name: tuple(
                stored if isinstance(size, str) else size for size, stored in zip(dims, tensor.shape, strict=True)
            )
            for tensor, name, dims in self._dims()
            if len(dims) == tensor.rank
        }

    def _dims(self) -> Iterator[tuple[Tensor, str, list[int | str]]]:
        """Each input with its name and its sizes in the ONNX model, in the file's order; an open one by its name."""
        for tensor, name, info in zip(self.entry.inputs, self.entry.input_names, self.inputs, strict=True):
            sizes: list[int | str] = [
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{name}:{axis}"
                for axis, dim in enumerate(info.type.tensor_type.shape.dim)
            ]
            if tensor.dtype.startswith("complex"):
                sizes = sizes[:-1]
            place = self.places.get(info.name)
            if place is not None and place.order is not None and len(place.order) == len(sizes):
                sizes = [sizes[k] for k in np.argsort(place.order)]
            yield tensor, name, sizes


def _preserving(data: bytes, model: Model, signature: str | None) -> list[LiteRT]:
    """Interpreters that keep every tensor: builtin and reference kernels, or whichever of them loads."""
    sessions, failures = [], []
    for kernels in ("builtin", "reference"):
        try:
            sessions.append(LiteRT(data, kernels, signature=signature, preserve=True, known=model))
        except LiteRTError as error:
            failures.append(error)
    if not sessions:
        raise failures[0]
    return sessions


def paired(side: str, names: Sequence[str], infos: Sequence[ValueInfoProto]) -> list[ValueInfoProto]:
    """The ONNX model's inputs or outputs in the TFLite model's order: by name where all agree, else by position."""
    if len(names) != len(infos):
        listed = ", ".join(info.name for info in infos)
        raise VerificationError(
            f"the TFLite model has {len(names)} {side}s ({', '.join(names)}), the ONNX model {len(infos)} ({listed})"
        )
    by_name = {info.name: info for info in infos}
    return [by_name[name] for name in names] if set(by_name) == set(names) else list(infos)


def _stateful(model: Model) -> bool:
    return any(
        tensor.is_variable or tensor.dtype == "resource" for graph in model.subgraphs for tensor in graph.tensors
    )


def _repeated(steps: Sequence[Sequence[Array]]) -> bool:
    """Whether every run has the same inputs, as when the user gave them all or there are none."""
    return all(np.array_equal(one, other) for arrays in steps[1:] for one, other in zip(arrays, steps[0], strict=True))


def _dtype(tensor: Tensor, array: Array) -> np.dtype[np.generic]:
    """The dtype a shifted value is restored to: the tensor's."""
    return np.dtype(tensor.dtype) if tensor.dtype in ("int8", "uint8", "int16", "uint16") else array.dtype
