"""Command options in groups, generated from the fields of option dataclasses."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from math import isnan
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click

from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.cli.failures import UsageProblem, tolerance_remedy
from onnx_tflite_plugin.cli.paths import FilePath, join_command, missing_file_remedy
from onnx_tflite_plugin.installed import target_names
from onnx_tflite_plugin.options import (
    ADVANCED,
    COMMON,
    LAYOUT,
    NAMES,
    QUANTIZATION,
    SHAPES,
    VERIFICATION,
    Option,
    options_of,
)

if TYPE_CHECKING:
    _ParamType = click.ParamType[str]
else:
    _ParamType = click.ParamType  # not generic in older versions of click


_ARGS = "onnx_tflite_plugin.arguments"
"""Key of the command's arguments in the context."""
_OUTPUT_GROUP = "Output"
ORDER = (COMMON, SHAPES, LAYOUT, QUANTIZATION, VERIFICATION, ADVANCED, _OUTPUT_GROUP)


DATA_OPTIONS = ("inputs", "ranges", "seed", "runs", "tolerance")
"""Options about the data and the tolerance of a comparison."""

_OUTPUT_OPTIONS = ("-o", "--out", "--output")
"""Options of other tools that name the output file."""

_DTYPE_OPTIONS = ("--dtype", "--fp16", "--float16", "--half", "--precision")
"""Options of other tools for the dtype of the model."""


class GroupedCommand(click.Command):
    """Command whose help lists its options by group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        The error for another tool's output option, such as ``-o``, names the argument to use instead.
        """
        original_args = tuple(args)  # click consumes the list
        ctx.meta[_ARGS] = original_args
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            extra_match = re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", error.message)
            if extra_match:
                raise click.UsageError(self._describe_extra(ctx, original_args, extra_match[1]), ctx) from None
            if not isinstance(error, click.NoSuchOption):
                raise
            if error.option_name in _DTYPE_OPTIONS and self.name == "convert":
                text = f"No such option {error.option_name!r}: the ONNX model has the dtypes of the TFLite file; "
                raise click.UsageError(
                    f"{text}--quantization float converts quantized operators to float32", ctx
                ) from None
            if error.option_name not in _OUTPUT_OPTIONS or all(param.name != "output" for param in self.params):
                raise
            usage = " ".join(self.collect_usage_pieces(ctx)[1:])
            text = f"No such option {error.option_name!r}: give the output file as an argument: {usage}"
            raise click.UsageError(text, ctx) from None

    def _describe_extra(self, ctx: click.Context, args: Sequence[str], extra_arguments: str) -> str:
        """Return an error text for extra arguments, with the likely remedy."""
        arguments = self.collect_usage_pieces(ctx)[1:]
        text = f"{self.name} takes {' and '.join(arguments)}, but got an extra argument {extra_arguments!r}"
        for param in self.params:
            if not isinstance(param, click.Option) or not isinstance(param.type, click.Choice) or param.is_flag:
                continue
            flag = param.opts[0]
            if isinstance(param.flag_value, str) and flag in args and extra_arguments in param.type.choices:
                return f"{text}; attach the value to {flag} with '=': {flag}={extra_arguments}"
        if remedy := tolerance_remedy(extra_arguments, ctx):
            return f"{text}; {remedy}"
        if self.name == "convert":
            return f"{text}; to convert several models, give their folder, or run the command once for each"
        return f"{text}; a path with spaces needs quotes"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                groups.setdefault(getattr(param, "group", _OUTPUT_GROUP), []).append(record)
        for group in sorted(groups, key=ORDER.index):
            with formatter.section(group):
                formatter.write_dl(groups[group])


