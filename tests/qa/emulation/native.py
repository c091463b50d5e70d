"""Masking of vector instructions of this x86 processor.

The library ``cpuid.c`` is preloaded; commands run at full speed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from tests.qa.emulation.machines import HASWELL, NEHALEM, Processor

SOURCE = Path(__file__).with_name("cpuid.c")
UNSUPPORTED = 77  # exit status of cpuid.c if CPUID cannot be made to fault

# the masked processor by the value of HIDE_CPUID
MASKS: Mapping[str, Processor] = {
    "avx2": Processor("native avx2", "x86_64", has=HASWELL.has, lacks=HASWELL.lacks, overflow="pairs"),
    "avx512": Processor("native avx512", "x86_64", has=("AVX512F",), lacks=("AVX512VNNI",), overflow="pairs"),
    "sse": Processor("native sse", "x86_64", has=NEHALEM.has, lacks=NEHALEM.lacks),
}


class Unsupported(Exception):
    """Raised with the reason if CPUID cannot be hidden here."""


def mask_processor(mask: str, folder: Path) -> dict[str, str]:
    """Return the environment that hides instructions, or raise Unsupported.

    ``mask``: the instructions to hide. The library is compiled into ``folder``. Threads, forks and executed programs
    inherit the mask. Programs that are started without LD_PRELOAD or are linked statically do not.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Unsupported(f"hiding instructions needs Linux on x86-64, not {sys.platform} on {platform.machine()}")
    library = _build_library(folder)
    libraries = [str(library), *filter(None, [os.environ.get("LD_PRELOAD")])]
    environment = {"LD_PRELOAD": ":".join(libraries), "HIDE_CPUID": mask}
    completed = subprocess.run(
        [sys.executable, "-c", ""], env={**os.environ, **environment}, capture_output=True, text=True
    )
    if completed.returncode == UNSUPPORTED:
        raise Unsupported("this kernel or processor cannot make CPUID fault, which hiding instructions needs")
    if completed.returncode or completed.stderr:
        raise Unsupported(f"{library} cannot be preloaded: {completed.stderr.strip() or completed.returncode}")
    return environment


def _build_library(folder: Path) -> Path:
    """Return the path of the library; compile it if necessary."""
    library = folder / f"cpuid-{sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if library.exists():
        return library
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise Unsupported(f"there is no C compiler to build {SOURCE.name}")
    folder.mkdir(parents=True, exist_ok=True)
    temporary = library.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(temporary), str(SOURCE), "-ldl"]
    completed = subprocess.run(command, capture_output=True, text=True)
    if completed.returncode:
        raise Unsupported(f"{SOURCE.name} does not compile: {completed.stderr.strip()}")
    return temporary.rename(library)
