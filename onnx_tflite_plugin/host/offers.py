"""Entry points of installed distributions, found without importing a distribution."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint
from pkgutil import iter_modules
from types import ModuleType
from typing import Any
from urllib.parse import unquote

from onnx_tflite_plugin.api import VERSION
from onnx_tflite_plugin.api.declarations import Handler
from onnx_tflite_plugin.api.hooks import PROJECT
from onnx_tflite_plugin.api.patterns import Fusion
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.checked import describe, did_you_mean
from onnx_tflite_plugin.codes import CUSTOM, NAMED_BY_THE_FILE, UNKNOWN, name_in_file
from onnx_tflite_plugin.guard import BUILTIN, Mismatch, attribute_errors
from onnx_tflite_plugin.installed import InstalledDistribution, entry_points, iterate_distributions
from onnx_tflite_plugin.targets.operator_names import find_unknown_operator

HANDLERS, FUSIONS, HOOKS, TARGETS = GROUPS = tuple(
    f"{PROJECT}.{kind}" for kind in ("handlers", "fusions", "hooks", "targets")
)
ALL_GROUPS = (*GROUPS, f"{PROJECT}.commands", f"{PROJECT}.cases")
_GROUP = re.compile(rf"^\s*\[\s*({re.escape(PROJECT)}\.[^\]]*?)\s*\]", re.M)


@dataclass(frozen=True)
class Offer:
    """One entry point, not loaded yet.

    ``unmet``: the pack's requirement on this project that this version does not meet. ``version_problem``: a message if
    the requirement also allows versions with a different API.
    """

    code: str
    pack: str
    group: str
    entry: EntryPoint
    unmet: str = ""
    version_problem: str = ""

    @cached_property
    def needs(self) -> frozenset[str]:
        """Return the operators in ``module:attribute [CODE, CODE]``, if any.

        A fusion is loaded only if a model has one of them. ``EntryPoint.extras`` is not used, because it splits
        ``CUSTOM.MyOp`` in two.
        """
        _, _, codes = self.entry.value.partition("[")
        return frozenset(unquote(code.strip()) for code in codes.rstrip("] ").split(",") if code.strip())

    def load(self) -> Any:
        """Load the object of the entry point. Raises Failed."""
        module = self.entry.value.partition(":")[0].strip()
        with attribute_errors(self.description, self.pack, module):
            try:
                return self.entry.load()
            except ModuleNotFoundError as error:
                if error.name and f"{module}.".startswith(f"{error.name}."):
                    is_package = error.name != module
                    raise Mismatch(_describe_missing_module(error.name, is_package=is_package)) from error
                raise
            except AttributeError as error:
                if missing := _describe_missing_attribute(module, self.entry.attr):
                    raise Mismatch(missing) from error
                raise

    def handler(self) -> Handler:
        """Load the handler, which must be for the operator named by the entry point.

        Raises Failed.
        """
        loaded = self.load()
        lower = loaded.lower if isinstance(loaded, Handler) else None
        with attribute_errors(self.description, self.pack, lower):
            if isinstance(loaded, ModuleType):
                raise Mismatch(_describe_module_without_attribute(loaded))
            if not isinstance(loaded, Handler):
                raise Mismatch(f"it is {describe(loaded)}, not a handler; {_suggest_group(loaded, 'handler')}")
            if self.code not in (loaded.code, *loaded.aliases):
                remedy = f"name the entry point {loaded.code}, or declare aliases=({self.code!r},) in @handler"
                raise Mismatch(f"it is a handler of {loaded.code!r}; {remedy}")
            return loaded

    def fusion(self) -> Fusion:
        """Load the fusion. Raises Failed."""
        loaded = self.load()
        with attribute_errors(self.description, self.pack, loaded.check if isinstance(loaded, Fusion) else None):
            if not isinstance(loaded, Fusion):
                raise Mismatch(f"it is {describe(loaded)}, not a fusion; {_suggest_group(loaded, 'fusion')}")
            traits = Target.__dataclass_fields__
            if loaded.trait and loaded.trait not in traits:
                raise Mismatch(f"targets have no trait {loaded.trait!r}{did_you_mean(loaded.trait, traits)}")
            return loaded

    def target(self) -> Target:
        """Load the target, whose name must be the entry point's. Raises Failed."""
        loaded = self.load()
        with attribute_errors(self.description, self.pack, self.entry.value.partition(":")[0].strip()):
            if not isinstance(loaded, Target):
                raise Mismatch(f"it is {describe(loaded)}, not a Target; {_suggest_group(loaded)}")
            if loaded.name != self.code:
                raise Mismatch(
                    f"its target is named {loaded.name!r}; the entry point and the target must have the same name"
                )
            if canonical_name(self.pack) != BUILTIN and (unknown := find_unknown_operator(loaded)):
                raise Mismatch(unknown)
            return loaded

    @property
    def description(self) -> str:
        """Return name and target of the entry point, for messages."""
        return f"entry point {self.entry.name} = {self.entry.value.partition('[')[0].strip()}"


