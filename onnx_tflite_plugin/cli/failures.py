"""How a command fails: one block on stderr, an exit code, never a traceback unless it is asked for.

0 done, 1 the model was refused, 2 usage or a missing extra, 3 verification failed, 130 interrupted.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import click

from onnx_tflite_plugin.cli.output import complain, print_json, short
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.guard import DEBUG, debug

INTERRUPTED = 130
_MOST_PROBLEMS = 20
_KEY = __name__


class UsageProblem(click.ClickException):
    """A path or value that cannot be used, found before any work was done."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        complain("error", self.message.splitlines())


class Commands(click.Group):
    """The commands, with whatever they raise turned into a message and an exit code."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        """A usage error is JSON too where ``--json`` is among the arguments, before any command has read them."""
        given = list(sys.argv[1:] if args is None else args)
        if "--json" not in given or not extra.get("standalone_mode", True):
            return super().main(args, *more, **extra)
        try:
            code = super().main(given, *more, **{**extra, "standalone_mode": False})
        except click.Abort:
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            error.show()
            message = error.format_message()
            told = {"kind": "UsageError", "message": message, "problems": [], "exit_code": error.exit_code}
            print_json({"error": told})
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConversionError as error:
            lines = [*map(shortened, error.message.splitlines()), *_grouped(error)]
            _fail(ctx, error.exit_code, type(error).__name__, lines, error)
        except KeyboardInterrupt as interruption:
            _fail(ctx, INTERRUPTED, "Interrupted", ["interrupted", *getattr(interruption, "__notes__", [])])
        except MemoryError:
            _fail(ctx, 1, "MemoryError", ["out of memory: the model needs more than this machine or its limits allow"])
        except BrokenPipeError:
            raise
        except OSError as error:
            named = f"{error.filename}: " if error.filename else ""
            debug(error)
            _fail(ctx, 2, type(error).__name__, [f"{named}{error.strerror or error}"])
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            debug(error)
            _fail(ctx, 1, "InternalError", _internal(error))


def on_failure(*, as_json: bool = False, note: str | Callable[[], str] = "") -> None:
    """Set what a failure of the running command adds: JSON on stdout, and a last line, made as it fails."""
    click.get_current_context().meta[_KEY] = (as_json, note)


def _fail(ctx: click.Context, code: int, kind: str, lines: list[str], error: ConversionError | None = None) -> NoReturn:
    as_json, note = ctx.meta.get(_KEY, (False, ""))
    usage = error is not None and error.exit_code == UsageProblem.exit_code
    said = note() if callable(note) and not usage else note
    complain("error", [*lines, *([said] if said and not usage else [])])
    if as_json:
        text = "\n".join(lines)
        told = {"error": {"kind": kind, "message": text, "problems": [], "exit_code": code}}
        print_json(described(error) if error else told)
    ctx.exit(code)


def _grouped(error: ConversionError) -> list[str]:
    """Each kind of problem once, with the place that has it first and how many others do."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for problem in error.problems:
        kinds.setdefault((_kind(problem.reason), problem.hint), []).append(f"{problem.where}: {problem.reason}")
    told: list[tuple[str, list[str]]] = []
    for (_, hint), texts in list(kinds.items())[:_MOST_PROBLEMS]:
        more = f"and in {len(texts) - 1} more places; --json lists them" if len(texts) > 1 else ""
        told.append((hint, problem_lines("", texts[0], more=more)))
    lines = hinted(told)
    if len(kinds) > _MOST_PROBLEMS:
        left = f"{len(kinds) - _MOST_PROBLEMS} more kinds of problems"
        lines.append(f"… and {left} ({len(error.problems)} problems in all; --json lists them)")
    return lines


def hinted(problems: Iterable[tuple[str, list[str]]]) -> list[str]:
    """The lines of problems, each given with its hint; a hint that several share stands once, behind the last of them."""
    groups: dict[tuple[str, int], list[list[str]]] = {}
    for number, (hint, lines) in enumerate(problems):
        groups.setdefault((hint, 0 if hint else number), []).append(lines)
    told: list[str] = []
    for (hint, _), alike in groups.items():
        told += [line for lines in alike for line in lines]
        told += [f"  hint{f' to these {len(alike)}' if len(alike) > 1 else ''}: {hint}"] if hint else []
    return told


def _kind(reason: str) -> str:
    """The reason without what differs from place to place: names and numbers."""
    return re.sub(r"\d+", "0", re.sub(r"'[^']*'", "''", reason))


def problem_lines(where: str, reason: str, more: str = "") -> list[str]:
    """A problem without its hint; the middle of names too long to read is left out."""
    text = shortened(f"{where}: {reason}" if where else reason)
    return [text, *([f"  {more}"] if more else [])]


def shortened(text: str) -> str:
    """The text, without the middle of quoted names that are too long to read."""
    return re.sub(r"'([^'\s]+)'", lambda match: f"'{short(match[1])}'", text)


def described(error: ConversionError) -> dict[str, Any]:
    """A refusal as JSON."""
    problems = [{"where": p.where, "reason": p.reason, "hint": p.hint} for p in error.problems]
    return {
        "error": {
            "kind": type(error).__name__,
            "message": error.message,
            "problems": problems,
            "exit_code": error.exit_code,
        }
    }


def _internal(error: Exception) -> list[str]:
    """Where it broke, and what to do about it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return [
        f"internal error: {type(error).__name__}: {error}".rstrip(": "),
        f"in {frame.name}, {frame.filename}:{frame.lineno}",
        "this is a bug; please report it with this text and the model, or what `inspect --json` says of it",
        f"{DEBUG}=1 shows the traceback",
    ]
