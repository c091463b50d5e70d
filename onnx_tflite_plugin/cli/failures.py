"""Failures of commands: one block on stderr, and an exit code.

A traceback is printed only on request.
Exit codes: 0 done, 1 the model was refused, 2 usage, mismatched models, or a missing extra,
3 verification failed, 4 verification was inconclusive, 130 interrupted; 128 plus the number of another signal that ended it,
such as 143 for SIGTERM.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import click

from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.cli.output import print_error, print_json, shorten
from onnx_tflite_plugin.errors import ConversionError, NoHandler, Problem
from onnx_tflite_plugin.guard import DEBUG, Terminated, debug
from onnx_tflite_plugin.keywords import FROM_COMMAND

INTERRUPTED = 130
_MAX_PROBLEM_KINDS = 20
_CONTEXT_KEY = __name__


class UsageProblem(click.ClickException):
    """An unusable path or value, found before any work is done."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        print_error("error", self.message.splitlines())


_HELP_ERROR: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""The error that click 8.2 and later raise to print the help of a command without arguments."""


@contextmanager
def replace_usage_errors() -> Iterator[None]:
    """Replace click's usage errors with UsageProblem, which prints a single block."""
    try:
        yield
    except click.UsageError as error:
        if isinstance(error, _HELP_ERROR):
            raise
        raise UsageProblem(_describe_usage(error)) from None


def _describe_usage(error: click.UsageError) -> str:
    """Return the message of a usage error: the argument, the fact, and the remedy."""
    command = error.ctx and f"{error.ctx.command_path} {' '.join(error.ctx.command.collect_usage_pieces(error.ctx))}"
    if isinstance(error, click.MissingParameter):
        return f"{error.format_message().rstrip('. ')}\nhint: {command}"
    if isinstance(error, click.NoSuchOption):
        remedy = _unknown_option_remedy(error)
        hint = "" if remedy or not error.ctx else f"\nhint: {error.ctx.command_path} --help lists the options"
        return f"No such option {error.option_name!r}{remedy}{hint}"
    if isinstance(error, click.BadParameter):
        parameter = error.param_hint or (error.param.get_error_hint(error.ctx).strip("'") if error.param else "")
        message = error.message.rstrip(".")
        value = re.match("'(.*)' is not one of ", message)
        choices = getattr(error.param and error.param.type, "choices", ())
        similar = did_you_mean(value[1], choices) if value else ""
        hint = "" if similar or not value else _describe_values(value[1], error)
        return f"{parameter}: {message}{similar}{hint}"
    return error.format_message().rstrip(".")


def _unknown_option_remedy(error: click.NoSuchOption) -> str:
    """Return the likely remedy for an unknown option; empty if there is none.

    It names an option for which the unknown one is a synonym, the commands that have the option, or a similar option.
    """
    options = error.ctx.command.params if error.ctx else ()
    flag = next((option.opts[0] for option in options if error.option_name in getattr(option, "synonyms", ())), "")
    if flag:
        return f"; did you mean {flag!r}?"
    if commands_with_option := _commands_with(error.option_name, error.ctx):
        return f"; it is an option of {' and '.join(commands_with_option)}"
    flags = [flag for option in options if isinstance(option, click.Option) for flag in option.opts]
    return did_you_mean(error.option_name, flags)


def _describe_values(value: str, error: click.BadParameter) -> str:
    """Return where the values are described; empty for options without listed values."""
    if not isinstance(error.param, click.Option) or not getattr(error.param.type, "choices", ()):
        return ""
    if remedy := tolerance_remedy(value, error.ctx):
        return f"; {remedy}"
    return f"\nhint: {error.ctx.command_path} --help describes the values" if error.ctx else ""


