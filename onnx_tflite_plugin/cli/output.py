"""What commands print: coloured at a terminal, plain text elsewhere; nothing a model names can steer the terminal.

rich is imported only where there is a terminal to draw on.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

LONGEST_NAME = 48
LABEL_WIDTH = 12
_LAST_COLUMN = 24  # the least it is folded to


@dataclass(frozen=True)
class Row:
    """A label and the lines that belong to it. ``style`` is rich's, for the lines."""

    label: str
    lines: Sequence[str]
    style: str = ""


def print_rows(rows: Iterable[Row]) -> None:
    """Labels in a column on the left, their lines beside it."""
    if not sys.stdout.isatty():
        for row in rows:
            for k, line in enumerate(row.lines):
                click.echo(f"{row.label if k == 0 else '':{LABEL_WIDTH}} {clean(line)}".rstrip())
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(min_width=LABEL_WIDTH, style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        for k, line in enumerate(row.lines):
            grid.add_row(row.label if k == 0 else "", Text(clean(line), row.style))
    _console().print(grid)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: int = -1) -> None:
    """A table; column ``numeric`` is aligned to the right."""
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    widths = [max(len(line[k]) for line in (headings, *cells)) for k in range(len(headings))]
    if not sys.stdout.isatty():
        for line in (headings, *cells):
            pairs = enumerate(zip(line, widths, strict=True))
            click.echo(
                "  ".join(
                    text.rjust(width) if k == numeric else text.ljust(width) for k, (text, width) in pairs
                ).rstrip()
            )
        return
    from rich.table import Table
    from rich.text import Text

    console = _console()
    whole = sum(widths[:-1]) + 2 * len(widths) + _LAST_COLUMN <= console.width  # then only the last column is folded
    table = Table(box=None, pad_edge=False, header_style="bold")
    for k, heading in enumerate(headings):
        justify: Literal["right", "left"] = "right" if k == numeric else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=whole and k < len(headings) - 1)
    for row_ in cells:
        table.add_row(*map(Text, row_))
    console.print(table)


def print_json(value: Any) -> None:
    """Strict JSON: what JSON cannot say (infinity, NaN) is null."""
    click.echo(json.dumps(_plain(value), indent=2, allow_nan=False))


@contextmanager
def working(text: str, *, shown: bool) -> Iterator[None]:
    """A spinner on stderr while something long runs, if stderr is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    with _console(sys.stderr).status(clean(text)):
        yield


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
    first, *rest = lines
    click.secho(f"{label}:", err=True, fg=color, bold=True, nl=False, color=plain)
    click.echo("\n".join([f" {clean(first)}", *(f"  {clean(line)}" for line in rest)]), err=True)


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
        return {str(key): _plain(held) for key, held in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(held) for held in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)
