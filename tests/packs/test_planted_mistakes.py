"""Mistakes in a lowering that the cases of ``new-pack`` find."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import onnx_tflite_plugin as otp
from tests.helpers.author_pack import HANDLER, FailingOutput


def test_conv_cases_fail_if_the_lowering_drops_an_int8_bias(failing_output: FailingOutput) -> None:
    bias, dropped = "ctx.ops.Conv(x, weights, bias,", "ctx.ops.Conv(x, weights, None if ctx.is_quantized else bias,"
    printed = failing_output((HANDLER, bias, dropped), like="conv")
    assert "same reason as CUSTOM.Acme-int8: CUSTOM.Acme-int8_between_convolutions" in printed
    assert "5 passed, 2 failed" in printed


def test_behavior_case_fails_if_zero_points_are_confused(failing_output: FailingOutput) -> None:
    after, before = "np.int32(after.zero_point[0])", "np.int32(before.zero_point[0])"
    printed = failing_output((HANDLER, after, before), like="behavior")
    assert "CUSTOM.Acme-zero_points" in printed
    assert "6 passed, 1 failed" in printed


def test_conv_case_fails_if_the_declared_bias_scale_is_wrong(failing_output: FailingOutput) -> None:
    printed = failing_output((HANDLER, "bias={2: (0, 1)}", "bias={2: (0, 0.5)}, weights=(1,)"), like="conv")
    assert "slot 2 has the scale 0.00094 in the file, but bias={2: (0, 0.5)} gives 0.0235" in printed
    assert "so the bias is multiplied by 25; correct the declaration" in printed
    assert "5 passed, 2 failed" in printed


def test_conversion_warns_of_a_wrong_declared_bias_scale(write_pack: Callable[..., Path]) -> None:
    write_pack((HANDLER, "bias={2: (0, 1)}", "bias={2: (0, 0.5)}, weights=(1,)"), like="conv")
    case = next(case for case in import_module("author.cases").cases() if case.name == "int8")
    warnings = [text for text in otp.convert(case.build()).report.warnings if "slot 2 has the scale 0.00094" in text]
    assert len(warnings) == 1
    assert warnings[0].startswith("op 0 CUSTOM.Acme")


def test_right_bias_scale_converts_without_a_warning(write_pack: Callable[..., Path]) -> None:
    write_pack(like="conv")
    case = next(case for case in import_module("author.cases").cases() if case.name == "int8")
    assert not otp.convert(case.build()).report.warnings
