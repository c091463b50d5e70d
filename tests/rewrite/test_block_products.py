"""Products by 4-bit blocks become MatMulNBits in language models."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_tflite_plugin.rewrite import RULES
from onnx_tflite_plugin.rewrite.rule import load_rule
from tests.rewrite import harness
from tests.rewrite.harness import declines, graph, rule_test

DEPTH, COLUMNS = 64, 7
WEIGHTS = np.random.default_rng(3).integers(-8, 8, (DEPTH, COLUMNS)).astype(ml_dtypes.int4)


def product_graph(product: str = "MatMul (x, d)", block: int = 32, dtype: Any = ml_dtypes.int4) -> Any:
    """Return a graph of a product by dequantized blocks.

    If it reads ``d`` twice, the weights are also a result.
    """
    text = f"""(float[3,{DEPTH}] x) => (float[3,n] y) {{
        d = DequantizeLinear <axis = 0, block_size = {block}> (w, ws)
        y = {product} }}"""
    scales = np.random.default_rng(4).uniform(0.01, 0.1, (DEPTH // block, COLUMNS)).astype(np.float32)
    return graph(text, 21, w=WEIGHTS.astype(dtype), ws=scales, bias=np.ones(COLUMNS, np.float32))


NBITS = {"MatMulNBits": 1, "DequantizeLinear": 0}
ROUNDED = 0.02
"""Allowed error to the product without ONNX Runtime's fusion, which rounds the operand to 8 bits as MatMulNBits does."""

test_block_products_are_packed = rule_test(
    "block_products",
    harness.Case("MatMul", product_graph(), nodes=NBITS, tolerance=ROUNDED),
    harness.Case("Gemm", product_graph("Gemm (x, d)"), nodes=NBITS, tolerance=ROUNDED),
    harness.Case("blocks of 16", product_graph(block=16), nodes=NBITS, tolerance=ROUNDED),
    declines("blocks of 8", product_graph(block=8), "MatMulNBits does not support this block size"),
    declines("weights of 8 bits", product_graph(dtype=np.int8), "the weights are not int4"),
    declines("a bias", product_graph("Gemm (x, d, bias)"), "has a bias"),
    declines("weights with another user", product_graph("MatMul (x, d) z = Neg (d)"), "the weights have other users"),
)


@pytest.mark.parametrize("block", [16, 32, 64])
def test_results_equal_those_of_onnx_runtimes_own_fusion(block: int) -> None:
    model = product_graph(block=block)()
    before = ir.to_proto(model)
    assert load_rule(RULES["block_products"]).apply(model).applied == 1
    x = np.random.default_rng(5).standard_normal((3, DEPTH)).astype(np.float32)
    results = [
        onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for proto in (before, ir.to_proto(model))
    ]
    np.testing.assert_array_equal(results[0][0], results[1][0])
