"""One model in both runtimes, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..source.model import Array, Tensor
from . import apart, structure
from . import inputs as drawing
from .compare import Comparison, Tolerance
from .diverging import Divergence, Search, preserving, stateful
from .litert import LiteRTError
from .ort import OnnxRuntime, OrtError
from .processor import depends, multiplies_exactly, processor
from .trial import Pairs, Run, Trial

if TYPE_CHECKING:
    from onnx import ModelProto

_PRECISE = {"session.x64quantprecision": "1"}  # exact on x86 before VNNI, too
_DEPENDENT = (
    "its int8 weights are exact only where the processor adds uint8 x int8 products exactly; another may differ"
)


@dataclass(frozen=True, slots=True)
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

    @property
    def ok(self) -> bool:
        return all(comparison.ok for comparison in self.comparisons)

    @property
    def text(self) -> str:
        """One line on the whole, one an output, then where it parts and what may be the reason."""
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
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
    examined = _Examined(tflite, onnx, signature, tolerance)
    drawn, expected = examined.expected(inputs, seed, runs, shapes)
    if inputs is None and not shapes:
        examined.extend(drawn, expected, seed)
    if apart.without_quantization(examined.session.proto, examined.pairs.values, examined.entry):
        return examined.apart(drawn)
    actual = examined.trial.actual(examined.session, drawn)
    comparisons = examined.trial.compared(actual, expected)
    dependent = (_DEPENDENT,) if depends(examined.session.proto) else ()
    if all(comparison.ok for comparison in comparisons):
        return Verification(comparisons, tuple(expected), len(drawn), notes=dependent)
    search = Search(examined.trial, onnx, examined.session, fresh=examined.fresh)
    diverging, notes = search.divergence(drawn)
    notes = (*notes, *examined.hints(drawn, expected), *dependent)
    return Verification(comparisons, tuple(expected), len(drawn), diverging=diverging, notes=notes)


class _Examined:
    """The two models, their inputs and outputs paired, and the inputs of every run."""

    def __init__(
        self,
        tflite: bytes | Path,
        onnx: ModelProto | bytes | Path,
        signature: str | None,
        tolerance: Tolerance | float | None,
    ) -> None:
        data = tflite if isinstance(tflite, bytes) else tflite.read_bytes()
        model = structure.read(data)
        self.entry = structure.entry(model, signature)
        if tolerance is None:
            tolerance = Tolerance.of(model)
        if not isinstance(tolerance, Tolerance):
            tolerance = Tolerance(of_range=tolerance)
        self.trial = Trial(data, model, self.entry, tolerance, signature)
        self.onnx = onnx
        self.session = OnnxRuntime(onnx)
        self.pairs = Pairs(self.entry, self.session)
        self.fresh = not self.session.states and stateful(model)

    def expected(
        self, inputs: drawing.Given, seed: int, runs: int, shapes: Mapping[str, Sequence[int]] | None
    ) -> tuple[list[list[Array]], dict[str, list[list[Array]]]]:
        """Each run's inputs, and each kernel set's outputs; drawn inputs that every one of them refuses are drawn anew."""
        shapes = {**self._shapes(), **(shapes or {})}
        refusal: LiteRTError | None = None
        for caution in range(3):
            drawn = drawing.draw(self.entry, given=inputs, shapes=shapes, seed=seed, runs=max(runs, 1), caution=caution)
            if not self.session.states and _repeated(drawn):
                drawn = drawn[:1]
            try:
                return drawn, self.trial.expected(drawn, fresh=self.fresh)
            except LiteRTError as error:
                refusal = refusal or error
        hint = "" if inputs is not None else "; where the drawn inputs are the reason, give some"
        raise LiteRTError(f"{refusal}{hint}") from refusal

    def extend(self, drawn: list[list[Array]], expected: dict[str, list[list[Array]]], seed: int) -> None:
        """Add a run in which each size that the ONNX model leaves open is another, if LiteRT takes such sizes."""
        others = self._others()
        if not others or self.session.states:
            return
        (more,) = drawing.draw(self.entry, shapes={**self._shapes(), **others}, seed=seed)
        try:
            outputs = {kernels: self.trial.litert(kernels, [more]) for kernels in expected}
        except LiteRTError:
            return
        drawn.append(more)
        for kernels, run in outputs.items():
            expected[kernels] = [*expected[kernels], *run]

    def apart(self, runs: Sequence[Run]) -> Verification:
        """A model without quantization, each operator by itself: every output, and the first tensor that is wrong."""
        operators = apart.Apart(self.session.proto, self.session.tensor_values, self.entry)
        original = preserving(self.trial)[0]
        outputs: dict[str, Comparison] = {}
        diverging = None
        for arrays in runs:
            original.run(arrays)
            for comparison, value in operators.compared(self.pairs.feeds(arrays), original.tensors()):
                tensor = self.entry.subgraph.tensors[value.tensor]
                if tensor in self.entry.outputs and (value.name not in outputs or not comparison.ok):
                    outputs[value.name] = replace(comparison, name=value.name)
                if not comparison.ok and diverging is None:
                    diverging = Divergence(tensor, operators.producers[tensor.index], value.name, comparison)
        wrong = () if diverging is None else (diverging.comparison,)
        note = "without quantization the values of a network leave LiteRT's: each operator was given LiteRT's own"
        return Verification(
            (*outputs.values(), *wrong), (original.kernels,), len(runs), diverging=diverging, notes=(note,)
        )

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


def _repeated(runs: Sequence[Run]) -> bool:
    """Whether every run has the same inputs, as when the user gave them all or there are none."""
    return all(np.array_equal(one, other) for arrays in runs[1:] for one, other in zip(arrays, runs[0], strict=True))
