"""Random inputs from one seed: input ``k`` of a seed is the same in every run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tests.qa.fuzz import raw, structure
from tests.qa.fuzz.child import Child
from tests.qa.fuzz.minimise import minimise
from tests.qa.fuzz.outcome import Kind, Outcome
from tests.qa.fuzz.seeds import cases, ids, seed_model

RAW_INTERVAL = 4  # one in this many inputs has mutated bytes instead of mutated tables
INPUTS_PER_MODEL = 8  # consecutive inputs from one model, because building takes longer than mutating
UNEXPECTED: tuple[Kind, ...] = ("bug", "different")


class Input(NamedTuple):
    """A mutated file.

    ``name`` identifies seed and number; ``original`` is the file before its mutation.
    """

    name: str
    data: bytes
    original: bytes


@dataclass
class Tally:
    """Counts per outcome, and the first file of each unexpected outcome."""

    kinds: Counter[Kind] = field(default_factory=Counter)
    keys: Counter[tuple[str, ...]] = field(default_factory=Counter)
    first: dict[tuple[str, ...], tuple[Input, Outcome]] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, mutated: Input, outcome: Outcome) -> bool:
        """Add an outcome; return True if it is the first unexpected one of its key."""
        self.kinds[outcome.kind] += 1
        self.keys[outcome.key] += 1
        if outcome.kind not in UNEXPECTED or outcome.key in self.first:
            return False
        self.first[outcome.key] = mutated, outcome
        return True


def inputs(seed: int, start: int = 0) -> Iterator[Input]:
    """Yield the inputs of a seed, without end."""
    number = start
    while True:
        mutated = make_input(seed, number)
        if mutated is not None:
            yield mutated
        number += 1


def make_input(seed: int, number: int) -> Input | None:
    """Return input ``number`` of a seed.

    It is ``None`` if there is no seed model for its case, or if the mutated tables cannot be written to a file.
    """
    draw = structure.Draw(f"{seed}:{number}")
    case = _case(seed, number // INPUTS_PER_MODEL)
    model = seed_model(case)
    if model is None:
        return None
    name = f"{seed}:{number} {cases()[case].id}"
    if draw.randrange(RAW_INTERVAL) == 0:
        return Input(f"{name} raw", raw.mutate(model.data, draw.randrange(2**32)), model.data)
    data = structure.mutate(model.table, draw.randrange(2**32))
    return None if data is None else Input(f"{name} structure", data, model.data)


@lru_cache(maxsize=1)
def _case(seed: int, number: int) -> int:
    """Return the index of the case with the smallest hash; so a new case changes few inputs."""
    prefix, encoded_ids = crc32(f"{seed}:{number}:".encode()), ids()
    return min(range(len(encoded_ids)), key=lambda k: crc32(encoded_ids[k], prefix))


def run(
    seed: int, child: Child, *, count: int | None = None, seconds: float | None = None, start: int = 0
) -> Iterator[tuple[Input, Outcome]]:
    """Yield each input and its outcome, up to a number of inputs or a time."""
    started_at = time.monotonic()
    for tested_count, mutated in enumerate(inputs(seed, start)):
        if (count is not None and tested_count >= count) or (
            seconds is not None and time.monotonic() - started_at > seconds
        ):
            return
        yield mutated, classify(mutated, child)


def classify(mutated: Input, child: Child) -> Outcome:
    """Return the outcome of an input.

    If the runtimes already differ on the original model, for example because a random divisor is 0, a difference on the
    mutated model proves nothing.
    """
    outcome = child.try_file(mutated.data)
    if outcome.kind != "different":
        return outcome
    original = child.try_file(mutated.original)
    is_same = (original.kind, original.sort, original.where) == (outcome.kind, outcome.sort, outcome.where)
    return replace(outcome, kind="uncompared", sort="as its original") if is_same else outcome


def keep_file(folder: Path, mutated: Input, outcome: Outcome, child: Child, *, seconds: float = 30.0) -> Path:
    """Write a minimized file with an unexpected outcome."""

    def same(data: bytes) -> bool:
        return child.try_file(data).key == outcome.key

    small = minimise(mutated.data, mutated.original, same, seconds) if outcome.seconds < seconds / 10 else mutated.data
    folder.mkdir(parents=True, exist_ok=True)
    words = "_".join((outcome.kind, outcome.sort, outcome.where, mutated.name))
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in words)[:150]
    path = folder / f"{name}.tflite"
    path.write_bytes(small)
    path.with_suffix(".txt").write_text(f"{mutated.name}\n{outcome.line}\n")
    return path