class GroupedOption(click.Option):
    """Option that the help lists in its group.

    An option with a ``flag_value`` takes an optional value, attached with ``=``. ``synonyms``: flags of similar tools;
    the error for such a flag suggests this option.
    """

    def __init__(self, *flags: Any, group: str, synonyms: Sequence[str] = (), **arguments: Any) -> None:
        super().__init__(*flags, **arguments)
        self.group = group
        self.synonyms = synonyms

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Register the option, and make its value optional.

        By default click would take the argument after ``--verify`` as the option's value.
        """
        super().add_to_parser(parser, ctx)
        if self.is_flag or not isinstance(self.flag_value, str):
            return
        match = parser._match_long_opt
        parser._match_long_opt = lambda opt, value, state: match(
            opt, self.flag_value if value is None and opt in self.opts else value, state
        )


def add_options(cls: Any, *names: str, **changes: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds options of a dataclass to a command.

    ``names``: the options to add; all by default. ``changes``: arguments of ``click.option`` for all of them.
    """
    selected_options = [option for option in options_of(cls) if not names or option.name in names]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(selected_options):
            arguments = {**_arguments(option), **changes}
            command = click.option(option.flag, option.name, cls=GroupedOption, group=option.group, **arguments)(
                command
            )
        return command

    return decorate


def _arguments(option: Option) -> dict[str, Any]:
    """Return click's arguments for an option."""
    common_arguments = {"help": option.help, "metavar": option.metavar, "synonyms": option.synonyms}
    if option.type is bool:
        return {**common_arguments, "is_flag": True}
    if option.is_repeatable:
        return {
            **common_arguments,
            "help": f"{option.help} Repeatable.",
            "multiple": True,
            "callback": _repeated_values_callback(option),
        }
    if option.values:
        choice = click.Choice(option.values)
        return {
            **common_arguments,
            "type": choice,
            "is_flag": False,
            "flag_value": option.values[0],
            "metavar": f"[={'|'.join(option.values)}]",
        }
    return {
        **common_arguments,
        "type": _type(option),
        "default": option.default,
        "show_default": option.default is not None,
    }


def _repeated_values_callback(option: Option) -> Callable[..., Any]:
    """Return click's callback that combines the values of a repeatable option."""
    if option.metavar == NAMES:
        return _keep_names
    if get_origin(option.type) is Sequence:
        return _split_names
    return pair_callback(str(option.metavar), _PARSERS[option.name])


def _type(option: Option) -> Any:
    """Return click's type of an option with one value."""
    (kind, *_) = [member for member in get_args(option.type) or (option.type,) if member is not NoneType]
    if option.name == "target":
        return TargetName()
    if option.choices:
        return click.Choice(option.choices)
    if option.minimum is not None:
        return _number_range(kind, option.minimum, option.maximum)
    return FilePath() if kind is Any else kind


def _number_range(kind: type, minimum: float, maximum: int | None) -> click.IntRange | click.FloatRange:
    """Return click's type of a number in a range, named to fit click's message."""
    if kind is not int:
        return _MinimumNumber(min=minimum)
    number = click.IntRange(min=int(minimum), max=maximum)
    number.name = "integer"
    return number


