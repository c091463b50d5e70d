"""Packs of others: discovery, lazy loading, precedence, hooks, failures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tflite import BuiltinOperator

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.registered import REGISTERED
from op_handlers.refused import kernelless
from tests.helpers.pack_files import add_model, install, unary_model

HANDLER = """
    from onnx_tflite_plugin.api import Attribute, Context, Dequantized, handler

    @handler("CUSTOM.RollChannels", max_version=1, layout=Attribute(), quantization=Dequantized(),
             activation="fused_activation_function")
    def roll(ctx: Context, x):
        axis = ctx.axis(-1)
        size = ctx.shape(0)[axis]
        head, tail = ctx.ops.Split(x, [size - 1, 1], axis=axis, outputs=2)
        return ctx.ops.{op}(ctx.ops.Concat(tail, head, axis=axis))
"""


def roll_pack(site: Path, name: str, op: str = "Abs") -> None:
    module = name.replace("-", "_")
    entry = f"[onnx_tflite_plugin.handlers]\nCUSTOM.RollChannels = {module}:roll\n"
    install(site, name, module, HANDLER.replace("{op}", op), entry)


def custom_between_convolutions() -> tuple[bytes, np.ndarray]:
    """Return an int8 model of CUSTOM.RollChannels between convolutions, and weights.

    The operator returns the absolute value of rolled channels; the convolutions are 1 x 1.
    """
    rng = np.random.default_rng(3)
    model = ModelBuilder()
    g = model.main
    q = quant(0.05, 3)
    weight = rng.integers(-127, 128, (5, 1, 1, 3)).astype(np.int8)
    second = rng.integers(-127, 128, (2, 1, 1, 5)).astype(np.int8)
    x = g.input("x", (1, 7, 11, 3), "int8", quantization=q)
    a = g.tensor("a", (1, 7, 11, 5), "int8", quantization=q)
    b = g.tensor("b", (1, 7, 11, 5), "int8", quantization=q)
    y = g.tensor("y", (1, 7, 11, 2), "int8", quantization=q)
    options = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    w1 = g.constant("w1", weight, quantization=quant([0.01] * 5, 0, 0))
    w2 = g.constant("w2", second, quantization=quant([0.004] * 2, 0, 0))
    g.operator("CONV_2D", [x, w1, None], [a], options, version=3)
    g.operator("CUSTOM.RollChannels", [a], [b])
    g.operator("CONV_2D", [b, w2, None], [y], options, version=3)
    g.output(y)
    return model.build(), (weight, second)


def reference_result(x: np.ndarray, weight: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the model's result, computed by NumPy in float with the file's scales."""

    def quantize(values: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(values / 0.05) + 3, -128, 127)

    def dequantize(quantized: np.ndarray) -> np.ndarray:
        return (quantized - 3) * 0.05

    a = quantize(dequantize(x.astype(float)) @ (weight.reshape(5, 3).T * 0.01))
    b = quantize(np.abs(np.roll(dequantize(a), 1, axis=-1)))
    return quantize(dequantize(b) @ (second.reshape(2, 5).T * 0.004))


def test_quantized_custom_operator_between_convolutions_is_permuted(site: Path) -> None:
    roll_pack(site, "roll-pack")
    data, (weight, second) = custom_between_convolutions()
    x = np.random.default_rng(0).integers(-128, 128, (1, 7, 11, 3)).astype(np.int8)
    for plan in ("least", "local"):
        conversion = otp.convert(data, layout_plan=plan)
        (y,) = onnxruntime.InferenceSession(conversion.proto.SerializeToString()).run(None, {"x": x})
        assert np.abs(y - reference_result(x, weight, second)).max() <= 1
        assert conversion.report.packs["roll-pack"] == 1
    assert (
        otp.convert(data).report.transposes == 2
    )  # one at the input, one at the output, none around the custom operator
    assert otp.convert(data, layout_plan="local").report.transposes == 4


def test_claims_of_two_packs_are_an_error_unless_preferred(site: Path) -> None:
    roll_pack(site, "roll-pack")
    roll_pack(site, "other-pack", op="Neg")
    data, _ = custom_between_convolutions()
    with pytest.raises(
        otp.ConversionError, match=r"other-pack and roll-pack.*prefer=\['other-pack'\] or prefer=\['roll-pack'\]"
    ):
        otp.convert(data)
    assert "Neg" in otp.convert(data, prefer=["other-pack"]).report.nodes
    assert "Abs" in otp.convert(data, prefer=["roll_pack"]).report.nodes
    assert "Abs" in otp.convert(data, block=["other-pack"]).report.nodes


