"""Tests of models converted with a dynamic batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnxruntime import InferenceSession

from conformance.builder import ModelBuilder
from conformance.models import Net, constant, random_array, tensor
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.errors import UnsupportedOperator, UnsupportedOption
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT
from tests.helpers.resized_models import agrees, classifier, dims, single_operator

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("data", [classifier([-1, 30]), DIGITS.read_bytes()], ids=["float32", "int8"])
def test_dynamic_batch_agrees_at_every_size(data: bytes, batch: int) -> None:
    conversion = convert(data, dynamic_batch=True)
    name, *_ = dims(conversion)
    assert agrees(data, conversion, **{name: (batch, *[int(n or 0) for n in dims(conversion)[name][1:]])})  # type: ignore[arg-type]


def test_dynamic_batch_has_one_name_in_inputs_and_outputs() -> None:
    assert dims(convert(classifier([-1, 30]), dynamic_batch=True)) == {"x0": ["batch", 4, 6, 3], "y0": ["batch", 7]}


def test_resized_batch_is_kept_with_dynamic_batch() -> None:
    data = single_operator("FULLY_CONNECTED", tensor(2, 3), tensor(5, 3), tensor(2, 5))
    assert dims(convert(data, dynamic_batch=True)) == {"x0": ["batch", 3], "x1": [5, 3], "y0": ["batch", 5]}


def transpose_and_reshape(*input_shape: int) -> bytes:
    """Return a RESHAPE to [5, 6] of an input whose two leading axes are swapped."""
    model = Net()
    x = model.call(
        "TRANSPOSE", [tensor(*input_shape), constant([1, 0, 2])], tensor(input_shape[1], input_shape[0], input_shape[2])
    )
    model.output(model.call("RESHAPE", [x, constant([5, 6])], tensor(5, 6)))
    return model.build()


def test_stored_shape_follows_a_named_or_batch_dimension() -> None:
    """A leading size that is not the named or batch size does not change a RESHAPE."""
    rows = single_operator("RESHAPE", tensor(5, 2, 3), constant([5, 6]), tensor(5, 6))
    assert dims(convert(rows, input_shape={"x0": ["n", 2, 3]})) == {"x0": ["n", 2, 3], "y0": ["n", 6]}
    transposed = transpose_and_reshape(2, 5, 3)
    assert dims(convert(transposed, input_shape={"x0": [2, "n", 3]})) == {"x0": [2, "n", 3], "y0": ["n", 6]}
    with pytest.raises(UnsupportedOperator, match=r"op 1 RESHAPE v1 .*\[5, 6\] does not fit the 60 elements"):
        convert(transposed, dynamic_batch=True)


def test_rejects_dynamic_batch_for_scalars() -> None:
    with pytest.raises(UnsupportedOption, match="no graph input has an axis that could be dynamic"):
        convert(single_operator("ADD", tensor(), tensor(), tensor()), dynamic_batch=True)


def test_names_the_operator_that_prevents_a_dynamic_batch() -> None:
    with pytest.raises(UnsupportedOperator, match=r"op 0 RESHAPE v1 .*\[30, 1\] does not fit the 60 elements"):
        convert(single_operator("RESHAPE", tensor(1, 5, 6), constant([30, 1]), tensor(30, 1)), dynamic_batch=True)


def test_rejects_a_rank_that_depends_on_the_batch() -> None:
    model = Net()
    model.output(model.call("SQUEEZE", [tensor(1, 5, 3)], tensor(5, 3)))
    with pytest.raises(UnsupportedOperator, match="the rank depends on the batch"):
        convert(model.build(), dynamic_batch=True)


def test_error_of_a_requested_batch_suggests_dynamic_batch() -> None:
    with pytest.raises(UnsupportedOperator) as caught:
        convert(classifier([1, 30]), input_shape={"x0": [8, 4, 6, 3]})
    assert "make the batch dynamic with dynamic_batch=True" in caught.value.problems[0].hint


def test_dynamic_batch_follows_the_derived_shape_of_a_stale_result() -> None:
    model = ModelBuilder()
    g = model.main
    g.operator("ABS", [g.input("x", (2, 3))], [y := g.tensor("y", (3, 2))])
    g.output(y)
    (result,) = convert(model.build(), dynamic_batch=True).proto.graph.output
    assert [dim.dim_param or dim.dim_value for dim in result.type.tensor_type.shape.dim] == ["batch", 3]


def run_per_item(data: bytes, *images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return LiteRT's results for each image in turn."""
    session = LiteRT(data, "builtin")
    return np.concatenate([session.run([image])[0] for image in images])