def discover(warn: Callable[[str], None] = lambda text: None) -> list[Offer]:
    """Return the entry points of all installed distributions, in order of the path.

    ``warn`` is called for each distribution whose entry points cannot be read.
    """
    by_key: dict[tuple[str, str, str], Offer] = {}
    for distribution in iterate_distributions():
        try:
            offers = _read_offers(distribution)
        except Exception as error:  # malformed entry_points.txt or METADATA
            warn(f"the entry points of {distribution.location} cannot be read: {type(error).__name__}: {error}")
            continue
        for offer in offers:
            by_key.setdefault((offer.group, offer.code, offer.pack), offer)
    return list(by_key.values())


def _read_offers(distribution: InstalledDistribution) -> tuple[Offer, ...]:
    text = distribution.entry_points_text
    return _parse_offers(text, *distribution.name_and_requirements()) if text else ()


def _describe_missing_module(name: str, *, is_package: bool) -> str:
    """Return a message on a missing module or package of an entry point.

    The remedy is the most similar name, or a correction of ``packages`` in ``setup.cfg``.
    """
    package = name.rpartition(".")[0]
    names = {
        f"{package}.{module.name}"
        for module in (iter_modules(sys.modules[package].__path__) if package else ())
        if module.ispkg or not is_package
    }
    suggestion = did_you_mean(name, names)
    if is_package and package and not suggestion:
        remedy = "write packages = find: in setup.cfg, or correct the entry point, and install the pack again"
        return f"the installed pack has no package {name!r}; {remedy} (pip install -e)"
    suggestion = suggestion or ";"
    return f"there is no module {name!r}{suggestion} {_REINSTALL}"


def _describe_missing_attribute(module: str, attribute: str) -> str:
    """Return a message on an attribute that an imported module lacks; else ""."""
    names, name = vars(sys.modules[module]) if module in sys.modules else None, attribute.partition(".")[0]
    if names is None or not name or name in names:
        return ""
    imported_classes = {key for key, value in names.items() if isinstance(value, type) and value.__module__ != module}
    suggestion = did_you_mean(name, names.keys() - imported_classes) or did_you_mean(name, names) or ";"
    return f"module {module!r} has no {name!r}{suggestion} {_REINSTALL}"


def _describe_module_without_attribute(module: ModuleType) -> str:
    """Return a message on an entry point that names a module, with its handlers."""
    names = [name for name, value in vars(module).items() if isinstance(value, Handler)] or ["FUNCTION"]
    examples = " or ".join(f"{module.__name__}:{name}" for name in names)
    return f"it is a module, not a handler; write {examples}, and install the pack again (pip install -e)"


def _suggest_group(loaded: object, decorator: str = "") -> str:
    """Return the remedy for an object that its entry-point group does not accept.

    ``decorator``: the decorator that makes a function acceptable; "" for groups of other objects.
    """
    groups: dict[type, str] = {Handler: HANDLERS, Fusion: FUSIONS, Target: TARGETS}
    if group := groups.get(type(loaded)):
        return f"move the entry point to {group} in setup.cfg, and install the pack again (pip install -e)"
    return f"decorate it with @{decorator}(...)" if decorator else _REINSTALL


_REINSTALL = "correct the entry point, and install the pack again (pip install -e)"


@cache
def _parse_offers(text: str, pack: str, requirements: tuple[str, ...]) -> tuple[Offer, ...]:
    """Return the offers in a distribution's metadata.

    Offers in unknown groups are included. The result is cached, because hosts for many files read the same metadata.
    """
    unknown = {*_GROUP.findall(text)}.difference(ALL_GROUPS)
    unmet, entries = unmet_requirement(requirements), entry_points(text, {*GROUPS, *unknown})
    version_problem = "" if unmet else find_wide_requirement(requirements)
    return tuple(Offer(unquote(entry.name), pack, entry.group, entry, unmet, version_problem) for entry in entries)


@cache
def canonical_name(pack: str) -> str:
    """Return a distribution name in the normalized form that pip compares."""
    return pack.replace("_", "-").replace(".", "-").lower()


def find_name_problem(code: str) -> str:
    """Return the reason why a name cannot be an operator; empty if it can."""
    if code.startswith(NAMED_BY_THE_FILE):
        return "" if name_in_file(code) else "the operator's name after the dot is missing"
    if code.startswith(UNKNOWN):
        return ""
    from onnx_tflite_plugin.source.options import operator_names

    names = {*operator_names().values()}
    if code in names:
        return ""
    if code.upper().startswith(CUSTOM):
        return f"the prefix of a custom operator is {CUSTOM}; write {CUSTOM}{code[len(CUSTOM) :]} in setup.cfg and in @handler"
    suggestion = did_you_mean(code.upper(), names)
    return f"TFLite has no operator {code!r}{suggestion or ';'} a custom operator is named {CUSTOM}{code}, in setup.cfg and in @handler"


