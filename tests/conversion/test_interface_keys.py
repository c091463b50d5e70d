"""Keys of options: names in the signature, names of tensors, and positions."""

from __future__ import annotations

import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.graph.names import resolve_keys
from onnx_tflite_plugin.verify import verify


def model() -> bytes:
    """Return a sum whose signature differs from its tensors in names and order."""
    builder = ModelBuilder()
    g = builder.main
    x, y = g.input("serving_x:0", (2, 3, 5, 7)), g.input("serving_y:0", (2, 3, 5, 7))
    g.operator("ADD", [x, y], [z := g.tensor("Identity", (2, 3, 5, 7))])
    g.output(z)
    builder.signature("serve", {"b": y, "a": x}, {"total": z})
    return builder.build()


def shapes(conversion: otp.Conversion) -> dict[str, list[int]]:
    graph: onnx.GraphProto = conversion.proto.graph
    return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.input, *graph.output)}


@pytest.mark.parametrize("keys", [("a", "b"), ("serving_x:0", "serving_y:0"), ("0", "1"), ("a", "serving_y:0")])
def test_input_shape_accepts_either_name_and_positions(keys: tuple[str, str]) -> None:
    conversion = otp.convert(model(), input_shape=dict.fromkeys(keys, (11, 3, 5, 7)))
    assert shapes(conversion) == {"a": [11, 3, 5, 7], "b": [11, 3, 5, 7], "total": [11, 3, 5, 7]}


@pytest.mark.parametrize("key", ["b", "serving_y:0", "1"])
def test_layout_accepts_either_name_and_positions_of_inputs(key: str) -> None:
    conversion = otp.convert(model(), layout={key: "NHWC:NCHW", "Identity": "NHWC:NCHW"})
    assert shapes(conversion) == {"a": [2, 3, 5, 7], "b": [2, 7, 3, 5], "total": [2, 7, 3, 5]}


@pytest.mark.parametrize("key", ["a", "serving_x:0", "0"])
def test_range_accepts_either_name_and_positions(key: str) -> None:
    assert verify(model(), otp.convert(model()).proto, ranges={key: (3.0, 5.0)}).ok
    with pytest.raises(otp.ConversionError, match="input 'a': the range 5 to 3 is empty"):
        verify(model(), otp.convert(model()).proto, ranges={key: (5.0, 3.0)})


def test_rejects_an_input_with_two_keys() -> None:
    with pytest.raises(UnsupportedOption, match=r"input_shape\[\'0\'\]: 'a' is given twice"):
        otp.convert(model(), input_shape={"a": (2, 3, 5, 7), "0": (2, 3, 5, 7)})


def test_names_precede_positions_and_repeats_are_ignored() -> None:
    assert resolve_keys({"1": "x", "t": "y"}, ["1", "a", "b"], ["s", "t", "t"], "--range") == {"1": "x", "t": "y"}
    assert resolve_keys({"2": "x", "s": "y"}, ["1", "a", "b"], ["s", "t", "t"], "--range") == {"b": "x", "1": "y"}
    assert resolve_keys({"2": "x"}, ["1", "a", "b"], ["s", "t", "t"], "--layout", 2) == {"2": "x"}
