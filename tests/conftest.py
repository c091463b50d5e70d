"""Fixtures that several modules use."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version as installed_version

import onnxruntime
import pytest
from hypothesis import settings
from packaging.version import Version

from onnx_tflite_plugin.cli import cli
from onnx_tflite_plugin.conversion import WITHOUT_FUSIONS
from onnx_tflite_plugin.graph.int8_faults import describe_int8_fault
from onnx_tflite_plugin.progress import LOG
from tests.helpers.command import CommandResult, Run

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of a hundred child processes compiles all modules anew
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else each child's NumPy threads busy-wait


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough", action="store_true", help="Test everything, not a sample; -m sampled selects tests that sample."
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.register_profile("sampled", max_examples=40)
    settings.register_profile("thorough", max_examples=150)
    settings.load_profile("thorough" if config.getoption("--thorough") else "sampled")
    gc.disable()


@pytest.fixture(scope="session")
def thorough(pytestconfig: pytest.Config) -> bool:
    """True with ``--thorough``; by default, tests with this fixture run a sample.

    These tests are marked ``sampled``.
    """
    return bool(pytestconfig.getoption("--thorough"))


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection.

    Scanning them again and again would take a twelfth of the suite's time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


class SkippedFusionHandler(logging.Handler):
    """Log handler that fails a test if a conversion skips a fusion, unless ``allows`` is true."""

    allows = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.allows and record.getMessage().startswith(WITHOUT_FUSIONS):
            raise AssertionError(record.getMessage())


SKIPPED_FUSIONS = SkippedFusionHandler()


@pytest.fixture(autouse=True, scope="session")
def fail_on_skipped_fusion() -> Iterator[None]:
    LOG.addHandler(SKIPPED_FUSIONS)
    yield
    LOG.removeHandler(SKIPPED_FUSIONS)


@pytest.fixture
def allow_skipped_fusions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow conversions that skip a fusion."""
    monkeypatch.setattr(SKIPPED_FUSIONS, "allows", True)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command in this process."""

    def call(*arguments: object) -> CommandResult:
        with pytest.raises(SystemExit) as exited:
            cli.main([str(argument) for argument in arguments], prog_name="otp")
        code = exited.value.code
        return CommandResult(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call


SLOW_MODULES = {
    "benchmarks": "benchmarks parts",
    "cli": "bundles cli commands inspect isolation several_models new_pack usage_errors",
    "conformance": "conformance_runner coverage",
    "conversion": "examples files real_networks targets presentation",
    "fusions": "loading",
    "layout": "random_plans solver",
    "packs": "core_names_no_operator hostile_packs",
    "page": "page",
    "qa": "emulation fuzz mutations random_models",
    "quantization": "dequantization",
    "repository": "deferral flow packaging rooms",
    "rewrite": "elementwise_to_conv framework image_rules widen_constants",
    "source": "invalid",
    "targets": "qnn targets tensorrt",
    "inputs": "inputs",
    "runtimes": "processor",
    "submodels": "bisect",
    "times": "bench",
    "verify": "planted_errors verify wrong_models",
}
"""Slow test modules by folder."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark tests as ``sampled`` and ``quick``.

    ``sampled``: tests that run a sample by default. ``quick``: one case per operator, and all tests outside slow modules.
    """
    seen_operators: set[str] = set()
    for item in items:
        if "thorough" in getattr(item, "fixturenames", ()) or hasattr(getattr(item, "obj", None), "hypothesis"):
            item.add_marker("sampled")
        folder, module = item.path.parent.name, item.path.stem.removeprefix("test_")
        if module == "conformance":
            operator = item.name.partition("[")[2].partition("-")[0]
            if operator in seen_operators or not operator:
                continue
            seen_operators.add(operator)
        if module not in SLOW_MODULES.get(folder, "").split():
            item.add_marker("quick")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests whose markers exclude this environment.

    ``needs(package, version, reason)``: the installed package is older. ``int8_products``: ONNX Runtime computes int8
    products wrongly on this processor.
    """
    for marker in item.iter_markers("needs"):
        package, version, reason = marker.args
        if Version(installed_version(package)) < Version(version):
            pytest.skip(f"{reason}: needs {package} {version}, {installed_version(package)} is installed")
    if item.get_closest_marker("int8_products") and (fault := describe_int8_fault(onnxruntime)):
        pytest.skip(fault)
