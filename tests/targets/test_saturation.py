"""Other targets on x86 without VNNI, where 16-bit sums of products saturate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.verify import LiteRT
from tests.qa.emulation import extremes
from tests.qa.emulation.native import Unsupported, mask_processor

RUN = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
arrays = numpy.load(sys.argv[2])
(result,) = session.run(None, {session.get_inputs()[0].name: arrays["x"]})
print(int(numpy.abs(result.astype(int) - arrays["expected"].astype(int)).max()))
"""


def error_without_vnni(target: str, folder: Path) -> int:
    """Return the maximum error of an extreme product without VNNI, in steps."""
    data = extremes.conv("3x3", (1, 5, 7, 16), 20, min_weight=-127).build()
    otp.convert(data, target=target).save(folder / "model.onnx")
    x = np.full((1, 5, 7, 16), 127, np.int8)
    (expected,) = LiteRT(data, "builtin").run([x])
    np.savez(folder / "arrays.npz", x=x, expected=expected)
    environment = {**os.environ, **mask_processor("avx2", folder)}
    command = [sys.executable, "-c", RUN, str(folder / "model.onnx"), str(folder / "arrays.npz")]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("target", "saturates"), [("onnxruntime", False), ("generic", False), ("openvino", True), ("qnn", True)]
)
def test_uint8_activations_of_other_targets_saturate_without_vnni(target: str, saturates: bool, tmp_path: Path) -> None:
    """The documentation warns of these targets."""
    try:
        error = error_without_vnni(target, tmp_path)
    except Unsupported as reason:
        pytest.skip(str(reason))
    assert error > 50 if saturates else error <= 1
