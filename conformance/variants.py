"""Select the variants in which a case is converted: all, or a sample.

A variant is a target, an opset, a layout plan and the layout of graph inputs and outputs. Not all combinations are
tried, because these four hardly interact. Each further opset is combined with one target. So are transposed graph inputs
and outputs, and the local plan (if it differs from the least-cost plan). Every second case tries its second target only
with transposed graph inputs and outputs.

The ``conformance`` command runs each case in all of these variants. The test suite runs all variants only for the first
case of each kind (operator, dtype, targets and opsets). Another case runs in its first variant; each other variant runs
for every sixth case, because an error of an opset, target or layout shows in many cases. ``pytest --thorough`` runs all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from conformance.case import Case
from onnx_tflite_plugin.verify.runtimes.structure import Entry


class Variant(NamedTuple):
    """One conversion of a case.

    ``plan``: "least", "local", or "channels-first" for transposed graph inputs and outputs.
    """

    target: str
    opset: int | None
    plan: str

    @property
    def text(self) -> str:
        return f"{self.target}{f' opset {self.opset}' if self.opset else ''} {self.plan}"


def variants_of(case: Case, *, can_transpose: bool = True) -> Iterator[Variant]:
    """Yield all variants of a case.

    The runner skips the local plan if the least-cost plan is the same. ``can_transpose``: True if the case has graph
    inputs or outputs that can be transposed. If the second target is the one that transposes them, it has no other variant,
    unless the case must be refused or requires nodes or fusions.
    """
    targets, seed = case.targets, crc32(case.id.encode())
    transposed_target, local_target = targets[seed % len(targets)], targets[(seed + 1) % len(targets)]
    transposed_only = (
        can_transpose and transposed_target != targets[0] and not (case.refusal or case.nodes or case.fusions)
    )
    for k, opset in enumerate(case.opsets):
        for target in targets if k == 0 else (targets[(seed + k) % len(targets)],):
            if not (transposed_only and k == 0 and target == transposed_target):
                yield Variant(target, opset, "least")
    yield Variant(local_target, case.opsets[0], "local")
    yield Variant(transposed_target, case.opsets[0], "channels-first")


SAMPLE_INTERVAL = 6  # each variant except the first runs for one in this number of cases of a kind


def number_cases(cases: Iterable[Case]) -> Iterator[tuple[Case, int]]:
    """Yield each case with its number, from 0, among the cases of its kind.

    Cases of one kind have the same operator, dtype, targets and opsets.
    """
    seen: Counter[tuple[object, ...]] = Counter()
    for case in cases:
        kind = case.op, case.dtype, tuple(case.targets), tuple(case.opsets)
        yield case, seen[kind]
        seen[kind] += 1


def select_variants(case: Case, position: int, variants: Sequence[Variant]) -> Sequence[Variant]:
    """Return the variants for a case that has number ``position`` of its kind.

    If the case requires nodes or fusions, all variants with the least-cost plan are included, because only they are
    checked for nodes and fusions.
    """
    if position == 0 or case.known_failure or case.refusal:
        return variants
    has_requirements = case.nodes or case.fusions
    first, *others = variants
    return [
        first,
        *(
            variant
            for k, variant in enumerate(others, position)
            if k % SAMPLE_INTERVAL == 0 or (has_requirements and variant.plan == "least")
        ),
    ]


def channels_first(signature: Entry) -> dict[str, str]:
    """Return options of ``--layout`` for graph inputs and outputs of rank 3 or more.

    Each option moves the last axis to position 1. Complex tensors are omitted, because the axis of their real and
    imaginary parts exists only in the ONNX model.
    """
    layouts = {}
    for tensor, name in (
        *zip(signature.inputs, signature.input_names, strict=True),
        *zip(signature.outputs, signature.output_names, strict=True),
    ):
        if tensor.rank >= 3 and not tensor.dtype.startswith("complex"):
            axes = "nabcdefg"[: tensor.rank - 1] + "z"
            layouts[name] = f"{axes}:{axes[0]}z{axes[1:-1]}"
    return layouts
