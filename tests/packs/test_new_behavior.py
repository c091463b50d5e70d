"""Quantization behaviors defined by packs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.cases import builtin_cases
from conformance.table import handler_row
from onnx_tflite_plugin.api import Handler
from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.host import Host
from tests.helpers.pack_files import install

PACK = '''
from dataclasses import dataclass

import numpy as np

from onnx_tflite_plugin.api import Arithmetic, Behavior, Context, QuantizedOperator, Refusal, Terminate, Value, handler


@dataclass(frozen=True)
class Offsets(Behavior):
    """The kernel computes on quantized values minus their zero point; all tensors have one scale."""

    def choose_arithmetic(self, operator: QuantizedOperator) -> Arithmetic:
        scales = {tensor.quantization.scale for tensor in operator.tensors}
        if len(scales) > 1:
            raise Refusal(f"its scales differ: {sorted(scales)}")
        return Arithmetic.QUANTIZED_AS_IN_FILE

    @property
    def needs_scale(self) -> bool:
        return True

    @property
    def keeps_file_values(self) -> bool:
        return True


def halve(op, x):
    before, after = (op[slot].quantization.zero_point[0] for slot in (0, ~0))
    return (np.trunc((x.astype(np.int32) - before) / 2) + after).astype(x.dtype)


@handler("CUSTOM.Halve", max_version=1, layout=Terminate(), quantization=Offsets(), kernel=halve)
def halved(ctx: Context, x: Value) -> Value:
    """Emit half the difference to the zero point, rounded towards zero."""
    ops, (before, after) = ctx.ops, (ctx.quantization(slot).zero_point[0] for slot in (0, ~0))
    half = ops.Div(ops.Sub(ops.Cast(x, to="int32"), np.int32(before)), np.int32(2))
    return ops.Cast(ops.Add(half, np.int32(after)), to=ctx.dtype(~0))
'''
ENTRY_POINT = """\
    [onnx_tflite_plugin.handlers]
    CUSTOM.Halve = halve_pack:halved
    """


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a pack with a new behavior; return its folder."""
    folder = tmp_path / "site"
    install(folder, "halve-pack", "halve_pack", PACK, ENTRY_POINT)
    monkeypatch.syspath_prepend(folder)
    return folder


def halve_between_sums(scale: float = 0.05) -> bytes:
    """Return a model: ADD of two int8 tensors, Halve, ADD of the result to itself."""
    model = ModelBuilder()
    g = model.main
    a = g.input("a", (3, 5), "int8", quantization=quant(0.03, 7))
    b = g.input("b", (3, 5), "int8", quantization=quant(0.02, -11))
    x = g.tensor("x", (3, 5), "int8", quantization=quant(0.05, 3))
    half = g.tensor("half", (3, 5), "int8", quantization=quant(scale, -2))
    y = g.tensor("y", (3, 5), "int8", quantization=quant(0.05, 1))
    g.operator("ADD", [a, b], [x])
    g.operator("CUSTOM.Halve", [x], [half])
    g.operator("ADD", [half, half], [y])
    g.output(half)
    g.output(y)
    return model.build()


def test_behavior_of_a_pack_decides_the_arithmetic(site: Path) -> None:
    session = onnxruntime.InferenceSession(otp.convert(halve_between_sums()).proto.SerializeToString())
    random = np.random.default_rng(0)
    feeds = {name: random.integers(-128, 128, (3, 5)).astype(np.int8) for name in ("a", "b")}
    total = np.rint(((feeds["a"] - 7.0) * 0.03 + (feeds["b"] + 11.0) * 0.02) / 0.05)
    x = np.clip(total + 3, -128, 127)
    half = np.trunc((x - 3) / 2) - 2
    result = session.run(["half"], feeds)[0]
    assert np.abs(result - half).max() <= 1
    assert (result == half).mean() > 0.8


def test_behavior_of_a_pack_is_verified_with_its_kernel(site: Path) -> None:
    verification = otp.convert(halve_between_sums(), verify=True).verification
    assert verification is not None
    assert verification.ok


def test_wrong_integers_of_a_pack_fail_verification(site: Path) -> None:
    module = site / "halve_pack.py"
    module.write_text(module.read_text().replace("np.int32(2)", "np.int32(3)"))
    with pytest.raises(VerificationError):
        otp.convert(halve_between_sums(), verify=True)


def test_refusal_of_a_pack_behavior_is_reported_with_the_operator(site: Path) -> None:
    with pytest.raises(otp.ConversionError, match=r"CUSTOM\.Halve.* its scales differ"):
        otp.convert(halve_between_sums(scale=0.07))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "return 'FLOAT'",
            r"the str 'FLOAT'; it must return Arithmetic\.FLOAT or Arithmetic\.QUANTIZED or Arithmetic\.QUANTIZED_AS_IN_FILE",
        ),
        ("return Arithmetic.UNQUANTIZED", r"it returned Arithmetic\.UNQUANTIZED; it must return"),
        ("return None", "it returned None; it must return"),
        ("return operator.scale", "AttributeError: .*scale"),
    ],
)
def test_failing_behavior_is_attributed_to_its_pack(site: Path, body: str, reason: str) -> None:
    module = site / "halve_pack.py"
    module.write_text(module.read_text().replace("return Arithmetic.QUANTIZED_AS_IN_FILE", body))
    with pytest.raises(
        otp.ConversionError, match=rf"Offsets\.choose_arithmetic of halve-pack failed: .*{reason}.*halve_pack"
    ):
        otp.convert(halve_between_sums())


def test_support_table_names_the_behavior_of_a_pack(site: Path) -> None:
    host = Host(packs="halve-pack")
    handler = next(handler for code, _, handler in host.handlers() if code == "CUSTOM.Halve")
    assert isinstance(handler, Handler)
    row = handler_row("CUSTOM.Halve", handler, builtin_cases(), host)
    assert row.startswith("| CUSTOM.Halve | 1 | Terminate | Offsets |")