def tolerance_remedy(value: str, ctx: click.Context | None) -> str:
    """Return the remedy for a number that is meant for ``--tolerance``.

    Return an empty text if ``value`` is not a number, or if the command has no such option.
    """
    has_tolerance = ctx is not None and any(param.name == "tolerance" for param in ctx.command.params)
    try:
        float(value)
    except ValueError:
        return ""
    return f"to set a tolerance, write --tolerance {value}" if has_tolerance else ""


def _commands_with(option: str, ctx: click.Context | None) -> list[str]:
    """Return the other commands of the group that have an option."""
    parent = ctx.parent if ctx else None
    if parent is None or not isinstance(parent.command, click.Group):
        return []
    names = parent.command.list_commands(parent)
    commands = {name: parent.command.get_command(parent, name) for name in names}
    return [name for name, command in commands.items() if command and any(option in p.opts for p in command.params)]


class Commands(click.Group):
    """Command group that turns exceptions into a message and an exit code."""

    def main(self, args: Sequence[str] | None = None, *positional: Any, **keywords: Any) -> Any:
        """Run a command.

        If ``--json`` is among the arguments, usage errors are printed as JSON, even before a command has parsed them.
        """
        arguments = list(sys.argv[1:] if args is None else args)
        if "--json" not in arguments or not keywords.get("standalone_mode", True):
            return super().main(args, *positional, **keywords)
        try:
            code = super().main(arguments, *positional, **{**keywords, "standalone_mode": False})
        except click.Abort:
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            error.show()
            message = error.format_message()
            details = {"kind": "UsageError", "message": message, "problems": [], "exit_code": error.exit_code}
            print_json({"error": details})
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else 0)

    def make_context(self, *positional: Any, **keywords: Any) -> click.Context:
        with replace_usage_errors():
            return super().make_context(*positional, **keywords)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command to run.

        The error for an unknown name suggests a similar command, or ``convert`` if the name is that of a model.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            name = args[0]
            if name.endswith((".tflite", ".lite", ".task")):
                remedy = f"; to convert it: {ctx.info_name} convert {name}"
            else:
                remedy = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"{error.message.rstrip('.')}{remedy or '.'}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        token = FROM_COMMAND.set(True)
        try:
            with replace_usage_errors():
                return super().invoke(ctx)
        except ConversionError as error:
            lines = describe_refusal(error)
            _fail(ctx, error.exit_code, type(error).__name__, lines, error)
        except KeyboardInterrupt as interruption:
            _fail(ctx, INTERRUPTED, "Interrupted", ["interrupted", *getattr(interruption, "__notes__", [])])
        except Terminated as terminated:
            _fail(ctx, terminated.status, "Terminated", [str(terminated)])
        except MemoryError:
            _fail(ctx, 1, "MemoryError", ["out of memory: the model needs more than this machine or its limits allow"])
        except BrokenPipeError:
            raise
        except OSError as error:
            debug(error)
            _fail(ctx, 2, type(error).__name__, [format_os_error(error)])
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            debug(error)
            _fail(ctx, 1, "InternalError", _internal_error_lines(error))
        finally:
            FROM_COMMAND.reset(token)


def format_os_error(error: OSError) -> str:
    """Return the file, if known, and the reason of an error."""
    file_prefix = f"{error.filename}: " if error.filename else ""
    return f"{file_prefix}{error.strerror or error}"


def set_failure_output(*, as_json: bool = False, note: str | Callable[[], str] = "") -> None:
    """Set how a failure of the running command is printed.

    ``as_json``: also print JSON on stdout. ``note``: the last line, or a function that is called for it at the failure.
    """
    click.get_current_context().meta[_CONTEXT_KEY] = (as_json, note)


def _fail(ctx: click.Context, code: int, kind: str, lines: list[str], error: ConversionError | None = None) -> NoReturn:
    as_json, note = ctx.meta.get(_CONTEXT_KEY, (False, ""))
    is_usage = error is not None and error.exit_code == UsageProblem.exit_code
    note_text = note() if callable(note) and not is_usage else note
    print_error("error", [*lines, *([note_text] if note_text and not is_usage else [])])
    if as_json:
        text = "\n".join(lines)
        details = {"error": {"kind": kind, "message": text, "problems": [], "exit_code": code}}
        print_json(error_json(error) if error else details)
    ctx.exit(code)


