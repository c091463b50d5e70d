"""Test that faults of an op pack are attributed to it, and that unrelated models still convert."""

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
from tests.packs.hostile import HANDLER, PACKS, PRINTED, PRINTS, Hostile, handler, lowers


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


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    file: Path


Convert = Callable[..., Ran]


@pytest.fixture
def convert(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Convert:
    """Return a function that runs ``convert`` and captures file descriptors 1 and 2."""

    def call(code: str, *options: str) -> Ran:
        source, file = tmp_path / f"{code}.tflite", tmp_path / f"{code}.onnx"
        source.write_bytes(model(code))
        with pytest.raises(SystemExit) as left:
            cli.main(["convert", str(source), str(file), *options], prog_name="otp")
        return Ran(int(left.value.code or 0), *capfd.readouterr(), file)

    return call


def json_document(ran: Ran) -> dict[str, Any]:
    """Return the one JSON document that stdout holds."""
    document = json.loads(ran.out)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("pack", PACKS, ids=lambda pack: pack.what)
@pytest.mark.usefixtures("falls_back")
def test_failure_names_pack_function_and_location(
    pack: Hostile, install_hostile: Callable[[Hostile], None], convert: Convert
) -> None:
    install_hostile(pack)
    ran = convert("CUSTOM.Evil", "--json")
    document = json_document(ran)
    message = ran.err + "\n".join(document.get("warnings", ()))
    for text in pack.says:
        assert text in message
    assert "Traceback" not in message
    if pack.placed:
        assert "evil_pack.py:" in message
    if pack.converts:
        assert ran.code == 0
        assert ran.file.exists()
    else:
        assert ran.code == 1
        assert not ran.file.exists()
        assert "evil-pack" in message
        assert ("--block evil-pack" in message) == ("another version" not in pack.what)


@pytest.mark.parametrize("pack", PACKS, ids=lambda pack: pack.what)
def test_unrelated_model_converts_to_the_same_bytes(
    pack: Hostile, install_hostile: Callable[[Hostile], None], convert: Convert
) -> None:
    expected = otp.convert(model("ADD"), packs="builtin").proto.SerializeToString()
    install_hostile(pack)
    ran = convert("ADD", "--json")
    assert ran.code == 0, ran.err
    assert ran.file.read_bytes() == expected
    warnings = "\n".join(json_document(ran)["warnings"])
    assert ("evil-pack" in warnings) == pack.warns
    for text in pack.says if pack.warns else ():
        assert text in warnings
    assert json_document(convert("ADD", "--json", "--block", "evil-pack"))["warnings"] == []


def test_number_of_hostile_packs() -> None:
    assert len(PACKS) >= 20
    assert len({pack.what for pack in PACKS}) == len(PACKS)


# --- beyond the table -------------------------------------------------------------------------


def test_interruption_names_the_current_operator(install_hostile: Callable[[Hostile], None], convert: Convert) -> None:
    install_hostile(lowers("hangs", "raise KeyboardInterrupt"))
    ran = convert("CUSTOM.Evil")
    assert ran.code == 130
    assert "in handler evil_pack:evil of evil-pack, at op 0 CUSTOM.Evil v1 'y'" in ran.err


def test_terminated_process_is_not_attributed_to_a_pack(
    install_hostile: Callable[[Hostile], None], convert: Convert
) -> None:
    """SIGTERM raises an exception inside a handler, but is not the handler's fault."""
    install_hostile(lowers("is ended", "from onnx_tflite_plugin.guard import Terminated; raise Terminated(143)"))
    ran = convert("CUSTOM.Evil")
    assert ran.code == 143
    assert "evil" not in ran.err


def test_traceback_is_shown_on_request(
    install_hostile: Callable[[Hostile], None], convert: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNX_TFLITE_PLUGIN_DEBUG", "1")
    install_hostile(lowers("raises", "raise ValueError('bad luck')"))
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
    install_hostile(lowers("prints", f"{PRINTS}; return ctx.ops.Abs(x)"))
    ran = convert("CUSTOM.Evil", "--quiet")
    assert ran.out == ""
    assert all(text in ran.err for text in PRINTED)


def test_reports_each_failing_operator(install_hostile: Callable[[Hostile], None]) -> None:
    install_hostile(lowers("raises", "raise ValueError(ctx.op.index)"))
    builder = ModelBuilder()
    g = builder.main
    x = g.input("x", (2, 3))
    for name in ("y", "z"):
        made = g.tensor(name, (2, 3))
        g.operator("CUSTOM.Evil", [x], [made])
        g.output(made)
    with pytest.raises(otp.ConversionError) as caught:
        otp.convert(builder.build())
    assert [problem.where for problem in caught.value.problems] == [
        "op 0 CUSTOM.Evil v1 'y'",
        "op 1 CUSTOM.Evil v1 'z'",
    ]


@pytest.mark.parametrize(
    "pack", [pack for pack in PACKS if pack.what.startswith(("import", "entry"))], ids=lambda pack: pack.what
)
def test_list_of_handlers_shows_errors(
    pack: Hostile, install_hostile: Callable[[Hostile], None], capfd: pytest.CaptureFixture[str]
) -> None:
    install_hostile(pack)
    with pytest.raises(SystemExit) as left:
        cli.main(["handlers", "--json"], prog_name="otp")
    assert not left.value.code
    rows = [row for row in json.loads(capfd.readouterr().out)["handlers"] if row["pack"] == "evil-pack"]
    errors = "".join(row["error"] for row in rows)
    if pack.says != PRINTED:
        assert all(text in errors for text in pack.says)


def test_hooks_without_handlers_are_listed(
    install_hostile: Callable[[Hostile], None], capfd: pytest.CaptureFixture[str]
) -> None:
    install_hostile(next(pack for pack in PACKS if pack.what == "hook claim raises"))
    with pytest.raises(SystemExit):
        cli.main(["handlers", "--json"], prog_name="otp")
    assert {"pack": "evil-pack", "hook": "claim"} in json.loads(capfd.readouterr().out)["hooks"]


def test_pack_is_skipped_only_for_an_incompatible_version() -> None:
    from onnx_tflite_plugin.host.offers import unmet

    suits = [
        "onnx-tflite-plugin",
        "onnx_tflite_plugin>=0.2",
        "onnx-tflite-plugin (~=0.2.0)",
        "onnx-tflite-plugin==0.2.*",
    ]
    suits += [
        "onnx-tflite-plugin~=0.1",
        "onnx-tflite-plugin<1,!=0.2.4",
        "numpy<1",
        "onnx-tflite-plugin[verify]>9; extra == 'x'",
        "onnx-tflite-plugin-extras~=9.1.0",
    ]
    assert [unmet((text,), "0.2.3") for text in suits] == [""] * len(suits)
    others = ["~=0.1.0", "~=0.2.4", "~=0.2.3.1", ">=0.3", "==0.2.1", "<0.2", "!=0.2.*", "~=1.0", ">0.2.3", "===0.2"]
    assert [unmet((f"onnx-tflite-plugin{text}",), "0.2.3") for text in others] == others
