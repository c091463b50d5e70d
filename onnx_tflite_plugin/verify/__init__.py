"""Runs a TFLite model in LiteRT and its ONNX model in ONNX Runtime, and says how far apart they are.

``verify`` is the whole of it; ``LiteRT``, ``OnnxRuntime``, ``draw`` and ``compare`` are its parts, for tests
that need one alone. Neither runtime is imported before something runs.
"""

from .compare import Comparison, Distance, Tolerance, compare, measure
from .inputs import draw, load
from .litert import KERNEL_SETS, LiteRT, LiteRTError
from .ort import OnnxRuntime, OrtError, State
from .run import Divergence, Verification, verify

__all__ = [
    "KERNEL_SETS",
    "Comparison",
    "Distance",
    "Divergence",
    "LiteRT",
    "LiteRTError",
    "OnnxRuntime",
    "OrtError",
    "State",
    "Tolerance",
    "Verification",
    "compare",
    "draw",
    "load",
    "measure",
    "verify",
]