def find_group_problem(group: str) -> str:
    """Return a message if the project has no such entry-point group; empty if it has."""
    if group in ALL_GROUPS:
        return ""
    remedy = "correct setup.cfg, and install the pack again (pip install -e)"
    return f"there is no group {group!r}{did_you_mean(group, ALL_GROUPS) or ';'} {remedy}"


def find_unknown_operators(fusion: Fusion, further_names: Callable[[], Collection[str]]) -> str:
    """Return a message on unknown operators in a fusion's patterns; empty if none.

    ``further_names``: function that returns the names of entry points and fusions.
    """
    from onnx_tflite_plugin.source.options import operator_names

    schema = {*operator_names().values()}
    codes = {code for pattern in fusion.patterns for code in pattern.codes() if not code.startswith(NAMED_BY_THE_FILE)}
    if codes <= schema:
        return ""
    names = schema | {*further_names()}
    descriptions = [
        f"{code!r}, which is neither an operator nor a fusion{did_you_mean(code, names)}"
        for code in sorted(codes - names)
    ]
    return f"looks for {' and for '.join(descriptions)}" if descriptions else ""


def find_unknown_predecessors(fusion: Fusion, fusion_names: Callable[[], Collection[str]]) -> str:
    """Return a message on names in ``after`` that no fusion has; empty if none.

    ``fusion_names``: function that returns the names of all fusions.
    """
    names = fusion_names() if fusion.after else ()
    descriptions = [
        f"{name!r}, which is not a fusion{did_you_mean(name, names)}" for name in fusion.after if name not in names
    ]
    return f"is declared to run after {', and after '.join(descriptions)}" if descriptions else ""


def find_unlisted_pattern(needs: frozenset[str], fusion: Fusion) -> frozenset[str] | None:
    """Return the operators of the first pattern without an operator in ``needs``.

    Return None if every pattern contains one. ``needs``: the operators that the entry point lists.
    """
    if not needs or fusion.regions is not None:
        return None
    return next((codes for pattern in fusion.patterns if not (codes := pattern.codes()) & needs), None)


@cache
def find_needs_problem(needs: frozenset[str], fusion: Fusion) -> str:
    """Return a message if an entry point contradicts its fusion's patterns; or ""."""
    if not needs or fusion.regions is not None:
        return ""
    unlisted = find_unlisted_pattern(needs, fusion)
    if unlisted is not None:
        return (
            f"lists {', '.join(sorted(needs))}, but one pattern of {fusion.name} consists only of {', '.join(sorted(unlisted))}. "
            "Models with that pattern would not load the fusion; also list an operator of the pattern"
        )
    superfluous = needs.difference(*(pattern.codes() for pattern in fusion.patterns))
    return (
        f"lists {', '.join(sorted(superfluous))}, which occur in no pattern of {fusion.name}; remove these operators"
        if superfluous
        else ""
    )


# --- versions ---------------------------------------------------------------------------------


@cache
def unmet_requirement(requirements: tuple[str, ...], version: str = VERSION) -> str:
    """Return the requirement that ``version`` of the project does not meet; or ""."""
    return next(filter(None, (_unmet_version(text, version) for text in requirements)), "")


PIN = f"{BUILTIN}~={VERSION}"
"""Requirement of a pack that is written for this version."""


@cache
def find_wide_requirement(requirements: tuple[str, ...], version: str = VERSION) -> str:
    """Return a message on a pack that allows the next version of the API; else ""."""
    major, minor, *_ = (int(part) for part in version.split("."))
    next_version = f"{major}.{minor + 1}.0" if major == 0 else f"{major + 1}.0.0"
    if unmet_requirement(requirements, next_version):
        return ""
    is_required = any(canonical_name(text[: len(BUILTIN)]) == BUILTIN for text in requirements)
    fact = (
        f"its requirement on {BUILTIN} also allows version {next_version}"
        if is_required
        else f"it does not require a version of {BUILTIN}, so version {next_version} would also load it"
    )
    return f"{fact}, although the API of that version differs; write {PIN} in install_requires"


_COMPATIBLE = re.compile(BUILTIN.replace("-", "[-_.]") + r"\s*\(?\s*(?:~=\s*(\d+(?:\.\d+)+))?\s*\)?", re.I)
"""Common requirements of packs: no version, or ``~=0.2.0``. Parsing these needs no ``packaging``, whose import is slow."""


def _unmet_version(text: str, version: str) -> str:
    if canonical_name(text[: len(BUILTIN)]) != BUILTIN:
        return ""
    match = _COMPATIBLE.fullmatch(text)
    if match is not None:
        required, actual = ([int(part) for part in release.split(".")] for release in (match[1] or version, version))
        compatible = actual[: len(required) - 1] == required[:-1] and actual >= required
        return "" if match[1] is None or compatible else f"~={match[1]}"
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return ""
    if canonical_name(requirement.name) != BUILTIN or (
        requirement.marker and not requirement.marker.evaluate({"extra": ""})
    ):
        return ""
    return "" if requirement.specifier.contains(version, prereleases=True) else str(requirement.specifier)
