"""Collect the built-in cases, and those that op packs register as entry points.

[options.entry_points]
onnx_tflite_plugin.cases =
    my_pack = my_pack.cases:cases        ; a list of cases, or a function that returns or yields them
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, metadata

from conformance.case import Case
from conformance.cases import builtin_cases
from onnx_tflite_plugin import source
from onnx_tflite_plugin.checked import describe, did_you_mean, plural
from onnx_tflite_plugin.errors import PackError, Problem
from onnx_tflite_plugin.guard import BUILTIN, Failed, Mismatch, attribute_errors
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.offers import FUSIONS, Offer, canonical_name, discover, find_unlisted_pattern
from onnx_tflite_plugin.host.registration import find_misspelled_groups
from onnx_tflite_plugin.installed import entry_points, iterate_distributions

GROUP = "onnx_tflite_plugin.cases"


@dataclass(frozen=True)
class Suite:
    """A host, the handlers and fusions under test, and their cases.

    ``handlers``: pairs (operator, pack). ``fusions``: pairs (name, pack). ``packs``: operator → pack of its handler, or of
    its cases if it has no handler. ``problems``: problems of handlers under test, and of their cases, that do not load.
    ``skipped_cases``: messages on other cases that do not load or are not run.
    """

    host: Host
    handlers: tuple[tuple[str, str], ...]
    fusions: tuple[tuple[str, str], ...]
    cases: tuple[Case, ...]
    packs: Mapping[str, str]
    problems: tuple[Problem, ...] = ()
    skipped_cases: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return warnings that ``problems`` does not contain, and ``skipped_cases``."""
        reported = {problem.reason for problem in self.problems}
        return (*(text for text in self.host.warnings if text not in reported), *self.skipped_cases)


def select_suite(pack: str | None = None, ops: Collection[str] = ()) -> Suite:
    """Select the cases of a run: everything installed, or one pack and some operators.

    ``pack``: name of a pack, or None for all. ``ops``: operators, empty for all. A pack that overrides a built-in handler
    must pass the built-in cases too. If one pack is selected, the host's warnings about it are problems. Cases that do
    not load are a problem if their pack handles one of ``ops``, otherwise a note. Raises PackError if the selected pack is
    not installed or its cases do not load.
    """
    pack_key = canonical_name(pack or "")
    host = _host_of(pack)
    handlers = [(code, dist) for code, dist in host.handler_names() if pack is None or canonical_name(dist) == pack_key]
    entries = [(dist, entry) for dist, entry in _entries() if pack is None or canonical_name(dist) == pack_key]
    if pack is not None and not entries and all(canonical_name(offer.pack) != pack_key for offer in discover()):
        raise PackError("no cases to run:", [_missing_pack_problem(pack)])
    codes = {code for code, _ in handlers}
    includes_builtin_cases = pack is None or any(
        dist == BUILTIN and code in codes for code, dist in host.handler_names()
    )
    cases = [case for case in (builtin_cases() if includes_builtin_cases else ()) if pack is None or case.op in codes]
    packs = dict.fromkeys((case.op for case in cases), BUILTIN)
    problems, notes = [], []
    for dist, entry in entries:
        try:
            loaded = _load_cases(dist, entry)
            cases += loaded
            packs |= dict.fromkeys((case.op for case in loaded), dist)
        except Failed as failed:
            problem = Problem("", failed.reason, failed.traceback_hint)
            if pack is not None:
                raise PackError("the cases of an op pack could not be loaded:", [problem]) from failed
            if not ops or any((op, dist) in handlers for op in ops):
                problems.append(problem)
            else:
                notes.append(str(problem))
    tested_handlers = tuple(pair for pair in handlers if not ops or pair[0] in ops)
    handler_problems = _handler_problems(host, tested_handlers, cases)
    fusions = [
        (fusion.name, dist) for dist, fusion in host.fusions() if pack is None or canonical_name(dist) == pack_key
    ]
    problems += handler_problems.values()
    cases_by_unloaded_fusion = {} if pack is None else _cases_without_fusion(host, pack, cases)
    if pack is not None:
        problems += _pack_problems(host, pack, handler_problems.values())
        notes += version_problems(pack)
        other_codes = {code for code, _ in handlers if ops and code not in ops}
        loaded_handlers = host.handlers(other_codes)
        failures = ((code, dist, loaded) for code, dist, loaded in loaded_handlers if isinstance(loaded, Failed))
        notes += [f"{code}: {failed.reason}" for code, dist, failed in failures if canonical_name(dist) == pack_key]
    skipped = {id(case) for fusion_cases in cases_by_unloaded_fusion.values() for case in fusion_cases}
    notes += [
        f"{plural(len(fusion_cases), 'case')} of {name} not run"
        for name, fusion_cases in cases_by_unloaded_fusion.items()
    ]
    selected = {
        id(case): case
        for case in cases
        if (not ops or case.op in ops) and case.op not in handler_problems and id(case) not in skipped
    }
    packs |= {**dict(fusions), **dict(handlers)}
    return Suite(
        host,
        tested_handlers,
        tuple(pair for pair in fusions if pair[0] not in cases_by_unloaded_fusion) if not ops else (),
        tuple(selected.values()),
        packs,
        tuple(problems),
        tuple(notes),
    )


