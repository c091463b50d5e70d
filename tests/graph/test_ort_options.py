"""Session options that are chosen by a model's own metadata."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.graph.metadata import PREFIX
from onnx_tflite_plugin.graph.ort_options import NO_REUSE_BYTES, ONE_THREAD_BYTES, choose_options, stored_metadata

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


def model_with_activations(activations: str | None) -> bytes:
    """Return a model with bytes of intermediate tensors, and 1,000 weights.

    The weights precede the metadata.
    """
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1000]) for name in "xy"]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [1000], np.ones(1000))
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weights])
    model = helper.make_model(graph)
    helper.set_model_props(
        model, {"other": "é"} | ({} if activations is None else {PREFIX + "activations": activations})
    )
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("activations", "threads", "reuses"),
    [
        (str(ONE_THREAD_BYTES), 1, False),
        (str(ONE_THREAD_BYTES + 1), 0, False),
        (str(NO_REUSE_BYTES), 0, False),
        (str(NO_REUSE_BYTES + 1), 0, True),
        ("many", 0, True),
        (None, 0, True),
    ],
)
def test_size_of_intermediate_tensors_selects_the_options(activations: str | None, threads: int, reuses: bool) -> None:
    options = choose_options(onnxruntime, model_with_activations(activations))
    assert (options.intra_op_num_threads, options.enable_mem_reuse) == (threads, reuses)


def test_metadata_is_read_from_content_and_from_a_file(tmp_path: Path) -> None:
    content = model_with_activations("7")
    (tmp_path / "m.onnx").write_bytes(content)
    expected = {entry.key: entry.value for entry in onnx.load_model_from_string(content).metadata_props}
    assert expected == {"other": "é", PREFIX + "activations": "7"}
    assert stored_metadata(content) == stored_metadata(str(tmp_path / "m.onnx")) == expected


@pytest.mark.parametrize("end", [1, 2, 9, 4100, -1])
def test_malformed_file_gets_default_options(end: int) -> None:
    assert PREFIX + "activations" not in stored_metadata(model_with_activations("7")[:end])


def test_converted_model_records_the_size_of_intermediate_tensors() -> None:
    conversion = otp.convert(EXAMPLE)
    main = conversion.source.main
    results = [tensor for operator in main.operators for tensor in operator.outputs if tensor is not None]
    size = sum(int(np.prod(tensor.shape)) * np.dtype(tensor.dtype).itemsize for tensor in results)
    stored = stored_metadata(conversion.proto.SerializeToString())
    assert 0 < int(stored[PREFIX + "activations"]) <= size  # fused operators have fewer results


def test_dynamic_model_records_no_size() -> None:
    conversion = otp.convert(EXAMPLE, dynamic_batch=True)
    assert PREFIX + "activations" not in stored_metadata(conversion.proto.SerializeToString())
