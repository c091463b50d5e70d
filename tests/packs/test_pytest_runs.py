"""Output of pytest on the cases and tests of a pack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from onnx_tflite_plugin import pytest_plugin
from onnx_tflite_plugin.api import VERSION
from tests.helpers.author_pack import HANDLER
from tests.helpers.pack_files import run_python


def test_tests_of_a_pack_without_handler_name_the_missing_entry_point(
    tmp_path: Path, write_pack: Callable[..., Path]
) -> None:
    folder = write_pack(("setup.cfg", "onnx_tflite_plugin.handlers =\n    CUSTOM.Acme = author.acme:acme\n", ""))
    output = run_python(folder, tmp_path / "site", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)).stdout
    assert (
        "the pack 'author' is installed, but registers no handler, fusion, hook or target; add an entry point" in output
    )
    assert "During handling" not in output


@pytest.mark.parametrize("selected", ["--op-pack=author", "tests"])
def test_pytest_reports_a_load_error_in_one_failure(
    tmp_path: Path, write_pack: Callable[..., Path], selected: str
) -> None:
    folder = write_pack((HANDLER, "import numpy as np", "import numpyy as np"))
    target = str(folder / "tests") if selected == "tests" else str(folder / "author")
    options = ["-q", "-p", "no:cacheprovider", *([] if selected == "tests" else [selected])]
    output = run_python(folder, tmp_path / "site", "-m", "pytest", *options, target).stdout
    assert "INTERNALERROR" not in output
    assert len(output.splitlines()) < 12
    assert "failed: ModuleNotFoundError: No module named 'numpyy'" in output


def test_load_error_is_printed_once_for_all_test_modules(tmp_path: Path, write_pack: Callable[..., Path]) -> None:
    folder = write_pack((HANDLER, "import numpy as np", "import numpyy as np"))
    text = (folder / "tests" / "test_author.py").read_text(encoding="utf-8")
    (folder / "tests" / "test_other.py").write_text(text, encoding="utf-8")
    options = ["-q", "-p", "no:cacheprovider", "-rN"]
    output = run_python(folder, tmp_path / "site", "-m", "pytest", *options, str(folder / "tests")).stdout
    assert output.count("No module named 'numpyy'") == 1, output


def test_tests_of_a_missing_pack_print_the_pip_command(tmp_path: Path, write_pack: Callable[..., Path]) -> None:
    folder = write_pack()
    (tmp_path / "site" / "author-0.1.0.dist-info").rename(tmp_path / "gone")
    site = tmp_path / "site"  # and not the folder of the pack, so that its modules cannot be imported
    output = run_python(site, site, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)).stdout
    assert "no op pack 'author' is installed" in output
    assert "pip install -e DIR" in output
    assert len(output.splitlines()) < 12


@pytest.mark.parametrize("options", [["--op-pack=author", "author"], ["tests"]])
def test_wide_requirement_is_a_warning_of_the_packs_tests(
    tmp_path: Path, write_pack: Callable[..., Path], options: list[str]
) -> None:
    folder = write_pack(("setup.cfg", f"onnx-tflite-plugin~={VERSION}", "onnx-tflite-plugin>=0.1"))
    *plugin, target = options
    arguments = ["-q", "-p", "no:cacheprovider", "-k", "float32", *plugin, str(folder / target)]
    output = run_python(folder, tmp_path / "site", "-m", "pytest", *arguments).stdout
    assert output.count("PytestWarning: author: its requirement on onnx-tflite-plugin also allows version") == 1, output


def test_failing_case_shows_no_traceback_in_pytest(tmp_path: Path, write_pack: Callable[..., Path]) -> None:
    folder = write_pack((HANDLER, "return ctx.ops.Softsign(x)", "return ctx.ops.Softsign(y)"))
    output = run_python(folder, tmp_path / "site", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)).stdout
    assert "run_case" not in output
    assert "CUSTOM.Acme-rank_3 failed for the same reason as CUSTOM.Acme-rank_1" in output


def test_pytest_runs_each_case_of_a_pack_once(tmp_path: Path, write_pack: Callable[..., Path]) -> None:
    """``--op-pack`` skips cases that the tests of the pack already run."""
    folder = write_pack()
    options = ["-v", "-p", "no:cacheprovider", "--op-pack", "author", str(folder)]
    output = run_python(folder, tmp_path / "site", "-m", "pytest", *options).stdout
    assert output.count("CUSTOM.Acme-rank_3") == 1
    assert "declarations-covered PASSED" in output


def test_pytest_works_next_to_a_folder_named_conformance(tmp_path: Path, write_pack: Callable[..., Path]) -> None:
    """``python -m pytest`` imports from the current folder first."""
    folder, project = write_pack(), tmp_path / "project"
    (project / "conformance").mkdir(parents=True)
    (project / "conformance" / "__init__.py").touch()
    (project / "test_one.py").write_text("def test_one() -> None: ...\n")
    completed = run_python(folder, tmp_path / "site", "-m", "pytest", "-q", "-p", "no:cacheprovider", ".", cwd=project)
    assert "1 passed" in completed.stdout, completed.stdout + completed.stderr


def test_hidden_package_conformance_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "conformance.pytest_items", None)
    session, config = SimpleNamespace(), SimpleNamespace(getoption=lambda name: ["author"])
    with pytest.raises(pytest.UsageError, match="conformance hides the package conformance of onnx-tflite-plugin"):
        pytest_plugin.pytest_collection_modifyitems(session, config, [])  # type: ignore[arg-type]
