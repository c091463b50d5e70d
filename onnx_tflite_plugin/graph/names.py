"""Unique and shortened names, and names of graph inputs and outputs in options."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from onnx_tflite_plugin.checked import list_first
from onnx_tflite_plugin.errors import UnsupportedOption

T = TypeVar("T")


MAX_INTERNAL_NAME = 80
"""Maximum length of a TFLite name inside the name of an internal value, before suffixes."""
OMISSION = "…"
"""Character in place of the middle of a long name in messages."""
_MAX_MATCHES = 4
"""Maximum number of matching names that a message lists."""
_MAX_OPERATION = 16
"""Characters reserved for the operation, the last part of a name.

Scopes get the remaining characters, so that the names of all tensors of a layer begin alike.
"""
_MAX_SUFFIXED_NAME = 120
"""Maximum length of a name with suffixes, without the number that makes it unique."""
_MIN_SCOPE_SHARE = 0.6
"""Share of the limit that whole scopes must fill. Otherwise a shortened name begins at a word within a scope."""
_PYTHON_MODULE = re.compile(r"(?<![^/])(?:[A-Za-z_]\w*\.)+(?=_*[A-Z])")
"""``torch.nn.modules.linear.`` before a class; PyTorch's exporter writes it in every scope."""
_QUANTIZER = re.compile(r"(?<=[^/])/FakeQuantWithMinMaxVars(PerChannel)?$")
"""The operation that rounds a tensor during training."""
_NUMBERED = re.compile(r"(.+)#\d+$", re.DOTALL)
_BOUNDARIES = (r"[/;:]+(?=.*[A-Za-z])(.*[^/;:].*)", r"_(?=[A-Za-z])(.+)")
"""Patterns of the places where a shortened name may begin: after a scope, or after a word."""


def shorten_name(name: str, limit: int = MAX_INTERNAL_NAME, outer_scopes: str = "") -> str:
    """Return the operation in a name and its innermost scopes, at most ``limit`` long.

    TFLite's converter joins the names of fused operations with ``;``. The first operation computes the result, and its
    name is kept. The following names may belong to another layer, because the converter merges equal constants. Scopes
    are cut to a length that does not depend on the operation, so weights, bias and result of a layer keep the same
    scopes. ``outer_scopes``: scopes to remove first, from :func:`shared_scopes`.
    """
    name = _clean_name(name).removeprefix(outer_scopes)
    scopes, slash, operation = name.rpartition("/")
    is_short_operation = len(slash + operation) <= _MAX_OPERATION
    if is_short_operation and limit > _MAX_OPERATION:
        return f"{_keep_end(scopes, limit - _MAX_OPERATION)}{slash}{operation}".lstrip("/")
    return _keep_end(name, limit)


def common_scopes(names: Iterable[str]) -> list[str]:
    """Return the scopes with which all names begin."""
    scopes_by_depth = zip(*(name.split("/") for name in names), strict=False)
    return [scopes[0] for scopes in itertools.takewhile(lambda scopes: len({*scopes}) == 1, scopes_by_depth)]


def _clean_name(name: str) -> str:
    """Return the first operation, without Python modules and the quantizer's suffix."""
    return _QUANTIZER.sub("", _PYTHON_MODULE.sub("", first_operation(name)))


def shared_scopes(names: Iterable[str]) -> str:
    """Return the outer scopes to remove from all names, with a slash at the end.

    All names that :func:`shorten_name` would cut begin with these scopes. The result has only as many scopes as must be
    removed so that no name is cut. Short names lose these scopes too, so that all names of a block begin alike.
    """
    long_names = [name for name in map(_clean_name, names) if shorten_name(name) != name]
    if not all("/" in name for name in long_names):
        return ""
    prefix = ""
    for scope in common_scopes([name.rpartition("/")[0] for name in long_names]):
        prefix += f"{scope}/"
        shorter_names = [name.removeprefix(prefix) for name in long_names]
        if all(shorten_name(name) == name for name in shorter_names):
            break
    return prefix


def _keep_end(name: str, limit: int) -> str:
    """Return up to ``limit`` characters of a name's end, from a whole scope or word."""
    if len(name) <= limit:
        return name
    end = name[-limit - 1 :]
    candidates = [match[1] for boundary in _BOUNDARIES if (match := re.search(boundary, end, re.DOTALL))]
    if candidates and len(candidates[0]) >= _MIN_SCOPE_SHARE * limit:
        return candidates[0]
    return max(candidates, key=len, default=end[1:].lstrip("/;:"))


