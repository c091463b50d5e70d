"""Collect the cases: the built-in ones, and those that op packs register as entry points.

[options.entry_points]
onnx_tflite_plugin.cases =
    my_pack = my_pack.cases:cases        ; a list of cases, or a function that returns or yields them
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from conformance.case import Case
from conformance.cases import builtin
from onnx_tflite_plugin.checked import describe, did_you_mean
from onnx_tflite_plugin.errors import PackError, Problem
from onnx_tflite_plugin.guard import BUILTIN, Failed, Mismatch, attribute_errors
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.offers import canonical, discover
from onnx_tflite_plugin.installed import entry_points, iterate_distributions

GROUP = "onnx_tflite_plugin.cases"


@dataclass(frozen=True)
class Suite:
    """The host to try, the handlers and fusions on trial by (operator or name, pack), and the cases.

    ``packs``: by operator, the pack that serves it, else the one that brings cases of it. ``problems``: handlers and cases of
    theirs that could not be loaded; ``passed_over``: cases of others that could not.
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
        """Return the warnings about installed packs that are not among the problems."""
        reported = {problem.reason for problem in self.problems}
        return (*(text for text in self.host.warnings if text not in reported), *self.passed_over)


def suite(pack: str | None = None, op: str | None = None) -> Suite:
    """Select the cases of a run: everything installed, or one pack and one operator.

    A pack that overrides a built-in handler must pass the built-in cases too. Warnings of the host about one pack are problems.
    Raises PackError if the pack is not installed or its cases do not load. Cases of other packs that do not load are a problem,
    or a note if ``op`` is another operator.
    """
    chosen = canonical(pack or "")
    host = _host_to_try(pack)
    handlers = [(code, dist) for code, dist in host.handler_names() if pack is None or canonical(dist) == chosen]
    entries = [(dist, entry) for dist, entry in _entries() if pack is None or canonical(dist) == chosen]
    if pack is not None and not entries and all(canonical(offer.pack) != chosen for offer in discover()):
        raise PackError("nothing to try:", [_missing_pack_problem(pack)])
    mine = {code for code, _ in handlers}
    shared = pack is None or any(dist == BUILTIN and code in mine for code, dist in host.handler_names())
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
    tried = tuple(pair for pair in handlers if op is None or pair[0] == op)
    unloaded = _handler_problems(host, tried, cases)
    fusions = [(one.name, dist) for dist, one in host.fusions() if pack is None or canonical(dist) == chosen]
    problems += unloaded.values()
    if pack is not None:
        problems += _pack_problems(host, pack, unloaded.values())
        notes += {
            f"{o.pack}: {o.too_wide}" for o in discover() if canonical(o.pack) == chosen != BUILTIN and o.too_wide
        }
        others = {code for code, _ in handlers if op not in (None, code)}
        failures = ((code, dist, one) for code, dist, one in host.handlers(others) if isinstance(one, Failed))
        notes += [f"{code}: {failed.reason}" for code, dist, failed in failures if canonical(dist) == chosen]
    kept = {id(case): case for case in cases if (op is None or case.op == op) and case.op not in unloaded}
    packs |= {**dict(fusions), **dict(handlers)}
    return Suite(
        host, tried, tuple(fusions) if op is None else (), tuple(kept.values()), packs, tuple(problems), tuple(notes)
    )


def _host_to_try(pack: str | None) -> Host:
    """Return a host of everything installed, of one pack, or of the built-in one if the pack brings only cases."""
    if pack is None:
        return Host()
    offered = any(canonical(offer.pack) == canonical(pack) for offer in discover())
    return Host(packs=[pack] if offered else "builtin")


def _missing_pack_problem(pack: str) -> Problem:
    names = sorted({offer.pack for offer in discover() if offer.pack != BUILTIN})
    listed = ", ".join(names) or "none"
    reason = (
        f"no installed distribution of that name has handlers, fusions or cases{did_you_mean(pack, names)}; "
        f"installed packs: {listed}"
    )
    return Problem(pack, reason, "pip install -e DIR, where DIR holds the pack's setup.cfg")


def _handler_problems(host: Host, tried: Sequence[tuple[str, str]], cases: Sequence[Case]) -> dict[str, Problem]:
    """Return the handlers on trial that do not load, by operator; their cases would all fail for the same reason."""
    problems = {}
    for code, pack, loaded in host.handlers({code for code, _ in tried}):
        if isinstance(loaded, Failed) and (code, pack) in tried:
            count = sum(case.op == code for case in cases)
            skipped = f"; {count} cases of {code} were not run" if count else ""
            problems[code] = Problem(code, f"{loaded.reason}{skipped}")
    for code in {code for code, _ in tried}:
        packs = sorted({pack for other, pack in tried if other == code and pack != BUILTIN})
        if len(packs) > 1:
            remedy = " or ".join(f"--pack {pack}" for pack in packs)
            reason = (
                f"{' and '.join(packs)} each have a handler for it, and only one can be tried; choose with {remedy}"
            )
            problems.setdefault(code, Problem(code, reason))
    return problems


def _pack_problems(host: Host, pack: str, handlers: Collection[Problem]) -> list[Problem]:
    """Return the warnings of a host of one pack, except those about ``handlers``, and targets that do not load."""
    targets = [
        Problem(f"target {name}", target.reason)
        for name, dist, target in host.targets
        if isinstance(target, Failed) and canonical(dist) == canonical(pack)
    ]
    known = " ".join(problem.reason for problem in handlers)
    return [*(Problem(pack, text) for text in host.warnings if text not in known), *targets]


def loading_problems(pack: str) -> list[Problem]:
    """Return what of an installed pack does not load, and the host's warnings about it."""
    host = _host_to_try(pack)
    tried = [(code, dist) for code, dist in host.handler_names() if canonical(dist) == canonical(pack)]
    host.fusions()  # adds warnings
    handlers = _handler_problems(host, tried, ()).values()
    return [*handlers, *_pack_problems(host, pack, handlers)]


def pack_summaries() -> dict[str, tuple[int, str]]:
    """Return, by pack, the number of its cases, or the reason why they do not load."""
    counted: dict[str, tuple[int, str]] = {}
    for dist, entry in _entries():
        count, failure = counted.get(dist, (0, ""))
        try:
            counted[dist] = count + len(_load_cases(dist, entry)), failure
        except Failed as failed:
            counted[dist] = count, failed.reason
    return counted


def _entries() -> Iterator[tuple[str, EntryPoint]]:
    """Yield (pack, entry point), each once, although a distribution may be on the path twice."""
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
    """Return the cases of an entry point. Raises Failed."""
    with attribute_errors(f"cases {entry.name}", dist, entry.value.partition(":")[0]):
        given = entry.load()
        cases: Iterable[object] = given() if callable(given) else given
        loaded = []
        for case in cases:
            if not isinstance(case, Case):
                raise Mismatch(f"it holds {describe(case)}, not a Case")
            loaded.append(case)
        return loaded
