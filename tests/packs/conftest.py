"""Fixtures that install the pack ``author`` with mistakes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.command import run
from onnx_tflite_plugin.cli import cli
from onnx_tflite_plugin.errors import ConversionError
from tests.helpers.author_pack import FailingOutput
from tests.helpers.pack_files import install_pack


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder on ``sys.path``, in which tests install packs."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def write_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Return a function that installs the pack ``author`` with some edits.

    An edit is ``(file, old, new)``.
    """
    folder, site = tmp_path / "author", tmp_path / "site"

    def write_edited(*edits: tuple[str, str, str], op: str = "CUSTOM.Acme", like: str = "elementwise") -> Path:
        result = CliRunner().invoke(cli, ["new-pack", str(folder), "--op", op, "--like", like])
        assert result.exit_code == 0, result.output
        for name, old, new in edits:
            file = folder / name
            text = file.read_text(encoding="utf-8")
            assert old in text
            file.write_text(text.replace(old, new), encoding="utf-8")
        install_pack(folder, site)
        for path in (folder, site):
            monkeypatch.syspath_prepend(str(path))
        return folder

    yield write_edited
    for name in [name for name in sys.modules if name.partition(".")[0] == "author"]:
        del sys.modules[name]


@pytest.fixture
def failing_output(write_pack: Callable[..., Path]) -> FailingOutput:
    """Return a function that returns the output of a failing ``conformance`` run.

    It runs ``conformance --pack author`` with edits.
    """

    def conformance(*edits: tuple[str, str, str], **pack_files: str) -> str:
        write_pack(*edits, **pack_files)
        with redirect_stdout(StringIO()) as printed:
            try:
                code = run("author")
            except ConversionError as error:
                return str(error)
        assert code == 1
        return printed.getvalue()

    return conformance
