"""A 4-bit table that is also the weights of a MatMul is stored once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from conformance.builder import ModelBuilder, blockwise, quant
from conformance.case import Case
from conformance.cases.tensor import indexing_embedding
from conformance.runner import run_case
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import VerifyOptions
from op_handlers.tensor import indexing as handlers
from tests.rewrite import harness
from tests.rewrite.harness import declines, graph, rule_test

DEPTH, ROWS, BLOCK = 64, 7, 32
WEIGHTS = np.random.default_rng(3).integers(-8, 8, (ROWS, DEPTH)).astype(np.int8)
SCALES = np.random.default_rng(4).uniform(0.01, 0.1, (ROWS, DEPTH // BLOCK)).astype(np.float32)
PRODUCT = "MatMul (x, d)"


def pack_nibbles(weights: Any = WEIGHTS) -> Any:
    pairs = (weights + 8).astype(np.uint8).reshape(ROWS, DEPTH // BLOCK, BLOCK // 2, 2)
    return pairs[..., 0] | pairs[..., 1] << 4


def tied_graph(product: str = PRODUCT, **other_options: Any) -> Any:
    """Return a graph that gathers rows of a table, and multiplies by the same table."""
    text = f"""(int64[5] ids, float[3,{DEPTH}] x) => (uint8[5,2,16] rows, float[5,2] s, float[3,{ROWS}] y) {{
        rows = Gather (table, ids) s = Gather (scales, ids)
        d = DequantizeLinear <axis = 0, block_size = {BLOCK}> (w, ws)
        y = {product} }}"""
    stored = {"table": pack_nibbles(), "scales": SCALES, "w": WEIGHTS.T.astype(ml_dtypes.int4), "ws": SCALES.T.copy()}
    return graph(text, 21, **{**stored, "bias": np.ones(ROWS, np.float32), **other_options})


def graph_of_rows(table: Any = None, scales: Any = None, user: str = "Gather (table, ids)") -> Any:
    """Return a graph like :func:`tied_graph`, but with one scale per row.

    The product's table repeats this scale for every block of the row.
    """
    text = f"""(int64[5] ids, float[3,{DEPTH}] x) => (uint8[5,32] rows, float[5,1] s, float[3,{ROWS}] y) {{
        rows = {user} s = Gather (scales, ids)
        d = DequantizeLinear <axis = 0, block_size = {BLOCK}> (w, ws)
        y = MatMul (x, d) }}"""
    stored = {
        "table": (pack_nibbles() if table is None else table).reshape(ROWS, -1),
        "scales": SCALES[:, :1] if scales is None else scales,
        "w": WEIGHTS.T.astype(ml_dtypes.int4),
        "ws": np.repeat(SCALES[:, :1].T, DEPTH // BLOCK, axis=0),
    }
    return graph(text, 21, **stored)


changed_weights = WEIGHTS.copy()
changed_weights[5, 9] ^= 1

test_product_reads_the_bytes_of_the_table = rule_test(
    "tie_tables",
    harness.Case("MatMul", tied_graph(), nodes={"MatMulNBits": 1, "DequantizeLinear": 0}, tolerance=1e-5),
    harness.Case("Gemm", tied_graph("Gemm (x, d)"), nodes={"MatMulNBits": 1, "DequantizeLinear": 0}, tolerance=1e-5),
    harness.Case("a scale per row", graph_of_rows(), nodes={"MatMulNBits": 1, "DequantizeLinear": 0}, tolerance=1e-5),
    declines("another number of rows", graph_of_rows(pack_nibbles(changed_weights)), "no table has the same values"),
    declines("another scale per row", graph_of_rows(scales=SCALES[:, 1:]), "no table has the same values"),
    declines("columns", graph_of_rows(user="Gather <axis = -2> (table, ids)"), "the table has other users"),
    declines("another weight", tied_graph(table=pack_nibbles(changed_weights)), "no table has the same values"),
    declines("another scale", tied_graph(scales=SCALES * np.float32(1.5)), "no table has the same values"),
    declines("a bias", tied_graph("Gemm (x, d, bias)"), "has a bias"),
    declines("weights in columns", tied_graph("Gemm <transB = 0, alpha = 2.0> (x, d)"), "has a bias"),
)


PACKED = [x for x in indexing_embedding.cases() if x.op == "EMBEDDING_LOOKUP" and x.name.startswith("int4 to float32")]


@pytest.mark.parametrize("case", PACKED, ids=lambda case: case.name)
def test_gathered_packed_rows_equal_litert(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MIN_PACKED_ELEMENTS", 0)
    result = run_case(case, Host())
    assert result.status == "passed", result.reasons


def embedding_and_scores(rows: int = 300, depth: int = 768, *, per_row: bool = False) -> bytes:
    """Return a model that gathers rows of a 4-bit table, and multiplies by it."""
    model = ModelBuilder()
    g = model.main
    count = 1 if per_row else 5  # weights with a scale per row are multiplied in blocks for few rows only
    ids = g.input("ids", (count,), "int32")
    embeddings, y = g.tensor("found", (count, depth)), g.tensor("y", (count, rows))
    random = np.random.default_rng(2)
    scales = g.constant("scales", random.uniform(0.05, 0.2, (rows, depth // BLOCK)).astype(np.float16))
    weights = random.integers(-8, 8, (rows, depth)).astype(ml_dtypes.int4)
    by_row = quant(random.uniform(0.05, 0.2, rows).tolist(), [0] * rows, axis=0)
    table = g.constant("table", weights, quantization=by_row if per_row else blockwise(scales, BLOCK))
    g.operator("EMBEDDING_LOOKUP", [ids, table], [embeddings])
    g.operator("FULLY_CONNECTED", [embeddings, table, None], [y])
    g.output(y)
    return model.build()


@pytest.mark.needs("onnxruntime", "1.25", "fusing weights with a scale per block")
@pytest.mark.parametrize("per_row", [False, True], ids=["blocks", "rows"])
def test_embedding_and_scores_share_a_table(per_row: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MIN_PACKED_ELEMENTS", 0)
    data = embedding_and_scores(per_row=per_row)
    ids = np.array([299] if per_row else [7, 0, 299, 3, 3], np.int32)
    conversion = convert(data, verify=VerifyOptions(inputs={"ids": ids}))
    assert conversion.report.passes["tie_tables"] == 1
    assert conversion.proto.ByteSize() < len(data) * 1.2
