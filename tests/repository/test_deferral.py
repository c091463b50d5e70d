"""Tests that modules needed by few conversions are loaded lazily."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_a_conversion_does_not_run_sympy() -> None:
    script = f"import sys, onnx_tflite_plugin; onnx_tflite_plugin.convert({str(EXAMPLE)!r}).proto; print('sympy.core' in sys.modules)"
    assert run(script) == "False"


def test_a_conversion_does_not_import_verify() -> None:
    loaded = "[name for name in sys.modules if name.startswith('onnx_tflite_plugin.verify')]"
    script = f"import sys, onnx_tflite_plugin; onnx_tflite_plugin.convert({str(EXAMPLE)!r}); print({loaded})"
    assert run(script) == "[]"


def test_symbolic_sizes_still_compute() -> None:
    script = "import onnx_tflite_plugin, onnx_ir; print(onnx_ir.SymbolicDim('batch') * 2 + 1)"
    assert run(script) == "2*batch + 1"


def test_sympy_may_have_been_imported_before() -> None:
    script = "import sympy, onnx_tflite_plugin, onnx_ir; print(onnx_ir.SymbolicDim('n') + int(sympy.Integer(2)))"
    assert run(script) == "n + 2"
