"""Test LiteRT sessions: kernel sets, sub-byte integers and errors."""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.cases.state.variables import running_sum
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT, LiteRTError, Tolerance, Trial
from onnx_tflite_plugin.verify.runtimes.interpreter import LocalInterpreter
from onnx_tflite_plugin.verify.runtimes.packages import silence_stderr
from onnx_tflite_plugin.verify.runtimes.structure import entry, read
from tests.helpers.verify_pairs import two_signatures


@pytest.mark.parametrize(
    "loadable_kernels", [("xnnpack", "builtin", "reference"), ("builtin", "reference"), ("reference",)]
)
def test_reference_kernels_run_only_if_no_others_do(loadable_kernels: tuple[str, ...]) -> None:
    class PartialTrial(Trial):
        def _time_runs(self, kernels: str, *_: Any, **__: Any) -> tuple[list[list[Array]], float]:
            if kernels not in loadable_kernels:
                raise LiteRTError(f"{kernels} does not load")
            return [[np.zeros(3)]], 0.0

    net = Net()
    running_sum("float32")(net)
    data = net.build()
    model = read(data)
    outputs_by_kernels = PartialTrial(data, model, entry(model), Tolerance()).reference_outputs([[]])
    assert tuple(outputs_by_kernels) == (tuple(k for k in loadable_kernels if k != "reference") or ("reference",))


@pytest.mark.parametrize("kernels", ["builtin", "xnnpack"])
@pytest.mark.parametrize("exception_type", [ValueError, RuntimeError, IndexError])
def test_any_litert_exception_becomes_a_litert_error(exception_type: type[Exception], kernels: str) -> None:
    """For example an IndexError, if a C++ table lacks a key."""
    net = Net()
    running_sum("float32")(net)
    runtime = LiteRT(net.build(), kernels, isolated=False)

    class Broken:
        def allocate_tensors(self) -> None:
            raise exception_type("_Map_base::at")

    assert isinstance(runtime.backend, LocalInterpreter)
    runtime.backend.interpreter = Broken()
    with pytest.raises(LiteRTError, match=rf"LiteRT \({kernels} kernels\) cannot run the model: _Map_base::at"):
        runtime.run([np.zeros(tensor.shape, np.float32) for tensor in runtime.entry.inputs])


def test_dimension_beyond_32_bits_is_a_litert_error() -> None:
    net = Net()
    x = tensor(2, 0, 3, dtype="float32")
    net.output(net.call("ABS", [x], tensor(2, 0, 3)))
    runtime = LiteRT(net.build())
    with pytest.raises(LiteRTError, match=r"cannot run the model: .* out of bounds for int32"):
        runtime.run([np.zeros((2, 0, 2**31 + 1), np.float32)])


@pytest.mark.parametrize(
    "dtype", ["int4", pytest.param("uint4", marks=pytest.mark.needs("ai-edge-litert", "2.1.6", "uint4")), "int2"]
)
def test_sub_byte_integers_are_passed_to_litert_as_bytes(dtype: str) -> None:
    """The Python API has no dtype narrower than 8 bits."""
    net = Net()
    x = tensor(2, 3, dtype=dtype, scale=0)
    net.output(net.call("RESHAPE", [x, constant([3, 2])], tensor(3, 2, dtype=dtype, scale=0)))
    data = net.build()
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    session = LiteRT(data, "builtin")
    (ordered,) = session._order_inputs([array])
    assert ordered.dtype.itemsize == 1
    assert ordered.dtype.name in ("int8", "uint8")


def test_silence_works_without_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    def close(descriptor: int) -> int:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(os, "dup", close)
    ran = []
    with silence_stderr():
        ran.append("silent")
    assert ran == ["silent"]


@pytest.mark.parametrize("converted", ["first", "second"])
def test_verify_defaults_to_the_converted_signature(converted: str) -> None:
    conversion = otp.convert(two_signatures(), signature=converted)
    assert otp.verify(two_signatures(), conversion).ok
    assert otp.verify(two_signatures(), conversion, signature=converted).ok
