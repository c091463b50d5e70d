"""Setup of qemu-user, and of ONNX Runtime for another architecture.

Debian packages are downloaded by apt with separate package lists and unpacked into a cache folder. Nothing is installed, and
no privileges are needed. An installed qemu is preferred.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from types import MappingProxyType

from tests.qa.emulation.machines import Machine, Processor
from tools.wheels import download

DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
PACKAGES = ("onnxruntime", "numpy")
COMPLETE = ".complete"


class NotInstalled(Exception):
    """Raised with the reason if the emulation cannot be set up here."""


@dataclass(frozen=True)
class Command:
    """Command that runs a script on a processor: first arguments, and environment."""

    start: tuple[str, ...]
    environment: dict[str, str]


def worker_environment(site: Sequence[Path], **variables: str) -> dict[str, str]:
    """Return the worker's environment: paths of programs and temporary files."""
    inherited = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {**inherited, "PYTHONPATH": os.pathsep.join(map(str, site)), "PYTHONNOUSERSITE": "1", **variables}


def local_command(variables: Mapping[str, str] = MappingProxyType({})) -> Command:
    """Return the command of this Python with additional environment variables."""
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    site = dict.fromkeys(Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))
    return Command((str(python), "-P"), worker_environment([*site], **variables))


class Emulator:
    """Emulator unpacked in ``cache``, which is reused while the versions are the same."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache.resolve()
        self._updated = False
        self._lock = Lock()

    def command(self, processor: Processor) -> Command:
        """Return the command that runs Python on a processor. Raises NotInstalled."""
        if sys.platform != "linux" or platform.machine() not in DEBIAN:
            raise NotInstalled(f"qemu-user needs Linux on x86-64 or ARM64, not {sys.platform} on {platform.machine()}")
        with self._lock:
            qemu = (str(self.qemu(processor.machine)), "-cpu", processor.name)
            if processor.machine == platform.machine():
                command = local_command()
                return Command((*qemu, *command.start), command.environment)
            root_folder, python = self.root(processor.machine)
        sysroot = self.sysroot(processor, root_folder)
        return Command(
            (*qemu, "-L", str(sysroot), str(root_folder / python), "-P"), worker_environment([root_folder / "site"])
        )

    # --- emulator and root folders ------------------------------------------------------------

    def qemu(self, machine: Machine) -> Path:
        """Return the path of the emulator: installed, or from Debian's package."""
        for name in (f"qemu-{machine}", f"qemu-{machine}-static"):
            if executable := shutil.which(name):
                return Path(executable)
        folder = self.cache / "qemu"
        for package in ("qemu-user-static", "qemu-user", None):  # in newer releases, qemu-user has the static emulators
            for path in (folder / f"qemu-{machine}-static", folder / f"qemu-{machine}"):
                if path.exists() and _runs(path):
                    return path
            if package is None:
                break
            self._fetch(folder, [f"{package}:{DEBIAN[platform.machine()]}"])
            _extract(folder, [f"qemu-{machine}{end}" for machine in DEBIAN for end in ("", "-static")])
        raise NotInstalled(f"Debian's packages have no qemu-{machine} that runs here")

    def root(self, machine: Machine) -> tuple[Path, str]:
        """Return a folder with Python for another architecture, and the interpreter in it.

        The subfolder ``site`` holds the packages.
        """
        versions = " ".join(f"{name}=={version(name)}" for name in PACKAGES)
        folder = self.cache / f"root-{machine}"
        marker = folder / COMPLETE
        if marker.exists() and (lines := marker.read_text().splitlines())[0] == versions:
            return folder, lines[1]
        shutil.rmtree(folder, ignore_errors=True)
        self._fetch(folder / "debs", self._packages(machine))
        for package in sorted((folder / "debs").glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), str(folder)])
        python = max((folder / "usr/bin").glob("python3.*[0-9]"), key=lambda path: int(path.name.split(".")[1]))
        self._site(folder, machine, python.name.removeprefix("python"))
        shutil.rmtree(folder / "debs")
        relative = str(python.relative_to(folder))
        marker.write_text(f"{versions}\n{relative}\n")
        return folder, relative

    def sysroot(self, processor: Processor, root: Path) -> Path:
        """Return a root folder for qemu, with the emulated /proc/cpuinfo."""
        folder = self.cache / f"sysroot-{processor.name}"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "proc").mkdir(parents=True)
        (folder / "proc/cpuinfo").write_text(processor.cpuinfo)
        for entry in root.iterdir():
            if entry.name != "proc":
                (folder / entry.name).symlink_to(entry)
        return folder

    # --- downloads ----------------------------------------------------------------------------

    def _packages(self, machine: Machine) -> list[str]:
        """Return Debian's Python and its direct dependencies, by name and architecture."""
        dependencies = self._dependencies(["python3"])
        python = next((name for name in dependencies if name.startswith("python3.")), None)
        if python is None:
            raise NotInstalled("Debian's package lists have no python3")
        names = [python, f"{python}-minimal", f"lib{python}-minimal", f"lib{python}-stdlib", "libstdc++6"]
        libraries = [name for name in self._dependencies(names) if name.startswith(("lib", "zlib"))]
        return [f"{name}:{DEBIAN[machine]}" for name in dict.fromkeys([*names, *libraries])]

    def _dependencies(self, names: Sequence[str]) -> list[str]:
        lines = self._apt("apt-cache", "depends", *names).splitlines()
        return [line.split(": ")[1] for line in lines if "Depends: " in line and "<" not in line]

    def _site(self, folder: Path, machine: Machine, python: str) -> None:
        """Install the packages of this environment for the other architecture."""
        same_python = python == ".".join(platform.python_version_tuple()[:2])
        requirements = [
            f"{name}=={version(name)}" if same_python or name == "onnxruntime" else name for name in PACKAGES
        ]
        options = [f"--platform={system}_{machine}" for system in PLATFORMS]
        try:
            wheels = download(folder / "wheels", requirements, [*options, f"--python-version={python}"])
        except subprocess.CalledProcessError as error:
            raise NotInstalled(f"no wheels for {machine} and Python {python}: {_last_line(error)}") from error
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder / "site")
        shutil.rmtree(folder / "wheels")

    def _fetch(self, folder: Path, packages: Sequence[str]) -> None:
        """Download Debian packages."""
        folder.mkdir(parents=True, exist_ok=True)
        self._apt("apt-get", "download", *packages, folder=folder)

    def _apt(self, *arguments: str, folder: Path | None = None) -> str:
        """Run apt with package lists for both architectures, fetched once."""
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise NotInstalled("qemu-user is not installed, and there is no apt to download it")
        state = self.cache / "apt"
        for name in ("lists/partial", "archives/partial"):
            (state / name).mkdir(parents=True, exist_ok=True)
        settings = {
            "Dir::State": state,
            "Dir::State::lists": state / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": state,
            "APT::Sandbox::User": "root",
            "APT::Architecture": DEBIAN[platform.machine()],
            "Acquire::Languages": "none",
        }
        options = [f"-o{name}={value}" for name, value in settings.items()]
        options += [f"-oAPT::Architectures::={name}" for name in DEBIAN.values()]
        if not self._updated:
            self._updated = True
            _run(["apt-get", *options, "update"])
        return _run([arguments[0], *options, *arguments[1:]], folder)


def _extract(folder: Path, names: Container[str]) -> None:
    """Extract named files from the Debian packages in a folder; delete the packages."""
    for package in folder.glob("*.deb"):
        with (
            subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as process,
            tarfile.open(fileobj=process.stdout, mode="r|") as archive,
        ):
            for member in archive:
                name = Path(member.name).name
                file = archive.extractfile(member) if member.isfile() and name in names else None
                if file is not None:
                    (folder / name).write_bytes(file.read())
                    (folder / name).chmod(0o755)
        package.unlink()


def _runs(path: Path) -> bool:
    return subprocess.run([str(path), "--version"], capture_output=True).returncode == 0


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    try:
        return subprocess.run(
            command,
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "LC_ALL": "C"},
        ).stdout
    except (subprocess.SubprocessError, OSError) as error:
        raise NotInstalled(f"{' '.join([command[0], command[-1]])} failed: {_last_line(error)}") from error


def _last_line(error: Exception) -> str:
    """Return the last line of output of a failed command."""
    lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
