"""Faults of a pack are attributed to it, and unrelated models convert."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.cli import cli
from tests.packs.hostile import HANDLER, PACKS, PRINTED, PRINTS, Hostile, handler, lowering_fault


def model(code: str) -> bytes:
    """Return a model with one operator."""
    builder = ModelBuilder()
    g = builder.main
    x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
    g.operator(code, [x, x] if code == "ADD" else [x], [y])
    g.output(y)
    return builder.build()


@pytest.fixture
def install_hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Hostile], None]]:
    """Return a function that installs a pack as pip does."""
    folder = tmp_path / "site"

    def install(pack: Hostile) -> None:
        info = folder / "evil_pack-1.0.dist-info"
        info.mkdir(parents=True)
        requires = f"Requires-Dist: {pack.requires}\n" if pack.requires else ""
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: evil-pack\nVersion: 1.0\n{requires}")
        (info / "entry_points.txt").write_text(pack.entry_points)
        (folder / "evil_pack.py").write_text(pack.module)
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()

    yield install
    sys.modules.pop("evil_pack", None)


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str
    file: Path


Convert = Callable[..., CommandResult]


@pytest.fixture
def convert(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Convert:
    """Return a function that runs ``convert`` and captures file descriptors 1 and 2."""

    def call(code: str, *options: str) -> CommandResult:
        source, file = tmp_path / f"{code}.tflite", tmp_path / f"{code}.onnx"
        source.write_bytes(model(code))
        with pytest.raises(SystemExit) as exit_:
            cli.main(["convert", str(source), str(file), *options], prog_name="otp")
        return CommandResult(int(exit_.value.code or 0), *capfd.readouterr(), file)

    return call


def json_document(result: CommandResult) -> dict[str, Any]:
    """Return the JSON document on stdout."""
    document = json.loads(result.out)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("pack", PACKS, ids=lambda pack: pack.fault)
@pytest.mark.usefixtures("allow_skipped_fusions")
def test_failure_names_pack_function_and_location(
    pack: Hostile, install_hostile: Callable[[Hostile], None], convert: Convert
) -> None:
    install_hostile(pack)
    result = convert("CUSTOM.Evil", "--json")
    document = json_document(result)
    message = result.err + "\n".join(document.get("warnings", ()))
    for text in pack.messages:
        assert text in message
    assert "Traceback" not in message
    if pack.has_location:
        assert "evil_pack.py:" in message
    if pack.converts:
        assert result.code == 0
        assert result.file.exists()
    else:
        assert result.code == 1
        assert not result.file.exists()
        assert "evil-pack" in message
        assert ("--block evil-pack" in message) == ("another version" not in pack.fault)


@pytest.mark.parametrize("pack", PACKS, ids=lambda pack: pack.fault)
def test_unrelated_model_converts_to_the_same_bytes(
    pack: Hostile, install_hostile: Callable[[Hostile], None], convert: Convert
) -> None:
    expected = otp.convert(model("ADD"), packs="builtin").proto.SerializeToString()
    install_hostile(pack)
    result = convert("ADD", "--json")
    assert result.code == 0, result.err
    assert result.file.read_bytes() == expected
    warnings = "\n".join(json_document(result)["warnings"])
    assert ("evil-pack" in warnings) == pack.warns_always
    for text in pack.messages if pack.warns_always else ():
        assert text in warnings
    assert json_document(convert("ADD", "--json", "--block", "evil-pack"))["warnings"] == []


def test_hostile_packs_are_many_and_distinct() -> None:
    assert len(PACKS) >= 20
    assert len({pack.fault for pack in PACKS}) == len(PACKS)


# --- further faults ----------------------------------------------------------------------------


def test_interruption_names_the_current_operator(install_hostile: Callable[[Hostile], None], convert: Convert) -> None:
    install_hostile(lowering_fault("hangs", "raise KeyboardInterrupt"))
    result = convert("CUSTOM.Evil")
    assert result.code == 130
    assert "in handler evil_pack:evil of evil-pack, at op 0 CUSTOM.Evil v1 'y'" in result.err


def test_terminated_process_is_not_attributed_to_a_pack(
    install_hostile: Callable[[Hostile], None], convert: Convert
) -> None:
    """SIGTERM raises an exception inside a handler, which did not cause it."""
    install_hostile(
        lowering_fault("is terminated", "from onnx_tflite_plugin.guard import Terminated; raise Terminated(143)")
    )
    result = convert("CUSTOM.Evil")
    assert result.code == 143
    assert "evil" not in result.err


def test_traceback_is_shown_on_request(
    install_hostile: Callable[[Hostile], None], convert: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNX_TFLITE_PLUGIN_DEBUG", "1")
    install_hostile(lowering_fault("raises", "raise ValueError('bad luck')"))
    err = convert("CUSTOM.Evil").err
    assert "Traceback (most recent call last)" in err
    assert "raise ValueError('bad luck')" in err


def test_names_the_innermost_line_of_the_pack(install_hostile: Callable[[Hostile], None], convert: Convert) -> None:
    deep = "def deep():\n    return int('x')\n\ndef shallow():\n    return deep()\n\n"
    install_hostile(Hostile("", deep + handler("return shallow()"), HANDLER, ()))
    line = Hostile("", deep, {}, ()).module.splitlines().index("    return int('x')") + 1
    assert f"evil_pack.py:{line} in deep" in convert("CUSTOM.Evil").err


def test_quiet_redirects_output_of_packs_to_stderr(
    install_hostile: Callable[[Hostile], None], convert: Convert
) -> None:
    install_hostile(lowering_fault("prints", f"{PRINTS}; return ctx.ops.Abs(x)"))
    result = convert("CUSTOM.Evil", "--quiet")
    assert result.out == ""
    assert all(text in result.err for text in PRINTED)


def test_reports_each_failing_operator(install_hostile: Callable[[Hostile], None]) -> None:
    install_hostile(lowering_fault("raises", "raise ValueError(ctx.op.index)"))
    builder = ModelBuilder()
    g = builder.main
    x = g.input("x", (2, 3))
    for name in ("y", "z"):
        output = g.tensor(name, (2, 3))
        g.operator("CUSTOM.Evil", [x], [output])
        g.output(output)
    with pytest.raises(otp.ConversionError) as caught:
        otp.convert(builder.build())
    assert [problem.where for problem in caught.value.problems] == [
        "op 0 CUSTOM.Evil v1 'y'",
        "op 1 CUSTOM.Evil v1 'z'",
    ]


@pytest.mark.parametrize(
    "pack", [pack for pack in PACKS if pack.fault.startswith(("import", "entry"))], ids=lambda pack: pack.fault
)
def test_list_of_handlers_shows_errors(
    pack: Hostile, install_hostile: Callable[[Hostile], None], capfd: pytest.CaptureFixture[str]
) -> None:
    install_hostile(pack)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["handlers", "--json"], prog_name="otp")
    assert not exit_.value.code
    rows = [row for row in json.loads(capfd.readouterr().out)["handlers"] if row["pack"] == "evil-pack"]
    errors = "".join(row["error"] for row in rows)
    if pack.messages != PRINTED:
        assert all(text in errors for text in pack.messages)


def test_hooks_without_handlers_are_listed(
    install_hostile: Callable[[Hostile], None], capfd: pytest.CaptureFixture[str]
) -> None:
    install_hostile(next(pack for pack in PACKS if pack.fault == "hook claim raises"))
    with pytest.raises(SystemExit):
        cli.main(["handlers", "--json"], prog_name="otp")
    assert {"pack": "evil-pack", "hook": "claim"} in json.loads(capfd.readouterr().out)["hooks"]


def test_pack_is_skipped_only_for_an_incompatible_version() -> None:
    from onnx_tflite_plugin.host.offers import unmet_requirement

    compatible = [
        "onnx-tflite-plugin",
        "onnx_tflite_plugin>=0.2",
        "onnx-tflite-plugin (~=0.2.0)",
        "onnx-tflite-plugin==0.2.*",
    ]
    compatible += [
        "onnx-tflite-plugin~=0.1",
        "onnx-tflite-plugin<1,!=0.2.4",
        "numpy<1",
        "onnx-tflite-plugin[verify]>9; extra == 'x'",
        "onnx-tflite-plugin-extras~=9.1.0",
    ]
    assert [unmet_requirement((text,), "0.2.3") for text in compatible] == [""] * len(compatible)
    incompatible = [
        "~=0.1.0",
        "~=0.2.4",
        "~=0.2.3.1",
        ">=0.3",
        "==0.2.1",
        "<0.2",
        "!=0.2.*",
        "~=1.0",
        ">0.2.3",
        "===0.2",
    ]
    assert [unmet_requirement((f"onnx-tflite-plugin{text}",), "0.2.3") for text in incompatible] == incompatible
