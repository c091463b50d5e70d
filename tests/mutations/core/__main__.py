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


PASSED, FAILED = 0, 1  # what pytest returns where it ran tests


class NotTried(Exception):
    """A bug that could not be planted, or whose tests did not run."""


def survives(mutation: Planted, folder: Path) -> bool:
    """Whether all its tests pass in a copy of the checkout with the bug in it.

    Raises NotTried where nothing can be told of it.
    """
    module = folder / "onnx_tflite_plugin" / mutation.module
    text = module.read_text()
    if text.count(mutation.old) != 1:
        raise NotTried(f"{mutation.old!r} stands {text.count(mutation.old)} times in {mutation.module}, not once")
    module.write_text(text.replace(mutation.old, mutation.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutation.tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=SECONDS, check=False)
    finally:
        module.write_text(text)
    if ran.returncode not in (PASSED, FAILED):
        raise NotTried(f"pytest ended with {ran.returncode}: {ran.stdout.decode(errors='replace')[-300:].strip()}")
    return ran.returncode == PASSED


def main(names: Sequence[str]) -> int:
    """Tell of each bug whether it survives; 1 where one does, or could not be tried."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            source, copy = ROOT / name, Path(folder) / name
            shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
        failures = 0
        for mutation in MUTATIONS:
            if names and mutation.name not in names:
                continue
            try:
                told = "SURVIVES" if survives(mutation, Path(folder)) else "killed"
            except (NotTried, subprocess.TimeoutExpired) as error:
                told = f"ERROR ({error})"
            failures += told != "killed"
            sys.stdout.write(f"{told:9}{mutation.module}: {mutation.name}\n")
            sys.stdout.flush()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
