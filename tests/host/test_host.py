"""Selection of the pack that converts an operator.

Packs are entry points in memory; nothing is installed.
"""

from __future__ import annotations

import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.api import Call, Decline, Handler, Terminate, Transparent, fusion, handler, operands
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.conversion import convert_model
from onnx_tflite_plugin.errors import AttributedProblem, InternalError, Problem, UnsupportedOperator, UnsupportedOption
from onnx_tflite_plugin.guard import BUILTIN, Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.missing_operators import NO_HANDLER_REASON, describe_location
from onnx_tflite_plugin.host.model_changes import copy_model
from onnx_tflite_plugin.host.offers import FUSIONS, HANDLERS, Offer, discover
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Operator, Options, Tensor
from onnx_tflite_plugin.targets import target_named
from tests.helpers.pack_files import install

GENERIC = target_named("generic")
X, Y = (Tensor(0, k, name, "float32", (2, 3), (2, 3)) for k, name in enumerate("xy"))


class Entry:
    """An entry point that is already loaded."""

    name = "it"
    value = f"{__name__}:it"

    def __init__(self, loaded: object) -> None:
        self.loaded = loaded

    def load(self) -> object:
        return self.loaded


def make_handler(code: str, accepts: Any = None, version: int = 1) -> Handler:
    @handler(code, max_version=version, layout=Terminate(), accepts=accepts)
    def it(ctx: Any, x: Any) -> Any:
        return x

    return it


def offer(pack: str, code: str = "ABS", accepts: Any = None, *, unmet: str = "", version: int = 1) -> Offer:
    entry: Any = Entry(make_handler(code, accepts, version))
    return Offer(code, pack, HANDLERS, entry, unmet)


def operator(code: str = "ABS", version: int = 1) -> Operator:
    return Operator(0, 0, code, code, version, Options("none"), (X,), (Y,))


def selected_pack(host: Host, op: Operator | None = None) -> str:
    """Return the pack that handles an operator, or the text of the error."""
    binding = host.bind_operator(op or operator(), GENERIC, 21)
    return binding.pack if isinstance(binding, Bound) else binding.reason


def declines(at: Any) -> Decline:
    return Decline("too large")


def fails(at: Any) -> Decline:
    raise IndexError("nothing there")


def test_failing_pack_causes_a_warning_but_declining_pack_does_not() -> None:
    host = Host(offers=[offer(BUILTIN), offer("a-pack", accepts=declines)])
    assert (selected_pack(host), host.warnings) == (BUILTIN, [])
    host = Host(offers=[offer(BUILTIN), offer("a-pack", accepts=fails)])
    assert selected_pack(host) == BUILTIN
    (warning,) = host.warnings
    assert warning.startswith("accepts of handler")
    assert warning.endswith("; the claim of a-pack is skipped")


def test_first_preferred_pack_that_accepts_wins() -> None:
    offers = [offer(BUILTIN), offer("a-pack"), offer("B_pack"), offer("c-pack", accepts=declines)]
    assert "claimed by two packs, B_pack and a-pack" in selected_pack(Host(offers=offers))
    assert selected_pack(Host(offers=offers, prefer=["c-pack", "b.pack", "a-pack"])) == "B_pack"
    assert selected_pack(Host(offers=offers, prefer=["c-pack", "a-pack", "b.pack"])) == "a-pack"
    assert selected_pack(Host(offers=offers, prefer=[BUILTIN])) == BUILTIN
    assert selected_pack(Host(offers=offers, block=["A.Pack"])) == "B_pack"
    assert selected_pack(Host(offers=offers, packs="builtin")) == BUILTIN
    assert selected_pack(Host(offers=offers, packs=" builtin, a_pack ,")) == "a-pack"


def test_handler_object_and_installed_pack_in_conflict_are_both_named() -> None:
    host = Host(offers=[offer("acme")], handlers={"ABS": make_handler("ABS")})
    problem = str(host.bind_operator(operator(), GENERIC, 21))
    assert "claimed by the installed acme and by Host(handlers=...)" in problem
    assert "choose with Host(prefer=['inline'], ...) or Host(block=['acme'], ...)" in problem


def test_only_replacing_a_built_in_handler_is_an_override() -> None:
    host = Host(offers=[offer(BUILTIN), offer("a-pack"), offer("a-pack", "CUSTOM.A")])
    for code in ("ABS", "CUSTOM.A"):
        assert selected_pack(host, operator(code)) == "a-pack"
    assert host.overrides == {"ABS": "a-pack"}
    host = Host(offers=[offer(BUILTIN), offer("a-pack")], prefer=[BUILTIN])
    assert (selected_pack(host), host.overrides) == (BUILTIN, {})


def test_operator_version_beyond_max_version_is_refused() -> None:
    host = Host(offers=[offer(BUILTIN, version=3)])
    assert selected_pack(host, operator(version=3)) == BUILTIN
    assert (
        selected_pack(host, operator(version=4)) == f"version 4 is not supported; {BUILTIN} supports versions up to 3"
    )


