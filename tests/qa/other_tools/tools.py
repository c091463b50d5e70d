"""The tools, their required packages, and the tolerances of their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OLDEST = "1.20.1"
"""The oldest ONNX Runtime that loads models for the default target; 1.17 and 1.18 abort on some."""


@dataclass(frozen=True)
class Tool:
    """A tool.

    ``script``: body of a function of ``source`` and ``target``, paths of models, and ``inputs``, arrays by name.
    ``allowed``: the tolerance as a fraction of the output's range. ``fold``: the tool requires float32 weights, as from
    ``--weights fold``. ``runs``: the script runs the model and writes its outputs as .npz, instead of a model.
    ``floats_only``: the tool does not support quantized models.
    """

    name: str
    packages: Sequence[str]
    script: str
    allowed: float = 0.0
    floats_only: bool = False
    runs: bool = False
    fold: bool = False


_RUN = """
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.log_severity_level = 3
session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
np.savez(target, *session.run(None, inputs))
"""
_SLIM = """
import onnx, onnxslim
onnx.save(onnxslim.slim(onnx.load(source)), target)
"""
_SIMPLIFY = """
import onnx, onnxsim
simple, ok = onnxsim.simplify(onnx.load(source))
assert ok
onnx.save(simple, target)
"""
_OPTIMIZE = """
import onnx, onnxoptimizer
onnx.save(onnxoptimizer.optimize(onnx.load(source)), target)
"""
_FLOAT16 = """
import onnx
from onnxconverter_common import float16
onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)
"""
_PREPARE = """
from onnxruntime.quantization.shape_inference import quant_pre_process
quant_pre_process(source, target)
"""
_DYNAMIC = """
import onnx
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.quantization.shape_inference import quant_pre_process
quant_pre_process(source, target + ".ready.onnx")
quantize_dynamic(target + ".ready.onnx", target, extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
"""
_STATIC = """
import onnx
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
class Reader(CalibrationDataReader):
    left = [inputs]
    def get_next(self):
        return self.left.pop() if self.left else None
quant_pre_process(source, target + ".ready.onnx")
extra = {"DefaultTensorType": onnx.TensorProto.FLOAT}
quantize_static(target + ".ready.onnx", target, Reader(), extra_options=extra)
"""
_CHECK = """
import pathlib, shutil
from onnxruntime.tools.mobile_helpers import usability_checker
usability_checker.analyze_model(pathlib.Path(source), skip_optimize=True)
shutil.copy(source, target)
"""
_QUANTIZATION = ("onnxruntime", "onnx", "sympy")

TOOLS = (
    Tool("oldest onnxruntime", [f"onnxruntime=={OLDEST}", "numpy<3"], _RUN, 1e-5, runs=True),
    Tool("onnxslim", ["onnxslim", "onnx"], _SLIM),
    Tool("onnxsim", ["onnxsim", "onnx"], _SIMPLIFY, 1e-5),
    Tool("onnxoptimizer", ["onnxoptimizer", "onnx"], _OPTIMIZE, 1e-5),
    Tool("float16", ["onnxconverter-common", "onnx"], _FLOAT16, 5e-2, floats_only=True, fold=True),
    Tool("quant_pre_process", _QUANTIZATION, _PREPARE, 1e-4),
    Tool("quantize_dynamic", _QUANTIZATION, _DYNAMIC, 0.75, floats_only=True, fold=True),
    Tool("quantize_static", _QUANTIZATION, _STATIC, 0.75, floats_only=True, fold=True),
    Tool("mobile usability checker", _QUANTIZATION, _CHECK),
)
