"""Runtime type checks of declarations and options, and their messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache, partial, wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, ParamSpec, Self, TypeVar, Union, get_args, get_origin, get_type_hints

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


MEANING = "meaning"
"""Metadata key of a field: the meaning of its value with an example, for error messages."""


class Checked:
    """A frozen dataclass that checks its fields against their annotations.

    Raises TypeError for a value of a wrong type, and for an unknown keyword. The message suggests a similar field.
    """

    def __new__(cls, *args: Any, **keywords: Any) -> Self:
        known = getattr(cls, "__dataclass_fields__", keywords)
        if any(name not in known for name in keywords) and (accepted := _keywords(cls)) is not None:
            check_keywords(cls.__name__, keywords, accepted)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name, hint in _hints(cls):
            value = getattr(self, name)
            if not has_type(value, hint):
                meaning = cls.__dataclass_fields__[name].metadata.get(MEANING)
                raise TypeError(
                    f"{type(self).__name__}({name}=...) takes {format_type(hint)}{(meaning and f' ({meaning})') or ''}, "
                    f"not {_describe_content(value)}"
                    f"{_quoted_names_remedy(value) if hint is str else _base_class_remedy(value, hint)}"
                )


def _keywords(cls: Any) -> Collection[str] | None:
    """Return the keywords that a class accepts; None if it accepts any keyword."""
    parameters = signature(cls.__init__).parameters
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else [*parameters][1:]


def _quoted_names_remedy(value: object) -> str:
    """Return the remedy for a list of names in place of a string: ``; write "h w"``."""
    has_names = isinstance(value, tuple | list) and all(isinstance(item, str) for item in value)
    return f'; write "{" ".join(value)}"' if has_names and isinstance(value, tuple | list) else ""


def _base_class_remedy(value: object, hint: Any) -> str:
    """Return the remedy for a missing base: ``; derive Offsets from Behavior``."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    bases = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Checked)]
    is_from_pack = type(value).__module__.partition(".")[0] not in ("builtins", "numpy", "onnx_tflite_plugin")
    is_instance = not isinstance(value, type) and not callable(value)
    return f"; derive {type(value).__name__} from {bases[0].__name__}" if is_from_pack and is_instance and bases else ""


@cache
def _hints(cls: Any) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(cls)
    return tuple((field.name, hints[field.name]) for field in fields(cls))


def has_type(value: object, hint: Any) -> bool:
    """True if a value has an annotated type.

    The type is a class, a union, a literal, a function, or a mapping or collection of these.
    """
    if hint is Any:
        return True
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(has_type(value, member) for member in arguments)
    if origin is Literal:
        return value in arguments
    if origin is Callable:
        return callable(value) and not isinstance(value, type)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            has_type(k, arguments[0]) and has_type(v, arguments[1]) for k, v in value.items()
        )
    if origin is tuple and arguments[-1] is not ...:
        return isinstance(value, tuple) and len(value) == len(arguments) and all(map(has_type, value, arguments))
    if origin in (tuple, Collection, Sequence):
        return (
            isinstance(value, origin)
            and not isinstance(value, str | bytes)
            and all(has_type(item, arguments[0]) for item in value)
        )
    number_class = {int: Integral, float: Real}.get(hint)
    if number_class is not None:
        return isinstance(value, number_class) and not isinstance(value, bool)
    return isinstance(value, origin or hint or NoneType)


def find_mismatch(value: object, hint: Any) -> tuple[str, object]:
    """Return the keys and the value of the first entry of a wrong type.

    For a value without entries, return no keys and the value itself.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    entries: Iterable[tuple[object, object]] = ()
    if origin is Mapping and isinstance(value, Mapping):
        wrong_keys = [key for key in value if not has_type(key, arguments[0])]
        if wrong_keys:
            return "'s key", wrong_keys[0]
        entries, arguments = value.items(), arguments[1:]
    elif origin is Sequence and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        entries = enumerate(value)
    for key, entry in entries:
        if not has_type(entry, arguments[0]):
            inner_keys, wrong_value = find_mismatch(entry, arguments[0])
            return f"[{key!r}]{inner_keys}", wrong_value
    return "", value


def format_type(hint: Any) -> str:
    """Return an annotated type for messages: ``Implicit, Transparent or a function``."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        *first_types, last_type = [format_type(member) for member in arguments]
        return f"{', '.join(first_types)} or {last_type}"
    if origin is Literal:
        *first_values, last_value = map(repr, arguments)
        return f"{', '.join(first_values)} or {last_value}" if first_values else last_value
    if origin is Callable:
        return "a function"
    if origin is Mapping:
        return f"a mapping of {format_type(arguments[0])} to {format_type(arguments[1])}"
    if origin in (tuple, Collection, Sequence):
        return f"a {origin.__name__.lower()} of {', '.join(format_type(item) for item in arguments if item is not ...)}"
    return "None" if hint is NoneType else "anything" if hint is Any else (origin or hint).__name__


def describe(value: object) -> str:
    """Return type and value for messages, with a remedy for a class."""
    if isinstance(value, type):
        return f"the class {value.__name__}: write {value.__name__}(...)"
    if isinstance(value, str | int | float):
        return f"the {type(value).__name__} {value!r}"[:80]
    if value is None:
        return "None"
    return f"{'an' if type(value).__name__[0] in 'AEIOUaeiou' else 'a'} {type(value).__name__}"


