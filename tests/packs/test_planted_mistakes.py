"""Mistakes in a lowering that the cases of ``new-pack`` find."""

from __future__ import annotations

from tests.helpers.author_pack import HANDLER, FailingOutput


def test_conv_cases_fail_if_the_lowering_drops_an_int8_bias(failing_output: FailingOutput) -> None:
    bias, dropped = "ctx.ops.Conv(x, weights, bias,", "ctx.ops.Conv(x, weights, None if ctx.is_quantized else bias,"
    printed = failing_output((HANDLER, bias, dropped), like="conv")
    assert "same reason as CUSTOM.Acme-int8: CUSTOM.Acme-int8_between_convolutions" in printed
    assert "3 passed, 2 failed" in printed


def test_behavior_case_fails_if_zero_points_are_confused(failing_output: FailingOutput) -> None:
    after, before = "np.int32(after.zero_point[0])", "np.int32(before.zero_point[0])"
    printed = failing_output((HANDLER, after, before), like="behavior")
    assert "CUSTOM.Acme-zero_points" in printed
    assert "6 passed, 1 failed" in printed
