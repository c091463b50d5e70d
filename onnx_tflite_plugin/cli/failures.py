"""How a command fails: one block on stderr, an exit code, never a traceback unless it is asked for.

0 done, 1 the model was refused, 2 usage or a missing extra, 3 verification failed, 130 interrupted.
"""

from __future__ import annotations

import re
import traceback
from typing import Any, NoReturn

import click

from onnx_tflite_plugin.cli.output import at_most, complain, print_json, short
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

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConversionError as error:
            problems = [
                line for problem in error.problems for line in _lines(str(problem.where), problem.reason, problem.hint)
            ]
            _fail(
                ctx,
                error.exit_code,
                type(error).__name__,
                [*error.message.splitlines(), *_cut(problems, len(error.problems))],
                error,
            )
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


def on_failure(*, as_json: bool = False, note: str = "") -> None:
    """What a failure of the running command adds: JSON on stdout, a last line."""
    click.get_current_context().meta[_KEY] = (as_json, note)


def _fail(ctx: click.Context, code: int, kind: str, lines: list[str], error: ConversionError | None = None) -> NoReturn:
    as_json, note = ctx.meta.get(_KEY, (False, ""))
    usage = error is not None and error.exit_code == UsageProblem.exit_code
    complain("error", [*lines, *([note] if note and not usage else [])])
    if as_json:
        problems = [{"where": p.where, "reason": p.reason, "hint": p.hint} for p in error.problems] if error else []
        message = error.message if error else "\n".join(lines)
        print_json({"error": {"kind": kind, "message": message, "problems": problems, "exit_code": code}})
    ctx.exit(code)


def _lines(where: str, reason: str, hint: str) -> list[str]:
    """A problem and its hint; the middle of names too long to read is left out."""
    text = re.sub(r"'([^'\s]+)'", lambda found: f"'{short(found[1])}'", f"{where}: {reason}")
    return [text, *([f"  hint: {hint}"] if hint else [])]


def _cut(lines: list[str], problems: int) -> list[str]:
    return at_most(lines, 2 * _MOST_PROBLEMS, f"{problems} problems in all; --json lists them")


def _internal(error: Exception) -> list[str]:
    """Where it broke, and what to do about it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return [
        f"internal error: {type(error).__name__}: {error}".rstrip(": "),
        f"in {frame.name}, {frame.filename}:{frame.lineno}",
        "this is a bug; please report it with this text and the model, or what `inspect --json` says of it",
        f"{DEBUG}=1 shows the traceback",
    ]
