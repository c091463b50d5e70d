"""Fusions load only with their operators; entry points match the patterns."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.api import (
    Call,
    Context,
    Dequantized,
    Fusion,
    Handler,
    Terminate,
    Transparent,
    Value,
    fusion,
    handler,
    operands,
)
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import FUSIONS, HANDLERS, Host, Offer

(x,) = operands("x")


def fuse_pattern(name: str, *patterns: Call) -> Fusion:
    @fusion(name, pattern=patterns, inputs=[x], layout=Terminate())
    def lower(ctx: Context, x: Value) -> Value:
        raise NotImplementedError

    return lower


one = fuse_pattern("ONE", Call("CUSTOM.First.Of", x), Call("NEG", x))
two = fuse_pattern("TWO", Call("ABS", Call("ONE", x)))
no_fusion = 3


def offer(name: str, needs: str = "", module: str = __name__) -> Offer:
    return Offer(name, "a-pack", FUSIONS, EntryPoint(name, f"{module}:{name}{needs}", FUSIONS))


def load_fusions(present: set[str] | None, *offers: Offer) -> tuple[list[str], list[str]]:
    """Return names of the loaded fusions, and warnings."""
    host = Host(offers=offers)
    return [loaded.name for _, loaded in host.fusions(present)], host.warnings


def single(path: Path, code: str) -> Path:
    model = ModelBuilder()
    g = model.main
    a, y = g.input("a", (2, 3)), g.tensor("y", (2, 3))
    g.operator(code, [a, a], [y])
    g.output(y)
    path.write_bytes(model.build())
    return path


@pytest.mark.parametrize(("code", "modules"), [("ADD", []), ("MUL", ["op_handlers.fusions.activation"])])
def test_conversion_imports_only_fusions_for_its_operators(tmp_path: Path, code: str, modules: list[str]) -> None:
    script = (
        "import sys, onnx_tflite_plugin; onnx_tflite_plugin.convert(sys.argv[1]);"
        "print([name for name in sorted(sys.modules) if name.startswith('op_handlers.fusions.')])"
    )
    path = single(tmp_path / "single.tflite", code)
    process = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == str(modules)


def test_built_in_entry_points_match_their_patterns() -> None:
    host = Host(packs="builtin")
    assert len(host.fusions()) > 10
    assert all(offer.needs for offer in host.offers if offer.group == FUSIONS)
    assert host.warnings == []


@pytest.mark.parametrize("present", [{"NEG"}, {"CUSTOM.First.Of", "ADD"}])
def test_one_listed_operator_loads_the_fusion(present: set[str]) -> None:
    assert load_fusions(present, offer("one", " [CUSTOM.First.Of, NEG]")) == (["ONE"], [])


def test_fusion_without_listed_operators_is_not_imported() -> None:
    assert load_fusions({"ADD", "CUSTOM", "First"}, offer("one", " [CUSTOM.First.Of,NEG]")) == ([], [])
    assert load_fusions({"ADD"}, offer("one", " [NEG]", module="no_such_module")) == ([], [])


def test_fusion_of_a_fusion_result_is_loaded_with_it() -> None:
    chain = offer("two", " [ONE]"), offer("one", " [CUSTOM.First.Of, NEG]")
    assert load_fusions({"NEG", "ABS"}, *chain) == (["TWO", "ONE"], [])
    assert load_fusions({"ABS"}, *chain) == ([], [])


def test_fusion_without_a_list_is_always_loaded() -> None:
    assert load_fusions({"ADD"}, offer("one")) == (["ONE"], [])


def test_all_fusions_are_loaded_without_operators() -> None:
    assert load_fusions(None, offer("one", " [CUSTOM.First.Of, NEG]"), offer("two", " [ONE]")) == (["ONE", "TWO"], [])


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        (" [NEG]", "lists NEG, but one pattern of ONE consists only of CUSTOM.First.Of"),
        (" [CUSTOM.First.Of, NEG, MUL]", "lists MUL, which occur in no pattern of ONE"),
    ],
)
def test_entry_point_that_contradicts_its_patterns_is_reported(needs: str, reason: str) -> None:
    names, (warning,) = load_fusions({"NEG"}, offer("one", needs))
    assert names == ["ONE"]
    assert f"the entry point one of a-pack {reason}" in warning


def test_invalid_fusion_is_skipped_with_a_warning() -> None:
    names, (first, second) = load_fusions(
        {"NEG"}, offer("no_fusion"), offer("one", module="no_such_module"), offer("one")
    )
    assert names == ["ONE"]
    assert "no_fusion of a-pack failed: it is the int 3, not a fusion" in first
    assert "no_such_module" in second


def test_warning_is_reported_once_per_host() -> None:
    host = Host(offers=[offer("no_fusion")])
    assert host.fusions() == host.fusions() == []
    assert len(host.warnings) == 1


misspelled = fuse_pattern("SPELT", Call("ABBS", Call("NEGG", x)))
of_a_fusion = fuse_pattern("OUTER", Call("ABS", Call("ONE", x)))


def test_unknown_operator_in_a_pattern_is_reported_with_a_suggestion() -> None:
    _, (warning,) = load_fusions(None, offer("misspelled"))
    assert warning == (
        "the fusion SPELT of a-pack looks for 'ABBS', which is neither an operator nor a fusion; did you mean 'ABS'? "
        "and for 'NEGG', which is neither an operator nor a fusion; did you mean 'NEG'?"
    )


def test_misspelled_operator_of_a_pattern_is_not_also_an_entry_point_problem() -> None:
    _, (warning,) = load_fusions(None, offer("misspelled", " [ABS]"))
    assert "entry point" not in warning


beside = fuse_pattern("BESIDE", Call("ABS", x, siblings=(Call("NEGG", Call("SIGNN", x)),)))
pair = fuse_pattern("PAIR", Call("ABS", x, siblings=(Call("SIGN", x),)))


def test_sibling_operators_belong_to_the_pattern() -> None:
    assert [name for name in ("NEGG", "SIGNN") if f"'{name}'" in load_fusions(None, offer("beside"))[1][0]] == [
        "NEGG",
        "SIGNN",
    ]
    assert load_fusions({"SIGN"}, offer("pair", " [SIGN]")) == (["PAIR"], [])


def test_pattern_may_contain_custom_operators_and_fusions() -> None:
    assert load_fusions({"ABS"}, offer("one"), offer("of_a_fusion"))[1] == []


@handler("SUB", max_version=1, layout=Transparent(), quantization=Dequantized(), aliases=("CUSTOM.Sub2",))
def subtract(ctx: Context, x: Value, y: Value) -> Value:
    raise NotImplementedError


def test_entry_point_is_named_after_the_operator_or_an_alias() -> None:
    def handler_of(name: str) -> Handler:
        return Offer(name, "a-pack", HANDLERS, EntryPoint(name, f"{__name__}:subtract", HANDLERS)).handler()

    assert handler_of("SUB") is handler_of("CUSTOM.Sub2") is subtract
    with pytest.raises(Failed, match="it is a handler of 'SUB'"):
        handler_of("ADD")
