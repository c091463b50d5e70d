"""Tests of ``Lookup``: table lookup of quantized results in any storage dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.api import Array, Context, Handler, Instance, Lookup, Transparent, handler
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host

CODE = "CUSTOM.Squared"


def values_in_table_order(dtype: str) -> Array:
    """Return 0, 1, ..., then the negative integers."""
    limits = np.iinfo(dtype)
    return np.concatenate([np.arange(0, limits.max + 1), np.arange(limits.min, 0)])


def squares(at: Instance) -> Array:
    """Return a table of squares, which no formula with scales can compute."""
    x, limits = values_in_table_order(at.op[0].dtype), np.iinfo(at.op[0].dtype)
    return x * x % limits.max


def square_handler(
    table: Any = squares, dtypes: tuple[str, ...] = ("int8", "uint8", "int16"), **options: Any
) -> Handler:
    @handler(CODE, max_version=1, layout=Transparent(), quantization=Lookup(table, dtypes, **options))
    def lower(ctx: Context, x: Any) -> Any:
        return ctx.ops.Mul(x, x)

    return lower


def convert_model(
    lookup_handler: Handler, dtype: str, dims: tuple[int | None, ...] = (2, 3), **options: Any
) -> Conversion:
    """Convert two operators, so that the tensor between them is stored in the target's dtype."""
    model, x = Net(), tensor(*dims, dtype=dtype)
    y = x.rescale(1.7)
    model.output(model.call(CODE, [model.call(CODE, [x], y)], y))
    return convert(model.build(), host=Host(packs="builtin", handlers={CODE: lookup_handler}), **options)


@pytest.mark.parametrize("target", ["onnxruntime", "generic"])
@pytest.mark.parametrize("dims", [(2, 3), (7,), (None, 3), (None, None)], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_each_quantized_value_selects_its_entry(dtype: str, dims: tuple[int | None, ...], target: str) -> None:
    limits = np.iinfo(dtype)
    shape = (7,) if len(dims) == 1 else (2, 3)
    x = np.resize(np.asarray([limits.min, -1 if limits.min else 1, 0, 1, 11, limits.max, 13], dtype), shape)
    proto = convert_model(square_handler(), dtype, dims, target=target).proto
    assert "Mul" not in {node.op_type for node in proto.graph.node}
    (y,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x0": x})
    once = x.astype(np.int64) ** 2 % limits.max
    np.testing.assert_array_equal(y, once**2 % limits.max)


def test_table_index_is_the_int8_value_of_activations_stored_as_uint8() -> None:
    """Identity dense layers before and after keep activations as uint8."""
    model, y = Net(), tensor(2, 3, dtype="int8", scale=0.5, zero_point=0)
    identity = constant(np.eye(3) * 127, "int8", scale=1 / 127)
    dense = model.call("FULLY_CONNECTED", [y, identity], y)
    model.output(model.call("FULLY_CONNECTED", [model.call(CODE, [dense], y), identity], y))
    conversion = convert(model.build(), host=Host(packs="builtin", handlers={CODE: square_handler()}))
    assert conversion.report.storage == {"int8 stored as uint8": 4}
    x = np.asarray([[0, 1, 11], [-13, 127, -128]], np.int8)
    (result,) = onnxruntime.InferenceSession(conversion.proto.SerializeToString()).run(None, {"x0": x})
    np.testing.assert_array_equal(result, x.astype(np.int64) ** 2 % 127)


def test_table_index_is_the_int8_value_if_only_the_operand_is_stored_as_uint8() -> None:
    model, x = Net(), tensor(2, 3, dtype="int8", scale=0.5, zero_point=0)
    identity = constant(np.eye(3) * 127, "int8", scale=1 / 127)
    y = tensor(2, 3, dtype="uint8", scale=0.5, zero_point=0)
    model.output(model.call(CODE, [model.call("FULLY_CONNECTED", [x, identity], x)], y))
    conversion = convert(model.build(), host=Host(packs="builtin", handlers={CODE: square_handler()}))
    assert conversion.report.storage == {"int8 stored as uint8": 2}
    values = np.asarray([[0, 1, 11], [-13, 127, -128]], np.int8)
    (result,) = onnxruntime.InferenceSession(conversion.proto.SerializeToString()).run(None, {"x0": values})
    np.testing.assert_array_equal(result, values.astype(np.int64) ** 2 % 127)


def test_dtype_without_a_table_is_dequantized() -> None:
    nodes = [node.op_type for node in convert_model(square_handler(dtypes=("int16",)), "int8").proto.graph.node]
    assert nodes.count("Mul") == 2
    assert "GatherElements" not in nodes


def test_handler_lowers_the_operator_if_quantization_is_dropped() -> None:
    nodes = [node.op_type for node in convert_model(square_handler(), "int8", quantization="float").proto.graph.node]
    assert nodes == ["Mul", "Mul"]


@pytest.mark.parametrize(
    ("lookup_handler", "text"),
    [
        (
            square_handler(lambda at: np.zeros(255, np.int8)),
            r"the lookup table has shape \[255\], but int8 has 256 values, at .*test_lookup.py:\d+ in <lambda>",
        ),
        *(
            (
                square_handler(lambda at, value=value: np.full(256, value)),
                f"values from {value} to {value}, but output 0 is int8",
            )
            for value in (128, -129, 0.5)
        ),
        (square_handler(outputs={"int8": (1 / 256, -128)}), "the kernel requires scale 0.00390625 and zero point -128"),
        (square_handler(lambda at: None), "table of Lookup declared by handler .* it returned None, not an array"),  # type: ignore[arg-type, return-value]
        (square_handler(lambda at: 1 / 0), "table of Lookup declared by handler .* failed: ZeroDivisionError"),
    ],
)
def test_invalid_tables_are_refused(lookup_handler: Handler, text: str) -> None:
    with pytest.raises(ConversionError, match=text):
        convert_model(lookup_handler, "int8")
