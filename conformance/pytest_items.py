"""The conformance cases of an op pack as items of pytest, for ``pytest --op-pack my-pack``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from conformance.case import Case

if TYPE_CHECKING:
    from conformance.packs import Suite
    from onnx_tflite_plugin.host import Host


def add_items(session: pytest.Session, names: Sequence[str], items: list[pytest.Item]) -> None:
    """Add the cases of packs to the tests, except for cases that a test among them has as a parameter."""
    parametrized = {
        value.id
        for item in items
        for value in getattr(getattr(item, "callspec", None), "params", {}).values()
        if isinstance(value, Case)
    }
    for name in names:
        found = Pack.from_parent(session, name=name).collect()
        items.extend(one for one in found if not (isinstance(one, CaseItem) and one.case.id in parametrized))


class Pack(pytest.Collector):
    """One op pack's cases, the problems of its handlers that do not load, and the gaps in its cases."""

    def collect(self) -> Iterator[pytest.Item]:
        """Raises UsageError for a pack that is not installed, or whose cases do not load."""
        from conformance.packs import suite
        from onnx_tflite_plugin.errors import ConversionError

        try:
            chosen = suite(self.name)
        except ConversionError as error:
            raise pytest.UsageError(str(error)) from error
        for problem in chosen.problems:
            yield LoadItem.from_parent(self, name=f"{problem.where}-loads", text=str(problem))
        for case in chosen.cases:
            yield CaseItem.from_parent(self, name=case.id, case=case, host=chosen.host)
        yield GapsItem.from_parent(self, name="nothing-untried", suite=chosen)


class ReportItem(pytest.Item):
    """A test of a pack, which stands in no file."""

    def reportinfo(self) -> tuple[str, None, str]:
        return "conformance", None, self.name


class CaseItem(ReportItem):
    """A case as a test."""

    def __init__(self, *, case: Case, host: Host, **more: Any) -> None:
        super().__init__(**more)
        self.case, self.host = case, host

    def runtest(self) -> None:
        from conformance.testing import check_case

        check_case(self.case, self.host)


class LoadItem(ReportItem):
    """A handler that does not load, in place of its cases."""

    def __init__(self, *, text: str, **more: Any) -> None:
        super().__init__(**more)
        self.text = text

    def runtest(self) -> None:
        pytest.fail(self.text, pytrace=False)


class GapsItem(ReportItem):
    """Report of the gaps in the cases."""

    def __init__(self, *, suite: Suite, **more: Any) -> None:
        super().__init__(**more)
        self.suite = suite

    def runtest(self) -> None:
        from conformance.coverage import gaps

        if lines := list(gaps(self.suite)):
            pytest.fail("\n".join(lines), pytrace=False)
