"""Failures of commands: grouped problems, exit codes and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from onnx_tflite_plugin.cli import failures
from onnx_tflite_plugin.cli.failures import Commands, UsageProblem, set_failure_output
from onnx_tflite_plugin.errors import ConversionError, MissingExtra, Problem, VerificationError
from tests.helpers.command import Run

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


def group_problems(*problems: Problem) -> list[str]:
    return failures._group_problems(ConversionError("why", problems))


def test_problems_that_differ_only_in_names_are_grouped() -> None:
    assert group_problems(
        Problem("op 1", "tensor 'a' is 3 wide", "do it"),
        Problem("op 2", "tensor 'b c' is 17 wide", "do it"),
        Problem("op 3", "tensor 'a' is 3 wide", "do another"),
        Problem("op 4", "tensor 'a' is 3 high", "do it"),
    ) == [
        "op 1: tensor 'a' is 3 wide",
        "  and in 1 more places (--json lists them)",
        "op 4: tensor 'a' is 3 high",
        "  hint to the 2 problems above: do it",
        "op 3: tensor 'a' is 3 wide",
        "  hint: do another",
    ]


def test_at_most_twenty_kinds_of_problems_are_shown() -> None:
    problems = [Problem("op", f"why {chr(ord('a') + k)}") for k in range(21)]
    assert group_problems(*problems[:20]) == [f"op: why {chr(ord('a') + k)}" for k in range(20)]
    *lines, last = group_problems(*problems, problems[0])
    assert len(lines) == 21
    assert lines[1] == "  and in 1 more places (--json lists them)"
    assert last == "… and 1 more kinds of problems (22 problems in all; --json lists them)"


def test_only_long_names_are_shortened() -> None:
    assert failures.shorten_names(f"'{'n' * 60}' and {'w' * 60}") == f"'{'n' * 23}…{'n' * 24}' and {'w' * 60}"
    assert failures.shorten_names(f"'a {'n' * 60}'") == f"'a {'n' * 60}'"
    suggestion = f"'{'n' * 60}': unknown; did you mean '{'m' * 60}'?"
    assert failures.shorten_names(suggestion) == f"'{'n' * 23}…{'n' * 24}': unknown; did you mean '{'m' * 60}'?"
    assert failures.problem_lines("", "why", more="more") == ["why", "  more"]
    assert failures.problem_lines("op 1", "why") == ["op 1: why"]


@click.group(cls=Commands)
def group() -> None: ...


RAISED: list[BaseException] = []
NOTE = {"note": "nothing was written"}


@group.command()
@click.option("--json", "as_json", is_flag=True)
def fail(as_json: bool) -> None:
    set_failure_output(as_json=as_json, **NOTE)
    if RAISED:
        raise RAISED[0]


def run_failing(
    error: BaseException | None, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    RAISED[:] = [] if error is None else [error]
    with pytest.raises(SystemExit) as exit_info:
        group.main(["fail", *arguments], prog_name="otp")
    code: Any = exit_info.value.code
    return (code, *capsys.readouterr())


@pytest.mark.parametrize(
    ("error", "code", "kind", "message"),
    [
        (ConversionError("why", [Problem("op 1", "odd")]), 1, "ConversionError", ["why", "op 1: odd"]),
        (VerificationError("why"), 3, "VerificationError", ["why"]),
        (KeyboardInterrupt(), 130, "Interrupted", ["interrupted"]),
        (
            MemoryError(),
            1,
            "MemoryError",
            ["out of memory: the model needs more than this machine or its limits allow"],
        ),
        (OSError(28, "No space", "file"), 2, "OSError", ["file: No space"]),
        (OSError("odd"), 2, "OSError", ["odd"]),
    ],
)
def test_error_has_a_block_an_exit_code_and_a_note(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, kind: str, message: list[str]
) -> None:
    result = run_failing(error, capsys)
    lines = [*message, "nothing was written"]
    assert result == (code, "", f"error: {lines[0]}\n" + "".join(f"  {line}\n" for line in lines[1:]))
    number, out, err = run_failing(error, capsys, "--json")
    error_record = json.loads(out)["error"]
    assert (number, error_record["exit_code"], error_record["kind"], err) == (code, code, kind, result[2])
    assert error_record["message"] == message[0]


def test_missing_extra_error_does_not_mention_files(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_failing(MissingExtra("pillow", "images"), capsys)
    assert (code, out) == (2, "")
    assert "nothing was written" not in err


def test_error_without_a_note_has_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NOTE, "note", "")
    assert run_failing(VerificationError("why"), capsys)[2] == "error: why\n"


def test_internal_error_is_reported_with_its_location(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_failing(ZeroDivisionError(), capsys)
    first, second, *_ = err.splitlines()
    assert (code, first) == (1, "error: internal error: ZeroDivisionError")
    assert second.startswith("  in fail, ")
    code, out, _ = run_failing(KeyError("x"), capsys, "--json")
    assert (code, json.loads(out)["error"]["kind"]) == (1, "InternalError")


def test_interruption_shows_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    interruption = KeyboardInterrupt()
    interruption.add_note("three of five")
    assert run_failing(interruption, capsys)[2] == "error: interrupted\n  three of five\n  nothing was written\n"


@pytest.mark.parametrize("error", [UsageProblem("a\nb"), None])
def test_usage_error_exits_with_2_and_success_with_0(
    capsys: pytest.CaptureFixture[str], error: BaseException | None
) -> None:
    assert run_failing(error, capsys) == ((2, "", "error: a\n  b\n") if error else (0, "", ""))
    code, out, _ = run_failing(error, capsys, "--json")
    assert code == (2 if error else 0)
    assert (json.loads(out)["error"]["message"] if out else "") == ("a\nb" if error else "")


def test_verify_refusal_as_json(run: Run, tmp_path: Path) -> None:
    model, onnx = tmp_path / "model.tflite", tmp_path / "model.onnx"
    onnx.write_bytes(b"nothing")
    for content, expected in ((b"nothing", (1, "InvalidModel")), (DIGITS.read_bytes(), (2, "InvalidOnnx"))):
        model.write_bytes(content)
        code, out, _ = run("verify", "--json", str(model), str(onnx))
        assert (code, json.loads(out)["error"]["kind"]) == expected