def test_unsupported_operator_is_reported_with_missing_entry_point(site: Path) -> None:
    data, _ = custom_between_convolutions()
    with pytest.raises(
        otp.ConversionError,
        match=r"CUSTOM.RollChannels v1 \(op 1, output 'b'\).*new-pack DIR --op CUSTOM.RollChannels",
    ):
        otp.convert(data)


def test_packs_builtin_excludes_third_party_packs(site: Path) -> None:
    roll_pack(site, "roll-pack")
    data, _ = custom_between_convolutions()
    with pytest.raises(otp.ConversionError, match="no installed pack"):
        otp.convert(data, packs="builtin")
    assert otp.convert(data, packs="roll-pack").report.packs["roll-pack"] == 1


def test_broken_pack_fails_only_models_that_need_it(site: Path) -> None:
    entry = "[onnx_tflite_plugin.handlers]\nCUSTOM.RollChannels = broken_pack:roll\n"
    entry += "[onnx_tflite_plugin.hooks]\nbroken = broken_pack:hooks\n"
    install(site, "broken-pack", "broken_pack", "raise RuntimeError('not today')", entry)
    conversion = otp.convert(add_model())
    assert any("broken-pack" in warning for warning in conversion.report.warnings)
    data, _ = custom_between_convolutions()
    with pytest.raises(otp.ConversionError, match=r"CUSTOM.RollChannels = broken_pack:roll of broken-pack.*not today"):
        otp.convert(data)


def test_pack_overrides_a_built_in_handler(site: Path) -> None:
    source = """
        from onnx_tflite_plugin.api import Transparent, handler

        @handler("ADD", max_version=9, layout=Transparent())
        def add(ctx, x, y):
            return ctx.ops.Sum(x, y)
    """
    install(site, "sum-pack", "sum_pack", source, "[onnx_tflite_plugin.handlers]\nADD = sum_pack:add\n")
    report = otp.convert(add_model()).report
    assert report.nodes == {"Sum": 1}
    assert report.overrides == {"ADD": "sum-pack"}
    assert otp.convert(add_model(), prefer=["onnx-tflite-plugin"]).report.nodes == {"Add": 1}


def test_error_on_a_select_operator_has_a_remedy() -> None:
    with pytest.raises(
        otp.ConversionError,
        match=r"TensorFlow's BesselI0 has no handler; .* \(a select operator\) \(an op pack can convert it; "
        r".*new-pack DIR --op CUSTOM.FlexBesselI0",
    ):
        otp.convert(unary_model("CUSTOM.FlexBesselI0"))


def test_error_on_an_operator_without_a_litert_kernel() -> None:
    with pytest.raises(
        otp.ConversionError,
        match=r"STABLEHLO_SORT.* LiteRT has no kernel for the operator and does not load .* \(export the model",
    ):
        otp.convert(unary_model("STABLEHLO_SORT"))


def test_stablehlo_operators_are_registered_or_without_kernel() -> None:
    codes = {code for code in vars(BuiltinOperator) if code.startswith(kernelless.PREFIX)}
    kernelless_codes = {kernelless.PREFIX + name for name in kernelless.KERNELLESS}
    assert kernelless_codes == codes - {*REGISTERED}


def test_converter_failure_names_pack_declarations(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_index_error(model: object) -> int:
        raise IndexError("nothing there")

    monkeypatch.setattr("onnx_tflite_plugin.pipeline.node_counts", raise_index_error)
    with pytest.raises(otp.ConversionError, match="a bug in the converter: please report it"):
        otp.convert(unary_model("NEG"))
    roll_pack(site, "roll-pack")
    text = (
        r"op 0 CUSTOM.RollChannels v1 'y': if the declarations of handler roll_pack:roll of roll-pack are wrong "
        r"\(layout=.*, quantization=Dequantized\(\)\), they are the cause of IndexError: nothing there, in raise_index_error, "
        r".* \(block=\['roll-pack'\] disables the pack; if it is not yours, report the error to its authors\)$"
    )
    with pytest.raises(otp.ConversionError, match=text):
        otp.convert(unary_model("CUSTOM.RollChannels"))


def test_alias_allows_a_second_entry_point(site: Path) -> None:
    source = """
        from onnx_tflite_plugin.api import Transparent, handler

        @handler("CUSTOM.Abs", max_version=1, layout=Transparent(), aliases=("CUSTOM.Absolute",))
        def absolute(ctx, x):
            return ctx.ops.Abs(x)
    """
    names = ("CUSTOM.Abs", "CUSTOM.Absolute")
    entries = "[onnx_tflite_plugin.handlers]\n" + "".join(f"{name} = abs_pack:absolute\n" for name in names)
    install(site, "abs-pack", "abs_pack", source, entries)
    for name in names:
        assert otp.convert(unary_model(name)).report.nodes == {"Abs": 1}


def test_built_in_handler_replaces_a_failing_one(site: Path) -> None:
    source = """
        from onnx_tflite_plugin.api import Transparent, handler

        @handler("ADD", max_version=9, layout=Transparent(), accepts=lambda at: 1 / 0)
        def add(ctx, x, y):
            return ctx.ops.Sum(x, y)
    """
    install(site, "zero-pack", "zero_pack", source, "[onnx_tflite_plugin.handlers]\nADD = zero_pack:add\n")
    report = otp.convert(add_model()).report
    assert report.nodes == {"Add": 1}
    (warning,) = report.warnings
    assert "accepts of handler zero_pack:add of zero-pack failed: ZeroDivisionError" in warning


def test_skips_unreadable_entry_points_with_a_warning(site: Path) -> None:
    info = site / "torn_pack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torn-pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[onnx_tflite_plugin.handlers]\nno equals sign\n")
    (warning,) = otp.convert(add_model()).report.warnings
    assert "torn_pack-1.0.dist-info cannot be read" in warning