def with_suffix(name: str, suffix: str) -> str:
    """Return a name with a suffix; a very long name is cut at its front."""
    limit = max(_MAX_SUFFIXED_NAME - len(suffix), 1)
    return (name if len(name) <= limit else shorten_name(name, limit)) + suffix


def first_operation(name: str) -> str:
    """Return the first operation in a name, which computes the tensor."""
    return next((entry for entry in name.split(";") if re.search("[A-Za-z]", entry)), name)


def without_number(name: str) -> str:
    """Return a name without the suffix ``#n`` of :meth:`UniqueNames.unique`."""
    match = _NUMBERED.match(name)
    return match[1] if match else name


class UniqueNames:
    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def claim(self, name: str) -> None:
        """Mark a name as used; it may be used already."""
        self._next.setdefault(name, 1)

    def is_used(self, name: str) -> bool:
        """True if the name is in use."""
        return name in self._next

    def unique(self, name: str) -> str:
        """Return ``name``, or ``name#1``, ``name#2``, ... if it is in use."""
        if name not in self._next:
            self._next[name] = 1
            return name
        while True:
            number = self._next[name]
            self._next[name] += 1
            candidate = f"{name}#{number}"
            if candidate not in self._next:
                self._next[candidate] = 1
                return candidate


def unusable_names(new: Sequence[str], taken: Collection[str]) -> list[str]:
    """Return the new names that are empty, in use, or repeated."""
    return [name for name in new if not name or name in taken or new.count(name) > 1]


def expand_name(name: str, known: Iterable[tuple[str, Hashable]], flag: str) -> str:
    """Return the full name for a name whose middle is omitted; other names unchanged.

    ``known``: pairs of a name and what it refers to. ``flag``: the option, for messages. Raises UnsupportedOption if
    several known names match.
    """
    head, omission, tail = name.partition(OMISSION)
    pairs = list(known)
    if not omission or any(name == full_name for full_name, _ in pairs):
        return name
    matches = {
        full_name: referent
        for full_name, referent in pairs
        if len(full_name) > len(head) + len(tail) and full_name.startswith(head) and full_name.endswith(tail)
    }
    if len({*matches.values()}) > 1:
        matching_names = list_first([*matches], _MAX_MATCHES)
        raise UnsupportedOption(
            f"{flag} {name}: {len(matches)} names match; give one of them in full: {matching_names}"
        )
    return next(iter(matches), name)


def describe_key(key: str, names: Collection[str], *, quoted: bool = False) -> str:
    """Return a description of an unknown key: ``name``, or ``position, only 0 to 2``.

    ``quoted``: include the key.
    """
    if key.removeprefix("-").isdecimal():
        positions = "only 0" if len(names) == 1 else f"only 0 to {len(names) - 1}"
        return f"position {key}, {positions}" if quoted else f"position, {positions}"
    return f"name {key!r}" if quoted else "name"


def resolve_keys(
    values: Mapping[str, T], names: Sequence[str], stored: Sequence[str], flag: str, positions: int | None = None
) -> dict[str, T]:
    """Return ``values`` with their keys resolved to names; unknown keys are unchanged.

    A key is a name, the name of the TFLite tensor, or a position. The middle of a name may be omitted. ``names`` and
    ``stored``: the name and the TFLite name of each graph input or output. ``positions``: the number of leading names
    that may be given by position; by default all. ``flag``: the option, for messages. Raises UnsupportedOption if two
    keys resolve to the same name.
    """
    resolved: dict[str, T] = {}
    pairs = [*zip(names, names, strict=True), *zip(stored, names, strict=True)]
    for user_key, value in values.items():
        name = key = expand_name(user_key, pairs, flag)
        if key not in names and stored.count(key) == 1:
            name = names[stored.index(key)]
        elif key not in names and key.isdecimal() and int(key) < (len(names) if positions is None else positions):
            name = names[int(key)]
        if name in resolved:
            raise UnsupportedOption(f"{flag} {key}: {name!r} is given twice; give it once, under either name")
        resolved[name] = value
    return resolved
