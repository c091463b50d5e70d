"""Collect the cases: the built-in ones, and those that op packs register as entry points.

[options.entry_points]
onnx_tflite_plugin.cases =
    my_pack = my_pack.cases:cases        ; a list of cases, or a function that returns or yields them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from conformance.case import Case
from conformance.cases import builtin
from onnx_tflite_plugin.checked import describe
from onnx_tflite_plugin.errors import PackError, Problem
from onnx_tflite_plugin.guard import BUILTIN, Failed, Mismatch, attribute_errors
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.offers import canonical
from onnx_tflite_plugin.installed import entry_points, iterate_distributions

GROUP = "onnx_tflite_plugin.cases"


@dataclass(frozen=True)
class Suite:
    """The host to try, the handlers and fusions on trial by (operator or name, pack), and the cases.

    ``packs``: by operator, the pack that serves it, else the one that brings cases of it. ``problems``: cases of theirs that
    could not be loaded; ``passed_over``: cases of others that could not.
    """

    host: Host
    handlers: tuple[tuple[str, str], ...]
    fusions: tuple[tuple[str, str], ...]
    cases: tuple[Case, ...]
    packs: Mapping[str, str]
    problems: tuple[Problem, ...] = ()
    passed_over: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems of other installed packs found so far."""
        return (*self.host.warnings, *self.passed_over)


def suite(pack: str | None = None, op: str | None = None) -> Suite:
    """Select the cases of a run: everything installed, or one pack and one operator.

    A pack that overrides a built-in handler must pass the built-in cases too. Raises PackError if the pack is not installed or
    its cases do not load. Cases of other packs that do not load are a problem, or a note if ``op`` is another operator.
    """
    host, chosen = Host(), canonical(pack or "")
    offered = any(canonical(offer.pack) == chosen for offer in host.offers)
    others = ", ".join(sorted({offer.pack for offer in host.offers if offer.pack != BUILTIN})) or "none"
    if offered:
        host = Host(packs=[chosen])
    handlers = [(code, dist) for code, dist in host.serving() if pack is None or canonical(dist) == chosen]
    entries = [(dist, entry) for dist, entry in _entries() if pack is None or canonical(dist) == chosen]
    if pack is not None and not offered and not entries:
        reason = f"no installed distribution of that name has handlers, fusions or cases; installed packs: {others}"
        hint = "pip install -e DIR, where DIR holds the pack's setup.cfg"
        raise PackError("nothing to try:", [Problem(pack, reason, hint)])
    mine = {code for code, _ in handlers}
    shared = pack is None or any(dist == BUILTIN and code in mine for code, dist in host.serving())
    cases = [case for case in (builtin() if shared else ()) if pack is None or case.op in mine]
    packs = dict.fromkeys((case.op for case in cases), BUILTIN)
    problems, notes = [], []
    for dist, entry in entries:
        try:
            loaded = _load_cases(dist, entry)
            cases += loaded
            packs |= dict.fromkeys((case.op for case in loaded), dist)
        except Failed as failed:
            problem = Problem(f"{entry.name} = {entry.value} of {dist}", failed.reason)
            if pack is not None:
                raise PackError("the cases of an op pack could not be loaded:", [problem]) from failed
            if op is None or (op, dist) in handlers:
                problems.append(problem)
            else:
                notes.append(str(problem))
    kept = {id(case): case for case in cases if op is None or case.op == op}
    tried = tuple(pair for pair in handlers if op is None or pair[0] == op)
    fusions = [(one.name, dist) for dist, one in host.fusions() if pack is None or canonical(dist) == chosen]
    packs |= {**dict(fusions), **dict(handlers)}
    return Suite(
        host, tried, tuple(fusions) if op is None else (), tuple(kept.values()), packs, tuple(problems), tuple(notes)
    )


def brought() -> dict[str, tuple[int, str]]:
    """By pack, how many cases it brings, and why they do not load where they do not."""
    counted: dict[str, tuple[int, str]] = {}
    for dist, entry in _entries():
        count, failure = counted.get(dist, (0, ""))
        try:
            counted[dist] = count + len(_load_cases(dist, entry)), failure
        except Failed as failed:
            counted[dist] = count, failed.reason
    return counted


def _entries() -> Iterator[tuple[str, EntryPoint]]:
    """(pack, entry point), each once: a distribution may be on the path twice."""
    seen = set()
    for distribution in iterate_distributions():
        try:
            entries = [*entry_points(distribution.entry_points_text, [GROUP])]
        except ValueError:  # which the host tells
            continue
        dist = distribution.name_and_requirements()[0] if entries else ""
        for entry in entries:
            if (dist, entry.name) not in seen:
                seen.add((dist, entry.name))
                yield dist, entry


def _load_cases(dist: str, entry: EntryPoint) -> list[Case]:
    """The cases after an entry point. Raises Failed."""
    with attribute_errors(f"cases {entry.name}", dist, entry.value.partition(":")[0]):
        given = entry.load()
        cases: Iterable[object] = given() if callable(given) else given
        loaded = []
        for case in cases:
            if not isinstance(case, Case):
                raise Mismatch(f"it holds {describe(case)}, not a Case")
            loaded.append(case)
        return loaded
