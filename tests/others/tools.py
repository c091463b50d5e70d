"""The tools, what each needs, and how near its result must be to the model it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OLDEST = "1.20.1"
"""The oldest ONNX Runtime that default outputs load in: 1.17 and 1.18 abort on some."""


@dataclass(frozen=True)
class Tool:
    """``script`` reads the model at ``sys.argv[1]`` and writes ``sys.argv[2]``; ``sys.argv[3]`` has inputs, as .npz.

    ``allowed`` is a share of the output's range. ``fold``: weights must be float32 for it, ``--weights fold``. ``runs``:
    the tool's own ONNX Runtime runs the model, and the script writes its outputs as .npz instead.
    """

    name: str
    packages: Sequence[str]
    script: str
    allowed: float = 0.0
    floats_only: bool = False
    runs: bool = False
    fold: bool = False


_RUN = """
import sys, numpy as np, onnxruntime as ort
options = ort.SessionOptions(); options.log_severity_level = 3
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
feeds = dict(np.load(sys.argv[3]))
np.savez(sys.argv[2], *session.run(None, feeds))
"""
_SAVE = "import sys, onnx\nmodel = onnx.load(sys.argv[1])\n"
_QUANTIZE = """
import sys, onnx
from onnxruntime.quantization.shape_inference import quant_pre_process
ready = sys.argv[2] + ".ready.onnx"
quant_pre_process(sys.argv[1], ready)
from onnxruntime.quantization import """
_DTYPE = "extra_options={'DefaultTensorType': onnx.TensorProto.FLOAT}"

TOOLS = (
    Tool("oldest onnxruntime", [f"onnxruntime=={OLDEST}", "numpy<3"], _RUN, 1e-5, runs=True),
    Tool("onnxslim", ["onnxslim", "onnx"], _SAVE + "import onnxslim\nonnx.save(onnxslim.slim(model), sys.argv[2])"),
    Tool(
        "onnxsim",
        ["onnxsim", "onnx"],
        _SAVE + "import onnxsim\nmade, ok = onnxsim.simplify(model)\nassert ok\nonnx.save(made, sys.argv[2])",
        1e-5,
    ),
    Tool(
        "onnxoptimizer",
        ["onnxoptimizer", "onnx"],
        _SAVE + "import onnxoptimizer\nonnx.save(onnxoptimizer.optimize(model), sys.argv[2])",
        1e-5,
    ),
    Tool(
        "float16",
        ["onnxconverter-common", "onnx"],
        _SAVE
        + "from onnxconverter_common import float16\n"
        + "onnx.save(float16.convert_float_to_float16(model, keep_io_types=True), sys.argv[2])",
        5e-2,
        floats_only=True,
        fold=True,
    ),
    Tool(
        "quant_pre_process",
        ["onnxruntime", "onnx", "sympy"],
        "import sys\nfrom onnxruntime.quantization.shape_inference import quant_pre_process\n"
        "quant_pre_process(sys.argv[1], sys.argv[2])",
        1e-4,
    ),
    Tool(
        "quantize_dynamic",
        ["onnxruntime", "onnx", "sympy"],
        _QUANTIZE + f"quantize_dynamic\nquantize_dynamic(ready, sys.argv[2], {_DTYPE})",
        0.75,
        floats_only=True,
        fold=True,
    ),
    Tool(
        "quantize_static",
        ["onnxruntime", "onnx", "sympy"],
        _QUANTIZE
        + "quantize_static, CalibrationDataReader\nimport numpy as np\n"
        + "class Reader(CalibrationDataReader):\n"
        + "    def __init__(self): self.left = [dict(np.load(sys.argv[3]))]\n"
        + "    def get_next(self): return self.left.pop() if self.left else None\n"
        + "quantize_static(ready, sys.argv[2], Reader(), "
        + _DTYPE
        + ")",
        0.75,
        floats_only=True,
        fold=True,
    ),
    Tool(
        "mobile usability checker",
        ["onnxruntime", "onnx", "sympy"],
        "import sys, shutil, pathlib\n"
        "from onnxruntime.tools.mobile_helpers import usability_checker\n"
        "usability_checker.analyze_model(pathlib.Path(sys.argv[1]), skip_optimize=True)\n"
        "shutil.copy(sys.argv[1], sys.argv[2])",
    ),
)
