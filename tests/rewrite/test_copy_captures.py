"""Captured dequantized values are copied where ONNX Runtime would crash."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, TensorRef, quant
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from tests.helpers.passes_networks import apply, parse_model

IF_MODEL = """(int8[2,3,5] q, bool c) => (float[{shape}] y) {{
    f = DequantizeLinear (q, s, z)
    {between}
    y = If (c) <then_branch = t () => (float[{shape}] a) {{ a = Abs (r) }},
                else_branch = e () => (float[{shape}] b) {{ b = Neg (r) }}>
}}"""
STORED = {"s": np.array(0.25, np.float32), "z": np.array(3, np.int8), "shape": np.array([6, 5], np.int64)}


@pytest.mark.parametrize(
    ("between", "shape", "copies"),
    [
        ("r = Reshape (f, shape)", "6,5", 1),
        ("g = Reshape (f, shape) r = Transpose <perm = [1, 0]> (g)", "5,6", 1),
        ("r = Mul (f, s)", "2,3,5", 0),
    ],
    ids=["reshaped", "reshaped and transposed", "multiplied"],
)
def test_moved_captures_are_copied(between: str, shape: str, copies: int) -> None:
    model = parse_model(IF_MODEL.format(between=between, shape=shape), 17, **STORED)
    assert apply("copy_captures", model) == copies
    assert [node.op_type for node in model.graph].count("Max") == copies
    q = np.arange(-15, 15, dtype=np.int8).reshape(2, 3, 5)
    (y,) = OnnxRuntime(ir.to_proto(model)).run([q, np.asarray(True)])  # ONNX Runtime crashes without the copy
    assert np.array_equal(np.sort(y, axis=None), np.sort(np.abs((q.ravel() - 3.0) * 0.25) * (1 if copies else 0.25)))


@pytest.mark.parametrize("target", ["onnxruntime", "generic"])
def test_branch_with_a_reshaped_input_loads(target: str) -> None:
    model = ModelBuilder()
    main = model.main
    x = main.input("x", (2, 3, 5), "int8", quantization=quant(0.25, 3))
    condition = main.input("which", (), "bool")
    main.operator("DEQUANTIZE", [x], [f := main.tensor("f", (2, 3, 5))])
    main.operator("RESHAPE", [f, main.constant("shape", np.array([6, 5], np.int32))], [r := main.tensor("r", (6, 5))])

    def branch(code: str) -> int:
        body: GraphBuilder = model.subgraph(code)
        inner: TensorRef = body.input("r", (6, 5))
        body.operator(code, [inner], [y := body.tensor("y", (6, 5))])
        body.output(y)
        return body.index

    branches = {"then_subgraph_index": branch("ABS"), "else_subgraph_index": branch("NEG")}
    main.operator("IF", [condition, r], [y := main.tensor("y", (6, 5))], branches)
    main.output(y)
    data = model.build()
    assert verify(data, otp.convert(data, target=target).proto).ok
