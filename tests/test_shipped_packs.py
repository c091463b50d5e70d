"""The packs of this repository: of the public API alone, installed as their own distributions, with passing cases."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from test_new_pack import installed, python

ROOT = Path(__file__).parent.parent
PACKS = sorted(folder.name for folder in (ROOT / "packs").iterdir() if (folder / "setup.cfg").exists())
PUBLIC = {"onnx_tflite_plugin.api", "onnx_tflite_plugin.host"}  # the host in tests alone


@pytest.mark.parametrize("name", PACKS)
def test_a_pack_passes_its_own_test_and_leaves_nothing_untried(tmp_path: Path, name: str) -> None:
    folder, site = ROOT / "packs" / name, tmp_path / "site"
    installed(folder, site)
    done = python(
        folder, site, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder), "--op-pack", f"onnx-tflite-{name}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("name", PACKS)
def test_a_pack_imports_the_public_api_and_the_kit_alone(name: str) -> None:
    for path in (ROOT / "packs" / name).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            core = [module for module in modules if module.startswith(("onnx_tflite_plugin", "op_handlers"))]
            assert {*core} <= (PUBLIC if "tests" in path.parts else {"onnx_tflite_plugin.api"}), path


def test_the_packs_are_no_part_of_the_projects_own_distribution() -> None:
    script = "from setuptools import find_packages; print(find_packages(include=['onnx_tflite_plugin*', 'op_handlers*', 'conformance*']))"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "mediapipe" not in found.stdout
