"""Tables, line wrapping, streams and the progress spinner."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from onnx_tflite_plugin.cli import output
from onnx_tflite_plugin.cli.output import (
    Row,
    _wrap_line,
    format_counts,
    format_size,
    print_error,
    print_rows,
)

HEADINGS = ("a name", "n")


def printed_lines(capsys: pytest.CaptureFixture[str], *rows: tuple[object, ...]) -> list[str]:
    output.print_table(HEADINGS, rows, numeric=(1,))
    return capsys.readouterr().out.splitlines()


def test_aligns_numbers_right_and_names_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_lines(capsys, ("x\ty", 5), ("abcdefgh", 1000)) == [
        "a name       n",
        r"x\ty         5",
        "abcdefgh  1000",
    ]


def test_wraps_table_cells_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    first, *lines = (line.rstrip() for line in printed_lines(capsys, ("twelve words or more", 5), ("x", 7)))
    assert "a name" in first
    assert lines == ["twelve words or    5", "more", "x                  7"]


def test_does_not_wrap_rows_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_lines(capsys, ("word " * 50, 5))[1] == f"{'word ' * 50}  5"


def test_wraps_lines_with_a_hanging_indent() -> None:
    assert _wrap_line("abc de fgh", 10) == ["abc de fgh"]
    assert _wrap_line("abc de fgh", 9) == ["abc de", "  fgh"]
    assert _wrap_line("", 5) == [""]
    assert _wrap_line("ab cd ef gh", 8) == ["ab cd ef", "  gh"]
    assert _wrap_line("  name  1,2 → 2,1  4 bytes, from op 1 to op 2", 30) == [
        "  name  1,2 → 2,1  4 bytes,", "    from op 1 to op 2",
    ]  # fmt: skip
    assert _wrap_line("7: 2 CONV_2D, 12 ADD, from op 3 ADD", 22) == ["7: 2 CONV_2D, 12 ADD,", "  from op 3 ADD"]
    assert _wrap_line("a sum of 12 TERMS", 13) == ["a sum of", "  12 TERMS"]


def test_labels_have_their_own_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([Row("inputs", ["x\x1b", ""]), Row("target", ["y"])])
    assert capsys.readouterr().out == f"{'inputs':12} x\\x1b\n\n{'target':12} y\n"


def test_lines_use_the_full_terminal_width(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    print_rows([Row("inputs", ["abc def ghi", "x y"]), Row("run it", ["abc def ghi"], code=True)])
    assert re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines() == [
        f"{'inputs':12} abc def", f"{'':12}   ghi", f"{'':12} x y", f"{'run it':12} abc def ghi",
    ]  # fmt: skip


def test_does_not_truncate_a_single_item() -> None:
    assert format_counts([("a", 3), ("b", 2)], 1) == "3 a, 2 b"
    assert format_counts([]) == ""
    assert format_size(999_500) == "1 MB"
    assert format_size(999_500_000) == "1 GB"


def test_error_block_indents_further_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("error", ["one", "two", "  three\n"])
    assert capsys.readouterr() == ("", "error: one\n  two\n    three\\n\n")


# --- streams ----------------------------------------------------------------------------------


REDIRECT_SCRIPT = """
import ctypes
import sys
from onnx_tflite_plugin.cli.output import redirect_stdout_to_stderr
libc = ctypes.CDLL(None)
print("before")
try:
    with redirect_stdout_to_stderr():
        print("python")
        sys.__stdout__.write("held back\\n")
        libc.puts(b"c")
        if sys.argv[1:]:
            raise KeyError
except KeyError:
    pass
libc.puts(b"c after")
libc.fflush(None)
print("after")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="another C library")
@pytest.mark.parametrize("fails", [False, True])
def test_stdout_of_python_and_c_is_redirected_to_stderr(fails: bool) -> None:
    """Both libraries buffer their output."""
    command = [sys.executable, "-c", REDIRECT_SCRIPT, *(["fail"] if fails else [])]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    completed = subprocess.run(command, capture_output=True, text=True, check=True, env=buffered)
    assert sorted(completed.stdout.splitlines()) == ["after", "before", "c after"]
    assert sorted(completed.stderr.splitlines()) == ["c", "held back", "python"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_spinner_shows_the_stage_after_a_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class Status:
        def update(self, line: str) -> None:
            events.append(line)

        def start(self) -> None:
            events.append("start")

        def stop(self) -> None:
            events.append("stop")

    class Console:
        width = 80

        def status(self, line: str) -> Status:
            events.append(line)
            return Status()

    monkeypatch.setattr(output, "_console", lambda file=None: Console())
    monkeypatch.setattr(output, "_SPINNER_DELAY", 0.01)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with output.show_progress("converting x") as stage:
        stage("one")
        deadline = time.monotonic() + 5
        while "start" not in events and time.monotonic() < deadline:
            time.sleep(0.001)
        stage("two")
    assert events == ["converting x: one", "start", "converting x: two", "stop"]


def test_short_work_shows_no_spinner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_console", lambda file=None: SimpleNamespace(status=pytest.fail))
    monkeypatch.setattr(sys, "stderr", Terminal())
    with output.show_progress("x") as stage:
        stage("one")


@pytest.mark.parametrize(("stream", "quiet"), [(Terminal(), True), (io.StringIO(), False)])
def test_no_spinner_without_a_terminal(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, quiet: bool) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(output, "_console", pytest.fail)
    monkeypatch.setattr(output, "_SPINNER_DELAY", 0)
    with output.show_progress("x", quiet=quiet) as stage:
        stage("one")
    assert not stream.getvalue()
