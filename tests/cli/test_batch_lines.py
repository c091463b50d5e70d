"""Lines about several models: refusals, problems and hints."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_tflite_plugin.cli import batch
from onnx_tflite_plugin.cli.failures import with_hints
from onnx_tflite_plugin.cli.jobs import Job
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, Problem


def test_refusal_counts_problems_and_lists_their_models() -> None:
    first, second = (Problem(f"CUSTOM.{name} v1 (op {k})", "no handler", "write one") for k, name in enumerate("AB"))
    job = Job("m.tflite", b"", Path("m.onnx"))
    for problems, row, expected in (
        ([first, second], "m.tflite: refused, 2 problems", (first, second)),
        ([first], "m.tflite: refused", (first,)),
        ([], "m.tflite: refused", (Problem("", "why"),)),
    ):
        outcome = batch._refused_outcome(job, ConversionError("why", problems))
        assert outcome.row == ("-", "-", "-", "-", "-", row)
        assert (outcome.problems, outcome.exit_code) == (expected, 1)
        assert (outcome.result["model"], outcome.result["error"]["message"]) == ("m.tflite", "why")


@pytest.mark.parametrize(
    ("where", "operator"), [("CUSTOM.A v1 (op 0, output 'y (z)')", "CUSTOM.A v1"), ("tensors[3].shape", ""), ("", "")]
)
def test_problem_of_several_models_has_no_location(where: str, operator: str) -> None:
    assert batch._operator_name(Problem(where, "")) == operator


def test_most_frequent_problems_come_first() -> None:
    rare, frequent = Problem("A v1", "why"), Problem("", "because", "do it")
    assert batch._error_lines({rare: [*"abcd"]}) == ["A v1: why", "  in a, b, c and 1 more"]
    assert batch._error_lines({rare: ["x", "x", "y", "z"], frequent: ["a", "b", "c", "d", "e"]}) == [
        "because",
        "  in a, b, c and 2 more",
        "  hint: do it",
        "A v1: why",
        "  in x, y, z",
    ]


def test_problem_in_a_file_has_its_place_in_the_first_model(capsys: pytest.CaptureFixture[str]) -> None:
    error = InvalidModel("cannot read it", [Problem("tensors[3].shape", "a size is negative")])
    jobs = [Job(name, b"", Path("m.onnx")) for name in ("a", "b")]
    for count, text in (
        (1, "  a size is negative\n    in a, at tensors[3].shape"),
        (2, "    in a, b, first at tensors[3]"),
    ):
        batch._print_problems(jobs[:count], [batch._refused_outcome(job, error) for job in jobs[:count]])
        assert text in capsys.readouterr().err


def test_problems_without_a_hint_keep_their_position() -> None:
    assert with_hints([("", ["b"]), ("h", ["c"]), ("", ["d"])]) == ["b", "c", "  hint: h", "d"]


def test_shared_hint_follows_its_last_problem() -> None:
    assert with_hints([("h", ["a"]), ("", ["b"]), ("h", ["c"]), ("", ["d"]), ("i", ["e"])]) == [
        "a", "c", "  hint to the 2 problems above: h", "b", "d", "e", "  hint: i",
    ]  # fmt: skip
