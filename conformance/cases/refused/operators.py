"""Operators that are refused in every model, each with a specific reason."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.models import Spec, constant, in_isolation, random_array, tensor

TEXT = tensor(1, dtype="string")


def cases() -> Iterator[Case]:
    rows = tensor(5, 3)
    hashes = constant(random_array(2, 3))
    yield refusal("LSH_PROJECTION", "hashes the bytes", [hashes, rows], tensor(2, dtype="int32"), type="SPARSE")
    yield refusal("SKIP_GRAM", "builds n-grams of strings", [TEXT], TEXT, ngram_size=2, max_skip_size=1)
    yield refusal("CONCAT_EMBEDDINGS", "never had a kernel", [rows], rows, num_channels=1)
    yield refusal("DELEGATE", "operators that a LiteRT delegate ran", [rows], rows)
    heatmaps, offsets = tensor(1, 5, 7, 17), tensor(1, 5, 7, 34)
    poses = tensor(1, 3, 17, 2)
    yield refusal("CUSTOM.PosenetDecoderOp", "code of Coral's library", [heatmaps, offsets], poses)


def refusal(code: str, reason: str, operands: list[Spec | None], result: Spec, **options: object) -> Case:
    return in_isolation(code, "always", operands, result, options=options or None, refusal=reason)