def reshape(shape: list[int], *, as_option: bool = False) -> bytes:
    x, y = tensor(1, 5, 2, 3), tensor(1, 10, 3)
    model = Net()
    options = {"new_shape": shape} if as_option else {}
    model.output(model.call("RESHAPE", [model.input(x), *([] if as_option else [constant(shape)])], y, **options))
    return model.build()


def convolve_transposed() -> bytes:
    w, x = constant(random_array(5, 3, 3, 2)), tensor(1, 4, 3, 2)
    return single_operator(
        "TRANSPOSE_CONV", constant([1, 8, 6, 5]), w, x, tensor(1, 8, 6, 5), padding="SAME", stride_h=2, stride_w=2
    )


STORED_BATCH = {
    "RESHAPE": reshape([1, 10, 3]),
    "RESHAPE with a size to infer": reshape([1, -1, 3]),
    "RESHAPE by its options": reshape([1, -1, 3], as_option=True),
    "SLICE": single_operator("SLICE", tensor(1, 5, 3), constant([0, 1, 0]), constant([1, 3, -1]), tensor(1, 3, 3)),
    "STRIDED_SLICE": single_operator(
        "STRIDED_SLICE", tensor(1, 7, 3), constant([0, 1, 0]), constant([1, 6, 3]), constant([1, 2, 1]), tensor(1, 3, 3)
    ),
    "BROADCAST_TO": single_operator("BROADCAST_TO", tensor(1, 1, 3), constant([1, 5, 3]), tensor(1, 5, 3)),
    "TRANSPOSE_CONV": convolve_transposed(),
    "CONV_2D, RESHAPE, FULLY_CONNECTED": classifier([1, 30]),
}


@pytest.mark.parametrize("name", STORED_BATCH)
def test_batch_items_equal_separate_litert_runs(name: str) -> None:
    data = STORED_BATCH[name]
    proto = convert(data, dynamic_batch=True).proto
    (x,) = (info.type.tensor_type.shape.dim for info in proto.graph.input)
    images = [
        np.asarray(random_array(1, *(dim.dim_value for dim in x[1:]), seed=str(seed)), np.float32) for seed in (2, 3, 5)
    ]
    session = InferenceSession(proto.SerializeToString())
    (batch,) = session.run(None, {session.get_inputs()[0].name: np.concatenate(images)})
    np.testing.assert_allclose(batch, run_per_item(data, *images), rtol=1e-5, atol=1e-5)
    assert verify(data, proto.SerializeToString(), runs=1).runs == 2


def test_dynamic_batch_replaces_a_stored_batch_of_1() -> None:
    data = single_operator("RESHAPE", tensor(None, 5, 6), constant([1, 6, 5]), tensor(1, 6, 5))
    assert dims(convert(data)) == {"x0": ["x0_dim0", 5, 6], "y0": [1, 6, 5]}
    assert dims(convert(data, dynamic_batch=True)) == {"x0": ["batch", 5, 6], "y0": ["batch", 6, 5]}


def test_verify_detects_mixed_batch_items() -> None:
    data = STORED_BATCH["RESHAPE"]
    proto = convert(data, dynamic_batch=True).proto
    (node,) = proto.graph.node
    maximum = helper.make_node("ReduceMax", ["reshaped", "axis"], ["largest"])
    mixed_output = helper.make_node("Max", ["reshaped", "largest"], list(node.output))
    node.output[0] = "reshaped"
    proto.graph.node.extend([maximum, mixed_output])
    proto.graph.initializer.append(helper.make_tensor("axis", TensorProto.INT64, [1], [0]))
    assert not verify(data, proto.SerializeToString()).ok
    assert verify(data, convert(data, dynamic_batch=True).proto.SerializeToString()).ok


def test_verify_skips_a_batch_if_litert_rejects_its_items() -> None:
    """Some random integers are negative, and LiteRT's RSQRT rejects them."""
    x = tensor(None, 5, dtype="int16", scale=0.01, zero_point=0)
    data = single_operator("RSQRT", x, x.rescale(3.0))
    assert verify(data, convert(data).proto.SerializeToString()).ok
