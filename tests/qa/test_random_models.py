"""ONNX Runtime agrees with LiteRT on random models.

``python -m tests.qa.random_models`` tests more models.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.case import Case
from conformance.registered import REGISTERED
from onnx_tflite_plugin.source import read
from tests.qa.random_models import families  # noqa: F401  registers the functions
from tests.qa.random_models.draw import CASE_GENERATORS, Draw
from tests.qa.random_models.networks import STEPS, build_model
from tests.qa.random_models.trial import Model, NetworkModel, Outcome, Tally, operators, outcomes

ROOT = Path(__file__).parents[2]
RANDOM_OPERATORS = {
    "MULTINOMIAL",
    "RANDOM_STANDARD_NORMAL",
    "RANDOM_UNIFORM",
}
"""Operators with the kernels' distribution but other numbers."""
TENSORFLOW_OPERATOR = re.compile(r"CUSTOM\.Flex\w+")


def test_random_models_cover_the_support_table() -> None:
    table = (ROOT / "docs/reference/operators.md").read_text()
    supported = set(re.findall(r"^\| ([A-Z][\w.]+) \|", table, re.MULTILINE))
    unknown_to_litert = {code for code in supported if TENSORFLOW_OPERATOR.fullmatch(code)}
    assert supported - set(operators()) - unknown_to_litert == RANDOM_OPERATORS
    assert set(operators()) <= supported


@pytest.mark.parametrize(
    ("options", "count", "min_share"), [([], 100, 4 / 5), (["--networks"], 30, 5 / 6)], ids=["operators", "networks"]
)
def test_random_models_agree_with_litert(options: list[str], count: int, min_share: float, thorough: bool) -> None:
    """``--thorough`` tests five times as many."""
    count *= 5 if thorough else 1
    command = [sys.executable, "-m", "tests.qa.random_models", *options, "--seed", "101", "--count", str(count)]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert not completed.returncode, completed.stdout
    assert int(re.findall(r"(\d+) equal", completed.stdout)[0]) > min_share * count


def test_random_networks_cover_all_kinds_and_steps() -> None:
    models = [read(build_model(2, number, {})[1]) for number in range(150)]
    codes = {op.code for model in models for op in model.main.operators}
    single = STEPS.keys() & REGISTERED.keys()
    assert len(codes & single) > 0.9 * len(single)
    dtypes = {tensor.dtype for model in models for tensor in model.main.tensors}
    assert dtypes >= {"float32", "int8", "uint8", "int16"}


def test_each_kind_of_network_is_converted_with_many_options() -> None:
    """The name of the kind does not determine the options."""
    labels = {NetworkModel(2, number).label()[1:] for number in range(300)}
    kinds = {kind for kind, _ in labels}
    assert kinds == {"float32", "dynamic", "half", "int8", "uint8", "int16"}
    assert all(len({options for name, options in labels if name == kind}) >= 4 for kind in kinds)


def test_random_model_depends_only_on_its_number() -> None:
    third, same, fourth = (Model(5, number, operators()).case()[0] for number in (3, 3, 4))
    assert third.build() == same.build() != fourth.build()


def test_crash_is_reported_and_the_next_model_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(draw: Draw, op: str) -> Case:
        case = CASE_GENERATORS["ABS"](draw, "ABS")
        return replace(case, build=lambda: os.kill(os.getpid(), signal.SIGKILL) or b"") if op == "KILLED" else case

    monkeypatch.setitem(CASE_GENERATORS, "KILLED", crash)
    models = [Model(1, 0, ("ABS",)), Model(1, 0, ("KILLED",)), Model(1, 0, ("ABS",))]
    reported = list(outcomes(models))
    assert [outcome.kind for outcome in reported] == ["equal", "not run", "equal"]
    assert reported[1].text == "LiteRT ended with -9"


def test_classes_of_differences_ignore_numbers() -> None:
    tally = Tally()
    models = [Model(1, number, ("ABS",)) for number in (0, 1)]
    texts = [f"y0: max {number}.5 LSB, {number} % of elements" for number in (3, 7)]
    kinds = {models[0].case()[0].dtype, models[1].case()[0].dtype}
    firsts = [tally.add(model, Outcome("different", text)) for model, text in zip(models, texts, strict=True)]
    assert firsts.count(True) == len(kinds)
    assert tally.kinds == {"different": 2}
