"""Conformance cases of installed packs."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from conformance import command
from conformance.packs import select_suite
from onnx_tflite_plugin.errors import PackError

PACK = """
    from conformance.models import tensor, unary
    from onnx_tflite_plugin.api import Transparent, handler

    @handler("CUSTOM.Plus", max_version=1, layout=Transparent())
    def plus(ctx, x):
        return ctx.ops.Add(x, {amount})

    CASES = [unary("CUSTOM.Plus", "rank 4", tensor(2, 5, 7, 3), reference=lambda inputs: [inputs[0] + 1])]

    def cases():
        yield from CASES
"""


def install(folder: Path, cases: str, amount: str = "1.0") -> None:
    folder.mkdir()
    (folder / "plus_pack.py").write_text(dedent(PACK).replace("{amount}", amount))
    info = folder / "plus_pack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plus-pack\nVersion: 1.0\n")
    groups = {"handlers": "CUSTOM.Plus = plus_pack:plus", "cases": cases}
    text = "\n".join(f"[onnx_tflite_plugin.{group}]\n{line}" for group, line in groups.items() if line)
    (info / "entry_points.txt").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on ``sys.path``, in which tests install a pack."""
    folder = tmp_path / "site"
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "plus_pack", raising=False)
    return folder


@pytest.mark.parametrize("value", ["plus_pack:cases", "plus_pack:CASES"])
def test_cases_of_a_pack_are_a_list_or_a_function(site: Path, value: str) -> None:
    install(site, f"mine = {value}")
    selected = select_suite("plus_pack")
    assert [case.id for case in selected.cases] == ["CUSTOM.Plus-rank_4"]
    assert selected.handlers == (("CUSTOM.Plus", "plus-pack"),)
    assert command.run("plus-pack") == 0


def test_pack_with_wrong_results_fails(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "mine = plus_pack:cases", amount="2.0")
    assert command.run("plus-pack", ["CUSTOM.Plus"]) == 1
    output = capsys.readouterr().out
    assert "CUSTOM.Plus-rank_4 failed" in output
    assert "1 cases, 3 conversions" in output


def test_pack_without_cases_fails(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "")
    assert command.run("plus-pack") == 1
    assert "CUSTOM.Plus of plus-pack has no case" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("plus_pack:gone", "module 'plus_pack' has no 'gone'"),
        ("plus_pack:plus", "TypeError"),
        ("plus_pack:PACKED", "it yields the str 'text'"),
    ],
)
def test_load_error_of_cases_names_pack_and_entry_point(site: Path, value: str, reason: str) -> None:
    install(site, f"mine = {value}")
    with (site / "plus_pack.py").open("a") as file:
        file.write('PACKED = ["text"]\n')
    with pytest.raises(PackError, match=rf"loaded:\n  entry point mine = {value} of plus-pack failed: {reason}"):
        select_suite("plus-pack")


def test_broken_cases_do_not_stop_other_packs(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "mine = plus_pack:gone")
    for op, code in (("SHAPE", 0), ("CUSTOM.Plus", 1)):
        assert command.run(None, [op]) == code
        output = " ".join(capsys.readouterr().out.split())
        assert "entry point mine = plus_pack:gone of plus-pack failed: module 'plus_pack' has no 'gone'" in output


@pytest.mark.parametrize("statement", ["sys.exit(0)", "1 / 0"])
def test_case_that_raises_or_exits_fails(site: Path, capsys: pytest.CaptureFixture[str], statement: str) -> None:
    install(site, "mine = plus_pack:cases")
    path = site / "plus_pack.py"
    source = f"import sys\ndef stop(inputs):\n    {statement}\n\n{path.read_text()}"
    path.write_text(source.replace("lambda inputs: [inputs[0] + 1]", "stop"))
    assert command.run("plus-pack") == 1
    assert "the case cannot be run: " in capsys.readouterr().out


def test_pack_with_only_hooks_can_run_its_cases(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "mine = plus_pack:cases")
    path, entries = site / "plus_pack.py", site / "plus_pack-1.0.dist-info" / "entry_points.txt"
    claim = "class Hooks:\n    @hookimpl\n    def claim(self, op):\n        return plus if op.code == 'CUSTOM.Plus' else None\n"
    path.write_text(f"from onnx_tflite_plugin.api import hookimpl\n{path.read_text()}\n{claim}\nhooks = Hooks()\n")
    cases = "[onnx_tflite_plugin.cases]\nmine = plus_pack:cases\n"
    entries.write_text(f"{cases}[onnx_tflite_plugin.hooks]\nmine = plus_pack:hooks\n")
    assert command.run("plus-pack") == 0
    assert "1 cases, 3 conversions" in capsys.readouterr().out


def test_override_must_pass_the_built_in_cases() -> None:
    selected = select_suite(None, ["NEG"])
    assert {case.op for case in selected.cases} == {"NEG"}
    assert len(selected.cases) > 5


def test_rejects_a_pack_that_is_not_installed() -> None:
    with pytest.raises(PackError, match="no installed distribution with that name"):
        command.run("no-such-pack")
