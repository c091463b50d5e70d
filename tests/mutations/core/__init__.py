"""Bugs to plant in the core, each with the tests that must fail for it: other text in a module.

``test_mutations`` checks that every one can be planted and that its tests are there; whether they fail takes minutes, and is
tried by ``python -m tests.mutations.core [NAME ...]``.
"""

from pathlib import Path

from ..planted import Planted
from . import compared, planned, rewritten, written

ROOT = Path(__file__).parents[3]
CORE = ROOT / "onnx_tflite_plugin"

MUTATIONS: tuple[Planted, ...] = (*compared.MUTATIONS, *planned.MUTATIONS, *rewritten.MUTATIONS, *written.MUTATIONS)
