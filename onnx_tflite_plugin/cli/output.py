"""Output of commands: colored at a terminal, plain text elsewhere.

Names in a model cannot control the terminal. The package rich is imported only at a terminal.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from onnx_tflite_plugin.checked import list_first, plural
from onnx_tflite_plugin.cli.streams import discard_stdout
from onnx_tflite_plugin.graph.names import OMISSION

if TYPE_CHECKING:
    from rich.console import Console

MAX_NAME_LENGTH = 48
LABEL_WIDTH = 12
_SEPARATORS = "/;:.", "_"  # first those between the segments of a name, then those between words
_MAX_DROPPED = 10  # maximum number of characters to drop so that a name is cut at a separator
_SPINNER_DELAY = 1.0  # seconds before a spinner is shown


class Row(NamedTuple):
    """A label and its lines.

    ``style``: rich style of the lines. ``code``: the lines are code and never wrapped.
    """

    label: str
    lines: Sequence[str]
    style: str = ""
    code: bool = False


def print_rows(rows: Iterable[Row]) -> None:
    """Print labels in a column on the left, with their lines on the right."""
    if not sys.stdout.isatty():
        for row in rows:
            for k, line in enumerate(row.lines):
                click.echo(f"{row.label if k == 0 else '':{LABEL_WIDTH}} {clean(line)}".rstrip())
        return
    from rich.text import Text

    console = _console()
    for row in rows:
        lines = [clean(line) for line in row.lines]
        if not row.code:
            lines = [part for line in lines for part in _wrap_line(line, console.width - LABEL_WIDTH - 1)]
        for k, line in enumerate(lines):
            label = f"{row.label if k == 0 else '':{LABEL_WIDTH}} "
            console.print(Text.assemble((label, "dim"), (line, row.style)), soft_wrap=True)


def _wrap_line(line: str, width: int) -> list[str]:
    """Return a line wrapped between words, with a hanging indent.

    A number stays on one line with the word that it belongs to: "op 7", "3 nodes".
    """
    indent = line[: len(line) - len(line.lstrip())]
    protected_line = re.sub(r"(?<=\bop) (?=\d)|(?<=\b\d) (?=\w)|(?<=\d\d) (?=\w)", "\0", line)
    parts = textwrap.wrap(
        protected_line, max(width, 1), subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    )
    return [part.replace("\0", " ") for part in parts] or [""]


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Collection[int] = ()) -> None:
    """Print a table, with cells wrapped only at a terminal.

    ``numeric``: positions of the columns that are aligned to the right.
    """
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for k, heading in enumerate(headings):
            table.add_column(heading, justify="right" if k in numeric else "left", overflow="fold")
        for row in cells:
            table.add_row(*row)
        _console().print(table)
        return
    widths = [max(len(line[k]) for line in (headings, *cells)) for k in range(len(headings))]
    for line in (headings, *cells):
        aligned_cells = (f"{text:{'>' if k in numeric else '<'}{widths[k]}}" for k, text in enumerate(line))
        click.echo("  ".join(aligned_cells).rstrip())


def print_json(value: Any) -> None:
    """Print strict JSON; infinity and NaN become null."""
    click.echo(json.dumps(_json_value(value), indent=2, allow_nan=False))


@contextmanager
def show_progress(text: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show a spinner with the current stage on stderr, if that is a terminal.

    The spinner appears after one second. Yields a function that takes the name of each stage when it begins.
    """
    line, status = clean(shorten(text)), None

    def start() -> None:
        nonlocal status
        status = _console(sys.__stderr__).status(line)
        status.start()

    def show_stage(stage: str) -> None:
        nonlocal line
        line = clean(f"{shorten(text)}: {stage}")
        if status is not None:
            status.update(line)

    if quiet or not sys.stderr.isatty():
        yield lambda stage: None
        return
    timer = threading.Timer(_SPINNER_DELAY, start)
    timer.daemon = True
    timer.start()
    try:
        yield show_stage
    finally:
        timer.cancel()
        timer.join()  # it may be starting the spinner
        if status is not None:
            status.stop()


@contextmanager
def redirect_stdout_to_stderr() -> Iterator[None]:
    """Redirect the output of Python and C code to stderr.

    Only the command itself may write to stdout, but op packs may print.
    """
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None:
            stream.flush()
    with redirect_stdout(sys.stderr):
        try:
            saved_stdout = os.dup(1)
        except OSError:  # stdout was closed before the command began
            yield
            return
        try:
            os.dup2(2, 1)
            yield
        finally:
            _flush()
            os.dup2(saved_stdout, 1)
            os.close(saved_stdout)


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Ignore a broken pipe while printing: a reader may stop before the end."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()


