"""What commands print: coloured at a terminal, plain text elsewhere; nothing a model names can steer the terminal.

rich is imported only where there is a terminal to draw on.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

LONGEST_NAME = 48
LABEL_WIDTH = 12
_PATIENCE = 1.0  # seconds before a spinner is shown


class Row(NamedTuple):
    """A label and the lines that belong to it. ``style`` is rich's, for the lines; ``code`` is never broken."""

    label: str
    lines: Sequence[str]
    style: str = ""
    code: bool = False


def print_rows(rows: Iterable[Row]) -> None:
    """Labels in a column on the left, their lines beside it."""
    if not sys.stdout.isatty():
        for row in rows:
            for k, line in enumerate(row.lines):
                click.echo(f"{row.label if k == 0 else '':{LABEL_WIDTH}} {clean(line)}".rstrip())
        return
    from rich.text import Text

    console = _console()
    for row in rows:
        labelled = False
        for line in row.lines:
            for part in _folded(clean(line), console.width - LABEL_WIDTH - 1, code=row.code):
                label = Text(f"{'' if labelled else row.label:{LABEL_WIDTH}} ", "dim")
                console.print(label + Text(part, row.style), soft_wrap=True)
                labelled = True


def _folded(line: str, width: int, *, code: bool) -> list[str]:
    """A line broken between words, what follows set in by two; a number stays with what it counts or numbers.

    Code is left as it is, to be copied.
    """
    if code:
        return [line]
    indent = len(line) - len(line.lstrip())
    first, *words = re.sub(r"(?<=\bop) (?=\d)|(?<=\b\d) (?=\w)|(?<=\d\d) (?=\w)", "\0", line.lstrip()).split(" ")
    parts, current = [], " " * indent + first
    for word in words:
        if len(current) + 1 + len(word) > width:
            parts.append(current.rstrip())
            current = " " * (indent + 2) + word
        else:
            current = f"{current} {word}"
    return [part.replace("\0", " ") for part in (*parts, current)]


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Collection[int] = ()) -> None:
    """A table; columns ``numeric`` are aligned to the right. At a terminal cells are broken between words alone.

    A name longer than its column loses its middle. Elsewhere a row is one line, whatever its length.
    """
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    widths = [max(len(line[k]) for line in (headings, *cells)) for k in range(len(headings))]
    terminal = sys.stdout.isatty()
    if terminal:
        console: Console = _console()
        widths = _narrowed(widths, [max(len(w) for w in heading.split()) for heading in headings], console.width)
    for number, line in enumerate((headings, *cells)):
        wrapped = [_wrapped(text, width) if terminal else [text] for text, width in zip(line, widths, strict=True)]
        for part in range(max(map(len, wrapped))):
            texts = [lines[part] if part < len(lines) else "" for lines in wrapped]
            pairs = enumerate(zip(texts, widths, strict=True))
            joined = "  ".join(t.rjust(width) if k in numeric else t.ljust(width) for k, (t, width) in pairs).rstrip()
            click.secho(joined, bold=terminal and number == 0, color=None if not os.environ.get("NO_COLOR") else False)


def _narrowed(widths: Sequence[int], least: Sequence[int], total: int) -> list[int]:
    """Column widths that fit: the widest gives way first, to no less than a heading's word and 12 characters."""
    narrowed = list(widths)
    while sum(narrowed) + 2 * (len(narrowed) - 1) > total:
        widest = max(range(len(narrowed)), key=lambda k: narrowed[k] - max(least[k], 12))
        if narrowed[widest] <= max(least[widest], 12):
            break
        narrowed[widest] -= 1
    return narrowed


def _wrapped(text: str, width: int) -> list[str]:
    """Lines no longer than the width: broken between words, a word that is longer shortened in its middle."""
    lines: list[str] = []
    for word in text.split() or [""]:
        fitted = short(word, width)
        if lines and len(lines[-1]) + 1 + len(fitted) <= width:
            lines[-1] += f" {fitted}"
        else:
            lines.append(fitted)
    return lines


def print_json(value: Any) -> None:
    """Strict JSON: what JSON cannot say (infinity, NaN) is null."""
    click.echo(json.dumps(_plain(value), indent=2, allow_nan=False))


