"""Tests of pack hooks, and of the hook that claims operators."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.api import Decline, Handler, Refusal, Transparent, handler, hookimpl
from onnx_tflite_plugin.binding.declared import OperatorInstance
from onnx_tflite_plugin.errors import HandlerError
from onnx_tflite_plugin.guard import BUILTIN, Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.hooks import Hooks
from onnx_tflite_plugin.host.model_changes import ValueSnapshot
from tests.helpers.pack_files import install, unary_model

OPERATOR: Any = SimpleNamespace(code="X", index=0, subgraph=0, version=1, inputs=(), outputs=())
INSTANCE = OperatorInstance(OPERATOR, SimpleNamespace(name="t"), 21)  # type: ignore[arg-type]


class ClaimPlugin:
    """Plugin whose hook ``claim`` declines with the reason, if there is one."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    @hookimpl
    def claim(self, op: object) -> Decline | None:
        return Decline(self.reason) if self.reason else None


class EntryPoint(ClaimPlugin):
    """Entry point of a handler, as the host wraps it."""

    __module__ = "onnx_tflite_plugin.host.host"


def make_hooks(*plugins: tuple[object, str, str]) -> Hooks:
    registry = Hooks({}, pytest.fail)
    for plugin, code, pack in plugins:
        registry.register(plugin, code, pack)
    return registry


def claims(pack_hooks: Hooks, *, has_pack_handler: bool = False) -> list[tuple[str, str]]:
    return [
        (pack, answer.reason)
        for pack, answer in pack_hooks.claims(INSTANCE, has_pack_handler)
        if isinstance(answer, Decline | Failed)
    ]


def test_claims_are_in_reverse_pack_order_and_omit_none() -> None:
    pack_hooks = make_hooks(
        (ClaimPlugin("a"), "hooks", "a-pack"), (ClaimPlugin(), "hooks", "b-pack"), (ClaimPlugin("c"), "hooks", "c-pack")
    )
    assert claims(pack_hooks) == [("c-pack", "c"), ("a-pack", "a")]


def test_hook_is_not_called_if_the_packs_entry_point_applies() -> None:
    pack_hooks = make_hooks(
        (EntryPoint("entry"), "X", "a-pack"),
        (ClaimPlugin("hook"), "hooks", "a-pack"),
        (ClaimPlugin("b"), "hooks", "b-pack"),
    )
    assert claims(pack_hooks) == [("b-pack", "b"), ("a-pack", "entry")]


def test_entry_point_of_another_operator_is_not_a_claim() -> None:
    pack_hooks = make_hooks((EntryPoint("entry"), "Y", "a-pack"), (ClaimPlugin("hook"), "hooks", "a-pack"))
    assert claims(pack_hooks) == [("a-pack", "hook")]


def test_built_in_hook_is_called_unless_another_pack_has_an_entry_point() -> None:
    pack_hooks = make_hooks((ClaimPlugin("built in"), "hooks", BUILTIN))
    assert claims(pack_hooks) == [(BUILTIN, "built in")]
    assert claims(pack_hooks, has_pack_handler=True) == []


def test_implementations_lists_hooks_but_not_handlers() -> None:
    pack_hooks = make_hooks((EntryPoint("entry"), "X", "a-pack"), (ClaimPlugin("b"), "hooks", "b-pack"))
    assert pack_hooks.implementations() == [("b-pack", "claim")]


def test_hooks_are_listed_by_pack_name() -> None:
    pack_hooks = make_hooks(*((ClaimPlugin(pack), "hooks", pack) for pack in "dbeac"))
    assert pack_hooks.implementations() == [(pack, "claim") for pack in "abcde"]


def test_skipped_hooks_fail_only_models_that_use_the_pack() -> None:
    pack_hooks = make_hooks((ClaimPlugin("a"), "hooks", "a-pack"), (ClaimPlugin("b"), "hooks", "b-pack"))
    pack_hooks.skip("a-pack", Failed("a-pack", "it failed"), ["finish"])
    assert len(claims(pack_hooks)) == 2
    pack_hooks.skip("a-pack", Failed("a-pack", "it failed"), ["claim"])
    assert claims(pack_hooks) == [("b-pack", "b")]
    pack_hooks.check({"b-pack"})
    with pytest.raises(HandlerError, match="the model uses fails"):
        pack_hooks.check({"a-pack"})


def test_claim_may_refuse_but_not_return_another_type() -> None:
    class Refuses:
        @hookimpl
        def claim(self) -> None:
            raise Refusal("not these")

    class Wrong:
        @hookimpl
        def claim(self) -> int:
            return 7

    pack_hooks = make_hooks((Refuses(), "hooks", "a-pack"), (Wrong(), "hooks", "b-pack"))
    (b, failed), (a, declined) = pack_hooks.claims(INSTANCE)
    assert (a, b) == ("a-pack", "b-pack")
    assert isinstance(declined, Decline)
    assert declined.reason == "not these"
    assert isinstance(failed, Failed)
    assert "not a Handler, a Decline or None" in failed.reason


def reported_problems(plugin: object) -> list[str]:
    reported: list[str] = []
    Hooks({}, reported.append).add(plugin, "hooks", "a-pack")
    return reported


