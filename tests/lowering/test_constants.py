"""Results of ``evaluate`` are constants for the operators that use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from conformance.cases.tensor.sparse import add_densified_constant
from conformance.models import Net, constant, random_array, tensor
from conformance.weights import BIASES, bias, product, weight
from onnx_tflite_plugin.api import Decline, Handler, Instance, Transparent, handler
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.errors import HandlerError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array

VALUE = random_array(2, 3)


def floor_handler(evaluate: Callable[[Instance], Any], **declared: Any) -> Handler:
    """Return a handler of FLOOR that evaluates its result at conversion."""

    @handler("FLOOR", max_version=1, layout=Transparent(), evaluate=evaluate, **declared)
    def floor(ctx: Any, x: Any) -> Any:
        return ctx.ops.Floor(x)

    return floor


def add_floor(value: Array = VALUE, is_output: bool = False) -> bytes:
    """Return an input plus the floor of a constant, which may also be an output."""
    model = Net()
    result = model.call("FLOOR", [constant(value)], tensor(2, 3))
    total = model.call("ADD", [tensor(2, 3), result], tensor(2, 3))
    model.output(total, *([result] if is_output else []))
    return model.build()


def convert_model(data: bytes, handlers: Mapping[str, Handler]) -> Conversion:
    return convert(data, host=Host(packs="builtin", handlers=handlers))


def floor_of(at: Instance) -> Array | None:
    array = at.op.constant(0)
    return None if array is None else np.floor(array)


def test_evaluated_operator_emits_no_node() -> None:
    assert convert_model(add_floor(), {"FLOOR": floor_handler(floor_of)}).report.nodes == {"Add": 1}


def test_evaluated_operator_counts_as_converted() -> None:
    assert convert_model(add_floor(), {"FLOOR": floor_handler(floor_of)}).report.operators == {"ADD": 1, "FLOOR": 1}


def test_evaluated_graph_output_is_computed() -> None:
    assert convert_model(add_floor(is_output=True), {"FLOOR": floor_handler(floor_of)}).report.nodes == {
        "Add": 1,
        "Floor": 1,
    }


def test_operator_without_a_constant_result_is_computed() -> None:
    assert convert_model(add_floor(), {"FLOOR": floor_handler(lambda at: None)}).report.nodes == {"Floor": 1, "Add": 1}


def test_evaluation_propagates_to_the_next_operator() -> None:
    model = Net()
    first_floor = model.call("FLOOR", [constant(VALUE)], tensor(2, 3))
    second_floor = model.call("FLOOR", [first_floor], tensor(2, 3))
    model.output(model.call("ADD", [tensor(2, 3), second_floor], tensor(2, 3)))
    assert convert_model(model.build(), {"FLOOR": floor_handler(floor_of)}).report.nodes == {"Add": 1}


def test_accepts_sees_the_evaluated_constant() -> None:
    calls: list[bool] = []

    def accepts(at: Instance) -> Decline | None:
        calls.append(at.op[1].is_constant)
        return None

    from op_handlers.math.arithmetic import add

    convert_model(add_floor(), {"FLOOR": floor_handler(floor_of), "ADD": replace(add, accepts=accepts)})
    assert calls == [True]


@pytest.mark.parametrize(
    ("evaluate", "text"),
    [
        (lambda at: np.zeros((3, 2), np.float32), "it returned float32 [3, 2], but the tensor is float32 [2, 3]"),
        (lambda at: np.zeros((2, 3)), "it returned float64 [2, 3], but the tensor is float32 [2, 3]"),
        (lambda at: at.op.options.nothing, "failed: AttributeError: "),
    ],
    ids=["shape", "dtype", "failure"],
)
def test_evaluated_value_that_contradicts_the_file_names_handler(
    evaluate: Callable[[Instance], Any], text: str
) -> None:
    with pytest.raises(HandlerError, match=f"handler {__name__}:floor failed") as caught:
        convert_model(add_floor(), {"FLOOR": floor_handler(evaluate)})
    assert text in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_sparse_weights_convert_to_the_same_graph_as_dense_weights(dtype: str) -> None:
    def network(sparse: bool) -> bytes:
        model = Net()
        x, w = tensor(1, 5, 7, 3, dtype=dtype), weight((4, 3, 2, 3), dtype, 0)
        weights = add_densified_constant(model, w) if sparse else w
        y = product(x, w, (1, 5, 7, 4), 18)
        model.output(
            model.call(
                "CONV_2D", [x, weights, bias(x, w, 4, BIASES[dtype], 18)], y, padding="SAME", stride_h=1, stride_w=1
            )
        )
        return model.build()

    assert convert(network(sparse=True)).report.nodes == convert(network(sparse=False)).report.nodes


# --- weights stored in a narrower dtype -------------------------------------------------------


def widen(model: Net, value: Array) -> Any:
    """Return a float16 constant through DEQUANTIZE, as in float16 models."""
    return model.call("DEQUANTIZE", [constant(value.astype(np.float16))], tensor(*value.shape))


def with_slopes(model: Net, slopes: Any) -> None:
    x = model.input_through_conv(tensor(1, 5, 7, 3))
    model.output(model.output_through_conv(model.call("PRELU", [x, slopes], tensor(1, 5, 7, 3))))


def test_float16_slopes_convert_like_float32_slopes() -> None:
    float16_net, float32_net = Net(), Net()
    slopes = random_array(1, 1, 3).astype(np.float16)
    with_slopes(float16_net, widen(float16_net, slopes))
    with_slopes(float32_net, constant(slopes.astype(np.float32)))
    assert convert(float16_net.build()).report.nodes == convert(float32_net.build()).report.nodes


@pytest.mark.parametrize("weights", ["keep", "fold"])
def test_float16_weights_stay_float16_unless_folded(weights: str) -> None:
    model = Net()
    w = widen(model, random_array(64, 1, 1, 32))
    image = tensor(1, 5, 7, 64)
    biases = constant(random_array(64, seed="bias"))
    y = model.call("CONV_2D", [tensor(1, 5, 7, 32), w, biases], image, padding="SAME", stride_h=1, stride_w=1)
    model.output(model.call("MUL", [y, constant(random_array(64, seed="scales"))], image))
    conversion = convert(model.build(), weights=weights, verify=True)
    dtypes = {
        initializer.data_type for initializer in conversion.proto.graph.initializer if prod(initializer.dims) == 64 * 32
    }
    assert dtypes == ({10} if weights == "keep" else {1})  # TensorProto.FLOAT16, FLOAT
    assert conversion.report.nodes.get("Mul", 0) == (1 if weights == "keep" else 0)


def test_dequantized_int8_slopes_count_as_constants() -> None:
    model = Net()
    w = model.call("DEQUANTIZE", [constant(random_array(1, 1, 3, dtype="int8"), None, 0.013, 5)], tensor(1, 1, 3))
    with_slopes(model, w)
    conversion = convert(model.build(), verify=True)
    assert "PRelu" not in conversion.report.nodes
