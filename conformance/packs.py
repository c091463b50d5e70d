"""Which cases there are: the built-in ones, and those that op packs bring along as entry points.

[options.entry_points]
onnx_tflite_plugin.cases =
    my_pack = my_pack.cases:cases        ; a list of cases, or a function that returns or yields them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions

from onnx_tflite_plugin.errors import PackError, Problem
from onnx_tflite_plugin.host import BUILTIN, Host, canonical

from .case import Case
from .cases import builtin

GROUP = "onnx_tflite_plugin.cases"


@dataclass(frozen=True)
class Suite:
    """The host to try, the handlers on trial by (operator, pack), and the cases."""

    host: Host
    handlers: tuple[tuple[str, str], ...]
    cases: tuple[Case, ...]


def suite(pack: str | None = None, op: str | None = None) -> Suite:
    """What a run takes in: everything installed, or one pack and one operator.

    A pack that overrides a built-in handler must pass its cases too. Raises PackError for cases that do not load, and
    for a pack that is not installed.
    """
    host = Host() if pack is None else Host(packs=[pack])
    chosen = canonical(pack or "")
    handlers = [(code, dist) for code, dist, _ in host.handlers() if pack is None or canonical(dist) == chosen]
    if pack is not None and not handlers and chosen != canonical(BUILTIN):
        raise PackError(
            "nothing to try:",
            [Problem(pack, "no such pack is installed, or it has no handlers", f"pip install {pack}")],
        )
    mine = {code for code, _ in handlers}
    found = [case for case in builtin() if pack is None or case.op in mine]
    for dist, entry in _entries():
        if pack is None or canonical(dist) == chosen:
            found += _loaded(dist, entry)
    kept = {id(case): case for case in found if op is None or case.op == op}
    return Suite(host, tuple(pair for pair in handlers if op is None or pair[0] == op), tuple(kept.values()))


def _entries() -> Iterator[tuple[str, EntryPoint]]:
    """(pack, entry point), each once: a distribution may be on the path twice."""
    seen = set()
    for distribution in distributions():
        dist = distribution.metadata["Name"] or "unknown"
        for entry in distribution.entry_points:
            if entry.group == GROUP and (dist, entry.name) not in seen:
                seen.add((dist, entry.name))
                yield dist, entry


def _loaded(dist: str, entry: EntryPoint) -> list[Case]:
    where = f"{entry.name} = {entry.value} of {dist}"
    try:
        given = entry.load()
        cases: Iterable[object] = given() if callable(given) else given
        found = list(cases)
    except Exception as error:
        raise PackError(
            "the cases of an op pack could not be loaded:", [Problem(where, f"{type(error).__name__}: {error}")]
        ) from error
    for case in found:
        if not isinstance(case, Case):
            raise PackError(
                "the cases of an op pack could not be loaded:",
                [Problem(where, f"it holds a {type(case).__name__}, not a Case")],
            )
    return [case for case in found if isinstance(case, Case)]
