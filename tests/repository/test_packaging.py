"""The wheel holds every package of the checkout, and its entry points load."""

from __future__ import annotations

from configparser import ConfigParser
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("onnx_tflite_plugin", "op_handlers", "conformance")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_modules_is_a_package(package: str) -> None:
    """setuptools omits other folders from the wheel, but not in a checkout."""
    folders = {file.parent for file in (ROOT / package).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_editable_install_is_a_plain_path_for_type_checkers() -> None:
    """If ``package_dir`` names the common folder, setuptools writes a path.

    Otherwise setuptools writes an import hook, which type checkers do not follow.
    """
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    assert config["options"]["package_dir"].split() == ["=", "."]


@pytest.mark.parametrize("group", ["handlers", "fusions"])
def test_every_entry_point_loads(group: str) -> None:
    built_in = [
        entry
        for entry in entry_points(group=f"onnx_tflite_plugin.{group}")
        if entry.dist and entry.dist.name == "onnx-tflite-plugin"
    ]
    assert len(built_in) >= {"handlers": 60, "fusions": 3}[group]
    for entry in built_in:
        entry.load()
