"""Messages for Python: keywords in place of the command's flags."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar, get_args, get_origin

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.installed import target_names
from onnx_tflite_plugin.options import BenchOptions, ConvertOptions, Option, VerifyOptions, options_of

FROM_COMMAND: ContextVar[bool] = ContextVar("from_command", default=False)
"""True while a command runs; messages then name flags."""

_FLAG = re.compile(r"(--[a-z]+(?:-[a-z]+)*)(?: ([^\s;]*(?:\.\.\.|[^\s;,:.)])))?(:?)")

_METAVAR = re.compile("[A-Z]{2,}|N")  # placeholder of a value
_OTHER_FLAGS = {"--bisect": "bisect"}
"""Keywords by flag, for flags that belong to no option."""
F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def name_keywords() -> Iterator[None]:
    """Replace the flags in a ConversionError with keywords, unless a command runs."""
    try:
        yield
    except ConversionError as error:
        if not FROM_COMMAND.get():
            error.message = keywords_of(error.message)
            error.problems = tuple(
                replace(problem, reason=keywords_of(problem.reason), hint=keywords_of(problem.hint))
                for problem in error.problems
            )
            error.args = (keywords_of(str(error)), *error.args[1:])
        raise


def adapt_texts(texts: Sequence[str]) -> tuple[str, ...]:
    """Return texts with keywords in place of flags; unchanged while a command runs."""
    return tuple(texts) if FROM_COMMAND.get() else tuple(map(keywords_of, texts))


def document_keywords(function: F) -> F:
    """Add the fields of ConvertOptions to a function's docstring and signature."""
    options = options_of(ConvertOptions)
    descriptions = _describe_options(ConvertOptions)
    function.__doc__ = f"{inspect.getdoc(function)}\n\nKeywords, the fields of ConvertOptions:\n{descriptions}"
    signature = inspect.signature(function)
    parameters = [
        parameter for parameter in signature.parameters.values() if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    option_parameters = [inspect.Parameter(o.name, keyword_only, default=o.default, annotation=o.type) for o in options]
    vars(function)["__signature__"] = signature.replace(parameters=[*parameters, *option_parameters])
    return function


def python_help(option: Option) -> str:
    """Return the help text of an option for callers in Python."""
    return option.python or keywords_of(option.help)


def _describe_options(cls: type) -> str:
    """Return a paragraph for each option of a dataclass."""
    return "\n".join(
        textwrap.fill(
            f"{option.name}: {python_help(option)}", 110,
            initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False,
        )
        for option in options_of(cls)
    )  # fmt: skip


def keywords_of(text: str) -> str:
    """Return the text with ``opset=9`` for ``--opset 9``."""
    options = {option.flag: option for cls in (ConvertOptions, VerifyOptions) for option in options_of(cls)}

    def keyword(match: re.Match[str]) -> str:
        if match[1] in _OTHER_FLAGS:
            return " ".join(filter(None, [_OTHER_FLAGS[match[1]], match[2]])) + match[3]
        option, value, colon = options.get(match[1]), match[2] or "", match[3]
        if option is None:
            return match[0]
        if _METAVAR.fullmatch(value):
            return f"{option.name}={value}{colon}"
        argument = _argument(option, value, is_subject=bool(colon))
        if argument:
            return f"{argument}{colon}"
        return f"{_name_or_true(option)}{f' {value}' if value else ''}{colon}"

    return _FLAG.sub(keyword, text)


def _name_or_true(option: Option) -> str:
    """Return the keyword without a value: ``name``, or ``name=True`` for a boolean."""
    return f"{option.name}=True" if option.type is bool else option.name


def _argument(option: Option, value: str, *, is_subject: bool) -> str:
    """Return ``name=value``, or an empty text if the word after the flag is no value.

    ``is_subject``: a colon follows the word.
    """
    if not value or option.type is bool:
        return ""
    origin = get_origin(option.type)
    if origin is Mapping:
        key, equals, entry = value.rpartition("=")
        if equals:
            if entry == "...":
                return f"{option.name}={{{key!r}: ...}}"
            sizes = ", ".join(size if size.removeprefix("-").isdecimal() else repr(size) for size in entry.split(","))
            return f"{option.name}={{{key!r}: {f'({sizes})' if option.name == 'input_shape' else repr(entry)}}}"
        return f"{option.name}[{value!r}]" if is_subject else ""
    if origin is Sequence:
        return f"{option.name}={[value]!r}" if is_subject or not value.isalpha() else ""
    if int in (option.type, *get_args(option.type)):
        return f"{option.name}={value}" if value.isdecimal() else ""
    if option.choices:
        return f"{option.name}={value!r}" if value in option.choices else ""
    return f"{option.name}={value!r}" if is_subject or value in _named_values(option) else ""


def _named_values(option: Option) -> Collection[str]:
    """Return the predefined values of an option: targets, or words in its placeholder."""
    if option.name == "target":
        return target_names()
    return [word for word in (option.metavar or "").split("|") if word.islower()]


for _class in (VerifyOptions, ConvertOptions, BenchOptions):
    _class.__doc__ = f"{_class.__doc__}\n\nFields:\n{_describe_options(_class)}"
