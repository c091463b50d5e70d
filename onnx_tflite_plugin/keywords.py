"""Messages about options for Python: keywords in place of the command's flags."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import get_args, get_origin

from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.installed import target_names
from onnx_tflite_plugin.options import ConvertOptions, Option, VerifyOptions, options_of

FROM_COMMAND: ContextVar[bool] = ContextVar("from_command", default=False)
"""True while a command runs, whose messages name flags."""

_FLAG = re.compile(r"(--[a-z]+(?:-[a-z]+)*)(?: ([^\s;]*[^\s;,:.]))?(:?)")


@contextmanager
def name_keywords() -> Iterator[None]:
    """Replace the flags in an UnsupportedOption by keywords, unless a command runs."""
    try:
        yield
    except UnsupportedOption as error:
        if not FROM_COMMAND.get():
            error.message = keywords_of(error.message)
            error.args = (keywords_of(str(error)), *error.args[1:])
        raise


def keywords_of(text: str) -> str:
    """Return the text with ``opset=9`` for ``--opset 9``."""
    options = {option.flag: option for cls in (ConvertOptions, VerifyOptions) for option in options_of(cls)}

    def keyword(match: re.Match[str]) -> str:
        option, value, colon = options.get(match[1]), match[2] or "", match[3]
        if option is None:
            return match[0]
        argument = _argument(option, value, is_subject=bool(colon))
        return f"{argument}{colon}" if argument else f"{_bare(option)}{f' {value}' if value else ''}{colon}"

    return _FLAG.sub(keyword, text)


def _bare(option: Option) -> str:
    return f"{option.name}=True" if option.type is bool else option.name


def _argument(option: Option, value: str, *, is_subject: bool) -> str:
    """Return ``name=value``.

    Empty if the word after the flag is no value. ``is_subject``: a colon follows it.
    """
    if not value or option.type is bool:
        return ""
    origin = get_origin(option.type)
    if origin is Mapping:
        key, equals, entry = value.rpartition("=")
        if equals:
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
    """Return the values of an option of any text that have a name: the targets, or the lower-case forms in its metavar."""
    if option.name == "target":
        return target_names()
    return [form for form in (option.metavar or "").split("|") if form.islower()]
