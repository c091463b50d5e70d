"""``types``: operators with undeclared dtypes are refused before conversion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.builder import ModelBuilder, quant
from conformance.models import Net, constant, tensor
from conformance.registered import REGISTERED
from onnx_tflite_plugin.api import Call, Context, Handler, Transparent, fusion, handler, operands
from onnx_tflite_plugin.api.dtypes import as_rows, parse_row, refusal
from onnx_tflite_plugin.binding.fusion import fuse
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.errors import ConversionError, TargetRefusal
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS

CODE = "CUSTOM.Product"


def product(types: Any) -> Handler:
    @handler(CODE, max_version=1, layout=Transparent(), types=types)
    def lower(ctx: Context, x: Any, y: Any = None) -> Any:
        return x if y is None else ctx.ops.Mul(x, ctx.ops.Cast(y, to=ctx.op[0].dtype))

    return lower


def conversion_error(types: Any, *dtypes: str) -> str:
    """Return the error of a conversion, empty if it succeeds.

    The last dtype is that of the result, the others are those of operands.
    """
    model = Net()
    *inputs, y = (tensor(2, 3, dtype=dtype, scale=0) for dtype in dtypes)
    model.output(model.call(CODE, inputs, y))
    try:
        convert(model.build(), host=Host(packs="builtin", handlers={CODE: product(types)}))
    except ConversionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("types", "dtypes", "accepted"),
    [
        ("float32 int32", ("float32", "float32"), True),
        ("float32 int32", ("int32", "int64", "int32"), True),
        ("float32 int32", ("int64", "int64"), False),
        ("float32, int32 int64", ("float32", "int64", "float32"), True),
        ("float32, int32 int64", ("float32", "float32", "float32"), False),
        ("float32, int32 int64", ("float32", "float32"), True),
        ("_, int32", ("int64", "int32", "int64"), True),
        ("int32, int32 -> int32", ("int32", "int32", "int32"), True),
        ("int32, int32 -> int64", ("int32", "int32", "int32"), False),
        (("float32, float32", "int32, int64"), ("int32", "int64", "int32"), True),
        (("float32, float32", "int32, int64"), ("float32", "int64", "float32"), False),
        ((), ("int64", "int64"), True),
        (lambda at: "int32" if len(at.op.inputs) > 1 else "int64", ("int32", "int32"), False),
        ("T, T -> T", ("int64", "int64", "int64"), True),
        ("T, T -> T", ("int64", "int32", "int64"), False),
        ("T, _ -> T", ("int64", "int32", "int64"), True),
        ("T, _ -> T", ("int64", "int32", "int32"), False),
        ("T, U -> U", ("int64", "int32", "int64"), False),
        ("T...", ("int64", "int64", "int64"), True),
        ("T...", ("int64", "int32", "int64"), False),
        ("float32...", ("float32", "int32", "float32"), False),
    ],
)
def test_operator_converts_if_a_row_has_its_dtypes(types: Any, dtypes: tuple[str, ...], accepted: bool) -> None:
    assert (conversion_error(types, *dtypes) == "") == accepted


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ((), ""),
        ("float32", ""),
        ("int32", "no kernel for dtypes float32; it takes int32"),
        ("int32 -> int8", "no kernel for dtypes float32 -> float32; it takes int32 -> int8"),
        (
            ("int8, _", "int16 int64 -> _"),
            "no kernel for dtypes float32, none -> float32; it takes int8, any; int16 or int64 -> any",
        ),
    ],
)
def test_dtype_refusal_lists_operands_and_results_of_the_rows(types: Any, message: str) -> None:
    net = Net()
    net.output(net.call("ABS", [tensor(2, 3)], tensor(2, 3)))
    (op,) = read(net.build()).main.operators
    assert refusal(op, types, "it takes") == message


def test_dtype_refusal_mentions_litert_only_if_it_has_a_kernel() -> None:
    message = conversion_error(("float32, float32 int8 -> float32", "int8, _"), "int32", "int64", "int32")
    assert "CUSTOM.Product v1 (op 0" in message
    assert f"no kernel for dtypes int32, int64 -> int32; {__name__}:lower declares " in message
    assert "float32, float32 or int8 -> float32; int8, any" in message
    assert "LiteRT" not in message
    net = Net()
    net.output(net.call("RFFT2D", [tensor(2, 8), constant(np.array([2, 8]))], tensor(2, 5, dtype="complex64")))
    with pytest.raises(
        ConversionError,
        match=r"no kernel for dtypes float32, int64 -> complex64; LiteRT's kernels take float32, int32 -> ",
    ):
        convert(net.build())


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ("flaot32", "types: 'flaot32' is not a dtype; did you mean 'float32'"),
        ("float32,, int8", "has an empty slot"),
        ("float32 ->", "has an empty slot"),
        (("float32", "real"), "'real' is not a dtype"),
        (7, r"Handler\(types=...\) takes"),
    ],
)
def test_malformed_row_raises_type_error_at_declaration(types: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        product(types)


@pytest.mark.parametrize(
    ("types", "text"),
    [
        (lambda at: 7, "failed: it returned the int 7, not a row of dtypes"),
        (lambda at: 1 / 0, "failed: ZeroDivisionError"),
        (lambda at: "flaot32", "'flaot32' is not a dtype"),
    ],
)
def test_failing_types_function_is_named(types: Any, text: str) -> None:
    message = conversion_error(types, "int32", "int32")
    assert f"types of handler {__name__}:lower" in message
    assert text in message


def test_fusion_skips_other_dtypes() -> None:
    (x,) = operands("x")

    @fusion("TWICE", pattern=Call("NEG", Call("NEG", x)), inputs=(x,), layout=Transparent(), types="float32")
    def lower(ctx: Context, x: Any) -> Any:
        return x

    def apply_fusion(dtype: str) -> dict[str, int]:
        model, spec = Net(), tensor(2, 3, dtype=dtype)
        model.output(model.call("NEG", [model.call("NEG", [spec], spec)], spec))
        target = TARGETS["onnxruntime"]
        bound = Host(packs="builtin").bind(read(model.build()), target, 18)
        return fuse(bound, [("mine", lower)], target).applied

    assert apply_fusion("float32") == {"TWICE": 1}
    assert apply_fusion("int32") == {}


def test_built_in_handlers_support_every_dtype_of_litert() -> None:
    """A dtype may occur in any slot, because the support table counts weights too."""
    accepted = {
        code: {
            name for row in as_rows(entry.types) for side in parse_row(row) for slot in side for name in slot.split()
        }
        for code, _, entry in Host(packs="builtin").handlers()
        if isinstance(entry, Handler) and not callable(entry.types) and entry.types
    }
    listed = {code: names for code, names in accepted.items() if not any(name[0] in "_T" for name in names)}
    assert len(listed) > 8
    builtin = {code: names for code, names in listed.items() if code in REGISTERED and code != "STABLEHLO_CASE"}
    missing = {code: REGISTERED[code].dtypes - names for code, names in builtin.items()}
    assert {code: sorted(dtypes) for code, dtypes in missing.items() if dtypes} == {}


@pytest.mark.parametrize(("code", "dtype", "hint"), [("SQUARE", "string", ""), ("COS", "int8", "quantization='float'")])
def test_dtype_that_onnx_lacks_is_refused_by_operator_and_dtype(code: str, dtype: str, hint: str) -> None:
    model = Net()
    model.output(model.call(code, [tensor(2, 3, dtype=dtype, scale=0)], tensor(2, 3, dtype=dtype, scale=0)))
    with pytest.raises(TargetRefusal, match=f"ONNX defines no [A-Z][a-z]+ for {dtype}") as refusal:
        convert(model.build(), host=Host(packs="builtin"))
    (problem,) = refusal.value.problems
    assert problem.where.startswith("subgraphs[0].operators[0]")
    assert problem.hint == hint


@pytest.mark.parametrize(
    ("code", "dtype", "refused"),
    [("QUANTIZE", "float32", False), ("QUANTIZE", "int8", True), ("NEG", "int8", True), ("RESHAPE", "int8", True)],
)
def test_per_axis_result_requires_a_float_operand(code: str, dtype: str, refused: bool) -> None:
    """Kernels that requantize read one scale only."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (3, 5), dtype, quantization=quant(0.5, 7) if dtype == "int8" else None)
    y = g.tensor("y", (3, 5), "int8", quantization=quant([0.25, 0.5, 0.125], [0, 0, 0], axis=0))
    g.operator(code, [x], [y])
    g.output(y)
    data = model.build()
    if refused:
        with pytest.raises(ConversionError, match="3 scales, but a computed tensor must have one"):
            convert(data)
    else:
        convert(data)
