"""Cases of a pack with hooks: wrong names and failing hooks make a case fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.models import Net, net, tensor
from conformance.runner import CaseResult, run_case
from onnx_tflite_plugin.host import Host
from tests.helpers.pack_files import install


def subtract(model: Net) -> None:
    operands = [model.input(tensor(2, 3, name=name)) for name in ("vendor/a", "b")]
    model.output(model.call("SUB", operands, tensor(2, 3, name="vendor/y")))


def run_with_hook(folder: Path, monkeypatch: pytest.MonkeyPatch, returned: str, renames: dict[str, str]) -> CaseResult:
    """Return the result of a case for a pack with a hook ``rename``."""
    source = f"""
        from onnx_tflite_plugin.api import hookimpl
        @hookimpl
        def rename(inputs, outputs):
            return {returned}
    """
    install(folder, "naming", "naming", source, "[onnx_tflite_plugin.hooks]\nnaming = naming\n")
    monkeypatch.syspath_prepend(str(folder))
    return run_case(net("SUB", "names", subtract, renames=renames), Host(prefer=["naming"]))


WITHOUT_PREFIX = "{name: name.removeprefix('vendor/') for name in (*inputs, *outputs)}"


def test_renamed_outputs_pass_if_the_case_expects_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renames = {"vendor/a": "a", "b": "b", "vendor/y": "y"}
    result = run_with_hook(tmp_path, monkeypatch, WITHOUT_PREFIX, renames)
    assert result.status == "passed", result.text


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("{outputs[0]: 'y'}", "'vendor/a' keeps its name, but 'a' is expected; correct the hook `rename`"),
        ("dict(zip(inputs, ['x', 'a']))", "'vendor/a' is renamed to 'x', not to 'a'; correct the hook `rename`"),
        (
            "{inputs[0]: 'b'}",
            "hook rename of naming failed: it renames 'vendor/a' to 'b', but 'b' is taken by a graph input",
        ),
        ("{inputs[5]: 'b'}", "hook rename of naming failed: IndexError"),
    ],
)
def test_wrong_hook_makes_a_case_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: str, reason: str
) -> None:
    result = run_with_hook(tmp_path, monkeypatch, returned, {"vendor/a": "a"})
    assert result.status == "failed"
    assert reason in result.text


def test_failing_hook_of_another_pack_does_not_fail_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with_hook(tmp_path, monkeypatch, "1 / 0", {})
    assert run_case(net("SUB", "names", subtract), Host()).status == "passed"


def test_failing_hook_is_the_only_reason_of_every_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host skips the hook after its first failure."""
    renames = {"vendor/a": "a"}
    run_with_hook(tmp_path, monkeypatch, "1 / 0", renames)
    host = Host(prefer=["naming"])
    for _ in range(2):
        result = run_case(net("SUB", "names", subtract, renames=renames), host)
        (reason,) = result.reasons
        assert "hook rename of naming failed: ZeroDivisionError" in reason