def test_handler_error_names_operator_handler_and_pack(site: Path) -> None:
    bodies = {
        "raises": "raise ValueError('bad luck')",
        "too_many": "return x, x",
        "dtype": "return ctx.ops.Cast(x, to='int64')",
        "shape": "return ctx.ops.Concat(x, x, axis=0)",
        "attribute": "return ctx.ops.Relu(x, sharpness=3)",
        "operator": "return ctx.ops.NoSuchThing(x)",
    }
    reasons = {
        "raises": "bad luck",
        "too_many": "2 values, but the operator has 1 output",
        "dtype": "output 0 is int64, but its tensor 'y' is float32",
        "shape": "the emitted value has size 4 along axis 0, but 2 is expected from the file and the handler's declarations",
        "attribute": "no attribute sharpness",
        "operator": "NoSuchThing",
    }
    source = "from onnx_tflite_plugin.api import Terminate, handler\n"
    for name, body in bodies.items():
        source += f"@handler('CUSTOM.{name}', max_version=1, layout=Terminate())\ndef {name}(ctx, x):\n    {body}\n"
    entries = "[onnx_tflite_plugin.handlers]\n" + "".join(f"CUSTOM.{name} = wrong_pack:{name}\n" for name in bodies)
    install(site, "wrong-pack", "wrong_pack", source, entries)
    for name, reason in reasons.items():
        with pytest.raises(otp.ConversionError, match=reason) as caught:
            otp.convert(unary_model(f"CUSTOM.{name}"))
        assert "wrong_pack" in str(caught.value) or "wrong-pack" in str(caught.value)


def test_api_imports_neither_onnx_nor_tflite() -> None:
    code = "import sys, onnx_tflite_plugin.api; print([m for m in ('onnx', 'onnx_ir', 'tflite', 'onnxruntime') if m in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("code", "declaration", "reason"),
    [
        ("CUSTOM.Odd", "indexed_by_axis={0: 0}", "than the 2 axes, according to the declarations of handler odd_pack:odd"),
        ("NEG", "axes='a b c -> a b c'", "has rank 2, but NEG requires 3, according to the declarations of handler odd_pack:odd"),
    ],
)  # fmt: skip
def test_wrong_declaration_is_not_attributed_to_the_file(
    site: Path, monkeypatch: pytest.MonkeyPatch, code: str, declaration: str, reason: str
) -> None:
    source = f"""
        from onnx_tflite_plugin.api import Attribute, handler

        @handler("{code}", max_version=1, layout=Attribute(), {declaration})
        def odd(ctx, x):
            return ctx.ops.Neg(x)
    """
    monkeypatch.delitem(sys.modules, "odd_pack", raising=False)
    install(site, "odd-pack", "odd_pack", source, f"[onnx_tflite_plugin.handlers]\n{code} = odd_pack:odd\n")
    model = ModelBuilder()
    g = model.main
    y = g.tensor("y", (1, 5))
    g.operator(code, [g.constant("c", np.ones((1, 5), np.float32))], [y])
    g.output(y)
    with pytest.raises(otp.ConversionError) as refusal:
        otp.convert(model.build())
    assert reason in str(refusal.value)
    assert "contradicts itself" not in str(refusal.value)
    assert "convert the original model again" not in str(refusal.value)
