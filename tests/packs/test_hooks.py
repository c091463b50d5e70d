"""Hooks of packs: claim, after_lowering and finish."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.cli.summary import _pack_lines as summary_packs
from tests.helpers.pack_files import add_model, install, unary_model


def test_hook_claims_declines_and_gets_the_finished_model(site: Path) -> None:
    source = """
        from onnx_tflite_plugin.api import Decline, Terminate, handler, hookimpl

        @handler("CUSTOM.Flex*", max_version=9, layout=Terminate())
        def flex(ctx, x):
            return ctx.ops.Sin(x)

        class Hooks:
            @hookimpl
            def claim(self, op):
                if not op.code.startswith("CUSTOM.Flex"):
                    return None
                return flex if op.code == "CUSTOM.FlexSin" else Decline("only FlexSin is known")

            @hookimpl
            def configure(self, options):
                self.target = options["target"]

            @hookimpl
            def finish(self, model):
                model.metadata_props["flex.target"] = self.target

        hooks = Hooks()
    """
    install(site, "flex-pack", "flex_pack", source, "[onnx_tflite_plugin.hooks]\nflex = flex_pack:hooks\n")
    conversion = otp.convert(unary_model("CUSTOM.FlexSin"))
    assert conversion.report.nodes == {"Sin": 1}
    assert conversion.model.metadata_props["flex.target"] == "onnxruntime"
    with pytest.raises(otp.ConversionError, match="declined by flex-pack: only FlexSin is known"):
        otp.convert(unary_model("CUSTOM.FlexCos"))


def test_declining_entry_point_precedes_the_claim_hook(site: Path) -> None:
    source = """
        from onnx_tflite_plugin.api import Decline, Terminate, handler, hookimpl

        @handler("CUSTOM.Mine", max_version=1, layout=Terminate(), accepts=lambda at: Decline("the entry point", "do this"))
        def mine(ctx, x):
            return x

        @hookimpl
        def claim(op):
            return Decline("the hook", "do that") if op.code.startswith("CUSTOM.") else None
    """
    entries = (
        "[onnx_tflite_plugin.handlers]\nCUSTOM.Mine = both_pack:mine\n[onnx_tflite_plugin.hooks]\nboth = both_pack\n"
    )
    install(site, "both-pack", "both_pack", source, entries)
    with pytest.raises(otp.ConversionError, match=r": declined by both-pack: the entry point \(do this\)$"):
        otp.convert(unary_model("CUSTOM.Mine"))
    with pytest.raises(otp.ConversionError, match=r": declined by both-pack: the hook \(do that\)$"):
        otp.convert(unary_model("CUSTOM.Other"))


def test_report_lists_packs_with_a_finish_hook(site: Path) -> None:
    source = """
        from onnx_tflite_plugin.api import hookimpl

        @hookimpl
        def finish(model):
            model.metadata_props["seen"] = "yes"
    """
    install(site, "pass-pack", "pass_pack", source, "[onnx_tflite_plugin.hooks]\npass = pass_pack\n")
    report = otp.convert(unary_model("NEG")).report
    assert report.finished_by == ("pass-pack",)
    assert list(summary_packs(report)) == ["pass-pack: hook 'finish'"]
    assert otp.convert(unary_model("NEG"), block=["pass-pack"]).report.finished_by == ()


def test_after_lowering_gets_each_operator_and_its_values(site: Path) -> None:
    source = """
        from onnx_tflite_plugin.api import hookimpl

        class Hooks:
            seen = []

            @hookimpl
            def after_lowering(self, op, outputs):
                self.seen.append((op.code, outputs[0].producer().op_type))

            @hookimpl
            def finish(self, model):
                model.metadata_props["seen"] = str(self.seen)

        hooks = Hooks()
    """
    install(site, "eye-pack", "eye_pack", source, "[onnx_tflite_plugin.hooks]\neye = eye_pack:hooks\n")
    conversion = otp.convert(add_model())
    assert conversion.model.metadata_props["seen"] == "[('ADD', 'Add')]"
    assert conversion.report.warnings == ()
