"""Wrong shapes and dtypes of a file that LiteRT derives itself."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, quant
from onnx_tflite_plugin.verify import verify
from tests.helpers.single_output import build_model

Q = quant(0.05, 3)


def convolve(g: GraphBuilder) -> int:
    """Build a convolution and its consumer, both stored with sizes of another stride."""
    x, w = g.input("x", (1, 7, 5, 3)), g.constant("w", np.ones((2, 1, 1, 3), np.float32))
    y, z = g.tensor("y", (1, 7, 5, 2)), g.tensor("z", (1, 7, 5, 2))
    g.operator(
        "CONV_2D",
        [x, w, g.constant("b", np.ones(2, np.float32))],
        [y],
        {"stride_w": 2, "stride_h": 2, "padding": "VALID"},
    )
    g.operator("ABS", [y], [z])
    return z


def test_stale_stored_sizes_are_derived_as_in_litert() -> None:
    converted = otp.convert(build_model(convolve))
    assert [dim.dim_value for dim in converted.proto.graph.output[0].type.tensor_type.shape.dim] == [1, 4, 3, 2]
    assert verify(build_model(convolve), converted.proto).ok


def range_of_constants(g: GraphBuilder) -> int:
    """Return a RANGE of constants with a wrong stored size."""
    x, r, y = g.input("x", (5,), "int32"), g.tensor("r", (4,), "int32"), g.tensor("y", (5,), "int32")
    g.operator(
        "RANGE", [g.constant(name, np.array(k, np.int32)) for name, k in (("from", 0), ("to", 5), ("by", 1))], [r]
    )
    g.operator("ADD", [x, r], [y])
    return y


def test_stale_sizes_of_constant_results_are_derived() -> None:
    assert verify(build_model(range_of_constants), otp.convert(build_model(range_of_constants))).ok


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_float_result_with_a_scale_becomes_integer_as_in_litert(dtype: str) -> None:
    """Dtypes are derived operator by operator, so one correction needs the other."""

    def build(g: GraphBuilder) -> int:
        x, y = g.input("x", (2, 3), dtype, quantization=Q), g.tensor("y", (2, 3), dtype, quantization=Q)
        a, b = (g.tensor(name, (2, 3), "float32", quantization=Q) for name in "ab")
        for operands, result in (([x, x], a), ([a, a], b), ([b, x], y)):
            g.operator("ADD", operands, [result])
        return y

    data = build_model(build)
    conversion = otp.convert(data)
    assert {value.dtype.name for value in conversion.model.graph.inputs} == {dtype.upper()}
    verification = verify(data, conversion)
    assert verification.ok
    assert verification.comparisons[0].max_error == 0


def test_stale_float_outputs_are_compared_as_integers() -> None:
    def build(g: GraphBuilder) -> int:
        x, y = g.input("x", (2, 3), "int8", quantization=Q), g.tensor("y", (2, 3), "float32", quantization=Q)
        g.operator("ADD", [x, x], [y])
        return y

    data = build_model(build)
    verification = verify(data, otp.convert(data))
    assert verification.ok
    assert verification.comparisons[0].unit == "step"


def arg_max_with_stale_rank(g: GraphBuilder) -> int:
    """Build an ARG_MAX whose stored result keeps the removed axis, and a consumer.

    Old converters write such files.
    """
    x, axis = g.input("x", (5, 7)), g.constant("axis", np.array(1, np.int32))
    y, z = g.tensor("y", (5, 1), "int32"), g.tensor("z", (5, 1), "int32")
    g.operator("ARG_MAX", [x, axis], [y], {"output_type": "INT32"})
    g.operator("NEG", [y], [z])
    return z


def test_stale_stored_ranks_are_derived_as_in_litert() -> None:
    converted = otp.convert(build_model(arg_max_with_stale_rank))
    assert [dim.dim_value for dim in converted.proto.graph.output[0].type.tensor_type.shape.dim] == [5]
    assert verify(build_model(arg_max_with_stale_rank), converted.proto).ok
