"""The documentation: what it shows runs, the options it names exist, its pictures are what their script draws."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.cli import cli
from tests.helpers.command import Run
from tools.pictures import FOLDER, drawings
from tools.wheels import WAKE_WORDS, tflite_files

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = ("packs", "handlers")  # a pack is built as they show in tests/repository/test_docs_packs.py
COMMANDS = (["onnx-tflite"], [".venv/bin/onnx-tflite"], [".venv/bin/python", "-m", "onnx_tflite_plugin"])
# every command's, and those of other programs: tf2onnx, the support table, benchmarks, pytest
OTHERS = {
    "--tflite", "--output", "--inputs-as-nchw", "--outputs-as-nchw", "--signature_def", "--dequantize", "--large_model",
    "--custom-ops", "--op-pack", "--help", "--write", "--png", "--peer-python", "--peer-cache", "--markdown", "--keras",
}  # fmt: skip


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in a language, also those inside lists."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return ["".join(line[len(indent) :] for line in text.splitlines(keepends=True)) for indent, text in found]


def commands(page: Path) -> Iterator[list[str]]:
    """Arguments of the calls of this package's command that a page shows to be run."""
    for block in blocks(page, "sh"):
        for line in re.split(r"\n|&&", block):
            words = shlex.split(line)
            for command in COMMANDS:
                if words[: len(command)] == command:
                    yield words[len(command) :]


def ids(pages: list[Path]) -> list[str]:
    return [page.stem for page in pages]


@pytest.fixture
def page_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that pages speak of."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("digits_int8", "digits_float"):
        shutil.copy(ROOT / "examples" / f"{name}.tflite", tmp_path)
    shutil.copy(tmp_path / "digits_float.tflite", tmp_path / "model.tflite")
    otp.convert("digits_int8.tflite").save("digits_int8.onnx")
    np.savez("inputs.npz", image=np.zeros((2, 8, 8, 1), np.int8))
    return tmp_path


PYTHON = [page for page in PAGES if blocks(page, "python") and page.stem not in ELSEWHERE]
SHELL = [page for page in PAGES if list(commands(page)) and page.stem not in ELSEWHERE]


@pytest.mark.parametrize("page", PYTHON, ids=ids(PYTHON))
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, page_folder: Path) -> None:
    text = "\n".join(blocks(page, "python"))
    if "wake_word.onnx" in text:
        (path,) = tflite_files(page_folder, [WAKE_WORDS]).glob("*/okay_nabu.tflite")
        otp.convert(path).save("wake_word.onnx")
    exec(compile(text, page.name, "exec"), {})


@pytest.mark.parametrize("page", SHELL, ids=ids(SHELL))
def test_the_commands_of_a_page_succeed(page: Path, page_folder: Path, run: Run) -> None:
    for words in commands(page):
        code, _, err = run(*(word.replace("/tmp/", f"{page_folder}/") for word in words))
        assert code == 0, f"{words}: {err}"


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_the_options_that_a_page_names_exist(page: Path) -> None:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    there = {option for command in commands if command for param in command.params for option in param.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", page.read_text(encoding="utf-8")))
    assert named <= there | OTHERS


def test_pages_were_found_that_run_something() -> None:
    assert {"README", "running", "quantization", "signatures"} <= set(ids(PYTHON))
    assert {"README", "index", "accuracy", "sizes", "speed"} <= set(ids(SHELL))


def test_pictures_are_what_their_script_draws() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == drawings()
    shown = {name for page in PAGES for name in re.findall(r"\]\(pictures/(.+?)\)", page.read_text(encoding="utf-8"))}
    assert shown == set(drawings())