def _describe_content(value: object) -> str:
    """Return a description of a value, with the content of a small container."""
    if isinstance(value, tuple | list | dict | set | frozenset) and len(text := repr(value)) <= _MAX_CONTENT:
        return f"the {type(value).__name__} {text}"
    return describe(value)


_MAX_CONTENT = 60


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 operand``, ``2 operands``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def list_first(names: Sequence[str], limit: int) -> str:
    """Return the first names and the number of omitted names: ``a, b and 3 more``."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def format_shape(sizes: Iterable[int | str | None]) -> str:
    """Return a shape as text: ``[batch, 224, ?, 3]``; ``?`` is an unnamed dimension."""
    return f"[{', '.join('?' if size is None else str(size) for size in sizes)}]"


def operand_limits(function: Callable[..., Any]) -> tuple[int, int | None] | None:
    """Return the minimum and maximum number of operands of a lowering or kernel.

    The first parameter is not an operand. A maximum of None means any number. Return None for a function without a
    signature.
    """
    try:
        parameters = [*signature(function).parameters.values()]
    except (TypeError, ValueError):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    minimum = sum(p.default is p.empty for p in positional) - 1
    takes_any_number = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return minimum, None if takes_any_number else len(positional) - 1


def maximum_operands(function: Callable[..., Any]) -> int | None:
    """Return the maximum number of operands of a lowering; None for any number."""
    _, maximum = operand_limits(function) or (0, None)
    return None if maximum is None else max(maximum, 0)


def describe_arity_mismatch(
    function: Callable[..., Any], operands: int, role: str, subject: str = "the operator has"
) -> str:
    """Return a message if a function takes another number of operands; else ""."""
    limits = operand_limits(function)
    if limits is None:
        return ""
    minimum, maximum = limits
    if minimum <= operands and (maximum is None or operands <= maximum):
        return ""
    expected = f"{minimum} to {maximum}"
    if minimum == maximum:
        expected = str(minimum)
    elif operands < minimum:
        expected = f"{minimum} or more"
    first_parameter = " besides its first parameter, ctx" if role == "lowering" and expected == "0" else ""
    remedy = "" if first_parameter else f"; after its first parameter, the {role} needs one parameter per operand"
    return f"{subject} {plural(operands, 'operand')}, the {role} takes {expected}{first_parameter}{remedy}"


def check_keywords(
    function: str, keywords: Iterable[str], known: Collection[str], remedies: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Raise TypeError for an unknown keyword, with a similar known one.

    ``remedies``: remedies for keywords that belong to a different function.
    """
    for name in keywords:
        if name not in known:
            remedy = f"; {remedies[name]}" if name in remedies else did_you_mean(name, known)
            raise TypeError(f"{function} takes no keyword {name!r}{remedy}")


def with_checked_keywords(
    title: str,
    known: Iterable[str],
    examples: Mapping[str, str] = MappingProxyType({}),
    remedies: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator that reports unknown keywords before missing keywords.

    A misspelled required keyword is both unknown and missing. ``known``: keywords that the function takes besides its named
    parameters. ``examples``: values of required keywords, for the message if one is missing. ``remedies``: remedies for
    keywords that belong to a different function.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        parameter_names = (name for name, p in signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD)
        accepted = [*parameter_names, *known]
        required = [name for name, p in signature(function).parameters.items() if _is_required_keyword(p)]

        @wraps(function)
        def checked(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
            check_keywords(title, keywords, accepted, remedies)
            for name in required:
                if name not in keywords:
                    example = f", such as {examples[name]}" if name in examples else ""
                    raise TypeError(f"{title} requires {name}={example}")
            return function(*arguments, **keywords)

        return checked

    return decorate


def _is_required_keyword(parameter: Parameter) -> bool:
    return parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'layout'?``, or an empty text without a similar name.

    A known name is also similar if it abbreviates ``name`` (Sub for Subtract), or if ``name`` abbreviates the known name
    (trt for tensorrt).
    """
    from difflib import get_close_matches

    names = list(known)
    equal_without_case = [candidate for candidate in names if candidate.lower() == name.lower()]
    similar = (
        equal_without_case
        or get_close_matches(name, names, 1)
        or sorted(filter(partial(_is_abbreviation, name), names), key=len)[-1:]
        or [candidate for candidate in names if has_letters(candidate, name)]
    )
    return f"; did you mean {similar[0]!r}?" if similar else ""


def append_clause(text: str, clause: str) -> str:
    """Return a text and a clause, in brackets if the text ends with a question mark."""
    if not clause:
        return text
    return f"{text} ({clause})" if text.endswith("?") else f"{text}, {clause}"


def _is_abbreviation(name: str, known: str) -> bool:
    """True if the name begins with a known name of three letters or more."""
    return len(known) >= 3 and name.lower().startswith(known.lower())


def has_letters(known: str, name: str) -> bool:
    """True if ``known`` has the letters of ``name`` in order, as tensorrt has trt.

    The name must have three letters or more, and both must begin with the same letter.
    """
    letters = iter(known.lower())
    return len(name) >= 3 and known[:1].lower() == name[0].lower() and all(letter in letters for letter in name.lower())