def describe_refusal(error: ConversionError) -> list[str]:
    """Return the message of a refused model as lines, with the first problem of each kind."""
    return [*map(shorten_names, error.message.splitlines()), *_group_problems(error)]


def _group_problems(error: ConversionError) -> list[str]:
    """Return the first problem of each kind as lines, and the number of similar ones."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for problem in error.problems:
        kinds.setdefault((_problem_kind(problem), problem.hint), []).append(str(replace(problem, hint="")))
    hinted_lines: list[tuple[str, list[str]]] = []
    for (_, hint), texts in list(kinds.items())[:_MAX_PROBLEM_KINDS]:
        more = f"and in {len(texts) - 1} more places (--json lists them)" if len(texts) > 1 else ""
        hinted_lines.append((hint, problem_lines("", texts[0], more=more)))
    lines = with_hints(hinted_lines)
    if len(kinds) > _MAX_PROBLEM_KINDS:
        remaining = f"{len(kinds) - _MAX_PROBLEM_KINDS} more kinds of problems"
        lines.append(f"… and {remaining} ({len(error.problems)} problems in all; --json lists them)")
    return lines


def with_hints(problems: Iterable[tuple[str, list[str]]]) -> list[str]:
    """Return the lines of problems with their hints.

    Problems with the same hint are adjacent, and the hint follows the last of them.
    """
    groups: dict[tuple[str, int], list[list[str]]] = {}
    for number, (hint, lines) in enumerate(problems):
        groups.setdefault((hint, 0 if hint else number), []).append(lines)
    result: list[str] = []
    for (hint, _), line_groups in groups.items():
        result += [line for lines in line_groups for line in lines]
        if hint:
            scope = f" to the {len(line_groups)} problems above" if len(line_groups) > 1 else ""
            result.append(f"  hint{scope}: {hint}")
    return result


def _problem_kind(problem: Problem) -> str:
    """Return a key that is equal for problems of one kind.

    It is the operator if it has no handler, otherwise the reason without names and numbers.
    """
    if isinstance(problem, NoHandler):
        return problem.where
    return re.sub(r"\d+", "0", re.sub(r"'[^']*'", "''", problem.reason))


def problem_lines(where: str, reason: str, more: str = "") -> list[str]:
    """Return the lines of a problem without its hint; long names are shortened."""
    first, *following = (f"{where}: {reason}" if where else reason).split("\n")  # line breaks in names are escaped
    lines = [first, *(f"  {line}" for line in following), *([f"  {more}"] if more else [])]
    return [shorten_names(line) for line in lines]


def shorten_names(text: str) -> str:
    """Return the text with long quoted names shortened, except in suggestions."""
    fact, suggestion, names = text.partition("did you mean")
    return re.sub(r"'([^'\s]+)'", lambda match: f"'{shorten(match[1])}'", fact) + suggestion + names


def error_json(error: ConversionError) -> dict[str, Any]:
    """Return an error as JSON."""
    problems = [{"where": p.where, "reason": p.reason, "hint": p.hint} for p in error.problems]
    return {
        "error": {
            "kind": type(error).__name__,
            "message": error.message,
            "problems": problems,
            "exit_code": error.exit_code,
        }
    }


def _internal_error_lines(error: Exception) -> list[str]:
    """Return the lines of an internal error: its location, and how to report it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return [
        f"internal error: {type(error).__name__}: {error}".rstrip(": "),
        f"in {frame.name}, {frame.filename}:{frame.lineno}",
        "this is a bug; please report it with this text and the model, or the output of `inspect --json`",
        f"{DEBUG}=1 shows the traceback",
    ]