def _host_of(pack: str | None) -> Host:
    """Return a host of all packs, or of one pack.

    If the pack has only cases, the host is that of the built-in pack.
    """
    if pack is None:
        return Host()
    registers_code = any(canonical_name(offer.pack) == canonical_name(pack) for offer in discover())
    return Host(packs=[pack] if registers_code else "builtin")


def _missing_pack_problem(pack: str) -> Problem:
    names = sorted({offer.pack for offer in discover() if offer.pack != BUILTIN})
    names_text = ", ".join(names) or "none"
    reason = (
        f"no installed distribution with that name has handlers, fusions or cases{did_you_mean(pack, names) or ';'} "
        f"installed packs: {names_text}"
    )
    return Problem(pack, reason, "pip install -e DIR, where DIR holds the pack's setup.cfg")


def _handler_problems(
    host: Host, tested_handlers: Sequence[tuple[str, str]], cases: Sequence[Case]
) -> dict[str, Problem]:
    """Return {operator: problem} for the operators whose handler cannot be tested.

    Either the handler does not load, or several packs have a handler for the operator.
    """
    problems = {}
    for code, pack, loaded in host.handlers({code for code, _ in tested_handlers}):
        if isinstance(loaded, Failed) and (code, pack) in tested_handlers:
            count = sum(case.op == code for case in cases)
            skipped = f"; {count} cases of {code} were not run" if count else ""
            problems[code] = Problem(code, f"{loaded.reason}{skipped}")
    for code in {code for code, _ in tested_handlers}:
        packs = sorted({pack for tested_code, pack in tested_handlers if tested_code == code and pack != BUILTIN})
        if len(packs) > 1:
            remedy = " or ".join(f"--pack {pack}" for pack in packs)
            reason = f"{' and '.join(packs)} each have a handler for the operator, but only one handler can be tested; choose with {remedy}"
            problems.setdefault(code, Problem(code, reason))
    return problems


