"""Pytest items for the cases of an op pack: ``pytest --op-pack my-pack``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from conformance.case import Case

if TYPE_CHECKING:
    from conformance.packs import Suite
    from onnx_tflite_plugin.host import Host


def add_items(session: pytest.Session, pack_names: Sequence[str], items: list[pytest.Item]) -> None:
    """Add the cases of packs to ``items``.

    Cases that are already parameters of tests in ``items`` are not added again.
    """
    parametrized = {
        value.id
        for item in items
        for value in getattr(getattr(item, "callspec", None), "params", {}).values()
        if isinstance(value, Case)
    }
    for name in pack_names:
        pack_items = Pack.from_parent(session, name=name).collect()
        items.extend(item for item in pack_items if not (isinstance(item, CaseItem) and item.case.id in parametrized))


class Pack(pytest.Collector):
    """Collector of tests of a pack: its cases, handlers that do not load, and gaps."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the tests of the pack.

        Raises UsageError if the pack is not installed or its cases do not load.
        """
        from conformance.packs import select_suite
        from onnx_tflite_plugin.errors import ConversionError

        try:
            suite = select_suite(self.name)
        except ConversionError as error:
            raise pytest.UsageError(str(error)) from error
        for note in suite.notes:
            self.warn(pytest.PytestWarning(note))
        for problem in suite.problems:
            yield LoadItem.from_parent(self, name=f"{problem.where}-loads", text=str(problem))
        for case in suite.cases:
            yield CaseItem.from_parent(self, name=case.id, case=case, host=suite.host)
        yield GapsItem.from_parent(self, name="declarations-covered", suite=suite)


class ReportItem(pytest.Item):
    """A test of a pack that belongs to no file."""

    def reportinfo(self) -> tuple[str, None, str]:
        return "conformance", None, self.name


class CaseItem(ReportItem):
    """A case as a test."""

    def __init__(self, *, case: Case, host: Host, **item_options: Any) -> None:
        super().__init__(**item_options)
        self.case, self.host = case, host

    def runtest(self) -> None:
        from conformance.testing import check_case

        check_case(self.case, self.host)


class LoadItem(ReportItem):
    """A failing test that replaces the cases of a handler that does not load."""

    def __init__(self, *, text: str, **item_options: Any) -> None:
        super().__init__(**item_options)
        self.text = text

    def runtest(self) -> None:
        pytest.fail(self.text, pytrace=False)


class GapsItem(ReportItem):
    """A test that fails if the cases of a pack leave gaps."""

    def __init__(self, *, suite: Suite, **item_options: Any) -> None:
        super().__init__(**item_options)
        self.suite = suite

    def runtest(self) -> None:
        from conformance.coverage import gaps

        if lines := list(gaps(self.suite)):
            pytest.fail("\n".join(lines), pytrace=False)