def test_pack_for_another_version_is_reported_once_and_as_remedy() -> None:
    host = Host(offers=[offer("a-pack", unmet="~=9.1"), offer("a-pack", "NEG", unmet="~=9.1")])
    assert len(host.warnings) == 1
    assert "a-pack is skipped: it requires onnx-tflite-plugin ~=9.1" in host.warnings[0]
    assert "a-pack, which has a handler for it, is skipped" in selected_pack(host)
    assert len(host.warnings) == 1
    assert host.handler_names() == []


@pytest.mark.parametrize(
    ("code", "reported"),
    [
        ("CUSTOM.A", ""),
        ("CUSTOM.", "the operator's name after the dot is missing"),
        ("UNKNOWN_300", ""),
        ("NEG", ""),
        ("custom.Acme", "the prefix of a custom operator is CUSTOM.; write CUSTOM.Acme in setup.cfg and in @handler"),
        ("neg", "TFLite has no operator 'neg'; did you mean 'NEG'? a custom operator is named CUSTOM.neg"),
    ],
)
def test_entry_point_of_an_unknown_operator_causes_warning(code: str, reported: str) -> None:
    host = Host(offers=[offer("a-pack", code)])
    assert [reported in warning for warning in host.warnings] == ([True] if reported else [])
    ((operator_code, pack, outcome),) = host.handlers()
    assert (operator_code, pack, isinstance(outcome, Failed)) == (code, "a-pack", bool(reported))


def test_unused_entry_point_is_a_problem_of_a_model_that_is_refused() -> None:
    model = ModelBuilder()
    model.main.operator("CUSTOM.Mine", [model.main.input("x", (2,))], [y := model.main.tensor("y", (2,))])
    model.main.output(y)
    host = Host(offers=[offer("a-pack", "neg")])
    with pytest.raises(UnsupportedOperator) as caught:
        host.bind(read(model.build()), GENERIC, 18)
    assert [problem.reason.partition(":")[0] for problem in caught.value.problems] == [
        NO_HANDLER_REASON,
        "the entry point is unused",
    ]
    assert "of a-pack" in caught.value.problems[1].where


def test_named_packs_that_are_installed_cause_no_warning() -> None:
    assert Host(offers=[offer("a-pack")], prefer=["A_Pack", BUILTIN], block=["inline"]).warnings == []


def test_blocking_a_missing_pack_causes_warning() -> None:
    host = Host(offers=[offer("a-pack")], block=["more"])
    assert host.warnings == [
        "no op pack 'more' is installed, so --block more has no effect; installed op packs: a-pack"
    ]


@pytest.mark.parametrize("selection", [{"prefer": ["a-pak"]}, {"packs": "builtin,a-pak"}, {"packs": ["a-pak"]}])
def test_selecting_a_missing_pack_is_an_error(selection: Any) -> None:
    with pytest.raises(
        UnsupportedOption,
        match="no op pack 'a-pak' is installed, only a-pack, onnx-tflite-plugin; did you mean 'a-pack'",
    ):
        Host(offers=[offer("a-pack")], **selection)


def test_handlers_are_sorted_by_operator_then_pack() -> None:
    host = Host(offers=[offer("b-pack", "NEG"), offer("b-pack"), offer("a-pack", "NEG")])
    assert host.handler_names() == [("ABS", "b-pack"), ("NEG", "a-pack"), ("NEG", "b-pack")]
    assert [(code, pack) for code, pack, _ in host.handlers()] == host.handler_names()
    assert [pack for _, pack, _ in host.handlers(["NEG"])] == ["a-pack", "b-pack"]


def test_missing_operator_is_described_by_location_and_count() -> None:
    first = operator()
    inner = replace(first, subgraph=2, index=5, outputs=(None, Y), version=3)
    assert describe_location([first]) == "ABS v1 (op 0, output 'y')"
    assert describe_location([inner, first, first]) == "ABS v3 (subgraph 2 op 5, output 'y', 3 in all)"
    assert describe_location([replace(first, outputs=())]) == "ABS v1 (op 0)"


def test_problem_without_hint_has_no_brackets() -> None:
    assert str(Problem("op 0", "it is wrong")) == "op 0: it is wrong"
    assert str(Problem("op 0", "it is wrong", "mend it")) == "op 0: it is wrong (mend it)"


def test_handler_under_wrong_name_is_reported_with_location() -> None:
    ((_, _, failed),) = Host(offers=[replace(offer("a-pack"), code="NEG")]).handlers()
    assert isinstance(failed, Failed)
    assert "it is a handler of 'ABS'" in failed.reason
    assert f"{__file__}:" in failed.reason


# --- in a conversion --------------------------------------------------------------------------


(X_OPERAND,) = operands("x")


@fusion("NEGATED_ABS", layout=Transparent(), pattern=Call("NEG", Call("ABS", X_OPERAND)), inputs=(X_OPERAND,))
def negate_abs(ctx: Any, x: Any) -> Any:
    return ctx.ops.Neg(ctx.ops.Abs(x))