def _flush() -> None:
    """Flush the buffers of Python and C for descriptor 1."""
    with suppress(Exception):
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).fflush(None)


def _console(file: TextIO | None = None) -> Console:
    from rich.console import Console

    return Console(file=file, highlight=False, markup=False, emoji=False)


def print_error(label: str, lines: Sequence[str], color: str = "red") -> None:
    """Print a block on stderr: a colored label with the first line, then the rest."""
    use_color = False if os.environ.get("NO_COLOR") else None  # None: click decides
    indent = " " * (len(label) + 1)  # the first line is on the line of the label
    parts = [f"{indent if k == 0 else ' '} {clean(line)}" for k, line in enumerate(lines)]
    if sys.stderr.isatty():
        width = _console(sys.stderr).width
        parts = [part for line in parts for part in _wrap_line(line, width)]
    click.secho(f"{label}:", err=True, fg=color, bold=True, nl=False, color=use_color)
    click.echo("\n".join([parts[0][len(indent) :], *parts[1:]]), err=True)


# --- text -------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Return the text with every nonprintable character escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def shorten(name: str, max_length: int = MAX_NAME_LENGTH) -> str:
    """Return a name without its middle if it is long, cut at separators if possible."""
    if len(name) <= max_length:
        return name
    head_length = (max_length - 1) // 2
    head, tail = name[:head_length], name[len(name) - (max_length - 1 - head_length) :]
    # for each kind of separator: the position after its last one in the head, and of its first one in the tail
    ends = (max((k + 1 for k in range(head_length) if head[k] in separators), default=0) for separators in _SEPARATORS)
    starts = (next((k for k, c in enumerate(tail) if c in separators), len(tail)) for separators in _SEPARATORS)
    end = next((end for end in ends if end >= max(1, head_length - _MAX_DROPPED)), head_length)
    start = next((start for start in starts if start <= _MAX_DROPPED and start < len(tail) - 1), 0)
    return f"{head[:end]}{OMISSION}{tail[start:]}"


_IS_UNLIMITED: ContextVar[bool] = ContextVar("_IS_UNLIMITED", default=False)
"""True while lists are printed in full."""


@contextmanager
def unlimited_lists(active: bool = True) -> Iterator[None]:
    """Make lists complete in rows created in the block, unless ``active`` is False."""
    token = _IS_UNLIMITED.set(active)
    try:
        yield
    finally:
        _IS_UNLIMITED.reset(token)


def limit_names(names: Sequence[str], limit: int) -> str:
    """Return the first names and the number of omitted names: ``a, b and 3 more``."""
    return list_first(names, len(names) if _IS_UNLIMITED.get() else limit)


def limit_lines(lines: Sequence[str], limit: int, hint: str = "--json shows all") -> list[str]:
    """Return the first lines, and a line with the number of omitted lines.

    ``hint``: says how to see the omitted lines.
    """
    if len(lines) <= limit + 1 or _IS_UNLIMITED.get():  # "1 more" would take as much space as the line
        return list(lines)
    return [*lines[:limit], f"… and {len(lines) - limit} more ({hint})"]


def format_counts(counts: Sequence[tuple[str, int]], limit: int = 6) -> str:
    """Return counts as text: ``53 Conv, 10 Add, … and 4 more kinds``."""
    listed_counts = counts if len(counts) <= limit + 1 or _IS_UNLIMITED.get() else counts[:limit]
    texts = [f"{number} {name}" for name, number in listed_counts]
    if omitted_count := len(counts) - len(listed_counts):
        texts.append(f"… and {omitted_count} more kinds")
    return ", ".join(texts)


def format_size(count: int) -> str:
    """Return a number of bytes as text: ``3.4 MB``."""
    if count < 1000:
        return plural(count, "byte")
    for unit in ("kB", "MB"):
        amount = count / 1000 ** (1 + (unit == "MB"))
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
    return f"{count / 1e9:.3g} GB"


def format_seconds(seconds: float) -> str:
    """Return a duration as text: ``0.45 s``, ``12 s``, ``3 min 5 s``."""
    if seconds >= 59.5:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    return f"{seconds:.2f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def _json_value(value: Any) -> Any:
    """Return numpy values and tuples as JSON types."""
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "tolist"):
        return _json_value(value.tolist())
    return str(value)