@contextmanager
def working(text: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr with the stage that is running, as soon as a second has passed, if stderr is a terminal.

    What is yielded takes the name of each stage as it begins.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda stage: None
        return
    spinner = _Spinner(text)
    timer = threading.Timer(_PATIENCE, spinner.start)
    timer.daemon = True
    timer.start()
    try:
        yield spinner.tell
    finally:
        timer.cancel()
        spinner.stop()


class _Spinner:
    def __init__(self, text: str) -> None:
        self._text, self._stage = text, ""
        self._status: Any = None
        self._stopped = False
        self._lock = threading.Lock()

    def tell(self, stage: str) -> None:
        with self._lock:
            self._stage = stage
            if self._status is not None:
                self._status.update(self._line())

    def start(self) -> None:
        console = _console(sys.__stderr__)
        with self._lock:
            if not self._stopped:
                self._status = console.status(self._line())
                self._status.start()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._status is not None:
                self._status.stop()

    def _line(self) -> str:
        """What fits into one line: the stage whole, and what is left of the rest."""
        stage = f": {self._stage}" if self._stage else ""
        room = _console(sys.__stderr__).width - len(stage) - 3
        return clean(short(self._text, max(room, 12)) + stage)


@contextmanager
def apart() -> Iterator[None]:
    """Whatever is printed inside, by Python or by C, goes to stderr: stdout is the command's, and op packs may print."""
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None:
            stream.flush()
    with redirect_stdout(sys.stderr):
        try:
            real = os.dup(1)
        except OSError:  # closed from the start
            yield
            return
        try:
            os.dup2(2, 1)
            yield
        finally:
            _flush()
            os.dup2(real, 1)
            os.close(real)


@contextmanager
def unread() -> Iterator[None]:
    """Whoever reads what is printed inside may have left: the work is done, and that is no failure."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's last flush passes


def _flush() -> None:
    """Write out what Python and C hold back of descriptor 1."""
    with suppress(Exception):
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).fflush(None)


def _console(file: TextIO | None = None) -> Console:
    from rich.console import Console

    return Console(file=file, highlight=False, markup=False, emoji=False)


def complain(label: str, lines: Sequence[str], color: str = "red") -> None:
    """A block on stderr: a coloured label, then the lines, the first beside it."""
    plain = False if os.environ.get("NO_COLOR") else None
    indent = " " * (len(label) + 1)  # of the first line, which stands beside the label
    parts = [f"{indent if k == 0 else ' '} {clean(line)}" for k, line in enumerate(lines)]
    if sys.stderr.isatty():
        width = _console(sys.stderr).width
        parts = [part for line in parts for part in _folded(line, width, code=False)]
    click.secho(f"{label}:", err=True, fg=color, bold=True, nl=False, color=plain)
    click.echo("\n".join([parts[0][len(indent) :], *parts[1:]]), err=True)


# --- words ------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """The text with every character that is not for reading written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def short(name: str, longest: int = LONGEST_NAME) -> str:
    """A name with its middle left out where it is long: both ends tell more than either."""
    if len(name) <= longest:
        return name
    head = (longest - 1) // 2
    return f"{name[:head]}…{name[len(name) - (longest - 1 - head) :]}"


def at_most(lines: Sequence[str], limit: int, rest: str = "--json shows all") -> list[str]:
    """The first lines, and how many are left out."""
    if len(lines) <= limit + 1:  # a line that says "1 more" takes the place of that one
        return list(lines)
    return [*lines[:limit], f"… and {len(lines) - limit} more ({rest})"]


def counted(counts: Sequence[tuple[str, int]], limit: int = 6) -> str:
    """``53 Conv, 10 Add, … and 4 kinds more``."""
    shown = counts if len(counts) <= limit + 1 else counts[:limit]
    left = len(counts) - len(shown)
    return ", ".join([*(f"{number} {name}" for name, number in shown), *([f"… and {left} kinds more"] if left else [])])


def plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def size(count: int) -> str:
    """Bytes for people: ``3.4 MB``."""
    if count < 1000:
        return plural(count, "byte")
    for unit in ("kB", "MB"):
        count_ = count / 1000 ** (1 + (unit == "MB"))
        if count_ < 999.5:
            return f"{count_:.3g} {unit}"
    return f"{count / 1e9:.3g} GB"


def _plain(value: Any) -> Any:
    """Values of numpy and tuples as JSON's own."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)