class _MinimumNumber(click.FloatRange):
    """A number >= ``min``. The error for a percentage suggests the number to give."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            percentage = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", str(value))
            if percentage is None:
                raise
            number = f"{float(percentage[1]) / 100:.12g}"
            self.fail(f"{error.message.rstrip('.')}; {percentage[1]} % is {number}", param, ctx)


# --- values -----------------------------------------------------------------------------------


class TargetName(_ParamType):
    """Name of a target, read from metadata of installed packs, without imports."""

    name = "target"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(target_names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        names = target_names()
        text = str(value)
        name = text if text in names else text.lower()
        if name not in names:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, names))}{did_you_mean(name, names)}", param, ctx)
        return name


def pair_callback(metavar: str, parse: Callable[[str], Any]) -> Callable[..., Mapping[str, Any]]:
    """Return a callback that parses repeated options such as ``NAME=VALUE``.

    ``metavar``: the form of the value. A string is split at the last ``=``, because names may contain ``=``. ``parse``
    raises ValueError with a message for the user; messages of Python's own ValueErrors must not pass through.
    """

    def callback(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> Mapping[str, Any]:
        values: dict[str, Any] = {}
        for text in texts:
            name, _, value = text.rpartition("=")
            try:
                if not name or not value:
                    raise ValueError
                if name in values:
                    raise click.BadParameter(f"{name!r} is given more than once", ctx, param)
                values[name] = parse(value)
            except ValueError as error:
                reason = f": {error}" if str(error) else f" is not of the form {metavar}"
                key, _, _ = metavar.partition("=")
                if text and "=" not in text and key in ("NAME", "TENSOR"):
                    reason = f" names no input; write {key}={text}, or 0={text} for the first input"
                raise click.BadParameter(f"{text!r}{reason}", ctx, param) from None
        return values

    return callback


def _parse_range(text: str) -> tuple[float, float]:
    """Return minimum and maximum of a string such as ``-1:1``. Raises ValueError."""
    low, _, high = text.partition(":")
    try:
        minimum, maximum = float(low), float(high)
    except ValueError:
        raise ValueError from None
    if isnan(minimum) or isnan(maximum):
        raise ValueError
    if minimum > maximum:
        raise ValueError(f"the minimum {low} exceeds the maximum {high}")
    return minimum, maximum


def _parse_sizes(text: str) -> tuple[int | str, ...]:
    """Return the sizes of ``1,224,224,3`` or ``N,224,224,3``. Raises ValueError."""
    parts = [part.strip() for part in text.split(",")]
    invalid_size = next((part for part in parts if not part.isdigit() and not part.isidentifier()), None)
    if invalid_size is not None:
        separator = "; separate sizes by commas" if re.fullmatch(r"\w+([x*:/ ;]\w+)+", invalid_size) else ""
        raise ValueError(f"{invalid_size!r} is not a size: give a number, or a name for a dynamic dimension{separator}")
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _keep_names(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the values that are not empty.

    Tensor names may contain commas, so the conversion splits the values, not the command line.
    """
    return tuple(text for text in texts if text)


def _split_names(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names in repeated or comma-separated values."""
    return tuple(name for text in texts for name in text.split(",") if name)


def single_value(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> str | None:
    """Return the value of an option that may be given once.

    Raises BadParameter if it is given more than once; click would silently use the last value.
    """
    if len(texts) > 1:
        raise click.BadParameter(
            f"{' and '.join(map(repr, texts))} are given; run the command once for each", ctx, param
        )
    return texts[0] if texts else None


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "ranges": _parse_range,
    "input_shape": _parse_sizes,
    "layout": str,
    "rename": str,
}


def forwarded_options(ctx: click.Context, names: Collection[str]) -> list[str]:
    """Return options of the command line with their values, for another command.

    ``names``: the parameters whose options are returned.
    """
    options = {flag: param for param in ctx.command.params if isinstance(param, click.Option) for flag in param.opts}
    forwarded_words: list[str] = []
    arguments = iter(ctx.meta.get(_ARGS, ()))
    for argument in arguments:
        option = options.get(argument.partition("=")[0])
        if option is None:
            continue
        is_single_word = option.is_flag or option.count or "=" in argument or isinstance(option.flag_value, str)
        option_words = [argument] if is_single_word else [argument, *itertools.islice(arguments, 1)]
        forwarded_words += option_words if option.name in names else []
    return forwarded_words


def bisect_line(tflite: Path, onnx: Path, options: Sequence[str]) -> str:
    """Return a hint with the command that writes the submodels that differ.

    ``options``: further options of the command.
    """
    command = join_command(["onnx-tflite", "verify", str(tflite), str(onnx), *options])
    return f"{command} --bisect DIR writes the submodels that differ"


def check_exists(path: Path | None) -> Path | None:
    """Return the path of ``--inputs``. Raises UsageProblem if it does not exist."""
    if path is not None and not path.exists():
        raise UsageProblem(f"--inputs {path}: there is no such file or folder{missing_file_remedy(path)}")
    return path
