"""Fixtures of several modules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from command import Ran, Run

from onnx_tflite_plugin.cli import cli


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process."""

    def call(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as left:
            cli.main([str(argument) for argument in arguments], prog_name="otp")
        code = left.value.code
        return Ran(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call


APART = frozenset({
    "bench", "benchmarks", "benchmarks_parts", "bisect", "cli", "cli_commands", "cli_many", "conformance_runner",
    "core_names_no_operator", "coverage", "deferral", "drawn", "examples", "files", "flow", "fusions_loading", "fuzz",
    "hostile_packs", "layout_plan", "layout_solver", "mutations",
    "new_pack", "packaging", "page", "passes_transposed", "processors", "real_networks", "rooms", "source_invalid",
    "targets", "telling", "unquantized", "verify", "verify_inputs", "verify_processor", "verify_wrong", "verify_wrong_more",
})  # fmt: skip
"""Modules that take their time."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark what is ``quick``: of the cases one an operator, of the rest what is not apart."""
    tried: set[str] = set()
    for item in items:
        module = Path(item.path).stem.removeprefix("test_")
        if module == "conformance":
            operator = item.name.partition("[")[2].partition("-")[0]
            if operator in tried or not operator:
                continue
            tried.add(operator)
        if module not in APART:
            item.add_marker("quick")
