"""The packs of this repository: public imports only, and passing cases."""

from __future__ import annotations

import ast
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

import onnx_tflite_plugin as otp
from op_handlers.custom.packs import ORIGIN
from op_handlers.custom.packs import PACKS as NAMED
from tests.helpers.pack_files import install, install_pack, run_python, unary_model

ROOT = Path(__file__).parents[2]
PACKS = sorted(folder.name for folder in (ROOT / "packs").iterdir() if (folder / "setup.cfg").exists())
PUBLIC = {"onnx_tflite_plugin", "onnx_tflite_plugin.api"}  # in tests; packs import only api
COMMANDS = {"genai"}
"""Packs that only add commands and call the converter; .ci/run runs their tests in separate environments."""


@pytest.mark.parametrize("name", [name for name in PACKS if name not in COMMANDS])
def test_shipped_pack_passes_and_covers_its_handlers(tmp_path: Path, name: str) -> None:
    folder, site = ROOT / "packs" / name, tmp_path / "site"
    install_pack(folder, site)
    completed = run_python(
        folder, site, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder), "--op-pack", f"onnx-tflite-{name}"
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "skipped" not in completed.stdout


@pytest.mark.parametrize("name", PACKS)
def test_shipped_pack_imports_only_public_modules(name: str) -> None:
    for path in (ROOT / "packs" / name).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            core = [module for module in modules if module.startswith(("onnx_tflite_plugin", "op_handlers"))]
            allowed = {"onnx_tflite_plugin"} if name in COMMANDS else {"onnx_tflite_plugin.api"}
            assert {*core} <= (PUBLIC if "tests" in path.parts else allowed), path


def test_distribution_excludes_packs() -> None:
    script = "from setuptools import find_packages; print(find_packages(include=['onnx_tflite_plugin*', 'op_handlers*', 'conformance*']))"
    completed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "mediapipe" not in completed.stdout


# --- hints for packs that are not installed ----------------------------------------------------


def handled_operators(pack: str) -> set[str]:
    """Return the operators that a pack converts, without handlers that only decline."""
    config = ConfigParser()
    config.optionxform = str  # type: ignore[assignment,method-assign]
    config.read(ROOT / "packs" / pack / "setup.cfg", encoding="utf-8")
    entries = config["options.entry_points"].get("onnx_tflite_plugin.handlers", "").split("\n")
    codes = dict(entry.split(" = ") for entry in entries if entry)
    return {code.removeprefix("CUSTOM.") for code, handler in codes.items() if ".refused:" not in handler}


def test_each_operator_names_its_shipped_pack() -> None:
    assert sorted(ORIGIN) == [pack for pack in PACKS if handled_operators(pack)]
    for pack in PACKS:
        assert {name for name, pack_name in NAMED.items() if pack_name == pack} == handled_operators(pack)


@pytest.mark.parametrize(("name", "pack"), [("MaxUnpooling2D", "mediapipe"), ("SignalPCAN", "audio")])
def test_error_on_an_operator_names_its_missing_pack(name: str, pack: str) -> None:
    with pytest.raises(otp.ConversionError, match=rf"{name}.*: an operator of .*pip install \./packs/{pack}"):
        otp.convert(unary_model(f"CUSTOM.{name}"))


@pytest.mark.parametrize("name", ["accepting", "declining"])
def test_installed_pack_replaces_the_pack_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    declines = "accepts=lambda at: Decline('two are too many'), " if name == "declining" else ""
    source = f"""
        from onnx_tflite_plugin.api import Decline, Terminate, handler

        @handler("CUSTOM.MaxUnpooling2D", max_version=1, {declines}layout=Terminate())
        def unpool(ctx, x):
            return ctx.ops.Neg(x)
    """
    install(tmp_path, name, name, source, f"[onnx_tflite_plugin.handlers]\nCUSTOM.MaxUnpooling2D = {name}:unpool\n")
    data = unary_model("CUSTOM.MaxUnpooling2D")
    if declines:
        with pytest.raises(otp.ConversionError, match=r": declined by declining: two are too many$"):
            otp.convert(data)
    else:
        assert otp.convert(data).report.packs == {"accepting": 1}
