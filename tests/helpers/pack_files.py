"""Installation of op packs into a folder, and processes that import from it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from configparser import ConfigParser
from importlib.metadata import Distribution, EntryPoints
from pathlib import Path
from textwrap import dedent

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.api import VERSION


def install_pack(folder: Path, site: Path) -> EntryPoints:
    """Write the files of ``pip install -e`` for setup.cfg; return the entry points."""
    config = ConfigParser()
    config.optionxform = str  # type: ignore[assignment,method-assign]
    config.read(folder / "setup.cfg", encoding="utf-8")
    name = config["metadata"]["name"]
    groups = config["options.entry_points"]
    text = "\n".join(f"[{group}]{lines}" for group, lines in groups.items())
    info = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    requirements = config["options"].get("install_requires", "").split("\n")
    lines = [f"Requires-Dist: {text}\n" for text in requirements if text]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n{''.join(lines)}")
    (info / "entry_points.txt").write_text(text, encoding="utf-8")
    (site / f"{name}.pth").write_text(str(folder))
    return Distribution.at(info).entry_points


def run_python(
    folder: Path, site: Path, *arguments: str, more_paths: Sequence[Path] = (), cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with a pack's folder and the installed packs on its path."""
    path = os.pathsep.join(
        [str(site), str(folder), *map(str, more_paths), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    command = [sys.executable, *arguments]
    if arguments[:2] == ("-m", "pytest"):
        command += ["-p", "no:hypothesispytest"]  # loading it takes half a second, and no pack uses it
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, cwd=cwd or site, capture_output=True, text=True
    )


def install(folder: Path, name: str, module: str, source: str, entry_points: str) -> None:
    """Write a module and a dist-info with entry points, as pip does.

    If a module of this name was imported, it is forgotten, so that the next import reads the new file.
    """
    sys.modules.pop(module, None)
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(dedent(source))
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    requirement = f"Requires-Dist: onnx-tflite-plugin~={VERSION}"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requirement}\n")
    (info / "entry_points.txt").write_text(dedent(entry_points))


def unary_model(code: str) -> bytes:
    """Return a model of one operator with the input x and the output y."""
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
    g.operator(code, [x], [y])
    g.output(y)
    return model.build()


def add_model() -> bytes:
    """Return a model of one ADD with the inputs x and y and the output z."""
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (2, 3)), g.input("y", (2, 3))
    z = g.tensor("z", (2, 3))
    g.operator("ADD", [x, y], [z])
    g.output(z)
    return model.build()
