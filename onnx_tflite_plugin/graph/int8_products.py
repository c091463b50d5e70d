"""ONNX Runtime's products of 8-bit integers on this processor.

The products are wrong if the processor saturates sums, or if ONNX Runtime has a fault.
"""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.source.model import Array


def multiply_integers(onnxruntime: Any, x: Array, w: Array, runs: int = 1) -> list[Array]:
    """Return the int32 product of uint8 ``x`` and constant int8 ``w`` from each run."""
    from onnx import TensorProto, helper, numpy_helper  # the import takes 70 ms, and most sessions do not need it

    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # several threads would divide the rows
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, {"x": x})[0] for _ in range(runs)]