def chain(*codes: str, stored: tuple[int, ...] = (2, 3)) -> bytes:
    """Return a chain of operators whose results all have these stored sizes."""
    model = ModelBuilder()
    value = model.main.input("x", (2, 3))
    for k, code in enumerate(codes):
        result = model.main.tensor(f"y{k}", stored)
        model.main.operator(code, [value], [result])
        value = result
    model.main.output(value)
    return model.build()


def test_stale_sizes_are_derived_with_the_conversions_handlers() -> None:
    @handler("CUSTOM.A", max_version=1, layout=Transparent())
    def negate(ctx: Any, x: Any) -> Any:
        return ctx.ops.Neg(x)

    converted = otp.convert(chain("ABS", "CUSTOM.A", stored=(5, 7)), host=Host(handlers={"CUSTOM.A": negate}))
    assert converted.report.outputs[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("failing", "to_converter"), [([BUILTIN], True), ([BUILTIN, "a-pack"], False), (["a-pack"], False), ([], None)]
)
def test_missing_operator_is_attributed_to_converter_without_pack_failure(
    failing: list[str], to_converter: bool
) -> None:
    packs = [BUILTIN, "a-pack"]
    host = Host(offers=[offer(pack, accepts=fails if pack in failing else declines) for pack in packs])
    missing = host.bind_operator(operator(), GENERIC, 21)
    assert isinstance(missing, Problem)
    assert (missing.to_converter if isinstance(missing, AttributedProblem) else None) is to_converter


def test_converter_failure_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_index_error(model: object) -> int:
        raise IndexError("nothing there")

    monkeypatch.setattr("onnx_tflite_plugin.pipeline.node_counts", raise_index_error)
    with pytest.raises(InternalError) as caught:
        convert_model(read(chain("ABS")))
    (problem,) = caught.value.problems
    assert isinstance(problem, AttributedProblem)
    assert problem.to_converter


def test_failure_in_declarations_of_a_fusion_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_index_error(model: object) -> int:
        raise IndexError("nothing there")

    entry: Any = Entry(negate_abs)
    host = Host(offers=[*discover(), Offer("NEGATED_ABS", "a-pack", FUSIONS, entry)])
    assert otp.convert(chain("ABS", "NEG"), host=host).report.fused == {"NEGATED_ABS": 1}
    monkeypatch.setattr("onnx_tflite_plugin.pipeline.node_counts", raise_index_error)
    with pytest.raises(otp.ConversionError, match="of a-pack are wrong"):
        otp.convert(chain("ABS", "NEG"), host=host)


def test_model_without_8_bit_products_has_no_weights_metadata() -> None:
    assert [key for key in otp.convert(chain("ABS")).model.metadata_props if "weights" in key] == []


def test_changing_a_copied_model_keeps_the_original() -> None:
    model = ModelBuilder()
    x, w = model.main.input("x", (2, 3)), model.main.constant("w", np.arange(3, dtype=np.float32))
    y = model.main.tensor("y", (2, 3))
    model.main.operator("ADD", [x, w], [y])
    model.main.output(y)
    converted = otp.convert(model.build()).model
    copied = copy_model(converted)
    values = [
        [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
        for graph in (converted.graph, copied.graph)
    ]
    assert len(values[0]) == len(values[1]) == 3
    for before, after in zip(*values, strict=True):
        assert before.type == after.type
        assert before.type is not after.type


# --- discovery of installed packs -------------------------------------------------------------


def test_metadata_of_other_distributions_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_bytes(b"Name: other\nAuthor: M\xfcller\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nother = other:main\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Host().warnings == []
    (info / "entry_points.txt").write_text("[onnx_tflite_plugin.handlers]\nABS = other:it\n")
    (warning,) = Host().warnings
    assert "other-1.0.dist-info cannot be read: UnicodeDecodeError" in warning


@pytest.mark.parametrize("kind", ["wheel", "egg", "egg-info"])
def test_packs_are_found_in_every_install_format(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / {"wheel": "old.whl", "egg": "old-1.0-py3.11.egg", "egg-info": "site"}[kind]
    info = {"wheel": "old_pack-1.0.dist-info", "egg": "EGG-INFO", "egg-info": "old_pack-1.0.egg-info"}[kind]
    texts = {
        "METADATA" if kind == "wheel" else "PKG-INFO": "Metadata-Version: 2.1\nName: old-pack\nVersion: 1.0\n",
        "entry_points.txt": "[onnx_tflite_plugin.handlers]\nABS = old_pack:it\n",
    }
    if kind == "wheel":
        with zipfile.ZipFile(folder, "w") as archive:
            for name, text in texts.items():
                archive.writestr(f"{info}/{name}", text)
    else:
        (folder / info).mkdir(parents=True)
        for name, text in texts.items():
            (folder / info / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    assert [(offer.code, offer.group) for offer in discover() if offer.pack == "old-pack"] == [("ABS", HANDLERS)]


def test_empty_path_entry_is_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "here-pack", "here_pack", "", "[onnx_tflite_plugin.handlers]\nABS = here_pack:it\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nowhere"), "", *sys.path])
    assert "here-pack" in {offer.pack for offer in discover()}
