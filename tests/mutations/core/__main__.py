"""``python -m tests.mutations.core [NAME ...]``: plants one bug after the other in a copy of the checkout, and runs its tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..planted import Planted
from . import MUTATIONS, ROOT

COPIED = (
    "onnx_tflite_plugin",
    "op_handlers",
    "conformance",
    "tests",
    "packs",
    "examples",
    "pyproject.toml",
    "setup.cfg",
)
SECONDS = 600


def survives(mutation: Planted, folder: Path) -> bool:
    """Whether all its tests pass in a copy of the checkout with the bug in it."""
    module = folder / "onnx_tflite_plugin" / mutation.module
    text = module.read_text()
    module.write_text(text.replace(mutation.old, mutation.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutation.tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=SECONDS, check=False)
    finally:
        module.write_text(text)
    return ran.returncode != 1


def main(names: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            source, copy = ROOT / name, Path(folder) / name
            shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
        survivors = 0
        for mutation in MUTATIONS:
            if names and mutation.name not in names:
                continue
            survived = survives(mutation, Path(folder))
            survivors += survived
            sys.stdout.write(f"{'SURVIVES' if survived else 'killed':9}{mutation.module}: {mutation.name}\n")
            sys.stdout.flush()
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