def _cases_without_fusion(host: Host, pack: str, cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Return {fusion: cases that require the fusion but do not load it}.

    The entry point of such a fusion lists none of the operators in the case. The host warns about the entry point, so
    these cases are not run.
    """
    cases_by_fusion: dict[str, list[Case]] = {}
    for offer in host.offers:
        if offer.group != FUSIONS or canonical_name(offer.pack) != canonical_name(pack):
            continue
        with suppress(Failed):  # reported as a warning of the host
            name = offer.fusion().name
            if find_unlisted_pattern(offer.needs, offer.fusion()) is not None:
                unlisted_cases = [
                    case for case in cases if name in case.fusions and not _has_operator(case, offer.needs)
                ]
                cases_by_fusion |= {name: unlisted_cases} if unlisted_cases else {}
    return cases_by_fusion


def _has_operator(case: Case, codes: Collection[str]) -> bool:
    """True if the model of a case has one of these operators, or cannot be built."""
    try:
        model = source.read(case.build())
    except Exception:  # reported when the case runs
        return True
    return any(op.code in codes for subgraph in model.subgraphs for op in subgraph.operators)


def _pack_problems(host: Host, pack: str, handler_problems: Collection[Problem]) -> list[Problem]:
    """Return problems of a pack: warnings of its host, and targets that do not load.

    Warnings that repeat one of ``handler_problems`` are omitted.
    """
    targets = [
        Problem(f"target {name}", target.reason)
        for name, dist, target in host.targets
        if isinstance(target, Failed) and canonical_name(dist) == canonical_name(pack)
    ]
    reported = " ".join(problem.reason for problem in handler_problems)
    warnings = (Problem(pack, text) for text in host.warnings if text not in reported)
    return [*find_misspelled_groups(pack), *warnings, *targets]


def loading_problems(pack: str) -> list[Problem]:
    """Return problems of a pack: handlers and targets that do not load, and warnings."""
    host = _host_of(pack)
    pack_handlers = [
        (code, dist) for code, dist in host.handler_names() if canonical_name(dist) == canonical_name(pack)
    ]
    host.fusions()  # adds warnings to host.warnings
    handler_problems = _handler_problems(host, pack_handlers, ()).values()
    return [*handler_problems, *_pack_problems(host, pack, handler_problems)]


def version_problems(pack: str) -> list[str]:
    """Return problems of the pack's requirement on the API's version.

    They do not prevent the use of the pack.
    """
    key = canonical_name(pack)
    return sorted(
        {
            f"{offer.pack}: {offer.version_problem}"
            for offer in discover()
            if canonical_name(offer.pack) == key != BUILTIN and offer.version_problem
        }
    )


def describe_unregistered_pack(pack: str) -> str:
    """Return a message if a distribution is installed but registers nothing, else ""."""
    try:
        name = metadata(pack)["Name"]
    except PackageNotFoundError:
        return ""
    return (
        f"the pack {name!r} is installed, but registers no handler, fusion, hook or target; add an entry point "
        "CUSTOM.NAME = package.module:function to the group onnx_tflite_plugin.handlers in setup.cfg, "
        "then run pip install -e again"
    )


def pack_summaries() -> dict[str, tuple[int, str]]:
    """Return pack → (number of cases, reason why some cases do not load, or "")."""
    summaries: dict[str, tuple[int, str]] = {}
    for dist, entry in _entries():
        count, failure = summaries.get(dist, (0, ""))
        try:
            summaries[dist] = count + len(_load_cases(dist, entry)), failure
        except Failed as failed:
            summaries[dist] = count, failed.reason
    return summaries


def _entries() -> Iterator[tuple[str, EntryPoint]]:
    """Yield each pair (pack, entry point of its cases) once."""
    seen = set()  # a distribution may be on the path twice
    for distribution in iterate_distributions():
        try:
            entries = [*entry_points(distribution.entry_points_text, [GROUP])]
        except ValueError:  # the host reports it
            continue
        dist = distribution.name_and_requirements()[0] if entries else ""
        for entry in entries:
            if (dist, entry.name) not in seen:
                seen.add((dist, entry.name))
                yield dist, entry


def _load_cases(dist: str, entry: EntryPoint) -> list[Case]:
    """Return the cases of an entry point. Raises Failed if they do not load."""
    value = Offer(entry.name, dist, GROUP, entry).load()
    with attribute_errors(f"entry point {entry.name} = {entry.value}", dist, entry.value.partition(":")[0]):
        cases = value() if callable(value) else value
        if not isinstance(cases, Iterable):
            raise Mismatch(f"it returned {describe(cases)}, not cases; is a `yield` or `return` missing?")
        loaded: list[Case] = []
        ids = set()
        for case in cases:
            if not isinstance(case, Case):
                raise Mismatch(f"it yields {describe(case)}, not a Case")
            if case.id in ids:
                raise Mismatch(f"two cases are named {case.id!r}; give each case of an operator a unique name")
            ids.add(case.id)
            loaded.append(case)
        return loaded
