"""Fixtures of models for the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.command_models import model, unary


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a folder of two models that convert and two that do not.

    Both failures have the same reason.
    """
    models = tmp_path / "models"
    (models / "inner").mkdir(parents=True)
    (models / "a.tflite").write_bytes(model())
    (models / "inner" / "b.tflite").write_bytes(model("EXP"))
    for name in "cd":
        (models / f"{name}.tflite").write_bytes(model("CUSTOM.Odd"))
    (models / "readme.txt").write_text("not a model")
    return models


@pytest.fixture
def add_path(tmp_path: Path) -> Path:
    """Write a model that converts."""
    path = tmp_path / "added.tflite"
    path.write_bytes(unary("ADD"))
    return path
