"""Dtypes of 8-bit weights: only ``auto`` probes the processor.

Models with every weights dtype load with x64quantprecision.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import onnx
import onnxruntime
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.case import Case
from conformance.cases import builtin_cases
from onnx_tflite_plugin.errors import OnnxTooOld
from onnx_tflite_plugin.graph.kernels import describe_old_runtime
from onnx_tflite_plugin.verify import verify

PROBE = "int8_products_are_exact"
EIGHT_BITS = tuple(case for case in builtin_cases() if case.expects_success and case.dtype in ("int8", "uint8", "int4"))
INTERVAL = 11  # without --thorough, one in this many cases runs
PARTS = 4


def cases_of_part(remainder: int, thorough: bool) -> Iterator[Case]:
    """Yield the cases of one part; without ``thorough`` every INTERVAL-th of them."""
    yield from EIGHT_BITS[remainder :: PARTS if thorough else PARTS * INTERVAL]


def convert_model(case: Case, **extra_options: object) -> Iterator[otp.Conversion]:
    """Yield the conversion of a case, or nothing if onnx lacks the opset."""
    options = {**case.options, "target": "onnxruntime", "check": "standard", **extra_options}
    with suppress(OnnxTooOld):
        yield otp.convert(case.build(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("remainder", range(PARTS))
@pytest.mark.sampled
def test_fixed_weights_dtype_adds_no_processor_probe(remainder: int, thorough: bool) -> None:
    for case in cases_of_part(remainder, thorough):
        if "onnxruntime" not in case.targets or "weights_dtype" in case.options:
            continue
        for dtype in ("uint8", "int8", "keep"):
            for conversion in convert_model(case, weights_dtype=dtype):
                nodes = conversion.proto.graph.node
                assert PROBE not in {node.name for node in nodes}, case.id
                assert not any(node.op_type == "If" and PROBE in node.input for node in nodes), case.id


@pytest.mark.parametrize("remainder", range(PARTS))
@pytest.mark.sampled
def test_all_weights_dtypes_load_with_x64quantprecision(remainder: int, thorough: bool) -> None:
    for case in cases_of_part(remainder, thorough):
        if "onnxruntime" not in case.targets:
            continue
        for conversion in convert_model(case):
            if not describe_old_runtime(conversion.model):
                assert loads(conversion.proto), case.id


def loads(proto: onnx.ModelProto) -> bool:
    """Open a session with x64quantprecision; raise what ONNX Runtime raises."""
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("session.x64quantprecision", "1")
    settings.log_severity_level = 4
    onnxruntime.InferenceSession(proto.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return True


@pytest.mark.parametrize("code", ["MUL", "ADD", "SUB"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 5)])
def test_shared_int8_constant_loads_with_x64quantprecision(code: str, shape: tuple[int, ...]) -> None:
    assert loads(otp.convert(shared_constant(code, shape)).proto)


def test_large_shared_int8_constant_is_stored_once() -> None:
    shape = (1031, 1033)
    proto = otp.convert(shared_constant("MUL", shape), check="standard").proto
    assert loads(proto)
    assert proto.ByteSize() < 1.2 * 1031 * 1033
    assert verify(shared_constant("MUL", shape), proto, runs=1).ok


def shared_constant(code: str, shape: tuple[int, ...]) -> bytes:
    """Return a model of two operators with one int8 constant."""
    model = ModelBuilder()
    g = model.main
    size = shape if len(shape) == 2 else (3, 5)
    c = g.constant("c", np.full(shape, 100, np.int8), quantization=quant(0.0078, -128))
    for name in "ab":
        x = g.input(name, size, "int8", quantization=quant(0.04, -59))
        y = g.tensor(f"y{name}", size, "int8", quantization=quant(0.08, -59))
        g.operator(code, [x, c], [y])
        g.output(y)
    return model.build()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "keep"])
def test_first_convolution_of_few_channels_folds_without_a_probe(dtype: str) -> None:
    proto = otp.convert(first_convolution(), weights_dtype=dtype).proto
    assert "If" not in {node.op_type for node in proto.graph.node}
    assert "If" in {node.op_type for node in otp.convert(first_convolution()).proto.graph.node}


def first_convolution() -> bytes:
    """Return an int8 convolution with 3 input channels whose sums overflow 16 bits."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 96, 96, 3), "int8", quantization=quant(0.05, 3))
    weight = np.random.default_rng(0).integers(-127, 128, (16, 3, 3, 3)).astype(np.int8)
    weight[0] = 127
    w = g.constant("w", weight, quantization=quant([0.01] * 16, 0, 0))
    b = g.constant("b", np.arange(16, dtype=np.int32), quantization=quant([0.0005] * 16, 0, 0))
    y = g.tensor("y", (1, 48, 48, 16), "int8", quantization=quant(0.2, -5))
    g.operator("CONV_2D", [x, w, b], [y], {"padding": "SAME", "stride_h": 2, "stride_w": 2}, version=3)
    g.output(y)
    return model.build()
