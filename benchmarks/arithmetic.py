"""Lower bound on the run time of a network: the time of its multiplications."""

from __future__ import annotations

import time
from functools import cache
from math import prod

import numpy as np
import onnx
import onnxruntime

from onnx_tflite_plugin.source.model import Model, Operator, Tensor

SIZE = 512
"""Rows and columns of the matrices that are multiplied to measure the rate."""
SECONDS = 0.2
"""Duration of one rate measurement."""


def minimum_seconds(model: Model) -> float | None:
    """Return the minimum time of the multiplications in seconds; None without any."""
    counts = {"float32": 0, "int8": 0}
    for op in model.main.operators:
        count, weights = multiplications(op), op.tensor(1)
        counts["int8" if count and weights is not None and weights.dtype in ("int8", "uint8") else "float32"] += count
    return sum(count / rate(dtype) for dtype, count in counts.items() if count) or None


def multiplications(op: Operator) -> int:
    """Return the number of multiplications in a convolution or matrix product, else 0."""
    result, weights = op.tensor(~0), op.tensor(1)  # ~0: output 0
    if result is None or weights is None:
        return 0
    result_size = _elements(result)
    match op.code:
        case "CONV_2D":
            return result_size * prod(weights.shape[1:])
        case "DEPTHWISE_CONV_2D":
            return result_size * prod(weights.shape[1:3])
        case "CONV_3D":
            return result_size * prod(weights.shape[:4])
        case "TRANSPOSE_CONV":
            return _elements(op[2]) * prod(weights.shape[:3])
        case "FULLY_CONNECTED":
            return result_size * weights.shape[-1]
        case "BATCH_MATMUL":
            return result_size * op[0].shape[-2 if op.options.get("adj_x") else -1]
    return 0


@cache
def rate(dtype: str) -> float:
    """Return the multiplications per second of one thread in a large matrix product.

    ``dtype``: "float32" or "int8". For "int8", uint8 is multiplied with int8.
    """
    weights = np.ones((SIZE, SIZE), np.float32 if dtype == "float32" else np.int8)
    operator, result_dtype = ("MatMul", "float") if dtype == "float32" else ("MatMulInteger", "int32")
    operand_dtype = "float" if dtype == "float32" else "uint8"
    graph = f"g ({operand_dtype}[{SIZE},{SIZE}] x) => ({result_dtype}[{SIZE},{SIZE}] y) {{ y = {operator}(x, w) }}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {graph}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feeds = {"x": np.ones((SIZE, SIZE), np.float32 if dtype == "float32" else np.uint8)}
    fastest, end = float("inf"), time.process_time() + SECONDS
    while time.process_time() < end:
        start = time.process_time()
        session.run(None, feeds)
        fastest = min(fastest, time.process_time() - start)
    return SIZE**3 / fastest


def _elements(tensor: Tensor) -> int:
    return prod(size or 1 for size in tensor.dims)