def test_misspelled_hooks_are_reported() -> None:
    class Plugin:
        def finish(self, model: object) -> None: ...

        def finsh(self, model: object) -> None:
            text = str(model)  # a local variable is not an argument
            del text

        def finis(self, something: object) -> None: ...

        def _finish(self, model: object) -> None: ...

        @hookimpl
        def clam(self, op: object) -> None: ...

    messages = [text.partition("of a-pack: ")[2] for text in reported_problems(Plugin())]
    assert any(text.startswith("'finish' is not called, because it lacks @hookimpl") for text in messages)
    assert any(text.startswith("'finsh' is not a hook") for text in messages)
    assert any(
        text.startswith("'clam' is not called, because there is no hook of this name") and "claim" in text
        for text in messages
    )
    assert len(messages) == 3


def test_each_pack_is_configured_once() -> None:
    class Configured:
        def __init__(self) -> None:
            self.options_seen: list[object] = []

        @hookimpl
        def configure(self, options: object) -> None:
            self.options_seen.append(options)

    first, second = Configured(), Configured()
    pack_hooks = Hooks({"a": 1}, pytest.fail)
    pack_hooks.add(first, "hooks", "a-pack")
    pack_hooks.add(second, "hooks", "b-pack")
    assert first.options_seen == second.options_seen == [{"a": 1}]


def test_hook_that_removes_a_dtype_is_reported_and_undone() -> None:
    class Untyped:
        @hookimpl
        def finish(self, model: ir.Model) -> None:
            model.graph.outputs[0].type = None

    reported: list[str] = []
    pack_hooks = Hooks({}, reported.append)
    pack_hooks.add(Untyped(), "hooks", "a-pack")
    model = pack_hooks.finish(otp.convert(unary_model("NEG"), packs="builtin").model, ())
    assert "from 'y' float [2, 3] to 'y' ? [2, 3]" in reported[0]
    assert model.graph.outputs[0].dtype == ir.DataType.FLOAT


def test_value_without_a_producer_is_restored() -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, 3]))
    snapshot = ValueSnapshot(value)
    assert not snapshot.has_changed
    value.name, value.shape = "y", ir.Shape([3, 2])
    assert snapshot.has_changed
    snapshot.restore()
    assert (value.name, value.shape, snapshot.has_changed) == ("x", ir.Shape([2, 3]), False)


# --- hooks of an installed pack ---------------------------------------------------------------

FAILING_HOOKS = """
    from onnx_tflite_plugin.api import Dequantized, Transparent, handler, hookimpl

    @handler("SIN", max_version=1, layout=Transparent(), quantization=Dequantized())
    def sin(ctx, x):
        return ctx.ops.Cos(x)

    class Hooks:
        @hookimpl
        def configure(self, options):
            raise RuntimeError("not today")

        @hookimpl
        def finish(self, model):
            model.graph.name = "finished"

    hooks = Hooks()
"""


def test_hooks_that_fail_to_configure_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "[onnx_tflite_plugin.handlers]\nSIN = lame:sin\n[onnx_tflite_plugin.hooks]\nlame = lame:hooks\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "lame-pack", "lame", FAILING_HOOKS, entry)
    conversion = otp.convert(unary_model("COS"))
    assert conversion.proto.graph.name != "finished"
    assert any("the hooks of lame-pack are skipped" in text for text in conversion.report.warnings)
    with pytest.raises(otp.ConversionError, match="hook configure of lame-pack failed: RuntimeError: not today"):
        otp.convert(unary_model("SIN"))


def test_failing_hook_causes_one_warning_and_is_not_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tired = """
        from onnx_tflite_plugin.api import hookimpl

        class Hooks:
            calls = 0

            @hookimpl
            def finish(self, model):
                Hooks.calls += 1
                raise RuntimeError("tired")

        hooks = Hooks()
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "tired-pack", "tired", tired, "[onnx_tflite_plugin.hooks]\ntired = tired:hooks\n")
    host = Host()
    first, _second = (otp.convert(unary_model("COS"), host=host).report.warnings for _ in range(2))
    assert [text for text in first if "tired" in text]
    assert import_module("tired").Hooks.calls == 1


CLAIMING = """
from onnx_tflite_plugin.api import Decline, Transparent, handler, hookimpl

@handler("CUSTOM.Mine", max_version=1, layout=Transparent(), {declared})
def mine(ctx, x):
    return ctx.ops.Abs(x)

@hookimpl
def claim(op):
    return mine if op.code == "CUSTOM.Mine" else None
"""


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ("types='int8 -> int8'", "declined by claim-pack: .*int8"),
        ("accepts=lambda at: Decline('not today')", "declined by claim-pack: not today"),
        ("accepts=lambda at: 1 / 0", "accepts of handler claim_pack:mine of claim-pack failed: ZeroDivisionError"),
    ],
)
def test_claimed_handler_declines_what_its_declarations_exclude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str, reason: str
) -> None:
    source = CLAIMING.replace("{declared}", declared)
    install(tmp_path, "claim-pack", "claim_pack", source, "[onnx_tflite_plugin.hooks]\nclaim = claim_pack\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(otp.ConversionError, match=reason):
        otp.convert(unary_model("CUSTOM.Mine"))


def test_claimed_handler_must_match_the_operator() -> None:
    class Wrong:
        @hookimpl
        def claim(self) -> Handler:
            return handler("CUSTOM.zzz", max_version=1, layout=Transparent())(lambda ctx, x: x)

    ((_, failed),) = make_hooks((Wrong(), "hooks", "a-pack")).claims(INSTANCE)
    assert isinstance(failed, Failed)
    remedy = "use replace(handler, code=op.code)"
    assert f"it returned a handler of CUSTOM.zzz for {INSTANCE.op.code}; {remedy}" in failed.reason
