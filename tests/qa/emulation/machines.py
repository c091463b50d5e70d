"""Emulated processors: their names in qemu, and features to detect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Machine = Literal["x86_64", "aarch64"]
Overflow = Literal["pairs", "-128", "-128 dotprod", ""]
"""Kinds of overflow: two adjacent products saturate in 16 bits (vpmaddubsw), or a weight of -128 wraps (smlal) in kernels
for processors without or with dotprod. Measured on models of one operator against exact integers."""


@dataclass(frozen=True)
class Processor:
    """A processor with its name in qemu.

    ``has`` and ``lacks``: features by their names in NumPy. ``overflow``: how 8-bit products overflow on it; "" if they
    never do. ``part`` and ``features``: entries of /proc/cpuinfo on ARM, by which ONNX Runtime selects its kernels.
    """

    name: str
    machine: Machine
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    overflow: Overflow = ""
    part: int = 0
    features: str = ""

    @property
    def cpuinfo(self) -> str:
        """Return /proc/cpuinfo of one ARM core."""
        fields = {
            "processor": "0",
            "BogoMIPS": "50.00",
            "Features": self.features,
            "CPU implementer": "0x41",  # Arm Ltd.
            "CPU architecture": "8",
            "CPU variant": "0x0",
            "CPU part": f"{self.part:#05x}",
            "CPU revision": "1",
        }
        return "".join(f"{name}\t: {value}\n" for name, value in fields.items()) + "\n"

    def feature_mismatch(self, detected: list[str]) -> str:
        """Return how the detected features differ from the processor's; "" if they match."""
        missing = [name for name in self.has if name not in detected]
        extra = [name for name in self.lacks if name in detected]
        parts = (f"without {', '.join(missing)}" if missing else "", f"with {', '.join(extra)}" if extra else "")
        return " and ".join(part for part in parts if part)


ARMV8 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
ARMV8_2 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs"

HASWELL = Processor("Haswell", "x86_64", has=("AVX2",), lacks=("AVX512F",), overflow="pairs")
NEHALEM = Processor("Nehalem", "x86_64", has=("SSE42",), lacks=("AVX",))
CORTEX_A72 = Processor("cortex-a72", "aarch64", ("ASIMD",), ("ASIMDDP",), "-128", part=0xD08, features=ARMV8)
CORTEX_A76 = Processor(
    "cortex-a76", "aarch64", ("ASIMD", "ASIMDDP"), ("SVE",), "-128 dotprod", part=0xD0C, features=ARMV8_2
)

EMULATED: tuple[Processor, ...] = (HASWELL, NEHALEM, CORTEX_A76, CORTEX_A72)
