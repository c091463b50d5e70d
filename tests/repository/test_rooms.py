"""``op_handlers`` and conformance/cases have the same folders and modules."""

from __future__ import annotations

from collections.abc import Iterator
from configparser import ConfigParser
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import walk_packages

import pytest

import op_handlers
from conformance import cases
from onnx_tflite_plugin.api import Fusion, Handler
from onnx_tflite_plugin.host import BUILTIN, FUSIONS, HANDLERS

NETWORKS = "networks."
"""Modules of cases with several operators, which have no counterpart in op_handlers."""
KERNELS = "kernels."


def modules() -> Iterator[str]:
    """Return every module of op_handlers, as ``math.arithmetic``."""
    prefix = f"{op_handlers.__name__}."
    return (m.name.removeprefix(prefix) for m in walk_packages(op_handlers.__path__, prefix) if not m.ispkg)


def registered_modules(group: str) -> dict[str, str]:
    """Return the module of each built-in entry point by name."""
    entries = (entry for entry in entry_points(group=group) if entry.dist and entry.dist.name == BUILTIN)
    return {entry.name: entry.module.removeprefix(f"{op_handlers.__name__}.") for entry in entries}


OPERATORS, FUSED = registered_modules(HANDLERS), registered_modules(FUSIONS)
WITH_HANDLERS = sorted({*OPERATORS.values(), *FUSED.values()})
CASES = sorted(name.removeprefix(f"{cases.__name__}.") for name in cases.modules())


def handler_module(module: str) -> str | None:
    """Return the module of op_handlers for a module of cases.

    Its name may have a topic as suffix, as in ``resize_nearest``.
    """
    folder, _, name = module.rpartition(".")
    words = name.split("_")
    names = (f"{folder}." + "_".join(words[:n]) for n in range(len(words), 0, -1))
    return next((name for name in names if name in WITH_HANDLERS), None)


@pytest.mark.parametrize("module", WITH_HANDLERS)
def test_handlers_and_cases_have_matching_modules(module: str) -> None:
    assert module in CASES


@pytest.mark.parametrize("module", [name for name in CASES if not name.startswith(NETWORKS)])
def test_cases_are_in_the_module_of_their_handlers(module: str) -> None:
    """Cases of a fusion test the operators that it replaces, in any module."""
    owner = handler_module(module)
    assert owner is not None, f"op_handlers has no {module}"
    tested = {case.op for case in import_module(f"{cases.__name__}.{module}").cases()}
    assert tested
    if owner not in FUSED.values():
        assert {op: OPERATORS[op] for op in tested} == dict.fromkeys(tested, owner)


def test_every_handler_of_a_module_has_cases_there() -> None:
    tested = {
        (handler_module(module), case.op)
        for module in CASES
        if not module.startswith(NETWORKS)
        for case in import_module(f"{cases.__name__}.{module}").cases()
    }
    assert {(module, op) for op, module in OPERATORS.items()} - tested == set()


def test_case_ids_are_unique_across_modules() -> None:
    owners: dict[str, str] = {}
    for module in CASES:
        for case in import_module(f"{cases.__name__}.{module}").cases():
            assert owners.setdefault(case.id, module) == module


def test_every_module_has_a_family() -> None:
    assert [module for module in modules() if "." not in module] == []


@pytest.mark.parametrize("module", sorted(modules()))
def test_kernels_have_no_handlers_and_all_others_are_registered(module: str) -> None:
    names = vars(import_module(f"{op_handlers.__name__}.{module}"))
    handlers = [value for value in names.values() if isinstance(value, Handler)]
    fusions = [name for name, value in names.items() if isinstance(value, Fusion)]
    if module.startswith(KERNELS):
        assert (handlers, fusions) == ([], [])
    own_handlers = [handler for handler in handlers if handler.name.startswith(f"{op_handlers.__name__}.{module}:")]
    assert [handler.code for handler in own_handlers if OPERATORS.get(handler.code) != module] == []
    assert [name for name in fusions if FUSED.get(name) != module] == []


@pytest.mark.parametrize("group", [HANDLERS, FUSIONS])
def test_entry_points_are_in_alphabetical_order(group: str) -> None:
    """Alphabetical order avoids merge conflicts."""
    config = ConfigParser()
    config.optionxform = str  # type: ignore[assignment,method-assign]
    config.read(Path(__file__).parents[2] / "setup.cfg", encoding="utf-8")
    names = [line.partition("=")[0].strip() for line in config["options.entry_points"][group].strip().splitlines()]
    assert len(names) > 10
    assert names == sorted(names)
