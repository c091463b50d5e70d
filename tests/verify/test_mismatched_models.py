"""Test errors for invalid models and for pairs of unrelated models."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import onnx_tflite_plugin as otp
import onnx_tflite_plugin.verify as verify_package
from conformance.builder import ModelBuilder, TensorRef, serialize_table
from conformance.schema import Table
from onnx_tflite_plugin.errors import InvalidModel, MismatchedModels, VerificationError
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.runtimes.structure import read
from tests.helpers.passes_networks import Network, build_model, image
from tests.helpers.wrong_models import without_digest


def abs_model(*shape: int) -> bytes:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", shape), g.tensor("y", shape)
    g.operator("ABS", [x], [y])
    g.output(y)
    return model.build()


def test_rejects_a_file_without_subgraphs() -> None:
    with pytest.raises(InvalidModel, match="holds no subgraph"):
        read(serialize_table(Table("Model", {"version": 3, "subgraphs": []})))


def convolution(channels: int) -> bytes:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, 5, 7, channels)), g.tensor("y", (1, 5, 7, 11))
    filters = g.constant("w", np.ones((11, 1, 1, channels), np.float32))
    bias = g.constant("b", np.zeros(11, np.float32))
    g.operator("CONV_2D", [x, filters, bias], [y], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
    g.output(y)
    return model.build()


def test_names_inputs_with_different_dimensions() -> None:
    shapes = r"input 'x' is \[1, 5, 7, 2\] in the ONNX model and \[1, 5, 7, 3\] in the TFLite model"
    with pytest.raises(MismatchedModels, match=shapes) as caught:
        verify(convolution(3), without_digest(otp.convert(convolution(2)).proto))
    assert caught.value.exit_code == 2


def test_mismatch_in_a_conversion_is_not_the_callers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def mismatch(*_: object, **options: object) -> None:
        raise MismatchedModels("'x' has 4 axes")

    monkeypatch.setattr(verify_package, "verify", mismatch)
    with pytest.raises(VerificationError, match="does not agree with LiteRT: 'x' has 4 axes") as caught:
        otp.convert(convolution(2), verify=True)
    assert caught.value.exit_code == 3


def test_rejects_a_layout_of_higher_rank() -> None:
    images = otp.convert(abs_model(2, 3, 5, 7), layout={"x": "NHWC:NCHW"}).proto
    with pytest.raises(VerificationError, match="'x' has 4 axes in the ONNX model, but 'x' has 3 in the TFLite model"):
        verify(abs_model(2, 3, 5), without_digest(images))


def test_model_of_another_file_with_padded_channels_is_refused() -> None:
    """Tensors with the same index have different channel counts in the two files."""

    def network(channels: int) -> bytes:
        def build(net: Network) -> TensorRef:
            x = net.conv(net.input(image(1, 11, 7, 3, dtype="float32")), channels)
            return net.conv(net.conv(x, 37), 16, (1, 1))

        return build_model(build)

    proto = otp.convert(network(29)).proto
    assert any("channels" in entry.key for info in proto.graph.value_info for entry in info.metadata_props)
    with pytest.raises(MismatchedModels, match="has a different shape from its tensor in the TFLite file"):
        verify(network(31), without_digest(proto))


def test_different_integer_dtypes_mean_different_models() -> None:
    def network(dtype: str) -> bytes:
        model = ModelBuilder()
        g = model.main
        x, y = g.input("x", (2, 3), dtype), g.tensor("y", (2, 3), dtype)
        g.operator("NEG", [x], [y])
        g.output(y)
        return model.build()

    proto = otp.convert(network("int32")).proto
    with pytest.raises(VerificationError, match="'x' is int64 in the TFLite model, but int32 in the ONNX model"):
        verify(network("int64"), without_digest(proto))


def test_explains_why_no_operator_was_compared() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (3, 2, 5)), g.tensor("y", (3, 1, 5))
    g.operator("SUM", [x, g.constant("axes", np.array([1], np.int32))], [y], {"keep_dims": False})
    g.output(y)
    verification = verify(model.build(), otp.convert(model.build()).proto)
    assert (verification.verdict, verification.operators) == ("agrees", 0)
    (note,) = verification.notes
    assert note.startswith("operators were not compared: no value of the ONNX model holds an operator's result")


def two_layers(units: int) -> bytes:
    model = ModelBuilder()
    g = model.main
    x, y, z = g.input("x", (1, 3)), g.tensor("y", (1, units)), g.tensor("z", (1, 2))
    first, last = (g.constant(f"w{k}", np.ones(shape, np.float32)) for k, shape in enumerate([(units, 3), (2, units)]))
    g.operator("FULLY_CONNECTED", [x, first, None], [y])
    g.operator("FULLY_CONNECTED", [y, last, None], [z])
    g.output(z)
    return model.build()


def test_different_value_shapes_mean_different_models() -> None:
    shape = "value 'y' of the ONNX model has a different shape from its tensor in the TFLite file"
    with pytest.raises(MismatchedModels, match=shape) as caught:
        verify(two_layers(5), without_digest(otp.convert(two_layers(7)).proto), partial=True)
    assert caught.value.exit_code == 2


def test_shape_that_litert_refuses_is_inconclusive_if_the_file_is_right() -> None:
    proto = without_digest(otp.convert(convolution(2)).proto)
    proto.metadata_props.add(key="onnx_tflite_plugin.digest", value=hashlib.sha256(convolution(3)).hexdigest())
    verification = verify(convolution(3), proto)
    assert verification.verdict == "inconclusive"
    assert "LiteRT does not run with the shape of the ONNX model, so there is no reference" in verification.reasons[0]
