"""Result of a verification: verdict, comparisons, reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.renamed import VERIFICATION, renamed_attributes
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tensors import Divergence
from onnx_tflite_plugin.verify.runtimes.interpreter import describe_kernels
from onnx_tflite_plugin.verify.runtimes.processor import processor

Verdict = Literal["agrees", "differs", "inconclusive"]
CAUSE = "likely cause: "
"""Beginning of a note that explains why the models differ."""
NOT_COMPARED = "operators were not compared"
"""Beginning of a note or a reason if only the outputs were compared, end to end."""
OTHER_SIZES = "with other sizes of dynamic dimensions"
"""Words of the note on a run in which dynamic dimensions have other sizes."""


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """Verdict on a conversion, with the comparisons that it is based on.

    ``comparisons``: one per output, in the order of the model. ``kernels``: the kernel sets of LiteRT that ran.
    ``processor``: the processor that both runtimes ran on. ``only_tolerance``: the models differ only because of the user's
    tolerance. ``diverging``: the first tensor that differs. ``operators``: number of operators that were compared with
    LiteRT's values as inputs. ``pack_kernel_operators``: number of compared operators whose expected results are from
    reference kernels of packs. ``reasons``: reasons why the verdict is inconclusive although nothing differs. ``partial``:
    an inconclusive verdict counts as ok. ``end_to_end``: lines about outputs that exceed their tolerance although every
    operator agrees; ``end_to_end_error``: the largest of these errors, such as `` by up to 3 quantization steps``.
    ``tensors``: the comparison of each tensor with LiteRT's values as inputs, in execution order.
    """

    comparisons: tuple[Comparison, ...]
    kernels: tuple[str, ...]
    runs: int
    processor: str = field(default_factory=processor)
    diverging: Divergence | None = None
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    partial: bool = False
    operators: int = 0
    pack_kernel_operators: int = 0
    end_to_end: tuple[str, ...] = ()
    tensors: tuple[tuple[TensorValue, Comparison], ...] = ()
    end_to_end_error: str = ""
    only_tolerance: bool = False

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(VERIFICATION)

    def __repr__(self) -> str:
        verdict, first_output, *outputs = [line.strip() for line in self.text.splitlines()][: 1 + len(self.comparisons)]
        suffix = f"; and {len(outputs)} more outputs" if outputs else ""
        return f"<Verification: {verdict}; {first_output}{suffix}>"

    def __str__(self) -> str:
        return self.text

    @property
    def verdict(self) -> Verdict:
        """Return ``differs`` if a comparison fails, ``inconclusive`` if there is a reason.

        Otherwise return ``agrees``.
        """
        if not all(comparison.ok for comparison in self.comparisons):
            return "differs"
        return "inconclusive" if self.reasons else "agrees"

    @property
    def ok(self) -> bool:
        """True if the verdict is ``agrees``, or is inconclusive and accepted."""
        return self.verdict == "agrees" or (self.partial and self.verdict == "inconclusive")

    @property
    def has_known_cause(self) -> bool:
        """True if a note names the cause of a difference."""
        return any(note.startswith(CAUSE) for note in self.notes)

    @property
    def text(self) -> str:
        """Return lines with the verdict, the outputs, the first wrong tensor and notes."""
        lines = [self._headline()]
        diverging = self.diverging.comparison if self.diverging else None  # has a line of its own
        lines += [
            f"  {'ok    ' if output.ok else 'FAILED'} {output.name!r}: {output.text}"
            for output in self.comparisons
            if output is not diverging
        ]
        if self.diverging:
            lines.append(f"  first tensor that differs when each operator gets LiteRT's values: {self.diverging.text}")
        notes = [*self.end_to_end, *self.reasons[1:], *self.notes]
        return "\n".join([*lines, *(f"  {note}" for note in notes)])

    def _headline(self) -> str:
        if self.verdict == "inconclusive":
            return f"inconclusive: {self.reasons[0]}"
        runs = plural(self.runs, "run")
        if any(note.startswith(f"run {self.runs} {OTHER_SIZES}") for note in self.notes):
            runs += ", the last one with other sizes"
        litert = f"LiteRT ({describe_kernels(self.kernels)})"
        if self.verdict == "differs":
            return f"NOT within tolerance of {litert}, {runs}, on {self.processor}"
        outputs = self._describe_outputs()
        if not self.operators:
            suffix = f"; {NOT_COMPARED}" if any(note.startswith(NOT_COMPARED) for note in self.notes) else ""
            return f"{outputs or 'outputs within tolerance'}, compared with {litert}, {runs}{suffix}"
        operators = f"{self._describe_operators(litert)}, {runs}"
        if self.end_to_end_error:
            return f"{operators}; outputs differ{self.end_to_end_error}"
        return f"{outputs}; {operators}" if outputs else operators

    def _describe_operators(self, litert: str) -> str:
        """Return the number of compared operators, and what they agree with."""
        agree = (
            "the compared operator agrees" if self.operators == 1 else f"all {self.operators} compared operators agree"
        )
        packs = "the reference kernels of their handlers"
        in_litert = self.operators - self.pack_kernel_operators
        if in_litert <= 0:
            return f"{agree} with {packs}"
        if not self.pack_kernel_operators:
            return f"{agree} with {litert}"
        return f"{agree}: {in_litert} with {litert}, {self.pack_kernel_operators} with {packs}"

    def _describe_outputs(self) -> str:
        """Return the largest end-to-end error of the outputs in each unit, as text.

        Return an empty text if a comparison of an output concerns only its operator.
        """
        if not self.comparisons or any(output.end_to_end for output in self.comparisons):
            return ""
        worst_by_unit: dict[str, Comparison] = {}
        for output in sorted(self.comparisons, key=lambda output: output.max_error):
            if output.max_error:
                worst_by_unit[output.unit] = output
        errors = [output.in_unit(output.max_error, "their range") for output in worst_by_unit.values()]
        return f"outputs within {' and '.join(errors)}" if errors else "outputs equal"


def merge_verifications(by_signature: Mapping[str, Verification]) -> Verification:
    """Return the verdict on a joined model from the verdicts on its signatures.

    ``by_signature``: signature key -> verification.
    """

    def prefix_texts(texts_of: Callable[[Verification], tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(f"{key}: {text}" for key, item in by_signature.items() for text in texts_of(item))

    verifications = [*by_signature.values()]
    return replace(
        verifications[0],
        comparisons=tuple(
            replace(comparison, name=f"{key} {comparison.name}")
            for key, verification in by_signature.items()
            for comparison in verification.comparisons
        ),
        kernels=tuple(dict.fromkeys(name for verification in verifications for name in verification.kernels)),
        runs=sum(verification.runs for verification in verifications),
        diverging=next((item.diverging for item in verifications if item.diverging is not None), None),
        notes=prefix_texts(lambda verification: verification.notes),
        reasons=prefix_texts(lambda verification: verification.reasons),
        operators=sum(verification.operators for verification in verifications),
        pack_kernel_operators=sum(verification.pack_kernel_operators for verification in verifications),
        end_to_end_error=next((item.end_to_end_error for item in verifications if item.end_to_end_error), ""),
        only_tolerance=all(item.only_tolerance for item in verifications if item.verdict == "differs"),
        end_to_end=prefix_texts(lambda verification: verification.end_to_end),
        tensors=tuple(pair for verification in verifications for pair in verification.tensors),
    )
