"""A short run of the fuzzer with a fixed seed, and the fuzzer itself: what it takes for what."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from conformance.builder import ModelBuilder
from tests.qa.fuzz import campaign, structure
from tests.qa.fuzz.campaign import Tally, inputs, one, run
from tests.qa.fuzz.child import Child
from tests.qa.fuzz.minimise import minimised

SEED, COUNT, THOROUGH = 20, 300, 2000  # a thousand take 10 s of processor time
KNOWN: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as child:
        yield child


def added() -> ModelBuilder:
    model = ModelBuilder()
    x = model.main.input("x", (2, 3))
    model.main.operator("ADD", [x, x], [y := model.main.tensor("y", (2, 3))])
    model.main.output(y)
    return model


def large() -> bytes:
    model = ModelBuilder()
    x = model.main.input("x", (1,))
    state = model.main.tensor("v", (1 << 29,), variable=True)
    model.main.operator("ADD", [x, state], [y := model.main.tensor("y", (1 << 29,))])
    model.main.output(y)
    return model.build()


def test_no_mutated_model_is_a_bug(child: Child, thorough: bool) -> None:
    count = THOROUGH if thorough else COUNT
    tally = Tally()
    for made, outcome in run(SEED, child, count=count):
        tally.add(made, outcome)
    bugs = [f"{made.name}: {outcome.line}" for made, outcome in tally.first.values() if outcome.kind == "bug"]
    assert not bugs
    assert sum(tally.kinds.values()) == count
    assert tally.kinds["equal"] > count / 20
    assert tally.kinds["invalid"] > count / 10


def test_outcomes_are_told_apart(child: Child) -> None:
    data = added().build()
    assert child.tried(data).kind == "equal"
    assert child.tried(data[:40]).kind == "invalid"
    assert child.tried(large()).kind == "refused"


def test_a_process_that_ends_or_takes_too_long_is_a_bug_and_replaced() -> None:
    with Child(seconds=0.0) as impatient:
        outcome = impatient.tried(added().build())
        assert (outcome.kind, outcome.sort.partition(":")[0]) == ("bug", "over its time")
        impatient.seconds = 30.0
        assert impatient.tried(added().build()).kind == "equal"
        os.kill(impatient._serving, signal.SIGKILL)
        while Path(f"/proc/{impatient._serving}").exists():
            time.sleep(0.01)
        assert impatient.tried(added().build()).kind == "equal"


@pytest.mark.parametrize(("stage", "kind"), [("convert", "bug"), ("compare", "uncompared"), ("ask", "invalid")])
def test_a_process_that_dies_is_judged_by_what_it_did(stage: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Child() as child:
        told = cycle([stage, {"ended": -signal.SIGABRT}])
        monkeypatch.setattr(child, "_answer", lambda deadline, seconds: next(told))
        outcome = child.tried(added().build())
        assert (outcome.kind, outcome.text) == (kind, f"SIGABRT in {stage}")


def test_a_file_that_another_process_gets_over_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    with Child() as child:
        told = iter(["convert", {"ended": -signal.SIGABRT}, "convert", ["equal", "", "", "", 0.1]])
        monkeypatch.setattr(child, "_answer", lambda deadline, seconds: next(told))
        assert child.tried(added().build()).kind == "equal"


def test_an_input_follows_from_its_seed_and_number_alone() -> None:
    first = [made for made, _ in zip(inputs(SEED), range(12), strict=False)]
    assert len({made.data for made in first}) > 8
    again = one(SEED, int(first[3].name.split()[0].partition(":")[2]))
    assert again == first[3]
    assert all(made.data != made.original for made in first if made.name.endswith("structure")) or campaign.BYTES_SHARE


def test_every_mutation_changes_some_model() -> None:
    model = added()
    model.main.constant("c", np.arange(6, dtype=np.float32))
    before = model.build()
    tables = [structure.mutated(model.table(), seed) for seed in range(200)]
    assert sum(data is not None and data != before for data in tables) > 150


def test_what_is_not_needed_for_an_outcome_is_left_out() -> None:
    original = bytes(64)
    data = bytearray(original)
    data[20], data[50] = 7, 9
    small = minimised(bytes(data), original, lambda trial: trial[20] == 7)
    assert [at for at, byte in enumerate(small) if byte] == [20]
