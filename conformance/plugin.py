"""pytest's plugin: ``pytest --op-pack my-pack`` runs a pack's conformance cases as tests. Off unless asked.

It is imported by every pytest of an environment that has the project, so it imports nothing else before it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.case import Case
    from onnx_tflite_plugin.host import Host


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onnx-tflite-plugin")
    group.addoption(
        "--op-pack",
        metavar="DIST",
        action="append",
        default=[],
        help="Run the conformance cases of this op pack, and what they leave untried. May be given several times.",
    )


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    for name in config.getoption("--op-pack"):
        items.extend(Pack.from_parent(session, name=name).collect())


class Pack(pytest.Collector):
    """One op pack's cases."""

    def collect(self) -> Iterator[pytest.Item]:
        """Raises UsageError for a pack that is not installed, or whose cases do not load."""
        from conformance.coverage import gaps
        from conformance.packs import suite
        from onnx_tflite_plugin.errors import ConversionError

        try:
            chosen = suite(self.name)
        except ConversionError as error:
            raise pytest.UsageError(str(error)) from error
        for case in chosen.cases:
            yield CaseItem.from_parent(self, name=case.id, case=case, host=chosen.host)
        yield Nothing.from_parent(self, name="nothing-untried", lines=list(gaps(chosen)))


class CaseItem(pytest.Item):
    """A case as a test."""

    def __init__(self, *, case: Case, host: Host, **more: Any) -> None:
        super().__init__(**more)
        self.case, self.host = case, host

    def runtest(self) -> None:
        from conformance.runner import run_case

        result = run_case(self.case, self.host)
        if result.status in ("skipped", "known"):
            pytest.skip("; ".join(result.reasons))
        if not result.ok:
            raise Failing(result.text)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        return str(excinfo.value) if excinfo.errisinstance(Failing) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, None, str]:
        return "conformance", None, self.name


class Nothing(CaseItem):
    """Report of the gaps in the cases."""

    def __init__(self, *, lines: list[str], **more: Any) -> None:
        pytest.Item.__init__(self, **more)
        self.lines = lines

    def runtest(self) -> None:
        if self.lines:
            raise Failing("\n".join(self.lines))


class Failing(Exception):
    """A case that fails; its text says why."""
